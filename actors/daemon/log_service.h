/* log_service.h - serves the output of a node's workers to commands and drivers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_LOG_SERVICE_H
#define TDM_ACTORS_DAEMON_LOG_SERVICE_H

#include "runtime/service.h"

/* The service "log", whose object is a struct tdm__worker_logs. A call that names another node is
 * forwarded.
 *
 * "log.read" (log_read) reads the output of the actor's newest process, or of the daemon itself. A
 * negative offset counts from the end. It replies with a log_piece.
 *
 * "log.take" (log_take) replies with the lines (log_lines) that the workers of a job have written
 * and that were not taken before. A node that prints the output itself has none to take. */
extern const struct tdm__service_ops tdm__log_service;

#endif
