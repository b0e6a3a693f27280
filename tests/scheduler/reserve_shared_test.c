/* reserve_shared_test.c - requests that are made at the same time share commits, with the results
 * that they have one after the other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "scheduler/records.h"
#include "scheduler/retrying_txn.h"
#include "tests/support/reserve_fixture.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ACTORS = 40, TEST_TIMEOUT_MS = 10000, ROUNDS = 200, NODES = 5, NAMES = 4, GPUS = 8 };

static struct reserve_fixture world;
static uint32_t commits_count;
static uint32_t rivals_count;    /* Commits before which another process writes the same node. */
static uint32_t nodes_count_max; /* Largest number of nodes of whose resources a commit took. */
static const struct tdm__store_ops *inner_ops;
static struct tdm__store_ops counting_ops;

/* A request of a test, and its outcome. */
struct asked {
    struct tdm__actor_request request;
    struct tdm__actor_record held; /* What it holds, once it has been placed. */
    bool is_placed;
    bool has_ended;
    tdm_status status;
};

static struct asked asked[ACTORS];

static void ignore_commit(void *arg, tdm_status status,
                          const struct tdm__store_committed *committed)
{
    (void)arg;
    (void)committed;
    assert_int_equal(status, TDM_OK);
}

/* Lets another process write the record, without a change of what it says. */
static void write_first(struct tdm__store *store, const struct tdm__store_write *write)
{
    struct tdm__store_write same = *write;

    same.version = TDM__VERSION_ANY;
    inner_ops->commit(store, &same, 1, tdm__deadline_after(TEST_TIMEOUT_MS), ignore_commit, NULL);
}

static void count_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                         uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                         void *arg)
{
    uint32_t nodes_count = 0;

    for (uint32_t i = 0; i < writes_count; i++) {
        if (writes[i].kind == TDM__STORE_PUT && strncmp(writes[i].key, "free/", 5) == 0) {
            nodes_count++;
            if (nodes_count == 1 && rivals_count > 0) {
                rivals_count--;
                write_first(store, &writes[i]);
            }
        }
    }
    nodes_count_max = nodes_count > nodes_count_max ? nodes_count : nodes_count_max;
    commits_count++;
    inner_ops->commit(store, writes, writes_count, deadline_ms, fn, arg);
}

static int open_world(void **state)
{
    (void)state;
    if (reserve_fixture_open(&world) != 0) {
        return 1;
    }
    inner_ops = world.store->ops;
    counting_ops = *inner_ops;
    counting_ops.commit = count_commit;
    world.store->ops = &counting_ops;
    memset(asked, 0, sizeof(asked));
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    reserve_fixture_close(&world);
    return 0;
}

static void on_placed(void *arg, tdm_status status, const char *detail,
                      const struct tdm__actor_placement *reserved)
{
    struct asked *one = arg;

    (void)detail;
    one->has_ended = true;
    one->status = status;
    one->is_placed = status == TDM_OK;
    if (status == TDM_OK) {
        one->held = (struct tdm__actor_record){
            .actor = one->request.actor, .node = reserved->node.id, .grant = reserved->grant};
        (void)snprintf(one->held.name_key, sizeof(one->held.name_key), "%s", one->request.name_key);
    }
}

static void on_released(void *arg, tdm_status status, const char *detail)
{
    struct asked *one = arg;

    (void)detail;
    one->has_ended = true;
    one->status = status;
    one->is_placed = false;
}

/* Starts to place an actor. Waits for nothing. */
static void place(struct asked *one, double gpus, const char *name)
{
    one->request = reserve_fixture_wish(gpus, name);
    one->has_ended = false;
    assert_int_equal(tdm__reserve_actor(world.store, &one->request,
                                        tdm__deadline_after(TEST_TIMEOUT_MS), on_placed, one),
                     TDM_OK);
}

/* Starts to release an actor. Waits for nothing. */
static void release(struct asked *one)
{
    one->has_ended = false;
    assert_int_equal(tdm__release_actor(world.store, &one->held,
                                        tdm__deadline_after(TEST_TIMEOUT_MS), on_released, one),
                     TDM_OK);
}

static bool all_have_ended(void *arg)
{
    (void)arg;
    for (int i = 0; i < ACTORS; i++) {
        if (!asked[i].has_ended) {
            return false;
        }
    }
    return true;
}

static void finish(void)
{
    assert_int_equal(
        tdm__loop_run(world.loop, all_have_ended, NULL, tdm__deadline_after(TEST_TIMEOUT_MS)),
        TDM_OK);
}

/* ---- the tests -------------------------------------------------------------------------- */

/* Adds NODES nodes with GPUS GPUs each. */
static void join_nodes(struct tdm__id nodes[NODES])
{
    for (int i = 0; i < NODES; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "node%d", i);
        nodes[i] = reserve_fixture_join(&world, name, GPUS);
    }
}

/* Fails if two actors hold one GPU. Each holds one. */
static void check_different_gpus(const struct tdm__id nodes[NODES])
{
    bool is_taken[NODES][GPUS] = {{false}};

    for (int i = 0; i < ACTORS; i++) {
        const struct tdm__actor_record *held = &asked[i].held;
        int node = 0;

        assert_int_equal(asked[i].status, TDM_OK);
        assert_int_equal(held->grant.gpus_count, 1);
        while (!tdm__id_equal(&held->node, &nodes[node])) {
            node++;
        }
        assert_false(is_taken[node][held->grant.gpu_indices[0]]);
        is_taken[node][held->grant.gpu_indices[0]] = true;
    }
}

static void requests_share_commits_and_get_different_gpus(void **state)
{
    /* The first one starts alone, because nothing waits yet. */
    const uint32_t shared_count =
        1 + (ACTORS - 1 + TDM__SHARED_TXNS_MAX - 1) / TDM__SHARED_TXNS_MAX;
    struct tdm__id nodes[NODES];

    (void)state;
    join_nodes(nodes);
    commits_count = 0;
    for (int i = 0; i < ACTORS; i++) {
        place(&asked[i], 1, "");
    }
    finish();
    assert_int_equal(commits_count, shared_count);
    check_different_gpus(nodes);
    commits_count = 0;
    for (int i = 0; i < ACTORS; i++) {
        release(&asked[i]);
    }
    finish();
    assert_int_equal(commits_count, shared_count);
    for (int i = 0; i < ACTORS; i++) { /* All is free again. */
        place(&asked[i], 1, "");
    }
    finish();
    check_different_gpus(nodes);
}

static void one_of_many_gets_the_name_and_others_are_not_disturbed(void **state)
{
    int holders = 0;

    (void)state;
    (void)reserve_fixture_join(&world, "one", GPUS);
    for (int i = 0; i < ACTORS; i++) {
        place(&asked[i], 0.1, i % 2 == 0 ? "name/lab/wanted" : "");
    }
    finish();
    for (int i = 0; i < ACTORS; i++) {
        assert_int_equal(asked[i].status, i % 2 == 0 && holders > 0 ? TDM_E_EXISTS : TDM_OK);
        holders += i % 2 == 0 && asked[i].status == TDM_OK;
    }
    assert_int_equal(holders, 1);
}

static void as_many_are_placed_as_fit(void **state)
{
    (void)state;
    (void)reserve_fixture_join(&world, "one", GPUS);
    for (int i = 0; i < ACTORS; i++) {
        place(&asked[i], 1, "");
    }
    finish();
    for (int i = 0; i < ACTORS; i++) {
        assert_int_equal(asked[i].status, i < GPUS ? TDM_OK : TDM_E_AGAIN);
    }
}

/* ---- random requests --------------------------------------------------------------------- */

/* Fails unless each node's free GPUs are those that no placed actor holds. */
static void check_free_gpus(const struct tdm__id *nodes)
{
    struct asked probe;

    for (int i = 0; i < NODES; i++) {
        double free_gpus = GPUS;

        for (int j = 0; j < ACTORS; j++) {
            free_gpus -= asked[j].is_placed && tdm__id_equal(&asked[j].held.node, &nodes[i]);
        }
        memset(&probe, 0, sizeof(probe));
        probe.request = reserve_fixture_wish(free_gpus, "");
        probe.request.placement.scheduling = TDM_SCHEDULE_NODE;
        probe.request.placement.node = nodes[i];
        assert_int_equal(reserve_fixture_take(&world, &probe.request), TDM_OK);
        probe.held = reserve_fixture_record(&world, &probe.request);
        if (free_gpus < GPUS) {
            struct tdm__actor_request more = reserve_fixture_wish(1, "");

            more.placement.scheduling = TDM_SCHEDULE_NODE;
            more.placement.node = nodes[i];
            assert_int_equal(reserve_fixture_take(&world, &more), TDM_E_AGAIN);
        }
        assert_int_equal(reserve_fixture_give_back(&world, &probe.held), TDM_OK);
    }
}

/* Fails if two placed actors have one name. */
static void check_names(void)
{
    for (int i = 0; i < ACTORS; i++) {
        for (int j = 0; j < i; j++) {
            assert_false(asked[i].is_placed && asked[j].is_placed &&
                         asked[i].held.name_key[0] != '\0' &&
                         strcmp(asked[i].held.name_key, asked[j].held.name_key) == 0);
        }
    }
}

/* Places or releases a random part of the actors, all at once. */
static void run_round(struct test_random *random)
{
    for (int i = 0; i < ACTORS; i++) {
        uint64_t number = test_random_next(random);
        char name[32] = "";

        if (number % 3 == 0) {
            continue;
        }
        if (asked[i].is_placed) {
            release(&asked[i]);
            continue;
        }
        if (number % 2 == 0) {
            (void)snprintf(name, sizeof(name), "name/lab/%u", (unsigned)(number / 8 % NAMES));
        }
        place(&asked[i], 1, name);
    }
    finish();
}

static void check_statuses(void)
{
    for (int i = 0; i < ACTORS; i++) {
        assert_true(asked[i].status == TDM_OK || asked[i].status == TDM_E_AGAIN ||
                    asked[i].status == TDM_E_EXISTS);
    }
}

static void random_requests_leave_exact_resources_and_unique_names(void **state)
{
    struct test_random random = test_random_init("requests that share commits", 19);
    struct tdm__id nodes[NODES];

    (void)state;
    join_nodes(nodes);
    for (int i = 0; i < ACTORS; i++) {
        asked[i].has_ended = true;
    }
    for (int i = 0; i < ROUNDS; i++) {
        run_round(&random);
        check_statuses();
        check_names();
        if (i % 10 == 0) {
            check_free_gpus(nodes);
        }
    }
}

/* "Another process" here writes the same bytes, so that what it took is free again at once. */
static void actors_stay_together_while_others_place_too(void **state)
{
    struct tdm__id nodes[NODES];

    (void)state;
    join_nodes(nodes);
    rivals_count = 8;
    for (int i = 0; i < ACTORS; i++) {
        place(&asked[i], 0.1, "");
    }
    finish();
    assert_int_equal(rivals_count, 0);
    for (int i = 0; i < ACTORS; i++) {
        assert_int_equal(asked[i].status, TDM_OK);
        release(&asked[i]);
    }
    finish();
    commits_count = 0;
    nodes_count_max = 0;
    for (int i = 0; i < ACTORS; i++) {
        place(&asked[i], 0.1, "");
    }
    finish();
    assert_int_equal(nodes_count_max, 1);
    assert_in_range(commits_count, 1, 2 + ACTORS / TDM__SHARED_TXNS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_share_commits_and_get_different_gpus, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(one_of_many_gets_the_name_and_others_are_not_disturbed,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(as_many_are_placed_as_fit, open_world, close_world),
        cmocka_unit_test_setup_teardown(actors_stay_together_while_others_place_too, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(random_requests_leave_exact_resources_and_unique_names,
                                        open_world, close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
