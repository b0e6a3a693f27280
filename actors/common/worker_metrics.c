/* worker_metrics.c - counts, durations and spans of a worker's calls, for its daemon to read. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns the metrics of the worker process: a counter of failed calls, a histogram of durations,
 * and the timeline, a ring of the last TDM__CALL_SPANS_MAX calls. Method threads write them in
 * tdm__call_span_end(); the loop's thread reads them when the daemon asks.
 *
 * Counter and histogram are atomic. The ring exists only with TANDEM_TIMELINE=1; it is guarded
 * by `ring_lock`, a leaf lock. The messages are worker.metrics, worker.spans and
 * worker.method_metrics. */

#include "actors/common/worker_metrics.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of calls of this worker that have failed. */
static struct tdm__counter failures;
/* Durations of all calls of this worker, in nanoseconds. */
static struct tdm__histogram times;

/* A call that has ended, an entry of the timeline. */
struct ended_span {
    struct tdm__call_span span; /* Method, caller and start of the call. */
    int64_t ended_ns;           /* Nanoseconds on CLOCK_MONOTONIC at which the method ended. */
    tdm_status status;          /* Outcome of the call's method. */
};
/* The timeline of this worker, TDM__CALL_SPANS_MAX entries; NULL if none is recorded. */
static struct ended_span *ring;
/* Number of calls recorded in the timeline so far, overwritten ones included. */
static uint64_t ring_count;
/* Guards the entries of `ring` and `ring_count`. */
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
/* Makes sure that `ring` is created only once, before the first call. */
static pthread_once_t ring_once = PTHREAD_ONCE_INIT;

/* Creates `ring` if the environment asks for a timeline. Without memory there is no timeline. */
static void timeline_create(void)
{
    const char *wanted = getenv("TANDEM_TIMELINE");

    if (wanted != NULL && strcmp(wanted, "1") == 0) {
        ring = calloc(TDM__CALL_SPANS_MAX, sizeof(*ring));
    }
}

void tdm__call_span_begin(struct tdm__call_span *span, const struct tdm__incoming_call *incoming)
{
    (void)pthread_once(&ring_once, timeline_create);
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

/* ---- replies to the daemon ---------------------------------------------------------------- */

/* Writes the message actor_metrics, the reply to "worker.metrics". */
static void worker_metrics_write(tdm_writer *writer, uint64_t queue_length)
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

/* Fills one entry of the message; `arg` points to the number of the oldest span. */
static void timeline_get_span(const void *arg, uint32_t index, void *item_out)
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

/* Writes the message actor_spans, the reply to "worker.spans", with the oldest span first. */
static void timeline_write(tdm_writer *writer)
{
    uint64_t first;
    struct tdm__actor_spans_message message = {.spans = {.get = timeline_get_span, .arg = &first}};

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
        worker_metrics_write(writer, queue_length);
    } else if (calls) {
        tdm__method_metrics_write(method_metrics, writer);
    } else {
        timeline_write(writer);
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
