/* worker.c - a simulated process that hosts an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cluster_sim/worker.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/loop/loop_lock.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The exit code of a worker that crashes, and of one whose constructor has failed. */
enum { CRASHED = 1 << 8 };

/* What the process knows. */
struct host {
    struct sim_worker *worker;
    struct tdm__loop *loop;
    struct tdm__rpc *rpc;
    struct tdm__conn *daemon; /* NULL once closed. */
    bool exit_is_wanted;
};

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct host *host = arg;
    const char *method = tdm__incoming_method(incoming);

    if (strcmp(method, "worker.exit") == 0) {
        host->exit_is_wanted = true;
    }
    tdm__incoming_reply_pack(incoming, "");
}

static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    (void)conn;
    (void)reason;
    (void)detail;
    ((struct host *)arg)->daemon = NULL;
}

static bool must_end(void *arg)
{
    const struct host *host = arg;

    return host->exit_is_wanted || host->daemon == NULL;
}

static void host_open(struct host *host)
{
    const struct tdm__bootstrap *bootstrap = &host->worker->bootstrap;
    struct tdm__peer_identity self = {.kind = TDM__PEER_WORKER,
                                      .id = bootstrap->spec->id,
                                      .node = bootstrap->node,
                                      .pid = host->worker->pid,
                                      .name = "worker"};

    TDM_ASSERT(tdm__loop_create(&host->loop) == TDM_OK);
    TDM_ASSERT(tdm__rpc_create(host->loop, &self, bootstrap->token, &host->rpc) == TDM_OK);
    tdm__rpc_set_call_handler(host->rpc, serve, host);
    if (tdm__rpc_adopt(host->rpc, host->worker->line_fd, false, &host->daemon) == TDM_OK) {
        tdm__conn_on_closed(host->daemon, on_closed, host);
    } else {
        (void)close(host->worker->line_fd);
        host->daemon = NULL;
    }
}

/* Tells the daemon how the constructor ended. */
static void host_report_constructed(struct host *host, bool failed)
{
    const struct tdm__actor_constructed_message message = {
        .status = failed ? TDM_E_METHOD : TDM_OK,
        .detail = failed ? "the constructor fails" : "",
        .unix_address = "unix:/nowhere"};
    struct tdm__rpc_request request = {.method = "actor.constructed", .deadline_ms = TDM__NEVER};
    tdm_writer *writer;

    if (host->daemon == NULL) {
        return;
    }
    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    TDM_ASSERT(tdm__actor_constructed_encode(&message, writer) == TDM_OK);
    request.packed = tdm_writer_bytes(writer);
    (void)tdm__conn_call(host->daemon, &request, NULL, NULL, NULL);
    tdm_writer_destroy(writer);
}

static int host_live(struct host *host)
{
    bool fails = sim_below(12) == 0;
    int64_t crash_ms = sim_below(4) == 0 ? sim_now_ms() + 1000 + sim_below(15000) : TDM__NEVER;

    (void)tdm__loop_run(host->loop, must_end, host,
                        sim_now_ms() +
                            (sim_below(6) == 0 ? 1000 + sim_below(2000) : sim_below(60)));
    if (must_end(host) || sim_is_dying()) {
        return 0;
    }
    host_report_constructed(host, fails);
    (void)tdm__loop_run(host->loop, must_end, host, fails ? TDM__NEVER : crash_ms);
    return must_end(host) ? 0 : CRASHED;
}

static void worker_main(void *arg)
{
    struct host host = {.worker = arg};
    int wait_status;

    host_open(&host);
    wait_status = host_live(&host);
    tdm__rpc_destroy(host.rpc);
    tdm__loop_destroy(host.loop);
    sim_trace("worker %d ends with %d", host.worker->pid, wait_status);
    processes_worker_ended(host.worker, wait_status);
}

static void on_kill(void *arg)
{
    (void)arg; /* Every wait fails from now on. */
}

void worker_start(struct sim_worker *worker)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "w%d.%d", (int)worker->machine, (int)worker->pid & 0xffff);
    worker->process = sim_process_create(name, worker_main, on_kill, worker);
    sim_process_set_machine(worker->process, worker->machine);
}
