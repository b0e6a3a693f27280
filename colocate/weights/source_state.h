/* source_state.h - what the source of updates knows of its record, so that it can restore it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SOURCE_STATE_H
#define TDM_COLOCATE_WEIGHTS_SOURCE_STATE_H

#include "colocate/weights/commit_core.h"

/* Implements the source's half of "Lost records" in docs/protocols/commit.md. The functions are
 * pure. They are for a source whose members act on its word alone. All zero means that the source
 * knows nothing and cannot restore anything. The source owns the structure. */
struct tdm__source_state {
    /* Latest update for which the store has replied; all zero if none exists. */
    struct tdm__id update;
    uint64_t epoch;          /* Epoch of that update. */
    uint64_t update_version; /* Version number that the update got. */
    uint64_t base;           /* Version that was committed when the update began. */
    /* Outcome of the update; undecided if the source has not learned it. */
    enum tdm__update_outcome outcome;
    /* True if the update is committed and all living members have reported that they flipped. */
    bool settled;
    uint64_t version;      /* Committed version; 0 if none exists. */
    struct tdm__hash hash; /* Hash of the committed version. */
};

/* Stores the reply to a BEGIN request: the update's epoch and version, and the committed version
 * with its hash. */
void tdm__source_state_on_begin(struct tdm__source_state *source_state,
                                const struct tdm__id *update, uint64_t epoch,
                                uint64_t update_version, uint64_t version,
                                const struct tdm__hash *hash);
/* Stores the reply to a DECIDE request of that update: its outcome and the version that is
 * committed afterwards. */
void tdm__source_state_on_decide(struct tdm__source_state *source_state,
                                 enum tdm__update_outcome outcome, uint64_t version,
                                 const struct tdm__hash *hash);
/* Stores that every living member has reported its flip. */
void tdm__source_state_on_settled(struct tdm__source_state *source_state);

/* Returns true if the source knows of a later epoch than the record, which has then lost writes. */
bool tdm__source_state_is_ahead(const struct tdm__source_state *source_state,
                                uint64_t record_epoch);
/* Returns the RESTORE request for the record. The caller adds the source, the members and the dead.
 * An outcome that the source did not learn is restored as ABORTED, because no member has acted on
 * another one. */
struct tdm__version_request
tdm__source_state_restore_request(const struct tdm__source_state *source_state);

#endif
