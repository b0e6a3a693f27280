/* worker_metrics.c - what a worker counts of its calls, for its daemon to read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/worker_metrics.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tdm__counter failures;
static struct tdm__histogram times;

/* The timeline: a ring, made when it is wanted, guarded by a leaf lock. */
struct ended_span {
    struct tdm__call_span span;
    int64_t ended_ns;
    tdm_status status;
};
static struct ended_span *ring; /* NULL: no timeline */
static uint64_t ring_count;     /* ever */
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t ring_once = PTHREAD_ONCE_INIT;

static void make_ring(void)
{
    const char *wanted = getenv("TANDEM_TIMELINE");

    if (wanted != NULL && strcmp(wanted, "1") == 0) {
        ring = calloc(TDM__CALL_SPANS_MAX, sizeof(*ring));
    }
}

void tdm__call_span_begin(struct tdm__call_span *span, const struct tdm__incoming_call *incoming)
{
    (void)pthread_once(&ring_once, make_ring);
    span->began_ns = tdm__clock_ns();
    if (ring != NULL) {
        (void)snprintf(span->method, sizeof(span->method), "%s", tdm__incoming_method(incoming));
        span->call_id = tdm__incoming_call_id(incoming);
        span->caller = tdm__incoming_peer(incoming)->id;
        span->caller_pid = tdm__incoming_peer(incoming)->pid;
    }
}

void tdm__call_span_end(const struct tdm__call_span *span, tdm_status status)
{
    int64_t now_ns = tdm__clock_ns();

    tdm__histogram_add(&times, now_ns - span->began_ns);
    if (status != TDM_OK) {
        tdm__counter_add(&failures, 1);
    }
    if (ring != NULL) {
        (void)pthread_mutex_lock(&ring_lock);
        ring[ring_count % TDM__CALL_SPANS_MAX] = (struct ended_span){*span, now_ns, status};
        ring_count++;
        (void)pthread_mutex_unlock(&ring_lock);
    }
}

/* ---- for the daemon --------------------------------------------------------------------- */

static void write_metrics(tdm_writer *writer, uint64_t queue_length)
{
    struct tdm__histogram_snapshot view;
    struct tdm__actor_metrics_message message = {
        .failures = tdm__counter_value(&failures),
        .queue_length = queue_length,
        .bins = {.count = TDM__HISTOGRAM_BINS, .items = view.bins}};

    tdm__histogram_read(&times, &view);
    for (int i = 0; i < TDM__HISTOGRAM_BINS; i++) {
        message.calls += view.bins[i];
    }
    message.sum_ns = view.sum_ns;
    (void)tdm__actor_metrics_encode(&message, writer);
}

/* `arg` is the number of the first span. */
static void get_span(const void *arg, uint32_t index, void *item_out)
{
    const struct ended_span *ended = &ring[(*(const uint64_t *)arg + index) % TDM__CALL_SPANS_MAX];
    struct tdm__actor_span_message *item = item_out;

    *item = (struct tdm__actor_span_message){.method = ended->span.method,
                                             .call_id = ended->span.call_id,
                                             .caller = ended->span.caller,
                                             .caller_pid = ended->span.caller_pid,
                                             .began_ns = ended->span.began_ns,
                                             .ended_ns = ended->ended_ns,
                                             .status = ended->status};
}

static void write_spans(tdm_writer *writer)
{
    uint64_t first;
    struct tdm__actor_spans_message message = {.spans = {.get = get_span, .arg = &first}};

    (void)pthread_mutex_lock(&ring_lock);
    first = ring_count < TDM__CALL_SPANS_MAX ? 0 : ring_count - TDM__CALL_SPANS_MAX;
    message.spans.count = ring == NULL ? 0 : (uint32_t)(ring_count - first);
    (void)tdm__actor_spans_encode(&message, writer);
    (void)pthread_mutex_unlock(&ring_lock);
}

bool tdm__worker_metrics_serve(struct tdm__incoming_call *incoming, uint64_t queue_length,
                               const struct tdm__method_metrics *method_metrics)
{
    const char *method = tdm__incoming_method(incoming);
    bool metrics = strcmp(method, "worker.metrics") == 0;
    bool calls = strcmp(method, "worker.method_metrics") == 0;
    tdm_writer *writer;

    if (!metrics && !calls && strcmp(method, "worker.spans") != 0) {
        return false;
    }
    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return true;
    }
    if (metrics) {
        write_metrics(writer, queue_length);
    } else if (calls) {
        tdm__method_metrics_write(method_metrics, writer);
    } else {
        write_spans(writer);
    }
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
    return true;
}

tdm_status tdm__actor_metrics_read(struct tdm_bytes packed,
                                   struct tdm__actor_metrics_view *metrics_out)
{
    struct tdm__actor_metrics_view metrics = {.calls = 0};
    struct tdm__actor_metrics_message message;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(packed, &document));
    status = tdm__actor_metrics_decode(tdm_document_root(document), &message);
    if (status == TDM_OK && message.bins.count != TDM__HISTOGRAM_BINS) {
        status = tdm__fail(TDM_E_PROTOCOL, "a histogram of %u bins, not %d", message.bins.count,
                           (int)TDM__HISTOGRAM_BINS);
    }
    for (uint32_t i = 0; i < TDM__HISTOGRAM_BINS && status == TDM_OK; i++) {
        tdm__message_list_read(&message.bins, i, &metrics.times.bins[i],
                               sizeof(metrics.times.bins[i]));
    }
    metrics.calls = message.calls;
    metrics.failures = message.failures;
    metrics.queue_length = message.queue_length;
    metrics.times.sum_ns = message.sum_ns;
    tdm_document_destroy(document);
    if (status == TDM_OK) {
        *metrics_out = metrics;
    }
    return status;
}
