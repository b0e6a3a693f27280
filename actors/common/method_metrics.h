/* method_metrics.h - how many calls of each method an actor has had, and where they are. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_METHOD_METRICS_H
#define TDM_ACTORS_COMMON_METHOD_METRICS_H

#include <stdbool.h>
#include <tandem/actor.h>

/* A call is counted once: it waits, then it runs, then it has been answered, also while its
 * method goes on.  Guarded by whoever owns it. */
struct tdm__method_metrics {
    const struct tdm_actor_class *actor_class; /* borrowed */
    struct {
        uint64_t waiting;
        uint64_t running;
        uint64_t finished;
        uint64_t failed;
    } methods[TDM_METHODS_MAX]; /* as in the class */
};

void tdm__method_metrics_init(struct tdm__method_metrics *method_metrics,
                              const struct tdm_actor_class *actor_class);

/* `method` is one of the class's. */
void tdm__method_metrics_arrived(struct tdm__method_metrics *method_metrics,
                                 const struct tdm_method_entry *method);
void tdm__method_metrics_began(struct tdm__method_metrics *method_metrics,
                               const struct tdm_method_entry *method);
void tdm__method_metrics_finished(struct tdm__method_metrics *method_metrics,
                                  const struct tdm_method_entry *method, bool began, bool well);

/* [(method, waiting, running, finished, failed) …], without methods never called. */
/* Writes a message actor_calls; `method_metrics` may be NULL. */
void tdm__method_metrics_write(const struct tdm__method_metrics *method_metrics,
                               tdm_writer *writer);

#endif
