/* killed_supervisors_test.c - nodes that die at any moment, with actors on them, leave no record.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/redis/store.h"
#include "runtime/store/txn.h"
#include "scheduler/records.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/test_random.h"
#include "tests/support/two_nodes.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum {
    ROUNDS = 1, /* TANDEM_TEST_ROUNDS gives another number */
    NODES = 4,
    ACTORS = 6, /* on each */
    MOMENT_MS_MAX = 150,
    SAID_BYTES = 1024,
    GONE_MS = 2 * (TDM__NODE_LEASE_MS_MIN + TDM__NODE_GRACE_MS)
};

static struct two_nodes cluster;
static struct test_node nodes[NODES];
static tdm_runtime *runtime;     /* Runtime of a driver on the first node. */
static struct store_fixture own; /* Directory of the daemons' logs. */
static struct test_random chance;

/* ---- what is in the store --------------------------------------------------------------- */

/* False, and their first keys told if they are to be, while there are such records. */
static bool is_empty(const char *pattern, bool tell)
{
    struct store_reply reply = store_read(&own, pattern);

    assert_int_equal(reply.status, TDM_OK);
    for (uint32_t i = 0; tell && i < reply.count && i < 16; i++) {
        (void)fprintf(stderr, "left: %s\n", reply.records[i].key);
    }
    return reply.count == 0;
}

static void expect_no_actors(void)
{
    int64_t deadline_ms = tdm__deadline_after(GONE_MS);

    while (tdm__deadline_remaining_ms(deadline_ms) > 0 &&
           !(is_empty("actor/*", false) && is_empty("name/*", false))) {
        (void)poll(NULL, 0, 100);
    }
    assert_true(is_empty("actor/*", true) && is_empty("name/*", true));
}

static bool is_there(const char *key)
{
    return store_read(&own, key).count == 1;
}

/* ---- killed supervisors --------------------------------------------------------------------- */

/* Some with a name, some restarted, some with a child, on any node. */
static tdm_actor *create_on(uint32_t node, uint32_t index)
{
    struct tdm_actor_options options = {.max_restarts = index % 3 == 0 ? -1 : 0};
    tdm_actor *actor = NULL;
    tdm_ref *child;
    char label[32];
    char name[32];

    (void)snprintf(label, sizeof(label), "side=n%u", node);
    (void)snprintf(name, sizeof(name), "actor-%u-%u", node, index);
    options.labels[0] = label;
    options.name = index % 2 == 0 ? name : NULL;
    assert_int_equal(tdm_actor_create(runtime, "tester", &options, &actor, ""), TDM_OK);
    if (index % 3 == 1) {
        (void)snprintf(name, sizeof(name), "child-%u-%u", node, index);
        assert_int_equal(tdm_actor_call(actor, "breed", &child, "s", name), TDM_OK);
        tdm_ref_release(child);
    }
    return actor;
}

static void kill_supervisor(struct test_node *node)
{
    assert_int_equal(kill(node->supervisor, SIGKILL), 0);
    (void)waitpid(node->supervisor, NULL, 0);
    node->supervisor = 0;
}

static void play_a_round(void)
{
    tdm_actor *actors[NODES * ACTORS];
    char said[SAID_BYTES];
    char name[8];

    for (uint32_t i = 0; i < NODES; i++) {
        (void)snprintf(name, sizeof(name), "n%u", i);
        assert_int_equal(test_node_start(&cluster, name, &nodes[i], said), 0);
    }
    for (uint32_t i = 0; i < NODES; i++) {
        for (uint32_t k = 0; k < ACTORS; k++) {
            actors[i * ACTORS + k] = create_on(i, k);
        }
        (void)poll(NULL, 0, (int)test_random_below(&chance, MOMENT_MS_MAX));
        kill_supervisor(&nodes[i]);
    }
    /* Some calls wait for their node to return. */
    for (uint32_t i = 0; i < NODES * ACTORS; i++) {
        assert_int_equal(tdm_actor_kill(actors[i], TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actors[i]);
    }
    expect_no_actors();
    tdm__directory_remove_abandoned(); /* The next daemon that starts here does the same. */
}

static void killed_supervisor_leaves_no_actor(void **state)
{
    const char *wanted = getenv("TANDEM_TEST_ROUNDS");
    long rounds = wanted == NULL ? ROUNDS : strtol(wanted, NULL, 10);

    (void)state;
    for (long i = 0; i < rounds; i++) {
        play_a_round();
    }
}

/* ---- a node lost as another joins ------------------------------------------------------- */

struct exchange {
    /* Record of the node that leaves; all zeros in the first round. */
    struct tdm__node_record leaves;
    struct tdm__node_record joins; /* Record of the node that joins. */
    /* Record of an actor on the node that joins; all zeros without an actor. */
    struct tdm__actor_record actor;
    bool ended;
    tdm_status status;
};

static tdm_status exchange_body(void *arg, struct tdm__txn *txn)
{
    struct exchange *exchange = arg;
    char key[TDM__STORE_KEY_BYTES];

    if (!tdm__id_is_none(&exchange->leaves.id)) {
        TDM_TRY(tdm__txn_delete(txn, tdm__store_key("node", &exchange->leaves.id, key)));
    }
    if (!tdm__id_is_none(&exchange->joins.id)) {
        TDM_TRY(tdm__node_record_put(txn, &exchange->joins));
    }
    return tdm__id_is_none(&exchange->actor.actor) ? TDM_OK
                                                   : tdm__actor_record_put(txn, &exchange->actor);
}

static void exchange_done(void *arg, tdm_status status, const char *detail)
{
    struct exchange *exchange = arg;

    (void)detail;
    exchange->ended = true;
    exchange->status = status;
}

static bool has_ended(void *arg)
{
    return ((const struct exchange *)arg)->ended;
}

static void do_exchange(struct exchange *exchange)
{
    static const char *const patterns[] = {"node/*", "actor/*"};

    exchange->ended = false;
    assert_int_equal(tdm__txn_run(own.store, NULL, patterns, 2,
                                  tdm__deadline_after(TEST_TIMEOUT_MS), exchange_body,
                                  exchange_done, exchange),
                     TDM_OK);
    store_run_until(&own, has_ended, exchange);
    assert_int_equal(exchange->status, TDM_OK);
}

/* Its lease lasts six seconds: within it, the daemons have seen the first. */
static void node_lost_as_another_joins_leaves_none_either(void **state)
{
    struct exchange exchange = {.joins = {.id = {{255, 1}}, .name = "old", .pid = 1},
                                .actor = {.actor = {{1}}, .node = {{255, 1}}}};
    char key[TDM__STORE_KEY_BYTES];
    int64_t deadline_ms;

    (void)state;
    do_exchange(&exchange);
    (void)poll(NULL, 0, 2500);
    exchange.leaves = exchange.joins;
    exchange.joins = (struct tdm__node_record){.id = {{255, 2}}, .name = "new", .pid = 1};
    exchange.actor = (struct tdm__actor_record){.actor = {{0}}};
    do_exchange(&exchange);
    (void)tdm__store_key("actor", &(struct tdm__id){{1}}, key);
    /* The time is shorter than the lease of the other node. */
    deadline_ms = tdm__deadline_after(4000);
    while (is_there(key) && tdm__deadline_remaining_ms(deadline_ms) > 0) {
        (void)poll(NULL, 0, 50);
    }
    assert_false(is_there(key));
}

static int open_own(void)
{
    own.loop = cluster.redis.base.loop;
    return tdm__store_redis_open(own.loop, tdm__redis_embedded_url(cluster.redis.server), "tandem",
                                 TEST_TIMEOUT_MS, &own.store) != TDM_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_supervisor_leaves_no_actor),
        cmocka_unit_test(node_lost_as_another_joins_leaves_none_either),
    };
    int failed = 1;

    runtime = two_nodes_join(&cluster);
    if (runtime != NULL && open_own() == 0) {
        chance = test_random_init("killed supervisors", 20261122);
        failed = cmocka_run_group_tests(tests, NULL, NULL);
        own.store->ops->close(own.store);
    }
    for (uint32_t i = 0; i < NODES; i++) {
        test_node_stop(&nodes[i]);
    }
    return failed + two_nodes_leave(&cluster, runtime);
}
