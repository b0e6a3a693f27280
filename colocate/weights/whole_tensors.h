/* whole_tensors.h - transfer plans to engines that get whole tensors, and their descriptions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_WHOLE_TENSORS_H
#define TDM_COLOCATE_WEIGHTS_WHOLE_TENSORS_H

#include "colocate/memory/region.h"
#include "colocate/weights/bucket.h"
#include "colocate/weights/transfer_plan.h"

/* An engine without a layout gets whole tensors by name. To the trainer ranks it is an engine whose
 * image has every tensor whole, bucket after bucket (bucket.h), and each chunk of its transfer plan
 * is one bucket. A weight writer (weight_writer.h) with one half writes the chunks. Only the
 * descriptions differ. They name tensors instead of the slices in which these were written. Their
 * checksums are computed from the bytes in the bucket, which the engine will read. One thread at a
 * time may use it. */
struct tdm__whole_tensors;

/* Creates what a trainer rank needs to send the model's tensors whole to `engine_ranks_count`
 * engine ranks, in buckets of `bucket_bytes` bytes. The manifest is borrowed for its life.
 * TDM_E_INVAL if `bucket_bytes` is 0. */
tdm_status tdm__whole_tensors_create(const struct tdm__manifest *manifest, uint64_t bucket_bytes,
                                     uint32_t engine_ranks_count,
                                     struct tdm__whole_tensors **whole_tensors_out);
/* Frees it, after the plans that it has compiled; NULL is allowed. */
void tdm__whole_tensors_destroy(struct tdm__whole_tensors *whole_tensors);

/* Returns how the model is divided into buckets; borrowed. */
const struct tdm__bucket_plan *
tdm__whole_tensors_buckets(const struct tdm__whole_tensors *whole_tensors);

/* Compiles the plan from `from_count` trainer ranks, whose layouts are `from`, to the engine ranks.
 * `from_locations`, `to_locations` and `exchange_bytes` are as in struct
 * tdm__transfer_plan_options. The plan borrows
 * all of them, and this object. TDM_E_INVAL as from tdm__transfer_plan_create(). */
tdm_status tdm__whole_tensors_compile_plan(const struct tdm__whole_tensors *whole_tensors,
                                           const struct tdm__layout *from, uint32_t from_count,
                                           const struct tdm__location *from_locations,
                                           const struct tdm__location *to_locations,
                                           uint64_t exchange_bytes,
                                           struct tdm__transfer_plan **plan_out);

/* A bucket that all trainer ranks have written, in the memory of this trainer rank. All pointers
 * are borrowed. */
struct tdm__written_bucket {
    struct tdm__device *device;           /* Device that has the memory. */
    const tdm_region *region;             /* Region that has the bucket from its first byte on. */
    const struct tdm__location *location; /* Node and GPU of the memory. */
    const struct tdm__id *update;         /* ID of the update to which the bucket belongs. */
    uint64_t epoch;                       /* Epoch of the update. */
    uint32_t index;                       /* Index of the bucket in the update. */
    uint32_t writer;                      /* Rank among the trainer ranks of the describer. */
};

/* Computes the checksums of the bucket's tensors on the device and encodes tensor handles of them.
 * `bytes_out` is borrowed until the next call. TDM_E_STATE if the region has no memory. */
tdm_status tdm__whole_tensors_describe(struct tdm__whole_tensors *whole_tensors,
                                       const struct tdm__written_bucket *written,
                                       struct tdm_bytes *bytes_out);
/* Returns views of the tensors in the bucket with index `bucket` that is at the beginning of
 * `region`. The views are borrowed until the next call; `count_out` is set to their number. */
const struct tdm_tensor_view *tdm__whole_tensors_views(struct tdm__whole_tensors *whole_tensors,
                                                       const tdm_region *region, uint32_t bucket,
                                                       uint32_t *count_out);

#endif
