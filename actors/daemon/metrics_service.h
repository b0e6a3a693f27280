/* metrics_service.h - the metrics of a node, in the text format of Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_METRICS_SERVICE_H
#define TDM_ACTORS_DAEMON_METRICS_SERVICE_H

#include "actors/daemon/node_state.h"

/* The metrics service of a daemon, with its HTTP server. */
struct tdm__node_metrics;

/* Creates the metrics service. GET /metrics at `address` (runtime/http/http.h), unless that is
 * NULL, gets the text of all metrics. Each request asks the workers for their numbers; a worker
 * that does not reply within 300 ms is left out. */
tdm_status tdm__node_metrics_create(struct tdm__node *node, const char *address,
                                    struct tdm__node_metrics **metrics_out);

/* The service "metrics", for tdm__services_add() with a struct tdm__node_metrics as `self`. It
 * serves no calls. */
extern const struct tdm__service_ops tdm__metrics_service;

#endif
