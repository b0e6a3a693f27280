/* mover.h - a trainer rank's side of an update by routes: it writes where engines read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_MOVER_H
#define TDM_COLOCATE_WEIGHTS_MOVER_H

#include "colocate/memory/region.h"
#include "colocate/weights/journal.h"
#include "colocate/weights/route.h"

#include <tandem/group.h>

/* Every engine rank has a target: its shadow, or a bucket of the trainer rank on its GPU.  Each
 * trainer rank maps all targets that it has something for, and writes its own rectangles there,
 * window after window; so each byte is written once.  Sums are taken while copying, from the
 * trainers' own bytes, and shared by all ranks.
 *
 * A bucket has two halves, and windows lie in them by turns: while engines read window k,
 * window k + 1 is written.  Window k + 2 may be when all engines have read k. */
struct tdm__mover;

enum { TDM__BUCKET_HALVES = 2 };

struct tdm__mover_options {
    const struct tdm__route *route; /* borrowed, like the rest */
    uint32_t rank;
    struct tdm__regions *regions; /* where the slices lie, and a bucket will */
    tdm_group *group;             /* all trainer ranks */
    struct tdm__id node;
    bool in_place; /* targets are the engines' shadows: this side has no bucket */
};

/* Reserves the bucket's addresses, not its memory. */
tdm_status tdm__mover_create(const struct tdm__mover_options *options,
                             struct tdm__mover **mover_out);
void tdm__mover_destroy(struct tdm__mover *mover); /* NULL is allowed */

/* Takes and gives back the bucket's memory; fine if that is so already, or in place. */
tdm_status tdm__mover_resume(struct tdm__mover *mover, int64_t timeout_ms);
tdm_status tdm__mover_pause(struct tdm__mover *mover);
const tdm_region *tdm__mover_bucket(const struct tdm__mover *mover); /* NULL in place */
/* Where in a bucket, of any rank, a window begins. */
uint64_t tdm__mover_place(const struct tdm__mover *mover, uint32_t window);

/* The blocks of an engine rank's target, one behind the other, and the GPU they are on. */
struct tdm__target {
    bool absent; /* the rank is not there: nothing is written, but every sum is taken */
    struct tdm__id gpu;
    uint32_t blocks_count;
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX];
    struct tdm__journal journal; /* what the engine rank says it has, of an update before */
};

/* Maps the targets, one an engine rank; closing lets go of them, and is fine at any time. */
tdm_status tdm__mover_open(struct tdm__mover *mover, const struct tdm__target *targets);
void tdm__mover_close(struct tdm__mover *mover);

/* This rank's weights may be others from now on: no sum that was taken counts any more. */
void tdm__mover_forget(struct tdm__mover *mover);
/* All ranks together, after open and before the first window: if the weights are still those of
 * the update before, finds out which engine ranks have which windows of them.  Those are not
 * written again, nor described.  Without this call, and in any doubt, nobody has anything. */
tdm_status tdm__mover_go_on(struct tdm__mover *mover);
/* Every engine rank that is there has it: nothing is to be told to anybody. */
bool tdm__mover_is_held(const struct tdm__mover *mover, uint32_t window);
/* What an engine rank has once it has every window; then every sum is known. */
struct tdm__journal tdm__mover_journal(struct tdm__mover *mover, uint32_t engine_rank);

/* Each rank, after open and before the first window: finds the scales of what it has of FP8
 * blocks that ranks share.  When all have, all together: every rank knows what those of the
 * blocks are.  Neither has anything to do where none is shared (tdm__mover_shares_blocks). */
tdm_status tdm__mover_measure(struct tdm__mover *mover);
tdm_status tdm__mover_share_scales(struct tdm__mover *mover);
bool tdm__mover_shares_blocks(const struct tdm__mover *mover);

/* Writes what this rank has for a window.  Reads the host copies of what is paused. TDM_E_STATE
 * where weights have changed without a word: the next update begins from the start. */
tdm_status tdm__mover_write(struct tdm__mover *mover, uint32_t window);
/* All ranks together, when all have written it: every rank knows every sum.  Of a window whose
 * sums all ranks know already, nothing is exchanged. */
tdm_status tdm__mover_share(struct tdm__mover *mover, uint32_t window);

/* The handle tuples of a window that was shared, for one engine rank; no bytes where it has
 * nothing in there.  Borrowed until the next call. */
tdm_status tdm__mover_describe(struct tdm__mover *mover, const struct tdm__id *update,
                               uint64_t epoch, uint32_t window, uint32_t engine_rank,
                               struct tdm_bytes *bytes_out);

/* What this rank wrote into the window last written, as it was counted then. */
struct tdm__moved {
    uint64_t bytes[TDM__EDGES_COUNT]; /* by enum tdm__edge */
    uint64_t sums[TDM__EDGES_COUNT];  /* the copies' sums, mixed */
};
const struct tdm__moved *tdm__mover_moved(const struct tdm__mover *mover);

/* What members vote for: all sums of the windows since open, the same on every rank. */
struct tdm__hash tdm__mover_contents(const struct tdm__mover *mover);

#endif
