/* metrics_service.h - the numbers of a node, for Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_METRICS_SERVICE_H
#define TDM_ACTORS_DAEMON_METRICS_SERVICE_H

#include "actors/daemon/node.h"

/* "metrics.read" () answers the text; so does GET /metrics where `address` says (see
 * runtime/http/http.h; NULL: nowhere).  The workers are asked for their numbers then, and only
 * then; one that does not answer within 300 ms is left out. */
struct tdm__node_metrics;

tdm_status tdm__node_metrics_create(struct tdm__node *node, const char *address,
                                    struct tdm__node_metrics **metrics_out);

extern const struct tdm__service_ops tdm__metrics_service;

#endif
