/* weight_writer.h - a trainer rank's side of an update by a plan: writes where engines read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_WEIGHT_WRITER_H
#define TDM_COLOCATE_WEIGHTS_WEIGHT_WRITER_H

#include "colocate/memory/region.h"
#include "colocate/weights/resume_log.h"
#include "colocate/weights/transfer_plan.h"

#include <tandem/collective.h>

/* Every engine rank has a target: its shadow, or a bucket of the trainer rank on its GPU. Each
 * trainer rank maps all targets into which it has something to write, and writes its rectangles
 * there chunk by chunk, so each byte is written once. Checksums are computed during the copy,
 * from the trainers' own bytes, and are shared by all ranks.
 *
 * A bucket has two halves that chunks use alternately. While engines read chunk k, trainers
 * write chunk k + 1. Chunk k + 2 may be written when all engines have read chunk k. One thread
 * at a time may use a weight writer. */
struct tdm__weight_writer;

/* Number of halves of a bucket. */
enum { TDM__BUCKET_HALVES = 2 };

/* Arguments of tdm__weight_writer_create(). All pointers are borrowed for the life of the
 * writer. */
struct tdm__weight_writer_options {
    /* Plan of all copies, the same on every rank. */
    const struct tdm__transfer_plan *transfer_plan;
    uint32_t rank; /* Rank of this process among the trainer ranks. */
    /* Regions of this process: those with the slices, and the one that the bucket will get. */
    struct tdm__regions *regions;
    tdm_collective_group *group; /* Collective group of all trainer ranks. */
    struct tdm__id node;         /* Node of this process. */
    bool in_place; /* True if the targets are the engines' shadows; this rank then has no bucket. */
};

/* Creates a weight writer. Reserves the bucket's addresses, but not its memory. */
tdm_status tdm__weight_writer_create(const struct tdm__weight_writer_options *options,
                                     struct tdm__weight_writer **weight_writer_out);
/* Frees the writer and unmaps its targets; NULL is allowed. */
void tdm__weight_writer_destroy(struct tdm__weight_writer *weight_writer);

/* Acquires the bucket's memory and waits up to `timeout_ms` milliseconds for it. Does nothing if
 * the bucket has memory or the targets are shadows. */
tdm_status tdm__weight_writer_resume_bucket(struct tdm__weight_writer *weight_writer,
                                            int64_t timeout_ms);
/* Releases the bucket's memory. Does nothing if the bucket has none or the targets are shadows. */
tdm_status tdm__weight_writer_pause_bucket(struct tdm__weight_writer *weight_writer);
/* Returns the bucket's region; NULL if the targets are shadows. */
const tdm_region *tdm__weight_writer_bucket(const struct tdm__weight_writer *weight_writer);
/* Returns the offset in bytes of a chunk's half in the bucket of any rank; 0 if the targets are
 * shadows. */
uint64_t tdm__weight_writer_chunk_offset(const struct tdm__weight_writer *weight_writer,
                                         uint32_t chunk);

/* The memory of an engine rank into which trainer ranks write. */
struct tdm__transfer_target {
    /* True if the engine rank does not exist. Nothing is written for it, but its checksums are
     * computed. */
    bool absent;
    struct tdm__id gpu;                          /* GPU that has the blocks. */
    uint32_t blocks_count;                       /* Number of blocks. */
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX]; /* Keys of the blocks, in address order. */
    /* Which chunks of an aborted update the engine rank reports to have. */
    struct tdm__resume_log resume_log;
};

/* Maps the targets, one for each engine rank of the plan. Every update begins with this call. */
tdm_status tdm__weight_writer_map_targets(struct tdm__weight_writer *weight_writer,
                                          const struct tdm__transfer_target *targets);
/* Unmaps and releases all targets. May be called at any time. */
void tdm__weight_writer_unmap_targets(struct tdm__weight_writer *weight_writer);

/* Says that this rank's weights may have changed, so checksums of earlier updates do not count. */
void tdm__weight_writer_forget_sums(struct tdm__weight_writer *weight_writer);
/* Finds out which engine ranks have which chunks of the aborted update before, if the weights have
 * not changed since. These chunks are neither written nor described again. All trainer ranks call
 * it together, after tdm__weight_writer_map_targets() and before the first chunk. Without this
 * call, or in doubt, no engine rank has anything. */
tdm_status tdm__weight_writer_find_held(struct tdm__weight_writer *weight_writer);
/* Returns true if every engine rank that exists has the chunk, so no rank needs to be told about
 * it. */
bool tdm__weight_writer_chunk_is_held(const struct tdm__weight_writer *weight_writer,
                                      uint32_t chunk);
/* Returns the resume log that an engine rank has after the last chunk. All checksums must be
 * known. */
struct tdm__resume_log tdm__weight_writer_resume_log(struct tdm__weight_writer *weight_writer,
                                                     uint32_t engine_rank);

/* Computes the scales of the parts of shared FP8 blocks that this rank holds. Each rank calls it
 * after tdm__weight_writer_map_targets() and before the first chunk. Does nothing if no block is
 * shared. */
tdm_status tdm__weight_writer_find_scales(struct tdm__weight_writer *weight_writer);
/* Combines the scales of all ranks, so that each knows the scales of all shared blocks. All ranks
 * call it together, after each has called tdm__weight_writer_find_scales(). Does nothing if no
 * block is shared. */
tdm_status tdm__weight_writer_share_scales(struct tdm__weight_writer *weight_writer);
/* Returns true if the plan has FP8 blocks of which several trainer ranks hold parts. */
bool tdm__weight_writer_shares_blocks(const struct tdm__weight_writer *weight_writer);

/* Writes this rank's copies of a chunk and computes their checksums. Reads the host copies of
 * paused regions. Returns TDM_E_STATE if the weights have changed without
 * tdm__weight_writer_forget_sums(); the next update then starts from the first chunk. */
tdm_status tdm__weight_writer_write_chunk(struct tdm__weight_writer *weight_writer, uint32_t chunk);
/* Exchanges the checksums of a chunk, so that every rank knows all of them. All ranks call it
 * together after each has written the chunk. Exchanges nothing if all ranks know them already. */
tdm_status tdm__weight_writer_share_sums(struct tdm__weight_writer *weight_writer, uint32_t chunk);

/* Encodes the tensor handles of a shared chunk for one engine rank. The result is empty if the
 * engine rank has no part in the chunk or has it already. The bytes are borrowed until the next
 * call. */
tdm_status tdm__weight_writer_describe_chunk(struct tdm__weight_writer *weight_writer,
                                             const struct tdm__id *update, uint64_t epoch,
                                             uint32_t chunk, uint32_t engine_rank,
                                             struct tdm_bytes *bytes_out);

/* What this rank wrote for the chunk that it wrote last. */
struct tdm__transfer_totals {
    uint64_t bytes[TDM__LOCALITIES_COUNT]; /* Bytes written, by enum tdm__copy_locality. */
    /* Combination of the copies' checksums, by enum tdm__copy_locality. */
    uint64_t sums[TDM__LOCALITIES_COUNT];
};
/* Returns the totals of the chunk that was written last; the writer owns them. */
const struct tdm__transfer_totals *
tdm__weight_writer_last_totals(const struct tdm__weight_writer *weight_writer);

/* Returns the hash for which members vote. It covers the checksums of all chunks since
 * tdm__weight_writer_map_targets() and is the same on every rank. */
struct tdm__hash tdm__weight_writer_contents_hash(const struct tdm__weight_writer *weight_writer);

#endif
