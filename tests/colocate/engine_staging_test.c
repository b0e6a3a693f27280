/* engine_staging_test.c - what cannot be routed to an engine's ranks is refused by its giver's
 * rank. Whole updates, and changed descriptions, are in announcement_test.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/announcement_list.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define LIBRARY TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so"
#define TRY(x)  assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 20000, PARTS_MAX = 2 };

static tdm_runtime *runtime;
static tdm_actor *engine; /* Engine 0 of one rank, which has not been connected to trainers. */

static void create_engine(void)
{
    const struct tdm_actor_options options = {.name = "engine/0/0", .num_gpus = 1};
    const struct tdm__rank_arguments_message arguments = {.config_json = "{}",
                                                          .config_name = "test",
                                                          .library = LIBRARY,
                                                          .model_config = "",
                                                          .model = "policy",
                                                          .group = "engine",
                                                          .ranks_count = 1,
                                                          .ranks_per_engine = 1,
                                                          .gather_groups = 1,
                                                          .ranks_per_group = 1,
                                                          .engines_per_group = 1,
                                                          .bucket_bytes = 4096,
                                                          .timeout_ms = WAIT_MS,
                                                          .verify = 1};
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__rank_arguments_encode(&arguments, writer));
    TRY(tdm_actor_create_packed(runtime, "tandem.engine", &options, tdm_writer_bytes(writer),
                                &engine));
    tdm_writer_destroy(writer);
    TRY(tdm_actor_wait_ready(engine, WAIT_MS));
}

/* Calls "stage" with what ranks of a gather group have given. */
static tdm_status stage(const struct tdm_bytes *parts, uint32_t parts_count)
{
    const struct tdm__stage_bucket_message message = {
        .gathered = {.count = parts_count, .items = parts}};
    const tdm_value *nothing;
    tdm_writer *writer;
    tdm_ref *ref;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__stage_bucket_encode(&message, writer));
    TRY(tdm_actor_call_packed(engine, "stage", tdm_writer_bytes(writer), &ref));
    status = tdm_get_value(ref, WAIT_MS, &nothing);
    tdm_ref_release(ref);
    tdm_writer_destroy(writer);
    return status;
}

/* Calls "stage" with one announcement for this engine rank. */
static tdm_status stage_for(uint32_t engine_rank)
{
    struct tdm__rank_announcement_message announcement = {
        .writer = 0, .engine_rank = engine_rank, .tensor_handles = {"where", 5}};
    struct tdm__announcement_list list = {.count = 0};
    struct tdm_bytes part;
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm__rank_announcement_seal(&announcement));
    TRY(tdm__announcement_list_add(&list, &announcement));
    TRY(tdm_writer_create(&writer));
    TRY(tdm__announcement_list_pack(&list, writer));
    part = tdm_writer_bytes(writer);
    status = stage(&part, 1);
    tdm_writer_destroy(writer);
    tdm__announcement_list_fini(&list);
    return status;
}

static void assert_told(const char *words)
{
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

static void group_of_another_size_is_refused(void **state)
{
    const struct tdm_bytes parts[PARTS_MAX] = {{.size_bytes = 0}};

    (void)state;
    assert_int_equal(stage(parts, PARTS_MAX), TDM_E_PROTOCOL);
    assert_told("what 2 ranks have gathered for an engine that 1 ranks serve");
    assert_int_equal(stage(parts, 0), TDM_E_PROTOCOL);
}

static void part_that_cannot_be_read_names_its_giver(void **state)
{
    const struct tdm_bytes part = {"what", 4};

    (void)state;
    assert_int_equal(stage(&part, 1), TDM_E_PROTOCOL);
    assert_told("what trainer rank 0 gave to the gather");
}

static void announcement_for_another_engine_is_refused(void **state)
{
    (void)state;
    assert_int_equal(stage_for(3), TDM_E_PROTOCOL);
    assert_told("what trainer rank 0 gave to the gather: an announcement for engine rank 3");
}

static void engine_without_a_model_stages_nothing(void **state)
{
    (void)state;
    assert_int_equal(stage_for(0), TDM_E_STATE);
    assert_told("this rank does not know the model's tensors yet");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_of_another_size_is_refused),
        cmocka_unit_test(part_that_cannot_be_read_names_its_giver),
        cmocka_unit_test(announcement_for_another_engine_is_refused),
        cmocka_unit_test(engine_without_a_model_stages_nothing),
    };
    int failed;

    runtime = one_node_start((uint64_t)32 << 20);
    create_engine();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_actor_destroy(engine);
    tdm_runtime_stop(runtime);
    return failed;
}
