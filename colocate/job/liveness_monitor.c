/* liveness_monitor.c - asks actors whether they are still there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/liveness_monitor.h"

#include "actors/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { ASK_EVERY_MS = 250, SETTLE_GRACE_MS = 1000, WHY_BYTES = 512 };

/* What is known of one actor; the last one is about the daemon itself. */
struct liveness_probe {
    struct tdm__liveness_monitor *monitor;
    uint64_t request_id; /* under way; 0: none */
    int64_t asked_ms;
    char name[64];
    bool gone;
    char why[WHY_BYTES];
};

/* All of it changes with the loop's lock only. */
struct tdm__liveness_monitor {
    tdm_runtime *runtime; /* borrowed */
    int64_t stall_ms;
    int64_t next_ms;  /* not to be asked before */
    int64_t heard_ms; /* of the daemon, last */
    uint32_t count;
    uint32_t questions_count;       /* under way */
    struct liveness_probe pulses[]; /* count, and one of the daemon */
};

tdm_status tdm__liveness_monitor_create(tdm_runtime *runtime, uint32_t count, int64_t stall_ms,
                                        struct tdm__liveness_monitor **watch_out)
{
    struct tdm__liveness_monitor *monitor =
        calloc(1, sizeof(*monitor) + ((size_t)count + 1) * sizeof(monitor->pulses[0]));

    if (monitor == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a monitor over %u actors", count);
    }
    monitor->runtime = runtime;
    monitor->stall_ms = stall_ms;
    monitor->count = count;
    for (uint32_t i = 0; i <= count; i++) {
        monitor->pulses[i].monitor = monitor;
    }
    *watch_out = monitor;
    return TDM_OK;
}

void tdm__liveness_monitor_destroy(struct tdm__liveness_monitor *monitor)
{
    if (monitor == NULL) {
        return;
    }
    for (uint32_t i = 0; i <= monitor->count; i++) {
        tdm__liveness_monitor_reset(monitor, i);
    }
    free(monitor);
}

void tdm__liveness_monitor_reset(struct tdm__liveness_monitor *monitor, uint32_t index)
{
    struct liveness_probe *pulse = &monitor->pulses[index];
    TDM__LOCK(monitor->runtime);

    if (pulse->request_id != 0) {
        if (monitor->runtime->daemon != NULL) {
            tdm__conn_forget_call(monitor->runtime->daemon, pulse->request_id);
        }
        monitor->questions_count--;
    }
    *pulse = (struct liveness_probe){.monitor = monitor};
}

/* ---- questions -------------------------------------------------------------------------- */

/* Since then, and lately: a daemon that stood still for a while has passed nothing on. */
static bool daemon_was_heard(const struct tdm__liveness_monitor *monitor,
                             const struct liveness_probe *pulse)
{
    int64_t lately_ms = tdm__clock_ms() - ASK_EVERY_MS - monitor->stall_ms / 4;

    return monitor->heard_ms >= pulse->asked_ms && monitor->heard_ms >= lately_ms;
}

static void on_probe_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct liveness_probe *pulse = arg;
    struct tdm__liveness_monitor *monitor = pulse->monitor;

    pulse->request_id = 0;
    monitor->questions_count--;
    if (reply->status == TDM_E_ACTOR_DIED || reply->status == TDM_E_NODE_LOST) {
        pulse->gone = true;
        (void)snprintf(pulse->why, sizeof(pulse->why), "%s", reply->detail);
    } else if (reply->status == TDM_E_TIMEOUT && daemon_was_heard(monitor, pulse)) {
        pulse->gone = true;
        (void)snprintf(pulse->why, sizeof(pulse->why), "actor %s has not answered for %lld ms",
                       pulse->name, (long long)monitor->stall_ms);
    }
    if (reply->status != TDM_E_TIMEOUT && reply->status != TDM_E_CLOSED) {
        monitor->heard_ms = tdm__clock_ms();
    }
}

static tdm_status send_probe(struct tdm__liveness_monitor *monitor, uint32_t index,
                             const char *method, struct tdm_bytes packed)
{
    struct liveness_probe *pulse = &monitor->pulses[index];
    struct tdm__rpc_request request = {
        .method = method, .packed = packed, .deadline_ms = tdm__deadline_after(monitor->stall_ms)};
    struct tdm__conn *daemon;

    if (pulse->gone || pulse->request_id != 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__runtime_daemon(monitor->runtime, &daemon));
    pulse->asked_ms = tdm__clock_ms();
    TDM_TRY(tdm__conn_call(daemon, &request, on_probe_reply, pulse, &pulse->request_id));
    monitor->questions_count++;
    return TDM_OK;
}

static tdm_status probe_actor(struct tdm__liveness_monitor *monitor, uint32_t index,
                              tdm_actor *actor)
{
    struct tdm_actor_info info;
    struct tdm__id id;
    tdm_writer *writer;
    tdm_status status;

    tdm_actor_describe(actor, &info);
    (void)snprintf(monitor->pulses[index].name, sizeof(monitor->pulses[index].name), "%s",
                   info.name);
    TDM_TRY(tdm__id_parse(info.id, &id));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "b", (const void *)id.bytes, sizeof(id.bytes));
    if (status == TDM_OK) {
        status = send_probe(monitor, index, "actor.fate", tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status probe_daemon(struct tdm__liveness_monitor *monitor)
{
    return send_probe(monitor, monitor->count, "node.describe", (struct tdm_bytes){"\x90", 1});
}

static tdm_status probe_all(struct tdm__liveness_monitor *monitor, tdm_actor *const *actors)
{
    TDM__LOCK(monitor->runtime);

    monitor->next_ms = tdm__clock_ms() + ASK_EVERY_MS;
    TDM_TRY(send_probe(monitor, monitor->count, "node.describe", (struct tdm_bytes){"\x90", 1}));
    for (uint32_t i = 0; i < monitor->count; i++) {
        if (actors[i] != NULL) {
            TDM_TRY(probe_actor(monitor, i, actors[i]));
        }
    }
    return TDM_OK;
}

tdm_status tdm__liveness_monitor_poll(struct tdm__liveness_monitor *monitor,
                                      tdm_actor *const *actors)
{
    return tdm__clock_ms() < monitor->next_ms ? TDM_OK : probe_all(monitor, actors);
}

static bool all_probes_answered(void *arg)
{
    const struct tdm__liveness_monitor *monitor = arg;

    return monitor->questions_count == 0;
}

static tdm_status await_probe_replies(struct tdm__liveness_monitor *monitor)
{
    int64_t deadline_ms = tdm__deadline_after(monitor->stall_ms + SETTLE_GRACE_MS);
    tdm_status status;
    TDM__LOCK(monitor->runtime);

    while ((status = tdm__runtime_wait(monitor->runtime, all_probes_answered, monitor,
                                       ASK_EVERY_MS)) == TDM_E_TIMEOUT &&
           tdm__deadline_remaining_ms(deadline_ms) > 0) {
        TDM_TRY(probe_daemon(monitor));
    }
    return status == TDM_E_TIMEOUT
               ? tdm__fail(TDM_E_TIMEOUT, "asking %u actors whether they live", monitor->count)
               : status;
}

/* An answer under way may be older than what the caller wants explained: two rounds. */
tdm_status tdm__liveness_monitor_poll_sync(struct tdm__liveness_monitor *monitor,
                                           tdm_actor *const *actors)
{
    for (int round = 0; round < 2; round++) {
        TDM_TRY(probe_all(monitor, actors));
        TDM_TRY(await_probe_replies(monitor));
    }
    return TDM_OK;
}

const char *tdm__liveness_monitor_failure(const struct tdm__liveness_monitor *monitor,
                                          uint32_t index)
{
    TDM__LOCK(monitor->runtime);

    return monitor->pulses[index].gone ? monitor->pulses[index].why : NULL;
}
