/* nodes_snapshot.h - all nodes of the cluster with their free resources, as a transaction read
 * them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_NODES_SNAPSHOT_H
#define TDM_SCHEDULER_NODES_SNAPSHOT_H

#include "runtime/store/txn.h"
#include "scheduler/records.h"

/* The decoded records of nodes, which a read cache keeps from one transaction to the next. */
struct tdm__decoded_nodes;

/* Where the last actor was placed. */
struct tdm__last_placed {
    struct tdm__id node; /* ID of the node; all zero for none. */
    uint64_t losses;     /* Number of lost races (tdm__txn_losses()) when it was first chosen. */
};

/* All nodes of the cluster with their free resources, sorted by ID. */
struct tdm__nodes_snapshot {
    uint32_t nodes_count;                 /* Number of entries in `nodes` and in `resources`. */
    const struct tdm__node_record *nodes; /* Records of the nodes (belong to `decoded`). */
    /* Total and free resources of the nodes in the same order (belong to `decoded`). */
    const struct tdm__node_resources *resources;
    struct tdm__decoded_nodes *decoded; /* Where both are. */
    bool owns_decoded; /* Whether the snapshot frees `decoded`; else the read cache does. */
};
/* Creates a snapshot from a transaction that read all keys of node/ and free/, with the free
 * resources that earlier parts of its body leave (tdm__txn_next_part()). With a read cache only the
 * records are decoded that have changed since the last snapshot. Until the caller ends the snapshot
 * with tdm__nodes_snapshot_fini(), which must be before the body returns, no other one may be
 * created. Returns TDM_E_PROTOCOL for a malformed record, TDM_E_NOMEM. */
tdm_status tdm__nodes_snapshot_read(const struct tdm__txn *txn,
                                    struct tdm__nodes_snapshot *snapshot_out);
/* Returns the resources of the node number `index`, to be changed in this snapshot only. */
struct tdm__node_resources *tdm__nodes_snapshot_change(struct tdm__nodes_snapshot *snapshot,
                                                       uint32_t index);
/* Returns the resources of a node, to be changed in this snapshot only, or NULL if the node is
 * lost.
 */
struct tdm__node_resources *tdm__nodes_snapshot_find(struct tdm__nodes_snapshot *snapshot,
                                                     const struct tdm__id *node);
/* Decides for each node whether its ticket keeps it from a request, and sets `is_kept`. `own` is
 * the ticket of the request, without a group if it has none (scheduler/ticket.h). The ticket of a
 * group whose owner is not in the cluster counts for nothing. */
void tdm__nodes_snapshot_apply_tickets(struct tdm__nodes_snapshot *snapshot,
                                       const struct tdm__ticket *own, bool has_turn);
/* Returns where the last actor was placed, also by earlier transactions of the same read cache, to
 * be changed. */
struct tdm__last_placed *tdm__nodes_snapshot_last_placed(struct tdm__nodes_snapshot *snapshot);
/* Ends a snapshot. A zeroed snapshot is allowed. */
void tdm__nodes_snapshot_fini(struct tdm__nodes_snapshot *snapshot);

#endif
