/* service.h - the services of a daemon: each serves the calls whose method has its prefix. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SERVICE_H
#define TDM_RUNTIME_SERVICE_H

#include "runtime/metrics/metrics.h"
#include "runtime/rpc/rpc.h"

/* Interface of one service of the daemon, such as "block", which serves the calls "block.create",
 * "block.open" and so on that name no actor as their target. cli/tandemd.c assembles the daemon
 * from the services of all layers, so that no lower layer depends on a higher one.  All functions
 * run on the loop thread with the loop lock held. */
struct tdm__service_ops {
    /* Part of the service's method names before the dot, such as "block"; static. */
    const char *prefix;
    /* Serves one call of the service, which must get exactly one reply, now or later. */
    void (*serve)(void *self, struct tdm__incoming_call *incoming);
    /* Called when a process (worker or driver) of this node is dead and reaped, or has
     * disconnected.  The service must release everything that the process held, except for what
     * its child processes may use as well.  May be NULL. */
    void (*peer_exited)(void *self, const struct tdm__peer_identity *peer);
    /* Called after peer_exited(), when all processes that the process has started are dead and
     * reaped as well: at once, or later if they could not be killed.  May be NULL. */
    void (*peer_tree_ended)(void *self, const struct tdm__peer_identity *peer);
    void (*destroy)(void *self); /* Frees the service when the daemon ends.  May be NULL. */
    /* Writes the service's metrics in the text format of Prometheus.  May be NULL. */
    void (*write_metrics)(void *self, FILE *out);
};

/* Most services of a daemon, and most methods with a time histogram. */
enum { TDM__SERVICES_MAX = 24, TDM__TIMED_METHODS_MAX = 96 };

/* Histogram of how long serving each call of one method occupied the daemon's loop. A reply that is
 * sent later does not count. No other call is served during this time. */
struct tdm__method_timing {
    char method[TDM__RPC_NAME_BYTES_MAX + 1]; /* Name of the method, NUL-terminated. */
    struct tdm__histogram times;              /* Time for which each call occupied the loop. */
};

/* All services of a daemon.  The loop lock guards it; a zeroed structure is empty. */
struct tdm__services {
    /* The services of the daemon, in the order of registration. */
    struct {
        const struct tdm__service_ops *ops; /* Functions of the service; static. */
        void *self; /* State of the service; owned, freed by ops->destroy(). */
    } entries[TDM__SERVICES_MAX];
    uint32_t services_count; /* Number of registered services. */
    /* Time histograms by method. Further methods are not measured once the table is full. */
    struct tdm__method_timing method_timings[TDM__TIMED_METHODS_MAX];
    uint32_t method_timings_count; /* Number of used elements of `method_timings`. */
};

/* Registers a service of the daemon. `self`, the state of the service, is passed to the functions
 * in `ops` and is owned from now on. Registering more than TDM__SERVICES_MAX services is a bug and
 * aborts. */
void tdm__services_add(struct tdm__services *services, const struct tdm__service_ops *ops,
                       void *self);
/* Passes a call to the service whose prefix the call's method has. Replies TDM_E_NOT_FOUND if there
 * is no such service. */
void tdm__services_serve(struct tdm__services *services, struct tdm__incoming_call *incoming);
/* Tells every service that the process `peer` has ended or disconnected. */
void tdm__services_peer_exited(struct tdm__services *services,
                               const struct tdm__peer_identity *peer);
/* Tells every service that all processes that the process `peer` has started have ended. */
void tdm__services_peer_tree_ended(struct tdm__services *services,
                                   const struct tdm__peer_identity *peer);
/* Writes the times by method and the metrics of all services in the text format of Prometheus. */
void tdm__services_write_metrics(const struct tdm__services *services, FILE *out);
/* Destroys all services of a daemon in the reverse order of registration. */
void tdm__services_destroy(struct tdm__services *services);

#endif
