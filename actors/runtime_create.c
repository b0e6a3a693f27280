/* runtime_create.c - creates the runtime of a driver or worker from its parts, and destroys it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A runtime owns the loop, the endpoint, the client side (actors/client) and the objects
 * (actors/objects). They are destroyed in reverse order of dependency: closing the connections
 * completes the calls under way, which needs the channels, the table and the memory. driver.c and
 * worker.c create the runtimes of the two kinds of processes. */

#include "actors/runtime_create.h"

#include "actors/client/actor_channel.h"
#include "actors/client/client.h"
#include "actors/objects/objects.h"
#include "runtime/error.h"
#include "runtime/loop/background_poller.h"

#include <stdlib.h>
#include <unistd.h>

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
        status = tdm__client_create(runtime);
    }
    if (status == TDM_OK) {
        status = tdm__objects_create(runtime, tdm__client_object_callbacks());
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
    tdm__client_destroy(runtime);
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
    runtime->daemon = NULL;
    runtime->daemon_end_reason = reason;
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
