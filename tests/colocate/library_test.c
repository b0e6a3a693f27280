/* library_test.c - job libraries are checked before they are believed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/library.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A rank whose weights grow with its number, so that the order of asking shows. */
struct state {
    struct tdm_rank_context context;
    char tag[16]; /* The tag is freed when the rank is closed. */
};

static uint32_t states_open;
static uint32_t regions_to_declare;

static tdm_status open_rank(const struct tdm_rank_context *context, void **state_out)
{
    struct state *state = calloc(1, sizeof(*state));

    assert_non_null(state);
    assert_null(context->group);
    assert_non_null(context->config);
    state->context = *context;
    memcpy(state->tag, "weights", 8);
    states_open++;
    *state_out = state;
    return TDM_OK;
}

/* Policy of the region that each rank declares. */
static enum tdm_region_policy policy_to_declare = TDM_REGION_KEEP;

static tdm_status declare(void *self, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                          uint32_t *count_out)
{
    const struct state *state = self;

    if (regions_to_declare == 0) {
        return tdm_fail(TDM_E_METHOD, "no model");
    }
    specs[0] = (struct tdm_region_spec){
        state->tag, 1000 + 100 * state->context.engine + state->context.rank, policy_to_declare};
    *count_out = regions_to_declare;
    return TDM_OK;
}

static void close_rank(void *state)
{
    states_open--;
    free(state);
}

static const struct tdm_trainer_ops trainer = {.size_bytes = sizeof(struct tdm_trainer_ops),
                                               .open = open_rank,
                                               .regions = declare,
                                               .close = close_rank};
static const struct tdm_engine_ops engine = {.size_bytes = sizeof(struct tdm_engine_ops),
                                             .open = open_rank,
                                             .regions = declare,
                                             .close = close_rank};
static const struct tdm_job_library jobs = {
    .size_bytes = sizeof(struct tdm_job_library), .trainer = &trainer, .engine = &engine};
static const struct tdm__job_library library = {.jobs = &jobs};

static struct tdm__job_spec spec;
static struct tdm__memory_budget_input input;

static int make_spec(void **state)
{
    static const char text[] = "job: {library: l}\ndata: {train: a, unseen: b}\n";
    tdm_config *config = NULL;

    (void)state;
    regions_to_declare = 1;
    states_open = 0;
    if (tdm_config_parse(text, strlen(text), "job.yaml", &config) != TDM_OK) {
        return -1;
    }
    return tdm__job_spec_from_config(config, "", &spec) == TDM_OK ? 0 : -1;
}

static int drop_spec(void **state)
{
    (void)state;
    tdm__job_spec_fini(&spec);
    return 0;
}

static void every_rank_is_asked_and_closed(void **state)
{
    static const struct {
        const char *name;
        uint32_t gpu;
        size_t size_bytes;
    } expected[] = {{"trainer/0", 0, 1000},  {"trainer/1", 1, 1001},  {"trainer/2", 2, 1002},
                    {"trainer/3", 3, 1003},  {"engine/0/0", 0, 1000}, {"engine/0/1", 1, 1001},
                    {"engine/1/0", 2, 1100}, {"engine/1/1", 3, 1101}};

    (void)state;
    assert_int_equal(tdm__job_memory_budget_input(&spec, &library, &input), TDM_OK);
    assert_int_equal(states_open, 0);
    assert_int_equal(input.ranks_count, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_string_equal(input.ranks[i].name, expected[i].name);
        assert_int_equal(input.ranks[i].gpu, expected[i].gpu);
        assert_int_equal(input.ranks[i].regions[0].size_bytes, expected[i].size_bytes);
        assert_string_equal(input.ranks[i].regions[0].tag, "weights");
        assert_int_equal(input.ranks[i].is_engine, i >= 4);
    }
}

static void outside_memory_needs_functions(void **state)
{
    (void)state;
    policy_to_declare = TDM_REGION_OUTSIDE_DROP;
    assert_int_equal(tdm__job_memory_budget_input(&spec, &library, &input), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(),
                        "trainer/0 declares the outside memory \"weights\", and "
                        "its table has no resume()");
    policy_to_declare = TDM_REGION_KEEP;
    assert_int_equal(states_open, 0);
}

static void rank_that_fails_is_named_and_closed(void **state)
{
    (void)state;
    regions_to_declare = 0;
    assert_int_equal(tdm__job_memory_budget_input(&spec, &library, &input), TDM_E_METHOD);
    assert_string_equal(tdm_error_detail(), "trainer/0: regions: no model");
    regions_to_declare = TDM_RANK_REGIONS_MAX + 1;
    assert_int_equal(tdm__job_memory_budget_input(&spec, &library, &input), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(), "trainer/0 declares 9 regions, the limit is 8");
    assert_int_equal(states_open, 0);
}

static void file_that_is_no_job_library_is_refused(void **state)
{
    char garbage[] = "/tmp/tandem-library-XXXXXX";
    struct tdm__job_library opened;
    Dl_info other; /* This is a shared library, but not a job library. */
    int fd = mkstemp(garbage);

    (void)state;
    assert_int_equal(tdm__job_library_open("/nowhere/libx.so", &opened), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "/nowhere/libx.so: no such library"));
    assert_int_equal(write(fd, "garbage", 7), 7);
    assert_int_equal(close(fd), 0);
    assert_int_equal(tdm__job_library_open(garbage, &opened), TDM_E_PROTOCOL);
    assert_int_equal(unlink(garbage), 0);
    assert_int_not_equal(dladdr(dlsym(RTLD_DEFAULT, "json_object"), &other), 0);
    assert_int_equal(tdm__job_library_open(other.dli_fname, &opened), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "no TDM_JOB_LIBRARY in it"));
}

static void test_error_names_the_function_that_a_table_lacks(void **state)
{
    struct tdm__job_library opened;

    (void)state;
    assert_int_equal(
        tdm__job_library_open(TDM_TEST_BUILD_DIR "/tests/incomplete_job_library.so", &opened),
        TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "function \"step\" of the trainer table is NULL"));
}

static void device_must_be_among_those_of_the_library(void **state)
{
    struct tdm_job_library told = {.name = "l"};
    const struct tdm__job_library asked = {.jobs = &told};

    (void)state;
    assert_int_equal(tdm__job_library_check_device(&asked, "host"), TDM_OK);
    assert_int_equal(tdm__job_library_check_device(&asked, "cuda"), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "library l has no models on cuda, but on: host"));
    told.devices = " cuda  hosts ";
    assert_int_equal(tdm__job_library_check_device(&asked, "cuda"), TDM_OK);
    assert_int_equal(tdm__job_library_check_device(&asked, "host"), TDM_E_UNSUPPORTED);
    told.devices = "";
    assert_int_equal(tdm__job_library_check_device(&asked, "cuda"), TDM_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_rank_is_asked_and_closed, make_spec, drop_spec),
        cmocka_unit_test_setup_teardown(rank_that_fails_is_named_and_closed, make_spec, drop_spec),
        cmocka_unit_test_setup_teardown(outside_memory_needs_functions, make_spec, drop_spec),
        cmocka_unit_test(file_that_is_no_job_library_is_refused),
        cmocka_unit_test(test_error_names_the_function_that_a_table_lacks),
        cmocka_unit_test(device_must_be_among_those_of_the_library),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
