/* method_metrics.h - numbers of calls of each method of an actor, by state. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_METHOD_METRICS_H
#define TDM_ACTORS_COMMON_METHOD_METRICS_H

#include <stdbool.h>
#include <tandem/actor.h>

/* Number of calls of one method, by state. */
struct tdm__method_counts {
    uint64_t waiting;  /* Number of calls of the method that wait. */
    uint64_t running;  /* Number of calls of the method that run. */
    uint64_t finished; /* Number of calls of the method that succeeded. */
    uint64_t failed;   /* Number of calls of the method that failed. */
};

/* Limits of the names that are counted for the method "*", which serves all names that its class
 * does not define. The calls of further names are counted as "*". */
enum { TDM__METRICS_NAMES_MAX = 64, TDM__METRICS_NAME_BYTES = 64 };

/* Number of calls of each method of one actor, by state. A call is counted in exactly one state:
 * waiting, then running, then finished or failed once it has been replied to, even if its method
 * still runs. The owner guards it. */
struct tdm__method_metrics {
    const struct tdm_actor_class *actor_class; /* Class of the counted actor, borrowed. */
    /* Counts of each method, in the order of the class. */
    struct tdm__method_counts methods[TDM_METHODS_MAX];
    /* Counts of the names under which the method "*" was called, in the order of their first calls.
     */
    struct {
        char name[TDM__METRICS_NAME_BYTES]; /* Name of the called method. */
        struct tdm__method_counts counts;   /* Number of its calls. */
    } names[TDM__METRICS_NAMES_MAX];
    uint32_t names_count; /* Number of entries in `names`. */
};

/* Sets the counts of all methods of the class to 0. */
void tdm__method_metrics_init(struct tdm__method_metrics *method_metrics,
                              const struct tdm_actor_class *actor_class);

/* Counts an arrived call of `method`, a method of the class, as waiting. For the method "*", `name`
 * is the name under which it was called; NULL for others. */
void tdm__method_metrics_arrived(struct tdm__method_metrics *method_metrics,
                                 const struct tdm_method_entry *method, const char *name);
/* Counts a call of `method` under `name` that was waiting as running. */
void tdm__method_metrics_began(struct tdm__method_metrics *method_metrics,
                               const struct tdm_method_entry *method, const char *name);
/* Counts a call as finished, or as failed unless `succeeded`. `began` says whether it was
 * running or still waiting. */
void tdm__method_metrics_finished(struct tdm__method_metrics *method_metrics,
                                  const struct tdm_method_entry *method, const char *name,
                                  bool began, bool succeeded);

/* Writes the message actor_calls: [(method, waiting, running, finished, failed) ...], without
 * methods that were never called. `method_metrics` may be NULL for an empty list. */
void tdm__method_metrics_write(const struct tdm__method_metrics *method_metrics,
                               tdm_writer *writer);

#endif
