/* liveness_monitor.h - asks actors whether they are still there. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_LIVENESS_MONITOR_H
#define TDM_COLOCATE_JOB_LIVENESS_MONITOR_H

#include <stdint.h>
#include <tandem/actor.h>

/* A call that takes long says nothing about its actor: it may copy, or wait for another one. So
 * the actor's process is asked, by its daemon, and the answer comes from a thread that methods
 * do not hold up: who computes answers, who is stopped does not.  While the daemon itself is
 * silent nobody is judged. */
struct tdm__liveness_monitor;

/* For the actors at places 0 … count-1 of a list; `stall_ms` without an answer is too long. */
tdm_status tdm__liveness_monitor_create(tdm_runtime *runtime, uint32_t count, int64_t stall_ms,
                                        struct tdm__liveness_monitor **watch_out);
void tdm__liveness_monitor_destroy(struct tdm__liveness_monitor *monitor); /* NULL is allowed */

/* Asks those that are not being asked, a few times a second and never more often; where a place
 * is NULL nobody.  Does not wait for the answers. */
tdm_status tdm__liveness_monitor_poll(struct tdm__liveness_monitor *monitor,
                                      tdm_actor *const *actors);
/* The same at once, and waits: what is told afterwards was so after the call began. */
tdm_status tdm__liveness_monitor_poll_sync(struct tdm__liveness_monitor *monitor,
                                           tdm_actor *const *actors);

/* Why the actor at that place is gone, or silent, which only a kill makes the same; NULL while
 * it answers, as far as is known.  Stays so until the place is forgotten. */
const char *tdm__liveness_monitor_failure(const struct tdm__liveness_monitor *monitor,
                                          uint32_t index);
/* Somebody else takes the place, or nobody. */
void tdm__liveness_monitor_reset(struct tdm__liveness_monitor *monitor, uint32_t index);

#endif
