/* source_state.h - what the source of updates has heard of its record, to write it again. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SOURCE_STATE_H
#define TDM_COLOCATE_WEIGHTS_SOURCE_STATE_H

#include "colocate/weights/commit_core.h"

/* "Lost records" in docs/protocols/commit.md, the source's half; pure.  For a source on whose
 * word alone its members act.  All zero: nothing was heard, and nothing can be restored. */
struct tdm__source_state {
    struct tdm__id update; /* its latest that the record has answered for; none: no such */
    uint64_t epoch;
    uint64_t update_version;
    uint64_t base;
    enum tdm__update_outcome outcome; /* undecided: not heard */
    bool settled;                     /* committed, and all have said that they flipped */
    uint64_t version;                 /* committed */
    struct tdm__hash hash;
};

/* The answer to a BEGIN: the update's epoch and version, and what is committed. */
void tdm__source_state_on_begin(struct tdm__source_state *source_state,
                                const struct tdm__id *update, uint64_t epoch,
                                uint64_t update_version, uint64_t version,
                                const struct tdm__hash *hash);
/* The answer to a DECIDE of that update: its outcome, and what is committed with it. */
void tdm__source_state_on_decide(struct tdm__source_state *source_state,
                                 enum tdm__update_outcome outcome, uint64_t version,
                                 const struct tdm__hash *hash);
/* Every member that lives has told that it flipped. */
void tdm__source_state_on_settled(struct tdm__source_state *source_state);

/* False: the record knows all that this does. */
bool tdm__source_state_is_ahead(const struct tdm__source_state *source_state,
                                uint64_t record_epoch);
/* A RESTORE, but for the source, the members, and the dead.  An outcome that was not heard is
 * an ABORT: so nobody has acted on another. */
struct tdm__version_request
tdm__source_state_restore_request(const struct tdm__source_state *source_state);

#endif
