/* gpu_places_test.c - GPUs that are missing are an error at once, or are awaited until a node with
 * them joins. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/gpu_places.h"

#include "runtime/clock.h"
#include "tests/support/two_nodes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Two nodes of two GPUs hold the trainers and one engine. */
enum { TRAINERS = 2, ENGINES = 2, SHORT_MS = 300, LONG_MS = 20000 };

static struct two_nodes cluster;
static tdm_runtime *runtime; /* The driver's runtime on the first node. */
static volatile sig_atomic_t interrupts;
static const struct tdm__job_spec spec = {.num_engines = ENGINES, .trainer_num_ranks = TRAINERS};

static struct tdm__worker_group new_group(void)
{
    interrupts = 0;
    return (struct tdm__worker_group){
        .runtime = runtime, .spec = &spec, .ranks_per_engine = 2, .interrupts = &interrupts};
}

/* Removes the reservations, so that the GPUs are free. */
static void remove_group(struct tdm__worker_group *workers)
{
    TRY(tdm_placement_group_remove(workers->group, LONG_MS));
    for (uint32_t i = 0; i < ENGINES; i++) {
        TRY(tdm_placement_group_remove(workers->engine_groups[i], LONG_MS));
    }
    free(workers->engine_groups);
}

static void missing_gpus_are_an_error_at_once(void **state)
{
    struct tdm__worker_group workers = new_group();
    const struct tdm__job_spec large = {.num_engines = ENGINES, .trainer_num_ranks = 3};

    (void)state;
    workers.spec = &large;
    assert_int_equal(tdm__gpu_places_reserve(&workers, 0), TDM_E_NO_RESOURCES);
    remove_group(&workers);
}

static void wait_for_a_node_ends_at_an_interrupt(void **state)
{
    struct tdm__worker_group workers = new_group();
    int64_t begin_ms = tdm__clock_ms();

    (void)state;
    interrupts = 1;
    assert_int_equal(tdm__gpu_places_reserve(&workers, LONG_MS), TDM_E_CANCELED);
    assert_true(tdm__clock_ms() - begin_ms < LONG_MS / 2);
    remove_group(&workers);
}

static void missing_gpus_are_awaited_until_a_node_joins(void **state)
{
    struct tdm__worker_group workers = new_group();
    struct tdm_bundle_placement places[ENGINES];
    struct test_node third;
    char said[1024];

    (void)state;
    assert_int_equal(tdm__gpu_places_reserve(&workers, SHORT_MS), TDM_E_TIMEOUT);
    TRY(tdm_placement_group_locate_bundle(workers.engine_groups[0], 0, &places[0]));
    assert_int_equal(tdm_placement_group_locate_bundle(workers.engine_groups[1], 0, &places[1]),
                     TDM_E_AGAIN);
    assert_int_equal(tdm__gpu_places_replace(&workers, 1, SHORT_MS), TDM_E_TIMEOUT);
    assert_int_equal(test_node_start(&cluster, "third", &third, said), 0);
    TRY(tdm__gpu_places_replace(&workers, 1, LONG_MS));
    TRY(tdm_placement_group_locate_bundle(workers.engine_groups[1], 1, &places[1]));
    assert_string_not_equal(places[0].node_id, places[1].node_id);
    remove_group(&workers);
    test_node_stop(&third);
}

/* Reserves three of the four GPUs, so that no node has two left. */
static void take_three(tdm_placement_group *taken[2])
{
    const struct tdm_bundle bundle = {.num_gpus = 2};
    const struct tdm_bundle half = {.num_gpus = 1};

    TRY(tdm_placement_group_create(runtime, &bundle, 1, TDM_PACK, LONG_MS, &taken[0]));
    TRY(tdm_placement_group_create(runtime, &half, 1, TDM_PACK, LONG_MS, &taken[1]));
}

/* An engine of one GPU must not take the one that the trainers need. */
static void trainers_get_their_gpus_before_engines(void **state)
{
    const struct tdm__job_spec small = {.num_engines = 1, .trainer_num_ranks = TRAINERS};
    struct tdm__worker_group workers = new_group();
    tdm_placement_group *taken[2];
    struct tdm_bundle_placement place;

    (void)state;
    workers.spec = &small;
    workers.ranks_per_engine = 1;
    take_three(taken);
    assert_int_equal(tdm__gpu_places_reserve(&workers, SHORT_MS), TDM_E_TIMEOUT);
    assert_int_equal(tdm_placement_group_locate_bundle(workers.group, 0, &place), TDM_E_AGAIN);
    assert_null(workers.engine_groups[0]); /* Not even asked for. */
    TRY(tdm_placement_group_remove(taken[1], LONG_MS));
    TRY(tdm_placement_group_wait(workers.group, LONG_MS));
    TRY(tdm_placement_group_remove(taken[0], LONG_MS));
    TRY(tdm_placement_group_remove(workers.group, LONG_MS));
    free(workers.engine_groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_gpus_are_an_error_at_once),
        cmocka_unit_test(wait_for_a_node_ends_at_an_interrupt),
        cmocka_unit_test(missing_gpus_are_awaited_until_a_node_joins),
        cmocka_unit_test(trainers_get_their_gpus_before_engines),
    };
    int failed;

    runtime = two_nodes_join(&cluster);
    if (runtime == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return two_nodes_leave(&cluster, runtime) != 0 ? 1 : failed;
}
