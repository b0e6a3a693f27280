/* phase.h - the phases of one colocated job: when the trainer and when the engines use the GPUs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_PHASE_H
#define TDM_COLOCATE_PHASE_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* The controller of a job drives the job through this state machine. It carries out the action
 * that the machine returns on all ranks, and reports the result as an event; the event returns
 * the next action. At most one action is open at a time, except generations, of which many run
 * concurrently.
 *
 * EMPTY -- train_wanted --> TRAIN
 *
 * EMPTY -- update_wanted --> UPDATE
 *
 * ROLLOUT -- rollout_done --> DRAIN -> OFFLOAD_ENGINE -> TRAIN -> OFFLOAD_TRAINER -> UPDATE ->
 * RESUME_ENGINE -> ROLLOUT
 *
 * any phase -- death or failure --> FAILED
 *
 * Invariants: the trainer and the engines are never resident on the GPU together. An action on a
 * tenant's memory is only returned while that memory is resident. Memory counts as released when
 * the pause is reported, not when it is requested. No engine generates unless all engines serve
 * the committed version and have their KV cache. phase_test.c explores every state. */

/* The phases of a job. The phase says which tenant is or becomes resident on the GPUs. */
enum tdm__phase_name {
    /* Neither trainer nor engines have memory on the GPUs; the job starts here. */
    TDM__PHASE_EMPTY,
    TDM__PHASE_ROLLOUT, /* The engines have their memory and generate. */
    /* The rollout is over, but generate calls are still in flight. */
    TDM__PHASE_DRAIN,
    TDM__PHASE_OFFLOAD_ENGINE,  /* The engines pause their regions. */
    TDM__PHASE_TRAIN,           /* The trainer resumes its regions, then trains. */
    TDM__PHASE_OFFLOAD_TRAINER, /* The trainer pauses its regions. */
    /* The engines resume their weights and receive a new version. */
    TDM__PHASE_UPDATE,
    TDM__PHASE_RESUME_ENGINE, /* The engines resume the KV cache. */
    TDM__PHASE_FAILED         /* The job failed; this phase is final. */
};

/* What the controller must do next. The events that may report its result stand in brackets. */
enum tdm__phase_action {
    TDM__PHASE_DO_NOTHING, /* No action; the machine waits for an event of the job itself. */
    /* Pause all regions of the engines [engines_paused]. */
    TDM__PHASE_DO_PAUSE_ENGINES,
    /* Resume all regions of the trainer [trainer_resumed]. */
    TDM__PHASE_DO_RESUME_TRAINER,
    /* Train, load or save, any number of times [step_done]. */
    TDM__PHASE_DO_TRAIN,
    /* Pause the trainer's regions; the source of the weight update stays in host memory
     * [trainer_paused]. */
    TDM__PHASE_DO_PAUSE_TRAINER,
    /* Resume the weights of the engines and no other region [weights_resumed]. */
    TDM__PHASE_DO_RESUME_WEIGHTS,
    /* Stage all buckets of the weight update, vote and decide [update_committed or
     * update_aborted; update_skipped if there is no update]. */
    TDM__PHASE_DO_UPDATE,
    /* Make every engine switch to the committed version, if it is new, and flush its caches
     * [caches_flushed]. */
    TDM__PHASE_DO_FLUSH,
    /* Resume the KV caches and all other regions of the engines [kv_resumed]. */
    TDM__PHASE_DO_RESUME_KV,
    /* Run the generate request that was just reported [generate_done]. */
    TDM__PHASE_DO_GENERATE,
    /* Stop the job; the field `failure` of the state has the reason. */
    TDM__PHASE_DO_FAIL
};

/* What happened in the job: a request of the job, the result of the open action, a death, or a
 * recovery. */
enum tdm__phase_event_kind {
    /* In EMPTY: the job wants to warm up or to load a checkpoint. */
    TDM__PHASE_TRAIN_WANTED,
    /* In EMPTY: the engines need their first weights. */
    TDM__PHASE_UPDATE_WANTED,
    TDM__PHASE_GENERATE_REQUESTED, /* In ROLLOUT: a generate call wants to start. */
    /* A generate call ended, with success or not, also because its engine died. */
    TDM__PHASE_GENERATE_DONE,
    /* No more generate requests come; DRAIN lasts until the calls in flight end. */
    TDM__PHASE_ROLLOUT_DONE,
    TDM__PHASE_ENGINES_PAUSED,   /* The regions of all engines are paused. */
    TDM__PHASE_TRAINER_RESUMED,  /* The regions of the trainer are resident. */
    TDM__PHASE_STEP_DONE,        /* The training of this turn is complete. */
    TDM__PHASE_TRAINER_PAUSED,   /* The regions of the trainer are paused. */
    TDM__PHASE_WEIGHTS_RESUMED,  /* The weights of all engines are resident. */
    TDM__PHASE_UPDATE_COMMITTED, /* The update was committed as `version`. */
    /* The update was aborted. It is retried update_retries_max times, counted from the last death
     * of an engine; then the job goes on with the version served before, or fails if the update has
     * overwritten that version in every engine. */
    TDM__PHASE_UPDATE_ABORTED,
    /* There was no update; the job goes on with the version served before. */
    TDM__PHASE_UPDATE_SKIPPED,
    /* All engines serve the committed version and have flushed their caches. */
    TDM__PHASE_CACHES_FLUSHED,
    TDM__PHASE_KV_RESUMED, /* The KV caches of all engines are resident. */
    /* The trainer or an engine died; possible in every phase. */
    TDM__PHASE_PARTICIPANT_DIED,
    /* An engine that had died, or that was added, runs; possible in every phase. */
    TDM__PHASE_ENGINE_RECOVERED,
    /* One more engine belongs to the job. It does not run yet; possible in ROLLOUT. */
    TDM__PHASE_ENGINE_ADDED,
    /* An engine that does not run belongs to the job no longer; possible in ROLLOUT, if enough
     * engines are left. */
    TDM__PHASE_ENGINE_REMOVED,
    /* A separate update committed `version` because no live engine had weights; possible in
     * RESUME_ENGINE and ROLLOUT. */
    TDM__PHASE_WEIGHTS_RECOVERED,
    /* The open action cannot be carried out; `text` has the reason. */
    TDM__PHASE_ACTION_FAILED
};

/* Kind of a process of the job. */
enum tdm__phase_participant {
    TDM__PHASE_TRAINER, /* The process is a rank of the trainer. */
    TDM__PHASE_ENGINE   /* The process is a rank of an engine. */
};

/* One event for tdm__phase_handle_event(). Each field lists the kinds that read it. */
struct tdm__phase_event {
    /* Kind of the event; it decides which other fields are read. */
    enum tdm__phase_event_kind kind;
    /* UPDATE_COMMITTED, WEIGHTS_RECOVERED: version number of the weights. */
    uint64_t version;
    /* UPDATE_ABORTED of a job whose updates overwrite: number of engines that still hold the
     * version served before, so that the others can copy it. */
    uint32_t holders;
    /* PARTICIPANT_DIED: whether the trainer or an engine died. */
    enum tdm__phase_participant participant;
    /* PARTICIPANT_DIED, ACTION_FAILED: name for messages, for example "engine 1 rank 0"; NULL if
     * there is none. */
    const char *participant_name;
    const char *text; /* PARTICIPANT_DIED, ACTION_FAILED: reason for messages; may be NULL. */
};

enum {
    /* Bit of tdm__phase.resident: the trainer's regions are resident. */
    TDM__PHASE_HAS_TRAINER = 1 << 0,
    /* Bit of tdm__phase.resident: the engines' weights are resident. */
    TDM__PHASE_HAS_WEIGHTS = 1 << 1,
    /* Bit of tdm__phase.resident: the engines' KV caches are resident. */
    TDM__PHASE_HAS_KV = 1 << 2
};

/* The state of one job's phases. The controller owns it. It is a value, copied by assignment;
 * other code reads it, and only the functions below change it. */
struct tdm__phase {
    enum tdm__phase_name phase; /* Phase in which the job is. */
    /* Open action: the last action that was returned, while its result is not reported; DO_NOTHING
     * if absent. */
    enum tdm__phase_action open;
    /* TDM__PHASE_HAS_… bits of the memory that is on the GPUs, as reported by events. */
    uint32_t resident;
    /* Number of engines of the job, also those that are dead or do not run yet. */
    uint32_t engines_count;
    uint32_t engines_alive; /* Number of engines of the job that are alive. */
    /* Number of engines without which the job fails; 0 if all engines can be recovered. */
    uint32_t engines_needed;
    /* How often one aborted weight update is retried. */
    uint32_t update_retries_max;
    /* Not 0 if an update writes over the weights that the engines serve, so that an engine may hold
     * no version after an update that was aborted. */
    uint32_t updates_overwrite;
    uint32_t update_retries;  /* Number of retries of the current weight update so far. */
    uint32_t calls_in_flight; /* Number of generate calls that have not ended. */
    /* Reason why the job failed and the phase it failed in; "" unless the phase is FAILED. The
     * odd size leaves no padding before the next field. */
    char failure[260];
    /* Version of the last committed update, or the base version; 0 if none exists. */
    uint64_t committed_version;
    /* Version that every engine serves; 0 before the first update. */
    uint64_t serving_version;
};

/* Initializes the phases of a job: EMPTY, with all engines alive. `engines_needed` may be 0 to
 * engines_count. */
void tdm__phase_init(struct tdm__phase *state, uint32_t engines_count, uint32_t engines_needed,
                     uint32_t update_retries_max);
/* Sets the number that committed versions must exceed, for a job that resumes from a checkpoint.
 * The caller calls it before the first event. */
void tdm__phase_set_base_version(struct tdm__phase *state, uint64_t version);
/* Makes every update write over the weights that the engines serve. The caller calls it before the
 * first event. */
void tdm__phase_set_overwriting(struct tdm__phase *state);
/* Returns the name of a phase for messages, for example "UPDATE". */
const char *tdm__phase_name_text(enum tdm__phase_name phase);
/* Returns true if a generate call may start: the phase is ROLLOUT, the engines are resident, and
 * they serve the committed version. */
bool tdm__phase_allows_generate(const struct tdm__phase *state);

/* Applies one event and returns the next action in `action_out`. An event that is not possible in
 * the phase changes nothing and fails with TDM_E_STATE, naming both. After a failure every event
 * fails with TDM_E_ABORTED and the text of the failure. */
tdm_status tdm__phase_handle_event(struct tdm__phase *state, const struct tdm__phase_event *event,
                                   enum tdm__phase_action *action_out);

#endif
