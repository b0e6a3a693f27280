/* timeline_service.c - spans and call counts of the actors of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/timeline_service.h"

#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/worker_query.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Milliseconds that a worker gets to reply with its spans or counts. */
enum { WORKER_MS = 1500 };

/* A call "timeline.read" or "timeline.counts" that waits for the replies of the workers. */
struct timeline_query {
    struct tdm__node *node;              /* State of this node's daemon, borrowed. */
    struct tdm__incoming_call *incoming; /* The call, to which the daemon must reply, owned. */
    /* Packed records of the actors that have replied, owned, without an array header. */
    tdm_writer *actors;
    uint32_t actors_count; /* Number of records in `actors`. */
};

/* Returns the nanoseconds to add to CLOCK_MONOTONIC to get the time of day. */
static int64_t time_of_day_offset(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec - tdm__clock_ns();
}

/* True if the bytes are one packed value. The reader of a timeline could not read the replies of
 * other workers beside bytes that are not. */
static bool is_one_value(struct tdm_bytes bytes)
{
    tdm_document *document = NULL;
    bool is_value = tdm_document_parse(bytes, &document) == TDM_OK;

    tdm_document_destroy(document);
    return is_value;
}

/* Adds the reply of one worker, with the spans or counts of its actor, to the query. A reply that
 * is not a value is left out. */
static void on_worker(void *arg, const struct tdm__queried_worker *worker,
                      struct tdm_bytes timeline_reply)
{
    struct timeline_query *query = arg;
    const struct tdm__timeline_actor_message message = {.id = worker->actor,
                                                        .class_name = worker->class_name,
                                                        .name = worker->name,
                                                        .pid = worker->pid,
                                                        .reply = {.packed = timeline_reply}};

    if (is_one_value(timeline_reply)) {
        (void)tdm__timeline_actor_encode(&message, query->actors);
        query->actors_count++;
    }
}

/* Replies to the call with what the workers have replied, and frees the query. */
static void timeline_reply(struct timeline_query *query)
{
    const struct tdm__timeline_message message = {
        .node_name = query->node->record.name,
        .time_of_day_offset_ns = time_of_day_offset(),
        .actors = {.count = query->actors_count, .packed = tdm_writer_bytes(query->actors)}};

    tdm__incoming_reply_message(query->incoming, tdm__timeline_table(), &message);
    tdm_writer_destroy(query->actors);
    free(query);
}

/* Handles the end of the query to the workers: replies to the call. */
static void on_done(void *arg, uint32_t silent_count)
{
    (void)silent_count;
    timeline_reply(arg);
}

/* Asks the workers of this node by the method `question` for their spans or counts. */
static void timeline_query_start(struct tdm__node *node, struct tdm__incoming_call *incoming,
                                 const char *question)
{
    struct timeline_query *query = calloc(1, sizeof(*query));

    if (query == NULL || tdm_writer_create(&query->actors) != TDM_OK) {
        free(query);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a timeline");
        return;
    }
    query->node = node;
    query->incoming = incoming;
    if (tdm__query_workers(node, question, WORKER_MS, on_worker, on_done, query) != TDM_OK) {
        timeline_reply(query);
    }
}

/* Returns the method by which the workers are asked for a call of this service's `method`; NULL for
 * an unknown one. */
static const char *timeline_worker_method(const char *method)
{
    if (strcmp(method, "timeline.read") == 0) {
        return "worker.spans";
    }
    return strcmp(method, "timeline.counts") == 0 ? "worker.metrics" : NULL;
}

/* Asks the daemon of another node for the spans or the counts of that node's actors, and passes its
 * reply on. */
static void timeline_forward(struct tdm__node *node, const struct tdm__id *other,
                             struct tdm__incoming_call *incoming)
{
    const struct tdm__timeline_read_message message = {.node_id = ""};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    (void)tdm__timeline_read_encode(&message, writer);
    tdm__node_forward(node, other, tdm__incoming_method(incoming), tdm_writer_bytes(writer),
                      tdm__incoming_deadline(incoming), tdm__incoming_pass_reply, incoming);
    tdm_writer_destroy(writer);
}

/* Serves the calls of the service "timeline". */
static void timeline_serve(void *self, struct tdm__incoming_call *incoming)
{
    struct tdm__node *node = self;
    const char *method = tdm__incoming_method(incoming);
    struct tdm__timeline_read_message message;
    struct tdm__id id = node->record.id;

    if (timeline_worker_method(method) == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    } else if (tdm__incoming_decode(incoming, tdm__timeline_read_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
    } else if (message.node_id[0] != '\0' && tdm__id_parse(message.node_id, &id) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_INVAL, tdm_error_detail());
    } else if (tdm__id_equal(&id, &node->record.id)) {
        timeline_query_start(node, incoming, timeline_worker_method(method));
    } else {
        timeline_forward(node, &id, incoming);
    }
}

const struct tdm__service_ops tdm__timeline_service = {.prefix = "timeline",
                                                       .serve = timeline_serve};
