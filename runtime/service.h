/* service.h - the parts of a daemon: each answers the calls of one prefix. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SERVICE_H
#define TDM_RUNTIME_SERVICE_H

#include "runtime/metrics/metrics.h"
#include "runtime/rpc/rpc.h"

/* cli/tandemd.c assembles the daemon from services that the layers provide, so that no lower
 * layer knows a higher one.  A call "block.create" without a target goes to the service
 * "block". */
struct tdm__service_ops {
    const char *prefix; /* without the dot */
    void (*serve)(void *self, struct tdm__incoming_call *incoming);
    /* A process (worker or driver) of this node is dead and reaped, or has left: everything it
     * held returns now.  May be NULL. */
    void (*peer_exited)(void *self, const struct tdm__peer_identity *peer);
    void (*destroy)(void *self); /* may be NULL */
    /* Writes what the service counts, in Prometheus' text format.  May be NULL. */
    void (*write_metrics)(void *self, FILE *out);
};

enum { TDM__SERVICES_MAX = 24, TDM__TIMED_METHODS_MAX = 96 };

/* The calls of one method, by how long serving them held the loop.  (The answer may come later;
 * nobody else is served during this time.) */
struct tdm__method_timing {
    char method[TDM__RPC_NAME_BYTES_MAX + 1];
    struct tdm__histogram times;
};

struct tdm__services {
    struct {
        const struct tdm__service_ops *ops;
        void *self; /* owned, given to destroy */
    } entries[TDM__SERVICES_MAX];
    uint32_t services_count;
    struct tdm__method_timing method_timings[TDM__TIMED_METHODS_MAX];
    uint32_t method_timings_count;
};

void tdm__services_add(struct tdm__services *services, const struct tdm__service_ops *ops,
                       void *self);
/* Hands the call to the service of its prefix; TDM_E_NOT_FOUND to the caller if none has it. */
void tdm__services_serve(struct tdm__services *services, struct tdm__incoming_call *incoming);
void tdm__services_peer_exited(struct tdm__services *services,
                               const struct tdm__peer_identity *peer);
/* Everything that the services count, and the calls they served. */
void tdm__services_write_metrics(const struct tdm__services *services, FILE *out);
void tdm__services_destroy(struct tdm__services *services); /* in reverse order */

#endif
