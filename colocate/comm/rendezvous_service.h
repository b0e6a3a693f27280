/* rendezvous_service.h - the daemon's service "rendezvous": where the members of a group find each
 * other.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_RENDEZVOUS_SERVICE_H
#define TDM_COLOCATE_COMM_RENDEZVOUS_SERVICE_H

#include "runtime/service.h"

/*   method      arguments                                             reply
 *   rendezvous.join   name s, rank u, ranks_count u, slot_bytes u,          generation u, the
 * segment timeout_ms i rendezvous.join_multi_node name s, rank u, ranks_count u, slot_bytes u, key
 * b, [(node b, timeout_ms i, own address s or nil, the node b        address s) …] to meet on
 *   rendezvous.join_from_node    the same from that node's daemon, with the member's   the same
 *               id in place of the node
 *   rendezvous.member_died   the id b of such a member that has died               –
 *   rendezvous.cancel    name s, the node b that is met on                     –
 *
 * All members are answered when the last has come, and the name is free again; or, at the
 * first one's deadline, all who came are told who did not (TDM_E_TIMEOUT).  A member that
 * dies before is out of the meeting; one that dies after ends the group for the others.  Where
 * a whole node is lost, before, all who came are told which, and whom it had with it
 * (TDM_E_NODE_LOST).
 *
 * Who knows that a member will not come calls the meeting off, and with it all whose names
 * begin with that name and a slash: who has come, or comes late, is told so (TDM_E_ABORTED).
 * Such a name is not to be used again.  Groups that have met are not touched.
 *
 * Members of a meeting across nodes hear of one another and connect among themselves, or join
 * once more, by that key, where all are on one node after all. */
extern const struct tdm__service_ops tdm__rendezvous_service;

/* The service's `self`.  By the time it serves, the node has its loop and its other nodes. */
struct tdm__node;
tdm_status tdm__rendezvous_service_create(struct tdm__node *node, void **self_out);

#endif
