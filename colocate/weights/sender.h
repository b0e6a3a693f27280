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
    const struct tdm__manifest *manifest; /* Manifest of the model. */
    /* Layouts of all ranks, ranks_count of them; the slices of this rank have valid addresses. */
    const struct tdm__layout *layouts;
    uint32_t rank;        /* Rank of this process among the trainer ranks, from 0. */
    uint32_t ranks_count; /* Number of trainer ranks. */
    /* Regions of this process: those with the slices, and the one that the bucket will get. */
    struct tdm__regions *regions;
    tdm_collective_group *group;   /* Collective group of all trainer ranks. */
    struct tdm__location location; /* Node and GPU of this rank. */
    /* Size in bytes at which buckets are cut; the option update_weight_buffer_size of a job. */
    uint64_t bucket_bytes;
};

/* Compiles the bucket plan and reserves the bucket's addresses, but not its memory. */
tdm_status tdm__sender_create(const struct tdm__sender_options *options,
                              struct tdm__sender **sender_out);
/* Frees the sender and its bucket; NULL is allowed. */
void tdm__sender_destroy(struct tdm__sender *sender);

/* Acquires the bucket's memory and the host buffers. Waits up to `timeout_ms` milliseconds. Does
 * nothing if the bucket has memory. */
tdm_status tdm__sender_resume_bucket(struct tdm__sender *sender, int64_t timeout_ms);
/* Releases the bucket's memory. Does nothing if the bucket has none. */
tdm_status tdm__sender_pause_bucket(struct tdm__sender *sender);

/* Returns the number of buckets of the model. */
uint32_t tdm__sender_buckets_count(const struct tdm__sender *sender);
/* Returns the size of a bucket's image in bytes. */
uint64_t tdm__sender_bucket_bytes(const struct tdm__sender *sender, uint32_t bucket);

/* Returns the size of the staging bucket's memory in bytes. */
uint64_t tdm__sender_memory_bytes(const struct tdm__sender *sender);

/* Fills the staging bucket with the tensors of a bucket. All ranks must call it together; it blocks
 * until they do. Reads the host copies of regions that are paused. Overwrites the bucket before, so
 * its readers must be done. */
tdm_status tdm__sender_fill_bucket(struct tdm__sender *sender, uint32_t bucket);

/* Encodes the tensor handles of the bucket that was filled last. The size is the same on every
 * rank. The bytes are borrowed until the next call. */
tdm_status tdm__sender_describe_bucket(struct tdm__sender *sender, const struct tdm__id *update,
                                       uint64_t epoch, uint32_t bucket,
                                       struct tdm_bytes *bytes_out);

#endif
