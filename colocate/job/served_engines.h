/* served_engines.h - the engines that the gather group of a trainer rank serves. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_SERVED_ENGINES_H
#define TDM_COLOCATE_JOB_SERVED_ENGINES_H

#include "colocate/job/gather_groups.h"
#include "colocate/job/transfer_pair.h"

/* The connection of a trainer rank to one engine rank. */
struct tdm__served_rank {
    uint32_t number;                /* Rank in the engine. */
    struct tdm__transfer_pair pair; /* The trainer's end; without a group until it is opened. */
};

/* What a trainer rank has of one engine of its gather group (gather_groups.h). */
struct tdm__served_engine {
    uint32_t number; /* Number of the engine in the job. */
    bool takes_part; /* True if the engine takes part in the current update. */
    /* Owned handle of the engine's first rank, which only the first rank of the gather group calls;
     * NULL until it is needed. */
    tdm_actor *first_rank;
    /* Owned reference to the engine's reply to the last announcement; NULL if none is pending. */
    tdm_ref *announced;
    /* Owned array of the connections to the engine ranks whose images this trainer rank serves;
     * NULL if the engine is colocated. */
    struct tdm__served_rank *ranks;
    uint32_t ranks_count; /* Number of elements of `ranks`. */
};

/* The engines that a trainer rank has learned of. A zeroed struct has none. */
struct tdm__served_engines {
    struct tdm__served_engine *items; /* Owned array, in the order in which they were learned of. */
    uint32_t count;                   /* Number of elements. */
};

/* Returns the engine of this number, which is added if it is not there. The pointer is valid until
 * the next engine is added. */
tdm_status tdm__served_engines_find(struct tdm__served_engines *engines, uint32_t number,
                                    struct tdm__served_engine **engine_out);
/* Notes which engines take part in an update: those of `numbers` that belong to the gather group of
 * this trainer rank. The transfer pairs of all others are closed. */
tdm_status tdm__served_engines_begin_update(struct tdm__served_engines *engines,
                                            const struct tdm__message_list *numbers,
                                            const struct tdm__gather_groups *groups,
                                            uint32_t trainer_rank);
/* Returns the connection to a rank of the engine; NULL if it was not opened. */
struct tdm__transfer_pair *tdm__served_engine_pair(const struct tdm__served_engine *engine,
                                                   uint32_t engine_rank);
/* Returns the connection to a rank of the engine, which is added if it is not there. The pointer is
 * valid until the next one is added. */
tdm_status tdm__served_engine_add_pair(struct tdm__served_engine *engine, uint32_t engine_rank,
                                       struct tdm__transfer_pair **pair_out);
/* Returns whether an engine takes part in the current update. */
bool tdm__served_engines_any(const struct tdm__served_engines *engines);
/* Releases the handles of the engines' first ranks, so that they are found by name again. */
void tdm__served_engines_detach(struct tdm__served_engines *engines);
/* Releases everything. */
void tdm__served_engines_fini(struct tdm__served_engines *engines);

/* Returns the status of a call to the engine, of which this thread has the error detail.
 * TDM_E_ACTOR_UNAVAILABLE becomes TDM_E_ABORTED, with the engine's number: a trainer rank that
 * returned it would count as unreachable itself, and the job would restart. So the update is tried
 * again, and the engine is left out if its transfer pairs cannot be opened then. */
tdm_status tdm__served_engine_called(const struct tdm__served_engine *engine, tdm_status status);

#endif
