/* reserve_ticket.h - gives the ticket of a placement group that waits to nodes, and takes it back.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RESERVE_TICKET_H
#define TDM_SCHEDULER_RESERVE_TICKET_H

#include "scheduler/nodes_snapshot.h"
#include "scheduler/records.h"

/* What a run of a transaction's body has done with the tickets of a group. */
enum tdm__ticket_progress {
    TDM__TICKETS_UNCHANGED, /* No node was written. */
    TDM__TICKETS_CHANGED,   /* The commit writes all nodes that it should. */
    /* The commit writes some nodes; the transaction must run again for the others. */
    TDM__TICKETS_UNFINISHED
};

/* A group that waits and has a turn. */
struct tdm__ticket_request {
    struct tdm__ticket ticket;            /* Ticket of the group. */
    uint32_t turn;                        /* Number of the turn, from 1 (tdm__ticket_turn()). */
    const struct tdm__resources *bundles; /* Requested bundles (borrowed). */
    uint32_t bundles_count;               /* Number of requested bundles. */
    uint32_t bundles_together;            /* Number of consecutive bundles on one node. */
    enum tdm_placement_strategy strategy; /* How the bundles are distributed over the nodes. */
};

/* Adds the writes that give the group's ticket to nodes which could hold the group if they were
 * idle, unless it has enough such nodes. The choice differs from turn to turn. Nodes that are kept
 * for tickets before this one are left out; tdm__nodes_snapshot_apply_tickets() must have run. A
 * commit that writes many nodes would lose races all the time, so each writes a few. */
tdm_status tdm__tickets_give(struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot,
                             const struct tdm__ticket_request *request,
                             enum tdm__ticket_progress *progress_out);
/* Takes the ticket of the group `id` back from all nodes of the snapshot, and adds the writes of
 * those that have no bundle of `group`. The caller writes the others afterwards. */
tdm_status tdm__tickets_take_back(struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot,
                                  const struct tdm__id *id,
                                  const struct tdm__placement_group_record *group,
                                  enum tdm__ticket_progress *progress_out);

#endif
