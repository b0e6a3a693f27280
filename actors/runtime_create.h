/* runtime_create.h - creates the runtime of a driver or worker from its parts, and destroys it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_RUNTIME_CREATE_H
#define TDM_ACTORS_RUNTIME_CREATE_H

#include "actors/process/runtime.h"

/* Creates a runtime with an event loop and an RPC endpoint; the caller fills in the other fields
 * and owns the runtime. */
tdm_status tdm__runtime_create(const struct tdm__peer_identity *self,
                               const uint8_t token[TDM__TOKEN_BYTES], tdm_runtime **runtime_out);
/* Closes all connections and frees the runtime. It does not notify the daemon. */
void tdm__runtime_destroy(tdm_runtime *runtime);
/* Makes `conn` the runtime's connection to its daemon. When it closes, a worker exits and the calls
 * of a driver fail. */
void tdm__runtime_set_daemon(tdm_runtime *runtime, struct tdm__conn *conn);

#endif
