/* weight_writer.h - a trainer rank's side of an update by a plan: writes where engines read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_WEIGHT_WRITER_H
#define TDM_COLOCATE_WEIGHTS_WEIGHT_WRITER_H

#include "colocate/memory/region.h"
#include "colocate/weights/exchange_rounds.h"
#include "colocate/weights/mapped_target.h"
#include "colocate/weights/transfer_plan.h"

#include <tandem/collective.h>

/* Every engine rank has a target: its shadow, or a bucket of the trainer rank on its GPU. Each
 * trainer rank maps all targets into which it has something to write, and writes its rectangles
 * there chunk by chunk, so each byte is written once. Checksums are computed during the copy,
 * from the trainers' own bytes. Each rank describes the copies that it has made itself.
 *
 * What comes from other nodes is exchanged in rounds (node_exchange.h). Its buffers lie behind the
 * halves of the bucket, or alone in a region of their own if the rank has no bucket.
 *
 * A bucket may be the target of several engine ranks, each of which has a part of it.
 *
 * A bucket, or each part, has two halves that chunks use alternately. While engines read chunk k,
 * trainers write chunk k + 1. Chunk k + 2 may be written when all engines have read chunk k. A
 * bucket of whole tensors has no halves: chunk k + 1 may be written when all engines have read
 * chunk k. One thread at a time may use a weight writer. */
struct tdm__weight_writer;

/* Number of halves of a bucket, unless a chunk fills the whole bucket. */
enum { TDM__BUCKET_HALVES = 2 };

/* Arguments of tdm__weight_writer_create(). All pointers are borrowed for the life of the
 * writer. */
struct tdm__weight_writer_options {
    /* Plan of all copies from trainer ranks to engine ranks, the same on every rank. */
    const struct tdm__transfer_plan *transfer_plan;
    uint32_t rank; /* Rank of this process among the trainer ranks. */
    /* Regions of this process, which contain its slices; the writer creates the region of its
     * bucket among them. */
    struct tdm__regions *regions;
    tdm_collective_group *group; /* Collective group of all trainer ranks. */
    struct tdm__id node;         /* ID of this process's node. */
    /* True if trainer ranks write directly into the engines' shadows (the copies of the weights
     * that an engine does not serve yet), so that this rank has no bucket. */
    bool in_place;
    /* True if a bucket has no halves, so that a chunk may be as large as the bucket. Each chunk
     * then begins where the bucket does. */
    bool has_one_half;
    /* For each engine rank the part of a bucket, from 0, that is its target. Each bucket has as
     * many parts, with halves of their own, as the largest number says. NULL if a bucket is the
     * target of one engine rank. */
    const uint32_t *bucket_parts;
};

/* Creates the weight writer of a trainer rank. Reserves addresses for its bucket, but no memory. */
tdm_status tdm__weight_writer_create(const struct tdm__weight_writer_options *options,
                                     struct tdm__weight_writer **weight_writer_out);
/* Frees a weight writer and unmaps its targets; NULL is allowed. */
void tdm__weight_writer_destroy(struct tdm__weight_writer *weight_writer);

/* Acquires memory for this rank's bucket and for what it exchanges with other nodes, and waits up
 * to `timeout_ms` milliseconds for it. Does nothing if the rank has the memory or needs none. */
tdm_status tdm__weight_writer_resume_bucket(struct tdm__weight_writer *weight_writer,
                                            int64_t timeout_ms);
/* Releases that memory. Does nothing if the rank does not have it. */
tdm_status tdm__weight_writer_pause_bucket(struct tdm__weight_writer *weight_writer);
/* Returns the region of this rank's bucket; NULL if the rank writes directly into the engines'
 * shadows. */
const tdm_region *tdm__weight_writer_bucket(const struct tdm__weight_writer *weight_writer);
/* Returns the offset in bytes at which a chunk of an engine rank lies in the bucket that is its
 * target; 0 if ranks write directly into the engines' shadows. */
uint64_t tdm__weight_writer_chunk_offset(const struct tdm__weight_writer *weight_writer,
                                         uint32_t chunk, uint32_t engine_rank);

/* Maps the memory into which this rank writes; `targets` has one entry for each engine rank of the
 * plan. Every update begins with this call. */
tdm_status tdm__weight_writer_map_targets(struct tdm__weight_writer *weight_writer,
                                          const struct tdm__transfer_target *targets);
/* Unmaps and releases all targets. May be called at any time. */
void tdm__weight_writer_unmap_targets(struct tdm__weight_writer *weight_writer);

/* Tells the writer that this rank's weights may have changed, so that checksums of earlier updates
 * do not count. */
void tdm__weight_writer_forget_sums(struct tdm__weight_writer *weight_writer);
/* Returns the number of words of a claim: what one rank tells all others in settle_held() or
 * settle_result(). It is the same on every rank. */
uint32_t tdm__weight_writer_claim_words(const struct tdm__weight_writer *weight_writer);
/* Writes this rank's claim of what engine ranks have of an earlier, aborted update, after
 * tdm__weight_writer_map_targets() and before the first chunk. */
void tdm__weight_writer_claim_held(struct tdm__weight_writer *weight_writer, uint64_t *claim_out);
/* Finds out from the claims of all ranks, in their order, which chunks of that update each engine
 * rank has, if the weights have not changed since. These chunks are neither written nor described
 * again. Without this call all chunks are written. */
void tdm__weight_writer_settle_held(struct tdm__weight_writer *weight_writer,
                                    const uint64_t *claims);
/* Returns true if every engine rank that exists has the chunk from an earlier, aborted update, and
 * no later chunk needs what the ranks exchange for it. No engine rank needs to be told about such a
 * chunk. */
bool tdm__weight_writer_chunk_is_held(const struct tdm__weight_writer *weight_writer,
                                      uint32_t chunk);
/* Computes the FP8 scales of this rank's parts of blocks that several trainer ranks share. Each
 * rank calls it after tdm__weight_writer_map_targets() and before the first chunk. Does nothing if
 * no block is shared. */
tdm_status tdm__weight_writer_find_scales(struct tdm__weight_writer *weight_writer);
/* Combines the FP8 scales that all trainer ranks have computed, so that each rank knows the scales
 * of all shared blocks. All ranks call it together, after each has called
 * tdm__weight_writer_find_scales(). Does nothing if no block is shared. */
tdm_status tdm__weight_writer_share_scales(struct tdm__weight_writer *weight_writer);
/* Returns true if the plan has FP8 blocks of which several trainer ranks hold parts. */
bool tdm__weight_writer_shares_blocks(const struct tdm__weight_writer *weight_writer);

/* Writes this rank's copies of a chunk, except those that come from other nodes, and computes their
 * checksums. Reads the host copies of paused regions. Returns TDM_E_STATE if the weights have
 * changed without tdm__weight_writer_forget_sums(); the next update then starts from the first
 * chunk. */
tdm_status tdm__weight_writer_write_chunk(struct tdm__weight_writer *weight_writer, uint32_t chunk);
/* Returns the number of rounds in which all ranks exchange what of the chunk comes from other
 * nodes, after each has called tdm__weight_writer_write_chunk(); the same on every rank. */
uint32_t tdm__weight_writer_rounds_count(const struct tdm__weight_writer *weight_writer,
                                         uint32_t chunk);
/* Returns what the ranks exchange in one round, after the round before has ended. */
void tdm__weight_writer_begin_round(struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                    uint32_t round, struct tdm__exchange_round *round_out);
/* Writes what this rank has received in the round that began last, and packs what it sends in the
 * next one. Returns TDM_E_CHECKSUM if something did not arrive as it was sent, and TDM_E_STATE like
 * tdm__weight_writer_write_chunk(). */
tdm_status tdm__weight_writer_end_round(struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                        uint32_t round);
/* Returns true if the engine rank gets something of the chunk from any rank: it exists, has a part
 * in the chunk, and does not have it already. The result is the same on every rank. */
bool tdm__weight_writer_has_part(const struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                 uint32_t engine_rank);
/* Encodes tensor handles of the copies that this rank has made for one chunk of an engine rank,
 * after tdm__weight_writer_write_chunk(). `bytes_out` is empty if there are none, or if the engine
 * rank has no part in the chunk or has it already; it is borrowed until the next call. */
tdm_status tdm__weight_writer_describe_chunk(struct tdm__weight_writer *weight_writer,
                                             const struct tdm__id *update, uint64_t epoch,
                                             uint32_t chunk, uint32_t engine_rank,
                                             struct tdm_bytes *bytes_out);

/* What a trainer rank wrote for the chunk that it wrote last. */
struct tdm__transfer_totals {
    /* Number of bytes written, or sent to another node, indexed by enum tdm__copy_locality. */
    uint64_t bytes[TDM__LOCALITIES_COUNT];
    /* Combined checksums of the copies, indexed by enum tdm__copy_locality. */
    uint64_t sums[TDM__LOCALITIES_COUNT];
};
/* Returns the bytes and checksums of the chunk that was written last; the writer owns them. */
const struct tdm__transfer_totals *
tdm__weight_writer_last_totals(const struct tdm__weight_writer *weight_writer);

/* Writes this rank's claim of what it has written, after the last chunk. */
void tdm__weight_writer_claim_result(struct tdm__weight_writer *weight_writer, uint64_t *claim_out);
/* Combines the claims of all ranks, in their order, to the result of the update. */
void tdm__weight_writer_settle_result(struct tdm__weight_writer *weight_writer,
                                      const uint64_t *claims);
/* Returns the hash for which members vote. It covers the manifest's hash and the checksums of all
 * copies of all ranks, and is the same on every rank. The result has been settled. */
struct tdm__hash tdm__weight_writer_contents_hash(const struct tdm__weight_writer *weight_writer);
/* Returns the resume log that an engine rank has after it received all chunks. The result has been
 * settled. */
struct tdm__resume_log tdm__weight_writer_resume_log(const struct tdm__weight_writer *weight_writer,
                                                     uint32_t engine_rank);

#endif
