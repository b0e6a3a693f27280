/* weight_writer.h - a trainer rank's side of an update by routes: it writes where engines read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_WEIGHT_WRITER_H
#define TDM_COLOCATE_WEIGHTS_WEIGHT_WRITER_H

#include "colocate/memory/region.h"
#include "colocate/weights/resume_log.h"
#include "colocate/weights/transfer_plan.h"

#include <tandem/collective.h>

/* Every engine rank has a target: its shadow, or a bucket of the trainer rank on its GPU.  Each
 * trainer rank maps all targets that it has something for, and writes its own rectangles there,
 * chunk after chunk; so each byte is written once.  Sums are taken while copying, from the
 * trainers' own bytes, and shared by all ranks.
 *
 * A bucket has two halves, and chunks lie in them by turns: while engines read chunk k,
 * chunk k + 1 is written.  Window k + 2 may be when all engines have read k. */
struct tdm__weight_writer;

enum { TDM__BUCKET_HALVES = 2 };

struct tdm__weight_writer_options {
    const struct tdm__transfer_plan *transfer_plan; /* borrowed, like the rest */
    uint32_t rank;
    struct tdm__regions *regions; /* where the slices lie, and a bucket will */
    tdm_collective_group *group;  /* all trainer ranks */
    struct tdm__id node;
    bool in_place; /* targets are the engines' shadows: this side has no bucket */
};

/* Reserves the bucket's addresses, not its memory. */
tdm_status tdm__weight_writer_create(const struct tdm__weight_writer_options *options,
                                     struct tdm__weight_writer **weight_writer_out);
void tdm__weight_writer_destroy(struct tdm__weight_writer *weight_writer); /* NULL is allowed */

/* Takes and gives back the bucket's memory; fine if that is so already, or in place. */
tdm_status tdm__weight_writer_resume_bucket(struct tdm__weight_writer *weight_writer,
                                            int64_t timeout_ms);
tdm_status tdm__weight_writer_pause_bucket(struct tdm__weight_writer *weight_writer);
const tdm_region *
tdm__weight_writer_bucket(const struct tdm__weight_writer *weight_writer); /* NULL in place */
/* Where in a bucket, of any rank, a chunk begins. */
uint64_t tdm__weight_writer_chunk_offset(const struct tdm__weight_writer *weight_writer,
                                         uint32_t chunk);

/* The blocks of an engine rank's target, one behind the other, and the GPU they are on. */
struct tdm__transfer_target {
    bool absent; /* the rank is not there: nothing is written, but every sum is taken */
    struct tdm__id gpu;
    uint32_t blocks_count;
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX];
    struct tdm__resume_log resume_log; /* what the engine rank says it has, of an update before */
};

/* Maps the targets, one an engine rank; closing lets go of them, and is fine at any time. */
tdm_status tdm__weight_writer_map_targets(struct tdm__weight_writer *weight_writer,
                                          const struct tdm__transfer_target *targets);
void tdm__weight_writer_unmap_targets(struct tdm__weight_writer *weight_writer);

/* This rank's weights may be others from now on: no sum that was taken counts any more. */
void tdm__weight_writer_forget_sums(struct tdm__weight_writer *weight_writer);
/* All ranks together, after open and before the first chunk: if the weights are still those of
 * the update before, finds out which engine ranks have which chunks of them.  Those are not
 * written again, nor described.  Without this call, and in any doubt, nobody has anything. */
tdm_status tdm__weight_writer_find_held(struct tdm__weight_writer *weight_writer);
/* Every engine rank that is there has it: nothing is to be told to anybody. */
bool tdm__weight_writer_chunk_is_held(const struct tdm__weight_writer *weight_writer,
                                      uint32_t chunk);
/* What an engine rank has once it has every chunk; then every sum is known. */
struct tdm__resume_log tdm__weight_writer_resume_log(struct tdm__weight_writer *weight_writer,
                                                     uint32_t engine_rank);

/* Each rank, after open and before the first chunk: finds the scales of what it has of FP8
 * blocks that ranks share.  When all have, all together: every rank knows what those of the
 * blocks are.  Neither has anything to do where none is shared (tdm__weight_writer_shares_blocks).
 */
tdm_status tdm__weight_writer_find_scales(struct tdm__weight_writer *weight_writer);
tdm_status tdm__weight_writer_share_scales(struct tdm__weight_writer *weight_writer);
bool tdm__weight_writer_shares_blocks(const struct tdm__weight_writer *weight_writer);

/* Writes what this rank has for a chunk.  Reads the host copies of what is paused. TDM_E_STATE
 * where weights have changed without a word: the next update begins from the start. */
tdm_status tdm__weight_writer_write_chunk(struct tdm__weight_writer *weight_writer, uint32_t chunk);
/* All ranks together, when all have written it: every rank knows every sum.  Of a chunk whose
 * sums all ranks know already, nothing is exchanged. */
tdm_status tdm__weight_writer_share_sums(struct tdm__weight_writer *weight_writer, uint32_t chunk);

/* The handle tuples of a chunk that was shared, for one engine rank; no bytes where it has
 * nothing in there.  Borrowed until the next call. */
tdm_status tdm__weight_writer_describe_chunk(struct tdm__weight_writer *weight_writer,
                                             const struct tdm__id *update, uint64_t epoch,
                                             uint32_t chunk, uint32_t engine_rank,
                                             struct tdm_bytes *bytes_out);

/* What this rank wrote into the chunk last written, as it was counted then. */
struct tdm__transfer_totals {
    uint64_t bytes[TDM__LOCALITIES_COUNT]; /* by enum tdm__copy_locality */
    uint64_t sums[TDM__LOCALITIES_COUNT];  /* the copies' sums, mixed */
};
const struct tdm__transfer_totals *
tdm__weight_writer_last_totals(const struct tdm__weight_writer *weight_writer);

/* What members vote for: all sums of the chunks since open, the same on every rank. */
struct tdm__hash tdm__weight_writer_contents_hash(const struct tdm__weight_writer *weight_writer);

#endif
