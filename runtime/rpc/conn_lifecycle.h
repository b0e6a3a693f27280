/* conn_lifecycle.h - creates and ends connections. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_CONN_LIFECYCLE_H
#define TDM_RUNTIME_RPC_CONN_LIFECYCLE_H

#include "runtime/rpc/types.h"

struct tdm__addresses;

/* Creates a connection over the socket `fd` and starts its handshake. The connection owns the
 * socket after TDM_OK. `label` names the peer until it is authenticated. */
tdm_status tdm__conn_create(struct tdm__rpc *rpc, int fd, bool server, const char *label,
                            struct tdm__conn **conn_out);
/* Keeps those of `addresses` that have not been tried, for the case that the connect(2) under way
 * fails. */
void tdm__conn_keep_addresses(struct tdm__conn *conn, const struct tdm__addresses *addresses);
/* Ends the connection with `reason` and this thread's error detail. It runs callbacks, so only
 * callbacks of the loop may call it. */
void tdm__conn_finish(struct tdm__conn *conn, tdm_status reason);

#endif
