/* store_suite.c - what every filling of the store must do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/store_suite.h"

#include "runtime/clock.h"
#include "runtime/store/txn.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WAIT_MS = 10000, LEASE_MS = 50, GRACE_MS = 20, COUNTERS = 8, COUNT_EACH = 50 };

/* ---- asking and waiting ----------------------------------------------------------------- */

void store_on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                   uint32_t records_count)
{
    struct store_reply *reply = arg;

    assert_false(reply->ended);
    reply->ended = true;
    reply->status = status;
    reply->count = records_count;
    for (uint32_t i = 0; i < records_count && i < 16; i++) {
        (void)snprintf(reply->records[i].key, sizeof(reply->records[i].key), "%s", records[i].key);
        reply->records[i].version = records[i].version;
        reply->records[i].size_bytes = records[i].bytes.size_bytes;
        if (records[i].bytes.size_bytes < sizeof(reply->records[i].bytes)) {
            memcpy(reply->records[i].bytes, records[i].bytes.data, records[i].bytes.size_bytes);
        }
    }
}

void store_on_commit(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    struct store_reply *reply = arg;

    reply->version = committed->version;
    store_on_read(arg, status, committed->losers, committed->losers_count);
}

bool store_has_ended(void *reply)
{
    return ((const struct store_reply *)reply)->ended;
}

struct follower {
    struct tdm__store *store;
    struct store_reply first;
    struct store_reply reading;
    struct store_reply commit;
};

static void ask_again(void *arg, tdm_status status, const struct tdm__store_record *records,
                      uint32_t records_count)
{
    static const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "late", .version = TDM__VERSION_ANY};
    struct follower *follower = arg;
    const char *pattern = "*";

    store_on_read(&follower->first, status, records, records_count);
    follower->store->ops->read(follower->store, &pattern, 1, TDM__NEVER, store_on_read,
                               &follower->reading);
    follower->store->ops->commit(follower->store, &write, 1, TDM__NEVER, store_on_commit,
                                 &follower->commit);
}

void store_expect_replies_on_close(struct tdm__store *store)
{
    struct follower follower = {.store = store};
    const struct store_reply *answers[] = {&follower.first, &follower.reading, &follower.commit};
    const char *pattern = "*";

    store->ops->read(store, &pattern, 1, TDM__NEVER, ask_again, &follower);
    store->ops->close(store);
    for (size_t i = 0; i < 3; i++) {
        assert_true(answers[i]->ended);
        assert_int_equal(answers[i]->status, TDM_E_STORE);
    }
}

void store_run_until(struct store_fixture *fixture, bool (*done)(void *arg), void *arg)
{
    assert_int_equal(tdm__loop_run(fixture->loop, done, arg, tdm__clock_ms() + WAIT_MS), TDM_OK);
}

void store_run_for(struct store_fixture *fixture, int64_t ms)
{
    assert_int_equal(tdm__loop_run(fixture->loop, NULL, NULL, tdm__clock_ms() + ms), TDM_E_TIMEOUT);
}

struct store_reply store_read(struct store_fixture *fixture, const char *pattern)
{
    struct store_reply reply = {.ended = false};

    fixture->store->ops->read(fixture->store, &pattern, 1, tdm__clock_ms() + WAIT_MS, store_on_read,
                              &reply);
    assert_false(reply.ended);
    store_run_until(fixture, store_has_ended, &reply);
    return reply;
}

struct store_reply store_commit_reply(struct store_fixture *fixture,
                                      const struct tdm__store_write *writes, uint32_t writes_count)
{
    struct store_reply reply = {.ended = false};

    fixture->store->ops->commit(fixture->store, writes, writes_count, tdm__clock_ms() + WAIT_MS,
                                store_on_commit, &reply);
    assert_false(reply.ended);
    store_run_until(fixture, store_has_ended, &reply);
    return reply;
}

tdm_status store_commit(struct store_fixture *fixture, const struct tdm__store_write *writes,
                        uint32_t writes_count)
{
    return store_commit_reply(fixture, writes, writes_count).status;
}

tdm_status store_put(struct store_fixture *fixture, const char *key, const char *text,
                     uint64_t version, int64_t lease_ms)
{
    struct tdm__store_write write = {.kind = TDM__STORE_PUT,
                                     .key = key,
                                     .version = version,
                                     .bytes = {text, strlen(text)},
                                     .lease_ms = lease_ms};

    return store_commit(fixture, &write, 1);
}

tdm_status store_delete(struct store_fixture *fixture, const char *key, uint64_t version)
{
    struct tdm__store_write write = {.kind = TDM__STORE_DELETE, .key = key, .version = version};

    return store_commit(fixture, &write, 1);
}

uint64_t store_version(struct store_fixture *fixture, const char *key)
{
    struct store_reply reply = store_read(fixture, key);

    assert_int_equal(reply.status, TDM_OK);
    return reply.count == 0 ? 0 : reply.records[0].version;
}

/* ---- records ---------------------------------------------------------------------------- */

static void record_is_read_as_it_was_put(void **state)
{
    struct store_fixture *fixture = *state;
    struct store_reply reply;

    assert_int_equal(store_put(fixture, "a/one", "hello", TDM__VERSION_NONE, 0), TDM_OK);
    reply = store_read(fixture, "a/one");
    assert_int_equal(reply.count, 1);
    assert_string_equal(reply.records[0].key, "a/one");
    assert_int_equal(reply.records[0].size_bytes, 5);
    assert_memory_equal(reply.records[0].bytes, "hello", 5);
    assert_int_equal(store_read(fixture, "a/none").count, 0);
}

static void bytes_of_every_value_survive(void **state)
{
    static const char bytes[] = "\0\r\n*$\xff\x80 end\0";
    struct store_fixture *fixture = *state;
    struct tdm__store_write write = {.kind = TDM__STORE_PUT,
                                     .key = "b/ $binary{}\\\"'%s",
                                     .version = TDM__VERSION_ANY,
                                     .bytes = {bytes, sizeof(bytes)}};
    struct store_reply reply;

    assert_int_equal(store_commit(fixture, &write, 1), TDM_OK);
    reply = store_read(fixture, "b/*");
    assert_int_equal(reply.count, 1);
    assert_string_equal(reply.records[0].key, write.key);
    assert_int_equal(reply.records[0].size_bytes, sizeof(bytes));
    assert_memory_equal(reply.records[0].bytes, bytes, sizeof(bytes));
    assert_int_equal(store_put(fixture, "b/empty", "", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_read(fixture, "b/empty").records[0].size_bytes, 0);
}

static void prefix_lists_its_records_in_order_and_once(void **state)
{
    static const char *const patterns[] = {"p/*", "p/b", "p/c*", "q"};
    struct store_fixture *fixture = *state;
    struct store_reply reply = {.ended = false};

    assert_int_equal(store_put(fixture, "p/c", "", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(fixture, "p/a", "", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(fixture, "p/b~", "", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(fixture, "p/b", "", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(fixture, "p0", "", TDM__VERSION_NONE, 0), TDM_OK);
    fixture->store->ops->read(fixture->store, patterns, 4, tdm__clock_ms() + WAIT_MS, store_on_read,
                              &reply);
    store_run_until(fixture, store_has_ended, &reply);
    assert_int_equal(reply.count, 4);
    assert_string_equal(reply.records[0].key, "p/a");
    assert_string_equal(reply.records[1].key, "p/b");
    assert_string_equal(reply.records[2].key, "p/b~");
    assert_string_equal(reply.records[3].key, "p/c");
    assert_true(store_read(fixture, "*").count > 5);
}

static void keys_out_of_bounds_are_refused(void **state)
{
    struct store_fixture *fixture = *state;
    char long_key[202];

    memset(long_key, 'k', 200);
    long_key[200] = '\0';
    assert_int_equal(store_put(fixture, long_key, "", TDM__VERSION_NONE, 0), TDM_OK);
    long_key[200] = 'k';
    long_key[201] = '\0';
    assert_int_equal(store_put(fixture, long_key, "", TDM__VERSION_ANY, 0), TDM_E_INVAL);
    assert_int_equal(store_put(fixture, "", "", TDM__VERSION_ANY, 0), TDM_E_INVAL);
    assert_int_equal(store_put(fixture, "a*", "", TDM__VERSION_ANY, 0), TDM_E_INVAL);
    assert_int_equal(store_put(fixture, "a\nb", "", TDM__VERSION_ANY, 0), TDM_E_INVAL);
    assert_int_equal(store_read(fixture, "a*b").status, TDM_E_INVAL);
}

static void largest_commit_is_atomic(void **state)
{
    enum { MOST = 10000 };
    static struct tdm__store_write writes[MOST + 1];
    static char keys[MOST + 1][16];
    struct store_fixture *fixture = *state;

    for (size_t i = 0; i <= MOST; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "most/%zu", i);
        writes[i] = (struct tdm__store_write){.kind = TDM__STORE_PUT, .key = keys[i]};
    }
    assert_int_equal(store_commit(fixture, writes, MOST + 1), TDM_E_LIMIT);
    assert_int_equal(store_read(fixture, "most/*").count, 0);
    assert_int_equal(store_commit(fixture, writes, MOST), TDM_OK);
    assert_int_equal(store_read(fixture, "most/*").count, MOST);
    assert_int_equal(store_commit(fixture, writes, MOST), TDM_E_CONFLICT);
    for (size_t i = 0; i < MOST; i++) {
        writes[i].kind = TDM__STORE_DELETE;
        writes[i].version = TDM__VERSION_ANY;
    }
    assert_int_equal(store_commit(fixture, writes, MOST), TDM_OK);
    assert_int_equal(store_read(fixture, "most/*").count, 0);
}

/* ---- commits ---------------------------------------------------------------------------- */

static void version_that_moved_is_a_conflict(void **state)
{
    struct store_fixture *fixture = *state;
    uint64_t version;

    assert_int_equal(store_put(fixture, "c", "1", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(fixture, "c", "2", TDM__VERSION_NONE, 0), TDM_E_CONFLICT);
    version = store_version(fixture, "c");
    assert_int_equal(store_put(fixture, "c", "3", version, 0), TDM_OK);
    assert_int_equal(store_put(fixture, "c", "4", version, 0), TDM_E_CONFLICT);
    assert_int_equal(store_delete(fixture, "c", version), TDM_E_CONFLICT);
    assert_memory_equal(store_read(fixture, "c").records[0].bytes, "3", 1);
    assert_int_equal(store_put(fixture, "c/new", "", 12345, 0), TDM_E_CONFLICT);
}

/* Of three writes two expect other versions. */
static void lost_commit_has_the_records_over_which_it_was_lost(void **state)
{
    struct store_fixture *fixture = *state;
    struct tdm__store_write writes[3] = {
        {.kind = TDM__STORE_CHECK_VERSION, .key = "lost/c", .version = 5},
        {.kind = TDM__STORE_PUT, .key = "lost/b", .version = TDM__VERSION_NONE},
        {.kind = TDM__STORE_PUT, .key = "lost/a", .version = TDM__VERSION_NONE}};
    struct store_reply reply;

    assert_int_equal(store_put(fixture, "lost/a", "new", TDM__VERSION_ANY, 0), TDM_OK);
    reply = store_commit_reply(fixture, writes, 3);
    assert_int_equal(reply.status, TDM_E_CONFLICT);
    assert_int_equal(reply.count, 2);
    assert_string_equal(reply.records[0].key, "lost/a");
    assert_true(reply.records[0].version == store_version(fixture, "lost/a"));
    assert_int_equal(reply.records[0].size_bytes, 3);
    assert_memory_equal(reply.records[0].bytes, "new", 3);
    assert_string_equal(reply.records[1].key, "lost/c");
    assert_true(reply.records[1].version == TDM__VERSION_NONE);
    assert_true(store_version(fixture, "lost/b") == TDM__VERSION_NONE);
}

static void commit_is_all_or_nothing(void **state)
{
    struct store_fixture *fixture = *state;
    struct tdm__store_write writes[] = {
        {.kind = TDM__STORE_PUT, .key = "n/a", .version = TDM__VERSION_ANY, .bytes = {"x", 1}},
        {.kind = TDM__STORE_DELETE, .key = "n/b", .version = TDM__VERSION_ANY},
        {.kind = TDM__STORE_CHECK_VERSION, .key = "n/c", .version = TDM__VERSION_NONE},
    };

    assert_int_equal(store_put(fixture, "n/b", "", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_put(fixture, "n/c", "", TDM__VERSION_NONE, 0), TDM_OK);
    assert_int_equal(store_commit(fixture, writes, 3), TDM_E_CONFLICT);
    assert_int_equal(store_version(fixture, "n/a"), 0);
    assert_true(store_version(fixture, "n/b") != 0);
    writes[2].version = store_version(fixture, "n/c");
    assert_int_equal(store_commit(fixture, writes, 3), TDM_OK);
    assert_true(store_version(fixture, "n/a") != 0);
    assert_int_equal(store_version(fixture, "n/b"), 0);
    assert_int_equal(store_version(fixture, "n/c"), writes[2].version);
}

static void version_is_never_used_again(void **state)
{
    struct store_fixture *fixture = *state;
    uint64_t last = 0;

    for (int i = 0; i < 5; i++) {
        uint64_t version;

        assert_int_equal(store_put(fixture, "v", "same", TDM__VERSION_NONE, 0), TDM_OK);
        version = store_version(fixture, "v");
        assert_true(version > last);
        last = version;
        assert_int_equal(store_delete(fixture, "v", version), TDM_OK);
    }
    assert_int_equal(store_delete(fixture, "v", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_delete(fixture, "v", last), TDM_E_CONFLICT);
}

static void commit_says_the_version_of_what_it_put(void **state)
{
    struct store_fixture *fixture = *state;
    struct tdm__store_write writes[] = {
        {.kind = TDM__STORE_PUT, .key = "said/1", .version = TDM__VERSION_NONE},
        {.kind = TDM__STORE_PUT, .key = "said/2", .version = TDM__VERSION_NONE},
        {.kind = TDM__STORE_PUT, .key = "said/1", .version = TDM__VERSION_NONE},
    };
    struct store_reply reply = store_commit_reply(fixture, writes, 3);

    assert_int_equal(reply.status, TDM_OK);
    assert_int_not_equal(reply.version, TDM__VERSION_NONE);
    assert_int_equal(store_version(fixture, "said/1"), reply.version);
    assert_int_equal(store_version(fixture, "said/2"), reply.version);
    writes[0].version = reply.version;
    writes[1].kind = TDM__STORE_DELETE;
    writes[1].version = reply.version;
    reply = store_commit_reply(fixture, writes, 2);
    assert_int_equal(reply.status, TDM_OK);
    assert_int_equal(store_version(fixture, "said/1"), reply.version);
    reply = store_commit_reply(fixture, writes, 2);
    assert_int_equal(reply.status, TDM_E_CONFLICT);
    assert_int_equal(reply.version, TDM__VERSION_NONE);
    writes[0].kind = TDM__STORE_CHECK_VERSION;
    writes[0].version = TDM__VERSION_ANY;
    reply = store_commit_reply(fixture, writes, 1);
    assert_int_equal(reply.status, TDM_OK);
    assert_int_equal(reply.version, TDM__VERSION_NONE);
}

/* ---- leases ----------------------------------------------------------------------------- */

static void on_renewed(void *arg, tdm_status status, const struct tdm__store_renewed *renewed,
                       const struct tdm__store_record *members, uint32_t members_count)
{
    struct renewal_reply *reply = arg;

    assert_false(reply->ended);
    reply->ended = true;
    reply->status = status;
    assert_true((status == TDM_OK) == (renewed != NULL));
    if (renewed != NULL) {
        reply->renewed = *renewed;
    }
    reply->has_list = members != NULL;
    reply->members_count = members_count;
    for (uint32_t i = 0; i < members_count && i < 4; i++) {
        (void)snprintf(reply->members[i], sizeof(reply->members[i]), "%s", members[i].key);
    }
}

static bool renewal_has_ended(void *arg)
{
    return ((const struct renewal_reply *)arg)->ended;
}

struct renewal_reply store_renew(struct store_fixture *fixture,
                                 const struct tdm__store_renewal *renewal)
{
    struct renewal_reply reply = {.ended = false};

    fixture->store->ops->renew(fixture->store, renewal, tdm__clock_ms() + WAIT_MS, on_renewed,
                               &reply);
    assert_false(reply.ended);
    store_run_until(fixture, renewal_has_ended, &reply);
    return reply;
}

static struct renewal_reply renew(struct store_fixture *fixture, const char *key,
                                  uint64_t members_epoch, uint64_t renewals_count)
{
    return store_renew(fixture, &(struct tdm__store_renewal){.key = key,
                                                             .lease_ms = LEASE_MS,
                                                             .grace_ms = GRACE_MS,
                                                             .members_epoch = members_epoch,
                                                             .renewals_count = renewals_count});
}

static tdm_status commit_that_relies_on_loss(struct store_fixture *fixture, const char *key)
{
    const struct tdm__store_write writes[] = {
        {.kind = TDM__STORE_CHECK_LOST, .key = key, .version = TDM__VERSION_NONE},
        {.kind = TDM__STORE_PUT, .key = "taken", .version = TDM__VERSION_ANY}};

    return store_commit(fixture, writes, 2);
}

/* Adds a member. Renews its lease until takeovers are allowed. */
static void join_as(struct store_fixture *fixture, const char *key)
{
    assert_int_equal(store_put(fixture, key, "", TDM__VERSION_NONE, LEASE_MS), TDM_OK);
    while (renew(fixture, key, TDM__VERSION_NONE, 0).renewed.held_ms > 0) {
        store_run_for(fixture, 5);
    }
}

static tdm_status commit_in_generation(struct store_fixture *fixture, uint64_t generation)
{
    const struct tdm__store_write writes[] = {
        {.kind = TDM__STORE_CHECK_GENERATION, .key = "name/one", .version = generation},
        {.kind = TDM__STORE_PUT, .key = "name/one", .version = TDM__VERSION_ANY}};

    return store_commit(fixture, writes, 2);
}

static void commit_may_demand_a_generation(void **state)
{
    struct store_fixture *fixture = *state;
    uint64_t generation;

    join_as(fixture, "node/a");
    generation = renew(fixture, "node/a", TDM__VERSION_NONE, 0).renewed.generation;
    assert_int_equal(commit_in_generation(fixture, generation - 1), TDM_E_AGAIN);
    assert_int_equal(commit_in_generation(fixture, generation + 1), TDM_E_AGAIN);
    assert_int_equal(store_read(fixture, "name/one").count, 0);
    assert_int_equal(commit_in_generation(fixture, generation), TDM_OK);
    assert_int_equal(commit_in_generation(fixture, generation), TDM_OK);
    assert_int_equal(store_delete(fixture, "name/one", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_delete(fixture, "node/a", TDM__VERSION_ANY), TDM_OK);
}

static void forget_members(struct store_fixture *fixture)
{
    assert_int_equal(store_delete(fixture, "node/a", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_delete(fixture, "node/b", TDM__VERSION_ANY), TDM_OK);
}

static void member_that_does_not_renew_is_lost_after_lease_and_grace(void **state)
{
    struct store_fixture *fixture = *state;
    struct renewal_reply reply;
    uint64_t clock_ms;
    uint64_t last_ms;
    uint64_t version;

    join_as(fixture, "node/b");
    clock_ms = renew(fixture, "node/b", TDM__VERSION_NONE, 0).renewed.clock_ms;
    assert_int_equal(store_put(fixture, "node/a", "", TDM__VERSION_NONE, LEASE_MS), TDM_OK);
    version = store_version(fixture, "node/a");
    reply = renew(fixture, "node/b", TDM__VERSION_NONE, 0);
    last_ms = reply.renewed.clock_ms; /* The lease of node/a began between the two times. */
    do {
        if (reply.renewed.clock_ms <= clock_ms + LEASE_MS + GRACE_MS) {
            assert_true(store_version(fixture, "node/a") == version);
            assert_int_equal(commit_that_relies_on_loss(fixture, "node/a"), TDM_E_CONFLICT);
        }
        store_run_for(fixture, 5);
        reply = renew(fixture, "node/b", TDM__VERSION_NONE, 0);
    } while (reply.renewed.clock_ms <= last_ms + LEASE_MS + GRACE_MS);
    assert_int_equal(reply.members_count, 1);
    assert_string_equal(reply.members[0], "node/b");
    assert_int_equal(store_read(fixture, "node/*").count, 1);
    assert_int_equal(renew(fixture, "node/a", TDM__VERSION_NONE, 0).status, TDM_E_CONFLICT);
    assert_int_equal(commit_that_relies_on_loss(fixture, "node/a"), TDM_OK);
    /* A member that joins again has a higher epoch. */
    assert_int_equal(store_put(fixture, "node/a", "", TDM__VERSION_NONE, LEASE_MS), TDM_OK);
    reply = renew(fixture, "node/a", TDM__VERSION_NONE, 0);
    assert_int_equal(reply.renewed.epoch, store_version(fixture, "node/a"));
    assert_true(reply.renewed.epoch > version);
    forget_members(fixture);
}

static void renewal_tells_the_list_of_members_when_it_has_changed(void **state)
{
    struct store_fixture *fixture = *state;
    struct renewal_reply first;
    struct renewal_reply second;

    join_as(fixture, "node/a");
    first = renew(fixture, "node/a", TDM__VERSION_NONE, 0);
    assert_true(first.has_list);
    assert_int_equal(first.members_count, 1);
    second = renew(fixture, "node/a", first.renewed.members_epoch, 0);
    assert_false(second.has_list);
    assert_int_equal(second.renewed.members_epoch, first.renewed.members_epoch);
    assert_int_equal(second.renewed.renewals_count, first.renewed.renewals_count + 1);
    assert_int_equal(store_put(fixture, "node/b", "", TDM__VERSION_NONE, WAIT_MS), TDM_OK);
    second = renew(fixture, "node/a", first.renewed.members_epoch, 0);
    assert_true(second.renewed.members_epoch > first.renewed.members_epoch);
    assert_int_equal(second.members_count, 2);
    assert_string_equal(second.members[1], "node/b");
    first = renew(fixture, "node/a", second.renewed.members_epoch, 0);
    assert_false(first.has_list);
    assert_int_equal(store_delete(fixture, "node/b", TDM__VERSION_ANY), TDM_OK);
    first = renew(fixture, "node/a", second.renewed.members_epoch, 0);
    assert_int_equal(first.members_count, 1);
    forget_members(fixture);
}

static void no_loss_counts_after_the_store_has_lost_changes(void **state)
{
    struct store_fixture *fixture = *state;
    struct renewal_reply before;
    struct renewal_reply reply;

    join_as(fixture, "node/a");
    before = renew(fixture, "node/a", TDM__VERSION_NONE, 0);
    assert_int_equal(before.renewed.held_ms, 0);
    assert_int_equal(commit_that_relies_on_loss(fixture, "node/b"), TDM_OK);
    reply = renew(fixture, "node/a", TDM__VERSION_NONE, before.renewed.renewals_count + 10);
    assert_true(reply.renewed.generation > before.renewed.generation);
    assert_int_equal(reply.renewed.held_ms, LEASE_MS + GRACE_MS + 1);
    assert_int_equal(reply.renewed.renewals_count, before.renewed.renewals_count + 11);
    assert_int_equal(commit_that_relies_on_loss(fixture, "node/b"), TDM_E_AGAIN);
    assert_int_equal(commit_that_relies_on_loss(fixture, "node/a"), TDM_E_CONFLICT);
    before = reply;
    do {
        store_run_for(fixture, 5);
        reply = renew(fixture, "node/a", TDM__VERSION_NONE, reply.renewed.renewals_count);
    } while (reply.renewed.clock_ms <= before.renewed.clock_ms + LEASE_MS + GRACE_MS);
    assert_int_equal(reply.renewed.generation, before.renewed.generation);
    assert_int_equal(reply.renewed.held_ms, 0);
    assert_int_equal(commit_that_relies_on_loss(fixture, "node/b"), TDM_OK);
    forget_members(fixture);
}

/* Each member of a store that went back has a higher count than the store. */
static void store_that_lost_changes_begins_one_generation(void **state)
{
    struct store_fixture *fixture = *state;
    struct tdm__store_renewal renewal = {
        .key = "node/a", .lease_ms = LEASE_MS, .grace_ms = GRACE_MS, .renewals_count = 100};
    struct renewal_reply reply;
    uint64_t before;

    join_as(fixture, "node/a");
    assert_int_equal(store_put(fixture, "node/b", "", TDM__VERSION_NONE, LEASE_MS), TDM_OK);
    before = renew(fixture, "node/a", TDM__VERSION_NONE, 0).renewed.generation;
    renewal.generation = before;
    reply = store_renew(fixture, &renewal);
    assert_true(reply.renewed.generation > before);
    before = reply.renewed.generation;
    renewal.key = "node/b";
    reply = store_renew(fixture, &renewal);
    assert_int_equal(reply.status, TDM_OK);
    assert_int_equal(reply.renewed.generation, before);
    assert_true(reply.renewed.renewals_count > 100);
    forget_members(fixture);
}

/* ---- watches ---------------------------------------------------------------------------- */

struct told {
    uint32_t count;
    char keys[8][32];
};

/* Watches stay until the store is closed, and so must their notes. */
static struct told told;

static void on_changed(void *arg, const char *key)
{
    struct told *notes = arg;

    assert_true(notes->count < 8);
    (void)snprintf(notes->keys[notes->count++], sizeof(notes->keys[0]), "%s", key);
}

static bool was_told_four(void *arg)
{
    return ((const struct told *)arg)->count >= 4;
}

static void watch_tells_each_change_under_its_prefix_once(void **state)
{
    struct store_fixture *fixture = *state;
    struct tdm__store_write two[] = {
        {.kind = TDM__STORE_PUT, .key = "w/a", .version = TDM__VERSION_ANY},
        {.kind = TDM__STORE_PUT, .key = "w/b", .version = TDM__VERSION_ANY},
    };

    told.count = 0;
    assert_int_equal(fixture->store->ops->watch(fixture->store, "w/", on_changed, &told), TDM_OK);
    assert_int_equal(fixture->store->ops->watch(fixture->store, "w/", on_changed, &told),
                     TDM_E_EXISTS);
    assert_int_equal(fixture->store->ops->watch(fixture->store, "w*", on_changed, &told),
                     TDM_E_INVAL);
    assert_int_equal(store_put(fixture, "elsewhere", "", TDM__VERSION_ANY, 0), TDM_OK);
    assert_int_equal(store_commit(fixture, two, 2), TDM_OK);
    assert_int_equal(store_put(fixture, "w/a", "", TDM__VERSION_NONE, 0), TDM_E_CONFLICT);
    assert_int_equal(store_delete(fixture, "w/none", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_delete(fixture, "w/a", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_put(fixture, "w/end", "", TDM__VERSION_ANY, 0), TDM_OK);
    store_run_until(fixture, was_told_four, &told);
    assert_int_equal(told.count, 4);
    assert_string_equal(told.keys[0], "w/a");
    assert_string_equal(told.keys[1], "w/b");
    assert_string_equal(told.keys[2], "w/a");
    assert_string_equal(told.keys[3], "w/end");
}

/* ---- transactions ----------------------------------------------------------------------- */

struct counting {
    struct store_fixture *fixture;
    const char *counter;
    char mark[64]; /* The record that says which step was done last. */
    int step;
    bool ended;
    uint32_t *unknown_count;
};

static void count_once(struct counting *counting);

/* Has this very step happened, though its reply was lost? */
static bool is_done_already(const struct counting *counting, const struct tdm__txn *txn)
{
    const struct tdm__store_record *mark = tdm__txn_find_record(txn, counting->mark);
    int step = -1;

    if (mark != NULL) {
        memcpy(&step, mark->bytes.data, sizeof(step));
    }
    return step == counting->step;
}

static tdm_status add_one(void *arg, struct tdm__txn *txn)
{
    struct counting *counting = arg;
    const struct tdm__store_record *record = tdm__txn_find_record(txn, counting->counter);
    int value = 0;

    if (is_done_already(counting, txn)) {
        return TDM_OK;
    }
    if (record != NULL) {
        assert_int_equal(record->bytes.size_bytes, sizeof(value));
        memcpy(&value, record->bytes.data, sizeof(value));
    }
    value++;
    TDM_TRY(tdm__txn_put(txn, counting->mark,
                         (struct tdm_bytes){&counting->step, sizeof(counting->step)}, 0));
    return tdm__txn_put(txn, counting->counter, (struct tdm_bytes){&value, sizeof(value)}, 0);
}

static void on_added(void *arg, tdm_status status, const char *detail)
{
    struct counting *counting = arg;

    if (status == TDM_E_STORE) {
        ++*counting->unknown_count;
    } else if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), detail);
    } else {
        counting->step++;
    }
    if (counting->step == COUNT_EACH) {
        counting->ended = true;
        return;
    }
    count_once(counting);
}

static void count_once(struct counting *counting)
{
    const char *patterns[] = {counting->counter, counting->mark};

    assert_int_equal(tdm__txn_run(counting->fixture->store, NULL, patterns, 2,
                                  tdm__clock_ms() + 6 * WAIT_MS, add_one, on_added, counting),
                     TDM_OK);
}

static bool all_have_ended(void *arg)
{
    const struct counting *counting = arg;

    for (int i = 0; i < COUNTERS; i++) {
        if (!counting[i].ended) {
            return false;
        }
    }
    return true;
}

uint32_t store_suite_counts_exactly(struct store_fixture *fixture, const char *counter)
{
    struct counting counting[COUNTERS] = {{.step = 0}};
    struct store_reply reply;
    uint32_t unknown_count = 0;
    int value;

    for (int i = 0; i < COUNTERS; i++) {
        counting[i] = (struct counting){
            .fixture = fixture, .counter = counter, .unknown_count = &unknown_count};
        (void)snprintf(counting[i].mark, sizeof(counting[i].mark), "%s/mark/%d", counter, i);
        count_once(&counting[i]);
    }
    assert_int_equal(
        tdm__loop_run(fixture->loop, all_have_ended, counting, tdm__clock_ms() + 6 * WAIT_MS),
        TDM_OK);
    do {
        reply = store_read(fixture, counter);
    } while (reply.status == TDM_E_STORE);
    memcpy(&value, reply.records[0].bytes, sizeof(value));
    assert_int_equal(value, COUNTERS * COUNT_EACH);
    return unknown_count;
}

/* Reads PREFIX*>VERSION and returns the version now. Checks how complete the records are. */
static uint64_t read_since(struct store_fixture *fixture, uint64_t since, const char *complete,
                           uint32_t count)
{
    char pattern[64];
    struct store_reply reply;

    (void)snprintf(pattern, sizeof(pattern), "free/*>%llu", (unsigned long long)since);
    reply = store_read(fixture, pattern);
    assert_int_equal(reply.status, TDM_OK);
    assert_int_equal(reply.count, count + 1);
    assert_string_equal(reply.records[0].key, "free/*");
    assert_int_equal(reply.records[0].size_bytes, strlen(complete));
    assert_memory_equal(reply.records[0].bytes, complete, strlen(complete));
    assert_true(reply.records[0].version >= since);
    return reply.records[0].version;
}

static void what_has_changed_is_read_alone(void **state)
{
    struct store_fixture *fixture = *state;
    uint64_t version;

    (void)store_put(fixture, "free/1", "a", TDM__VERSION_ANY, 0);
    (void)store_put(fixture, "free/2", "b", TDM__VERSION_ANY, 0);
    version = read_since(fixture, 0, TDM__STORE_ALL, 2);
    assert_int_equal(read_since(fixture, version, TDM__STORE_CHANGES, 0), version);
    (void)store_put(fixture, "other/1", "c", TDM__VERSION_ANY, 0);
    (void)store_put(fixture, "free/2", "d", TDM__VERSION_ANY, 0);
    (void)store_put(fixture, "free/3", "e", TDM__VERSION_ANY, 0);
    (void)read_since(fixture, version, TDM__STORE_CHANGES, 2);
    version = read_since(fixture, version, TDM__STORE_CHANGES, 2);
    assert_int_equal(store_delete(fixture, "free/2", TDM__VERSION_ANY), TDM_OK);
    (void)read_since(fixture, version, TDM__STORE_ALL, 2);
    assert_int_equal(store_delete(fixture, "free/1", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_delete(fixture, "free/3", TDM__VERSION_ANY), TDM_OK);
    /* Of other prefixes, and of versions that the store does not have yet, all is read. */
    (void)store_put(fixture, "free/4", "f", TDM__VERSION_ANY, 0);
    (void)store_read(fixture, "free/*>9000000000000000");
    assert_int_equal(store_read(fixture, "free/*>9000000000000000").count, 2);
    assert_int_equal(store_read(fixture, "other/*>1").count, 2);
    assert_int_equal(store_delete(fixture, "free/4", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_delete(fixture, "other/1", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_read(fixture, "free/*>").status, TDM_E_INVAL);
    assert_int_equal(store_read(fixture, "free/*>x").status, TDM_E_INVAL);
}

static void transactions_count_exactly(void **state)
{
    assert_int_equal(store_suite_counts_exactly(*state, "counter"), 0);
}

int store_suite_run(int (*setup)(void **state), int (*teardown)(void **state))
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_is_read_as_it_was_put),
        cmocka_unit_test(bytes_of_every_value_survive),
        cmocka_unit_test(prefix_lists_its_records_in_order_and_once),
        cmocka_unit_test(keys_out_of_bounds_are_refused),
        cmocka_unit_test(largest_commit_is_atomic),
        cmocka_unit_test(version_that_moved_is_a_conflict),
        cmocka_unit_test(lost_commit_has_the_records_over_which_it_was_lost),
        cmocka_unit_test(commit_is_all_or_nothing),
        cmocka_unit_test(version_is_never_used_again),
        cmocka_unit_test(commit_says_the_version_of_what_it_put),
        cmocka_unit_test(member_that_does_not_renew_is_lost_after_lease_and_grace),
        cmocka_unit_test(renewal_tells_the_list_of_members_when_it_has_changed),
        cmocka_unit_test(commit_may_demand_a_generation),
        cmocka_unit_test(no_loss_counts_after_the_store_has_lost_changes),
        cmocka_unit_test(store_that_lost_changes_begins_one_generation),
        cmocka_unit_test(watch_tells_each_change_under_its_prefix_once),
        cmocka_unit_test(what_has_changed_is_read_alone),
        cmocka_unit_test(transactions_count_exactly),
    };

    return cmocka_run_group_tests_name("store", tests, setup, teardown);
}
