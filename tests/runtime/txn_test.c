/* txn_test.c - transactions: what the body sees, what is committed, and how they end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/txn.h"
#include "tests/conformance/store_suite.h"
#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct store_fixture world;

static int open_store(void **state)
{
    (void)state;
    return tdm__loop_create(&world.loop) != TDM_OK ||
           tdm__store_memory_open(world.loop, &world.store) != TDM_OK;
}

static int close_store(void **state)
{
    (void)state;
    world.store->ops->close(world.store);
    tdm__loop_destroy(world.loop);
    return 0;
}

struct ending {
    bool ended;
    tdm_status status;
    char detail[200];
    uint32_t runs;
    /* Number of first runs of the body during which another writer changes "a/1". */
    uint32_t runs_disturbed;
};

static void on_done(void *arg, tdm_status status, const char *detail)
{
    struct ending *ending = arg;

    assert_false(ending->ended);
    ending->ended = true;
    ending->status = status;
    (void)snprintf(ending->detail, sizeof(ending->detail), "%s", detail);
}

static bool has_ended(void *arg)
{
    return ((const struct ending *)arg)->ended;
}

static void run_for(struct ending *ending, tdm__txn_body_fn *body, int64_t ms)
{
    const char *patterns[] = {"a/*", "b"};

    assert_int_equal(
        tdm__txn_run(world.store, NULL, patterns, 2, tdm__clock_ms() + ms, body, on_done, ending),
        TDM_OK);
    assert_false(ending->ended);
    store_run_until(&world, has_ended, ending);
}

static void run(struct ending *ending, tdm__txn_body_fn *body)
{
    run_for(ending, body, 10000);
}

static struct tdm_bytes bytes_of(const char *text)
{
    return (struct tdm_bytes){text, strlen(text)};
}

/* With "a/1" and "a/2" present, the body sets "b" to the number of records and removes "a/2". */
static tdm_status look_and_write(void *arg, struct tdm__txn *txn)
{
    /* The memory is gone when the commit is sent, so the transaction must copy it. */
    char text[] = "0";

    (void)arg;
    assert_int_equal(tdm__txn_records_count(txn), 2);
    assert_string_equal(tdm__txn_record_at(txn, 0)->key, "a/1");
    assert_memory_equal(tdm__txn_find_record(txn, "a/2")->bytes.data, "two", 3);
    assert_null(tdm__txn_find_record(txn, "b"));
    assert_null(tdm__txn_find_record(txn, "c"));
    text[0] = (char)('0' + tdm__txn_records_count(txn));
    TDM_TRY(tdm__txn_put(txn, "b", bytes_of(text), 0));
    TDM_TRY(tdm__txn_delete(txn, "a/2"));
    return tdm__txn_require_unchanged(txn, "a/none");
}

static void transaction_sees_what_it_asked_for_and_writes_all(void **state)
{
    struct ending ending = {.ended = false};

    (void)state;
    assert_int_equal(store_put(&world, "a/1", "one", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(&world, "a/2", "two", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(&world, "c", "", TDM__VERSION_NONE, 0), TDM_OK);
    run(&ending, look_and_write);
    assert_int_equal(ending.status, TDM_OK);
    assert_string_equal(ending.detail, "");
    assert_memory_equal(store_read(&world, "b").records[0].bytes, "2", 1);
    assert_int_equal(store_version(&world, "a/2"), 0);
}

/* Another writer commits between the read and the commit. Its write starts first, so it is executed
 * first. */
static void disturb(struct ending *ending)
{
    static struct store_reply answer;
    const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "a/1", .version = TDM__VERSION_ANY};

    ending->runs++;
    if (ending->runs <= ending->runs_disturbed) {
        answer.ended = false;
        world.store->ops->commit(world.store, &write, 1, TDM__NEVER, store_on_commit, &answer);
    }
}

/* The second part of a body finds the records as the first part leaves them, and the commit has one
 * write for each record, with the check of the version that was read. */
static tdm_status write_in_parts(void *arg, struct tdm__txn *txn)
{
    disturb(arg);
    TDM_TRY(tdm__txn_put(txn, "b", bytes_of("wrong"), 0));
    TDM_TRY(tdm__txn_next_part(txn));
    tdm__txn_restart(txn); /* The body begins again. */
    assert_int_equal(tdm__txn_changes_count(txn), 0);
    assert_null(tdm__txn_find_record(txn, "b"));
    TDM_TRY(tdm__txn_require_unchanged(txn, "a/1"));
    TDM_TRY(tdm__txn_put(txn, "b", bytes_of("first"), 0));
    TDM_TRY(tdm__txn_delete(txn, "a/2"));
    assert_null(tdm__txn_find_record(txn, "b")); /* Only the next part sees it. */
    assert_non_null(tdm__txn_find_record(txn, "a/2"));
    TDM_TRY(tdm__txn_next_part(txn));
    assert_int_equal(tdm__txn_changes_count(txn), 3);
    assert_null(tdm__txn_change_at(txn, 0));
    assert_string_equal(tdm__txn_change_at(txn, 1)->key, "b");
    assert_memory_equal(tdm__txn_find_record(txn, "b")->bytes.data, "first", 5);
    assert_true(tdm__txn_find_record(txn, "b")->version == TDM__VERSION_PENDING);
    assert_null(tdm__txn_find_record(txn, "a/2"));
    TDM_TRY(tdm__txn_put(txn, "a/1", bytes_of("ONE"), 0));
    TDM_TRY(tdm__txn_put(txn, "a/2", bytes_of("again"), 0));
    TDM_TRY(tdm__txn_next_part(txn));
    assert_memory_equal(tdm__txn_find_record(txn, "a/1")->bytes.data, "ONE", 3);
    return tdm__txn_put(txn, "b", bytes_of("last"), 0);
}

static void parts_of_a_body_see_earlier_parts_and_are_committed_together(void **state)
{
    struct ending ending = {.runs_disturbed = 1};

    (void)state;
    assert_int_equal(store_put(&world, "a/1", "one", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(&world, "a/2", "two", TDM__VERSION_NONE, 0), TDM_OK);
    run(&ending, write_in_parts);
    assert_int_equal(ending.status, TDM_OK);
    assert_int_equal(ending.runs, 2); /* The first commit has lost a race over "a/1". */
    assert_memory_equal(store_read(&world, "b").records[0].bytes, "last", 4);
    assert_memory_equal(store_read(&world, "a/1").records[0].bytes, "ONE", 3);
    assert_memory_equal(store_read(&world, "a/2").records[0].bytes, "again", 5);
    assert_int_equal(store_version(&world, "a/1"), store_version(&world, "b"));
}

static tdm_status rely_and_write(void *arg, struct tdm__txn *txn)
{
    disturb(arg);
    TDM_TRY(tdm__txn_require_unchanged(txn, "a/1"));
    return tdm__txn_put(txn, "b", bytes_of("done"), 0);
}

static void conflict_runs_the_body_again(void **state)
{
    struct ending ending = {.runs_disturbed = 3};

    (void)state;
    run(&ending, rely_and_write);
    assert_int_equal(ending.status, TDM_OK);
    assert_int_equal(ending.runs, 4);
}

static void conflicts_end_at_the_deadline(void **state)
{
    struct ending ending = {.runs_disturbed = UINT32_MAX};

    (void)state;
    run_for(&ending, rely_and_write, 20);
    assert_int_equal(ending.status, TDM_E_TIMEOUT);
    assert_non_null(strstr(ending.detail, "a/1"));
    assert_int_equal(store_version(&world, "b"), 0);
}

static tdm_status give_up(void *arg, struct tdm__txn *txn)
{
    (void)arg;
    TDM_TRY(tdm__txn_put(txn, "b", bytes_of("never"), 0));
    return tdm__fail(TDM_E_NO_RESOURCES, "wanted 8, have 4");
}

static void body_that_fails_ends_it_and_writes_nothing(void **state)
{
    struct ending ending = {.ended = false};

    (void)state;
    run(&ending, give_up);
    assert_int_equal(ending.status, TDM_E_NO_RESOURCES);
    assert_string_equal(ending.detail, "wanted 8, have 4");
    assert_int_equal(store_version(&world, "b"), 0);
}

static tdm_status write_nothing(void *arg, struct tdm__txn *txn)
{
    (void)arg;
    (void)txn;
    return TDM_OK;
}

static void nothing_to_write_is_a_success(void **state)
{
    struct ending ending = {.ended = false};

    (void)state;
    run(&ending, write_nothing);
    assert_int_equal(ending.status, TDM_OK);
}

static tdm_status write_unread(void *arg, struct tdm__txn *txn)
{
    (void)arg;
    return tdm__txn_put(txn, "c", bytes_of(""), 0);
}

static void key_that_was_not_read_cannot_be_written(void **state)
{
    struct ending ending = {.ended = false};

    (void)state;
    run(&ending, write_unread);
    assert_int_equal(ending.status, TDM_E_INVAL);
}

static void bad_pattern_is_refused_at_once(void **state)
{
    const char *pattern = "a*b";

    (void)state;
    assert_int_equal(
        tdm__txn_run(world.store, NULL, &pattern, 1, TDM__NEVER, write_nothing, on_done, NULL),
        TDM_E_INVAL);
}

static void store_that_closes_ends_it(void **state)
{
    struct ending ending = {.ended = false};
    const char *pattern = "*";

    assert_int_equal(
        tdm__txn_run(world.store, NULL, &pattern, 1, TDM__NEVER, write_nothing, on_done, &ending),
        TDM_OK);
    (void)close_store(state);
    assert_true(ending.ended);
    assert_int_equal(ending.status, TDM_E_STORE);
    assert_int_equal(open_store(state), 0);
}

#define TXN_TEST(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_TEST(parts_of_a_body_see_earlier_parts_and_are_committed_together),
        TXN_TEST(transaction_sees_what_it_asked_for_and_writes_all),
        TXN_TEST(conflict_runs_the_body_again),
        TXN_TEST(conflicts_end_at_the_deadline),
        TXN_TEST(body_that_fails_ends_it_and_writes_nothing),
        TXN_TEST(nothing_to_write_is_a_success),
        TXN_TEST(key_that_was_not_read_cannot_be_written),
        TXN_TEST(bad_pattern_is_refused_at_once),
        TXN_TEST(store_that_closes_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
