/* timeline_service.c - what the actors of a node ran when, and how much. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/timeline_service.h"

#include "actors/daemon/worker_query.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKER_MS = 1500 };

/* One question, until all workers have answered. */
struct timeline_query {
    struct tdm__node *node; /* borrowed */
    struct tdm__incoming_call *incoming;
    tdm_writer *actors; /* owned: rows without a header */
    uint32_t actors_count;
};

static int64_t time_of_day_offset(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec - tdm__clock_ns();
}

static void on_worker(void *arg, const struct tdm__queried_worker *worker,
                      struct tdm_bytes timeline_reply)
{
    struct timeline_query *timeline_query = arg;

    const struct tdm__timeline_actor_message message = {.id = worker->actor,
                                                        .class_name = worker->class_name,
                                                        .name = worker->name,
                                                        .pid = worker->pid,
                                                        .reply = {.packed = timeline_reply}};

    (void)tdm__timeline_actor_encode(&message, timeline_query->actors);
    timeline_query->actors_count++;
}

static void timeline_reply(struct timeline_query *timeline_query)
{
    const struct tdm__timeline_message message = {
        .node_name = timeline_query->node->record.name,
        .time_of_day_offset_ns = time_of_day_offset(),
        .actors = {.count = timeline_query->actors_count,
                   .packed = tdm_writer_bytes(timeline_query->actors)}};

    tdm__incoming_reply_message(timeline_query->incoming, tdm__timeline_table(), &message);
    tdm_writer_destroy(timeline_query->actors);
    free(timeline_query);
}

static void on_done(void *arg, uint32_t silent_count)
{
    (void)silent_count;
    timeline_reply(arg);
}

static void serve_here(struct tdm__node *node, struct tdm__incoming_call *incoming,
                       const char *question)
{
    struct timeline_query *timeline_query = calloc(1, sizeof(*timeline_query));

    if (timeline_query == NULL || tdm_writer_create(&timeline_query->actors) != TDM_OK) {
        free(timeline_query);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a timeline");
        return;
    }
    timeline_query->node = node;
    timeline_query->incoming = incoming;
    if (tdm__query_workers(node, question, WORKER_MS, on_worker, on_done, timeline_query) !=
        TDM_OK) {
        timeline_reply(timeline_query);
    }
}

static void on_passed(void *arg, struct tdm__rpc_reply *reply)
{
    if (reply->status == TDM_OK) {
        tdm__incoming_reply(arg, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(arg, reply->status, reply->detail);
    }
}

/* What the workers are asked for a call of this service; NULL: there is no such call. */
static const char *timeline_request_node(const char *method)
{
    if (strcmp(method, "timeline.read") == 0) {
        return "worker.spans";
    }
    return strcmp(method, "timeline.counts") == 0 ? "worker.metrics" : NULL;
}

static void timeline_serve(void *self, struct tdm__incoming_call *incoming)
{
    static const uint8_t here[] = {0x91, 0xa0}; /* A packed timeline_read with "". */
    struct tdm__node *node = self;
    const char *method = tdm__incoming_method(incoming);
    struct tdm__timeline_read_message message;
    struct tdm__id id = node->record.id;

    if (timeline_request_node(method) == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    } else if (tdm__incoming_decode(incoming, tdm__timeline_read_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
    } else if (message.node_id[0] != '\0' && tdm__id_parse(message.node_id, &id) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_INVAL, tdm_error_detail());
    } else if (tdm__id_equal(&id, &node->record.id)) {
        serve_here(node, incoming, timeline_request_node(method));
    } else {
        tdm__node_forward(node, &id, method, (struct tdm_bytes){here, sizeof(here)},
                          tdm__incoming_deadline(incoming), on_passed, incoming);
    }
}

const struct tdm__service_ops tdm__timeline_service = {.prefix = "timeline",
                                                       .serve = timeline_serve};
