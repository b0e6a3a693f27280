/* store_redis_test.c - the store in Redis survives failures of the server and of connections. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/redis/command.h"
#include "runtime/redis/reply.h"
#include "runtime/redis/store.h"
#include "runtime/store/check.h"
#include "tests/conformance/store_takeover_suite.h"
#include "tests/support/redis_fixture.h"
#include "tests/support/tcp_sockets.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static struct redis_fixture world;

static int open_clock(char path[64]);

static int open_world(void **state)
{
    char path[64] = "/tmp/tandem-clock-XXXXXX";
    int failed = open_clock(path);

    *state = &world.base;
    failed = failed != 0 || redis_fixture_open(&world) != 0;
    (void)unlink(path);
    (void)unsetenv("LD_PRELOAD");
    return failed;
}

static int close_world(void **state)
{
    (void)state;
    redis_fixture_close(&world);
    return 0;
}

/* ---- an operator's own connection ------------------------------------------------------- */

static redisContext *operator_connect(void)
{
    redisContext *context =
        redisConnectUnix(tdm__redis_embedded_url(world.server) + strlen("unix://"));

    assert_non_null(context);
    assert_int_equal(context->err, 0);
    return context;
}

/* Runs one command that must not fail. */
static void operator_says(const char *command)
{
    redisContext *context = operator_connect();
    redisReply *reply = redisCommand(context, command);

    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", command, reply->str);
    }
    freeReplyObject(reply);
    redisFree(context);
}

static long long operator_counts(const char *command)
{
    redisContext *context = operator_connect();
    redisReply *reply = redisCommand(context, command);
    long long count;

    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    count = reply->integer;
    freeReplyObject(reply);
    redisFree(context);
    return count;
}

/* ---- the server's clock --------------------------------------------------------------- */

static int64_t *clock_ahead_s; /* By how much the server's wall clock is ahead, see fake/clock.c. */

static void advance_server_clock(int64_t seconds)
{
    *clock_ahead_s += seconds;
}

/* Makes the servers that are started from now on use the clock of fake/clock.c. */
static int open_clock(char path[64])
{
    int fd = mkstemp(path);
    int64_t *page;

    if (fd < 0 || ftruncate(fd, sizeof(*page)) != 0) {
        return 1;
    }
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (page == MAP_FAILED) {
        return 1;
    }
    clock_ahead_s = page;
    return setenv("TANDEM_FAKE_CLOCK", path, 1) != 0 ||
           setenv("LD_PRELOAD", TDM_TEST_BUILD_DIR "/tests/clock_fake.so", 1) != 0;
}

/* ---- connections ------------------------------------------------------------------------ */

static void killed_connection_is_made_again(void **state)
{
    struct store_fixture *base = *state;

    for (int i = 0; i < 5; i++) {
        operator_says("CLIENT KILL TYPE normal SKIPME yes");
        assert_int_equal(store_put(base, "kill", "x", TDM__VERSION_ANY, 0), TDM_OK);
    }
}

/* Callback of each new connection, which counts them. */
static void count_connection(void *arg)
{
    ++*(uint32_t *)arg;
}

/* The server may be another one then, so a node renews its lease. */
static void each_new_connection_is_reported(void **state)
{
    struct store_fixture *base = *state;
    uint32_t connections = 0;

    tdm__store_redis_on_connected(base->store, count_connection, &connections);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(connections, i);
        operator_says("CLIENT KILL TYPE normal SKIPME yes");
        assert_int_equal(store_put(base, "seen", "x", TDM__VERSION_ANY, 0), TDM_OK);
    }
    assert_int_equal(connections, 3);
    tdm__store_redis_on_connected(base->store, NULL, NULL);
}

struct killer {
    struct tdm__timer *timer;
    uint32_t kills_left;
};

static void kill_connections(void *arg)
{
    struct killer *killer = arg;

    operator_says("CLIENT KILL TYPE normal SKIPME yes");
    if (--killer->kills_left > 0) {
        assert_int_equal(tdm__timer_set(killer->timer, tdm__clock_ms() + 3), TDM_OK);
    }
}

static void no_outcome_is_lost_while_connections_are_killed(void **state)
{
    struct store_fixture *base = *state;
    struct killer killer = {.kills_left = 20};

    assert_int_equal(tdm__timer_create(base->loop, kill_connections, &killer, &killer.timer),
                     TDM_OK);
    assert_int_equal(tdm__timer_set(killer.timer, tdm__clock_ms()), TDM_OK);
    assert_int_equal(store_suite_counts_exactly(base, "count-under-fire"), 0);
    tdm__timer_destroy(killer.timer);
}

/* Sends an encoded command and returns the reply, which the caller frees. */
static redisReply *send_command(redisContext *context, const struct tdm__redis_command *command)
{
    redisReply *reply = NULL;

    assert_int_equal(redisAppendFormattedCommand(context, command->text, command->bytes), 0);
    assert_int_equal(redisGetReply(context, (void **)&reply), REDIS_OK);
    assert_non_null(reply);
    return reply;
}

/* Opens a session of the writer "w". */
static uint64_t open_session(redisContext *context)
{
    struct tdm__redis_command command;
    redisReply *reply;
    uint64_t session;

    assert_int_equal(tdm__redis_command_session("tdm:{test}:", "w", 1, &command), TDM_OK);
    reply = send_command(context, &command);
    assert_int_equal(tdm__redis_reply_session(reply, &session), TDM_OK);
    freeReplyObject(reply);
    tdm__redis_command_free(&command);
    return session;
}

/* Sends a commit of the writer "w" and expects the reply, which may end with '*'. */
static void expect_commit(redisContext *context, const struct tdm__store_write *write,
                          const struct tdm__redis_commit_stamp *stamp, const char *expected)
{
    struct tdm__redis_command command;
    redisReply *reply;

    assert_int_equal(tdm__redis_command_commit("tdm:{test}:", "w", write, 1, &command), TDM_OK);
    tdm__redis_command_stamp(&command, stamp);
    reply = send_command(context, &command);
    assert_non_null(reply->str);
    if (!tdm__store_matches(expected, reply->str)) {
        fail_msg("\"%s\" instead of \"%s\"", reply->str, expected);
    }
    freeReplyObject(reply);
    tdm__redis_command_free(&command);
}

static void repeated_commit_happens_once_and_is_replied_to_alike(void **state)
{
    struct store_fixture *base = *state;
    const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "twice", .version = TDM__VERSION_NONE};
    redisContext *context = operator_connect();
    struct tdm__redis_commit_stamp stamp = {open_session(context), 1, 1};
    char wanted[32] = "OK *";
    uint64_t version;

    expect_commit(context, &write, &stamp, wanted);
    version = store_version(base, "twice");
    (void)snprintf(wanted, sizeof(wanted), "OK %" PRIu64, version);
    expect_commit(context, &write, &stamp, wanted);
    assert_int_equal(store_version(base, "twice"), version);
    redisFree(context);
}

/* With an outcome that expired, the second copy would be carried out. */
static void commit_repeated_after_two_minutes_happens_once(void **state)
{
    struct store_fixture *base = *state;
    const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "late", .version = TDM__VERSION_ANY};
    redisContext *context = operator_connect();
    struct tdm__redis_commit_stamp stamp = {open_session(context), 1, 1};
    uint64_t version;

    expect_commit(context, &write, &stamp, "OK *");
    version = store_version(base, "late");
    advance_server_clock(120);
    expect_commit(context, &write, &stamp, "OK *");
    assert_int_equal(store_version(base, "late"), version);
    redisFree(context);
}

static void settled_commit_is_refused(void **state)
{
    struct store_fixture *base = *state;
    const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "settled", .version = TDM__VERSION_ANY};
    redisContext *context = operator_connect();
    struct tdm__redis_commit_stamp stamp = {open_session(context), 1, 1};

    for (; stamp.number <= 5; stamp.number++) {
        expect_commit(context, &write, &stamp, "OK *");
    }
    assert_int_equal(operator_counts("HLEN tdm:{test}:q:w"), 2 + 5);
    stamp.lowest = 5;
    expect_commit(context, &write, &stamp, "OK *");
    assert_int_equal(operator_counts("HLEN tdm:{test}:q:w"), 2 + 2);
    stamp.number = 4;
    expect_commit(context, &write, &stamp, "SETTLED");
    assert_int_equal(store_read(base, "settled").count, 1);
    redisFree(context);
}

/* A copy of a commit that arrives after its outcome went with the node must not count. */
static void outcomes_go_with_the_record_of_their_node(void **state)
{
    struct store_fixture *base = *state;
    const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "of-node", .version = TDM__VERSION_ANY};
    redisContext *context = operator_connect();
    struct tdm__redis_commit_stamp stamp = {open_session(context), 1, 1};
    uint64_t version;

    assert_int_equal(store_put(base, "node/w", "", TDM__VERSION_ANY, 0), TDM_OK);
    expect_commit(context, &write, &stamp, "OK *");
    version = store_version(base, "of-node");
    assert_int_equal(store_delete(base, "node/w", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(operator_counts("EXISTS tdm:{test}:q:w"), 0);
    expect_commit(context, &write, &stamp, "UNKNOWN");
    (void)open_session(context);
    expect_commit(context, &write, &stamp, "UNKNOWN");
    assert_int_equal(store_version(base, "of-node"), version);
    redisFree(context);
}

/* Deletes the outcomes of all writers. */
static void delete_outcomes(void)
{
    redisContext *context = operator_connect();
    redisReply *reply = redisCommand(
        context, "EVAL %s 0",
        "for _, k in ipairs(redis.call('KEYS', 'tdm:{test}:q:*')) do redis.call('DEL', k) end");

    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    redisFree(context);
}

/* The store itself opens another session. */
static void store_commits_again_after_its_outcomes_went(void **state)
{
    struct store_fixture *base = *state;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_put(base, "again", "x", TDM__VERSION_ANY, 0), TDM_OK);
        delete_outcomes();
    }
    assert_int_equal(store_put(base, "again", "x", TDM__VERSION_ANY, 0), TDM_OK);
}

/* ---- the server ------------------------------------------------------------------------- */

static void killed_server_is_restarted_with_its_data(void **state)
{
    struct store_fixture *base = *state;
    pid_t pid = tdm__redis_embedded_pid(world.server);
    uint64_t version;

    assert_int_equal(store_put(base, "keep", "data", TDM__VERSION_ANY, 0), TDM_OK);
    version = store_version(base, "keep");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(store_version(base, "keep"), version);
    assert_int_equal(store_put(base, "keep", "more", version, 0), TDM_OK);
    assert_int_not_equal(tdm__redis_embedded_pid(world.server), pid);
}

static void server_that_stands_still_is_a_failure_at_the_deadline(void **state)
{
    struct store_fixture *base = *state;
    struct store_reply answer = {.ended = false};
    const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "frozen", .version = TDM__VERSION_ANY};
    pid_t pid = tdm__redis_embedded_pid(world.server);

    assert_int_equal(kill(pid, SIGSTOP), 0);
    base->store->ops->commit(base->store, &write, 1, tdm__clock_ms() + 100, store_on_commit,
                             &answer);
    store_run_until(base, store_has_ended, &answer);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(answer.status, TDM_E_STORE);
    assert_int_equal(store_put(base, "thawed", "", TDM__VERSION_ANY, 0), TDM_OK);
    assert_int_equal(store_read(base, "thawed").count, 1);
}

static void library_that_was_flushed_is_loaded_again(void **state)
{
    operator_says("FUNCTION FLUSH");
    assert_int_equal(store_put(*state, "flushed", "", TDM__VERSION_ANY, 0), TDM_OK);
}

static void foreign_record_fails_with_the_servers_message(void **state)
{
    struct store_fixture *base = *state;

    operator_says("SET tdm:{test}:r:foreign text");
    assert_int_equal(store_read(base, "foreign").status, TDM_E_STORE);
    operator_says("DEL tdm:{test}:r:foreign");
    operator_says("HSET tdm:{test}:r:foreign v 1x d data");
    assert_int_equal(store_read(base, "foreign").status, TDM_E_STORE);
    operator_says("HDEL tdm:{test}:r:foreign d");
    assert_int_equal(store_read(base, "foreign").status, TDM_E_STORE);
    operator_says("DEL tdm:{test}:r:foreign");
    assert_int_equal(store_read(base, "foreign").count, 0);
}

/* The kept clock after a renewal, when the server's time seems to have advanced by `passed_ms`
 * since the last one. */
static uint64_t clock_after(struct store_fixture *base, long long passed_ms)
{
    static const struct tdm__store_renewal renewal = {
        .key = "node/kept", .lease_ms = 60000, .grace_ms = 2000};
    char command[128];
    struct renewal_reply reply;

    (void)snprintf(command, sizeof(command), "HINCRBY tdm:{test}:clock time %lld", -passed_ms);
    (void)operator_counts(command);
    reply = store_renew(base, &renewal);
    assert_int_equal(reply.status, TDM_OK);
    return reply.renewed.clock_ms;
}

static void outage_advances_the_kept_clock_by_one_step_in_all(void **state)
{
    struct store_fixture *base = *state;
    uint64_t before_ms;
    uint64_t after_ms;

    assert_int_equal(store_put(base, "node/kept", "", TDM__VERSION_NONE, 60000), TDM_OK);
    before_ms = clock_after(base, 0);
    after_ms = clock_after(base, 3600000);
    assert_int_equal(after_ms, before_ms + TDM__STORE_CLOCK_STEP_MS);
    /* The next renewals of all members together add only the time since then. */
    assert_true(clock_after(base, 0) < after_ms + TDM__STORE_CLOCK_STEP_MS);
    before_ms = clock_after(base, 0);
    assert_int_equal(clock_after(base, -3600000), before_ms);
    assert_int_equal(store_delete(base, "node/kept", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(operator_counts("ZCARD tdm:{test}:leases"), 0);
}

/* A time to live would go on while the server stands still. */
static void record_with_a_lease_has_no_time_to_live(void **state)
{
    static const struct tdm__store_renewal renewal = {
        .key = "node/kept", .lease_ms = 60000, .grace_ms = 2000};
    struct store_fixture *base = *state;

    assert_int_equal(store_put(base, "node/kept", "", TDM__VERSION_NONE, 60000), TDM_OK);
    assert_int_equal(operator_counts("PTTL tdm:{test}:r:node/kept"), -1);
    assert_int_equal(store_renew(base, &renewal).status, TDM_OK);
    assert_int_equal(operator_counts("PTTL tdm:{test}:r:node/kept"), -1);
    assert_int_equal(store_delete(base, "node/kept", TDM__VERSION_ANY), TDM_OK);
}

/* A lease is not charged with the time from before it began. */
static void lease_begins_after_the_clock_has_advanced(void **state)
{
    struct store_fixture *base = *state;
    uint64_t after_ms;
    char command[128];

    assert_int_equal(store_put(base, "node/kept", "", TDM__VERSION_NONE, 60000), TDM_OK);
    (void)clock_after(base, 0);
    (void)operator_counts("HINCRBY tdm:{test}:clock time -3600000");
    assert_int_equal(store_put(base, "node/new", "", TDM__VERSION_NONE, 60000), TDM_OK);
    after_ms = clock_after(base, 0);
    (void)snprintf(command, sizeof(command), "ZCOUNT tdm:{test}:leases %llu +inf",
                   (unsigned long long)after_ms + 59000);
    assert_int_equal(operator_counts(command), 2);
    assert_int_equal(store_delete(base, "node/kept", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_delete(base, "node/new", TDM__VERSION_ANY), TDM_OK);
}

static void another_server_begins_a_generation(void **state)
{
    static const struct tdm__store_renewal renewal = {
        .key = "node/moved", .lease_ms = 1000, .grace_ms = 100};
    struct store_fixture *base = *state;
    struct renewal_reply before;
    struct renewal_reply after;

    assert_int_equal(store_put(base, "node/moved", "", TDM__VERSION_NONE, 1000), TDM_OK);
    before = store_renew(base, &renewal);
    operator_says("HSET tdm:{test}:clock server another");
    after = store_renew(base, &renewal);
    assert_true(after.renewed.generation > before.renewed.generation);
    assert_int_equal(after.renewed.held_ms, 1101);
    assert_int_equal(store_renew(base, &renewal).renewed.generation, after.renewed.generation);
    assert_int_equal(store_delete(base, "node/moved", TDM__VERSION_ANY), TDM_OK);
}

/* Nothing counts as lost before a node has renewed its lease at a server that was replaced. */
static void takeover_waits_for_the_first_renewal_at_another_server(void **state)
{
    const struct tdm__store_write writes[] = {
        {.kind = TDM__STORE_CHECK_LOST, .key = "node/never", .version = TDM__VERSION_NONE},
        {.kind = TDM__STORE_PUT, .key = "taken", .version = TDM__VERSION_ANY}};
    const struct tdm__store_renewal renewal = {
        .key = "node/here", .lease_ms = 1000, .grace_ms = 100};
    struct store_fixture *base = *state;

    assert_int_equal(store_put(base, "node/here", "", TDM__VERSION_NONE, 1000), TDM_OK);
    assert_int_equal(store_renew(base, &renewal).status, TDM_OK);
    operator_says("HSET tdm:{test}:clock held_until 0");
    assert_int_equal(store_commit(base, writes, 2), TDM_OK);
    operator_says("HSET tdm:{test}:clock server another");
    assert_int_equal(store_commit(base, writes, 2), TDM_E_AGAIN);
    assert_int_equal(store_delete(base, "node/here", TDM__VERSION_ANY), TDM_OK);
}

/* A daemon that was connected to another server a moment ago takes no name here. */
static void generation_counts_only_at_the_server_where_it_began(void **state)
{
    const struct tdm__store_renewal renewal = {
        .key = "node/here", .lease_ms = 1000, .grace_ms = 100};
    struct store_fixture *base = *state;
    struct tdm__store_write writes[] = {
        {.kind = TDM__STORE_CHECK_GENERATION, .key = "name/one", .version = 1},
        {.kind = TDM__STORE_PUT, .key = "name/one", .version = TDM__VERSION_ANY}};

    assert_int_equal(store_put(base, "node/here", "", TDM__VERSION_NONE, 1000), TDM_OK);
    writes[0].version = store_renew(base, &renewal).renewed.generation;
    assert_int_equal(store_commit(base, writes, 2), TDM_OK);
    operator_says("HSET tdm:{test}:clock server another");
    assert_int_equal(store_commit(base, writes, 2), TDM_E_AGAIN);
    operator_says("DEL tdm:{test}:clock");
    assert_int_equal(store_commit(base, writes, 2), TDM_E_AGAIN);
    assert_int_equal(store_delete(base, "name/one", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_delete(base, "node/here", TDM__VERSION_ANY), TDM_OK);
}

static void leases_are_renewed_when_the_server_has_no_memory(void **state)
{
    const struct tdm__store_renewal renewal = {
        .key = "node/full", .lease_ms = 60000, .grace_ms = 100};
    struct store_fixture *base = *state;

    assert_int_equal(store_put(base, "node/full", "", TDM__VERSION_NONE, 60000), TDM_OK);
    operator_says("CONFIG SET maxmemory 1");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(store_renew(base, &renewal).status, TDM_OK);
    }
    assert_int_equal(store_put(base, "full", "x", TDM__VERSION_ANY, 0), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "OOM"));
    operator_says("CONFIG SET maxmemory 0");
    assert_int_equal(store_delete(base, "node/full", TDM__VERSION_ANY), TDM_OK);
}

/* A server without its replicas refuses writes, as it does with a full disk or without memory. */
static void reads_go_on_while_the_server_takes_no_writes(void **state)
{
    static const struct tdm__store_renewal renewal = {
        .key = "node/refused", .lease_ms = 1000, .grace_ms = 100};
    struct store_fixture *base = *state;

    assert_int_equal(store_put(base, "refused/1", "x", TDM__VERSION_ANY, 0), TDM_OK);
    assert_int_equal(store_put(base, "node/refused", "", TDM__VERSION_ANY, 1000), TDM_OK);
    operator_says("CONFIG SET min-replicas-to-write 1");
    store_run_for(base, 30);
    assert_int_equal(store_put(base, "refused/3", "x", TDM__VERSION_ANY, 0), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "NOREPLICAS"));
    assert_int_equal(store_read(base, "refused/*").count, 1);
    assert_int_equal(store_read(base, "refused/1").count, 1);
    operator_says("CONFIG SET min-replicas-to-write 0 maxmemory 1");
    assert_int_equal(store_put(base, "refused/3", "x", TDM__VERSION_ANY, 0), TDM_E_STORE);
    assert_int_equal(store_read(base, "refused/*").count, 1);
    /* The renewal of a lease succeeds without memory. */
    assert_int_equal(store_renew(base, &renewal).status, TDM_OK);
    operator_says("CONFIG SET maxmemory 0");
    assert_int_equal(store_delete(base, "node/refused", TDM__VERSION_ANY), TDM_OK);
    assert_int_equal(store_put(base, "refused/3", "x", TDM__VERSION_ANY, 0), TDM_OK);
}

/* A caller may retry a refused operation immediately. The delayed error keeps it from a busy loop.
 */
static void refused_operations_fail_after_a_delay(void **state)
{
    struct store_fixture *base = *state;
    int64_t deadline_ms = tdm__deadline_after(500);
    uint32_t attempts = 0;

    operator_says("CONFIG SET min-replicas-to-write 1");
    while (tdm__deadline_remaining_ms(deadline_ms) > 0) {
        assert_int_equal(store_put(base, "refused/again", "", TDM__VERSION_ANY, 0), TDM_E_STORE);
        attempts++;
    }
    operator_says("CONFIG SET min-replicas-to-write 0");
    assert_in_range(attempts, 1, 20);
}

/* ---- watches ---------------------------------------------------------------------------- */

/* Counts for the whole test, because watchers remain until the store is closed. */
static uint32_t resyncs;

static void on_changed(void *arg, const char *key)
{
    (void)arg;
    if (strcmp(key, "resync/") == 0) {
        resyncs++;
    }
}

static bool was_resynced(void *arg)
{
    (void)arg;
    return resyncs > 0;
}

static void watch_reports_its_prefix_after_a_lost_subscription(void **state)
{
    struct store_fixture *base = *state;

    assert_int_equal(base->store->ops->watch(base->store, "resync/", on_changed, NULL), TDM_OK);
    assert_int_equal(store_put(base, "resync/a", "", TDM__VERSION_ANY, 0), TDM_OK);
    assert_int_equal(resyncs, 0);
    operator_says("CLIENT KILL TYPE pubsub");
    store_run_until(base, was_resynced, NULL);
}

/* ---- opening ---------------------------------------------------------------------------- */

static void password_opens_and_a_wrong_one_does_not(void **state)
{
    struct store_fixture *base = *state;
    struct tdm__store *store;
    uint16_t port = tcp_sockets_free_port();
    char text[128];

    (void)snprintf(text, sizeof(text), "CONFIG SET bind 127.0.0.1 port %u", port);
    operator_says(text);
    operator_says("ACL SETUSER node on >p@ss ~tdm:{other}:* &tdm:{other}:* +@all");
    (void)snprintf(text, sizeof(text), "redis://node:p%%40ss@127.0.0.1:%u", port);
    assert_int_equal(tdm__store_redis_open(base->loop, text, "other", 5000, &store), TDM_OK);
    assert_true(tcp_sockets_check(true) > 0);
    store->ops->close(store);
    (void)snprintf(text, sizeof(text), "redis://node:wrong@127.0.0.1:%u", port);
    assert_int_equal(tdm__store_redis_open(base->loop, text, "other", 200, &store), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "WRONGPASS"));
    assert_null(strstr(tdm_error_detail(), "wrong@"));
    operator_says("CONFIG SET port 0");
}

static void no_server_is_a_failure_in_time(void **state)
{
    struct store_fixture *base = *state;
    struct tdm__store *store;
    int64_t started_ms = tdm__clock_ms();

    assert_int_equal(
        tdm__store_redis_open(base->loop, "unix:///tmp/no/socket", "test", 100, &store),
        TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "/tmp/no/socket"));
    assert_true(tdm__clock_ms() - started_ms < 2000);
    assert_int_equal(tdm__store_redis_open(base->loop, "unix:///tmp/no/socket", "a{b", 100, &store),
                     TDM_E_INVAL);
    assert_int_equal(tdm__store_redis_open(base->loop, "rediss://host", "test", 100, &store),
                     TDM_E_UNSUPPORTED);
}

static void store_that_closes_replies_to_what_was_sent(void **state)
{
    struct store_fixture *base = *state;
    struct store_reply answer = {.ended = false};
    const char *pattern = "*";
    struct tdm__store *store;

    assert_int_equal(tdm__store_redis_open(base->loop, tdm__redis_embedded_url(world.server),
                                           "closing", 5000, &store),
                     TDM_OK);
    store->ops->read(store, &pattern, 1, TDM__NEVER, store_on_read, &answer);
    store->ops->close(store);
    assert_true(answer.ended);
    assert_int_equal(answer.status, TDM_E_STORE);
}

static void store_that_closes_replies_to_what_is_asked_then(void **state)
{
    struct store_fixture *base = *state;
    struct tdm__store *store;

    assert_int_equal(tdm__store_redis_open(base->loop, tdm__redis_embedded_url(world.server),
                                           "closing", 5000, &store),
                     TDM_OK);
    store_expect_replies_on_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_connection_is_made_again),
        cmocka_unit_test(each_new_connection_is_reported),
        cmocka_unit_test(no_outcome_is_lost_while_connections_are_killed),
        cmocka_unit_test(repeated_commit_happens_once_and_is_replied_to_alike),
        cmocka_unit_test(commit_repeated_after_two_minutes_happens_once),
        cmocka_unit_test(settled_commit_is_refused),
        cmocka_unit_test(outcomes_go_with_the_record_of_their_node),
        cmocka_unit_test(store_commits_again_after_its_outcomes_went),
        cmocka_unit_test(killed_server_is_restarted_with_its_data),
        cmocka_unit_test(server_that_stands_still_is_a_failure_at_the_deadline),
        cmocka_unit_test(library_that_was_flushed_is_loaded_again),
        cmocka_unit_test(foreign_record_fails_with_the_servers_message),
        cmocka_unit_test(outage_advances_the_kept_clock_by_one_step_in_all),
        cmocka_unit_test(record_with_a_lease_has_no_time_to_live),
        cmocka_unit_test(lease_begins_after_the_clock_has_advanced),
        cmocka_unit_test(another_server_begins_a_generation),
        cmocka_unit_test(takeover_waits_for_the_first_renewal_at_another_server),
        cmocka_unit_test(generation_counts_only_at_the_server_where_it_began),
        cmocka_unit_test(leases_are_renewed_when_the_server_has_no_memory),
        cmocka_unit_test(reads_go_on_while_the_server_takes_no_writes),
        cmocka_unit_test(refused_operations_fail_after_a_delay),
        cmocka_unit_test(watch_reports_its_prefix_after_a_lost_subscription),
        cmocka_unit_test(password_opens_and_a_wrong_one_does_not),
        cmocka_unit_test(no_server_is_a_failure_in_time),
        cmocka_unit_test(store_that_closes_replies_to_what_was_sent),
        cmocka_unit_test(store_that_closes_replies_to_what_is_asked_then),
    };

    return store_suite_run(open_world, close_world) +
           store_takeover_suite_run(open_world, close_world) +
           cmocka_run_group_tests_name("redis", tests, open_world, close_world);
}
