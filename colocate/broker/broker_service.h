/* broker_service.h - the daemon's RPC service "block": the block broker for the processes of the
 * node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_BROKER_BROKER_SERVICE_H
#define TDM_COLOCATE_BROKER_BROKER_SERVICE_H

#include "colocate/broker/broker.h"
#include "runtime/service.h"

/* The table of the daemon's service "block". The tenant of a call is the peer that calls. A
 * thread (block_allocation.h) allocates memory that the pool does not have, for one request at a
 * time in order of arrival; meanwhile the loop serves all other calls.
 *
 *   method          arguments                      reply
 *   block.create    gpu u, tag s, (sizes u …)      (keys b …), a descriptor for each
 *   block.adopt     gpu u, tag s, (sizes u …),     (keys b …)
 *                   a descriptor for each
 *   block.open      key b                          size u, one descriptor
 *   block.release   key b …                        –
 *   block.ledger    –                              a map per GPU: capacity_bytes, used_bytes,
 *                                                  pooled_bytes, rows (maps: owner, owner_id,
 *                                                  tag, bytes, releasing_bytes, holder,
 *                                                  blocks)
 */
extern const struct tdm__service_ops tdm__broker_service;

/* Creates the state of the service "block" in `self_out`, which runs on `loop`. Takes ownership of
 * `broker` on TDM_OK. */
tdm_status tdm__broker_service_create(struct tdm__loop *loop, struct tdm__broker *broker,
                                      void **self_out);

#endif
