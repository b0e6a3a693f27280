/* rank_outside_test.c - a rank's library allocates memory itself when the arbiter has granted it.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank.h"
#include "runtime/messages/messages.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB     ((uint64_t)1 << 20)
#define LIBRARY TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so"
#define TRY(x)  assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 20000 };

static tdm_runtime *runtime;

/* Creates a trainer rank of tests/colocate/tiny_job_library.c with these settings. */
static tdm_actor *create_trainer(const char *name, const char *config_json)
{
    const struct tdm_actor_options options = {.name = name, .num_gpus = 0.5};
    const struct tdm__rank_arguments_message arguments = {.config_json = config_json,
                                                          .config_name = "test",
                                                          .library = LIBRARY,
                                                          .model_config = "",
                                                          .model = name,
                                                          .group = name,
                                                          .ranks_count = 1,
                                                          .ranks_per_engine = 1,
                                                          .gather_groups = 1,
                                                          .ranks_per_group = 1,
                                                          .engines_per_group = 1,
                                                          .bucket_bytes = 4096,
                                                          .timeout_ms = WAIT_MS,
                                                          .verify = 1};
    tdm_writer *writer;
    tdm_actor *actor;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__rank_arguments_encode(&arguments, writer));
    TRY(tdm_actor_create_packed(runtime, "tandem.trainer", &options, tdm_writer_bytes(writer),
                                &actor));
    tdm_writer_destroy(writer);
    TRY(tdm_actor_wait_ready(actor, WAIT_MS));
    return actor;
}

static tdm_status call(tdm_actor *actor, const char *method)
{
    const tdm_value *value;
    tdm_status status;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, ""));
    status = tdm_get_value(ref, WAIT_MS, &value);
    tdm_ref_release(ref);
    return status;
}

static void end(tdm_actor *actor)
{
    TRY(tdm_actor_kill(actor, WAIT_MS));
    tdm_actor_destroy(actor);
    one_node_wait_used(runtime, 0);
}

/* Requests memory as the engine of the GPU would, and gives the grant back. */
static tdm_status wish(uint64_t mib)
{
    TDM_TRY(one_node_call(runtime, "arbiter.request", NULL, "usui", (uint64_t)0, "kv_cache",
                          mib * MIB, (int64_t)0));
    return one_node_call(runtime, "arbiter.cancel_grant", NULL, "us", (uint64_t)0, "kv_cache");
}

/* The GPU has 128 MiB; the region of the trainer takes 2. */
static void outside_memory_takes_turns_with_the_regions(void **state)
{
    tdm_actor *trainer =
        create_trainer("exact", "{\"trainer\": {\"outside_mib\": 40, \"outside_used_mib\": 40}}");

    (void)state;
    TRY(wish(128));
    TRY(call(trainer, "start"));
    assert_int_equal(wish(88), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "params 2.0 MiB, torch 40.0 MiB"));
    TRY(wish(86));
    TRY(call(trainer, "pause"));
    TRY(wish(128));
    TRY(call(trainer, "resume"));
    assert_int_equal(wish(88), TDM_E_DEVICE_FULL);
    end(trainer);
    TRY(wish(128)); /* The arbiter forgets the dead. */
}

static void more_than_declared_is_reported_with_both_numbers(void **state)
{
    tdm_actor *trainer =
        create_trainer("greedy", "{\"trainer\": {\"outside_mib\": 20, \"outside_used_mib\": 60}}");

    (void)state;
    TRY(call(trainer, "start"));
    assert_int_equal(wish(88), TDM_E_DEVICE_FULL);
    assert_non_null(strstr(tdm_error_detail(), "(20.0 declared)"));
    TRY(call(trainer, "pause"));
    TRY(wish(128));
    end(trainer);
}

/* A resume that fails leaves nothing granted, and its error is the library's. */
static void failure_of_the_library_is_undone(void **state)
{
    tdm_actor *trainer = create_trainer("poor", "{\"trainer\": {\"outside_mib\": 100}}");

    (void)state;
    assert_int_equal(call(trainer, "start"), TDM_E_METHOD);
    assert_non_null(strstr(tdm_error_detail(), "resume(\"torch\"): torch cannot be resumed"));
    TRY(wish(126));
    end(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outside_memory_takes_turns_with_the_regions),
        cmocka_unit_test(more_than_declared_is_reported_with_both_numbers),
        cmocka_unit_test(failure_of_the_library_is_undone),
    };
    int failed;

    runtime = one_node_start(128 * MIB); /* A worker never returns from here. */
    failed = cmocka_run_group_tests_name("rank_outside", tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
