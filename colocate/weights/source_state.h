/* source_state.h - what the source of updates knows of its record, so that it can restore it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SOURCE_STATE_H
#define TDM_COLOCATE_WEIGHTS_SOURCE_STATE_H

#include "colocate/weights/commit_core.h"

/* Implements the source's half of "Lost records" in docs/protocols/commit.md. The functions are
 * pure. They are for a source whose members act on its word alone. All zero means that the source
 * knows nothing and cannot restore anything. The source owns the structure. */
struct tdm__source_state {
    /* ID of the latest update whose BEGIN the store has answered; all zero if absent. */
    struct tdm__id update;
    uint64_t epoch;          /* Epoch of the latest update. */
    uint64_t update_version; /* Version number that the latest update got. */
    uint64_t base;           /* Version that was committed when the latest update began. */
    /* Outcome of the latest update; undecided if the source has not learned it. */
    enum tdm__update_outcome outcome;
    /* True if the latest update is committed and all living members have reported that they serve
     * it. */
    bool settled;
    bool overwrites;       /* True if the latest update writes over the weights that are served. */
    uint64_t version;      /* Version number of the committed weights; 0 if none were committed. */
    struct tdm__hash hash; /* Hash of the committed weights. */
};

/* Stores the reply to a BEGIN request: the epoch and version of the update, and the committed
 * version with its hash. Clears `overwrites`, which the caller sets. */
void tdm__source_state_on_begin(struct tdm__source_state *source_state,
                                const struct tdm__id *update, uint64_t epoch,
                                uint64_t update_version, uint64_t version,
                                const struct tdm__hash *hash);
/* Stores the reply to a DECIDE request for the latest update: its outcome, and the version and hash
 * that are committed afterwards. */
void tdm__source_state_on_decide(struct tdm__source_state *source_state,
                                 enum tdm__update_outcome outcome, uint64_t version,
                                 const struct tdm__hash *hash);
/* Stores that every living member has reported that it serves the committed version. */
void tdm__source_state_on_settled(struct tdm__source_state *source_state);

/* Returns true if the source knows a later epoch than the version record in the store. The record
 * has then lost writes. */
bool tdm__source_state_is_ahead(const struct tdm__source_state *source_state,
                                uint64_t record_epoch);
/* Returns the request that restores the version record from what the source knows. The caller adds
 * the source, the members and the dead members. An outcome that the source did not learn is
 * restored as ABORTED, because no member has acted on another one. */
struct tdm__version_request
tdm__source_state_restore_request(const struct tdm__source_state *source_state);

#endif
