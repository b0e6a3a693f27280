/* intake.h - which messages of an update a member takes, and what its shadow is for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_INTAKE_H
#define TDM_COLOCATE_WEIGHTS_INTAKE_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* The decisions of docs/protocols/commit.md that a member makes by itself, and nothing else:
 * pure, so that a test can walk them.  The receiver carries them out. */

enum tdm__intake_phase {
    TDM__INTAKE_IDLE,
    TDM__INTAKE_STAGING,
    TDM__INTAKE_VOTED,  /* the shadow is frozen */
    TDM__INTAKE_FLIPPED /* the shadow of `update` is what is served */
};

/* All zero: nothing was ever heard. */
struct tdm__intake {
    enum tdm__intake_phase phase;
    struct tdm__id update; /* the latest heard of */
    uint64_t epoch;
};

/* A bucket has come.  `*begun_out`: it is the first of a new update, and whatever was staged
 * before is void.  TDM_E_STATE: it is of an update that is over, or that this member has voted
 * for or left behind; not a byte of it may be touched. */
tdm_status tdm__intake_bucket(struct tdm__intake *intake, const struct tdm__id *update,
                              uint64_t epoch, bool *begun_out);

/* TDM_E_STATE unless something of this update has come, and it may be voted for. */
tdm_status tdm__intake_check(const struct tdm__intake *intake, const struct tdm__id *update);
/* Everything of it has come: from now on the shadow is frozen. */
void tdm__intake_vote(struct tdm__intake *intake);

/* The update was committed.  `*swap_out`: exchange weights and shadow; false the second time.
 * TDM_E_STATE: this member has not voted for it. */
tdm_status tdm__intake_flip(struct tdm__intake *intake, const struct tdm__id *update,
                            bool *swap_out);

/* The update of this epoch was aborted, so all before it are over.  False: the shadow is needed
 * for a later one. */
bool tdm__intake_drop(struct tdm__intake *intake, uint64_t epoch);

#endif
