/* receiver.h - an engine rank's side of an update: stages buckets, votes, flips. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_RECEIVER_H
#define TDM_COLOCATE_WEIGHTS_RECEIVER_H

#include "colocate/memory/region.h"
#include "colocate/weights/layout.h"
#include "colocate/weights/location.h"
#include "colocate/weights/manifest.h"
#include "colocate/weights/merged_handles.h"
#include "colocate/weights/resume_log.h"

#include <tandem/job.h>

/* An engine rank's side of weight updates: what docs/protocols/commit.md asks of a member. New
 * weights are loaded into a shadow of the weights region. The served version is not touched before
 * the flip, which exchanges the memory of both regions. A receiver that overwrites has no shadow:
 * it loads new weights over those that are served, and its rank holds no version from the first
 * bucket until the flip. What is said of the shadow below holds for its weights region. The caller
 * transports votes and outcomes to
 * and from the store. One thread at a time may use a receiver. */
struct tdm__receiver;

/* Which received bytes are compared with the sender's checksums before they count as present. */
enum tdm__verify {
    TDM__VERIFY_NONE, /* No received bytes are compared with checksums. */
    TDM__VERIFY_FULL, /* All received bytes are compared with the sender's checksums. */
    /* All bytes that this rank copies itself are compared. Of the bytes that senders write
     * directly, the first update compares all, and each later update another sixteenth. */
    TDM__VERIFY_SAMPLE
};

/* Arguments of tdm__receiver_create(). All pointers are borrowed for the life of the receiver. */
struct tdm__receiver_options {
    const struct tdm__manifest *manifest; /* Tensors of the model that the engine serves. */
    /* Callbacks of the engine's library, which loads whole tensors into the weights. */
    const struct tdm_engine_ops *ops;
    void *state; /* First argument of the callbacks in `ops`. */
    /* Regions of this process; the receiver creates the shadow among them. NULL if load() keeps the
     * new tensors where they have arrived, in host memory, until the flip. Only
     * tdm__receiver_stage_bucket_from() then loads, and nothing has to be resumed. */
    struct tdm__regions *regions;
    tdm_region *weights; /* Region with the weights that this rank serves; NULL without regions. */
    struct tdm__location location; /* Node and GPU of this engine rank; unused without regions. */
    /* True if buckets may be on other GPUs of the node, where the trainer rank is that fills them.
     */
    bool reads_other_gpus;
    enum tdm__verify verify; /* Which received bytes are compared with checksums. */
    bool overwrites;         /* True if new weights are loaded over those that are served. */
};

/* Creates the receiver of an engine rank. Reserves addresses for its shadow (the region for new
 * weights), but no memory. */
tdm_status tdm__receiver_create(const struct tdm__receiver_options *options,
                                struct tdm__receiver **receiver_out);
/* Frees a receiver and its shadow region; NULL is allowed. */
void tdm__receiver_destroy(struct tdm__receiver *receiver);

/* Acquires memory for the shadow, the region for new weights. Waits up to `timeout_ms`
 * milliseconds. Does nothing if the shadow has memory. */
tdm_status tdm__receiver_resume_shadow(struct tdm__receiver *receiver, int64_t timeout_ms);

/* Begins an update after one that was aborted while this rank kept its shadow. Reports in
 * `resume_log_out` which buckets of slices the shadow contains. These buckets count for the new
 * update unless its first bucket is one of them. The log is empty if the shadow contains no
 * complete bucket or its contents are in doubt. */
tdm_status tdm__receiver_resume_update(struct tdm__receiver *receiver, const struct tdm__id *update,
                                       uint64_t epoch, struct tdm__resume_log *resume_log_out);

/* Returns the size in bytes of the shadow, the memory for new weights; 0 if the receiver
 * overwrites. */
uint64_t tdm__receiver_shadow_bytes(const struct tdm__receiver *receiver);

/* Sets which slices of the tensors the engine keeps, and where. From then on buckets bring slices,
 * which this rank copies to their places, instead of whole tensors for the library's load(). The
 * addresses of the slices lie in the weights region; the layout is copied. Returns TDM_E_INVAL with
 * a message that names the tensor whose slice lies outside the region or overlaps another slice. */
tdm_status tdm__receiver_set_layout(struct tdm__receiver *receiver,
                                    const struct tdm__layout *layout);
/* Returns the region for new weights: the shadow, or the weights region if the receiver overwrites.
 * While the shadow has memory, trainers may write into it directly; never into the weights. */
const tdm_region *tdm__receiver_shadow(const struct tdm__receiver *receiver);

/* Returns true if a bucket may have overwritten the weights that this rank serves. It then holds no
 * version, until it flips or joins. */
bool tdm__receiver_is_torn(const struct tdm__receiver *receiver);

/* One bucket as it arrives. All pointers are borrowed for the call. */
struct tdm__bucket_arrival {
    /* What each writer says about the bucket, at least one description. */
    const struct tdm__bucket_description *descriptions;
    uint32_t descriptions_count; /* Number of entries of `descriptions`. */
    /* Address of the bucket's bytes in this rank's memory, on its device. The storages in the
     * descriptions are then those in which the senders filled the bucket, and are not opened. NULL
     * if the bytes are in these storages. */
    const char *source;
    size_t source_bytes; /* Number of bytes at `source`. */
    /* Called when the bucket has been accepted, before a byte of it is read; the header belongs to
     * all descriptions. Its failure is returned, and nothing is loaded. NULL is allowed. */
    tdm_status (*accepted)(void *arg, const struct tdm__tensor_handles_header *header);
    void *arg; /* First argument of `accepted`. */
};

/* Loads one bucket of weights into the shadow. The first bucket of a higher epoch begins a new
 * update. These are refused before a byte is touched:
 * - descriptions that cannot be merged (merged_handles.h);
 * - a lower epoch, or an update for which this rank has voted (TDM_E_STATE);
 * - storages on another node or GPU (TDM_E_DEVICE);
 * - tensors that are not the manifest's (TDM_E_PROTOCOL).
 * Returns TDM_E_CHECKSUM with a message that names the tensor whose bytes differ
 * from the sender's checksum. A bucket of slices is refused with TDM_E_STATE if it or a later one
 * has been staged. An error names the writer whose part is wrong, if it is known. */
tdm_status tdm__receiver_stage_arrival(struct tdm__receiver *receiver,
                                       const struct tdm__bucket_arrival *arrival);

/* Loads one bucket that one description describes; `bytes` are the encoded tensor handles. */
tdm_status tdm__receiver_stage_bucket(struct tdm__receiver *receiver, struct tdm_bytes bytes);
/* Loads one bucket that one description describes, and whose `source_bytes` bytes are at `source`
 * in this rank's memory. */
tdm_status tdm__receiver_stage_bucket_from(struct tdm__receiver *receiver, struct tdm_bytes bytes,
                                           const char *source, size_t source_bytes);

/* Returns the size in bytes of the tensors and slices in the bucket whose loading began last, also
 * if it failed. */
uint64_t tdm__receiver_staged_bytes(const struct tdm__receiver *receiver);

/* Loads all tensors of the model from a safetensors file, as one bucket of the update. */
tdm_status tdm__receiver_stage_file(struct tdm__receiver *receiver, const struct tdm__id *update,
                                    uint64_t epoch, const char *path);

/* ---- without an update --------------------------------------------------------------- */

/* The memory blocks of a served weights region in address order, with a checksum of each. */
struct tdm__weight_blocks {
    uint32_t count; /* Number of memory blocks of the weights region. */
    /* Keys with which other processes of the node open the blocks. */
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX];
    uint64_t sums[TDM__DEVICE_BLOCKS_MAX]; /* For each block the checksum of its bytes. */
};

/* Describes this rank's weights for a rank with the same layout that does not have them. The
 * bytes may change with the next flip, so the other rank compares what it reads with the
 * checksums. */
tdm_status tdm__receiver_export_weights(const struct tdm__receiver *receiver,
                                        struct tdm__weight_blocks *blocks_out);
/* Copies the memory blocks of a peer's weights into this rank's weights, which must be resident and
 * not served. Nothing of the peer stays mapped. Returns TDM_E_CHECKSUM if the bytes differ,
 * TDM_E_PROTOCOL if the blocks have another size, and TDM_E_NOT_FOUND if the peer has gone. If the
 * receiver overwrites, what it has staged is void afterwards, also on failure. */
tdm_status tdm__receiver_pull_weights(struct tdm__receiver *receiver,
                                      const struct tdm__weight_blocks *blocks);
/* Records that this rank has joined with the weights that it has pulled. `epoch` is the epoch of
 * the record that took it in: buckets of updates up to that one are refused. */
void tdm__receiver_join(struct tdm__receiver *receiver, uint64_t epoch);

/* ---- the end of an update ------------------------------------------------------------ */

/* Completes an update of whole tensors and freezes the shadow. `hash_out` is the hash for which
 * this rank votes. Returns TDM_E_STATE with a message that names a missing tensor. */
tdm_status tdm__receiver_prepare(struct tdm__receiver *receiver, const struct tdm__id *update,
                                 struct tdm__hash *hash_out);

/* Completes an update of slices and freezes the shadow, if every byte of this rank's layout has
 * been received. The sender tells for which hash to vote, because it knows the checksums of all
 * ranks. */
tdm_status tdm__receiver_prepare_slices(struct tdm__receiver *receiver,
                                        const struct tdm__id *update);
/* Like tdm__receiver_prepare_slices(), but first compares what this rank has received with `sent`,
 * the sender's resume log of all buckets. Returns TDM_E_CHECKSUM if the logs differ. */
tdm_status tdm__receiver_prepare_sent(struct tdm__receiver *receiver, const struct tdm__id *update,
                                      const struct tdm__resume_log *sent);

/* Flips: ends a committed update, so that the new weights in the shadow are served from now on.
 * Releases the memory of the old weights, if the receiver does not overwrite, and the mappings of
 * the senders' buckets. May be repeated. Returns TDM_E_STATE if this rank has not voted for the
 * update. */
tdm_status tdm__receiver_flip_shadow(struct tdm__receiver *receiver, const struct tdm__id *update);
/* Ends an aborted update: weights that were loaded in this or an earlier epoch are void. Releases
 * the shadow's memory and the mappings of the senders' buckets, unless a later update has begun.
 * A rank that is torn stays so. May be repeated. */
tdm_status tdm__receiver_drop_shadow(struct tdm__receiver *receiver, uint64_t epoch);
/* Returns the checksum of each tensor of the manifest, as the latest update of whole tensors has
 * sent it, or NULL if the latest update was one of slices. Borrowed until the next update. */
const uint64_t *tdm__receiver_tensor_sums(const struct tdm__receiver *receiver);
/* Returns true if this rank has voted for an update that it has neither flipped nor dropped
 * since. */
bool tdm__receiver_has_voted(const struct tdm__receiver *receiver);

#endif
