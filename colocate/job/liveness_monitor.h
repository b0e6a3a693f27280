/* liveness_monitor.h - detects actors that died or do not reply. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_LIVENESS_MONITOR_H
#define TDM_COLOCATE_JOB_LIVENESS_MONITOR_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/actor.h>

/* Watches a list of actors. A slow call does not mean that its actor is dead: the method may
 * copy, or wait for another actor. The monitor therefore asks the daemon of each actor about the
 * process. The reply comes from a thread that methods do not block, so a busy process replies
 * and a stopped one does not. No actor is judged while the daemon itself is silent. */
struct tdm__liveness_monitor;

/* Creates a monitor for the actors at the indices 0 … count-1 of a list. An actor that does not
 * reply for `stall_ms` milliseconds counts as failed. */
tdm_status tdm__liveness_monitor_create(tdm_runtime *runtime, uint32_t count, int64_t stall_ms,
                                        struct tdm__liveness_monitor **monitor_out);
/* Cancels the probes that are pending and frees the monitor. NULL is allowed. */
void tdm__liveness_monitor_destroy(struct tdm__liveness_monitor *monitor); /* NULL is allowed */

/* Sends a probe for each actor that has none pending. Does nothing if the last call was less
 * than 250 ms ago. Elements of `actors` that are NULL are skipped. Does not wait for replies. */
tdm_status tdm__liveness_monitor_poll(struct tdm__liveness_monitor *monitor,
                                      tdm_actor *const *actors);
/* Probes all actors now and blocks until all probes are resolved. The result describes a time
 * after the call began. TDM_E_TIMEOUT if the daemon does not reply. */
tdm_status tdm__liveness_monitor_poll_sync(struct tdm__liveness_monitor *monitor,
                                           tdm_actor *const *actors);

/* Returns TDM_E_NODE_LOST, and names the daemon of this node, if it has not replied to any probe
 * for stall_ms while tdm__liveness_monitor_poll() was called; else TDM_OK. Does not block. */
tdm_status tdm__liveness_monitor_check_daemon(const struct tdm__liveness_monitor *monitor);
/* Copies why this node's daemon does not reach the cluster's store, as of its last reply; "" if it
 * does. The text is cut to the capacity. */
void tdm__liveness_monitor_store_error(const struct tdm__liveness_monitor *monitor, char *text,
                                       size_t text_bytes);
/* Returns why the actor at `index` counts as failed, or NULL if no failure is known. An actor
 * that is only silent must be killed before it is treated as dead. The text stays valid until
 * tdm__liveness_monitor_reset(). */
const char *tdm__liveness_monitor_failure(const struct tdm__liveness_monitor *monitor,
                                          uint32_t index);
/* Forgets everything about `index`, because the actor there was removed or replaced. */
void tdm__liveness_monitor_reset(struct tdm__liveness_monitor *monitor, uint32_t index);

#endif
