/* nodes_snapshot_test.c - what a snapshot of the nodes keeps, and what it decodes again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/nodes_snapshot.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct reserve_fixture world;

static int set_up(void **state)
{
    (void)state;
    return reserve_fixture_open(&world);
}

static int tear_down(void **state)
{
    (void)state;
    reserve_fixture_close(&world);
    return 0;
}

/* What the last body saw, and whether it changes its snapshot. */
struct look {
    uint32_t nodes_count;
    const struct tdm__node_resources *resources; /* Where the resources were. */
    int64_t free_cpus[4];                        /* Free CPUs of the nodes. */
    bool changes;
    bool ended;
};

static tdm_status look_body(void *arg, struct tdm__txn *txn)
{
    struct look *look = arg;
    struct tdm__nodes_snapshot snapshot;

    TDM_TRY(tdm__nodes_snapshot_read(txn, &snapshot));
    look->nodes_count = snapshot.nodes_count;
    look->resources = snapshot.resources;
    for (uint32_t i = 0; i < snapshot.nodes_count && i < 4; i++) {
        assert_memory_equal(&snapshot.nodes[i].id, &snapshot.resources[i].id,
                            sizeof(snapshot.nodes[i].id));
        look->free_cpus[i] = snapshot.resources[i].pool.cpu.free / TDM__RESOURCE_ONE;
        if (look->changes) {
            tdm__nodes_snapshot_change(&snapshot, i)->pool.cpu.free = 0;
        }
    }
    tdm__nodes_snapshot_fini(&snapshot);
    return TDM_OK;
}

static void on_looked(void *arg, tdm_status status, const char *detail)
{
    (void)detail;
    assert_int_equal(status, TDM_OK);
    ((struct look *)arg)->ended = true;
}

static bool has_looked(void *arg)
{
    return ((const struct look *)arg)->ended;
}

/* Looks at all nodes, with the read cache of the store or without. */
static struct look look_at(bool with_cache, bool changes)
{
    static const char *const patterns[] = {"node/*", "free/*"};
    struct look look = {.changes = changes};

    assert_int_equal(tdm__txn_run(world.store, with_cache ? world.store->read_cache : NULL,
                                  patterns, 2, tdm__deadline_after(10000), look_body, on_looked,
                                  &look),
                     TDM_OK);
    assert_int_equal(tdm__loop_run(world.loop, has_looked, &look, tdm__deadline_after(10000)),
                     TDM_OK);
    return look;
}

static void snapshot_follows_the_store(void **state)
{
    struct tdm__actor_request request = reserve_fixture_wish(1, "");
    struct tdm__id one = reserve_fixture_join(&world, "one", 1);
    struct look look;

    (void)state;
    for (int with_cache = 0; with_cache < 2; with_cache++) {
        assert_int_equal(look_at(with_cache, false).nodes_count, 1);
    }
    (void)reserve_fixture_join(&world, "two", 0);
    (void)reserve_fixture_join(&world, "three", 0);
    for (int with_cache = 0; with_cache < 2; with_cache++) {
        look = look_at(with_cache, false);
        assert_int_equal(look.nodes_count, 3);
        assert_int_equal(look.free_cpus[0] + look.free_cpus[1] + look.free_cpus[2], 24);
    }
    assert_int_equal(tdm__resources_add(&request.placement.wanted, "CPU", 3), TDM_OK);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
    look = look_at(true, false);
    assert_int_equal(look.free_cpus[0] + look.free_cpus[1] + look.free_cpus[2], 21);
    reserve_fixture_lose(&world, &one);
    look = look_at(true, false);
    assert_int_equal(look.nodes_count, 2);
    assert_int_equal(look.free_cpus[0] + look.free_cpus[1], 16);
}

static void records_that_are_known_stay_decoded(void **state)
{
    struct look first;

    (void)state;
    (void)reserve_fixture_join(&world, "one", 1);
    first = look_at(true, false);
    assert_ptr_equal(look_at(true, false).resources, first.resources);
}

static void change_of_a_snapshot_does_not_last(void **state)
{
    (void)state;
    (void)reserve_fixture_join(&world, "one", 1);
    (void)reserve_fixture_join(&world, "two", 1);
    for (int i = 0; i < 4; i++) {
        struct look look = look_at(true, true);

        assert_int_equal(look.free_cpus[0], 8);
        assert_int_equal(look.free_cpus[1], 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(snapshot_follows_the_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(records_that_are_known_stay_decoded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(change_of_a_snapshot_does_not_last, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
