/* phase.c - the phases of one colocated job: when the trainer and when the engines use the GPUs. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This file is a pure state machine: (state, event) gives (state, action). It owns no memory, no
 * thread and no clock; job/controller.c owns the state and calls it from one thread.
 *
 * The plain transitions stand in the table `rules`. The handlers below the table cover the events
 * that count something: generate calls, deaths, recoveries and versions.
 *
 * Invariants: while `open` is an action, only its results, generate calls, deaths, recoveries and
 * a failure are accepted. The bits in `resident` change only through the table, from reports of
 * completed actions. FAILED is final. The states and actions are specified in phase.h. */

#include "colocate/phase.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/text.h"

#include <string.h>

/* One plain transition: in `phase`, while the action `open` has no result, `event` reports its
 * result. */
struct rule {
    enum tdm__phase_name phase;         /* Phase in which the rule applies. */
    enum tdm__phase_action open;        /* Action that is in progress when the rule applies. */
    enum tdm__phase_event_kind event;   /* Event that the rule handles. */
    enum tdm__phase_name next_phase;    /* Phase of the job after the event. */
    enum tdm__phase_action next_action; /* Action that the controller must carry out next. */
    uint32_t gained_memory; /* TDM__PHASE_HAS_… bits of memory that becomes resident. */
    uint32_t lost_memory;   /* TDM__PHASE_HAS_… bits of memory that is no longer resident. */
};

/* TDM__PHASE_HAS_… bits of all memory that the engines keep resident in a rollout. */
enum { ENGINES = TDM__PHASE_HAS_WEIGHTS | TDM__PHASE_HAS_KV };

/* Short name of a phase in the table of rules. */
#define PHASE(name) TDM__PHASE_##name
/* Short name of an action of the phase machine. */
#define DO(name) TDM__PHASE_DO_##name

/* Each rule takes two lines: the state and the event, then the new state. clang-format would
 * destroy this layout. */
/* clang-format off */
static const struct rule rules[] = {
    {PHASE(EMPTY), DO(NOTHING), PHASE(TRAIN_WANTED),
     PHASE(TRAIN), DO(RESUME_TRAINER), 0, 0},
    {PHASE(EMPTY), DO(NOTHING), PHASE(UPDATE_WANTED),
     PHASE(UPDATE), DO(RESUME_WEIGHTS), 0, 0},
    {PHASE(OFFLOAD_ENGINE), DO(PAUSE_ENGINES), PHASE(ENGINES_PAUSED),
     PHASE(TRAIN), DO(RESUME_TRAINER), 0, ENGINES},
    {PHASE(TRAIN), DO(RESUME_TRAINER), PHASE(TRAINER_RESUMED),
     PHASE(TRAIN), DO(TRAIN), PHASE(HAS_TRAINER), 0},
    {PHASE(TRAIN), DO(TRAIN), PHASE(STEP_DONE),
     PHASE(OFFLOAD_TRAINER), DO(PAUSE_TRAINER), 0, 0},
    {PHASE(OFFLOAD_TRAINER), DO(PAUSE_TRAINER), PHASE(TRAINER_PAUSED),
     PHASE(UPDATE), DO(RESUME_WEIGHTS), 0, PHASE(HAS_TRAINER)},
    {PHASE(UPDATE), DO(RESUME_WEIGHTS), PHASE(WEIGHTS_RESUMED),
     PHASE(UPDATE), DO(UPDATE), PHASE(HAS_WEIGHTS), 0},
    {PHASE(UPDATE), DO(UPDATE), PHASE(UPDATE_COMMITTED),
     PHASE(UPDATE), DO(FLUSH), 0, 0},
    {PHASE(UPDATE), DO(UPDATE), PHASE(UPDATE_ABORTED),
     PHASE(UPDATE), DO(FLUSH), 0, 0},
    {PHASE(UPDATE), DO(UPDATE), PHASE(UPDATE_SKIPPED),
     PHASE(UPDATE), DO(FLUSH), 0, 0},
    {PHASE(UPDATE), DO(FLUSH), PHASE(CACHES_FLUSHED),
     PHASE(RESUME_ENGINE), DO(RESUME_KV), 0, 0},
    {PHASE(RESUME_ENGINE), DO(RESUME_KV), PHASE(KV_RESUMED),
     PHASE(ROLLOUT), DO(NOTHING), PHASE(HAS_KV), 0},
};
/* clang-format on */

static const char *const phase_texts[] = {
    "EMPTY",           "ROLLOUT", "DRAIN",         "OFFLOAD_ENGINE", "TRAIN",
    "OFFLOAD_TRAINER", "UPDATE",  "RESUME_ENGINE", "FAILED",
};

static const char *const event_texts[] = {
    "train_wanted",     "update_wanted",   "generate_requested", "generate_done",
    "rollout_done",     "engines_paused",  "trainer_resumed",    "step_done",
    "trainer_paused",   "weights_resumed", "update_committed",   "update_aborted",
    "update_skipped",   "caches_flushed",  "kv_resumed",         "participant_died",
    "engine_recovered", "engine_added",    "engine_removed",     "weights_recovered",
    "action_failed",
};

_Static_assert(sizeof(phase_texts) / sizeof(phase_texts[0]) == TDM__PHASE_FAILED + 1, "texts");
_Static_assert(sizeof(event_texts) / sizeof(event_texts[0]) == TDM__PHASE_ACTION_FAILED + 1,
               "texts");

const char *tdm__phase_name_text(enum tdm__phase_name phase)
{
    TDM_ASSERT(phase <= TDM__PHASE_FAILED);
    return phase_texts[phase];
}

void tdm__phase_init(struct tdm__phase *state, uint32_t engines_count, uint32_t engines_needed,
                     uint32_t update_retries_max)
{
    TDM_ASSERT(engines_count >= 1 && engines_needed <= engines_count);
    memset(state, 0, sizeof(*state));
    state->engines_count = engines_count;
    state->engines_alive = engines_count;
    state->engines_needed = engines_needed;
    state->update_retries_max = update_retries_max;
}

void tdm__phase_set_base_version(struct tdm__phase *state, uint64_t version)
{
    TDM_ASSERT(state->phase == TDM__PHASE_EMPTY);
    state->committed_version = version;
}

void tdm__phase_set_overwriting(struct tdm__phase *state)
{
    TDM_ASSERT(state->phase == TDM__PHASE_EMPTY);
    state->updates_overwrite = 1;
}

bool tdm__phase_allows_generate(const struct tdm__phase *state)
{
    return state->phase == TDM__PHASE_ROLLOUT && (state->resident & ENGINES) == ENGINES &&
           state->serving_version != 0 && state->serving_version == state->committed_version;
}

/* Fails with TDM_E_STATE because the event is not possible in the job's phase. */
static tdm_status phase_refuse_event(const struct tdm__phase *state,
                                     const struct tdm__phase_event *event)
{
    return tdm__fail(TDM_E_STATE, "%s does not belong in %s", event_texts[event->kind],
                     phase_texts[state->phase]);
}

/* Moves the job to FAILED, records the reason, and returns the action DO_FAIL. */
static tdm_status phase_fail_job(struct tdm__phase *state, const struct tdm__phase_event *event,
                                 const char *what, enum tdm__phase_action *action_out)
{
    struct tdm__text text = tdm__text_init(state->failure, sizeof(state->failure));

    tdm__text_add(&text, "%s%s%s in %s",
                  event->participant_name == NULL ? "" : event->participant_name,
                  event->participant_name == NULL ? "" : " ", what, phase_texts[state->phase]);
    if (event->text != NULL) {
        tdm__text_add(&text, ": %s", event->text);
    }
    state->phase = TDM__PHASE_FAILED;
    state->open = TDM__PHASE_DO_NOTHING;
    *action_out = TDM__PHASE_DO_FAIL;
    return TDM_OK;
}

/* ---- the events that are more than a rule ----------------------------------------------- */

/* Handles the event GENERATE_REQUESTED: counts the generate call if generation is allowed. */
static tdm_status on_generate_requested(struct tdm__phase *state,
                                        const struct tdm__phase_event *event,
                                        enum tdm__phase_action *action_out)
{
    if (!tdm__phase_allows_generate(state)) {
        return phase_refuse_event(state, event);
    }
    state->calls_in_flight++;
    *action_out = TDM__PHASE_DO_GENERATE;
    return TDM_OK;
}

/* Leaves DRAIN and pauses the engines when the last generate call has ended; else returns
 * DO_NOTHING. */
static tdm_status leave_drain_if_empty(struct tdm__phase *state, enum tdm__phase_action *action_out)
{
    *action_out = TDM__PHASE_DO_NOTHING;
    if (state->phase == TDM__PHASE_DRAIN && state->calls_in_flight == 0) {
        state->phase = TDM__PHASE_OFFLOAD_ENGINE;
        state->open = TDM__PHASE_DO_PAUSE_ENGINES;
        *action_out = state->open;
    }
    return TDM_OK;
}

/* Handles the event GENERATE_DONE: counts the generate call as ended. */
static tdm_status on_generate_done(struct tdm__phase *state, const struct tdm__phase_event *event,
                                   enum tdm__phase_action *action_out)
{
    if (state->calls_in_flight == 0) {
        return phase_refuse_event(state, event);
    }
    state->calls_in_flight--;
    return leave_drain_if_empty(state, action_out);
}

/* Handles the event ROLLOUT_DONE: the job enters the phase DRAIN. */
static tdm_status on_rollout_done(struct tdm__phase *state, const struct tdm__phase_event *event,
                                  enum tdm__phase_action *action_out)
{
    if (state->phase != TDM__PHASE_ROLLOUT) {
        return phase_refuse_event(state, event);
    }
    state->phase = TDM__PHASE_DRAIN;
    return leave_drain_if_empty(state, action_out);
}

/* Handles PARTICIPANT_DIED: the job fails if the trainer died or too few engines are left. */
static tdm_status on_died(struct tdm__phase *state, const struct tdm__phase_event *event,
                          enum tdm__phase_action *action_out)
{
    if (event->participant == TDM__PHASE_ENGINE) {
        state->engines_alive--;
        if (state->engines_alive >= state->engines_needed) {
            /* The open action continues without the dead engine. An update that is aborted because
             * of it is tried again as often as a first one. */
            state->update_retries = 0;
            *action_out = TDM__PHASE_DO_NOTHING;
            return TDM_OK;
        }
    }
    return phase_fail_job(state, event, "died", action_out);
}

/* Handles ENGINE_RECOVERED: counts the engine as alive again. */
static tdm_status on_engine_recovered(struct tdm__phase *state,
                                      const struct tdm__phase_event *event,
                                      enum tdm__phase_action *action_out)
{
    if (state->engines_alive == state->engines_count) {
        return phase_refuse_event(state, event);
    }
    state->engines_alive++;
    *action_out = TDM__PHASE_DO_NOTHING; /* The open action continues unchanged. */
    return TDM_OK;
}

/* Handles ENGINE_ADDED and ENGINE_REMOVED: counts the engines of the job. */
static tdm_status on_engines_changed(struct tdm__phase *state, const struct tdm__phase_event *event,
                                     enum tdm__phase_action *action_out)
{
    bool is_removal = event->kind == TDM__PHASE_ENGINE_REMOVED;

    if (state->phase != TDM__PHASE_ROLLOUT ||
        (is_removal && (state->engines_alive == state->engines_count || state->engines_count == 1 ||
                        state->engines_count == state->engines_needed))) {
        return phase_refuse_event(state, event);
    }
    state->engines_count = is_removal ? state->engines_count - 1 : state->engines_count + 1;
    *action_out = TDM__PHASE_DO_NOTHING;
    return TDM_OK;
}

/* Handles WEIGHTS_RECOVERED: all engines serve the version of the separate update. */
static tdm_status on_weights_recovered(struct tdm__phase *state,
                                       const struct tdm__phase_event *event,
                                       enum tdm__phase_action *action_out)
{
    if ((state->phase != TDM__PHASE_ROLLOUT && state->phase != TDM__PHASE_RESUME_ENGINE) ||
        event->version <= state->committed_version) {
        return phase_refuse_event(state, event);
    }
    state->committed_version = event->version;
    state->serving_version = event->version;
    *action_out = TDM__PHASE_DO_NOTHING; /* The open action continues unchanged. */
    return TDM_OK;
}

/* ---- the rules -------------------------------------------------------------------------- */

/* Checks that a committed version is newer than the last one, and that the first update is not
 * skipped. */
static tdm_status check_versions(const struct tdm__phase *state,
                                 const struct tdm__phase_event *event)
{
    if (event->kind == TDM__PHASE_UPDATE_COMMITTED && event->version <= state->committed_version) {
        return tdm__fail(TDM_E_STATE, "version %llu was committed after version %llu",
                         (unsigned long long)event->version,
                         (unsigned long long)state->committed_version);
    }
    if (event->kind == TDM__PHASE_UPDATE_SKIPPED && state->serving_version == 0) {
        return tdm__fail(TDM_E_STATE, "the first update cannot be skipped: no engine has weights");
    }
    return TDM_OK;
}

/* Applies a rule of the table: sets the versions, the phase, the open action and the resident
 * bits. */
static void phase_apply_rule(struct tdm__phase *state, const struct rule *rule,
                             const struct tdm__phase_event *event)
{
    if (event->kind == TDM__PHASE_UPDATE_COMMITTED) {
        state->committed_version = event->version;
    } else if (event->kind == TDM__PHASE_CACHES_FLUSHED) {
        state->serving_version = state->committed_version;
        state->update_retries = 0;
    }
    state->phase = rule->next_phase;
    state->open = rule->next_action;
    state->resident = (state->resident | rule->gained_memory) & ~rule->lost_memory;
}

/* Returns true, and counts a retry, if an aborted update is to be tried again. */
static bool phase_retries_update(struct tdm__phase *state)
{
    if (state->update_retries == state->update_retries_max) {
        return false;
    }
    state->update_retries++;
    return true;
}

/* Looks up the rule for the event and applies the rule. An aborted update is retried first. */
static tdm_status phase_follow_rules(struct tdm__phase *state, const struct tdm__phase_event *event,
                                     enum tdm__phase_action *action_out)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct rule *rule = &rules[i];

        if (rule->phase != state->phase || rule->open != state->open ||
            rule->event != event->kind) {
            continue;
        }
        TDM_TRY(check_versions(state, event));
        if (event->kind == TDM__PHASE_UPDATE_ABORTED) {
            if (phase_retries_update(state)) {
                *action_out = TDM__PHASE_DO_UPDATE;
                return TDM_OK;
            }
            if (state->updates_overwrite != 0 && event->holders == 0) {
                state->serving_version = 0;
                return phase_fail_job(state, event,
                                      "the update was aborted, and its engines hold no version,",
                                      action_out);
            }
            if (state->serving_version == 0) {
                return phase_fail_job(state, event, "the first update was aborted", action_out);
            }
        }
        phase_apply_rule(state, rule, event);
        *action_out = state->open;
        return TDM_OK;
    }
    return phase_refuse_event(state, event);
}

tdm_status tdm__phase_handle_event(struct tdm__phase *state, const struct tdm__phase_event *event,
                                   enum tdm__phase_action *action_out)
{
    TDM_ASSERT(event->kind <= TDM__PHASE_ACTION_FAILED);
    if (state->phase == TDM__PHASE_FAILED) {
        return tdm__fail(TDM_E_ABORTED, "%s", state->failure);
    }
    if (event->kind == TDM__PHASE_GENERATE_REQUESTED) {
        return on_generate_requested(state, event, action_out);
    }
    if (event->kind == TDM__PHASE_GENERATE_DONE) {
        return on_generate_done(state, event, action_out);
    }
    if (event->kind == TDM__PHASE_ROLLOUT_DONE) {
        return on_rollout_done(state, event, action_out);
    }
    if (event->kind == TDM__PHASE_PARTICIPANT_DIED) {
        return on_died(state, event, action_out);
    }
    if (event->kind == TDM__PHASE_ENGINE_RECOVERED) {
        return on_engine_recovered(state, event, action_out);
    }
    if (event->kind == TDM__PHASE_ENGINE_ADDED || event->kind == TDM__PHASE_ENGINE_REMOVED) {
        return on_engines_changed(state, event, action_out);
    }
    if (event->kind == TDM__PHASE_WEIGHTS_RECOVERED) {
        return on_weights_recovered(state, event, action_out);
    }
    if (event->kind == TDM__PHASE_ACTION_FAILED) {
        return phase_fail_job(state, event, "failed", action_out);
    }
    return phase_follow_rules(state, event, action_out);
}
