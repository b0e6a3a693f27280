/* retrying_txn_test.c - transactions on a store whose replies get lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/store/txn.h"
#include "scheduler/retrying_txn.h"
#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEST_TIMEOUT_MS = 10000 };

/* A store around one in memory. The replies to the next `losses` commits get lost, and commits of
 * more than `writes_max` writes are refused, if that is not 0. */
struct forgetful {
    /* Must be the first field, because it is cast to this structure. */
    struct tdm__store store;
    struct tdm__store *inner;
    uint32_t losses;
    uint32_t commits_count;
    uint32_t writes_max;
    uint32_t most_writes; /* Number of writes of the largest commit. */
};

static struct tdm__loop *loop;
static struct forgetful store;

struct answer {
    tdm__store_commit_fn *fn;
    void *arg;
    bool is_refused;
};

static void on_committed(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    struct answer answer = *(struct answer *)arg;

    free(arg);
    if (store.losses > 0) {
        store.losses--;
        status = tdm__fail(TDM_E_STORE, "the answer is lost");
    } else if (answer.is_refused) {
        status = tdm__fail(TDM_E_AGAIN, "held");
    }
    answer.fn(answer.arg, status, committed);
}

static void forgetful_commit(struct tdm__store *self, const struct tdm__store_write *writes,
                             uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                             void *arg)
{
    struct answer *answer = malloc(sizeof(*answer));

    (void)self;
    assert_non_null(answer);
    *answer = (struct answer){fn, arg, store.writes_max > 0 && writes_count > store.writes_max};
    store.commits_count++;
    store.most_writes = writes_count > store.most_writes ? writes_count : store.most_writes;
    writes_count = answer->is_refused ? 0 : writes_count;
    store.inner->ops->commit(store.inner, writes, writes_count, deadline_ms, on_committed, answer);
}

static void forgetful_read(struct tdm__store *self, const char *const *patterns,
                           uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                           void *arg)
{
    (void)self;
    store.inner->ops->read(store.inner, patterns, patterns_count, deadline_ms, fn, arg);
}

static const struct tdm__store_ops forgetful_ops = {
    .name = "forgetful", .read = forgetful_read, .commit = forgetful_commit};

/* A transaction of a test and its outcome. */
struct run {
    uint32_t bodies_count;
    uint32_t dones_count;
    tdm_status wanted; /* Status that the body returns. */
    int total;         /* Number that the body wrote. */
    size_t seen;       /* Size of the record that the body saw. */
    tdm_status status;
    char detail[256];
};

/* Writes the key "lock" once. It recognises from the record that it has done so. */
static tdm_status take_lock(void *arg, struct tdm__txn *txn)
{
    struct run *run = arg;

    run->bodies_count++;
    if (run->wanted != TDM_OK) {
        return tdm__fail(run->wanted, "the body says no");
    }
    return tdm__txn_find_record(txn, "lock") != NULL
               ? TDM_OK
               : tdm__txn_put(txn, "lock", (struct tdm_bytes){"x", 1}, 0);
}

static void on_done(void *arg, tdm_status status, const char *detail)
{
    struct run *run = arg;

    run->dones_count++;
    run->status = status;
    (void)snprintf(run->detail, sizeof(run->detail), "%s", detail);
}

static bool is_done(void *arg)
{
    return ((struct run *)arg)->dones_count > 0;
}

static void begin(struct run *run, int64_t timeout_ms)
{
    static const char *const patterns[] = {"lock"};

    assert_int_equal(tdm__retrying_txn_run(&store.store, patterns, 1,
                                           tdm__deadline_after(timeout_ms), take_lock, on_done,
                                           run),
                     TDM_OK);
    assert_int_equal(run->dones_count, 0); /* The callback never runs inside the call. */
}

static void finish(struct run *run)
{
    assert_int_equal(tdm__loop_run(loop, is_done, run, tdm__deadline_after(TEST_TIMEOUT_MS)),
                     TDM_OK);
    assert_int_equal(run->dones_count, 1);
}

static int open_store(void **state)
{
    (void)state;
    store = (struct forgetful){.store.ops = &forgetful_ops};
    return tdm__loop_create(&loop) != TDM_OK ||
           tdm__store_memory_open(loop, &store.inner) != TDM_OK;
}

static int close_store(void **state)
{
    (void)state;
    store.inner->ops->close(store.inner);
    tdm__loop_destroy(loop);
    return 0;
}

static void lost_reply_is_retried_without_repeating_the_work(void **state)
{
    struct run run = {.wanted = TDM_OK};

    (void)state;
    store.losses = 1;
    begin(&run, TEST_TIMEOUT_MS);
    finish(&run);
    assert_int_equal(run.status, TDM_OK);
    assert_int_equal(run.bodies_count, 2); /* The second run sees the record of the first. */
    /* The second run has nothing to write. */
    assert_int_equal(store.commits_count, 1);
}

static void the_deadline_ends_it(void **state)
{
    static const char *const patterns[] = {"lock"};
    struct run run = {.wanted = TDM_OK};

    (void)state;
    store.losses = UINT32_MAX;
    assert_int_equal(
        tdm__retrying_txn_run(&store.store, patterns, 1, tdm__clock_ms(), take_lock, on_done, &run),
        TDM_OK);
    finish(&run);
    assert_int_equal(run.status, TDM_E_STORE);
    assert_string_equal(run.detail, "the answer is lost");
    assert_int_equal(run.bodies_count, 1);
}

static void refusal_of_the_body_is_not_retried(void **state)
{
    struct run run = {.wanted = TDM_E_EXISTS};

    (void)state;
    store.losses = UINT32_MAX;
    begin(&run, TEST_TIMEOUT_MS);
    finish(&run);
    assert_int_equal(run.status, TDM_E_EXISTS);
    assert_string_equal(run.detail, "the body says no");
    assert_int_equal(run.bodies_count, 1);
    assert_int_equal(store.commits_count, 0);
}

static void store_that_closes_is_not_asked_again(void **state)
{
    struct run run = {.wanted = TDM_OK};

    (void)state;
    store.losses = UINT32_MAX;
    begin(&run, TEST_TIMEOUT_MS);
    store.store.closing = true;
    finish(&run);
    assert_int_equal(run.status, TDM_E_STORE);
    assert_int_equal(run.bodies_count, 1);
}

static void wrong_pattern_is_refused_at_once(void **state)
{
    static const char *const patterns[] = {""};
    struct run run = {.wanted = TDM_OK};

    (void)state;
    assert_int_equal(
        tdm__retrying_txn_run(&store.store, patterns, 1, TDM__NEVER, take_lock, on_done, &run),
        TDM_E_INVAL);
    assert_int_equal(run.dones_count, 0);
}

/* ---- in turn ---------------------------------------------------------------------------- */

enum { MANY = 50 };

/* Counts in one record. Each body expects the number that the previous one wrote. */
static tdm_status count_up(void *arg, struct tdm__txn *txn)
{
    struct run *run = arg;
    const struct tdm__store_record *record = tdm__txn_find_record(txn, "lock");
    char total = record == NULL ? 0 : *(const char *)record->bytes.data;

    run->bodies_count++;
    if (run->wanted != TDM_OK) {
        return tdm__fail(run->wanted, "the body says no");
    }
    run->total = ++total;
    return tdm__txn_put(txn, "lock", (struct tdm_bytes){&total, 1}, 0);
}

static void begin_in_turn(struct run *runs)
{
    static const char *const patterns[] = {"lock"};

    for (int i = 0; i < MANY; i++) {
        assert_int_equal(tdm__retrying_txn_run_queued(&store.store, patterns, 1,
                                                      tdm__deadline_after(TEST_TIMEOUT_MS),
                                                      count_up, on_done, &runs[i]),
                         TDM_OK);
        assert_int_equal(runs[i].dones_count, 0);
    }
}

static void queued_transactions_never_conflict_and_keep_order(void **state)
{
    static struct run runs[MANY];

    (void)state;
    memset(runs, 0, sizeof(runs));
    /* A transaction that fails does not block the others. */
    runs[7].wanted = TDM_E_EXISTS;
    begin_in_turn(runs);
    finish(&runs[MANY - 1]);
    assert_int_equal(store.commits_count, MANY - 1);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(runs[i].dones_count, 1);
        assert_int_equal(runs[i].bodies_count, 1);
        assert_int_equal(runs[i].status, i == 7 ? TDM_E_EXISTS : TDM_OK);
        assert_int_equal(runs[i].total, i == 7 ? 0 : i < 7 ? i + 1 : i);
    }
}

static void closing_store_fails_all_queued_transactions(void **state)
{
    static struct run runs[MANY];

    memset(runs, 0, sizeof(runs));
    begin_in_turn(runs);
    store.store.closing = true;
    (void)close_store(state);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(runs[i].dones_count, 1);
        assert_int_equal(runs[i].status, TDM_E_STORE);
    }
}

/* ---- several in one commit --------------------------------------------------------------- */

/* Counts as count_up() does, and writes a record of its own, too. */
static tdm_status count_up_and_note(void *arg, struct tdm__txn *txn)
{
    const struct run *run = arg;
    char key[32];

    TDM_TRY(count_up(arg, txn));
    (void)snprintf(key, sizeof(key), "note/%d", run->total);
    return tdm__txn_put(txn, key, (struct tdm_bytes){"x", 1}, 0);
}

/* Number of commits of MANY transactions, of which the first one starts alone, because nothing
 * waits behind it yet. */
enum { SHARED_COMMITS = 1 + (MANY - 1 + TDM__SHARED_TXNS_MAX - 1) / TDM__SHARED_TXNS_MAX };

static void begin_shared(struct run *runs, tdm__txn_body_fn *body)
{
    static const char *const patterns[] = {"lock", "note/*"};

    for (int i = 0; i < MANY; i++) {
        assert_int_equal(tdm__retrying_txn_run_shared(&store.store, patterns, 2,
                                                      tdm__deadline_after(TEST_TIMEOUT_MS), body,
                                                      on_done, &runs[i]),
                         TDM_OK);
        assert_int_equal(runs[i].dones_count, 0);
    }
}

/* Each counts from the number that the one before it wrote, whether that was committed before or is
 * in the same commit. The one that fails is not committed, and keeps no other from it. */
static void check_counts(const struct run *runs)
{
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(runs[i].dones_count, 1);
        assert_int_equal(runs[i].status, i == 7 ? TDM_E_EXISTS : TDM_OK);
        assert_string_equal(runs[i].detail, i == 7 ? "the body says no" : "");
        assert_int_equal(runs[i].total, i == 7 ? 0 : i < 7 ? i + 1 : i);
    }
}

static void shared_transactions_see_each_other_and_use_few_commits(void **state)
{
    static struct run runs[MANY];

    (void)state;
    memset(runs, 0, sizeof(runs));
    runs[7].wanted = TDM_E_EXISTS;
    begin_shared(runs, count_up);
    finish(&runs[MANY - 1]);
    assert_int_equal(store.commits_count, SHARED_COMMITS);
    assert_int_equal(store.most_writes, 1); /* Only the last write of the record counts. */
    check_counts(runs);
}

/* The store refuses what several share, such as a commit that rests on the loss of a node. Then
 * each is committed alone. */
static void refused_shared_commit_is_divided(void **state)
{
    static struct run runs[MANY];
    struct run *last = &runs[MANY - 1];

    (void)state;
    memset(runs, 0, sizeof(runs));
    runs[7].wanted = TDM_E_EXISTS;
    store.writes_max = 2;
    begin_shared(runs, count_up_and_note);
    finish(last);
    /* The last one is alone in its turn, so that its commit is not refused. */
    assert_int_equal(store.commits_count, MANY - 1 + (MANY - 1) / TDM__SHARED_TXNS_MAX);
    check_counts(runs);
}

/* Each sees from the record that it was committed, and changes nothing when the commit is repeated.
 */
static tdm_status add_own_byte(void *arg, struct tdm__txn *txn)
{
    struct run *run = arg;
    const struct tdm__store_record *record = tdm__txn_find_record(txn, "lock");
    char bytes[MANY + 1] = "";
    size_t count = record == NULL ? 0 : record->bytes.size_bytes;

    run->bodies_count++;
    run->seen = count;
    if (count > 0) {
        memcpy(bytes, record->bytes.data, count);
    }
    if (memchr(bytes, run->total, count) != NULL) {
        return TDM_OK;
    }
    bytes[count++] = (char)run->total;
    return tdm__txn_put(txn, "lock", (struct tdm_bytes){bytes, count}, 0);
}

static void lost_reply_to_a_shared_commit_repeats_nothing(void **state)
{
    static const char *const patterns[] = {"lock"};
    static struct run runs[MANY];

    (void)state;
    memset(runs, 0, sizeof(runs));
    for (int i = 0; i < MANY; i++) {
        runs[i].total = i + 1;
    }
    begin_shared(runs, add_own_byte);
    store.losses = 2;
    finish(&runs[MANY - 1]);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(runs[i].dones_count, 1);
        assert_int_equal(runs[i].status, TDM_OK);
    }
    assert_int_equal(store.losses, 0);
    /* The bytes are those of all, each once. */
    runs[0] = (struct run){.total = 1};
    assert_int_equal(tdm__retrying_txn_run_queued(&store.store, patterns, 1,
                                                  tdm__deadline_after(TEST_TIMEOUT_MS),
                                                  add_own_byte, on_done, &runs[0]),
                     TDM_OK);
    finish(&runs[0]);
    assert_int_equal(runs[0].seen, MANY);
}

static void closing_store_fails_all_that_share(void **state)
{
    static struct run runs[MANY];

    memset(runs, 0, sizeof(runs));
    begin_shared(runs, count_up);
    store.store.closing = true;
    (void)close_store(state);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(runs[i].dones_count, 1);
        assert_int_equal(runs[i].status, TDM_E_STORE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lost_reply_is_retried_without_repeating_the_work,
                                        open_store, close_store),
        cmocka_unit_test_setup_teardown(the_deadline_ends_it, open_store, close_store),
        cmocka_unit_test_setup_teardown(refusal_of_the_body_is_not_retried, open_store,
                                        close_store),
        cmocka_unit_test_setup_teardown(store_that_closes_is_not_asked_again, open_store,
                                        close_store),
        cmocka_unit_test_setup_teardown(wrong_pattern_is_refused_at_once, open_store, close_store),
        cmocka_unit_test_setup_teardown(queued_transactions_never_conflict_and_keep_order,
                                        open_store, close_store),
        cmocka_unit_test_setup(closing_store_fails_all_queued_transactions, open_store),
        cmocka_unit_test_setup_teardown(shared_transactions_see_each_other_and_use_few_commits,
                                        open_store, close_store),
        cmocka_unit_test_setup_teardown(refused_shared_commit_is_divided, open_store, close_store),
        cmocka_unit_test_setup_teardown(lost_reply_to_a_shared_commit_repeats_nothing, open_store,
                                        close_store),
        cmocka_unit_test_setup(closing_store_fails_all_that_share, open_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
