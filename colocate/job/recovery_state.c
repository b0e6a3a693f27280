/* recovery_state.c - decides what brings one lost engine of a job back, and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/recovery_state.h"

/* Milliseconds: the pause after something that failed or has to be awaited, the first one
 * after an engine did not reach the store or the trainers, and the longest time until the actors of
 * an engine are constructed. */
enum { PAUSE_MS = 1000, CUT_OFF_PAUSE_MS = 10000, CONSTRUCT_MS = 60000 };
/* How often that pause is doubled. */
enum { CUT_OFF_DOUBLINGS_MAX = 3 };

bool tdm__recovery_status_proves_end(tdm_status status)
{
    return status == TDM_OK || status == TDM_E_ACTOR_DIED || status == TDM_E_NODE_LOST;
}

/* Returns whether a status says nothing about the engine, but that a node or the store did not
 * reply, that no node has room, or that an earlier rank still has the name. */
static bool is_about_place(tdm_status status)
{
    return status == TDM_E_NODE_LOST || status == TDM_E_ACTOR_UNAVAILABLE ||
           status == TDM_E_TIMEOUT || status == TDM_E_NO_RESOURCES || status == TDM_E_EXISTS ||
           status == TDM_E_NOT_FOUND || status == TDM_E_STORE || status == TDM_E_CLOSED ||
           status == TDM_E_AGAIN;
}

/* Chooses the stage of a lost engine whose restarts may be used up. */
static enum tdm__recovery_stage first_stage(const struct tdm__recovery_state *state)
{
    return state->attempts >= TDM__RECOVERY_ATTEMPTS_MAX ? TDM__RECOVERY_GIVEN_UP
                                                         : TDM__RECOVERY_KILL;
}

void tdm__recovery_on_lost(struct tdm__recovery_state *state, tdm_status killed, int64_t now_ms)
{
    state->place_is_lost = state->has_own_gpus && killed != TDM_OK && killed != TDM_E_ACTOR_DIED;
    state->next_ms = now_ms;
    state->stage = first_stage(state);
}

void tdm__recovery_on_added(struct tdm__recovery_state *state, int64_t now_ms)
{
    *state = (struct tdm__recovery_state){.stage = TDM__RECOVERY_KILL,
                                          .has_own_gpus = true,
                                          .place_is_lost = true,
                                          .next_ms = now_ms};
}

void tdm__recovery_on_cut_off(struct tdm__recovery_state *state, int64_t now_ms)
{
    state->attempts -= state->attempts > 0 ? 1 : 0;
    state->next_ms = now_ms + ((int64_t)CUT_OFF_PAUSE_MS << state->cut_offs);
    state->cut_offs += state->cut_offs < CUT_OFF_DOUBLINGS_MAX ? 1 : 0;
    state->stage = first_stage(state);
}

void tdm__recovery_on_rollout(struct tdm__recovery_state *state)
{
    state->attempts = 0;
    state->cut_offs = 0;
}

enum tdm__recovery_stage tdm__recovery_next(const struct tdm__recovery_state *state, int64_t now_ms)
{
    bool acts = state->stage != TDM__RECOVERY_GIVEN_UP && now_ms >= state->next_ms;

    return acts ? state->stage : TDM__RECOVERY_NONE;
}

/* Notes that the engine could not be created, constructed or connected. */
static void on_restart_failed(struct tdm__recovery_state *state, tdm_status status, int64_t now_ms)
{
    if (!state->has_own_gpus || !is_about_place(status)) {
        state->attempts++;
    }
    state->place_is_lost = state->has_own_gpus;
    state->next_ms = now_ms + (state->has_own_gpus ? PAUSE_MS : 0);
    state->stage = first_stage(state);
}

/* Notes the result of creating, awaiting or connecting the ranks. */
static void on_restart_result(struct tdm__recovery_state *state, enum tdm__recovery_stage action,
                              tdm_status status, int64_t now_ms)
{
    bool waits = action == TDM__RECOVERY_AWAIT && status == TDM_E_TIMEOUT;

    if (waits && now_ms < state->deadline_ms) {
        return;
    }
    if (status != TDM_OK) {
        on_restart_failed(state, status, now_ms);
    } else if (action == TDM__RECOVERY_CREATE) {
        state->deadline_ms = now_ms + CONSTRUCT_MS;
        state->stage = TDM__RECOVERY_AWAIT;
    } else if (action == TDM__RECOVERY_AWAIT) {
        state->stage = TDM__RECOVERY_CONNECT;
    } else {
        state->attempts++;
        state->stage = TDM__RECOVERY_NONE;
    }
}

void tdm__recovery_on_result(struct tdm__recovery_state *state, enum tdm__recovery_stage action,
                             tdm_status status, int64_t now_ms)
{
    switch (action) {
    case TDM__RECOVERY_KILL:
        if (!tdm__recovery_status_proves_end(status)) {
            state->next_ms = now_ms + PAUSE_MS;
        } else {
            state->stage = state->place_is_lost ? TDM__RECOVERY_PLACE : TDM__RECOVERY_CREATE;
        }
        break;
    case TDM__RECOVERY_PLACE:
        if (status != TDM_OK) {
            state->next_ms = now_ms + PAUSE_MS;
        } else {
            state->place_is_lost = false;
            state->stage = TDM__RECOVERY_CREATE;
        }
        break;
    case TDM__RECOVERY_CREATE:
    case TDM__RECOVERY_AWAIT:
    case TDM__RECOVERY_CONNECT:
        on_restart_result(state, action, status, now_ms);
        break;
    case TDM__RECOVERY_NONE:
    case TDM__RECOVERY_GIVEN_UP:
        break;
    }
}
