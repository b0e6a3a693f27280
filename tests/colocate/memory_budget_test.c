/* memory_budget_test.c - budgets, against numbers worked out by hand. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/memory_budget.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB(count) ((uint64_t)(count) << 20)

/* Two GPUs, each with a trainer rank (weights 10 KEEP, optimizer 20 KEEP, scratch 30 DROP: 60
 * MiB) and an engine rank (weights 11 rounded to 12, kv_cache 40: 52 MiB). */
static struct tdm__memory_budget_input input;
static struct tdm__memory_budget plan;

static int make_input(void **state)
{
    (void)state;
    memset(&input, 0, sizeof(input));
    input.gpus_count = 2;
    input.gpu_bytes = MIB(64);
    input.bucket_bytes = 65536; /* It is rounded up to one block of 2 MiB. */
    input.update_enabled = true;
    input.ranks_count = 4;
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        input.ranks[gpu] =
            (struct tdm__memory_budget_rank){.gpu = gpu,
                                             .regions = {{"weights", MIB(10), TDM_REGION_KEEP},
                                                         {"optimizer", MIB(20), TDM_REGION_KEEP},
                                                         {"scratch", MIB(30), TDM_REGION_DROP}},
                                             .regions_count = 3};
        input.ranks[2 + gpu] = (struct tdm__memory_budget_rank){
            .is_engine = true,
            .gpu = gpu,
            .regions = {{"weights", MIB(11), TDM_REGION_KEEP},
                        {"kv_cache", MIB(40) - 1, TDM_REGION_DROP}},
            .regions_count = 2};
        (void)snprintf(input.ranks[gpu].name, 32, "trainer/%u", gpu);
        (void)snprintf(input.ranks[2 + gpu].name, 32, "engine/0/%u", gpu);
    }
    return 0;
}

static void expect_use(enum tdm__budget_phase phase, uint64_t trainer, uint64_t engine,
                       uint64_t peak)
{
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        assert_int_equal(plan.gpus[phase][gpu].trainer_bytes, MIB(trainer));
        assert_int_equal(plan.gpus[phase][gpu].engine_bytes, MIB(engine));
        assert_int_equal(plan.gpus[phase][gpu].peak_bytes, MIB(peak));
    }
}

static void every_moment_adds_up(void **state)
{
    (void)state;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    expect_use(TDM__BUDGET_ROLLOUT, 0, 52, 52);
    expect_use(TDM__BUDGET_ROLLOUT_TO_TRAIN, 60, 52, 60);
    expect_use(TDM__BUDGET_TRAIN, 60, 0, 60);
    expect_use(TDM__BUDGET_TRAIN_TO_UPDATE, 60, 12, 60);
    expect_use(TDM__BUDGET_UPDATE, 2, 24, 26);
    expect_use(TDM__BUDGET_UPDATE_TO_ROLLOUT, 2, 52, 52);
    /* Copies: two trainers keep 30 MiB each, two engines 12. */
    assert_int_equal(plan.host_bytes[TDM__BUDGET_ROLLOUT], MIB(60));
    assert_int_equal(plan.host_bytes[TDM__BUDGET_ROLLOUT_TO_TRAIN], MIB(60));
    assert_int_equal(plan.host_bytes[TDM__BUDGET_TRAIN], MIB(24));
    assert_int_equal(plan.host_bytes[TDM__BUDGET_TRAIN_TO_UPDATE], MIB(60));
    assert_int_equal(plan.host_bytes[TDM__BUDGET_UPDATE], MIB(60));
    assert_int_equal(plan.host_bytes[TDM__BUDGET_UPDATE_TO_ROLLOUT], MIB(60));
    assert_int_equal(plan.tightest_phase, TDM__BUDGET_TRAIN);
    assert_int_equal(plan.tightest_gpu, 0);
    assert_int_equal(plan.tightest_free_bytes, MIB(4));
}

static void without_updates_there_is_no_shadow(void **state)
{
    (void)state;
    input.update_enabled = false;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    expect_use(TDM__BUDGET_UPDATE, 0, 12, 12);
}

/* Buckets are copied over the weights that engines serve. */
static void overwriting_updates_need_the_weights_and_one_bucket(void **state)
{
    (void)state;
    input.updates_overwrite = true;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    expect_use(TDM__BUDGET_UPDATE, 2, 12, 14);
    expect_use(TDM__BUDGET_UPDATE_TO_ROLLOUT, 2, 52, 52);
    input.engines_are_remote = true;
    input.gpu_bytes = MIB(116);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    expect_use(TDM__BUDGET_UPDATE, 62, 54, 116);
}

/* With two GPUs for the trainers and two for the engines, no rank pauses. */
static void far_engines_keep_what_they_have(void **state)
{
    (void)state;
    input.engines_are_remote = true;
    input.gpus_count = 4;
    input.ranks[2].gpu = 2;
    input.ranks[3].gpu = 3;
    input.gpu_bytes = MIB(66);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    assert_int_equal(plan.gpus[TDM__BUDGET_TRAIN][0].peak_bytes, MIB(60));
    assert_int_equal(plan.gpus[TDM__BUDGET_TRAIN][2].peak_bytes, MIB(52));
    assert_int_equal(plan.gpus[TDM__BUDGET_UPDATE][1].peak_bytes, MIB(62));
    assert_int_equal(plan.gpus[TDM__BUDGET_UPDATE][3].peak_bytes,
                     MIB(66)); /* The shadow copy adds 12 MiB, the bucket 2 MiB. */
    assert_int_equal(plan.gpus[TDM__BUDGET_UPDATE][3].trainer_bytes, 0);
    assert_int_equal(plan.host_bytes[TDM__BUDGET_TRAIN], 0);
    assert_int_equal(plan.tightest_phase, TDM__BUDGET_UPDATE);
    input.gpu_bytes = MIB(64);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_BUDGET);
}

/* Each GPU has a trainer rank and an engine rank, as those of make_input(). */
static void the_largest_job_has_a_budget(void **state)
{
    const struct tdm__memory_budget_rank trainer = input.ranks[0];
    const struct tdm__memory_budget_rank engine = input.ranks[2];

    (void)state;
    input.gpus_count = TDM__JOB_GPUS_MAX;
    input.ranks_count = TDM__JOB_RANKS_MAX;
    for (uint32_t gpu = 0; gpu < TDM__JOB_GPUS_MAX; gpu++) {
        input.ranks[gpu] = trainer;
        input.ranks[gpu].gpu = gpu;
        input.ranks[TDM__JOB_GPUS_MAX + gpu] = engine;
        input.ranks[TDM__JOB_GPUS_MAX + gpu].gpu = gpu;
    }
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    for (uint32_t gpu = 0; gpu < TDM__JOB_GPUS_MAX; gpu++) {
        assert_int_equal(plan.gpus[TDM__BUDGET_TRAIN][gpu].peak_bytes, MIB(60));
        assert_int_equal(plan.gpus[TDM__BUDGET_UPDATE][gpu].peak_bytes, MIB(26));
    }
    assert_int_equal(plan.host_bytes[TDM__BUDGET_ROLLOUT], MIB(30 * TDM__JOB_GPUS_MAX));
    input.ranks[200].regions[2].size_bytes = MIB(36);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_BUDGET);
    assert_non_null(strstr(tdm_error_detail(), "TRAIN on GPU 200: 66.0 MiB wanted"));
    input.gpus_count++;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_INVAL);
    input.gpus_count--;
    input.ranks_count++;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_INVAL);
}

static void phase_that_does_not_fit_is_named_with_both_numbers(void **state)
{
    (void)state;
    input.ranks[1].regions[2].size_bytes = MIB(36);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_BUDGET);
    assert_string_equal(tdm_error_detail(),
                        "TRAIN on GPU 1: 66.0 MiB wanted (trainer 66.0, engine 0.0), 64.0 MiB "
                        "there; lower the trainer's regions (batch, model), or raise "
                        "cluster.gpu_bytes");
    (void)make_input(NULL);
    input.ranks[3].regions[1].size_bytes = MIB(60);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_BUDGET);
    assert_string_equal(tdm_error_detail(),
                        "ROLLOUT on GPU 1: 72.0 MiB wanted (trainer 0.0, engine 72.0), 64.0 "
                        "MiB there; lower the engine's regions (kv_cache, model), or raise "
                        "cluster.gpu_bytes");
    (void)make_input(NULL);
    input.bucket_bytes = MIB(41);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_BUDGET);
    assert_non_null(strstr(tdm_error_detail(), "UPDATE on GPU 0: 66.0 MiB wanted"));
    assert_non_null(strstr(tdm_error_detail(), "lower update.update_weight_buffer_size"));
}

static void exactly_full_fits_and_one_block_more_does_not(void **state)
{
    (void)state;
    input.gpu_bytes = MIB(60);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    assert_int_equal(plan.tightest_free_bytes, 0);
    input.ranks[0].regions[0].size_bytes += 1; /* It is rounded up to one more block. */
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_BUDGET);
}

static void host_copies_have_a_budget_too(void **state)
{
    (void)state;
    input.host_bytes = MIB(60);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    input.host_bytes = MIB(59);
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_BUDGET);
    assert_non_null(strstr(tdm_error_detail(), "in host memory: 60.0 MiB wanted"));
}

/* What a library allocates itself counts as a region does, also what it keeps on the host. */
static void outside_memory_is_in_the_budget(void **state)
{
    (void)state;
    input.ranks[0].regions[1].policy = TDM_REGION_OUTSIDE_KEEP;
    input.ranks[0].regions[2].policy = TDM_REGION_OUTSIDE_DROP;
    input.ranks[1].regions[1].policy = TDM_REGION_OUTSIDE_DROP;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    expect_use(TDM__BUDGET_TRAIN, 60, 0, 60);
    expect_use(TDM__BUDGET_UPDATE, 2, 24, 26);
    assert_int_equal(plan.host_bytes[TDM__BUDGET_ROLLOUT], MIB(40));
    input.ranks[2].regions[0].policy = TDM_REGION_OUTSIDE_DROP;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_INVAL);
    assert_string_equal(tdm_error_detail(), "engine/0/0: the region \"weights\" is outside memory, "
                                            "which updates cannot write");
}

/* The weights of an engine that is a server of its own: beside the region that updates write. */
static void outside_memory_may_have_the_tag_of_the_weights(void **state)
{
    (void)state;
    for (uint32_t i = 2; i < 4; i++) {
        input.ranks[i].regions[1] =
            (struct tdm_region_spec){"weights", MIB(20), TDM_REGION_OUTSIDE_DROP};
    }
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    expect_use(TDM__BUDGET_ROLLOUT, 0, 32, 32);
    expect_use(TDM__BUDGET_UPDATE, 2, 44, 46); /* The shadow copy is of the region alone. */
}

static void ranks_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    input.ranks[0].gpu = 2;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_INVAL);
    (void)make_input(NULL);
    input.ranks[2].regions[0].tag = "wheights";
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_INVAL);
    assert_string_equal(tdm_error_detail(), "engine/0/0 declares no region \"weights\"");
    (void)make_input(NULL);
    input.ranks[0].regions[1].size_bytes = SIZE_MAX;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_INVAL);
    (void)make_input(NULL);
    input.ranks[0].regions_count = TDM_RANK_REGIONS_MAX + 1;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_E_INVAL);
}

static char *print(bool json)
{
    size_t size_bytes;
    char *text = NULL;
    FILE *stream = open_memstream(&text, &size_bytes);

    assert_non_null(stream);
    if (json) {
        assert_int_equal(tdm__memory_budget_print_json(&plan, true, stream), TDM_OK);
    } else {
        tdm__memory_budget_print(&plan, &input, true, stream);
    }
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void the_table_shows_a_line_a_moment(void **state)
{
    char *text;

    (void)state;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    text = print(false);
    assert_memory_equal(
        text,
        "GPU 0 (64 MiB)                 trainer/0      engine/0/0        free MiB\n"
        "  ROLLOUT                            0.0            52.0            12.0\n"
        "  edge ROLLOUT→TRAIN                60.0            52.0             4.0\n",
        3 * 73 + 2);
    assert_non_null(strstr(text, "fits: tightest is TRAIN on GPU 0, 4.0 MiB free\n"));
    free(text);
}

static void the_json_holds_the_same_numbers(void **state)
{
    json_t *root;
    char *text;

    (void)state;
    assert_int_equal(tdm__memory_budget_compute(&input, &plan), TDM_OK);
    text = print(true);
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_true(json_is_true(json_object_get(root, "fits")));
    assert_int_equal(json_array_size(json_object_get(root, "moments")), TDM__BUDGET_PHASES_COUNT);
    json_decref(root);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_moment_adds_up, make_input),
        cmocka_unit_test_setup(without_updates_there_is_no_shadow, make_input),
        cmocka_unit_test_setup(overwriting_updates_need_the_weights_and_one_bucket, make_input),
        cmocka_unit_test_setup(far_engines_keep_what_they_have, make_input),
        cmocka_unit_test_setup(the_largest_job_has_a_budget, make_input),
        cmocka_unit_test_setup(phase_that_does_not_fit_is_named_with_both_numbers, make_input),
        cmocka_unit_test_setup(exactly_full_fits_and_one_block_more_does_not, make_input),
        cmocka_unit_test_setup(host_copies_have_a_budget_too, make_input),
        cmocka_unit_test_setup(outside_memory_is_in_the_budget, make_input),
        cmocka_unit_test_setup(outside_memory_may_have_the_tag_of_the_weights, make_input),
        cmocka_unit_test_setup(ranks_that_make_no_sense_are_refused, make_input),
        cmocka_unit_test_setup(the_table_shows_a_line_a_moment, make_input),
        cmocka_unit_test_setup(the_json_holds_the_same_numbers, make_input),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
