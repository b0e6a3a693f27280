/* replicated_test.c - names, leases and takeovers count only when replicas have them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/replicated.h"

#include "runtime/clock.h"
#include "runtime/redis/store.h"
#include "tests/support/redis_fixture.h"
#include "tests/support/reserve_fixture.h"
#include "tests/support/tcp_sockets.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct redis_fixture master;
static struct redis_fixture replica;
static struct store_fixture replicated; /* A store in the master that waits for one replica. */

/* Runs one command on a server and returns whether the reply contains `expected`. */
static bool operator_says(const struct redis_fixture *server, const char *command,
                          const char *expected)
{
    redisContext *context =
        redisConnectUnix(tdm__redis_embedded_url(server->server) + strlen("unix://"));
    redisReply *reply;
    bool has_expected;

    assert_non_null(context);
    assert_int_equal(context->err, 0);
    reply = redisCommand(context, command);
    assert_non_null(reply);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    has_expected = reply->str != NULL && strstr(reply->str, expected) != NULL;
    freeReplyObject(reply);
    redisFree(context);
    return has_expected;
}

static int open_servers(void **state)
{
    struct tdm__store *inner;

    (void)state;
    if (redis_fixture_open(&master) != 0 || redis_fixture_open(&replica) != 0 ||
        tdm__store_redis_open(master.base.loop, tdm__redis_embedded_url(master.server), "test",
                              10000, &inner) != TDM_OK) {
        return 1;
    }
    replicated.loop = master.base.loop;
    return tdm__store_replicated_open(inner, 1, &replicated.store) != TDM_OK;
}

static int close_servers(void **state)
{
    (void)state;
    replicated.store->ops->close(replicated.store);
    redis_fixture_close(&replica);
    redis_fixture_close(&master);
    return 0;
}

/* Makes the second server a replica of the first. */
static void attach_replica(void)
{
    char text[128];
    uint16_t port = tcp_sockets_free_port();

    (void)snprintf(text, sizeof(text),
                   "CONFIG SET bind 127.0.0.1 port %u repl-diskless-sync-delay 0", port);
    assert_true(operator_says(&master, text, "OK"));
    (void)snprintf(text, sizeof(text), "REPLICAOF 127.0.0.1 %u", port);
    assert_true(operator_says(&replica, text, "OK"));
    for (int i = 0; !operator_says(&replica, "INFO replication", "master_link_status:up"); i++) {
        assert_true(i < 1000);
        store_run_for(&master.base, 10);
    }
}

static void name_is_refused_without_the_replicas(void **state)
{
    (void)state;
    assert_int_equal(store_put(&replicated, "name/mine/first", "", TDM__VERSION_ANY, 0),
                     TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "0 of the 1 replicas that --redis-wait-replicas"));
    assert_int_equal(store_put(&replicated, "actor/1", "", TDM__VERSION_ANY, 0), TDM_OK);
    assert_int_equal(store_read(&replicated, "actor/1").count, 1);
}

static void name_is_granted_when_a_replica_has_it(void **state)
{
    (void)state;
    attach_replica();
    assert_int_equal(store_put(&replicated, "name/mine/second", "x", TDM__VERSION_NONE, 0), TDM_OK);
    assert_true(operator_says(&replica, "HGET tdm:{test}:r:name/mine/second d", "x"));
    assert_int_equal(store_put(&replicated, "name/mine/second", "", TDM__VERSION_NONE, 0),
                     TDM_E_CONFLICT);
}

static struct renewal_reply renew(void)
{
    const struct tdm__store_renewal renewal = {
        .key = "node/a", .lease_ms = 60000, .grace_ms = 2000};

    return store_renew(&replicated, &renewal);
}

static void renewal_counts_when_a_replica_has_it(void **state)
{
    struct renewal_reply reply;

    (void)state;
    assert_int_equal(store_put(&replicated, "node/a", "", TDM__VERSION_ANY, 60000), TDM_OK);
    reply = renew();
    assert_int_equal(reply.status, TDM_OK);
    assert_int_equal(reply.members_count, 1);
    assert_string_equal(reply.members[0], "node/a");
}

/* As when the old master is cut off from the replica that has taken its place. */
static void old_master_grants_no_name_any_more(void **state)
{
    (void)state;
    assert_true(operator_says(&replica, "REPLICAOF NO ONE", "OK"));
    assert_int_equal(store_put(&replicated, "name/mine/third", "", TDM__VERSION_ANY, 0),
                     TDM_E_STORE);
    assert_int_equal(renew().status, TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "replicas"));
}

/* ---- takeovers ---------------------------------------------------------------------------- */

/* A name that an actor of a lost node has, and a node that takes it over by the replicated store.
 * Another store without replicas prepares this. */
struct takeover {
    struct reserve_fixture plain;
    struct reserve_fixture fixture; /* The same records, by the replicated store. */
    struct tdm__id taker;
    struct tdm__id lost;
    struct tdm__actor_request request; /* The actor that the taker places. */
};

/* Renews the lease of the node until members may be taken over. */
static void await_end_of_hold(const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_renewal renewal = {
        .key = tdm__store_key("node", node, key), .lease_ms = 1, .grace_ms = 1};

    while (store_renew(&master.base, &renewal).renewed.held_ms > 0) {
        store_run_for(&master.base, 5);
    }
}

static void takeover_prepare(struct takeover *takeover)
{
    *takeover = (struct takeover){
        .plain = {.loop = master.base.loop, .store = master.base.store},
        .fixture = {.loop = master.base.loop, .store = replicated.store, .wait_ms = 1500}};
    takeover->taker = reserve_fixture_join(&takeover->plain, "taker", 0);
    takeover->lost = reserve_fixture_join(&takeover->plain, "lost", 0);
    takeover->request = reserve_fixture_wish(0, "");
    takeover->request.placement.owner_node = takeover->taker;
    await_end_of_hold(&takeover->taker);
}

static void takeover_clean_up(struct takeover *takeover)
{
    reserve_fixture_lose(&takeover->plain, &takeover->taker);
    reserve_fixture_lose(&takeover->plain, &takeover->lost);
}

/* An actor that the taker has created runs on the other node, which is lost. */
static void lose_node_of_an_actor(struct takeover *takeover)
{
    takeover->request.placement.scheduling = TDM_SCHEDULE_NODE;
    takeover->request.placement.node = takeover->lost;
    takeover->request.placements = 1;
    assert_int_equal(reserve_fixture_take(&takeover->plain, &takeover->request), TDM_OK);
    reserve_fixture_lose(&takeover->plain, &takeover->lost);
    takeover->request.placement.scheduling = TDM_SCHEDULE_DEFAULT;
    takeover->request.placements = 2;
}

/* The other node is lost with an actor whose name the taker's actor wants. */
static void lose_holder_of_a_name(struct takeover *takeover, const char *name)
{
    struct tdm__actor_request holder = reserve_fixture_wish(0, name);

    holder.placement.owner_node = takeover->lost;
    holder.placement.scheduling = TDM_SCHEDULE_NODE;
    holder.placement.node = takeover->lost;
    assert_int_equal(reserve_fixture_take(&takeover->plain, &holder), TDM_OK);
    reserve_fixture_lose(&takeover->plain, &takeover->lost);
    (void)snprintf(takeover->request.name_key, sizeof(takeover->request.name_key), "%s", name);
}

/* Each transaction is repeated until its deadline, and finds in the store what its first commit has
 * written there. */
static void assert_is_refused(struct takeover *takeover)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_take(&takeover->fixture, &takeover->request), TDM_E_STORE);
        assert_non_null(strstr(takeover->fixture.detail, "0 of the 1 replicas"));
    }
}

static void name_of_a_lost_node_is_not_taken_over_without_the_replicas(void **state)
{
    struct takeover takeover;

    (void)state;
    takeover_prepare(&takeover);
    lose_holder_of_a_name(&takeover, "name/mine/of_a_lost_node");
    assert_is_refused(&takeover);
    takeover_clean_up(&takeover);
}

static void actor_of_a_lost_node_is_not_restarted_without_the_replicas(void **state)
{
    struct takeover takeover;

    (void)state;
    takeover_prepare(&takeover);
    lose_node_of_an_actor(&takeover);
    assert_is_refused(&takeover);
    takeover_clean_up(&takeover);
}

/* A node that writes its records again takes the name of its actor from a lost node. */
static void name_is_not_written_again_without_the_replicas(void **state)
{
    static const struct tdm__store_view nothing;
    struct takeover takeover;
    struct tdm__actor_record actor;

    (void)state;
    takeover_prepare(&takeover);
    assert_int_equal(reserve_fixture_take(&takeover.plain, &takeover.request), TDM_OK);
    actor = reserve_fixture_record(&takeover.plain, &takeover.request);
    lose_holder_of_a_name(&takeover, "name/mine/written_again");
    (void)snprintf(actor.name_key, sizeof(actor.name_key), "%s", takeover.request.name_key);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_again_in(&takeover.fixture, &actor, &nothing),
                         TDM_E_STORE);
    }
    takeover_clean_up(&takeover);
}

static void name_of_a_group_is_not_granted_without_the_replicas(void **state)
{
    struct tdm__resources bundle = {.cpu = 0};
    struct tdm__placement_group_request request = {
        .bundles = &bundle, .bundles_count = 1, .name_space = "mine", .name = "group"};
    struct takeover takeover;

    (void)state;
    takeover_prepare(&takeover);
    request.owner_node = takeover.taker;
    assert_int_equal(tdm__id_generate(&request.id), TDM_OK);
    assert_int_equal(tdm__resources_add(&bundle, "CPU", 1), TDM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve_fixture_group_by(&takeover.fixture, &request), TDM_E_STORE);
        assert_non_null(strstr(takeover.fixture.detail, "0 of the 1 replicas"));
    }
    takeover_clean_up(&takeover);
}

/* The replica is connected, but does not confirm anything. */
static void takeover_waits_for_a_replica_that_stands_still(void **state)
{
    struct takeover takeover;
    pid_t pid = tdm__redis_embedded_pid(replica.server);

    (void)state;
    takeover_prepare(&takeover);
    lose_holder_of_a_name(&takeover, "name/mine/of_another");
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_is_refused(&takeover);
    assert_int_equal(kill(pid, SIGCONT), 0);
    takeover.fixture.wait_ms = 10000;
    assert_int_equal(reserve_fixture_take(&takeover.fixture, &takeover.request), TDM_OK);
    assert_true(operator_says(&replica, "HGET tdm:{test}:r:name/mine/of_another d", ""));
    takeover_clean_up(&takeover);
}

static void names_and_leases_need_replicas(void **state)
{
    const struct tdm__store_write writes[] = {
        {.kind = TDM__STORE_PUT, .key = "actor/1"},
        {.kind = TDM__STORE_DELETE, .key = "name/mine/first"},
        {.kind = TDM__STORE_CHECK_VERSION, .key = "name/mine/first"},
        {.kind = TDM__STORE_PUT, .key = "group_name/mine/first"},
        {.kind = TDM__STORE_CHECK_LOST, .key = "node/1"},
        {.kind = TDM__STORE_CHECK_VERSION, .key = "actor/1", .needs_replicas = true},
    };

    (void)state;
    assert_false(tdm__commit_needs_replicas(writes, 3));
    assert_true(tdm__commit_needs_replicas(writes, 4));
    assert_true(tdm__commit_needs_replicas(writes + 4, 1));
    assert_true(tdm__commit_needs_replicas(writes + 5, 1));
}

static void store_that_closes_replies(void **state)
{
    struct store_reply reply = {.ended = false};
    const struct tdm__store_write write = {
        .kind = TDM__STORE_PUT, .key = "name/mine/closing", .version = TDM__VERSION_ANY};

    replicated.store->ops->commit(replicated.store, &write, 1, tdm__deadline_after(10000),
                                  store_on_commit, &reply);
    (void)close_servers(state);
    assert_true(reply.ended);
    assert_int_equal(reply.status, TDM_E_STORE);
    assert_int_equal(open_servers(state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_leases_need_replicas),
        cmocka_unit_test(name_is_refused_without_the_replicas),
        cmocka_unit_test(name_of_a_lost_node_is_not_taken_over_without_the_replicas),
        cmocka_unit_test(actor_of_a_lost_node_is_not_restarted_without_the_replicas),
        cmocka_unit_test(name_is_not_written_again_without_the_replicas),
        cmocka_unit_test(name_of_a_group_is_not_granted_without_the_replicas),
        cmocka_unit_test(name_is_granted_when_a_replica_has_it),
        cmocka_unit_test(takeover_waits_for_a_replica_that_stands_still),
        cmocka_unit_test(renewal_counts_when_a_replica_has_it),
        cmocka_unit_test(old_master_grants_no_name_any_more),
        cmocka_unit_test(store_that_closes_replies),
    };

    return cmocka_run_group_tests(tests, open_servers, close_servers);
}
