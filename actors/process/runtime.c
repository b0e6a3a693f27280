/* runtime.c - the runtime of one process, as all parts of actors/ see it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* One process has at most one runtime, `current_runtime`. runtime_create.c creates and destroys it;
 * this file has what the parts of actors/ need while it exists: waiting, requests to the daemon,
 * and the text of how the daemon ended.
 *
 * Any thread may call these functions; the loop's lock serialises them. A forked child keeps a
 * marked copy of its parent's runtime, which refuses every use. */

#include "actors/process/runtime.h"

#include "actors/process/private_node.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <pthread.h>
#include <stdio.h>

/* Runtime of this process; NULL if none is started. Set by the starting thread only. */
static tdm_runtime *current_runtime;

/* Runtime of this process that has stopped last, only compared; NULL if none has. */
static const tdm_runtime *stopped_runtime;

/* ---- the runtime of this process ---------------------------------------------------------- */

/* Marks the runtime in a forked child as unusable. The loop, its sockets and its kernel objects
 * belong to the parent, so the child does not touch them. */
static void after_fork_in_child(void)
{
    if (current_runtime != NULL) {
        current_runtime->is_forked_child = true;
        tdm__loop_after_fork(current_runtime->loop);
        current_runtime = NULL;
    }
}

/* Installs after_fork_in_child() for every later fork(). */
static void register_fork_handler(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

void tdm__runtime_set_current(tdm_runtime *runtime)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (runtime == NULL && current_runtime != NULL) {
        stopped_runtime = current_runtime;
    }
    (void)pthread_once(&once, register_fork_handler);
    current_runtime = runtime;
}

tdm_runtime *tdm_runtime_current(void)
{
    return current_runtime;
}

tdm_status tdm__runtime_check_running(const tdm_runtime *runtime)
{
    if (runtime == stopped_runtime && runtime != current_runtime) {
        return tdm__fail(TDM_E_STATE, "the runtime has stopped");
    }
    return TDM_OK;
}

struct tdm__loop *tdm__current_loop(void)
{
    const tdm_runtime *runtime = tdm_runtime_current();

    return runtime == NULL ? NULL : runtime->loop;
}

tdm_status tdm__runtime_check(const tdm_runtime *runtime)
{
    if (runtime->is_forked_child) {
        return tdm__fail(TDM_E_STATE, "this process was forked from the one whose runtime this "
                                      "is: start a runtime of its own");
    }
    return TDM_OK;
}

void tdm_runtime_describe(tdm_runtime *runtime, struct tdm_runtime_info *info_out)
{
    TDM__REQUIRE_OR(runtime, );
    TDM__REQUIRE_OR(info_out, );

    *info_out = (struct tdm_runtime_info){
        .node_id = runtime->node_id,
        .node_name = runtime->node_name,
        .address = runtime->address,
        .directory = runtime->directory,
        .name_space = runtime->name_space,
        .actor_id = runtime->actor_id,
        .actor_name = runtime->actor_name,
        .gpus_count = runtime->gpus_count,
        .gpu_indices = runtime->gpu_indices,
        .job_id = runtime->job_id,
        .class_name = runtime->class_name,
        .restarts_count = runtime->restarts_count,
    };
}

/* ---- the daemon --------------------------------------------------------------------------- */

tdm_status tdm__runtime_set_daemon_lost(tdm_runtime *runtime, const char *detail)
{
    char *end = runtime->daemon_end_text;

    if (end[0] == '\0' && runtime->private_node != NULL && !runtime->is_stopping) {
        tdm__private_node_exit_text(runtime->private_node, end, sizeof(runtime->daemon_end_text));
    }
    if (end[0] == '\0') {
        (void)snprintf(end, sizeof(runtime->daemon_end_text), "%s", detail);
    }
    if (runtime->node_name[0] == '\0') {
        /* The node was never reached, so it has no name yet. */
        if (runtime->daemon_end_reason == TDM_E_AUTH) {
            return tdm__fail(TDM_E_AUTH, "%s", end);
        }
        return tdm__fail(TDM_E_NODE_LOST, "%s", end);
    }
    return tdm__fail(TDM_E_NODE_LOST, "node %s: its daemon has gone: %s", runtime->node_name, end);
}

bool tdm__runtime_kill_private_daemon(tdm_runtime *runtime)
{
    if (runtime->private_node == NULL) {
        return false;
    }
    runtime->daemon_is_killed = true;
    tdm__private_node_kill(runtime->private_node);
    return true;
}

tdm_status tdm__runtime_daemon(tdm_runtime *runtime, struct tdm__conn **daemon_out)
{
    TDM__LOCK(runtime);

    TDM_TRY(tdm__runtime_check(runtime));
    if (runtime->daemon == NULL) {
        return tdm__runtime_set_daemon_lost(runtime, "its connection has ended");
    }
    *daemon_out = runtime->daemon;
    return TDM_OK;
}

tdm_status tdm__runtime_call_daemon(tdm_runtime *runtime, const char *method,
                                    struct tdm_bytes packed, int64_t timeout_ms,
                                    tdm_document **document_out)
{
    struct tdm__rpc_request request = {
        .method = method, .packed = packed, .deadline_ms = tdm__deadline_after(timeout_ms)};
    char detail[TDM__ERROR_DETAIL_BYTES / 2];
    struct tdm__conn *daemon = NULL;
    tdm_status status;
    TDM__LOCK(runtime);

    TDM_TRY(tdm__runtime_daemon(runtime, &daemon));
    status = tdm__conn_call_wait(daemon, &request, document_out, NULL, NULL);
    if (status != TDM_E_CLOSED) {
        return status;
    }
    (void)snprintf(detail, sizeof(detail), "%.500s", tdm_error_detail());
    return tdm__runtime_set_daemon_lost(runtime, detail);
}

/* ---- waiting and stopping ------------------------------------------------------------------ */

tdm_status tdm__runtime_wait(tdm_runtime *runtime, bool (*done)(void *arg), void *arg,
                             int64_t timeout_ms)
{
    TDM_TRY(tdm__runtime_check(runtime));
    return tdm__loop_run(runtime->loop, done, arg, tdm__deadline_after(timeout_ms));
}

tdm_status tdm__runtime_on_stop(tdm_runtime *runtime, void (*fn)(void *arg), void *arg)
{
    if (runtime->stop_hooks_count == TDM__STOP_HOOKS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "more than %d stop hooks", (int)TDM__STOP_HOOKS_MAX);
    }
    runtime->stop_hooks[runtime->stop_hooks_count].fn = fn;
    runtime->stop_hooks[runtime->stop_hooks_count].arg = arg;
    runtime->stop_hooks_count++;
    return TDM_OK;
}

void tdm__runtime_run_stop_hooks(tdm_runtime *runtime)
{
    while (runtime->stop_hooks_count > 0) {
        runtime->stop_hooks_count--;
        runtime->stop_hooks[runtime->stop_hooks_count].fn(
            runtime->stop_hooks[runtime->stop_hooks_count].arg);
    }
}
