/* trainer_agreement_test.c - trainer ranks learn each other's failures, claims and announcements.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/trainer_agreement.h"

#include "colocate/comm/collective.h"
#include "runtime/error.h"
#include "tests/support/weight_writer_world.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* One of two trainer ranks. Each is a gather group of its own, and there is one engine rank, so
 * that what rank 1 writes for it crosses groups. */
struct rank {
    struct trainer trainer;
    tdm_status status;      /* What this rank says of a step. */
    tdm_status result;      /* What the agreement returns. */
    char detail[256];       /* Its error. */
    const uint64_t *claims; /* The claims of all ranks. */
    struct tdm__announcement_list received;
};

static struct weight_writers *world;
static struct rank ranks[WORLD_RANKS];

static int set_up(void **state)
{
    (void)state;
    world = weight_writers_open(false, TDM__VERIFY_FULL);
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        struct trainer *trainer = &ranks[i].trainer;

        ranks[i] = (struct rank){.status = TDM_OK};
        trainer->rank.context.rank = i;
        trainer->rank.context.ranks_count = WORLD_RANKS;
        trainer->rank.groups = (struct tdm__gather_groups){1, 1, 1, 1};
        trainer->rank.group = world->world->groups[i];
        trainer->transfer_plan = world->transfer_plan;
        trainer->weight_writer = world->weight_writers[i];
        TRY(tdm__trainer_agreement_reserve(trainer));
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        tdm__trainer_agreement_fini(&ranks[i].trainer.agreement);
        tdm__announcement_list_fini(&ranks[i].trainer.for_others);
        tdm__announcement_list_fini(&ranks[i].received);
    }
    weight_writers_close(world);
    return 0;
}

/* Runs one step on both ranks at once. */
static void on_both_ranks(void *(*step)(void *rank))
{
    pthread_t threads[WORLD_RANKS];

    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, step, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void keep_result(struct rank *rank, tdm_status result)
{
    rank->result = result;
    (void)snprintf(rank->detail, sizeof(rank->detail), "%s", tdm_error_detail());
}

static tdm_status own_status(const struct rank *rank)
{
    return rank->status == TDM_OK ? TDM_OK : tdm__fail(rank->status, "no paper");
}

static void *agree(void *rank_of_thread)
{
    struct rank *rank = rank_of_thread;

    keep_result(rank, tdm__trainer_agree(&rank->trainer, own_status(rank)));
    return NULL;
}

static void *agree_on_claims(void *rank_of_thread)
{
    struct rank *rank = rank_of_thread;
    uint64_t *claim = tdm__trainer_own_claim(&rank->trainer);

    for (uint32_t i = 0; i < tdm__weight_writer_claim_words(rank->trainer.weight_writer); i++) {
        claim[i] = 100 * rank->trainer.rank.context.rank + i;
    }
    keep_result(rank,
                tdm__trainer_agree_on_claims(&rank->trainer, own_status(rank), &rank->claims));
    return NULL;
}

static void *agree_on_chunk(void *rank_of_thread)
{
    struct rank *rank = rank_of_thread;

    keep_result(rank, tdm__trainer_agree_on_chunk(&rank->trainer, own_status(rank), 0,
                                                  &rank->trainer.for_others));
    return NULL;
}

/* Each rank knows of a failure, whatever they tell each other at that step. */
static void failure_of_one_rank_stops_all(void **state)
{
    void *(*const steps[])(void *) = {agree, agree_on_claims, agree_on_chunk};

    (void)state;
    for (uint32_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        ranks[1].status = TDM_E_NOMEM;
        on_both_ranks(steps[i]);
        assert_int_equal(ranks[0].result, TDM_E_ABORTED);
        assert_string_equal(ranks[0].detail, "trainer rank 1 has stopped the update");
        assert_int_equal(ranks[1].result, TDM_E_NOMEM);
        assert_string_equal(ranks[1].detail, "no paper");
        ranks[1].status = TDM_OK;
        on_both_ranks(steps[i]); /* The group is usable. */
        TRY(ranks[0].result);
        TRY(ranks[1].result);
    }
}

static void claims_of_all_ranks_come_in_their_order(void **state)
{
    uint32_t words = tdm__weight_writer_claim_words(world->weight_writers[0]);

    (void)state;
    on_both_ranks(agree_on_claims);
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        TRY(ranks[i].result);
        for (uint32_t k = 0; k < WORLD_RANKS * words; k++) {
            assert_int_equal(ranks[i].claims[k], 100 * (k / words) + k % words);
        }
    }
}

static void announcement_reaches_the_gather_group_of_its_engine(void **state)
{
    struct tdm__rank_announcement_message announcement = {
        .writer = 1, .engine_rank = 0, .tensor_handles = {"where", 5}};
    uint64_t calls = tdm__collective_calls_count(world->world->groups[0]);

    (void)state;
    assert_true(tdm__trainer_chunk_crosses_groups(&ranks[0].trainer, 0));
    TRY(tdm__rank_announcement_seal(&announcement));
    TRY(tdm__announcement_list_add(&ranks[1].trainer.for_others, &announcement));
    on_both_ranks(agree_on_chunk);
    assert_int_equal(tdm__collective_calls_count(world->world->groups[0]), calls + 1);
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        TRY(ranks[i].result);
        TRY(tdm__trainer_receive_announcements(&ranks[i].trainer, 0, &ranks[i].received));
        assert_int_equal(ranks[i].received.count, i == 0 ? 1 : 0);
    }
    TRY(tdm__rank_announcement_check(&ranks[0].received.items[0], 0,
                                     &ranks[0].trainer.rank.groups));
    assert_memory_equal(ranks[0].received.items[0].tensor_handles.data, "where", 5);
}

/* With one gather group there is no other group to tell anything. */
static void nothing_crosses_within_a_gather_group(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        ranks[i].trainer.rank.groups = (struct tdm__gather_groups){1, WORLD_RANKS, WORLD_RANKS, 1};
        TRY(tdm__trainer_agreement_reserve(&ranks[i].trainer));
        assert_false(tdm__trainer_chunk_crosses_groups(&ranks[i].trainer, 0));
    }
    on_both_ranks(agree_on_chunk);
    TRY(ranks[0].result);
    TRY(ranks[1].result);
    TRY(tdm__trainer_receive_announcements(&ranks[0].trainer, 0, &ranks[0].received));
    assert_int_equal(ranks[0].received.count, 0);
}

static int run_here(const char *device)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(failure_of_one_rank_stops_all),
        EACH(claims_of_all_ranks_come_in_their_order),
        EACH(announcement_reaches_the_gather_group_of_its_engine),
        EACH(nothing_crosses_within_a_gather_group),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void)
{
    return weight_fixture_everywhere(run_here);
}
