/* sender.h - a trainer rank's side of an update by buckets: fills buckets and describes them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SENDER_H
#define TDM_COLOCATE_WEIGHTS_SENDER_H

#include "colocate/memory/region.h"
#include "colocate/weights/bucket.h"
#include "colocate/weights/location.h"

#include <tandem/collective.h>

/* Every trainer rank has a staging bucket on its own GPU, which contains whole tensors once the
 * ranks have exchanged their segments. What travels to the engine is a description of that bucket:
 * tensor handles with a checksum of every tensor, computed from the bytes that the engine will
 * read. One thread at a time may use a sender. */
struct tdm__sender;

/* Arguments of tdm__sender_create(). All pointers are borrowed for the life of the sender. */
struct tdm__sender_options {
    const struct tdm__manifest *manifest; /* Tensors of the model that is sent. */
    /* Which tensor slices each trainer rank holds, ranks_count layouts. Those of this rank have
     * valid addresses. */
    const struct tdm__layout *layouts;
    uint32_t rank;        /* Rank of this process among the trainer ranks, from 0. */
    uint32_t ranks_count; /* Number of trainer ranks. */
    /* Regions of this process, which contain the slices; the sender creates its staging region
     * among them. */
    struct tdm__regions *regions;
    tdm_collective_group *group;   /* Collective group of all trainer ranks. */
    struct tdm__location location; /* Node and GPU of this trainer rank. */
    /* Size in bytes at which buckets are cut; the option update_weight_buffer_size of a job. */
    uint64_t bucket_bytes;
};

/* Creates the sender of a trainer rank. Reserves addresses for its staging bucket, but no
 * memory. */
tdm_status tdm__sender_create(const struct tdm__sender_options *options,
                              struct tdm__sender **sender_out);
/* Frees a sender and its staging bucket; NULL is allowed. */
void tdm__sender_destroy(struct tdm__sender *sender);

/* Acquires memory for the staging bucket and the host buffers. Waits up to `timeout_ms`
 * milliseconds. Does nothing if the staging bucket has memory. */
tdm_status tdm__sender_resume_bucket(struct tdm__sender *sender, int64_t timeout_ms);
/* Releases the memory of the staging bucket. Does nothing if the staging bucket has no memory. */
tdm_status tdm__sender_pause_bucket(struct tdm__sender *sender);

/* Returns the number of buckets into which the model is cut. */
uint32_t tdm__sender_buckets_count(const struct tdm__sender *sender);
/* Returns the size in bytes of bucket number `bucket`. */
uint64_t tdm__sender_bucket_bytes(const struct tdm__sender *sender, uint32_t bucket);

/* Returns the size of the staging bucket's memory in bytes. */
uint64_t tdm__sender_memory_bytes(const struct tdm__sender *sender);

/* Fills the staging bucket with the whole tensors of bucket number `bucket`. All ranks must call it
 * together; it blocks until they do. Reads the host copies of regions that are paused. Readers of
 * the bucket before must be done. */
tdm_status tdm__sender_fill_bucket(struct tdm__sender *sender, uint32_t bucket);

/* Encodes tensor handles that describe the bucket that was filled last. `bytes_out` is borrowed
 * until the next call; its size is the same on every rank. */
tdm_status tdm__sender_describe_bucket(struct tdm__sender *sender, const struct tdm__id *update,
                                       uint64_t epoch, uint32_t bucket,
                                       struct tdm_bytes *bytes_out);

/* Returns views of the whole tensors of bucket number `bucket`, which was filled last, and their
 * number. They lie in the staging bucket, and are borrowed until the next call. */
const struct tdm_tensor_view *tdm__sender_bucket_views(struct tdm__sender *sender, uint32_t bucket,
                                                       uint32_t *count_out);

#endif
