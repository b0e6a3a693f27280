/* replay_guard.h - which messages of an update an engine rank accepts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_REPLAY_GUARD_H
#define TDM_COLOCATE_WEIGHTS_REPLAY_GUARD_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* The decisions of docs/protocols/commit.md that a member of an update makes alone. The functions
 * are pure, so that a test can explore all states; colocate/weights/receiver.c carries the
 * decisions out. */

/* What the shadow of an engine rank contains. */
enum tdm__replay_guard_phase {
    TDM__REPLAY_GUARD_IDLE,    /* The shadow (the region for new weights) is not in use. */
    TDM__REPLAY_GUARD_STAGING, /* The update's weights are being loaded into the shadow. */
    /* The engine rank has voted for the update; the shadow must not change. */
    TDM__REPLAY_GUARD_VOTED,
    TDM__REPLAY_GUARD_FLIPPED /* The update was committed; its weights are served. */
};

/* The latest update of which an engine rank has heard. All zero means that it has not heard of any
 * update. The receiver owns it. */
struct tdm__replay_guard {
    enum tdm__replay_guard_phase phase; /* How far the update has come at this engine rank. */
    struct tdm__id update; /* ID of the latest update of which the engine rank has heard. */
    uint64_t epoch; /* Epoch of the update in `update`; 0 if the rank has not heard of any. */
};

/* Decides whether a bucket of the update may be staged. Sets `begun_out` to true if the bucket is
 * the first of a new update, so that earlier loaded buckets are void. Returns TDM_E_STATE if the
 * update is over or this member has voted for it. */
tdm_status tdm__replay_guard_accept_bucket(struct tdm__replay_guard *guard,
                                           const struct tdm__id *update, uint64_t epoch,
                                           bool *begun_out);

/* Returns TDM_E_STATE if this member may not vote for the update: it must be loading it or have
 * voted for it. */
tdm_status tdm__replay_guard_check_vote(const struct tdm__replay_guard *guard,
                                        const struct tdm__id *update);
/* Records that this member votes for its current update, so that no further bucket is accepted. */
void tdm__replay_guard_vote(struct tdm__replay_guard *guard);

/* Records that the update was committed. Sets `swap_out` to true if the caller must exchange the
 * weights and the shadow, and to false if the caller has done so before. Returns TDM_E_STATE if
 * this member has not voted for the update. */
tdm_status tdm__replay_guard_flip(struct tdm__replay_guard *guard, const struct tdm__id *update,
                                  bool *swap_out);

/* Records that the update of this epoch was aborted, or that this member has joined after it, so
 * all updates before it are over, too. A bucket of them that arrives later is refused, because it
 * must not be written over weights that are served. Returns true if the shadow may be released, and
 * false if a later update needs it. */
bool tdm__replay_guard_abort(struct tdm__replay_guard *guard, uint64_t epoch);

#endif
