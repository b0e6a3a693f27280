/* transfer_pair.h - sends buckets over the network to engines that have GPUs of their own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRANSFER_PAIR_H
#define TDM_COLOCATE_JOB_TRANSFER_PAIR_H

#include "colocate/job/rank.h"
#include "colocate/job/worker_group.h"
#include "colocate/memory/region.h"

#include <tandem/collective.h>

/* The connection of a trainer rank and an engine rank whose image it serves (gather_groups.h),
 * which replaces shared memory. Trainers fill buckets as for engines that copy. The trainer rank
 * then sends that image's part of its bucket to the engine rank, which receives it into a bucket
 * and copies from there. Each engine rank thus gets only its own slices, and each byte crosses the
 * network once for each engine. A pair is a collective group of two ranks. If one end dies or the
 * connection breaks, no other pair is affected. The next update opens a failed pair again. Each end
 * owns one such struct.
 */
struct tdm__transfer_pair {
    /* Owned collective group in which the trainer has rank 0; NULL while the pair is not open. */
    tdm_collective_group *group;
    /* Borrowed GPU memory manager of the engine rank; NULL at the trainer's end. */
    struct tdm__regions *regions;
    /* Owned region of the engine rank that data is received into; NULL at the trainer's end. */
    tdm_region *bucket;
};

/* Opens the pair at one end: method "open_pair", whose arguments are the message open_pair
 * (runtime/messages/weights.def). The controller calls both ends at the same time;
 * each blocks until the other has joined. An earlier connection is closed first. `rank` is 0 for
 * the trainer, 1 for the engine. */
tdm_status tdm__transfer_pair_open(struct tdm__transfer_pair *pair, tdm_runtime *runtime,
                                   uint32_t rank, tdm_call *call);
/* Closes the connection and frees the bucket. */
void tdm__transfer_pair_close(struct tdm__transfer_pair *pair);

/* Gives the engine rank's bucket its memory, waiting at most `timeout_ms`. Does nothing without
 * a bucket or if the bucket is resident. */
tdm_status tdm__transfer_pair_resume_bucket(struct tdm__transfer_pair *pair, int64_t timeout_ms);
/* Frees the memory of the engine rank's bucket. Does nothing without a bucket or if it is
 * paused. */
tdm_status tdm__transfer_pair_pause_bucket(struct tdm__transfer_pair *pair);

/* One chunk of data that a trainer rank sends from its bucket. All pointers are borrowed. */
struct tdm__transfer_pair_payload {
    /* First byte of the chunk in the trainer's bucket. */
    const void *data;
    /* Size of the chunk in bytes. */
    uint64_t size_bytes;
    /* Index of the chunk in the transfer plan, number of the engine and rank in it, for the trace.
     */
    uint32_t chunk;
    uint32_t engine;
    uint32_t engine_rank;
};

/* Sends the chunk to the engine rank, which has been told to stage it (announcement.h), and adds a
 * span to the trace. On return the trainer rank may overwrite the bytes. The reply to the
 * announcement must be awaited even if sending fails, so that its call cannot receive from the next
 * connection. */
tdm_status tdm__transfer_pair_deliver(struct tdm__transfer_pair *pair,
                                      const struct tdm__transfer_pair_payload *load,
                                      struct tdm__rank *trainer);

/* Sends bytes from the trainer's end. Blocks until they are transferred. */
tdm_status tdm__transfer_pair_send(struct tdm__transfer_pair *pair, const void *data,
                                   uint64_t size_bytes);
/* Receives bytes into the bucket of the engine's end and blocks until they are there. */
tdm_status tdm__transfer_pair_receive(struct tdm__transfer_pair *pair, uint64_t *size_bytes_out);

/* Opens the pairs of all live engine ranks from the controller, unless they are open already.
 * `update` makes the group names unique. Blocks until all pairs are open or one fails. */
tdm_status tdm__transfer_pairs_open_all(struct tdm__worker_group *workers,
                                        const struct tdm__id *update);

#endif
