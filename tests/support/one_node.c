/* one_node.c - a private node for a test program, its actors, and calls to its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/one_node.h"

#include "actors/process/runtime.h"
#include "runtime/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { WAIT_MS = 20000, SETTLE_MS = 5000 };

tdm_runtime *one_node_start(uint64_t gpu_bytes)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *runtime;

    options.gpus = 1;
    options.gpu_bytes = gpu_bytes;
    options.cpus = 8;
    (void)setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1);
    (void)unsetenv("TANDEM_ADDRESS");
    TDM_CHECK(tdm_runtime_start(&options, &runtime));
    return runtime;
}

tdm_actor *one_node_actor(tdm_runtime *runtime, const char *class_name, const char *name,
                          double num_gpus)
{
    const struct tdm_actor_options options = {.num_gpus = num_gpus, .name = name};
    tdm_actor *actor = NULL;

    TDM_CHECK(tdm_actor_create(runtime, class_name, &options, &actor, ""));
    TDM_CHECK(tdm_actor_wait_ready(actor, WAIT_MS));
    return actor;
}

void one_node_kill_actor(tdm_actor *actor)
{
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    assert_true(info.pid > 0);
    assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
}

tdm_status one_node_call(tdm_runtime *runtime, const char *method, tdm_document **document_out,
                         const char *format, ...)
{
    tdm_writer *writer;
    tdm_status status;
    va_list args;

    TDM_TRY(tdm_writer_create(&writer));
    va_start(args, format);
    status = tdm_pack_va(writer, format, args);
    va_end(args);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(runtime, method, tdm_writer_bytes(writer), WAIT_MS,
                                          document_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

uint64_t one_node_used_bytes(tdm_runtime *runtime)
{
    tdm_document *document;
    const tdm_value *gpu;
    uint64_t bytes;

    assert_int_equal(one_node_call(runtime, "block.ledger", &document, ""), TDM_OK);
    gpu = tdm_value_at(tdm_document_root(document), 0);
    bytes = tdm_value_uint(tdm_value_find(gpu, "used_bytes"), UINT64_MAX);
    tdm_document_destroy(document);
    return bytes;
}

void one_node_wait_used(tdm_runtime *runtime, uint64_t bytes)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    int64_t deadline_ms = tdm__deadline_after(SETTLE_MS);

    while (one_node_used_bytes(runtime) != bytes && tdm__clock_ms() < deadline_ms) {
        (void)nanosleep(&pause, NULL);
    }
    assert_true(one_node_used_bytes(runtime) == bytes);
}
