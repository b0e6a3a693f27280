/* worker.c - the main function of a worker process, which runs one actor. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon starts a worker with descriptor 3 connected to itself and the bootstrap (actor, node,
 * token) in descriptor 4. The worker creates a runtime, loads the class, runs the constructor and
 * reports "actor.constructed". Then the main thread runs the executor until the end.
 *
 * Calls arrive on whatever thread drives the loop and are dispatched by worker_serve(). The end is
 * requested by the daemon ("worker.exit"), by the actor (tdm_runtime_exit_actor) or forced by the
 * loss of the daemon, which exits at once. worker_exit() is the only graceful way out.
 * TDM__WORKER_VARIABLE tells workers and fork servers from drivers. */

#include "actors/worker.h"

#include "actors/call_list.h"
#include "actors/client/node_changes.h"
#include "actors/common/actor_class.h"
#include "actors/common/fork_server.h"
#include "actors/common/object_list.h"
#include "actors/common/worker_bootstrap.h"
#include "actors/common/worker_metrics.h"
#include "actors/objects/objects.h"
#include "actors/objects/pins.h"
#include "actors/objects/ref_table.h"
#include "actors/objects/settling.h"
#include "actors/process/runtime.h"
#include "actors/runtime_create.h"
#include "actors/server/call.h"
#include "actors/server/executor.h"
#include "actors/watched_processes.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/log.h"
#include "runtime/loop/background_poller.h"
#include "runtime/messages/messages.h"
#include "runtime/process_fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Milliseconds for reporting the end of the constructor to the daemon. */
enum { READY_TIMEOUT_MS = 10000 };

/* The one worker of this process, guarded by the loop's lock. */
struct tdm__worker {
    tdm_runtime *runtime; /* Runtime of this process, owned. */
    /* What the daemon passed to this worker when it started it. */
    struct tdm__bootstrap bootstrap;
    /* Class of the actor, borrowed; NULL until it is loaded. */
    const struct tdm_actor_class *actor_class;
    void *self; /* State of the actor, owned; NULL until the class is loaded. */
    /* Runs the actor's calls, owned; NULL until the class is loaded. */
    struct tdm__executor *executor;
    bool end_requested; /* True if the daemon requested the end before the executor existed. */
    /* Number of calls of tdm_runtime_lend_cpus() that tdm_runtime_take_cpus_back() has not ended.
     */
    uint32_t cpu_lendings_count;
    char unix_address[TDM__ADDRESS_BYTES]; /* Address of the worker for callers on this node. */
    /* Address of the worker for callers on other nodes; "" on a single node. */
    char tcp_address[TDM__ADDRESS_BYTES];
};

/* ---- dispatching calls ------------------------------------------------------------------ */

/* Serves "worker.exit" of the daemon: ends the actor. */
static void worker_serve_exit(struct tdm__worker *worker, struct tdm__incoming_call *incoming)
{
    struct tdm__worker_exit_message message = {false};

    if (tdm__incoming_decode(incoming, tdm__worker_exit_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    if (worker->executor != NULL) {
        tdm__executor_request_end(worker->executor, message.drain);
    } else {
        worker->end_requested = true;
    }
    tdm__incoming_reply_pack(incoming, "");
}

/* Serves the daemon's calls for metrics and spans; returns false for any other method. */
static bool worker_serve_metrics(const struct tdm__worker *worker,
                                 struct tdm__incoming_call *incoming)
{
    const struct tdm__executor *executor = worker->executor;

    return executor == NULL
               ? tdm__worker_metrics_serve(incoming, 0, NULL)
               : tdm__worker_metrics_serve(incoming, tdm__executor_waiting_count(executor),
                                           tdm__executor_method_metrics(executor));
}

/* Dispatches an incoming call: to the actor, or to one of the services of a worker. */
static void worker_serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct tdm__worker *worker = arg;

    if (tdm__id_equal(tdm__incoming_target(incoming), &worker->bootstrap.spec->id)) {
        tdm__executor_enqueue(worker->executor, incoming);
    } else if (strcmp(tdm__incoming_method(incoming), "worker.exit") == 0 &&
               tdm__incoming_peer(incoming)->kind == TDM__PEER_DAEMON) {
        worker_serve_exit(worker, incoming);
    } else if (tdm__incoming_peer(incoming)->kind == TDM__PEER_DAEMON &&
               worker_serve_metrics(worker, incoming)) {
        return;
    } else if (!tdm__node_change_serve(worker->runtime, incoming) &&
               !tdm__call_list_serve(worker->runtime, worker->executor, incoming) &&
               !tdm__object_list_serve(worker->runtime, incoming) &&
               !tdm__objects_serve(worker->runtime, incoming)) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND,
                           "this process is another actor; the address was reused");
    }
}

tdm_status tdm_runtime_exit_actor(tdm_runtime *runtime)
{
    TDM__REQUIRE(runtime);

    struct tdm__rpc_request request = {
        .method = "actor.exiting", .packed = {"\x90", 1}, .deadline_ms = TDM__NEVER};
    struct tdm__conn *daemon;
    TDM__LOCK(runtime);

    if (runtime->worker == NULL) {
        return tdm__fail(TDM_E_STATE, "this process is a driver, not an actor");
    }
    /* The daemon must learn of the exit before the connection closes; else it would restart the
     * actor. */
    TDM_TRY(tdm__runtime_daemon(runtime, &daemon));
    TDM_TRY(tdm__conn_call(daemon, &request, NULL, NULL, NULL));
    if (runtime->worker->executor != NULL) {
        tdm__executor_request_end(runtime->worker->executor, false);
    } else {
        runtime->worker->end_requested = true; /* The actor exits in its constructor. */
    }
    return TDM_OK;
}

/* Tells the daemon whether the actor lends its CPUs. Does not wait for the reply. */
static tdm_status worker_tell_cpus(tdm_runtime *runtime, bool lent)
{
    const struct tdm__actor_cpus_message message = {.lent = lent};
    struct tdm__rpc_request request = {.method = "actor.cpus", .deadline_ms = TDM__NEVER};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__runtime_daemon(runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_cpus_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(daemon, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm_runtime_lend_cpus(tdm_runtime *runtime)
{
    TDM__REQUIRE(runtime);

    TDM__LOCK(runtime);

    if (runtime->worker == NULL) {
        return tdm__fail(TDM_E_STATE, "this process is a driver, which holds no CPUs");
    }
    runtime->worker->cpu_lendings_count++;
    return runtime->worker->cpu_lendings_count > 1 ? TDM_OK : worker_tell_cpus(runtime, true);
}

tdm_status tdm_runtime_take_cpus_back(tdm_runtime *runtime)
{
    TDM__REQUIRE(runtime);

    TDM__LOCK(runtime);

    if (runtime->worker == NULL || runtime->worker->cpu_lendings_count == 0) {
        return tdm__fail(TDM_E_STATE, "this process has lent no CPUs");
    }
    runtime->worker->cpu_lendings_count--;
    return runtime->worker->cpu_lendings_count > 0 ? TDM_OK : worker_tell_cpus(runtime, false);
}

/* ---- start ------------------------------------------------------------------------------ */

/* Loads the library of the spec, finds the class and allocates the state of the actor. */
static tdm_status worker_load_class(struct tdm__worker *worker)
{
    const struct tdm__actor_spec *spec = worker->bootstrap.spec;
    char classes[256];

    if (spec->library[0] != '\0' && dlopen(spec->library, RTLD_NOW | RTLD_LOCAL) == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "library %s: %s", spec->library, dlerror());
    }
    worker->actor_class = tdm__class_find(spec->class_name);
    if (worker->actor_class == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "no class \"%s\" in %s; it has: %s", spec->class_name,
                         spec->library[0] != '\0' ? spec->library : spec->program,
                         tdm__classes_text(classes, sizeof(classes)));
    }
    worker->self =
        calloc(1, worker->actor_class->state_bytes == 0 ? 1 : worker->actor_class->state_bytes);
    if (worker->self == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu bytes of state", worker->actor_class->state_bytes);
    }
    return TDM_OK;
}

/* Creates the actor's executor and installs the hooks for references and large arguments. */
static tdm_status worker_create_executor(struct tdm__worker *worker)
{
    struct tdm__executor_options options = {
        .loop = worker->runtime->loop,
        .actor_class = worker->actor_class,
        .self = worker->self,
        .out_of_order = worker->bootstrap.spec->allow_out_of_order,
        .max_concurrency = worker->bootstrap.spec->max_concurrency};

    TDM_TRY(tdm__executor_create(&options, &worker->executor));
    tdm__executor_set_arrival_hook(worker->executor, tdm__call_fetch_arguments, NULL);
    tdm__executor_set_reply_hook(worker->executor, tdm__call_pin_reply_refs, NULL);
    if (worker->end_requested) {
        tdm__executor_request_end(worker->executor, false);
    }
    return TDM_OK;
}

/* Listens for callers on a Unix socket and, in a cluster, on a TCP port. */
static tdm_status worker_listen(struct tdm__worker *worker)
{
    const struct tdm__bootstrap *bootstrap = &worker->bootstrap;
    char id[TDM__ID_TEXT_BYTES];
    char address[TDM__ADDRESS_BYTES + 40];

    (void)snprintf(address, sizeof(address), "unix:%s/" TDM__WORKER_SOCKET, bootstrap->directory,
                   tdm__id_text(&bootstrap->spec->id, id));
    TDM_TRY(tdm__rpc_listen(worker->runtime->rpc, address, worker->unix_address,
                            sizeof(worker->unix_address)));
    if (bootstrap->listen_host[0] == '\0') {
        return TDM_OK;
    }
    (void)snprintf(address, sizeof(address), "tcp:%s:0", bootstrap->listen_host);
    return tdm__rpc_listen(worker->runtime->rpc, address, worker->tcp_address,
                           sizeof(worker->tcp_address));
}

/* Loads the actor's class, starts listening and runs the constructor. */
static tdm_status worker_construct_actor(struct tdm__worker *worker)
{
    const struct tdm__actor_spec *spec = worker->bootstrap.spec;
    struct tdm__pins pins = {0};
    tdm_document *arguments;
    tdm_status status;
    TDM__LOCK(worker->runtime);

    TDM_TRY(worker_load_class(worker));
    TDM_TRY(worker_create_executor(worker));
    TDM_TRY(worker_listen(worker));
    TDM_TRY(
        tdm_document_parse((struct tdm_bytes){spec->arguments, spec->arguments_bytes}, &arguments));
    status = tdm__pins_from_document(worker->runtime, arguments, &pins);
    if (status == TDM_OK) {
        status = tdm__call_construct(worker->runtime->loop, worker->actor_class, worker->self,
                                     arguments);
    } else {
        tdm_document_destroy(arguments);
    }
    /* The creator may release its references once the daemon reports the actor as alive. */
    if (status == TDM_OK) {
        status = tdm__pins_wait_settled(worker->runtime, &pins, READY_TIMEOUT_MS);
    }
    tdm__pins_release(&pins);
    return tdm__wrap(status, "its constructor");
}

/* Reports the result of the constructor to the daemon and waits for its reply. */
static tdm_status worker_report_constructed(struct tdm__worker *worker, tdm_status status)
{
    const struct tdm__actor_constructed_message message = {
        .status = status,
        .detail = status == TDM_OK ? "" : tdm_error_detail(),
        .unix_address = worker->unix_address,
        .tcp_address = worker->tcp_address[0] == '\0' ? NULL : worker->tcp_address};
    tdm_writer *writer;
    tdm_status told;

    TDM_TRY(tdm_writer_create(&writer));
    told = tdm__actor_constructed_encode(&message, writer);
    if (told == TDM_OK) {
        told = tdm__runtime_call_daemon(worker->runtime, "actor.constructed",
                                        tdm_writer_bytes(writer), READY_TIMEOUT_MS, NULL);
    }
    tdm_writer_destroy(writer);
    return told;
}

/* Copies identities and grants from the bootstrap into the runtime. */
static void worker_fill_runtime(tdm_runtime *runtime, const struct tdm__bootstrap *bootstrap)
{
    const struct tdm__actor_spec *spec = bootstrap->spec;

    (void)tdm__id_text(&bootstrap->node, runtime->node_id);
    (void)tdm__id_text(&spec->id, runtime->actor_id);
    (void)snprintf(runtime->node_name, sizeof(runtime->node_name), "%s", bootstrap->node_name);
    (void)snprintf(runtime->address, sizeof(runtime->address), "%s", bootstrap->daemon_address);
    (void)snprintf(runtime->directory, sizeof(runtime->directory), "%s", bootstrap->directory);
    (void)snprintf(runtime->listen_host, sizeof(runtime->listen_host), "%s",
                   bootstrap->listen_host);
    (void)snprintf(runtime->name_space, sizeof(runtime->name_space), "%s", spec->name_space);
    (void)snprintf(runtime->actor_name, sizeof(runtime->actor_name), "%s", spec->name);
    (void)snprintf(runtime->class_name, sizeof(runtime->class_name), "%s", spec->class_name);
    (void)tdm__id_text(&spec->job, runtime->job_id);
    tdm__rpc_set_tcp_settings(runtime->rpc, &bootstrap->tcp);
    runtime->unreachable_ms = bootstrap->unreachable_ms;
    runtime->restarts_count = bootstrap->incarnation;
    runtime->group = spec->group;
    runtime->captures_child_actors = spec->captures_child_actors;
    runtime->gpus_count = bootstrap->gpus_count;
    memcpy(runtime->gpu_indices, bootstrap->gpu_indices, sizeof(runtime->gpu_indices));
}

/* Creates the runtime and adopts the inherited connection to the daemon. */
static tdm_status worker_join_daemon(struct tdm__worker *worker)
{
    const struct tdm__actor_spec *spec = worker->bootstrap.spec;
    struct tdm__peer_identity self = {
        .kind = TDM__PEER_WORKER, .id = spec->id, .node = worker->bootstrap.node, .pid = getpid()};
    struct tdm__conn *daemon;

    (void)tdm__actor_label(spec->name, spec->class_name, &spec->id, self.name, sizeof(self.name));
    TDM_TRY(tdm__runtime_create(&self, worker->bootstrap.token, &worker->runtime));
    worker_fill_runtime(worker->runtime, &worker->bootstrap);
    worker->runtime->worker = worker;
    tdm__runtime_set_current(worker->runtime);
    tdm__rpc_set_call_handler(worker->runtime->rpc, worker_serve, worker);
    TDM_TRY(tdm__rpc_adopt(worker->runtime->rpc, TDM__WORKER_DAEMON_FD, false, &daemon));
    tdm__runtime_set_daemon(worker->runtime, daemon);
    return TDM_OK;
}

/* ---- end -------------------------------------------------------------------------------- */

/* Destroys the executor. Callbacks that wait for references to be settled are abandoned first,
 * because they would use freed calls. */
static void worker_destroy_executor(struct tdm__worker *worker)
{
    TDM__LOCK(worker->runtime);

    tdm__pins_abandon_settling(worker->runtime);
    tdm__executor_destroy(worker->executor);
}

/* Ends the process gracefully: replies to waiting calls, destroys the actor's state, and calls
 * exit() so that sanitizers and atexit handlers run. A code other than 0 skips the class's destruct
 * function. */
_Noreturn static void worker_exit(struct tdm__worker *worker, int code)
{
    if (worker->executor != NULL && code != 0) {
        tdm__executor_request_end(worker->executor, false);
        tdm__executor_run(worker->executor);
    }
    tdm__background_poller_stop(
        worker->runtime->background_poller); /* This is the only thread from here on. */
    worker->runtime->background_poller = NULL;
    tdm__watched_processes_clear(worker->runtime);
    if (worker->self != NULL && worker->actor_class->destruct != NULL && code == 0) {
        worker->actor_class->destruct(worker->self);
    }
    tdm__runtime_run_stop_hooks(worker->runtime);
    free(worker->self);
    worker_destroy_executor(worker);
    worker->runtime->worker = NULL; /* The daemon may close the connection from here on. */
    tdm__runtime_destroy(worker->runtime);
    tdm__actor_spec_destroy(worker->bootstrap.spec);
    exit(code); /* NOLINT(concurrency-mt-unsafe) the last act of the process */
}

/* Ends the process at once because of a fault that leaves it unable to work, for example a CUDA
 * error that sticks to it; see runtime/process_fault.h. The daemon adds the log line to the cause
 * of the actor's death. No function of the actor runs any more, because it could meet the fault
 * again. */
static void worker_end_at_fault(const char *cause)
{
    tdm__log(TDM__ERROR, "worker", "this actor's process ends: %s", cause);
    _exit(1);
}

/* Runs the worker from its bootstrap to its end. */
_Noreturn static void worker_main(void)
{
    static struct tdm__worker worker;
    tdm_status status;

    /* Line buffering: the daemon reads the log file while it grows. */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    tdm__log_init("worker");
    tdm__process_fault_set_handler(worker_end_at_fault);
    status = tdm__bootstrap_read(TDM__WORKER_BOOTSTRAP_FD, &worker.bootstrap);
    (void)close(TDM__WORKER_BOOTSTRAP_FD);
    if (status == TDM_OK) {
        (void)fcntl(TDM__WORKER_DAEMON_FD, F_SETFD, FD_CLOEXEC);
        status = worker_join_daemon(&worker);
    }
    if (status != TDM_OK) {
        tdm__log(TDM__ERROR, "worker", "%s: %s", tdm_strerror(status), tdm_error_detail());
        exit(1); /* NOLINT(concurrency-mt-unsafe) */
    }
    (void)prctl(PR_SET_NAME, worker.runtime->self.name);
    tdm__failpoint_set_process(worker.runtime->self.name);
    status = tdm__background_poller_start(worker.runtime->loop, &worker.runtime->background_poller);
    if (status == TDM_OK) {
        status = worker_construct_actor(&worker);
    }
    if (worker_report_constructed(&worker, status) != TDM_OK || status != TDM_OK) {
        worker_exit(&worker, 1);
    }
    tdm__executor_run(worker.executor);
    worker_exit(&worker, 0);
}

void tdm__worker_run_if_one(void)
{
    const char *role = getenv(TDM__WORKER_VARIABLE);

    if (role == NULL) {
        return;
    }
    if (strcmp(role, "fork_server") == 0) {
        (void)unsetenv(TDM__WORKER_VARIABLE); /* NOLINT(concurrency-mt-unsafe) one thread */
        tdm__fork_server_run_if_one();        /* This returns in each forked worker. */
    }
    (void)unsetenv(TDM__WORKER_VARIABLE); /* NOLINT(concurrency-mt-unsafe) one thread */
    worker_main();
}
