/* worker_group.h - the trainer and engine actors of a job, and calls to many of them at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_WORKER_GROUP_H
#define TDM_COLOCATE_JOB_WORKER_GROUP_H

#include "colocate/job/engine_set.h"
#include "colocate/job/gather_groups.h"
#include "colocate/job/job_contents.h"
#include "colocate/job/job_file.h"
#include "colocate/job/recovery_state.h"
#include "colocate/weights/source_state.h"

#include <signal.h>
#include <tandem/actor.h>

struct tdm__liveness_monitor;

/* Longest time in milliseconds to wait until a killed actor is gone, and until actors of an earlier
 * job have ended. */
enum { TDM__WORKER_KILL_MS = 5000, TDM__WORKER_NAMES_MS = 5000 };
/* Longest time in milliseconds to wait until a rank of an engine with GPUs of its own is killed. If
 * its node does not reply, the engine is left out all the same. */
enum { TDM__WORKER_REMOTE_KILL_MS = 1000 };

/* Size of a text about an engine with its NUL. */
enum { TDM__ENGINE_TROUBLE_BYTES = 320 };

/* What the controller knows about one engine. Owned by the worker group. */
struct tdm__worker_group_engine {
    /* True if the engine is alive but serves nothing, because it was restarted and has no
     * weights yet, or because an update that was aborted has overwritten them. */
    bool awaits_weights;
    /* True if a silent rank of the engine could not be killed, because its node did not reply. */
    bool cannot_be_killed;
    /* True from the time at which the engine was added to the running job until it serves for the
     * first time. */
    bool is_new;
    /* True if the construction of the actors in `other_ranks` has been awaited once. */
    bool construction_was_awaited;
    /* What brings the engine back while it is lost. */
    struct tdm__recovery_state recovery;
    /* Why the last step that brings the engine back has failed; "" if it has not. */
    char trouble[TDM__ENGINE_TROUBLE_BYTES];
    /* Owned handles of ranks that are not in `engines`: of a lost engine that may still run, or of
     * a new one whose actors are being constructed. As many elements as an engine has ranks; NULL
     * where there is none. */
    tdm_actor **other_ranks;
};

/* What happened to an engine, as the callback `on_event` is told. */
enum tdm__engine_event {
    /* The engine was lost; the text says why. */
    TDM__ENGINE_EVENT_LOST,
    /* The engine was ended because the job is to have fewer; the text says how many. */
    TDM__ENGINE_EVENT_RETIRED,
    /* The actors of the engine were created, for the first time or again; it has no weights yet. */
    TDM__ENGINE_EVENT_RESTARTED,
    /* The restarted or added engine has the committed weights and serves. */
    TDM__ENGINE_EVENT_SERVING
};

/* All actors of a job. The controller owns it and uses it on one thread. Rank t of engine e is on
 * GPU e × ranks_per_engine + t, unless engines have GPUs of their own. Trainer rank r is on GPU r,
 * or on that of the first engine rank that it serves if there are more engine ranks
 * (gather_groups.h). The number of engines is that of the settings, which the controller changes
 * together with `engines_count` when engines are added or removed (engine_scaling.h). */
struct tdm__worker_group {
    /* Borrowed connection to the cluster. */
    tdm_runtime *runtime;
    /* Borrowed settings of the job. */
    const struct tdm__job_spec *spec;
    /* Borrowed files of the job for ranks on other nodes; NULL if there are none. */
    const struct tdm__job_contents *contents;
    /* Borrowed count of Ctrl-C signals; 2 ends every wait. NULL: waits are never interrupted. */
    const volatile sig_atomic_t *interrupts;
    /* Owned reservation of the GPUs of the trainers, which colocated engines share. */
    tdm_placement_group *group;
    /* Owned reservations of GPUs, one for each engine; NULL if engines are colocated. */
    tdm_placement_group **engine_groups;
    /* Owned array of trainer handles by rank. */
    tdm_actor **trainers;
    /* Number of trainer ranks. */
    uint32_t trainers_count;
    /* Owned array of engine rank handles, engine by engine; NULL elements belong to lost
     * engines. */
    tdm_actor **engines;
    /* Number of engine ranks of all engines, lost ones included. */
    uint32_t engines_count;
    /* Number of ranks of each engine. */
    uint32_t ranks_per_engine;
    /* Number of engines for which the arrays have elements, at least spec->num_engines. */
    uint32_t engines_max;
    /* Which trainer ranks serve which engines. */
    struct tdm__gather_groups gather_groups;
    /* Owned array with the state of each engine; NULL means that all live engines serve. */
    struct tdm__worker_group_engine *engine_states;

    /* Owned liveness monitor of the engine ranks; NULL if they are not monitored. */
    struct tdm__liveness_monitor *monitor;
    /* Owned liveness monitor of the trainer ranks; NULL if they are not monitored. */
    struct tdm__liveness_monitor *trainers_monitor;
    /* Why this node's daemon does not reach the cluster's store; "" if it does. */
    char store_error[160];
    /* Engines of which a rank could not reach the store or another node in the last call to all
     * engines, unless all engines had that failure. */
    struct tdm__engine_set cut_off_engines;
    /* Owned list of engine ranks that were lost since the last update began. The store has not
     * recorded them as dead yet. */
    struct tdm__member *dead;
    /* Number of elements of `dead`. */
    uint32_t dead_count;
    /* What the store has acknowledged; used to restore its record if the store loses it. */
    struct tdm__source_state source_state;
    /* Called on the controller's thread when the state of an engine changes; may be NULL. */
    void (*on_event)(void *arg, uint32_t engine, enum tdm__engine_event event, const char *text);
    /* First argument of `on_event`. */
    void *on_event_arg;

    /* True if updates send slices in the engines' layout; false if they send whole tensors by
     * name. Set by tdm__weight_connect(), like the fields down to `chunk_bytes`. */
    bool by_slices;
    /* True if trainers write directly into the engines' shadow copies; false if they use
     * buckets. */
    bool in_place;
    /* Owned encoded list of the model's tensors, kept for restarted engines. */
    void *manifest;
    /* Size of `manifest` in bytes. */
    size_t manifest_bytes;
    /* Owned checksums of the layouts of the engine ranks; 0 for a rank without a layout. */
    uint64_t *layouts;
    /* Engines of which a rank keeps a tensor in another dtype than the trainers. */
    struct tdm__engine_set converting_engines;

    /* Size in bytes of the largest bucket, for the transfer pairs of remote engines. */
    uint64_t chunk_bytes;
    /* True if all live remote engine ranks are connected to their trainer ranks
     * (transfer_pair.h). */
    bool transfer_pairs_are_open;
};

/* Returns whether engines have GPUs of their own, so that neither side pauses for the other. */
bool tdm__engines_are_remote(const struct tdm__worker_group *workers);

/* How the start of all actors of a job waits. */
struct tdm__worker_group_options {
    /* Borrowed count of Ctrl-C signals; 2 ends every wait. NULL: waits are never interrupted. */
    const volatile sig_atomic_t *interrupts;
    /* How long to wait for names that actors of earlier ranks still have, in milliseconds. */
    int64_t names_ms;
    /* How long to wait for GPUs, also of nodes that have yet to join, in milliseconds. 0: GPUs that
     * the present nodes do not have are an error at once. */
    int64_t joining_ms;
    /* Borrowed files of the job for ranks on other nodes; NULL if there are none. */
    const struct tdm__job_contents *contents;
};

/* Reserves the GPUs, creates all actors and blocks until they are constructed. TDM_E_EXISTS:
 * actors of earlier ranks have kept the names for longer than `options` allows. Errors about GPUs
 * are those of tdm__gpu_places_reserve(). On failure everything is released. */
tdm_status tdm__worker_group_start(struct tdm__worker_group *workers, tdm_runtime *runtime,
                                   const struct tdm__job_spec *spec,
                                   const struct tdm__worker_group_options *options);
/* Creates the actors of a lost engine again, on the GPUs that are reserved for it, and stores their
 * handles in its `other_ranks`, also those that were created before a failure. Does not wait until
 * they are constructed. */
tdm_status tdm__worker_group_create_engine(struct tdm__worker_group *workers, uint32_t engine);
/* Kills all actors, so that their names are free, and blocks until they are gone, at most until
 * `deadline_ms` and TDM__WORKER_KILL_MS more. An actor that cannot be killed in time is left to its
 * daemon, which ends it when this process leaves the cluster. */
void tdm__worker_group_kill(struct tdm__worker_group *workers, int64_t deadline_ms);
/* Releases the handles and all memory. The actors themselves end with the runtime. */
void tdm__worker_group_fini(struct tdm__worker_group *workers);

/* Returns the number of engines that are not lost. */
uint32_t tdm__worker_group_live_engines(const struct tdm__worker_group *workers);
/* Returns the image of the transfer plan for the engine rank with this index in `engines`. */
uint32_t tdm__worker_group_image_of_rank(const struct tdm__worker_group *workers, uint32_t index);
/* Returns the GPU of a trainer rank: the number of its bundle in `group`. */
uint32_t tdm__worker_group_trainer_gpu(const struct tdm__worker_group *workers, uint32_t rank);
/* Returns whether this engine is alive and has weights to generate with. */
bool tdm__worker_group_engine_serves(const struct tdm__worker_group *workers, uint32_t engine);

/* Sends the same call to all of these actors, except those that are NULL, and blocks until all
 * have replied. If several fail, the failure that caused the others is returned, for example the
 * death of an actor. TDM_E_CANCELED after a second interrupt. */
tdm_status tdm__worker_group_call(struct tdm__worker_group *workers, tdm_actor *const *actors,
                                  uint32_t count, const char *method, struct tdm_bytes arguments,
                                  int64_t timeout_ms);
/* Waits for calls that were sent before; elements that are NULL are skipped. Does not release
 * the references. Errors are those of tdm__worker_group_call(). */
tdm_status tdm__worker_group_await(struct tdm__worker_group *workers, tdm_ref *const *refs,
                                   uint32_t count, int64_t timeout_ms);
/* Called regularly while something is awaited. Kills every engine rank that has not replied for the
 * stall timeout, so that calls that wait for it fail. If its node does not reply either, the calls
 * fail when the node counts as unreachable. A silent trainer rank is killed, and the function
 * returns TDM_E_ACTOR_DIED. TDM_E_NODE_LOST if the daemon of this node is silent,
 * TDM_E_CANCELED after a second interrupt. Never waits for a rank that is alive. */
tdm_status tdm__worker_group_check_liveness(struct tdm__worker_group *workers);
/* Notes in `cut_off_engines` what the replies of all engine ranks say, of which `refs` has one for
 * each, NULL if it was not called. tdm__worker_group_call() does so by itself. Keeps the error
 * detail. */
void tdm__worker_group_note_cut_off_engines(struct tdm__worker_group *workers,
                                            tdm_ref *const *refs);
/* Releases all references that are not NULL and sets them to NULL. */
void tdm__worker_group_release_refs(tdm_ref **refs, uint32_t count);

#endif
