/* banner_test.c - the head of a job says what runs, on what, and who sits where. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/banner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__job_spec spec = {.num_gpus = 4,
                                    .engine_colocate = true,
                                    .gpu_bytes = 256 << 20,
                                    .device = "host",
                                    .trainer_num_ranks = 4,
                                    .trainer_num_gpus_per_actor = 0.4,
                                    .num_engines = 2,
                                    .rollout_num_gpus_per_engine = 2,
                                    .engine_num_gpus_per_actor = 0.2};

static void the_title_names_the_run_after_its_folder(void **state)
{
    struct tdm__job_run_options options = {.program = "tandem 1", .out = "out/arith-7f3a/"};
    char text[TDM__BANNER_BYTES];

    (void)state;
    tdm__banner_title(&spec, &options, NULL, text);
    assert_string_equal(text, "tandem 1  job arith-7f3a  redis embedded  4 virtual GPUs × 256 "
                              "MiB on this host");
    options.out = "here";
    tdm__banner_title(&spec, &options, "10.0.0.1:6300", text);
    assert_string_equal(text, "tandem 1  job here  cluster 10.0.0.1:6300  4 GPUs");
}

static void the_placement_shows_the_gather_groups(void **state)
{
    char text[TDM__BANNER_BYTES];

    (void)state;
    tdm__banner_placement(&spec, text);
    assert_string_equal(text, "placement   trainer 4 ranks (0.4 GPU each)   engines 2 × TP2 "
                              "(0.2 GPU each)   gather groups {0,1}→0 {2,3}→2");
}

static void fewer_trainer_ranks_than_engine_ranks_form_smaller_groups(void **state)
{
    struct tdm__job_spec fewer = spec;
    char text[TDM__BANNER_BYTES];

    (void)state;
    fewer.trainer_num_ranks = 2;
    tdm__banner_placement(&fewer, text);
    assert_non_null(strstr(text, "gather groups {0}→0 {1}→1"));
}

static void engines_on_gpus_of_their_own_say_so(void **state)
{
    struct tdm__job_spec far = spec;
    char text[TDM__BANNER_BYTES];

    (void)state;
    far.engine_colocate = false;
    tdm__banner_placement(&far, text);
    assert_non_null(strstr(text, "GPU each)   on GPUs of their own"));
    assert_null(strstr(text, "gather"));
}

static void the_cost_says_what_is_read_twice(void **state)
{
    struct tdm__job_spec donating = spec;
    struct tdm__weight_cost cost = {
        .same_gpu_bytes = 3 << 20, .other_gpu_bytes = 1 << 20, .copies_max = 7};
    char text[TDM__BANNER_BYTES];

    (void)state;
    (void)snprintf(donating.update_mode, sizeof(donating.update_mode), "donate");
    tdm__banner_update(&donating, &cost, text);
    assert_string_equal(text, "update      4 MiB, 75 % of it on the same GPU   at most 7 "
                              "copies an engine rank   donate");
    cost.measured_bytes = 2 << 20;
    tdm__banner_update(&donating, &cost, text);
    assert_non_null(strstr(text, "donate   2 MiB read twice: trainer ranks share FP8 blocks"));
    cost.other_node_bytes = 5 << 20;
    tdm__banner_update(&donating, &cost, text);
    assert_non_null(strstr(text, "donate   5 MiB between nodes   2 MiB read twice"));
}

static void large_job_is_cut_short(void **state)
{
    struct tdm__job_spec large = spec;
    struct tdm__job_run_options options = {.program = "tandem 1"};
    char out[2 * TDM__BANNER_BYTES];
    char text[TDM__BANNER_BYTES];

    (void)state;
    large.num_engines = 64;
    large.rollout_num_gpus_per_engine = 64;
    large.trainer_num_ranks = large.num_engines * 64;
    tdm__banner_placement(&large, text);
    assert_non_null(strstr(text, " {448,449,450,451,452,453,454,455,…}→448 …"));
    memset(out, 'x', sizeof(out) - 1);
    out[sizeof(out) - 1] = '\0';
    options.out = out;
    tdm__banner_title(&large, &options, NULL, text);
    assert_int_equal(strlen(text), TDM__BANNER_BYTES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_title_names_the_run_after_its_folder),
        cmocka_unit_test(the_placement_shows_the_gather_groups),
        cmocka_unit_test(fewer_trainer_ranks_than_engine_ranks_form_smaller_groups),
        cmocka_unit_test(engines_on_gpus_of_their_own_say_so),
        cmocka_unit_test(the_cost_says_what_is_read_twice),
        cmocka_unit_test(large_job_is_cut_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
