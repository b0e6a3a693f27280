/* store_takeover_suite.c - what every filling of the store must refuse of a node that is lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/store_takeover_suite.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/id.h"
#include "scheduler/records.h"
#include "tests/conformance/store_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WAIT_MS = 10000, LONG_LEASE_MS = 60000, SHORT_LEASE_MS = 1, GRACE_MS = 1 };

/* What the transaction of the taker writes. */
#define TAKEN_KEY "taken/by"

/* ---- a store that keeps a commit back --------------------------------------------------- */

/* A store around another one that carries out its first commit only when the test says so. */
struct late_store {
    struct tdm__store store;  /* The store's interface; must be the first field. */
    struct tdm__store *inner; /* The store that does the work (borrowed). */
    uint32_t commits_count;
    const struct tdm__store_write *writes; /* The first commit; its transaction keeps them. */
    uint32_t writes_count;
    int64_t deadline_ms;
    tdm__store_commit_fn *fn;
    void *arg;
    tdm_status first_status; /* Outcome of the first commit. */
};

static void late_read(struct tdm__store *store, const char *const *patterns,
                      uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                      void *arg)
{
    struct tdm__store *inner = ((struct late_store *)store)->inner;

    inner->ops->read(inner, patterns, patterns_count, deadline_ms, fn, arg);
}

static void late_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                        uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                        void *arg)
{
    struct late_store *late = (struct late_store *)store;

    if (late->commits_count++ > 0) {
        late->inner->ops->commit(late->inner, writes, writes_count, deadline_ms, fn, arg);
        return;
    }
    late->writes = writes;
    late->writes_count = writes_count;
    late->deadline_ms = deadline_ms;
    late->fn = fn;
    late->arg = arg;
}

static const struct tdm__store_ops late_ops = {
    .name = "late", .read = late_read, .commit = late_commit};

static bool late_has_commit(void *arg)
{
    return ((const struct late_store *)arg)->commits_count > 0;
}

static void on_late_commit(void *arg, tdm_status status,
                           const struct tdm__store_committed *committed)
{
    struct late_store *late = arg;

    late->first_status = status;
    late->fn(late->arg, status, committed);
}

/* Carries out the commit that was kept back. */
static void late_release(struct late_store *late)
{
    late->inner->ops->commit(late->inner, late->writes, late->writes_count, late->deadline_ms,
                             on_late_commit, late);
}

/* ---- a takeover ------------------------------------------------------------------------- */

/* A transaction of the node `taker`, which relies on the loss of the node `lost`, while the node
 * `observer` renews its lease. */
struct takeover {
    struct store_fixture *fixture;
    struct late_store late;
    struct tdm__id taker;
    struct tdm__id lost;
    char taker_key[TDM__STORE_KEY_BYTES];
    char lost_key[TDM__STORE_KEY_BYTES];
    char observer_key[TDM__STORE_KEY_BYTES];
    bool has_ended;
    tdm_status status;
    char detail[TDM__ERROR_DETAIL_BYTES];
};

static struct renewal_reply renew(struct takeover *takeover, const char *key)
{
    const struct tdm__store_renewal renewal = {
        .key = key, .lease_ms = SHORT_LEASE_MS, .grace_ms = GRACE_MS};

    return store_renew(takeover->fixture, &renewal);
}

static void join(struct takeover *takeover, const char *key)
{
    assert_int_equal(store_put(takeover->fixture, key, "", TDM__VERSION_NONE, LONG_LEASE_MS),
                     TDM_OK);
}

static tdm_status takeover_body(void *arg, struct tdm__txn *txn)
{
    struct takeover *takeover = arg;

    if (tdm__txn_find_record(txn, takeover->lost_key) != NULL) {
        return tdm__fail(TDM_E_STATE, "the node is in the cluster");
    }
    TDM_TRY(tdm__txn_require_node_lost(txn, &takeover->taker, &takeover->lost));
    return tdm__txn_put(txn, TAKEN_KEY, (struct tdm_bytes){"", 0}, 0);
}

static void on_takeover_done(void *arg, tdm_status status, const char *detail)
{
    struct takeover *takeover = arg;

    takeover->has_ended = true;
    takeover->status = status;
    (void)snprintf(takeover->detail, sizeof(takeover->detail), "%s", detail);
}

static bool takeover_has_ended(void *arg)
{
    return ((const struct takeover *)arg)->has_ended;
}

/* Lets the taker and the observer join, and brings the transaction of the taker to its commit. */
static void takeover_begin(struct takeover *takeover, struct store_fixture *fixture)
{
    const char *patterns[] = {takeover->taker_key, takeover->lost_key, TAKEN_KEY};
    struct tdm__id observer;

    *takeover = (struct takeover){.fixture = fixture,
                                  .late = {.store = {.ops = &late_ops}, .inner = fixture->store}};
    assert_int_equal(tdm__id_generate(&takeover->taker), TDM_OK);
    assert_int_equal(tdm__id_generate(&takeover->lost), TDM_OK);
    assert_int_equal(tdm__id_generate(&observer), TDM_OK);
    (void)tdm__store_key("node", &takeover->taker, takeover->taker_key);
    (void)tdm__store_key("node", &takeover->lost, takeover->lost_key);
    (void)tdm__store_key("node", &observer, takeover->observer_key);
    join(takeover, takeover->observer_key);
    while (renew(takeover, takeover->observer_key).renewed.held_ms > 0) {
        store_run_for(fixture, 5);
    }
    join(takeover, takeover->taker_key);
    assert_int_equal(tdm__txn_run(&takeover->late.store, NULL, patterns, 3,
                                  tdm__deadline_after(WAIT_MS), takeover_body, on_takeover_done,
                                  takeover),
                     TDM_OK);
    store_run_until(fixture, late_has_commit, &takeover->late);
}

/* The lease of the taker ends, and the observer takes the taker over. */
static void lose_taker(struct takeover *takeover)
{
    store_run_for(takeover->fixture, 5);
    assert_int_equal(renew(takeover, takeover->taker_key).status, TDM_OK);
    /* The lease of the observer was as short, so that this renewal has taken the observer over. */
    if (store_version(takeover->fixture, takeover->observer_key) == 0) {
        join(takeover, takeover->observer_key);
    }
    while (store_version(takeover->fixture, takeover->taker_key) != 0) {
        store_run_for(takeover->fixture, 5);
        assert_int_equal(renew(takeover, takeover->observer_key).status, TDM_OK);
    }
}

static void takeover_finish(struct takeover *takeover)
{
    late_release(&takeover->late);
    store_run_until(takeover->fixture, takeover_has_ended, takeover);
}

static void clean_up(struct takeover *takeover)
{
    const char *keys[] = {takeover->taker_key, takeover->observer_key, TAKEN_KEY};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_int_equal(store_delete(takeover->fixture, keys[i], TDM__VERSION_ANY), TDM_OK);
    }
}

/* ---- the tests -------------------------------------------------------------------------- */

static void taker_in_the_cluster_takes_over_what_a_lost_node_had(void **state)
{
    struct takeover takeover;

    takeover_begin(&takeover, *state);
    takeover_finish(&takeover);
    assert_int_equal(takeover.late.first_status, TDM_OK);
    assert_int_equal(takeover.status, TDM_OK);
    assert_int_equal(store_read(*state, TAKEN_KEY).count, 1);
    clean_up(&takeover);
}

static void taker_that_is_lost_between_its_read_and_its_commit_takes_nothing(void **state)
{
    struct takeover takeover;

    takeover_begin(&takeover, *state);
    lose_taker(&takeover);
    takeover_finish(&takeover);
    assert_int_equal(takeover.late.first_status, TDM_E_CONFLICT);
    /* The transaction reads again, and finds that its node is not in the cluster. */
    assert_int_equal(takeover.status, TDM_E_AGAIN);
    assert_non_null(strstr(takeover.detail, "has not joined again"));
    assert_int_equal(takeover.late.commits_count, 1);
    assert_int_equal(store_read(*state, TAKEN_KEY).count, 0);
    clean_up(&takeover);
}

/* What the taker read belongs to an epoch that has ended. */
static void taker_that_was_lost_and_has_joined_again_must_read_again(void **state)
{
    struct takeover takeover;

    takeover_begin(&takeover, *state);
    lose_taker(&takeover);
    join(&takeover, takeover.taker_key);
    takeover_finish(&takeover);
    assert_int_equal(takeover.late.first_status, TDM_E_CONFLICT);
    assert_int_equal(takeover.late.commits_count, 2);
    assert_int_equal(takeover.status, TDM_OK);
    clean_up(&takeover);
}

static void node_that_joins_before_the_commit_is_not_taken_over(void **state)
{
    struct takeover takeover;

    takeover_begin(&takeover, *state);
    join(&takeover, takeover.lost_key);
    takeover_finish(&takeover);
    assert_int_equal(takeover.late.first_status, TDM_E_CONFLICT);
    assert_int_equal(takeover.status, TDM_E_STATE);
    assert_int_equal(store_read(*state, TAKEN_KEY).count, 0);
    assert_int_equal(store_delete(*state, takeover.lost_key, TDM__VERSION_ANY), TDM_OK);
    clean_up(&takeover);
}

int store_takeover_suite_run(int (*setup)(void **state), int (*teardown)(void **state))
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taker_in_the_cluster_takes_over_what_a_lost_node_had),
        cmocka_unit_test(taker_that_is_lost_between_its_read_and_its_commit_takes_nothing),
        cmocka_unit_test(taker_that_was_lost_and_has_joined_again_must_read_again),
        cmocka_unit_test(node_that_joins_before_the_commit_is_not_taken_over),
    };

    return cmocka_run_group_tests_name("store takeover", tests, setup, teardown);
}
