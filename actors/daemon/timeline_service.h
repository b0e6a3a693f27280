/* timeline_service.h - spans and call counts of the actors of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_TIMELINE_SERVICE_H
#define TDM_ACTORS_DAEMON_TIMELINE_SERVICE_H

#include "runtime/service.h"

/* The service "timeline". "timeline.read" (node id or "") asks the workers of that node for their
 * spans. It replies with (node name, nanoseconds to add to its times to get the time of day,
 * [(actor id, class, name, pid, spans as in worker_metrics.h) ...]). "timeline.counts" (node id or
 * "") replies with the same, but with each worker's reply to "worker.metrics" instead of spans. */
extern const struct tdm__service_ops tdm__timeline_service;

#endif
