/* reserve_sweep_test.c - records that lost nodes left in the store are removed, and nothing else.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { TEST_TIMEOUT_MS = 10000 };

static struct reserve_fixture world;

static int open_world(void **state)
{
    (void)state;
    return reserve_fixture_open(&world);
}

static int close_world(void **state)
{
    (void)state;
    reserve_fixture_close(&world);
    return 0;
}

/* ---- asking the store ------------------------------------------------------------------- */

struct waiting {
    bool done;
    tdm_status status;
    uint32_t records_count;
};

static bool is_done(void *arg)
{
    return ((struct waiting *)arg)->done;
}

static void wait_for(struct waiting *waiting)
{
    assert_int_equal(
        tdm__loop_run(world.loop, is_done, waiting, tdm__deadline_after(TEST_TIMEOUT_MS)), TDM_OK);
}

static void on_swept(void *arg, tdm_status status, const char *detail)
{
    struct waiting *waiting = arg;

    (void)detail;
    waiting->done = true;
    waiting->status = status;
}

static tdm_status sweep_by(const struct tdm__id *self)
{
    struct waiting waiting = {.done = false};

    assert_int_equal(tdm__reserve_sweep(world.store, self, tdm__deadline_after(TEST_TIMEOUT_MS),
                                        on_swept, &waiting),
                     TDM_OK);
    wait_for(&waiting);
    return waiting.status;
}

static tdm_status sweep(void)
{
    return sweep_by(&(struct tdm__id){.bytes = {0}});
}

static void on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                    uint32_t records_count)
{
    struct waiting *waiting = arg;

    (void)records;
    *waiting = (struct waiting){true, status, records_count};
}

static uint32_t count(const char *pattern)
{
    struct waiting waiting = {.done = false};

    world.store->ops->read(world.store, &pattern, 1, tdm__deadline_after(TEST_TIMEOUT_MS), on_read,
                           &waiting);
    wait_for(&waiting);
    assert_int_equal(waiting.status, TDM_OK);
    return waiting.records_count;
}

/* Reserves an actor on that node, requested by `owner_node`. */
static void place(const struct tdm__id *node, const struct tdm__id *owner_node, const char *name,
                  bool recreate_on_node_loss)
{
    struct tdm__actor_request request = {
        .class_name = "engine",
        .recreate_on_node_loss = recreate_on_node_loss,
        .placement = {.owner_node = *owner_node, .scheduling = TDM_SCHEDULE_NODE, .node = *node}};

    assert_int_equal(tdm__id_generate(&request.actor), TDM_OK);
    (void)snprintf(request.name_key, sizeof(request.name_key), "%s", name);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_OK);
}

/* ---- the tests -------------------------------------------------------------------------- */

static void the_records_of_a_lost_node_are_removed_and_others_kept(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);

    (void)state;
    place(&one, &one, "name/lab/here", false);
    place(&two, &two, "name/lab/there", false);
    place(&two, &two, "", false);
    assert_int_equal(sweep(), TDM_OK);
    assert_int_equal(count("actor/*"), 3);
    assert_int_equal(count("name/*"), 2);
    reserve_fixture_lose(&world, &two);
    assert_int_equal(sweep(), TDM_OK);
    assert_int_equal(count("actor/*"), 1);
    assert_int_equal(count("name/lab/here"), 1);
    assert_int_equal(count("name/lab/there"), 0);
    assert_int_equal(count("node/*"), 1);
}

static void resources_of_a_lost_node_are_removed_by_a_living_one(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    reserve_fixture_forget(&world, tdm__store_key("node", &two, key));
    assert_int_equal(sweep_by(&two), TDM_E_AGAIN); /* It is lost itself. */
    assert_int_equal(count("free/*"), 2);
    assert_int_equal(sweep_by(&one), TDM_OK);
    assert_int_equal(count("free/*"), 1);
}

static void nothing_is_removed_while_a_new_store_lacks_records(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);

    (void)state;
    place(&two, &two, "name/lab/there", false);
    reserve_fixture_lose(&world, &two);
    reserve_fixture_replace_store(&world, &one);
    assert_int_equal(sweep_by(&one), TDM_E_AGAIN);
    assert_int_equal(count("actor/*"), 1);
}

static void node_that_leaves_has_no_record(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct waiting waiting = {.done = false};

    (void)state;
    assert_int_equal(tdm__reserve_leave(world.store, &one, tdm__deadline_after(TEST_TIMEOUT_MS),
                                        on_swept, &waiting),
                     TDM_OK);
    wait_for(&waiting);
    assert_int_equal(waiting.status, TDM_OK);
    assert_int_equal(count("node/*") + count("free/*"), 0);
}

static void recreatable_actors_are_kept_while_their_owner_node_exists(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);

    (void)state;
    place(&two, &one, "name/lab/phoenix", true);
    reserve_fixture_lose(&world, &two);
    assert_int_equal(sweep(), TDM_OK);
    assert_int_equal(count("actor/*"), 1);
    assert_int_equal(count("name/*"), 1);
    reserve_fixture_lose(&world, &one);
    assert_int_equal(sweep(), TDM_OK);
    assert_int_equal(count("actor/*"), 0);
    assert_int_equal(count("name/*"), 0);
}

/* ---- groups ----------------------------------------------------------------------------- */

struct looking {
    /* Must be the first field, because it is cast to this structure. */
    struct waiting waiting;
    struct tdm__id orphan; /* The last orphan that was found. */
};

static void on_orphans(void *arg, tdm_status status, const char *detail,
                       const struct tdm__id *groups, uint32_t groups_count)
{
    struct looking *looking = arg;

    on_swept(&looking->waiting, status, detail);
    looking->waiting.records_count = groups_count;
    if (groups_count > 0) {
        looking->orphan = groups[groups_count - 1];
    }
}

/* Returns the number of orphans that `self` finds. */
static uint32_t orphans(const struct tdm__id *self, struct tdm__id *orphan_out)
{
    struct looking looking = {.waiting = {.done = false}};

    assert_int_equal(tdm__placement_groups_find_orphans(world.store, self,
                                                        tdm__deadline_after(TEST_TIMEOUT_MS),
                                                        on_orphans, &looking),
                     TDM_OK);
    wait_for(&looking.waiting);
    world.status = looking.waiting.status;
    *orphan_out = looking.orphan;
    return looking.waiting.records_count;
}

/* Reserves a group of two CPUs on any node, requested by `owner_node`. */
static struct tdm__id make_group(const struct tdm__id *owner_node, bool detached)
{
    struct tdm__resources bundles[2] = {{.cpu = 0}};
    struct tdm__placement_group_request request = {.bundles = bundles,
                                                   .bundles_count = 2,
                                                   .strategy = TDM_SPREAD,
                                                   .detached = detached,
                                                   .owner_node = *owner_node};

    assert_int_equal(tdm__id_generate(&request.id), TDM_OK);
    assert_int_equal(tdm__resources_add(&bundles[0], "CPU", 1), TDM_OK);
    assert_int_equal(tdm__resources_add(&bundles[1], "CPU", 1), TDM_OK);
    assert_int_equal(reserve_fixture_group_by(&world, &request), TDM_OK);
    return request.id;
}

static void only_a_group_without_a_remover_is_an_orphan(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);
    struct tdm__id there = make_group(&two, false);
    struct tdm__id lasting = make_group(&two, true);
    struct tdm__id found;

    (void)state;
    (void)make_group(&one, false);
    assert_int_equal(orphans(&one, &found), 0);
    assert_int_equal(world.status, TDM_OK);
    reserve_fixture_lose(&world, &two);
    assert_int_equal(orphans(&one, &found), 1);
    assert_true(tdm__id_equal(&found, &there));
    assert_int_equal(reserve_fixture_close_group(&world, &there, &one), TDM_OK);
    /* The first node is still there to remove the group. */
    assert_int_equal(orphans(&one, &found), 0);
    assert_int_equal(reserve_fixture_close_group(&world, &lasting, &two), TDM_OK);
    /* The node that was to remove the group is lost. */
    assert_int_equal(orphans(&one, &found), 1);
    assert_true(tdm__id_equal(&found, &lasting));
    reserve_fixture_lose(&world, &one);
    /* A node without its own record knows nothing about others. */
    assert_int_equal(orphans(&one, &found), 0);
    assert_int_equal(world.status, TDM_E_AGAIN);
    assert_int_equal(count("group/*"), 3);
}

/* The node that is absent from a store which has lost changes may live. */
static void no_group_is_an_orphan_while_a_new_store_lacks_records(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);
    struct tdm__id there = make_group(&two, false);
    struct tdm__id closed = make_group(&one, false);
    struct tdm__id found;

    (void)state;
    assert_int_equal(reserve_fixture_close_group(&world, &closed, &two), TDM_OK);
    reserve_fixture_lose(&world, &two);
    reserve_fixture_replace_store(&world, &one);
    assert_int_equal(orphans(&one, &found), 0);
    assert_int_equal(world.status, TDM_E_AGAIN);
    assert_int_equal(count("group/*"), 2);
    (void)reserve_fixture_new_generation(&world); /* Without a hold. */
    assert_int_equal(orphans(&one, &found), 2);
    assert_int_equal(world.status, TDM_OK);
    assert_true(tdm__id_equal(&found, &there) || tdm__id_equal(&found, &closed));
}

static void group_of_a_node_that_joins_before_the_commit_is_no_orphan(void **state)
{
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    struct tdm__id two = reserve_fixture_join(&world, "two", 0);
    struct tdm__id found;

    (void)state;
    (void)make_group(&two, false);
    reserve_fixture_lose_until_commit(&world, &two);
    assert_int_equal(orphans(&one, &found), 0);
    assert_int_equal(world.status, TDM_OK);
    assert_int_equal(count("node/*"), 2);
}

static void many_records_are_removed_by_several_commits(void **state)
{
    enum { ACTORS = 460 };
    struct tdm__id one = reserve_fixture_join(&world, "one", 0);
    uint32_t sweeps_count = 1;
    char name[64];

    (void)state;
    for (int i = 0; i < ACTORS; i++) {
        (void)snprintf(name, sizeof(name), "name/lab/actor%d", i);
        place(&one, &one, name, false);
    }
    reserve_fixture_lose(&world, &one);
    while (sweep() == TDM_E_AGAIN) {
        sweeps_count++;
    }
    assert_int_equal(world.status, TDM_OK);
    assert_int_equal(sweeps_count, 2);
    assert_int_equal(count("actor/*") + count("name/*"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_records_of_a_lost_node_are_removed_and_others_kept,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(resources_of_a_lost_node_are_removed_by_a_living_one,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(nothing_is_removed_while_a_new_store_lacks_records,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(node_that_leaves_has_no_record, open_world, close_world),
        cmocka_unit_test_setup_teardown(recreatable_actors_are_kept_while_their_owner_node_exists,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(only_a_group_without_a_remover_is_an_orphan, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(no_group_is_an_orphan_while_a_new_store_lacks_records,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(group_of_a_node_that_joins_before_the_commit_is_no_orphan,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(many_records_are_removed_by_several_commits, open_world,
                                        close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
