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
    return (struct tdm__worker_group){.runtime = runtime,
                                      .spec = &spec,
                                      .ranks_per_engine = 2,
                                      .engines_max = 8,
                                      .interrupts = &interrupts};
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

/* ---- engines that share the trainers' GPUs ---------------------------------------------- */

/* Returns a group for `engines` colocated engines of `each` GPUs. */
static struct tdm__worker_group new_shared_group(struct tdm__job_spec *shared, uint32_t engines,
                                                 uint32_t each)
{
    struct tdm__worker_group workers = new_group();

    *shared = (struct tdm__job_spec){.num_engines = engines,
                                     .engine_colocate = true,
                                     .num_gpus = engines * each,
                                     .trainer_num_ranks = engines * each};
    workers.spec = shared;
    workers.ranks_per_engine = each;
    workers.gather_groups = tdm__gather_groups_form(engines * each, each, engines, true);
    return workers;
}

static void gpus_of_a_shared_engine_are_on_one_node(void **state)
{
    struct tdm__job_spec shared;
    struct tdm__worker_group workers = new_shared_group(&shared, 2, 2);
    struct tdm_bundle_placement places[4];
    char meeting_node[TDM__ID_TEXT_BYTES];
    bool is_one_node;

    (void)state;
    TRY(tdm__gpu_places_reserve(&workers, 0));
    for (uint32_t i = 0; i < 4; i++) {
        TRY(tdm_placement_group_locate_bundle(workers.group, i, &places[i]));
        assert_int_equal(places[i].gpus_count, 1);
        assert_int_equal(places[i].gpu_indices[0], i % 2);
    }
    assert_string_equal(places[0].node_id, places[1].node_id);
    assert_string_equal(places[2].node_id, places[3].node_id);
    assert_string_not_equal(places[0].node_id, places[2].node_id);
    TRY(tdm__gpu_places_meeting_node(&workers, meeting_node, &is_one_node));
    assert_string_equal(meeting_node, places[0].node_id);
    assert_false(is_one_node);
    TRY(tdm_placement_group_remove(workers.group, LONG_MS));
}

/* Each of two trainer ranks serves two engines of one rank, on the node of its GPU. */
static void engines_of_one_trainer_rank_are_on_one_node(void **state)
{
    struct tdm__job_spec shared;
    struct tdm__worker_group workers = new_shared_group(&shared, 4, 1);
    struct tdm_bundle_placement places[4];
    char meeting_node[TDM__ID_TEXT_BYTES];
    bool is_one_node;

    (void)state;
    shared.trainer_num_ranks = 2;
    workers.gather_groups = tdm__gather_groups_form(2, 1, 4, true);
    TRY(tdm__gpu_places_reserve(&workers, 0));
    for (uint32_t i = 0; i < 4; i++) {
        TRY(tdm_placement_group_locate_bundle(workers.group, i, &places[i]));
    }
    assert_string_equal(places[0].node_id, places[1].node_id);
    assert_string_equal(places[2].node_id, places[3].node_id);
    assert_int_equal(tdm__worker_group_trainer_gpu(&workers, 1), 2);
    TRY(tdm__gpu_places_meeting_node(&workers, meeting_node, &is_one_node));
    assert_string_equal(meeting_node, places[0].node_id);
    assert_false(is_one_node);
    TRY(tdm_placement_group_remove(workers.group, LONG_MS));
    workers = new_shared_group(&shared, 6, 1);
    workers.gather_groups = tdm__gather_groups_form(2, 1, 6, true);
    assert_int_equal(tdm__gpu_places_reserve(&workers, 0), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(),
                           "engine 0 needs 3 GPUs of one node for its ranks, for "
                           "those of the engines that the same trainer rank"));
}

static void trainers_on_one_node_need_no_other_meeting_node(void **state)
{
    struct tdm__job_spec shared;
    struct tdm__worker_group workers = new_shared_group(&shared, 2, 1);
    char meeting_node[TDM__ID_TEXT_BYTES];
    bool is_one_node;

    (void)state;
    TRY(tdm__gpu_places_reserve(&workers, 0));
    TRY(tdm__gpu_places_meeting_node(&workers, meeting_node, &is_one_node));
    assert_true(is_one_node);
    TRY(tdm_placement_group_remove(workers.group, LONG_MS));
}

/* With a GPU of each node in use, the other two are not on one node. */
static void gpus_of_a_shared_engine_are_not_taken_from_two_nodes(void **state)
{
    const struct tdm_bundle bundles[] = {{.num_gpus = 1}, {.num_gpus = 1}};
    struct tdm__job_spec shared;
    struct tdm__worker_group workers = new_shared_group(&shared, 1, 2);
    tdm_placement_group *taken;

    (void)state;
    TRY(tdm_placement_group_create(runtime, bundles, 2, TDM_STRICT_SPREAD, LONG_MS, &taken));
    assert_int_equal(tdm__gpu_places_reserve(&workers, SHORT_MS), TDM_E_TIMEOUT);
    TRY(tdm_placement_group_remove(taken, LONG_MS));
    TRY(tdm_placement_group_wait(workers.group, LONG_MS));
    TRY(tdm_placement_group_remove(workers.group, LONG_MS));
}

static void engine_without_room_is_named_at_once(void **state)
{
    struct tdm__job_spec shared;
    struct tdm__worker_group workers = new_shared_group(&shared, 3, 2);

    (void)state;
    assert_int_equal(tdm__gpu_places_reserve(&workers, 0), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "engine 2 needs 2 GPUs of one node"));
    assert_non_null(strstr(tdm_error_detail(), "GPUs for 2 of 3 engines. Add a node with 2 GPUs"));
    assert_null(workers.group);
    workers = new_shared_group(&shared, 1, 3);
    assert_int_equal(tdm__gpu_places_reserve(&workers, 0), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "engine 0 needs 3 GPUs of one node"));
    assert_non_null(strstr(tdm_error_detail(), "GPUs for 0 of 1 engines"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_gpus_are_an_error_at_once),
        cmocka_unit_test(wait_for_a_node_ends_at_an_interrupt),
        cmocka_unit_test(missing_gpus_are_awaited_until_a_node_joins),
        cmocka_unit_test(trainers_get_their_gpus_before_engines),
        cmocka_unit_test(gpus_of_a_shared_engine_are_on_one_node),
        cmocka_unit_test(engines_of_one_trainer_rank_are_on_one_node),
        cmocka_unit_test(trainers_on_one_node_need_no_other_meeting_node),
        cmocka_unit_test(gpus_of_a_shared_engine_are_not_taken_from_two_nodes),
        cmocka_unit_test(engine_without_room_is_named_at_once),
    };
    int failed;

    runtime = two_nodes_join(&cluster);
    if (runtime == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return two_nodes_leave(&cluster, runtime) != 0 ? 1 : failed;
}
