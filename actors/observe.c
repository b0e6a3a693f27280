/* observe.c - what a worker counts of its calls, for its daemon to read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/observe.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tdm__counter failures;
static struct tdm__histogram times;

/* The timeline: a ring, made when it is wanted, guarded by a leaf lock. */
struct ended_span {
    struct tdm__span span;
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
        ring = calloc(TDM__SPANS_KEPT, sizeof(*ring));
    }
}

void tdm__span_begin(struct tdm__span *span, const struct tdm__incoming *incoming)
{
    (void)pthread_once(&ring_once, make_ring);
    span->began_ns = tdm__clock_ns();
    if (ring != NULL) {
        (void)snprintf(span->method, sizeof(span->method), "%s",
                       tdm__incoming_method(incoming));
        span->call_id = tdm__incoming_call_id(incoming);
        span->caller = tdm__incoming_peer(incoming)->id;
        span->caller_pid = tdm__incoming_peer(incoming)->pid;
    }
}

void tdm__span_end(const struct tdm__span *span, tdm_status status)
{
    int64_t now_ns = tdm__clock_ns();

    tdm__histogram_add(&times, now_ns - span->began_ns);
    if (status != TDM_OK) {
        tdm__counter_add(&failures, 1);
    }
    if (ring != NULL) {
        (void)pthread_mutex_lock(&ring_lock);
        ring[ring_count % TDM__SPANS_KEPT] = (struct ended_span){*span, now_ns, status};
        ring_count++;
        (void)pthread_mutex_unlock(&ring_lock);
    }
}

/* ---- for the daemon --------------------------------------------------------------------- */

static void write_metrics(tdm_writer *writer, uint64_t queue_length)
{
    struct tdm__histogram_view view;
    uint64_t calls = 0;

    tdm__histogram_read(&times, &view);
    for (int i = 0; i < TDM__HISTOGRAM_BUCKETS; i++) {
        calls += view.buckets[i];
    }
    tdm_write_array(writer, 5);
    tdm_write_uint(writer, calls);
    tdm_write_uint(writer, tdm__counter_value(&failures));
    tdm_write_uint(writer, queue_length);
    tdm_write_uint(writer, view.sum_ns);
    tdm_write_array(writer, TDM__HISTOGRAM_BUCKETS);
    for (int i = 0; i < TDM__HISTOGRAM_BUCKETS; i++) {
        tdm_write_uint(writer, view.buckets[i]);
    }
}

static void write_spans(tdm_writer *writer)
{
    uint64_t first;

    (void)pthread_mutex_lock(&ring_lock);
    first = ring_count < TDM__SPANS_KEPT ? 0 : ring_count - TDM__SPANS_KEPT;
    tdm_write_array(writer, ring == NULL ? 0 : (uint32_t)(ring_count - first));
    for (uint64_t i = first; i < ring_count; i++) {
        const struct ended_span *ended = &ring[i % TDM__SPANS_KEPT];

        tdm_write_array(writer, 7);
        tdm_write_string(writer, ended->span.method);
        tdm_write_uint(writer, ended->span.call_id);
        tdm_write_bytes(writer, ended->span.caller.bytes, sizeof(ended->span.caller.bytes));
        tdm_write_int(writer, ended->span.caller_pid);
        tdm_write_int(writer, ended->span.began_ns);
        tdm_write_int(writer, ended->ended_ns);
        tdm_write_int(writer, ended->status);
    }
    (void)pthread_mutex_unlock(&ring_lock);
}

static void write_calls(tdm_writer *writer, const struct tdm__tally *tally)
{
    if (tally == NULL) {
        tdm_write_array(writer, 0);
    } else {
        tdm__tally_write(tally, writer);
    }
}

bool tdm__observe_serve(struct tdm__incoming *incoming, uint64_t queue_length,
                        const struct tdm__tally *tally)
{
    const char *method = tdm__incoming_method(incoming);
    bool metrics = strcmp(method, "observe.metrics") == 0;
    bool calls = strcmp(method, "observe.calls") == 0;
    tdm_writer *writer;

    if (!metrics && !calls && strcmp(method, "observe.spans") != 0) {
        return false;
    }
    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return true;
    }
    if (metrics) {
        write_metrics(writer, queue_length);
    } else if (calls) {
        write_calls(writer, tally);
    } else {
        write_spans(writer);
    }
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
    return true;
}

tdm_status tdm__actor_metrics_read(struct tdm_bytes packed,
                                   struct tdm__actor_metrics *metrics_out)
{
    struct tdm__actor_metrics metrics;
    const tdm_value *buckets;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(packed, &document));
    status = tdm_unpack(tdm_document_root(document), "uuuuv", &metrics.calls, &metrics.failures,
                        &metrics.queue_length, &metrics.times.sum_ns, &buckets);
    if (status == TDM_OK && tdm_value_count(buckets) != TDM__HISTOGRAM_BUCKETS) {
        status = tdm__fail(TDM_E_PROTOCOL, "a histogram of %u buckets, not %d",
                           tdm_value_count(buckets), (int)TDM__HISTOGRAM_BUCKETS);
    }
    for (uint32_t i = 0; i < TDM__HISTOGRAM_BUCKETS && status == TDM_OK; i++) {
        metrics.times.buckets[i] = tdm_value_uint(tdm_value_at(buckets, i), 0);
    }
    tdm_document_destroy(document);
    if (status == TDM_OK) {
        *metrics_out = metrics;
    }
    return status;
}
