/* runtime.c - the runtime of one process: its event loop, its RPC endpoint, its connection to the
 * daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* One process has at most one runtime, `current_runtime`. A driver creates it in
 * tdm_runtime_start(); a worker creates it in actors/server/worker.c with the functions that both
 * share. It owns the loop, the endpoint, the actor channels, the object memory and the table of
 * references, and destroys them in reverse order of dependency.
 *
 * A driver either joins a running daemon at an address or starts a private node. It learns the
 * identity of the node by "node.describe" and leaves by "actor.leave", which ends its actors. In a
 * driver the background poller drives the loop while no thread of the user does. Any thread may
 * call the public functions; the loop's lock serialises them. A forked child keeps a marked copy
 * that refuses every use. */

#include "actors/runtime.h"

#include "actors/call_list.h"
#include "actors/client/actor_channel.h"
#include "actors/client/call_arguments.h"
#include "actors/common/fork_server.h"
#include "actors/objects/large_value.h"
#include "actors/objects/ref_table.h"
#include "actors/private_node.h"
#include "actors/server/worker.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/loop/background_poller.h"
#include "runtime/messages/messages.h"
#include "runtime/token.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    START_TIMEOUT_MS = 10000, /* Milliseconds to join a node, unless the options say otherwise. */
    /* Milliseconds to wait for the end of this driver's actors and daemon. */
    STOP_TIMEOUT_MS = 10000
};

/* Runtime of this process; NULL if none is started. Set by the starting thread only. */
static tdm_runtime *current_runtime;

/* ---- functions that drivers and workers share -------------------------------------------- */

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
        status = tdm__object_memory_create(runtime, &runtime->memory);
    }
    if (status == TDM_OK) {
        status = tdm__ref_table_create(runtime, &runtime->objects);
    }
    if (status == TDM_OK) {
        tdm__rpc_on_late_reply(runtime->rpc, tdm__ref_table_discard_stray_reply, runtime);
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
    tdm__ref_table_destroy(runtime->objects);
    runtime->objects = NULL;
    tdm__call_arguments_free_cached(runtime);
    tdm__object_memory_destroy(runtime->memory);
    runtime->memory = NULL;
    if (runtime->loop != NULL) {
        tdm__loop_destroy(runtime->loop);
    }
    if (current_runtime == runtime) {
        current_runtime = NULL;
    }
    free(runtime);
}

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

    (void)pthread_once(&once, register_fork_handler);
    current_runtime = runtime;
}

tdm_runtime *tdm_runtime_current(void)
{
    return current_runtime;
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
        tdm__worker_exit_without_daemon(runtime->worker); /* This does not return. */
    }
    tdm__actor_channels_fail_all(runtime, detail);
}

void tdm__runtime_set_daemon(tdm_runtime *runtime, struct tdm__conn *conn)
{
    runtime->daemon = conn;
    tdm__conn_on_closed(conn, on_daemon_closed, runtime);
}

tdm_status tdm__runtime_check(const tdm_runtime *runtime)
{
    if (runtime->is_forked_child) {
        return tdm__fail(TDM_E_STATE, "this process was forked from the one whose runtime this "
                                      "is: start a runtime of its own");
    }
    return TDM_OK;
}

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
        return tdm__fail(TDM_E_NODE_LOST, "%s", end);
    }
    return tdm__fail(TDM_E_NODE_LOST, "node %s: its daemon has gone: %s", runtime->node_name, end);
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

tdm_status tdm__runtime_wait(tdm_runtime *runtime, bool (*done)(void *arg), void *arg,
                             int64_t timeout_ms)
{
    TDM_TRY(tdm__runtime_check(runtime));
    return tdm__loop_run(runtime->loop, done, arg, tdm__deadline_after(timeout_ms));
}

tdm_status tdm__runtime_call_daemon(tdm_runtime *runtime, const char *method,
                                    struct tdm_bytes packed, int64_t timeout_ms,
                                    tdm_document **document_out)
{
    struct tdm__rpc_request request = {
        .method = method, .packed = packed, .deadline_ms = tdm__deadline_after(timeout_ms)};
    char detail[TDM__ERROR_DETAIL_BYTES / 2];
    struct tdm__conn *daemon;
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

/* ---- a driver --------------------------------------------------------------------------- */

/* Asks the daemon for the node's id, name, directory and listening host ("node.describe") and
 * stores them in the runtime. */
static tdm_status driver_describe_node(tdm_runtime *runtime, int64_t timeout_ms)
{
    struct tdm__node_description_message node;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm__runtime_call_daemon(runtime, "node.describe", (struct tdm_bytes){"\x90", 1},
                                     timeout_ms, &document));
    status = tdm__node_description_decode(tdm_document_root(document), &node);
    if (status == TDM_OK) {
        status = tdm__id_parse(node.id, &runtime->self.node);
    }
    if (status == TDM_OK) {
        (void)snprintf(runtime->node_id, sizeof(runtime->node_id), "%s", node.id);
        (void)snprintf(runtime->node_name, sizeof(runtime->node_name), "%s", node.name);
        (void)snprintf(runtime->directory, sizeof(runtime->directory), "%s", node.directory);
        (void)snprintf(runtime->listen_host, sizeof(runtime->listen_host), "%s", node.listen_host);
        tdm__rpc_set_identity(runtime->rpc, &runtime->self);
    }
    tdm_document_destroy(document);
    return status;
}

/* Connects to the daemon at `address` and learns the node's identity. */
static tdm_status driver_join_node(tdm_runtime *runtime, const char *address, int64_t timeout_ms)
{
    struct tdm__conn *daemon;

    (void)snprintf(runtime->address, sizeof(runtime->address), "%s", address);
    TDM_TRY(tdm__rpc_connect(runtime->rpc, address, &daemon));
    tdm__runtime_set_daemon(runtime, daemon);
    return tdm__wrap(driver_describe_node(runtime, timeout_ms), "joining the node at %s", address);
}

/* Serves calls that arrive at a driver: lists of calls, and requests about references. */
static void driver_serve_call(void *arg, struct tdm__incoming_call *incoming)
{
    if (!tdm__call_list_serve(arg, NULL, incoming) && !tdm__ref_table_serve(arg, incoming)) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "this process is a driver, no actor");
    }
}

/* Creates a runtime with a new random id of kind driver. */
static tdm_status driver_create(const uint8_t token[TDM__TOKEN_BYTES], tdm_runtime **runtime_out)
{
    struct tdm__peer_identity self = {.kind = TDM__PEER_DRIVER, .pid = getpid()};

    TDM_TRY(tdm__id_generate(&self.id));
    (void)snprintf(self.name, sizeof(self.name), "%s", program_invocation_short_name);
    return tdm__runtime_create(&self, token, runtime_out);
}

/* Returns the time to join a node: the caller's option or the default, in milliseconds. */
static int64_t start_timeout_ms(const struct tdm_runtime_options *options)
{
    return options->start_timeout_ms > 0 ? options->start_timeout_ms : START_TIMEOUT_MS;
}

/* Creates a driver's runtime that joins the daemon at `address`. Takes ownership of `node`, which
 * is NULL unless the daemon is private, only on success. */
static tdm_status driver_start(const struct tdm_runtime_options *options, const char *address,
                               struct tdm__private_node *node, tdm_runtime **runtime_out)
{
    const char *name_space = options->name_space;
    uint8_t token[TDM__TOKEN_BYTES];
    tdm_runtime *runtime;
    tdm_status status;

    if (name_space == NULL) {
        name_space = getenv("TANDEM_NAMESPACE");
    }
    TDM_TRY(tdm__token_for_address(address, token));
    TDM_TRY(driver_create(token, &runtime));
    (void)snprintf(runtime->name_space, sizeof(runtime->name_space), "%s",
                   name_space == NULL ? "default" : name_space);
    (void)tdm__id_text(&runtime->self.id, runtime->job_id);
    runtime->private_node = node;
    tdm__rpc_set_call_handler(runtime->rpc, driver_serve_call, runtime);
    status = driver_join_node(runtime, address, start_timeout_ms(options));
    if (status == TDM_OK) {
        status = tdm__background_poller_start(runtime->loop, &runtime->background_poller);
    }
    if (status != TDM_OK) {
        tdm__runtime_destroy(runtime);
        return status;
    }
    *runtime_out = runtime;
    return TDM_OK;
}

/* Starts a private node and a driver's runtime on it. */
static tdm_status driver_start_private_node(const struct tdm_runtime_options *options,
                                            tdm_runtime **runtime_out)
{
    struct tdm__private_node *node;
    tdm_status status;

    TDM_TRY(tdm__private_node_start(options, start_timeout_ms(options), &node));
    status = driver_start(options, tdm__private_node_address(node), node, runtime_out);
    if (status != TDM_OK) {
        tdm__private_node_stop(node, 0);
    }
    return status;
}

tdm_status tdm_runtime_start(const struct tdm_runtime_options *options, tdm_runtime **runtime_out)
{
    static const struct tdm_runtime_options defaults = TDM_RUNTIME_OPTIONS_INIT;
    const char *address;
    tdm_status status;

    tdm__worker_run_if_one(); /* This does not return in a worker. */
    TDM__REQUIRE(runtime_out);
    *runtime_out = NULL;
    if (current_runtime != NULL) {
        return tdm__fail(TDM_E_STATE, "this process has a runtime already");
    }
    options = options == NULL ? &defaults : options;
    if (options->size_bytes != sizeof(*options)) {
        return tdm__fail(TDM_E_INVAL, "runtime options of %zu bytes, this library knows %zu",
                         options->size_bytes, sizeof(*options));
    }
    tdm__log_init(program_invocation_short_name);
    address = options->address;
    if (address == NULL) {
        address = getenv("TANDEM_ADDRESS");
    }
    status = address == NULL || address[0] == '\0'
                 ? driver_start_private_node(options, runtime_out)
                 : driver_start(options, address, NULL, runtime_out);
    if (status == TDM_OK) {
        tdm__runtime_set_current(*runtime_out);
    }
    return status;
}

void tdm_runtime_stop(tdm_runtime *runtime)
{
    struct tdm__private_node *node;
    struct tdm__conn *daemon;

    if (runtime == NULL || runtime->is_forked_child) {
        return; /* The runtime belongs to the parent of the fork. */
    }
    TDM_ASSERT(runtime->worker == NULL);
    tdm__runtime_run_stop_hooks(runtime);
    if (tdm__runtime_daemon(runtime, &daemon) == TDM_OK) {
        /* Waits until this driver's actors have ended.  A daemon that cannot reply ends them
         * when it sees the connection close. */
        if (tdm__runtime_call_daemon(runtime, "actor.leave", (struct tdm_bytes){"\x90", 1},
                                     STOP_TIMEOUT_MS, NULL) != TDM_OK) {
            tdm__log(TDM__WARN, "runtime", "leaving the node: %s", tdm_error_detail());
        }
    }
    node = runtime->private_node;
    tdm__runtime_destroy(runtime);
    if (node != NULL) {
        tdm__private_node_stop(node, STOP_TIMEOUT_MS);
    }
}
