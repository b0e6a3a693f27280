/* metrics_service.c - the metrics of a node, in the text format of Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A request (a scrape) by HTTP collects: the node's free resources from the store, the numbers of
 * each worker by "worker.metrics", and the counters of this process. It replies when all of them
 * have replied or timed out; missing ones are left out.
 *
 * A scrape owns itself and is in the list of its service until it has replied. If the service is
 * destroyed before, `metrics` becomes NULL, and the last reply frees the scrape. Everything runs on
 * the daemon's loop thread. docs/observability.md lists the metrics. */

#include "actors/daemon/metrics_service.h"

#include "actors/common/worker_metrics.h"
#include "actors/daemon/actor_entry.h"
#include "actors/daemon/ended_actors.h"
#include "actors/daemon/worker_logs.h"
#include "actors/daemon/worker_query.h"
#include "actors/objects/memory_usage.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/http/http.h"
#include "runtime/store/metered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKER_MS = 300, /* Milliseconds that a worker gets to reply to "worker.metrics". */
    STORE_MS = 1000  /* Milliseconds that the store gets to reply. */
};
/* Content type of the text format of Prometheus. */
#define CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The metrics service of a daemon. The daemon's services own it. */
struct tdm__node_metrics {
    struct tdm__node *node; /* State of this node's daemon, borrowed. */
    /* HTTP server for Prometheus, owned; NULL if no address was given. */
    struct tdm__http_server *http;
    struct scrape *scrapes; /* List of the requests for metrics that wait for replies. */
};

/* The metrics of one actor. */
struct actor_sample {
    struct tdm__queried_worker worker;      /* The actor and its worker process. */
    struct tdm__actor_metrics_view metrics; /* The worker's reply to "worker.metrics". */
};

/* A request for metrics that waits for the replies of the workers and the store. */
struct scrape {
    struct scrape *next; /* Next request of the metrics service. */
    /* The metrics service, borrowed; NULL once the service is destroyed. */
    struct tdm__node_metrics *metrics;
    struct tdm__http_request *request; /* HTTP request, to which the daemon must reply. */
    struct actor_sample *actors;       /* Metrics of the actors that have replied, owned. */
    uint32_t actors_count;             /* Number of entries in `actors`. */
    /* Number of pending replies: one for the store, one for all workers together. */
    uint32_t pending;
    /* Resources of this node, read from the store; valid if `has_resources`. */
    struct tdm__node_resources resources;
    bool has_resources; /* True if the store has replied with the resources. */
};

/* ---- text ------------------------------------------------------------------------------- */

/* Writes the number of actors in each state, and of ended actors. */
static void write_actors_by_state(FILE *out, const struct tdm__node *node)
{
    /* The texts of tdm__actor_state_text(), except that "placing" is shown as "pending". */
    static const char *const states[] = {"pending",    "waiting", "starting", "alive",
                                         "restarting", "ending",  "remote"};
    uint32_t counts[sizeof(states) / sizeof(states[0])] = {0};

    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        const char *text = tdm__actor_state_text(entry->lifecycle.state);
        size_t i = 1;

        while (i < sizeof(states) / sizeof(states[0]) && strcmp(states[i], text) != 0) {
            i++;
        }
        counts[i < sizeof(states) / sizeof(states[0]) ? i : 0]++;
    }
    tdm__metrics_family(out, "tandem_actors", "gauge",
                        "Actors that this node runs, or has asked other nodes for.");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        const char *const labels[] = {"state", states[i], NULL};

        tdm__metrics_sample(out, "tandem_actors", labels, counts[i]);
    }
    tdm__metrics_family(out, "tandem_actors_ended_total", "counter",
                        "Actors of this node that have ended.");
    tdm__metrics_sample(out, "tandem_actors_ended_total", NULL, (double)node->ended_actors->count);
}

/* Writes a gauge without labels in the text format of Prometheus. */
static void write_gauge(FILE *out, const char *name, const char *help, uint64_t value)
{
    tdm__metrics_family(out, name, "gauge", help);
    tdm__metrics_sample(out, name, NULL, (double)value);
}

/* Writes the memory usage of large values on this node. */
static void write_object_store(FILE *out, const struct tdm__node *node)
{
    struct tdm__memory_usage *usage;
    struct tdm__memory_usage_totals sums;

    if (tdm__memory_usage_open(node->directory, &usage) != TDM_OK) {
        return; /* The usage table is full or gone; the other metrics are still valid. */
    }
    tdm__memory_usage_read(usage, &sums);
    tdm__memory_usage_close(usage);
    write_gauge(out, "tandem_object_store_limit_bytes",
                "Memory that large values may take on this node.", sums.limit_bytes);
    write_gauge(out, "tandem_object_store_used_bytes",
                "Memory that large values, and segments kept warm for more, take.",
                sums.used_bytes);
    write_gauge(out, "tandem_object_store_spilled_bytes", "Large values that lie on disk.",
                sums.spilled_bytes);
}

/* Writes the line of metric `name` with the amount of one kind of resource. */
static void write_amount(FILE *out, const char *name, const char *kind, int64_t amount)
{
    const char *const labels[] = {"resource", kind, NULL};

    tdm__metrics_sample(out, name, labels, (double)amount / TDM__RESOURCE_ONE);
}

/* Writes the free or total amounts of all resources of this node. */
static void write_pool(FILE *out, const char *name, const char *help, const struct tdm__pool *pool,
                       bool free)
{
    int64_t gpu = 0;

    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        gpu += free ? pool->gpus[i].free : pool->gpus[i].total;
    }
    tdm__metrics_family(out, name, "gauge", help);
    write_amount(out, name, "CPU", free ? pool->cpu.free : pool->cpu.total);
    write_amount(out, name, "GPU", gpu);
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX && pool->custom[i].name[0] != '\0'; i++) {
        write_amount(out, name, pool->custom[i].name,
                     free ? pool->custom[i].amount.free : pool->custom[i].amount.total);
    }
}

/* Metrics of an actor. */
enum actor_metric {
    METRIC_CALLS,        /* Number of calls of the actor that have run. */
    METRIC_FAILURES,     /* Number of calls of the actor that have failed. */
    METRIC_QUEUE_LENGTH, /* Number of calls of the actor that wait. */
    METRIC_TIMES         /* Histogram of the run times of methods. */
};

/* Writes the metric `which`, under `name`, of each actor whose worker has replied. */
static void write_actor_metric(FILE *out, const char *name, const struct scrape *scrape,
                               enum actor_metric which)
{
    for (uint32_t i = 0; i < scrape->actors_count; i++) {
        const struct actor_sample *actor = &scrape->actors[i];
        char id[17];
        const char *const labels[] = {
            "class", actor->worker.class_name, "name", actor->worker.name, "actor", id, NULL};
        const uint64_t numbers[] = {actor->metrics.calls, actor->metrics.failures,
                                    actor->metrics.queue_length};

        (void)snprintf(id, sizeof(id), "%.16s", actor->worker.actor);
        if (which == METRIC_TIMES) {
            tdm__metrics_histogram(out, name, labels, &actor->metrics.times);
        } else {
            tdm__metrics_sample(out, name, labels, (double)numbers[which]);
        }
    }
}

/* Writes all metrics of the actors whose workers have replied. */
static void write_actor_metrics(FILE *out, const struct scrape *scrape)
{
    tdm__metrics_family(out, "tandem_actor_calls_total", "counter", "Calls that an actor has run.");
    write_actor_metric(out, "tandem_actor_calls_total", scrape, METRIC_CALLS);
    tdm__metrics_family(out, "tandem_actor_calls_failed_total", "counter",
                        "Calls whose method returned a failure.");
    write_actor_metric(out, "tandem_actor_calls_failed_total", scrape, METRIC_FAILURES);
    tdm__metrics_family(out, "tandem_actor_queue_length", "gauge", "Calls that wait in the actor.");
    write_actor_metric(out, "tandem_actor_queue_length", scrape, METRIC_QUEUE_LENGTH);
    tdm__metrics_family(out, "tandem_actor_call_seconds", "histogram", "Time that methods ran.");
    write_actor_metric(out, "tandem_actor_call_seconds", scrape, METRIC_TIMES);
}

/* Writes the complete text of the node's metrics. */
static void write_metrics_text(FILE *out, const struct scrape *scrape)
{
    const struct tdm__node *node = scrape->metrics->node;

    write_actors_by_state(out, node);
    write_object_store(out, node);
    if (scrape->has_resources) {
        write_pool(out, "tandem_resources", "What this node offers.", &scrape->resources.pool,
                   false);
        write_pool(out, "tandem_resources_free", "What of it nobody holds.",
                   &scrape->resources.pool, true);
    }
    write_actor_metrics(out, scrape);
    tdm__metrics_family(out, "tandem_log_lost_bytes_total", "counter",
                        "Bytes of actors' lines that came too fast to be printed.");
    tdm__metrics_sample(out, "tandem_log_lost_bytes_total", NULL,
                        (double)tdm__worker_logs_lost_bytes(node->logs));
    tdm__store_metered_write_metrics(out);
    tdm__services_write_metrics(node->services, out);
    tdm__metrics_process(out);
}

/* ---- scrapes ---------------------------------------------------------------------------- */

/* Removes a request for metrics from the list of the service and frees the request. */
static void scrape_free(struct scrape *scrape)
{
    struct scrape **place = scrape->metrics == NULL ? NULL : &scrape->metrics->scrapes;

    while (place != NULL && *place != scrape) {
        place = &(*place)->next;
    }
    if (place != NULL) {
        *place = scrape->next;
    }
    free(scrape->actors);
    free(scrape);
}

/* Replies to a request with the text of all metrics and frees the scrape. */
static void metrics_reply(struct scrape *scrape)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out != NULL) {
        write_metrics_text(out, scrape);
        (void)fclose(out);
    }
    tdm__http_reply(scrape->request, out == NULL ? 500 : 200, CONTENT_TYPE, text, bytes);
    free(text);
    scrape_free(scrape);
}

/* Counts one reply to a scrape, and finishes the scrape after the last reply. */
static void scrape_count_down(struct scrape *scrape)
{
    scrape->pending--;
    if (scrape->pending == 0 && scrape->metrics == NULL) {
        scrape_free(scrape); /* The service was destroyed meanwhile. */
    } else if (scrape->pending == 0) {
        metrics_reply(scrape);
    }
}

/* Adds the reply of one worker to the scrape. */
static void on_worker_metrics(void *arg, const struct tdm__queried_worker *worker,
                              struct tdm_bytes metrics_reply)
{
    struct scrape *scrape = arg;
    struct actor_sample *actors =
        realloc(scrape->actors, (scrape->actors_count + 1) * sizeof(*actors));

    if (actors == NULL) {
        return;
    }
    scrape->actors = actors;
    actors[scrape->actors_count].worker = *worker;
    if (tdm__actor_metrics_read(metrics_reply, &actors[scrape->actors_count].metrics) == TDM_OK) {
        scrape->actors_count++;
    }
}

/* Handles the end of the query to the workers. */
static void on_workers_done(void *arg, uint32_t silent_count)
{
    (void)silent_count;
    scrape_count_down(arg);
}

/* Handles the store's reply with the node's resources. */
static void on_resources(void *arg, tdm_status status, const struct tdm__store_record *records,
                         uint32_t records_count)
{
    struct scrape *scrape = arg;

    scrape->has_resources = status == TDM_OK && records_count == 1 &&
                            tdm__free_record_read(&records[0], &scrape->resources) == TDM_OK;
    scrape_count_down(scrape);
}

/* Asks the store for the node's resources. */
static void scrape_ask_store(struct scrape *scrape)
{
    struct tdm__node *node = scrape->metrics->node;
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("free", &node->record.id, key)};

    if (node->store == NULL) {
        scrape_count_down(scrape);
    } else {
        node->store->ops->read(node->store, patterns, 1, tdm__deadline_after(STORE_MS),
                               on_resources, scrape);
    }
}

/* Starts a scrape for the HTTP request `request`. */
static tdm_status scrape_begin(struct tdm__node_metrics *metrics, struct tdm__http_request *request)
{
    struct scrape *scrape = calloc(1, sizeof(*scrape));

    if (scrape == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the node's metrics");
    }
    *scrape = (struct scrape){
        .metrics = metrics, .next = metrics->scrapes, .request = request, .pending = 2};
    metrics->scrapes = scrape;
    scrape_ask_store(scrape);
    if (tdm__query_workers(metrics->node, "worker.metrics", WORKER_MS, on_worker_metrics,
                           on_workers_done, scrape) != TDM_OK) {
        scrape_count_down(scrape); /* The reply is sent without the workers. */
    }
    return TDM_OK;
}

/* ---- the service ------------------------------------------------------------------------ */

/* Serves an HTTP request: GET /metrics starts a scrape. */
static void on_http(void *arg, struct tdm__http_request *request, const char *path)
{
    static const char elsewhere[] = "this server has only /metrics\n";

    if (strcmp(path, "/metrics") != 0) {
        tdm__http_reply(request, 404, "text/plain", elsewhere, sizeof(elsewhere) - 1);
    } else if (scrape_begin(arg, request) != TDM_OK) {
        tdm__http_reply(request, 500, "text/plain", NULL, 0);
    }
}

/* Closes the HTTP server, whose requests then need no reply, and frees the service. */
static void metrics_destroy(void *self)
{
    struct tdm__node_metrics *metrics = self;

    for (struct scrape *scrape = metrics->scrapes; scrape != NULL; scrape = scrape->next) {
        scrape->metrics = NULL; /* The last pending reply frees the scrape. */
    }
    tdm__http_close(metrics->http);
    free(metrics);
}

tdm_status tdm__node_metrics_create(struct tdm__node *node, const char *address,
                                    struct tdm__node_metrics **metrics_out)
{
    struct tdm__node_metrics *metrics = calloc(1, sizeof(*metrics));

    if (metrics == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the node's metrics");
    }
    metrics->node = node;
    if (address != NULL) {
        tdm_status status = tdm__http_open(node->loop, address, on_http, metrics, &metrics->http);

        if (status != TDM_OK) {
            free(metrics);
            return status;
        }
    }
    *metrics_out = metrics;
    return TDM_OK;
}

const struct tdm__service_ops tdm__metrics_service = {.prefix = "metrics",
                                                      .destroy = metrics_destroy};
