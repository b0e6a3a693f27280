/* timeline_service.h - what the actors of a node ran when, and how much. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_TIMELINE_SERVICE_H
#define TDM_ACTORS_DAEMON_TIMELINE_SERVICE_H

#include "runtime/service.h"

/* "timeline.read" (node id or ""): asks the workers of that node.
 * answer: (node name, ns to add to its times to have the time of day,
 *          [(actor id, class, name, pid, spans as of worker_metrics.h) …])
 * "timeline.counts" (node id or ""): the same, with what "worker.metrics" answers for the
 * spans.
 */
extern const struct tdm__service_ops tdm__timeline_service;

#endif
