/* reserve_epoch_test.c - a node gets a new epoch without being lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reserve_epoch.h"

#include "runtime/clock.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 10000 };

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

static bool is_done(void *arg)
{
    return ((struct reserve_fixture *)arg)->done;
}

static void on_done(void *arg, tdm_status status, const char *detail)
{
    struct reserve_fixture *fixture = arg;

    (void)detail;
    fixture->done = true;
    fixture->status = status;
}

static void change_epoch(const struct tdm__id *node, uint64_t epoch)
{
    world.done = false;
    TRY(tdm__reserve_new_epoch(world.store, node, epoch, tdm__deadline_after(WAIT_MS), on_done,
                               &world));
    TRY(tdm__loop_run(world.loop, is_done, &world, tdm__deadline_after(WAIT_MS)));
    TRY(world.status);
}

/* What was read of a node. */
struct reading {
    bool done;
    uint32_t count;
    struct tdm__node_record record;
};

static bool is_read(void *arg)
{
    return ((struct reading *)arg)->done;
}

static void on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                    uint32_t records_count)
{
    struct reading *reading = arg;

    TRY(status);
    reading->done = true;
    reading->count = records_count;
    if (records_count == 1) {
        TRY(tdm__node_record_read(&records[0], &reading->record));
    }
}

static struct reading read_node(const struct tdm__id *node)
{
    struct reading reading = {.done = false};
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("node", node, key)};

    world.store->ops->read(world.store, patterns, 1, tdm__deadline_after(WAIT_MS), on_read,
                           &reading);
    TRY(tdm__loop_run(world.loop, is_read, &reading, tdm__deadline_after(WAIT_MS)));
    return reading;
}

static void node_gets_one_higher_epoch(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 1);
    struct reading before = read_node(&node);
    struct reading after;

    (void)state;
    assert_int_equal(before.record.lives_since, 0);
    for (int i = 0; i < 2; i++) { /* Two nodes may ask for it, and each may ask again. */
        change_epoch(&node, before.record.epoch);
        after = read_node(&node);
        assert_true(after.record.epoch > before.record.epoch);
        assert_int_equal(after.record.lives_since, before.record.epoch);
        assert_string_equal(after.record.name, "one");
    }
    change_epoch(&node, after.record.epoch); /* It was counted as lost once more. */
    assert_true(read_node(&node).record.epoch > after.record.epoch);
    assert_int_equal(read_node(&node).record.lives_since, before.record.epoch);
}

static void node_that_has_joined_again_keeps_its_epoch(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 1);
    struct reading reading = read_node(&node);

    (void)state;
    change_epoch(&node, reading.record.epoch - 1);
    assert_int_equal(read_node(&node).record.epoch, reading.record.epoch);
}

static void lost_node_gets_no_record(void **state)
{
    struct tdm__id node = reserve_fixture_join(&world, "one", 1);

    (void)state;
    reserve_fixture_lose(&world, &node);
    change_epoch(&node, UINT64_MAX);
    assert_int_equal(read_node(&node).count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
        CASE(node_gets_one_higher_epoch),
        CASE(node_that_has_joined_again_keeps_its_epoch),
        CASE(lost_node_gets_no_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
