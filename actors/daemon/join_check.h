/* join_check.h - refuses to join a cluster with whose nodes this node could not work. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_JOIN_CHECK_H
#define TDM_ACTORS_DAEMON_JOIN_CHECK_H

#include "actors/daemon/node_state.h"

/* Reads the list of nodes from the store and connects to them, at most to the first
 * TDM__JOIN_CHECK_NODES_MAX. Blocks, with the loop running, until all of them have replied, at most
 * `nodes_timeout_ms` milliseconds after the store has. A read of the store that fails is repeated
 * for `store_timeout_ms` milliseconds, and then gives TDM_E_STORE. Returns TDM_E_AUTH if a node has
 * another token, TDM_E_PROTOCOL if it speaks another version, and TDM_E_STATE if it or this node
 * does not listen for other nodes: their actors could not be called. The error says which node and
 * what to do. A node that does not reply is passed over, because it may be dead. Needs node->rpc,
 * node->store, node->loop and the addresses of node->record. Stores the highest epoch of a node in
 * the list. */
tdm_status tdm__join_check(struct tdm__node *node, int64_t store_timeout_ms,
                           int64_t nodes_timeout_ms, uint64_t *newest_epoch_out);

/* Does the same for a node that has joined, with the nodes that have joined before it but after
 * tdm__join_check() has stored `newest_epoch`. On failure the caller leaves the cluster. */
tdm_status tdm__join_check_again(struct tdm__node *node, int64_t store_timeout_ms,
                                 int64_t nodes_timeout_ms, uint64_t newest_epoch);

/* Most nodes to which a node connects before it joins their cluster. */
enum { TDM__JOIN_CHECK_NODES_MAX = 16 };

#endif
