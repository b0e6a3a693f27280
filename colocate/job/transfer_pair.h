/* transfer_pair.h - engines on other GPUs or nodes than the trainers: what they have in place of
 * shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_TRANSFER_PAIR_H
#define TDM_COLOCATE_JOB_TRANSFER_PAIR_H

#include "colocate/job/rank.h"
#include "colocate/job/worker_group.h"
#include "colocate/memory/region.h"

#include <tandem/collective.h>

/* Trainers fill buckets as for engines that copy; then trainer rank r sends what is in its
 * bucket to engine rank r, which has a bucket of its own and copies from there.  So each engine
 * rank gets its own slices alone, and each byte goes between nodes once.
 *
 * The two have a group of their own, a line: if one of them dies, or the line is cut, no other
 * line knows.  A line that failed is made anew by the next update. */
struct tdm__transfer_pair {
    tdm_collective_group *group;  /* owned; the trainer is rank 0; NULL: there is no line */
    struct tdm__regions *regions; /* borrowed; of the engine rank */
    tdm_region *bucket;           /* owned; the engine rank's */
};

/* (name, the node to meet on, timeout, bytes of a bucket): both ends are called at once; an
 * earlier line ends. */
tdm_status tdm__transfer_pair_open(struct tdm__transfer_pair *pair, tdm_runtime *runtime,
                                   uint32_t rank, tdm_call *call);
void tdm__transfer_pair_close(struct tdm__transfer_pair *pair);

/* Memory of the engine rank's bucket; fine without one, and if it is so already. */
tdm_status tdm__transfer_pair_resume_bucket(struct tdm__transfer_pair *pair, int64_t timeout_ms);
tdm_status tdm__transfer_pair_pause_bucket(struct tdm__transfer_pair *pair);

/* What lies in a trainer rank's bucket. */
struct tdm__transfer_pair_payload {
    struct tdm_bytes description; /* the handle tuples */
    const void *data;
    uint64_t size_bytes;
    uint32_t chunk;
};

/* Tells the engine rank what comes.  The answer says that it is staged, and is to be awaited
 * also where nothing could be sent: the call must not meet the next line. */
tdm_status tdm__transfer_pair_announce(tdm_actor *engine,
                                       const struct tdm__transfer_pair_payload *load,
                                       tdm_ref **announced_out);
/* Sends it; then the trainer rank needs the bytes no more. */
tdm_status tdm__transfer_pair_deliver(struct tdm__transfer_pair *pair,
                                      const struct tdm__transfer_pair_payload *load,
                                      struct tdm__rank *trainer);

/* From one end to the other; both block until the bytes are there.  What came is in the bucket.
 */
tdm_status tdm__transfer_pair_send(struct tdm__transfer_pair *pair, const void *data,
                                   uint64_t size_bytes);
tdm_status tdm__transfer_pair_receive(struct tdm__transfer_pair *pair, uint64_t *size_bytes_out);

/* The controller's side: sees to it that every engine rank that lives has a line. */
tdm_status tdm__transfer_pairs_open_all(struct tdm__worker_group *workers,
                                        const struct tdm__id *update);

#endif
