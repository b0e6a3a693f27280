/* receiver.h - an engine rank's side of an update: stages buckets, votes, flips. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_RECEIVER_H
#define TDM_COLOCATE_WEIGHTS_RECEIVER_H

#include "colocate/memory/region.h"
#include "colocate/weights/layout.h"
#include "colocate/weights/location.h"
#include "colocate/weights/manifest.h"
#include "colocate/weights/resume_log.h"

#include <tandem/job.h>

/* What docs/protocols/commit.md asks of a member.  New weights are loaded into a shadow of the
 * weights region; the version being served is not touched before the flip, which exchanges the
 * two regions' memory.  The caller carries votes and outcomes to and from the store. */
struct tdm__receiver;

/* Which bytes are compared with the sender's checksums, before they count as here. */
enum tdm__verify {
    TDM__VERIFY_NONE,
    TDM__VERIFY_FULL,
    /* What this rank does not copy itself, in full at the first update, then a sixteenth of it
     * at each, another one every time; what it copies, always. */
    TDM__VERIFY_SAMPLE
};

struct tdm__receiver_options {
    const struct tdm__manifest *manifest; /* borrowed, like the rest */
    const struct tdm_engine_ops *ops;
    void *state;
    struct tdm__regions *regions;
    tdm_region *weights;
    struct tdm__location location;
    enum tdm__verify verify;
};

/* Reserves the shadow's addresses, not its memory. */
tdm_status tdm__receiver_create(const struct tdm__receiver_options *options,
                                struct tdm__receiver **receiver_out);
void tdm__receiver_destroy(struct tdm__receiver *receiver); /* NULL is allowed */

/* Takes the shadow's memory. */
tdm_status tdm__receiver_resume_shadow(struct tdm__receiver *receiver, int64_t timeout_ms);

/* A new update begins, after one that was given up while this rank has its shadow still: tells
 * which buckets of parts are in there.  They count for the new one, unless its first bucket is
 * one of those.  Where nothing is there, or that is in any doubt, the resume_log is empty, and the
 * first bucket begins the update as ever. */
tdm_status tdm__receiver_resume_update(struct tdm__receiver *receiver, const struct tdm__id *update,
                                       uint64_t epoch, struct tdm__resume_log *resume_log_out);

uint64_t tdm__receiver_shadow_bytes(const struct tdm__receiver *receiver);

/* Where the engine keeps what of each tensor: from now on buckets bring parts, which are put
 * there, and not whole tensors for the library's load().  Slices (copied) have addresses in the
 * weights region.  TDM_E_INVAL names the tensor whose slice lies outside, or on another one. */
tdm_status tdm__receiver_set_layout(struct tdm__receiver *receiver,
                                    const struct tdm__layout *layout);
/* The shadow, while it has memory: where trainers may write themselves. */
const tdm_region *tdm__receiver_shadow(const struct tdm__receiver *receiver);

/* Loads one bucket, described by handle tuples.  The first of a higher epoch begins a new
 * update. Refused, before a byte is touched: a lower epoch, an update that this rank has voted
 * for or dropped (TDM_E_STATE), storages on another node or GPU (TDM_E_DEVICE), tensors that
 * are not the manifest's (TDM_E_PROTOCOL).  A tensor whose bytes have another checksum than the
 * sender's is TDM_E_CHECKSUM, by name. */
tdm_status tdm__receiver_stage_bucket(struct tdm__receiver *receiver, struct tdm_bytes bytes);

/* The same for a bucket of parts whose bytes have come to memory of this rank, on its device:
 * the storage is described as it is where it was filled. */
tdm_status tdm__receiver_stage_bucket_from(struct tdm__receiver *receiver, struct tdm_bytes bytes,
                                           const char *source, size_t source_bytes);

/* Bytes of the tensors and parts in the bucket last staged. */
uint64_t tdm__receiver_staged_bytes(const struct tdm__receiver *receiver);

/* A bucket of parts is refused (TDM_E_STATE) if it, or one after it, has come before.  Its
 * storage is a block to be copied from, or this rank's shadow, into which others have written.
 */

/* The same from a file of whole tensors, all of the model in one. */
tdm_status tdm__receiver_stage_file(struct tdm__receiver *receiver, const struct tdm__id *update,
                                    uint64_t epoch, const char *path);

/* ---- without an update ------------------------------------------------------------------ */

/* The blocks of weights that are served, one behind the other, with the sum of each. */
struct tdm__weight_blocks {
    uint32_t count;
    struct tdm__id keys[TDM__DEVICE_BLOCKS_MAX];
    uint64_t sums[TDM__DEVICE_BLOCKS_MAX];
};

/* This rank's, for one of the same layout that has none.  They stay as they are until the next
 * flip: what is read later is to be compared with the sums. */
tdm_status tdm__receiver_export_weights(const struct tdm__receiver *receiver,
                                        struct tdm__weight_blocks *blocks_out);
/* Copies them to this rank's weights, which are resident and not served.  Nothing of the peer
 * stays mapped.  TDM_E_CHECKSUM, TDM_E_PROTOCOL for blocks of another size, TDM_E_NOT_FOUND for
 * a peer that is gone. */
tdm_status tdm__receiver_pull_weights(struct tdm__receiver *receiver,
                                      const struct tdm__weight_blocks *blocks);

/* ---- the end of an update --------------------------------------------------------------- */

/* Everything has come: what this rank votes with.  From now on the shadow is frozen.
 * TDM_E_STATE names what is missing. */
tdm_status tdm__receiver_prepare(struct tdm__receiver *receiver, const struct tdm__id *update,
                                 struct tdm__hash *hash_out);

/* For an update that brought parts: every byte of this rank's layout has come.  What to vote
 * with is the sender's word: it knows the sums of all ranks. */
tdm_status tdm__receiver_prepare_slices(struct tdm__receiver *receiver,
                                        const struct tdm__id *update);
/* The same, and they are what the sender says it has sent: `sent` is the resume_log of all
 * buckets.  TDM_E_CHECKSUM. */
tdm_status tdm__receiver_prepare_sent(struct tdm__receiver *receiver, const struct tdm__id *update,
                                      const struct tdm__resume_log *sent);

/* The update was committed: the shadow is served from now on.  The other: whatever of it was
 * staged is void, for an update that was aborted or is over.  Both give the shadow's memory,
 * and the senders' buckets, back, unless a later update has begun; repeating either is fine. */
tdm_status tdm__receiver_flip_shadow(struct tdm__receiver *receiver, const struct tdm__id *update);
tdm_status tdm__receiver_drop_shadow(struct tdm__receiver *receiver, uint64_t epoch);
/* And has neither flipped nor dropped since. */
bool tdm__receiver_has_voted(const struct tdm__receiver *receiver);

#endif
