/* liveness_monitor.c - detects actors that died or do not reply, by probes through the daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A probe is an RPC "actor.fate" to the daemon of this node, which asks the daemon of the actor,
 * which asks the process. There is at most one pending probe for each actor. It ends in one of
 * three ways: a reply (alive), TDM_E_ACTOR_DIED, TDM_E_NODE_LOST or TDM_E_ACTOR_UNAVAILABLE
 * (failed), or a timeout after stall_ms (failed, if the daemon itself was heard during that time).
 * A separate probe "node.describe" measures whether the daemon replies.
 * The daemon itself counts as failed after DAEMON_SILENT_MAX of its probes in a row, each as long
 * as a part of stall_ms, without a reply to any probe. One is not enough: after this process was
 * stopped for a while, timers end before replies are read. Replies are handled by the thread that
 * runs the loop; all fields are protected by the loop lock of the runtime. A failure is final until
 * tdm__liveness_monitor_reset(). */
#include "colocate/job/liveness_monitor.h"

#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Interval of probes and extra time for their timeouts, in milliseconds; size of the text of a
 * failure in bytes. */
enum { PROBE_INTERVAL_MS = 250, SETTLE_GRACE_MS = 1000, WHY_BYTES = 512 };
/* Number of unanswered probes in a row after which the daemon counts as failed. */
enum { DAEMON_SILENT_MAX = 3 };
/* Capacity in bytes of the text about the store. */
enum { STORE_ERROR_BYTES = 160 };

/* What is known of one actor. The last probe of a monitor is that of the daemon itself. */
struct liveness_probe {
    /* Borrowed monitor that the probe belongs to. */
    struct tdm__liveness_monitor *monitor;
    /* ID of the pending RPC; 0 if none is pending. */
    uint64_t request_id;
    /* When the last probe was sent, in milliseconds of tdm__clock_ms(). */
    int64_t sent_ms;
    /* Name of the actor, for messages. */
    char name[64];
    /* True if the actor has failed. */
    bool gone;
    /* Why the actor has failed; valid if `gone` is true. */
    char why[WHY_BYTES];
};

/* Definition of the monitor. All fields are protected by the runtime's loop lock. */
struct tdm__liveness_monitor {
    /* Borrowed runtime whose daemon is asked. */
    tdm_runtime *runtime;
    /* An actor that does not reply for this many milliseconds has failed. */
    int64_t stall_ms;
    /* Earliest time of the next poll, in milliseconds of tdm__clock_ms(). */
    int64_t next_ms;
    /* When the daemon last replied to anything, in milliseconds of tdm__clock_ms(). */
    int64_t heard_ms;
    /* Number of probes of the daemon that timed out since it last replied to anything. */
    uint32_t daemon_silent_count;
    /* Why the daemon does not reach the cluster's store; "" if it does, or is not known. */
    char store_error[STORE_ERROR_BYTES];
    /* Number of actors. */
    uint32_t count;
    /* Number of probes whose reply is pending. */
    uint32_t pending_count;
    /* One probe for each actor, then one for the daemon. */
    struct liveness_probe probes[];
};

tdm_status tdm__liveness_monitor_create(tdm_runtime *runtime, uint32_t count, int64_t stall_ms,
                                        struct tdm__liveness_monitor **monitor_out)
{
    struct tdm__liveness_monitor *monitor =
        calloc(1, sizeof(*monitor) + ((size_t)count + 1) * sizeof(monitor->probes[0]));

    if (monitor == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a monitor over %u actors", count);
    }
    monitor->runtime = runtime;
    monitor->stall_ms = stall_ms;
    monitor->count = count;
    for (uint32_t i = 0; i <= count; i++) {
        monitor->probes[i].monitor = monitor;
    }
    *monitor_out = monitor;
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
    struct liveness_probe *probe = &monitor->probes[index];
    TDM__LOCK(monitor->runtime);

    if (probe->request_id != 0) {
        if (monitor->runtime->daemon != NULL) {
            tdm__conn_forget_call(monitor->runtime->daemon, probe->request_id);
        }
        monitor->pending_count--;
    }
    *probe = (struct liveness_probe){.monitor = monitor};
}

/* ---- probes ----------------------------------------------------------------------------- */

/* Returns whether the daemon has replied since the probe was sent, and recently. A daemon that
 * was stopped for a while has not forwarded the probe. */
static bool daemon_was_heard(const struct tdm__liveness_monitor *monitor,
                             const struct liveness_probe *probe)
{
    int64_t lately_ms = tdm__clock_ms() - PROBE_INTERVAL_MS - monitor->stall_ms / 4;

    return monitor->heard_ms >= probe->sent_ms && monitor->heard_ms >= lately_ms;
}

/* Stores what the daemon's description of its node says about the store. */
static void note_store_error(struct tdm__liveness_monitor *monitor,
                             const struct tdm__rpc_reply *reply)
{
    struct tdm__node_description_message node;
    tdm_document *document;

    if (tdm__rpc_reply_document(reply, &document) != TDM_OK) {
        return;
    }
    if (tdm__node_description_decode(tdm_document_root(document), &node) == TDM_OK) {
        (void)snprintf(monitor->store_error, sizeof(monitor->store_error), "%s", node.store_error);
    }
    tdm_document_destroy(document);
}

/* Handles the reply, the error or the timeout of a probe. Runs on the loop's thread under the
 * loop lock. */
static void on_probe_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct liveness_probe *probe = arg;
    struct tdm__liveness_monitor *monitor = probe->monitor;

    probe->request_id = 0;
    monitor->pending_count--;
    if (reply->status == TDM_OK && probe == &monitor->probes[monitor->count]) {
        note_store_error(monitor, reply);
    }
    if (reply->status == TDM_E_ACTOR_DIED || reply->status == TDM_E_NODE_LOST ||
        reply->status == TDM_E_ACTOR_UNAVAILABLE) {
        probe->gone = true;
        (void)snprintf(probe->why, sizeof(probe->why), "%s", reply->detail);
    } else if (reply->status == TDM_E_TIMEOUT && daemon_was_heard(monitor, probe)) {
        probe->gone = true;
        (void)snprintf(probe->why, sizeof(probe->why), "actor %s has not replied for %lld ms",
                       probe->name, (long long)monitor->stall_ms);
    }
    if (reply->status != TDM_E_TIMEOUT && reply->status != TDM_E_CLOSED) {
        monitor->heard_ms = tdm__clock_ms();
        monitor->daemon_silent_count = 0;
    } else if (reply->status == TDM_E_TIMEOUT && probe == &monitor->probes[monitor->count]) {
        monitor->daemon_silent_count++;
    }
}

/* Sends a probe with this method and arguments, unless one is pending or the actor has failed.
 * The caller must hold the loop lock. */
static tdm_status send_probe(struct tdm__liveness_monitor *monitor, uint32_t index,
                             const char *method, struct tdm_bytes packed)
{
    struct liveness_probe *probe = &monitor->probes[index];
    int64_t patience_ms =
        index == monitor->count ? monitor->stall_ms / DAEMON_SILENT_MAX : monitor->stall_ms;
    struct tdm__rpc_request request = {
        .method = method, .packed = packed, .deadline_ms = tdm__deadline_after(patience_ms)};
    struct tdm__conn *daemon;

    if (probe->gone || probe->request_id != 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm__runtime_daemon(monitor->runtime, &daemon));
    probe->sent_ms = tdm__clock_ms();
    TDM_TRY(tdm__conn_call(daemon, &request, on_probe_reply, probe, &probe->request_id));
    monitor->pending_count++;
    return TDM_OK;
}

/* Sends a probe for the process of the actor. */
static tdm_status probe_actor(struct tdm__liveness_monitor *monitor, uint32_t index,
                              tdm_actor *actor)
{
    struct tdm_actor_info info;
    struct tdm__actor_query_message query = {.may_restart = false};
    tdm_writer *writer;
    tdm_status status;

    tdm_actor_describe(actor, &info);
    (void)snprintf(monitor->probes[index].name, sizeof(monitor->probes[index].name), "%s",
                   info.name);
    TDM_TRY(tdm__id_parse(info.id, &query.actor));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
    if (status == TDM_OK) {
        status = send_probe(monitor, index, "actor.fate", tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Sends a probe for the daemon of this node. */
static tdm_status probe_daemon(struct tdm__liveness_monitor *monitor)
{
    return send_probe(monitor, monitor->count, "node.describe", (struct tdm_bytes){"\x90", 1});
}

/* Sends probes for the daemon and for all actors that are not NULL. */
static tdm_status probe_all(struct tdm__liveness_monitor *monitor, tdm_actor *const *actors)
{
    TDM__LOCK(monitor->runtime);

    monitor->next_ms = tdm__clock_ms() + PROBE_INTERVAL_MS;
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

/* Condition for tdm__runtime_wait(): no probe is pending. */
static bool no_probe_is_pending(void *arg)
{
    const struct tdm__liveness_monitor *monitor = arg;

    return monitor->pending_count == 0;
}

/* Blocks until no probe is pending. Continues to probe the daemon, so that its silence can be
 * told from that of an actor. */
static tdm_status await_probe_replies(struct tdm__liveness_monitor *monitor)
{
    int64_t deadline_ms = tdm__deadline_after(monitor->stall_ms + SETTLE_GRACE_MS);
    tdm_status status;
    TDM__LOCK(monitor->runtime);

    while ((status = tdm__runtime_wait(monitor->runtime, no_probe_is_pending, monitor,
                                       PROBE_INTERVAL_MS)) == TDM_E_TIMEOUT &&
           tdm__deadline_remaining_ms(deadline_ms) > 0) {
        TDM_TRY(probe_daemon(monitor));
    }
    if (status != TDM_E_TIMEOUT) {
        return status;
    }
    TDM_TRY(tdm__liveness_monitor_check_daemon(monitor));
    return tdm__fail(TDM_E_TIMEOUT, "asking %u actors whether they live", monitor->count);
}

/* A reply that was pending at the beginning may describe an earlier time. Therefore all actors
 * are probed twice. */
tdm_status tdm__liveness_monitor_poll_sync(struct tdm__liveness_monitor *monitor,
                                           tdm_actor *const *actors)
{
    for (int round = 0; round < 2; round++) {
        TDM_TRY(probe_all(monitor, actors));
        TDM_TRY(await_probe_replies(monitor));
    }
    return TDM_OK;
}

tdm_status tdm__liveness_monitor_check_daemon(const struct tdm__liveness_monitor *monitor)
{
    struct tdm__conn *daemon;
    TDM__LOCK(monitor->runtime);

    if (monitor->daemon_silent_count < DAEMON_SILENT_MAX) {
        return TDM_OK;
    }
    TDM_TRY(tdm__runtime_daemon(monitor->runtime, &daemon));
    return tdm__fail(TDM_E_NODE_LOST,
                     "the daemon of node %s (pid %lld) has not replied for %lld ms",
                     monitor->runtime->node_name, (long long)tdm__conn_peer(daemon)->pid,
                     (long long)monitor->stall_ms);
}

void tdm__liveness_monitor_store_error(const struct tdm__liveness_monitor *monitor, char *text,
                                       size_t text_bytes)
{
    TDM__LOCK(monitor->runtime);

    (void)snprintf(text, text_bytes, "%s", monitor->store_error);
}

const char *tdm__liveness_monitor_failure(const struct tdm__liveness_monitor *monitor,
                                          uint32_t index)
{
    TDM__LOCK(monitor->runtime);

    return monitor->probes[index].gone ? monitor->probes[index].why : NULL;
}
