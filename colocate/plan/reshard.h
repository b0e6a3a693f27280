/* reshard.h - from one layout into another: who copies which rectangle where, compiled once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_PLAN_RESHARD_H
#define TDM_COLOCATE_PLAN_RESHARD_H

#include "colocate/plan/copy.h"
#include "colocate/plan/shards.h"

/* Where a rank's memory is.  Ranks of a trainer and of an engine that share a GPU say the same
 * numbers; they mean nothing else. */
struct tdm__rank_place {
    uint32_t node;
    uint32_t gpu; /* of all nodes together, or of the node: both will do */
};

/* One side of a plan.  All borrowed. */
struct tdm__side {
    const struct tdm__sharding *sharding;
    const struct tdm__rank_place *places; /* one a rank */
};

/* What one rank of the destination has to do: all copies, in any order, then all passes.
 * Nothing is written twice; what is added to a vocabulary is not written at all. */
struct tdm__rank_plan {
    struct tdm__copy *copies; /* all owned */
    struct tdm__copy *passes; /* from the staging memory to the tensors */
    struct tdm__copy_scales *scales;
    uint32_t copies_count;
    uint32_t passes_count;
    uint32_t scales_count;
    uint64_t staging_bytes;
};

/* What it costs, known before it runs.  Bytes are those read: a conversion is done where they
 * arrive. */
struct tdm__reshard_cost {
    uint64_t edge_bytes[TDM__EDGES_COUNT];
    uint64_t edge_copies[TDM__EDGES_COUNT];
    uint64_t written_bytes;  /* in the destination's dtypes, with scales */
    uint64_t sent_bytes_min; /* of a source rank, over links: not inside a GPU */
    uint64_t sent_bytes_max;
    uint64_t received_bytes_max; /* of a destination rank, over links */
    uint64_t staging_bytes_max;  /* of a destination rank */
    uint32_t copies_max;         /* of a destination rank, with passes */
};

struct tdm__reshard {
    const struct tdm__model *model; /* borrowed, and so is what the sides point to */
    struct tdm__side from;
    struct tdm__side to;
    struct tdm__shards *from_shards; /* owned, one a rank; their pieces are gone */
    struct tdm__shards *to_shards;
    struct tdm__rank_plan *ranks; /* owned, one a destination rank */
    struct tdm__reshard_cost cost;
};

/* Pure: the same arguments always give the same plan.  A source on the same GPU is taken before
 * one on the same node, that before any other; among equals the one that has sent least.
 * TDM_E_INVAL names the tensor that the source does not hold or a layout cannot,
 * TDM_E_UNSUPPORTED the tensor that no conversion is known for. */
tdm_status tdm__reshard_create(const struct tdm__model *model, const struct tdm__side *from,
                               const struct tdm__side *to, struct tdm__reshard **reshard_out);
void tdm__reshard_destroy(struct tdm__reshard *reshard); /* NULL is allowed */

#endif
