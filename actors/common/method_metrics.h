/* method_metrics.h - numbers of calls of each method of an actor, by state. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_METHOD_METRICS_H
#define TDM_ACTORS_COMMON_METHOD_METRICS_H

#include <stdbool.h>
#include <tandem/actor.h>

/* Number of calls of each method of one actor, by state. A call is counted in exactly one state:
 * waiting, then running, then finished or failed once it has been replied to, even if its method
 * still runs. The owner guards it. */
struct tdm__method_metrics {
    const struct tdm_actor_class *actor_class; /* Class of the counted actor, borrowed. */
    struct {
        uint64_t waiting;       /* Number of calls of the method that wait. */
        uint64_t running;       /* Number of calls of the method that run. */
        uint64_t finished;      /* Number of calls of the method that succeeded. */
        uint64_t failed;        /* Number of calls of the method that failed. */
    } methods[TDM_METHODS_MAX]; /* Counts of each method, in the order of the class. */
};

/* Sets the counts of all methods of the class to 0. */
void tdm__method_metrics_init(struct tdm__method_metrics *method_metrics,
                              const struct tdm_actor_class *actor_class);

/* Counts an arrived call of `method`, a method of the class, as waiting. */
void tdm__method_metrics_arrived(struct tdm__method_metrics *method_metrics,
                                 const struct tdm_method_entry *method);
/* Counts a call of `method` that was waiting as running. */
void tdm__method_metrics_began(struct tdm__method_metrics *method_metrics,
                               const struct tdm_method_entry *method);
/* Counts a call as finished, or as failed unless `succeeded`. `began` says whether it was
 * running or still waiting. */
void tdm__method_metrics_finished(struct tdm__method_metrics *method_metrics,
                                  const struct tdm_method_entry *method, bool began,
                                  bool succeeded);

/* Writes the message actor_calls: [(method, waiting, running, finished, failed) ...], without
 * methods that were never called. `method_metrics` may be NULL for an empty list. */
void tdm__method_metrics_write(const struct tdm__method_metrics *method_metrics,
                               tdm_writer *writer);

#endif
