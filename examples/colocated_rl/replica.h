/* replica.h - the trainer ranks that together hold one whole copy of the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_REPLICA_H
#define COLOCATED_RL_REPLICA_H

#include <tandem/collective.h>
#include <tandem/job.h>

/* The part of a trainer rank in its replica. Consecutive ranks form a replica, so that one of as
 * many ranks as a node has GPUs is on one node. */
struct replica {
    uint32_t rank;               /* Rank in the replica, 0 to ranks_count - 1. */
    uint32_t ranks_count;        /* Number of ranks of each replica. */
    tdm_collective_group *group; /* Group of the replica's ranks (owned); see replica_join(). */
};

/* Computes the part of a rank where the trainer has `replicas` replicas. TDM_E_INVAL if the ranks
 * do not divide into so many. */
tdm_status replica_init(struct replica *replica, const struct tdm_rank_context *context,
                        uint32_t replicas);
/* Joins the group of the replica, and waits for its other ranks. Does nothing for `tandem plan`,
 * which has no groups, if a replica is one rank, or if there is one replica. */
tdm_status replica_join(struct replica *replica, const struct tdm_rank_context *context);
/* Leaves the group, if it was joined. */
void replica_leave(struct replica *replica);

#endif
