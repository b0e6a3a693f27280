/* driver.c - the runtime of a driver: joins a node or starts one, and leaves it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* tdm_runtime_start() creates the runtime of a driver; in a process that a daemon started as a
 * worker it runs the actor instead and does not return (worker.c). A driver either joins a running
 * daemon at an address or starts a private node. It learns the identity of the node by
 * "node.describe" and leaves by "actor.leave", which ends its actors. In a driver the background
 * poller drives the loop while no thread of the user does. */

#include "actors/call_list.h"
#include "actors/client/node_changes.h"
#include "actors/common/actor_spec.h"
#include "actors/common/object_list.h"
#include "actors/objects/objects.h"
#include "actors/objects/ref_table.h"
#include "actors/process/private_node.h"
#include "actors/process/runtime.h"
#include "actors/process/started_node.h"
#include "actors/runtime_create.h"
#include "actors/worker.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/descriptors.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/loop/background_poller.h"
#include "runtime/messages/messages.h"
#include "runtime/token.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    START_TIMEOUT_MS = 10000, /* Milliseconds to join a node, unless the options say otherwise. */
    /* Milliseconds to wait for the end of this driver's actors and daemon. */
    STOP_TIMEOUT_MS = 10000
};

/* Asks the daemon for the node's id, name, directory, listening host and use of TCP
 * ("node.describe") and stores them in the runtime. */
static tdm_status driver_describe_node(tdm_runtime *runtime, int64_t timeout_ms)
{
    struct tdm__node_description_message node;
    struct tdm__tcp_settings tcp;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm__runtime_call_daemon(runtime, "node.describe", (struct tdm_bytes){"\x90", 1},
                                     timeout_ms, &document));
    status = tdm__node_description_decode(tdm_document_root(document), &node);
    if (status == TDM_OK) {
        status = tdm__id_parse(node.id, &runtime->self.node);
    }
    if (status == TDM_OK) {
        status = tdm__tcp_settings_of_message(&node.tcp, &tcp);
    }
    if (status == TDM_OK) {
        (void)snprintf(runtime->node_id, sizeof(runtime->node_id), "%s", node.id);
        (void)snprintf(runtime->node_name, sizeof(runtime->node_name), "%s", node.name);
        (void)snprintf(runtime->directory, sizeof(runtime->directory), "%s", node.directory);
        (void)snprintf(runtime->listen_host, sizeof(runtime->listen_host), "%s", node.listen_host);
        runtime->unreachable_ms = node.unreachable_ms;
        tdm__rpc_set_identity(runtime->rpc, &runtime->self);
        tdm__rpc_set_tcp_settings(runtime->rpc, &tcp);
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

/* Serves calls that arrive at a driver: changes of nodes, lists of calls and objects, and requests
 * about references. */
static void driver_serve_call(void *arg, struct tdm__incoming_call *incoming)
{
    if (!tdm__node_change_serve(arg, incoming) && !tdm__call_list_serve(arg, NULL, incoming) &&
        !tdm__object_list_serve(arg, incoming) && !tdm__objects_serve(arg, incoming)) {
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
    name_space = name_space == NULL ? "default" : name_space;
    TDM_TRY(tdm__check_name("name space", name_space));
    TDM_TRY(tdm__token_for_address(address, token));
    TDM_TRY(driver_create(token, &runtime));
    (void)snprintf(runtime->name_space, sizeof(runtime->name_space), "%s", name_space);
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
    char resolved[TDM__ADDRESS_BYTES];
    const char *address;
    tdm_status status;

    tdm__worker_run_if_one(); /* This does not return in a worker. */
    TDM__REQUIRE(runtime_out);
    *runtime_out = NULL;
    if (tdm_runtime_current() != NULL) {
        return tdm__fail(TDM_E_STATE, "this process has a runtime already");
    }
    options = options == NULL ? &defaults : options;
    if (options->size_bytes != sizeof(*options)) {
        return tdm__fail(TDM_E_INVAL, "runtime options of %zu bytes, this library knows %zu",
                         options->size_bytes, sizeof(*options));
    }
    tdm__log_init(program_invocation_short_name);
    tdm__descriptors_raise_limit();
    address = options->address;
    if (address == NULL) {
        address = getenv("TANDEM_ADDRESS");
    }
    if (address == NULL || address[0] == '\0') {
        status = driver_start_private_node(options, runtime_out);
    } else {
        TDM_TRY(tdm__node_address_resolve(address, resolved, sizeof(resolved)));
        status = driver_start(options, resolved, NULL, runtime_out);
    }
    if (status == TDM_OK) {
        tdm__runtime_set_current(*runtime_out);
    }
    return status;
}

void tdm_runtime_stop(tdm_runtime *runtime)
{
    struct tdm__private_node *node;
    struct tdm__conn *daemon;

    if (runtime == NULL || runtime != tdm_runtime_current()) {
        return; /* The runtime has stopped already, or belongs to the parent of a fork. */
    }
    TDM_ASSERT(runtime->worker == NULL);
    tdm__runtime_run_stop_hooks(runtime);
    if (!runtime->daemon_is_killed && tdm__runtime_daemon(runtime, &daemon) == TDM_OK) {
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
