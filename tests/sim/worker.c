/* worker.c - a simulated process that is an actor: its life, as in actors/worker.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/worker.h"

#include "actors/common/actor_class.h"
#include "actors/objects/large_value.h"
#include "actors/objects/objects.h"
#include "actors/objects/ref_table.h"
#include "actors/objects/settling.h"
#include "actors/process/runtime.h"
#include "actors/runtime_create.h"
#include "actors/server/call.h"
#include "actors/server/executor.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "tests/sim/methods.h"
#include "tests/sim/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READY_MS = 60000 };

struct worker {
    struct daemon_actor *actor;
    tdm_runtime *runtime;
    const struct tdm_actor_class *actor_class;
    void *self;
    struct tdm__executor *executor;
    bool unwanted;
    bool asked_to_end;
    int64_t pid;
    uint32_t incarnation;
    char address[TDM__ADDRESS_BYTES];
};

static void serve_exit(struct worker *worker, struct tdm__incoming_call *incoming)
{
    struct tdm__worker_exit_message message;

    TDM_ASSERT(tdm__incoming_decode(incoming, tdm__worker_exit_table(), &message) == TDM_OK);
    worker->asked_to_end = true;
    if (worker->executor != NULL) {
        tdm__executor_request_end(worker->executor, message.drain);
    }
    tdm__incoming_reply_pack(incoming, "");
}

static void arrive(struct worker *worker, struct tdm__incoming_call *incoming)
{
    if (worker->executor == NULL) {
        tdm__incoming_fail(incoming, TDM_E_ACTOR_DIED, "the actor has ended");
    } else {
        tdm__executor_enqueue(worker->executor, incoming);
    }
}

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct worker *worker = arg;
    const char *method = tdm__incoming_method(incoming);
    bool of_daemon = tdm__incoming_peer(incoming)->kind == TDM__PEER_DAEMON;

    if (tdm__id_equal(tdm__incoming_target(incoming), &worker->actor->spec->id)) {
        arrive(worker, incoming);
    } else if (of_daemon && strcmp(method, "worker.exit") == 0) {
        serve_exit(worker, incoming);
    } else if (of_daemon) {
        tdm__incoming_reply_pack(incoming, ""); /* a ping */
    } else if (!tdm__objects_serve(worker->runtime, incoming)) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "this process is another actor");
    }
}

/* ---- its life --------------------------------------------------------------------------- */

static void fill_runtime(tdm_runtime *runtime, const struct tdm__actor_spec *spec)
{
    (void)tdm__id_text(&daemon_here.node, runtime->node_id);
    runtime->unreachable_ms = 10000;
    (void)tdm__id_text(&spec->id, runtime->actor_id);
    (void)snprintf(runtime->node_name, sizeof(runtime->node_name), "here");
    (void)snprintf(runtime->address, sizeof(runtime->address), "%s", daemon_here.address);
    (void)snprintf(runtime->directory, sizeof(runtime->directory), "%s", daemon_here.directory);
}

static tdm_status join_daemon(struct worker *worker)
{
    const struct tdm__actor_spec *spec = worker->actor->spec;
    struct tdm__peer_identity self = {
        .kind = TDM__PEER_WORKER, .id = spec->id, .node = daemon_here.node, .pid = worker->pid};
    struct tdm__conn *daemon;

    (void)snprintf(self.name, sizeof(self.name), "%s/%lld", spec->class_name,
                   (long long)worker->pid);
    TDM_TRY(tdm__runtime_create(&self, daemon_token, &worker->runtime));
    fill_runtime(worker->runtime, spec);
    sim_set_runtime(worker->runtime);
    tdm__rpc_set_call_handler(worker->runtime->rpc, serve, worker);
    TDM_TRY(tdm__rpc_connect(worker->runtime->rpc, daemon_here.address, &daemon));
    tdm__runtime_set_daemon(worker->runtime, daemon);
    return TDM_OK;
}

static tdm_status make_executor(struct worker *worker)
{
    const struct tdm__actor_spec *spec = worker->actor->spec;
    struct tdm__executor_options options = {.loop = worker->runtime->loop,
                                            .max_concurrency = spec->max_concurrency};

    worker->actor_class = tdm__class_find(spec->class_name);
    TDM_ASSERT(worker->actor_class != NULL);
    worker->self = calloc(1, worker->actor_class->state_bytes);
    TDM_ASSERT(worker->self != NULL);
    methods_set_actor(worker->self, worker->runtime->actor_id, worker->incarnation);
    options.actor_class = worker->actor_class;
    options.self = worker->self;
    TDM_TRY(tdm__executor_create(&options, &worker->executor));
    tdm__executor_set_reply_hook(worker->executor, tdm__call_pin_reply_refs, NULL);
    return TDM_OK;
}

static tdm_status open_doors(struct worker *worker)
{
    char address[TDM__ADDRESS_BYTES];
    tdm_writer *writer;
    tdm_status status;

    (void)snprintf(address, sizeof(address), "unix:%s/a-%lld", daemon_here.directory,
                   (long long)worker->pid);
    TDM_TRY(
        tdm__rpc_listen(worker->runtime->rpc, address, worker->address, sizeof(worker->address)));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "s", worker->address);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(worker->runtime, "actor.constructed",
                                          tdm_writer_bytes(writer), READY_MS, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status live(struct worker *worker)
{
    TDM__LOCK(worker->runtime);

    TDM_TRY(make_executor(worker));
    if (worker->unwanted) {
        tdm__executor_request_end(worker->executor, false);
    }
    return open_doors(worker);
}

static void check_left(struct worker *worker)
{
    uint32_t waiting = tdm__executor_waiting_count(worker->executor);

    if (waiting > 0 && !sim_is_dying()) {
        model_fail("%u calls still wait in an actor that has ended", waiting);
    }
}

/* As in actors/worker.c; who kills the process from here on finds none. */
static void end_executor(struct worker *worker)
{
    struct tdm__executor *executor = worker->executor;
    TDM__LOCK(worker->runtime);

    worker->executor = NULL;
    tdm__pins_abandon_settling(worker->runtime);
    tdm__executor_destroy(executor);
}

static void worker_main(void *arg)
{
    struct worker *worker = arg;
    tdm_status status = join_daemon(worker);
    bool well;

    if (status == TDM_OK) {
        status = live(worker);
    }
    if (worker->executor != NULL) {
        if (status != TDM_OK) {
            tdm__executor_request_end(worker->executor, false);
        }
        tdm__executor_run(worker->executor);
        sim_join_others();
        check_left(worker);
        worker->actor_class->destruct(worker->self);
        end_executor(worker);
    }
    free(worker->self);
    well = worker->asked_to_end && !sim_is_dying();
    sim_trace("leaves %s", well ? "well" : "");
    if (worker->runtime != NULL) {
        tdm__runtime_destroy(worker->runtime);
        sim_set_runtime(NULL);
    }
    daemon_ended(worker->actor, well);
    free(worker);
}

static void on_kill(void *arg)
{
    struct worker *worker = arg;

    worker->unwanted = true;
    if (worker->executor != NULL) {
        tdm__executor_request_end(worker->executor, false);
    }
}

struct sim_process *worker_start(struct daemon_actor *actor)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    char name[32];

    TDM_ASSERT(worker != NULL);
    worker->actor = actor;
    worker->pid = actor->pid;
    worker->incarnation = actor->incarnation;
    (void)snprintf(name, sizeof(name), "%.2s/%lld", actor->spec->class_name, (long long)actor->pid);
    return sim_process_create(name, worker_main, on_kill, worker);
}
