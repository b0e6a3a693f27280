/* rendezvous_service.h - the daemon's RPC service "rendezvous": where the members of a group find
 * each other. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_RENDEZVOUS_SERVICE_H
#define TDM_COLOCATE_COMM_RENDEZVOUS_SERVICE_H

#include "runtime/service.h"

/* The table of the daemon's service "rendezvous". Types: s string, u unsigned, i signed, b bytes.
 *
 * rendezvous.join takes name s, rank u, ranks_count u, slot_bytes u, timeout_ms i. The reply has
 * generation u and the descriptor of the group's shared segment.
 *
 * rendezvous.join_multi_node takes name s, rank u, ranks_count u, slot_bytes u, timeout_ms i, the
 * member's address s or nil, and the id b of the node whose daemon is the meeting point. The
 * reply has key b and the list of (node b, address s) of all members.
 *
 * rendezvous.join_from_node is the same call, forwarded by the daemon of the member's node, with
 * the member's id in place of the node.
 *
 * rendezvous.member_died takes the id b of a forwarded member that has died. The reply is empty.
 *
 * rendezvous.cancel takes name s and the id b of the node that is the meeting point. The reply is
 * empty.
 *
 * All members get their replies when the last one has joined; the name is then free again. At the
 * earliest deadline of a member, all members that have joined get TDM_E_TIMEOUT with the missing
 * ranks. A member that dies before that is removed; the death of a member of a complete group
 * ends the group for the others. If a whole node is lost before the group is complete, the
 * members get TDM_E_NODE_LOST with the node and its ranks.
 *
 * A process that knows that a member will not come cancels the name. This cancels the name itself
 * and all names that begin with it and a slash: members that have joined, or join later, get
 * TDM_E_ABORTED. The name must not be used again. Complete groups are not affected.
 *
 * The members of a group across nodes receive each other's addresses and connect among
 * themselves. If all are on one node, they join once more with rendezvous.join under a name with
 * the key. */
extern const struct tdm__service_ops tdm__rendezvous_service;

/* The daemon's node, see actors/daemon/node_state.h. */
struct tdm__node;
/* Creates the service's `self`. `node` is borrowed; its loop must exist, and its connections to
 * other nodes must be ready before the first call. */
tdm_status tdm__rendezvous_service_create(struct tdm__node *node, void **self_out);

#endif
