/* reserve_gang_test.c - a gang of 64 is placed against endless actors of eight daemons. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The records are in a real Redis server. Each daemon is a store of its own with its own read
 * cache, as in the processes of a cluster. Whenever an actor ends, its daemon places the next one,
 * so that all GPUs are never free at once. */
#include "runtime/clock.h"
#include "runtime/redis/store.h"
#include "runtime/store/read_cache.h"
#include "scheduler/reserve.h"
#include "scheduler/ticket.h"
#include "tests/support/redis_fixture.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    DAEMONS = 8,
    NODES = 32, /* More nodes than one commit gives a ticket to. */
    GPUS = 2,   /* GPUs of each node. */
    GANG = NODES * GPUS,
    LIFE_MS = 200,     /* Milliseconds for which an actor lives. */
    RETRY_MS = 20,     /* Milliseconds until a request that has failed is made again. */
    CONTROL_MS = 5000, /* Milliseconds in which a gang without tickets is not placed. */
    /* Longest time until the gang is placed. On a machine with free processors it is less than the
     * max(8 * LIFE_MS, 4 * TDM__TICKET_PATIENCE_MS) of scheduler/ticket.h and one life. */
    GANG_MS = 60000,
    WAIT_MS = 30000 /* Deadline of each request. */
};

/* Something that is placed, lives, is released, and is placed again. */
enum stage { WAITING, PLACING, LIVING, RELEASING };

/* An actor with one GPU, and after it the next one. */
struct single {
    struct reserve_fixture *daemon;
    struct tdm__actor_request request;
    struct tdm__actor_record held;
    enum stage stage;
    int64_t due_ms; /* Time at which it is placed or ends. */
};

/* The group of all GPUs, which one of the daemons places. */
struct gang {
    struct tdm__placement_group_request request;
    struct tdm__resources bundles[GANG];
    uint64_t number;
    bool has_tickets;
    bool is_asking;
    bool is_placed;
    int64_t begun_ms;
    int64_t due_ms;
    uint32_t tries_count;
};

static struct redis_fixture redis;
static struct reserve_fixture daemons[DAEMONS];
static struct tdm__id owner; /* Node of the gang's creator. */
static struct single singles[GANG];
static struct gang gang;
static uint32_t lives_count; /* Number of actors that were placed. */
static bool is_ending;       /* Whether no further actors are placed. */

static int daemon_open(struct reserve_fixture *daemon)
{
    *daemon = (struct reserve_fixture){.loop = redis.base.loop};
    if (tdm__store_redis_open(daemon->loop, tdm__redis_embedded_url(redis.server), "test", WAIT_MS,
                              &daemon->store) != TDM_OK) {
        return 1;
    }
    return tdm__read_cache_create(&daemon->store->read_cache) != TDM_OK;
}

static void daemon_close(struct reserve_fixture *daemon)
{
    struct tdm__read_cache *read_cache = daemon->store->read_cache;

    daemon->store->ops->close(daemon->store);
    tdm__read_cache_destroy(read_cache);
}

static int open_cluster(void **state)
{
    (void)state;
    if (redis_fixture_open(&redis) != 0) {
        return 1;
    }
    for (uint32_t i = 0; i < DAEMONS; i++) {
        if (daemon_open(&daemons[i]) != 0) {
            return 1;
        }
    }
    owner = reserve_fixture_join(&daemons[0], "owner", 0);
    for (uint32_t i = 0; i < NODES; i++) {
        (void)reserve_fixture_join(&daemons[i % DAEMONS], "node", GPUS);
    }
    for (uint32_t i = 0; i < GANG; i++) {
        /* Not all end at the same time. */
        singles[i] = (struct single){.daemon = &daemons[i % DAEMONS], .due_ms = 3 * (int64_t)i};
        singles[i].due_ms += tdm__clock_ms();
    }
    lives_count = 0;
    is_ending = false;
    return 0;
}

static int close_cluster(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < DAEMONS; i++) {
        daemon_close(&daemons[i]);
    }
    redis_fixture_close(&redis);
    return 0;
}

/* ---- actors ----------------------------------------------------------------------------- */

static void on_placed(void *arg, tdm_status status, const char *detail,
                      const struct tdm__actor_placement *reserved)
{
    struct single *single = arg;

    (void)detail;
    if (status != TDM_OK) {
        assert_int_equal(status, TDM_E_AGAIN); /* Its GPU is taken, or kept for the gang. */
        single->stage = WAITING;
        single->due_ms = tdm__clock_ms() + RETRY_MS;
        return;
    }
    single->held = (struct tdm__actor_record){
        .actor = single->request.actor, .node = reserved->node.id, .grant = reserved->grant};
    single->stage = LIVING;
    single->due_ms = tdm__clock_ms() + LIFE_MS;
    lives_count++;
}

static void on_released(void *arg, tdm_status status, const char *detail)
{
    struct single *single = arg;

    (void)detail;
    assert_int_equal(status, TDM_OK);
    single->stage = WAITING;
    single->due_ms = tdm__clock_ms();
}

static void single_continue(struct single *single, int64_t now_ms)
{
    struct tdm__store *store = single->daemon->store;

    if (single->due_ms > now_ms) {
        return;
    }
    if (single->stage == WAITING && !is_ending) {
        single->request = reserve_fixture_wish(1, "");
        single->stage = PLACING;
        assert_int_equal(tdm__reserve_actor(store, &single->request, tdm__deadline_after(WAIT_MS),
                                            on_placed, single),
                         TDM_OK);
    } else if (single->stage == LIVING) {
        single->stage = RELEASING;
        assert_int_equal(tdm__release_actor(store, &single->held, tdm__deadline_after(WAIT_MS),
                                            on_released, single),
                         TDM_OK);
    }
}

static uint32_t count_living(void)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < GANG; i++) {
        count += singles[i].stage == LIVING || singles[i].stage == RELEASING;
    }
    return count;
}

/* ---- the gang --------------------------------------------------------------------------- */

static void gang_init(bool has_tickets)
{
    gang = (struct gang){.has_tickets = has_tickets, .begun_ms = tdm__clock_ms()};
    assert_int_equal(tdm__id_generate(&gang.request.id), TDM_OK);
    for (uint32_t i = 0; i < GANG; i++) {
        assert_int_equal(tdm__resources_add(&gang.bundles[i], "GPU", 1), TDM_OK);
    }
    gang.request.bundles = gang.bundles;
    gang.request.bundles_count = GANG;
    gang.request.strategy = TDM_PACK;
    gang.request.owner_node = owner;
    gang.request.ticket_number = &gang.number;
}

static void on_gang(void *arg, tdm_status status, const char *detail,
                    const struct tdm__placement_group_record *group)
{
    (void)arg;
    (void)detail;
    (void)group;
    gang.is_asking = false;
    gang.is_placed = status == TDM_OK;
    gang.due_ms = tdm__clock_ms() + RETRY_MS;
    gang.tries_count++;
    if (status != TDM_OK) {
        assert_int_equal(status, TDM_E_AGAIN);
    }
}

static void gang_continue(int64_t now_ms)
{
    if (gang.is_asking || gang.is_placed || gang.due_ms > now_ms) {
        return;
    }
    gang.is_asking = true;
    gang.request.turn = gang.has_tickets ? tdm__ticket_turn(now_ms - gang.begun_ms) : 0;
    assert_int_equal(tdm__placement_group_reserve(daemons[0].store, &gang.request,
                                                  tdm__deadline_after(WAIT_MS), on_gang, NULL),
                     TDM_OK);
}

/* Lets all go on until the gang is placed, or for this time. */
static void run_for(int64_t time_ms)
{
    int64_t end_ms = tdm__clock_ms() + time_ms;

    while (!gang.is_placed && tdm__clock_ms() < end_ms) {
        int64_t now_ms = tdm__clock_ms();

        for (uint32_t i = 0; i < GANG; i++) {
            single_continue(&singles[i], now_ms);
        }
        gang_continue(now_ms);
        (void)tdm__loop_run(redis.base.loop, NULL, NULL, tdm__deadline_after(2));
    }
}

/* Lets actors come and go, so many that each GPU has had one, before there is a gang. */
static void start_actors(void)
{
    int64_t end_ms = tdm__clock_ms() + WAIT_MS;

    gang = (struct gang){.due_ms = INT64_MAX};
    while (lives_count <= 2 * GANG) {
        assert_true(tdm__clock_ms() < end_ms);
        run_for(LIFE_MS);
    }
}

/* Ends all actors, so that no request is under way. */
static void finish(void)
{
    int64_t end_ms = tdm__clock_ms() + WAIT_MS;

    is_ending = true;
    for (uint32_t waiting = 0; waiting < GANG || gang.is_asking;) {
        waiting = 0;
        assert_true(tdm__clock_ms() < end_ms);
        for (uint32_t i = 0; i < GANG; i++) {
            single_continue(&singles[i], tdm__clock_ms());
            waiting += singles[i].stage == WAITING;
        }
        (void)tdm__loop_run(redis.base.loop, NULL, NULL, tdm__deadline_after(2));
    }
}

static void gang_of_64_is_placed_against_endless_actors_of_eight_daemons(void **state)
{
    (void)state;
    start_actors();
    gang_init(true);
    run_for(GANG_MS);
    assert_true(gang.is_placed);
    print_message("the gang was placed after %lld ms and %u actors\n",
                  (long long)(tdm__clock_ms() - gang.begun_ms), lives_count);
    assert_int_equal(count_living(), 0); /* It has all GPUs. */
    finish();
}

static void gang_without_tickets_is_not_placed(void **state)
{
    (void)state;
    start_actors();
    gang_init(false);
    run_for(CONTROL_MS);
    assert_false(gang.is_placed);
    assert_true(gang.tries_count > 3);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            gang_of_64_is_placed_against_endless_actors_of_eight_daemons, open_cluster,
            close_cluster),
        cmocka_unit_test_setup_teardown(gang_without_tickets_is_not_placed, open_cluster,
                                        close_cluster),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
