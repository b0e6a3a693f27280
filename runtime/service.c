/* service.c - the services of a daemon: each serves the calls whose method has its prefix. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/service.h"

#include "runtime/assert.h"
#include "runtime/clock.h"

#include <stdio.h>
#include <string.h>

void tdm__services_add(struct tdm__services *services, const struct tdm__service_ops *ops,
                       void *self)
{
    TDM_ASSERT(services->services_count < TDM__SERVICES_MAX);
    services->entries[services->services_count].ops = ops;
    services->entries[services->services_count].self = self;
    services->services_count++;
}

/* Returns the time histogram of a method of a service, and adds the histogram if it is missing.
 * Returns NULL if the table is full. */
static struct tdm__method_timing *services_find_timing(struct tdm__services *services,
                                                       const char *method)
{
    for (uint32_t i = 0; i < services->method_timings_count; i++) {
        if (strcmp(services->method_timings[i].method, method) == 0) {
            return &services->method_timings[i];
        }
    }
    if (services->method_timings_count == TDM__TIMED_METHODS_MAX) {
        return NULL;
    }
    (void)snprintf(services->method_timings[services->method_timings_count].method,
                   sizeof(services->method_timings[0].method), "%s", method);
    return &services->method_timings[services->method_timings_count++];
}

/* Lets the service number `index` serve the call and records how long that took. The call may be
 * freed before serve() returns, so its method is looked up first. Unknown methods of a known prefix
 * are counted as well; at worst they fill the table. */
static void services_serve_timed(struct tdm__services *services, uint32_t index,
                                 struct tdm__incoming_call *incoming)
{
    struct tdm__method_timing *timing =
        services_find_timing(services, tdm__incoming_method(incoming));
    int64_t start_ns = tdm__clock_ns();

    services->entries[index].ops->serve(services->entries[index].self, incoming);
    if (timing != NULL) {
        tdm__histogram_add(&timing->times, tdm__clock_ns() - start_ns);
    }
}

void tdm__services_serve(struct tdm__services *services, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    char detail[128];

    for (uint32_t i = 0; i < services->services_count; i++) {
        const struct tdm__service_ops *ops = services->entries[i].ops;
        size_t length = strlen(ops->prefix);

        if (strncmp(method, ops->prefix, length) == 0 && method[length] == '.') {
            services_serve_timed(services, i, incoming);
            return;
        }
    }
    (void)snprintf(detail, sizeof(detail), "this process has no service for %s", method);
    tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, detail);
}

void tdm__services_peer_exited(struct tdm__services *services,
                               const struct tdm__peer_identity *peer)
{
    for (uint32_t i = 0; i < services->services_count; i++) {
        if (services->entries[i].ops->peer_exited != NULL) {
            services->entries[i].ops->peer_exited(services->entries[i].self, peer);
        }
    }
}

void tdm__services_peer_tree_ended(struct tdm__services *services,
                                   const struct tdm__peer_identity *peer)
{
    for (uint32_t i = 0; i < services->services_count; i++) {
        if (services->entries[i].ops->peer_tree_ended != NULL) {
            services->entries[i].ops->peer_tree_ended(services->entries[i].self, peer);
        }
    }
}

void tdm__services_write_metrics(const struct tdm__services *services, FILE *out)
{
    static const char name[] = "tandem_daemon_call_seconds";

    tdm__metrics_family(out, name, "histogram",
                        "Time for which serving a call held the daemon, by method.");
    for (uint32_t i = 0; i < services->method_timings_count; i++) {
        const char *const labels[] = {"method", services->method_timings[i].method, NULL};
        struct tdm__histogram_snapshot snapshot;

        tdm__histogram_read(&services->method_timings[i].times, &snapshot);
        tdm__metrics_histogram(out, name, labels, &snapshot);
    }
    for (uint32_t i = 0; i < services->services_count; i++) {
        if (services->entries[i].ops->write_metrics != NULL) {
            services->entries[i].ops->write_metrics(services->entries[i].self, out);
        }
    }
}

void tdm__services_destroy(struct tdm__services *services)
{
    while (services->services_count > 0) {
        services->services_count--;
        if (services->entries[services->services_count].ops->destroy != NULL) {
            services->entries[services->services_count].ops->destroy(
                services->entries[services->services_count].self);
        }
    }
}
