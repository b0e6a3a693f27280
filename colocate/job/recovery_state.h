/* recovery_state.h - decides what brings one lost engine of a job back, and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RECOVERY_STATE_H
#define TDM_COLOCATE_JOB_RECOVERY_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* How often an engine is restarted until it has completed a rollout. */
enum { TDM__RECOVERY_ATTEMPTS_MAX = 3 };

/* What an engine needs next. The stages of a lost engine follow one another in this order; each is
 * an action, which engine_recovery.c carries out. An engine that was added to a running job goes
 * through the same stages. */
enum tdm__recovery_stage {
    TDM__RECOVERY_NONE, /* Nothing: the engine is not lost. */
    /* Kill the ranks that may still run, on a node that did not reply before. */
    TDM__RECOVERY_KILL,
    TDM__RECOVERY_PLACE,   /* Reserve GPUs on a node that has them. */
    TDM__RECOVERY_CREATE,  /* Create the actors of the ranks. */
    TDM__RECOVERY_AWAIT,   /* Wait until the actors are constructed. */
    TDM__RECOVERY_CONNECT, /* Start the ranks and connect them to the trainers. */
    TDM__RECOVERY_GIVEN_UP /* Nothing: all restarts of the engine have been used up. */
};

/* What is known about the recovery of one engine. The worker group owns it; zeros are an engine
 * that is not lost. All functions are pure: times are passed to them. */
struct tdm__recovery_state {
    enum tdm__recovery_stage stage; /* What the engine needs next. */
    /* True if the engine has GPUs of its own, so that it may be placed again on any node. */
    bool has_own_gpus;
    /* True if the GPUs that are reserved for the engine cannot be used again, because their node
     * was lost or did not reply. */
    bool place_is_lost;
    /* Number of restarts since the engine last completed a rollout. Restarts that failed because a
     * node did not reply, or had no room, do not count for an engine with GPUs of its own. */
    uint32_t attempts;
    /* How often the engine was removed since then because it did not reach the store or the
     * trainers. */
    uint32_t cut_offs;
    /* Time before which nothing is tried, in milliseconds of CLOCK_MONOTONIC. */
    int64_t next_ms;
    /* Time until which the actors must be constructed, in milliseconds of CLOCK_MONOTONIC. */
    int64_t deadline_ms;
};

/* Returns whether a request about a rank that failed with this status proves that the rank's
 * process does not run any more: it has ended, or its node is lost and has stopped it. */
bool tdm__recovery_status_proves_end(tdm_status status);

/* Notes that the engine was removed. `killed` is the result of killing its ranks: TDM_OK if their
 * node has confirmed it. */
void tdm__recovery_on_lost(struct tdm__recovery_state *state, tdm_status killed, int64_t now_ms);
/* Notes that the engine was added to the running job. It needs GPUs of its own. A rank of a former
 * engine of its number may still run. */
void tdm__recovery_on_added(struct tdm__recovery_state *state, int64_t now_ms);
/* Notes that the engine was removed because its node did not reach the store or the trainers,
 * although it runs. It is tried again after ten seconds, then twenty, up to eighty, and that was no
 * attempt. */
void tdm__recovery_on_cut_off(struct tdm__recovery_state *state, int64_t now_ms);
/* Notes that the engine has completed a rollout. */
void tdm__recovery_on_rollout(struct tdm__recovery_state *state);
/* Returns what to do now; NONE also while a pause after a failure lasts. */
enum tdm__recovery_stage tdm__recovery_next(const struct tdm__recovery_state *state,
                                            int64_t now_ms);
/* Notes the result of `action`, which tdm__recovery_next() has returned. If creating, awaiting or
 * connecting the ranks failed, the next action is KILL, for the ranks that were created. */
void tdm__recovery_on_result(struct tdm__recovery_state *state, enum tdm__recovery_stage action,
                             tdm_status status, int64_t now_ms);

#endif
