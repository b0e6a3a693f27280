/* sender.h - a trainer rank's side of an update: fills buckets and describes them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SENDER_H
#define TDM_COLOCATE_WEIGHTS_SENDER_H

#include "colocate/memory/region.h"
#include "colocate/weights/bucket.h"
#include "colocate/weights/location.h"

#include <tandem/collective.h>

/* Every trainer rank has a staging bucket on its own GPU, which shows whole tensors once the
 * ranks have exchanged their parts.  What travels to the engine is a description of that
 * bucket: handle tuples, and a checksum of every tensor taken from the very bytes that the
 * engine will read. */
struct tdm__sender;

struct tdm__sender_options {
    const struct tdm__manifest *manifest; /* borrowed, like the rest */
    const struct tdm__layout *layouts;    /* of every rank; this rank's slices have addresses */
    uint32_t rank;
    uint32_t ranks_count;
    struct tdm__regions *regions; /* where the slices lie, and the bucket will */
    tdm_collective_group *group;  /* all trainer ranks */
    struct tdm__location location;
    uint64_t bucket_bytes; /* update_weight_buffer_size */
};

/* Compiles the plan; reserves the bucket's addresses, not its memory. */
tdm_status tdm__sender_create(const struct tdm__sender_options *options,
                              struct tdm__sender **sender_out);
void tdm__sender_destroy(struct tdm__sender *sender); /* NULL is allowed */

/* Takes and gives back the bucket's memory; fine if that is so already. */
tdm_status tdm__sender_resume_bucket(struct tdm__sender *sender, int64_t timeout_ms);
tdm_status tdm__sender_pause_bucket(struct tdm__sender *sender);

uint32_t tdm__sender_buckets_count(const struct tdm__sender *sender);
/* Bytes of tensors in it. */
uint64_t tdm__sender_bucket_bytes(const struct tdm__sender *sender, uint32_t bucket);

/* Of the bucket's memory. */
uint64_t tdm__sender_memory_bytes(const struct tdm__sender *sender);

/* All ranks together: the bucket then shows its tensors.  Reads the host copies of what is
 * paused.  What it showed before is gone, so its readers must be done. */
tdm_status tdm__sender_fill_bucket(struct tdm__sender *sender, uint32_t bucket);

/* The handle tuples of the bucket as it stands; the same size on every rank.  Borrowed until
 * the next call. */
tdm_status tdm__sender_describe_bucket(struct tdm__sender *sender, const struct tdm__id *update,
                                       uint64_t epoch, uint32_t bucket,
                                       struct tdm_bytes *bytes_out);

#endif
