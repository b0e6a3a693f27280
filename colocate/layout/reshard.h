/* reshard.h - from one layout into another: who copies which rectangle where, compiled once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_RESHARD_H
#define TDM_COLOCATE_LAYOUT_RESHARD_H

#include "colocate/layout/rank_shards.h"
#include "colocate/transfer/rect_copy.h"

/* Where a rank's memory is.  Ranks of a trainer and of an engine that share a GPU say the same
 * numbers; they mean nothing else. */
struct tdm__rank_location {
    uint32_t node;
    uint32_t gpu; /* of all nodes together, or of the node: both will do */
};

/* One side of a plan.  All borrowed. */
struct tdm__reshard_side {
    const struct tdm__sharding *sharding;
    const struct tdm__rank_location *locations; /* one a rank */
};

/* What one rank of the destination has to do: all copies, in any order, then all staged_copies.
 * Nothing is written twice; what is added to a vocabulary is not written at all. */
struct tdm__rank_copies {
    struct tdm__rect_copy *copies;        /* all owned */
    struct tdm__rect_copy *staged_copies; /* from the staging memory to the tensors */
    struct tdm__scales_location *scales;
    uint32_t copies_count;
    uint32_t staged_copies_count;
    uint32_t scales_count;
    uint64_t staging_bytes;
};

/* What it costs, known before it runs.  Bytes are those read: a conversion is done where they
 * arrive. */
struct tdm__reshard_cost {
    uint64_t bytes_by_locality[TDM__LOCALITIES_COUNT];
    uint64_t copies_by_locality[TDM__LOCALITIES_COUNT];
    uint64_t written_bytes;  /* in the destination's dtypes, with scales */
    uint64_t sent_bytes_min; /* of a source rank, over links: not inside a GPU */
    uint64_t sent_bytes_max;
    uint64_t received_bytes_max; /* of a destination rank, over links */
    uint64_t staging_bytes_max;  /* of a destination rank */
    uint32_t copies_max;         /* of a destination rank, with staged_copies */
};

struct tdm__reshard {
    const struct tdm__model *model; /* borrowed, and so is what the sides point to */
    struct tdm__reshard_side from;
    struct tdm__reshard_side to;
    struct tdm__rank_shards *from_shards; /* owned, one a rank; their slices are gone */
    struct tdm__rank_shards *to_shards;
    struct tdm__rank_copies *ranks; /* owned, one a destination rank */
    struct tdm__reshard_cost cost;
};

/* Pure: the same arguments always give the same plan.  A source on the same GPU is taken before
 * one on the same node, that before any other; among equals the one that has sent least.
 * TDM_E_INVAL names the tensor that the source does not hold or a layout cannot,
 * TDM_E_UNSUPPORTED the tensor that no conversion is known for. */
tdm_status tdm__reshard_create(const struct tdm__model *model, const struct tdm__reshard_side *from,
                               const struct tdm__reshard_side *to,
                               struct tdm__reshard **reshard_out);
void tdm__reshard_destroy(struct tdm__reshard *reshard); /* NULL is allowed */

#endif
