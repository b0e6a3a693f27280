/* broker_remote.h - a broker client that calls the daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_BROKER_BROKER_REMOTE_H
#define TDM_COLOCATE_BROKER_BROKER_REMOTE_H

#include "colocate/broker/broker_client.h"

struct tdm__conn;

/* Creates a client that calls the service "block" of the daemon at the other end of `conn`
 * (borrowed). Each call fails after `timeout_ms`. */
tdm_status tdm__broker_client_open_remote(struct tdm__conn *conn, int64_t timeout_ms,
                                          struct tdm__broker_client **client_out);

#endif
