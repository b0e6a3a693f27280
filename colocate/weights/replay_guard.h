/* replay_guard.h - which messages of an update a member takes, and what its shadow is for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_REPLAY_GUARD_H
#define TDM_COLOCATE_WEIGHTS_REPLAY_GUARD_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* The decisions of docs/protocols/commit.md that a member makes by itself, and nothing else:
 * pure, so that a test can walk them.  The receiver carries them out. */

enum tdm__replay_guard_phase {
    TDM__REPLAY_GUARD_IDLE,
    TDM__REPLAY_GUARD_STAGING,
    TDM__REPLAY_GUARD_VOTED,  /* the shadow is frozen */
    TDM__REPLAY_GUARD_FLIPPED /* the shadow of `update` is what is served */
};

/* All zero: nothing was ever heard. */
struct tdm__replay_guard {
    enum tdm__replay_guard_phase phase;
    struct tdm__id update; /* the latest heard of */
    uint64_t epoch;
};

/* A bucket has come.  `*begun_out`: it is the first of a new update, and whatever was staged
 * before is void.  TDM_E_STATE: it is of an update that is over, or that this member has voted
 * for or left behind; not a byte of it may be touched. */
tdm_status tdm__replay_guard_accept_bucket(struct tdm__replay_guard *guard,
                                           const struct tdm__id *update, uint64_t epoch,
                                           bool *begun_out);

/* TDM_E_STATE unless something of this update has come, and it may be voted for. */
tdm_status tdm__replay_guard_check_vote(const struct tdm__replay_guard *guard,
                                        const struct tdm__id *update);
/* Everything of it has come: from now on the shadow is frozen. */
void tdm__replay_guard_vote(struct tdm__replay_guard *guard);

/* The update was committed.  `*swap_out`: exchange weights and shadow; false the second time.
 * TDM_E_STATE: this member has not voted for it. */
tdm_status tdm__replay_guard_flip(struct tdm__replay_guard *guard, const struct tdm__id *update,
                                  bool *swap_out);

/* The update of this epoch was aborted, so all before it are over.  False: the shadow is needed
 * for a later one. */
bool tdm__replay_guard_abort(struct tdm__replay_guard *guard, uint64_t epoch);

#endif
