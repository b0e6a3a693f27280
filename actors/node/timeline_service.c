/* timeline_service.c - what the actors of a node ran when, and how much. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/timeline_service.h"

#include "actors/node/ask_workers.h"
#include "runtime/clock.h"
#include "runtime/error.h"

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

    tdm_write_array(gathering->actors, 5);
    tdm_write_string(gathering->actors, worker->actor);
    tdm_write_string(gathering->actors, worker->class_name);
    tdm_write_string(gathering->actors, worker->name);
    tdm_write_int(gathering->actors, worker->pid);
    tdm_write_packed(gathering->actors, answer);
    gathering->actors_count++;
}

static void answer(struct gathering *gathering)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__incoming_fail(gathering->incoming, TDM_E_NOMEM, tdm_error_detail());
    } else {
        tdm_write_array(writer, 3);
        tdm_write_string(writer, gathering->node->record.name);
        tdm_write_int(writer, time_of_day_offset());
        tdm_write_array(writer, gathering->actors_count);
        tdm_write_packed(writer, tdm_writer_bytes(gathering->actors));
        tdm__incoming_reply(gathering->incoming, tdm_writer_bytes(writer), NULL, 0);
        tdm_writer_destroy(writer);
    }
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
    static const uint8_t here[] = {0x91, 0xa0}; /* [""] */
    struct tdm__node *node = self;
    const char *method = tdm__incoming_method(incoming);
    const char *wanted;
    struct tdm__id id = node->record.id;

    if (question_of(method) == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, method);
    } else if (tdm__incoming_unpack(incoming, "s", &wanted) != TDM_OK || wanted == NULL) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, "the timeline of which node?");
    } else if (wanted[0] != '\0' && tdm__id_parse(wanted, &id) != TDM_OK) {
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
