/* phase.h - whose turn it is on the card: the phases of one colocated job. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_PHASE_H
#define TDM_COLOCATE_PHASE_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* The job's controller drives its steps through this machine: it carries out the action it is
 * told, on all ranks, and reports what came of it; that event brings the next action.  One
 * action is open at a time, save generations, of which many run at once.
 *
 *   EMPTY ── train_wanted ──► TRAIN          EMPTY ── update_wanted ──► UPDATE
 *   ROLLOUT ── rollout_done ──► DRAIN ─► OFFLOAD_ENGINE ─► TRAIN ─► OFFLOAD_TRAINER ─► UPDATE
 *           ─► RESUME_ENGINE ─► ROLLOUT          any ── death or failure ──► FAILED
 *
 * It holds that the trainer and the engines are never on the card together; that an action on a
 * tenant's memory is only told while that memory is resident; that memory counts as gone when
 * the pause was reported, not when it was asked for; and that nobody generates unless the
 * engines serve the committed version and have their KV cache.  The test walks every state. */

enum tdm__phase_name {
    TDM__PHASE_EMPTY, /* nobody is resident */
    TDM__PHASE_ROLLOUT,
    TDM__PHASE_DRAIN, /* the rollout is over, but calls are still in flight */
    TDM__PHASE_OFFLOAD_ENGINE,
    TDM__PHASE_TRAIN,
    TDM__PHASE_OFFLOAD_TRAINER,
    TDM__PHASE_UPDATE,
    TDM__PHASE_RESUME_ENGINE,
    TDM__PHASE_FAILED
};

/* What the controller shall do now; in brackets the events that may answer. */
enum tdm__phase_action {
    TDM__PHASE_DO_NOTHING,        /* wait for the job's own events */
    TDM__PHASE_DO_PAUSE_ENGINES,  /* all their regions [engines_paused] */
    TDM__PHASE_DO_RESUME_TRAINER, /* all its regions [trainer_resumed] */
    TDM__PHASE_DO_TRAIN,          /* step, load or save, as often as wanted [step_done] */
    TDM__PHASE_DO_PAUSE_TRAINER,  /* keeps the source of the update on the host
                                     [trainer_paused] */
    TDM__PHASE_DO_RESUME_WEIGHTS, /* of the engines, and nothing else [weights_resumed] */
    TDM__PHASE_DO_UPDATE,         /* stage all buckets, vote, decide [update_committed,
                                     update_aborted; update_skipped if there is none] */
    TDM__PHASE_DO_FLUSH,          /* every engine flips to the committed version, if there is a
                                     new one, and flushes its caches [caches_flushed] */
    TDM__PHASE_DO_RESUME_KV,      /* and whatever else engines have [kv_resumed] */
    TDM__PHASE_DO_GENERATE,       /* this one request [generate_done] */
    TDM__PHASE_DO_FAIL            /* stop the job; `failure` says why */
};

enum tdm__phase_event_kind {
    TDM__PHASE_TRAIN_WANTED,  /* from EMPTY: warm up, or load a checkpoint */
    TDM__PHASE_UPDATE_WANTED, /* from EMPTY: the engines need their first weights */
    TDM__PHASE_GENERATE_REQUESTED,
    TDM__PHASE_GENERATE_DONE, /* well or not; also for calls that died with their engine */
    TDM__PHASE_ROLLOUT_DONE,  /* no more requests; DRAIN lasts until the calls are done */
    TDM__PHASE_ENGINES_PAUSED,
    TDM__PHASE_TRAINER_RESUMED,
    TDM__PHASE_STEP_DONE,
    TDM__PHASE_TRAINER_PAUSED,
    TDM__PHASE_WEIGHTS_RESUMED,
    TDM__PHASE_UPDATE_COMMITTED, /* as `version` */
    TDM__PHASE_UPDATE_ABORTED,   /* tried again, update_retries_max times; then goes on with the
                                    version served before */
    TDM__PHASE_UPDATE_SKIPPED,   /* goes on with the version served before */
    TDM__PHASE_CACHES_FLUSHED,
    TDM__PHASE_KV_RESUMED,
    TDM__PHASE_PARTICIPANT_DIED,  /* a participant, at any time */
    TDM__PHASE_ENGINE_RECOVERED,  /* an engine that had died, at any time */
    TDM__PHASE_WEIGHTS_RECOVERED, /* as `version`, by an update of its own, because no engine served
                              any more; before or in a rollout */
    TDM__PHASE_ACTION_FAILED      /* the open action cannot be done: `text` says why */
};

enum tdm__phase_participant { TDM__PHASE_TRAINER, TDM__PHASE_ENGINE };

struct tdm__phase_event {
    enum tdm__phase_event_kind kind;
    uint64_t version;                        /* update_committed, resupplied */
    enum tdm__phase_participant participant; /* died */
    const char *participant_name;            /* died, step_failed: "engine 1 rank 0" */
    const char *text;                        /* died, step_failed: why; may be NULL */
};

enum {
    TDM__PHASE_HAS_TRAINER = 1 << 0, /* bits of what is resident */
    TDM__PHASE_HAS_WEIGHTS = 1 << 1,
    TDM__PHASE_HAS_KV = 1 << 2
};

/* A value: copied by assignment.  Read it; change it through the functions only. */
struct tdm__phase {
    enum tdm__phase_name phase;
    enum tdm__phase_action open; /* told, and not answered yet */
    uint32_t resident;           /* bits, as reported */
    uint32_t engines_count;
    uint32_t engines_alive;
    uint32_t engines_needed; /* the job fails below this; 0 where they can all come back */
    uint32_t update_retries_max;
    uint32_t update_retries;
    uint32_t calls_in_flight;
    char failure[260]; /* participant_name and where; "" unless FAILED; leaves no gap before what
                          follows */
    uint64_t committed_version;
    uint64_t serving_version; /* of every engine; 0: none yet */
};

void tdm__phase_init(struct tdm__phase *state, uint32_t engines_count, uint32_t engines_needed,
                     uint32_t update_retries_max);
/* A job that goes on: the number that committed versions must exceed.  Before the first event.
 */
void tdm__phase_set_base_version(struct tdm__phase *state, uint64_t version);
/* "UPDATE". */
const char *tdm__phase_name_text(enum tdm__phase_name phase);
bool tdm__phase_allows_generate(const struct tdm__phase *state);

/* One step.  An event that does not belong here changes nothing: TDM_E_STATE names it and the
 * phase.  After a failure every event is TDM_E_ABORTED with the failure's words. */
tdm_status tdm__phase_handle_event(struct tdm__phase *state, const struct tdm__phase_event *event,
                                   enum tdm__phase_action *action_out);

#endif
