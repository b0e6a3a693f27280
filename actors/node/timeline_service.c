/* timeline_service.c - what the actors of a node ran when, and how much. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/timeline_service.h"

#include "actors/node/ask_workers.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKER_MS = 1500 };

/* One question, until all workers have answered. */
struct gathering {
    struct tdm__node *node; /* borrowed */
    struct tdm__incoming *incoming;
    tdm_writer *actors; /* owned: rows without a header */
    uint32_t actors_count;
};

static int64_t time_of_day_offset(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec - tdm__clock_ns();
}

static void on_worker(void *arg, const struct tdm__asked_worker *worker,
                      struct tdm_bytes answer)
{
    struct gathering *gathering = arg;

    const struct tdm__timeline_actor_message message = {.id = worker->actor,
                                                        .class_name = worker->class_name,
                                                        .name = worker->name,
                                                        .pid = worker->pid,
                                                        .reply = {.packed = answer}};

    (void)tdm__timeline_actor_encode(&message, gathering->actors);
    gathering->actors_count++;
}

static void answer(struct gathering *gathering)
{
    const struct tdm__timeline_message message = {
        .node_name = gathering->node->record.name,
        .time_of_day_offset_ns = time_of_day_offset(),
        .actors = {.count = gathering->actors_count,
                   .packed = tdm_writer_bytes(gathering->actors)}};

    tdm__incoming_reply_message(gathering->incoming, tdm__timeline_table(), &message);
    tdm_writer_destroy(gathering->actors);
    free(gathering);
}

static void on_done(void *arg, uint32_t silent_count)
{
    (void)silent_count;
    answer(arg);
}

static void serve_here(struct tdm__node *node, struct tdm__incoming *incoming,
                       const char *question)
{
    struct gathering *gathering = calloc(1, sizeof(*gathering));

    if (gathering == NULL || tdm_writer_create(&gathering->actors) != TDM_OK) {
        free(gathering);
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a timeline");
        return;
    }
    gathering->node = node;
    gathering->incoming = incoming;
    if (tdm__ask_workers(node, question, WORKER_MS, on_worker, on_done, gathering) != TDM_OK) {
        answer(gathering);
    }
}

static void on_passed(void *arg, struct tdm__reply *reply)
{
    if (reply->status == TDM_OK) {
        tdm__incoming_reply(arg, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(arg, reply->status, reply->detail);
    }
}

/* What the workers are asked for a call of this service; NULL: there is no such call. */
static const char *question_of(const char *method)
{
    if (strcmp(method, "timeline.read") == 0) {
        return "observe.spans";
    }
    return strcmp(method, "timeline.counts") == 0 ? "observe.metrics" : NULL;
}

static void timeline_serve(void *self, struct tdm__incoming *incoming)
{
    static const uint8_t here[] = {0x91, 0xa0}; /* A packed timeline_read with "". */
    struct tdm__node *node = self;
    const char *method = tdm__incoming_method(incoming);
    struct tdm__timeline_read_message message;
    struct tdm__id id = node->record.id;

    if (question_of(method) == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    } else if (tdm__incoming_decode(incoming, tdm__timeline_read_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
    } else if (message.node_id[0] != '\0' && tdm__id_parse(message.node_id, &id) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_INVAL, tdm_error_detail());
    } else if (tdm__id_equal(&id, &node->record.id)) {
        serve_here(node, incoming, question_of(method));
    } else {
        tdm__node_forward(node, &id, method, (struct tdm_bytes){here, sizeof(here)},
                          tdm__incoming_deadline(incoming), on_passed, incoming);
    }
}

const struct tdm__service_ops tdm__timeline_service = {.prefix = "timeline",
                                                       .serve = timeline_serve};
