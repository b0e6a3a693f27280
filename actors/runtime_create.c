/* runtime_create.c - creates the runtime of a driver or worker from its parts, and destroys it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A runtime owns the loop, the endpoint, the actor channels, the object memory and the table of
 * references. They are destroyed in reverse order of dependency: closing the connections completes
 * the calls under way, which needs the channels, the table and the memory. driver.c and worker.c
 * create the runtimes of the two kinds of processes. */

#include "actors/runtime_create.h"

#include "actors/client/actor_channel.h"
#include "actors/client/actor_handle.h"
#include "actors/client/call_arguments.h"
#include "actors/objects/objects.h"
#include "runtime/error.h"
#include "runtime/loop/background_poller.h"

#include <stdlib.h>
#include <unistd.h>

/* Records that calls may wait for a result that has arrived. */
static void on_result_arrived(tdm_runtime *runtime)
{
    runtime->results_arrived = true;
}

/* What the client side does for references. */
static const struct tdm__object_callbacks object_callbacks = {
    .handle_write = tdm__handle_write,
    .handle_open = tdm__handle_open,
    .handle_keep_alive = tdm__handle_bytes_keep_alive,
    .handle_destroy = tdm_actor_destroy,
    .result_arrived = on_result_arrived,
    .send_ready_calls = tdm__actor_channels_flush};

tdm_status tdm__runtime_create(const struct tdm__peer_identity *self,
                               const uint8_t token[TDM__TOKEN_BYTES], tdm_runtime **runtime_out)
{
    tdm_runtime *runtime = calloc(1, sizeof(*runtime));
    tdm_status status;

    if (runtime == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a runtime");
    }
    runtime->self = *self;
    status = tdm__loop_create(&runtime->loop);
    if (status == TDM_OK) {
        status = tdm__rpc_create(runtime->loop, self, token, &runtime->rpc);
    }
    if (status == TDM_OK) {
        status = tdm__objects_create(runtime, &object_callbacks);
    }
    if (status == TDM_OK) {
        tdm__rpc_on_late_reply(runtime->rpc, tdm__objects_discard_stray_reply, runtime);
    }
    if (status != TDM_OK) {
        tdm__runtime_destroy(runtime);
        return status;
    }
    *runtime_out = runtime;
    return TDM_OK;
}

/* Runs the posted callbacks of results that have arrived, while the runtime is still complete. */
static void runtime_run_posted(tdm_runtime *runtime)
{
    TDM__LOCK(runtime);

    if (runtime->loop != NULL) {
        tdm__loop_run_posts(runtime->loop);
    }
}

void tdm__runtime_destroy(tdm_runtime *runtime)
{
    uint32_t depth = runtime->loop == NULL ? 0 : tdm__loop_leave_all(runtime->loop);

    (void)depth; /* The lock is not taken again: the loop is destroyed below. */
    tdm__background_poller_stop(runtime->background_poller);
    runtime_run_posted(runtime);
    runtime->is_stopping = true;
    if (runtime->daemon != NULL) {
        tdm__conn_on_closed(runtime->daemon, NULL, NULL);
    }
    tdm__rpc_destroy(
        runtime->rpc); /* This completes the calls under way, which need the actor channels. */
    runtime->daemon = NULL;
    while (runtime->actor_channels != NULL) {
        tdm__actor_channel_destroy(runtime->actor_channels);
    }
    tdm__call_arguments_free_cached(runtime);
    tdm__objects_destroy(runtime);
    if (runtime->loop != NULL) {
        tdm__loop_destroy(runtime->loop);
    }
    if (tdm_runtime_current() == runtime) {
        tdm__runtime_set_current(NULL);
    }
    free(runtime);
}

/* Handles the end of the connection to the daemon: a worker exits, a driver fails its calls. */
static void on_daemon_closed(void *arg, struct tdm__conn *conn, tdm_status reason,
                             const char *detail)
{
    tdm_runtime *runtime = arg;

    (void)conn;
    (void)reason;
    runtime->daemon = NULL;
    if (runtime->worker != NULL) {
        _exit(1); /* No daemon is left to receive a report. */
    }
    tdm__actor_channels_fail_all(runtime, detail);
}

void tdm__runtime_set_daemon(tdm_runtime *runtime, struct tdm__conn *conn)
{
    runtime->daemon = conn;
    tdm__conn_on_closed(conn, on_daemon_closed, runtime);
}
