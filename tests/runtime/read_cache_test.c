/* read_cache_test.c - transactions that start from the read cache: what they save, and what is
 * checked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/read_cache.h"

#include "runtime/clock.h"
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
static struct tdm__read_cache *read_cache;
static struct tdm__store_ops counting_ops;
static const struct tdm__store_ops *real_ops;
static uint32_t reads_count;
static uint32_t commits_count;
/* Number of records that the reads of the last transaction returned, without those that only tell
 * how complete the others are. */
static uint32_t records_count_read;
static tdm__store_read_fn *read_fn; /* Callback of the read that is under way. */

static void on_counted_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                            uint32_t records_count)
{
    for (uint32_t i = 0; i < records_count; i++) {
        records_count_read += strchr(records[i].key, '*') == NULL ? 1 : 0;
    }
    read_fn(arg, status, records, records_count);
}

static void count_read(struct tdm__store *store, const char *const *patterns,
                       uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                       void *arg)
{
    reads_count++;
    read_fn = fn;
    real_ops->read(store, patterns, patterns_count, deadline_ms, on_counted_read, arg);
}

static void count_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                         uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                         void *arg)
{
    commits_count++;
    real_ops->commit(store, writes, writes_count, deadline_ms, fn, arg);
}

static int open_store(void **state)
{
    (void)state;
    if (tdm__loop_create(&world.loop) != TDM_OK ||
        tdm__store_memory_open(world.loop, &world.store) != TDM_OK ||
        tdm__read_cache_create(&read_cache) != TDM_OK) {
        return 1;
    }
    real_ops = world.store->ops;
    counting_ops = *real_ops;
    counting_ops.read = count_read;
    counting_ops.commit = count_commit;
    world.store->ops = &counting_ops;
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    world.store->ops->close(world.store);
    tdm__read_cache_destroy(read_cache);
    tdm__loop_destroy(world.loop);
    return 0;
}

/* ---- transactions ----------------------------------------------------------------------- */

/* A transaction that increments the value of the key `count` and reads the others. */
struct act {
    const char *count;
    const char *remove; /* or NULL */
    tdm_status wanted;
    bool writes_nothing;
    uint32_t bodies;
    uint32_t seen; /* Number of records that the last body saw. */
    char value;    /* Value that the last body wrote. */
    bool ended;
    tdm_status status;
};

static tdm_status act_body(void *arg, struct tdm__txn *txn)
{
    struct act *act = arg;
    const struct tdm__store_record *record = tdm__txn_find_record(txn, act->count);
    char value =
        record == NULL || record->bytes.size_bytes == 0 ? 0 : *(const char *)record->bytes.data;

    act->bodies++;
    act->seen = tdm__txn_records_count(txn);
    act->value = ++value;
    if (act->wanted != TDM_OK || act->writes_nothing) {
        return act->wanted;
    }
    if (act->remove != NULL) {
        TDM_TRY(tdm__txn_delete(txn, act->remove));
    }
    return tdm__txn_put(txn, act->count, (struct tdm_bytes){&value, 1}, 0);
}

static void on_done(void *arg, tdm_status status, const char *detail)
{
    struct act *act = arg;

    (void)detail;
    assert_false(act->ended);
    act->ended = true;
    act->status = status;
}

static bool has_ended(void *arg)
{
    return ((const struct act *)arg)->ended;
}

/* Runs the transaction over these patterns and waits until it has ended. */
static void run_over(struct act *act, const char *const *patterns, uint32_t patterns_count)
{
    reads_count = 0;
    records_count_read = 0;
    commits_count = 0;
    assert_int_equal(tdm__txn_run(world.store, read_cache, patterns, patterns_count,
                                  tdm__clock_ms() + 10000, act_body, on_done, act),
                     TDM_OK);
    assert_false(act->ended);
    store_run_until(&world, has_ended, act);
    assert_int_equal(act->status, act->wanted);
}

static void run(struct act *act)
{
    static const char *const patterns[] = {"n/*", "total"};

    run_over(act, patterns, 2);
}

/* Runs the first transaction, which must read: "n/1" exists, "total" becomes 1. */
static void learn(void)
{
    struct act act = {.count = "total"};

    assert_int_equal(store_put(&world, "n/1", "", TDM__VERSION_ANY, 0), TDM_OK);
    run(&act);
    assert_int_equal(reads_count, 1);
    assert_int_equal(act.seen, 1);
}

/* ---- guesses ---------------------------------------------------------------------------- */

static void record_that_this_process_wrote_last_is_not_read_again(void **state)
{
    (void)state;
    learn();
    for (char i = 2; i < 10; i++) {
        struct act act = {.count = "total"};

        run(&act);
        assert_int_equal(act.value, i);
        assert_int_equal(act.seen, 2);
        assert_int_equal(act.bodies, 1);
        assert_int_equal(reads_count, 0);
        assert_int_equal(commits_count, 1);
    }
    assert_int_equal(*store_read(&world, "total").records[0].bytes, 9);
}

static void own_writes_and_deletions_are_cached(void **state)
{
    struct act make = {.count = "n/2"};
    struct act move = {.count = "n/3", .remove = "n/2"};
    struct act look = {.count = "total"};

    (void)state;
    learn();
    run(&make);
    run(&move);
    run(&look);
    assert_int_equal(reads_count, 0);
    assert_int_equal(look.seen, 3); /* "n/1", "n/3", "total" */
    assert_int_equal(store_read(&world, "n/*").count, 2);
}

static void stale_cache_causes_a_conflict(void **state)
{
    struct act act = {.count = "total"};

    (void)state;
    learn();
    assert_int_equal(store_put(&world, "total", "\x28", TDM__VERSION_ANY, 0), TDM_OK);
    run(&act);
    assert_int_equal(act.value, 41);
    assert_int_equal(act.bodies, 2);
    assert_int_equal(reads_count, 0);
    assert_int_equal(commits_count, 2);
}

/* With the record of a prefix others may have gone, so all is read. */
static void removed_record_causes_a_conflict(void **state)
{
    struct act act = {.count = "n/1"};

    (void)state;
    assert_int_equal(store_put(&world, "n/1", "\x28", TDM__VERSION_ANY, 0), TDM_OK);
    run(&(struct act){.count = "total"});
    assert_int_equal(store_delete(&world, "n/1", TDM__VERSION_ANY), TDM_OK);
    run(&act);
    assert_int_equal(act.value, 1);
    assert_int_equal(commits_count, 2);
    assert_int_equal(reads_count, 1);
}

static void removed_key_is_known_from_the_lost_commit(void **state)
{
    struct act act = {.count = "total"};

    (void)state;
    learn();
    assert_int_equal(store_delete(&world, "total", TDM__VERSION_ANY), TDM_OK);
    run(&act);
    assert_int_equal(act.value, 1);
    assert_int_equal(commits_count, 2);
    assert_int_equal(reads_count, 0);
}

static void key_that_was_not_read_is_checked_by_the_commit(void **state)
{
    static const char *const keys[] = {"total", "other"};
    struct act act = {.count = "total"};

    (void)state;
    learn();
    assert_int_equal(store_put(&world, "other", "", TDM__VERSION_ANY, 0), TDM_OK);
    /* The body does not write "other", but could have read it. */
    run_over(&act, keys, 2);
    assert_int_equal(act.bodies, 2);
    assert_int_equal(act.seen, 2);
}

static void keys_of_which_none_is_cached_are_read(void **state)
{
    static const char *const keys[] = {"new"};
    struct act act = {.count = "new"};

    (void)state;
    learn();
    run_over(&act, keys, 1);
    assert_int_equal(reads_count, 1);
    assert_int_equal(act.bodies, 1);
}

static void prefix_that_was_not_read_is_not_guessed(void **state)
{
    static const char *const patterns[] = {"m/*", "total"};
    struct act act = {.count = "total"};

    (void)state;
    learn();
    run_over(&act, patterns, 2);
    assert_int_equal(reads_count, 1);
}

static void the_cache_refuses_nothing(void **state)
{
    struct act refuse = {.count = "total", .wanted = TDM_E_NO_RESOURCES};
    struct act leave = {.count = "total", .writes_nothing = true};

    (void)state;
    learn();
    assert_int_equal(store_put(&world, "n/2", "", TDM__VERSION_ANY, 0), TDM_OK);
    run(&refuse);
    assert_int_equal(refuse.bodies, 2);
    assert_int_equal(refuse.seen, 3);
    run(&leave);
    assert_int_equal(leave.bodies, 2);
    assert_int_equal(reads_count, 1);
}

static void old_records_are_not_used(void **state)
{
    struct act act = {.count = "total"};

    (void)state;
    learn();
    store_run_for(&world, TDM__READ_CACHE_AGE_MS_MAX + 10);
    run(&act);
    assert_int_equal(reads_count, 1);
    assert_int_equal(act.bodies, 1);
}

static void wrong_guesses_of_keys_in_a_row_become_rare(void **state)
{
    static const char *const keys[] = {"total"};
    uint32_t lost = 0;

    (void)state;
    learn();
    for (int i = 0; i < 100; i++) {
        struct act act = {.count = "total"};

        assert_int_equal(store_put(&world, "total", "\x01", TDM__VERSION_ANY, 0), TDM_OK);
        run_over(&act, keys, 1);
        assert_int_equal(act.value, 2);
        lost += commits_count - 1;
    }
    assert_in_range(lost, 2, 10);
    for (int i = 0; i < 100 && reads_count > 0; i++) {
        run_over(&(struct act){.count = "total"}, keys, 1);
    }
    assert_int_equal(reads_count, 0); /* There are no other writers any more. */
}

/* ---- changes ---------------------------------------------------------------------------- */

/* Puts the records "node/0" to "node/9" into the store, and runs a transaction over them. */
static void learn_nodes(void)
{
    char key[] = "node/0";

    for (; key[5] <= '9'; key[5]++) {
        assert_int_equal(store_put(&world, key, "", TDM__VERSION_ANY, 0), TDM_OK);
    }
    run_over(&(struct act){.count = "node/0"}, (const char *const[]){"node/*"}, 1);
    assert_int_equal(records_count_read, 10);
}

/* Runs a transaction over all nodes that is refused, as a request that must wait for resources. */
static uint32_t look_at_nodes(void)
{
    struct act act = {.count = "node/0", .wanted = TDM_E_AGAIN};

    run_over(&act, (const char *const[]){"node/*"}, 1);
    assert_int_equal(reads_count, 1);
    return act.seen;
}

static void nothing_is_read_again_that_has_not_changed(void **state)
{
    (void)state;
    learn_nodes();
    for (int i = 0; i < 5; i++) { /* The first reads what this process has written itself. */
        assert_int_equal(look_at_nodes(), 10);
        assert_int_equal(records_count_read, i == 0 ? 1 : 0);
    }
    assert_int_equal(store_put(&world, "node/4", "x", TDM__VERSION_ANY, 0), TDM_OK);
    assert_int_equal(store_put(&world, "node/a", "x", TDM__VERSION_ANY, 0), TDM_OK);
    assert_int_equal(look_at_nodes(), 11);
    assert_int_equal(records_count_read, 2);
}

static void removed_record_is_missed_by_a_refresh(void **state)
{
    (void)state;
    learn_nodes();
    assert_int_equal(store_delete(&world, "node/3", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(look_at_nodes(), 9);
    assert_int_equal(store_put(&world, "node/5", "x", TDM__VERSION_ANY, 0), TDM_OK);
    (void)look_at_nodes();
    assert_int_equal(look_at_nodes(), 9);
    assert_int_equal(records_count_read, 0);
}

static void what_others_wrote_before_an_own_commit_is_read(void **state)
{
    struct act own = {.count = "node/1"};

    (void)state;
    learn_nodes();
    assert_int_equal(store_put(&world, "node/b", "x", TDM__VERSION_ANY, 0), TDM_OK);
    run_over(&own, (const char *const[]){"node/*"}, 1);
    assert_int_equal(reads_count, 0);
    assert_int_equal(look_at_nodes(), 11);
}

static void lost_race_is_told_the_records_over_which_it_was_lost(void **state)
{
    struct act act = {.count = "node/1"};

    (void)state;
    learn_nodes();
    assert_int_equal(store_put(&world, "node/1", "\x28", TDM__VERSION_ANY, 0), TDM_OK);
    assert_int_equal(store_put(&world, "node/2", "\x28", TDM__VERSION_ANY, 0), TDM_OK);
    run_over(&act, (const char *const[]){"node/*"}, 1);
    assert_int_equal(act.value, 41);
    assert_int_equal(act.bodies, 2);
    assert_int_equal(commits_count, 2);
    assert_int_equal(reads_count, 0);
}

static void new_generation_reads_all(void **state)
{
    (void)state;
    learn_nodes();
    (void)memory_store_new_generation(world.store);
    assert_int_equal(look_at_nodes(), 10);
    assert_int_equal(records_count_read, 10);
    memory_store_clear(world.store);
    assert_int_equal(look_at_nodes(), 0);
}

static void spread_grows_with_each_lost_race_and_shrinks_slowly(void **state)
{
    static const char *const nodes[] = {"node/*"};

    (void)state;
    learn_nodes();
    assert_int_equal(tdm__read_cache_spread(read_cache), 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(store_put(&world, "node/1", "\x28", TDM__VERSION_ANY, 0), TDM_OK);
        run_over(&(struct act){.count = "node/1"}, nodes, 1);
        assert_int_equal(tdm__read_cache_losses(read_cache), i + 1);
        assert_int_equal(tdm__read_cache_spread(read_cache), i + 1);
    }
    for (uint32_t i = 2; i < TDM__READ_CACHE_SPREAD_WINS; i++) {
        run_over(&(struct act){.count = "node/1"}, nodes, 1);
        assert_int_equal(tdm__read_cache_spread(read_cache), 3);
    }
    run_over(&(struct act){.count = "node/1"}, nodes, 1);
    assert_int_equal(tdm__read_cache_spread(read_cache), 2);
    for (uint32_t i = 0; i < 2 * TDM__READ_CACHE_SPREAD_WINS; i++) {
        run_over(&(struct act){.count = "node/1"}, nodes, 1);
    }
    assert_int_equal(tdm__read_cache_spread(read_cache), 0);
    assert_int_equal(tdm__read_cache_losses(read_cache), 3);
    for (uint32_t i = 0; i < 4 * TDM__READ_CACHE_SPREAD_MAX; i++) {
        assert_int_equal(store_put(&world, "node/1", "\x28", TDM__VERSION_ANY, 0), TDM_OK);
        run_over(&(struct act){.count = "node/1"}, nodes, 1);
        assert_in_range(tdm__read_cache_spread(read_cache), 0, TDM__READ_CACHE_SPREAD_MAX);
    }
    assert_int_equal(tdm__read_cache_spread(read_cache), TDM__READ_CACHE_SPREAD_MAX);
}

#define READ_CACHE_TEST(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        READ_CACHE_TEST(record_that_this_process_wrote_last_is_not_read_again),
        READ_CACHE_TEST(own_writes_and_deletions_are_cached),
        READ_CACHE_TEST(stale_cache_causes_a_conflict),
        READ_CACHE_TEST(removed_record_causes_a_conflict),
        READ_CACHE_TEST(removed_key_is_known_from_the_lost_commit),
        READ_CACHE_TEST(key_that_was_not_read_is_checked_by_the_commit),
        READ_CACHE_TEST(keys_of_which_none_is_cached_are_read),
        READ_CACHE_TEST(prefix_that_was_not_read_is_not_guessed),
        READ_CACHE_TEST(the_cache_refuses_nothing),
        READ_CACHE_TEST(old_records_are_not_used),
        READ_CACHE_TEST(wrong_guesses_of_keys_in_a_row_become_rare),
        READ_CACHE_TEST(nothing_is_read_again_that_has_not_changed),
        READ_CACHE_TEST(removed_record_is_missed_by_a_refresh),
        READ_CACHE_TEST(what_others_wrote_before_an_own_commit_is_read),
        READ_CACHE_TEST(lost_race_is_told_the_records_over_which_it_was_lost),
        READ_CACHE_TEST(new_generation_reads_all),
        READ_CACHE_TEST(spread_grows_with_each_lost_race_and_shrinks_slowly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
