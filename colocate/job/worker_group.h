/* worker_group.h - the actors of a job, and calls to many of them at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_WORKER_GROUP_H
#define TDM_COLOCATE_JOB_WORKER_GROUP_H

#include "colocate/job/job.h"
#include "colocate/weights/source_state.h"

#include <tandem/actor.h>

struct tdm__liveness_monitor;

struct tdm__worker_group_engine {
    bool awaits_weights;       /* lives, but serves nothing yet: it came back, and has no weights */
    uint32_t restart_attempts; /* to bring it back, since it served in a rollout */
};

enum tdm__engine_event {
    TDM__ENGINE_EVENT_LOST,      /* text: why */
    TDM__ENGINE_EVENT_RESTARTED, /* again; fresh */
    TDM__ENGINE_EVENT_SERVING    /* again */
};

/* Trainer rank r lies on GPU r; rank t of engine e on GPU e × ranks_per_engine + t, unless engines
 * have GPUs of their own. */
struct tdm__worker_group {
    tdm_runtime *runtime;                    /* borrowed */
    const struct tdm__job_spec *spec;        /* borrowed */
    const volatile sig_atomic_t *interrupts; /* borrowed; 2 ends every wait */
    tdm_placement_group *group;              /* owned, like the rest */
    tdm_placement_group **engine_groups;     /* one an engine, where they are far; else NULL */
    tdm_actor **trainers;
    uint32_t trainers_count;
    tdm_actor **engines; /* engine after engine, rank after rank; NULL: lost (engine_failover.h) */
    uint32_t engines_count;
    uint32_t ranks_per_engine;
    struct tdm__worker_group_engine *engine_states; /* each engine; NULL: they all serve */

    struct tdm__liveness_monitor
        *monitor; /* over the engines' ranks; NULL: nobody looks after them */
    struct tdm__liveness_monitor *trainers_monitor; /* the same */
    struct tdm__member *dead; /* engine ranks lost since the last update began */
    uint32_t dead_count;
    struct tdm__source_state source_state; /* what the record has answered */
    /* NULL is allowed. */
    void (*on_event)(void *arg, uint32_t engine, enum tdm__engine_event event, const char *text);
    void *on_event_arg;

    /* How weights go, once tdm__weight_update_connect() knows. */
    bool by_slices; /* in the engines' own layout; else whole tensors, by name */
    bool in_place;  /* written where engines will serve them; else into buckets */
    void *manifest; /* as engines were told it; owned, like the rest */
    size_t manifest_bytes;
    uint64_t *layouts; /* checksums of the engine ranks' layouts */

    /* Where engines are on other GPUs or nodes than the trainers (transfer_pair.h). */
    uint64_t chunk_bytes; /* of the largest bucket */
    bool transfer_pairs_are_open;
};

/* Engines have GPUs of their own; nobody pauses for them, or they for others. */
bool tdm__engines_are_remote(const struct tdm__worker_group *workers);

/* Reserves the GPUs, creates all actors, waits until they are constructed. */
tdm_status tdm__worker_group_start(struct tdm__worker_group *workers, tdm_runtime *runtime,
                                   const struct tdm__job_spec *spec,
                                   const volatile sig_atomic_t *interrupts);
/* Creates the ranks of a lost engine anew, on their bundles, and waits until they are
 * constructed.  On failure it is as lost as before. */
tdm_status tdm__worker_group_create_engine(struct tdm__worker_group *workers, uint32_t engine);
/* Lets go of the handles; the actors end with the runtime. */
void tdm__worker_group_fini(struct tdm__worker_group *workers);

/* Engines that are not lost; does this one answer prompts? */
uint32_t tdm__worker_group_live_engines(const struct tdm__worker_group *workers);
bool tdm__worker_group_engine_serves(const struct tdm__worker_group *workers, uint32_t engine);

/* The same call to all of these actors, but for those that are NULL; blocks until all have
 * answered.  When some fail, the
 * failure that explains the others is returned: a death rather than what it tore down.
 * TDM_E_CANCELED after a second interrupt. */
tdm_status tdm__worker_group_call(struct tdm__worker_group *workers, tdm_actor *const *actors,
                                  uint32_t count, const char *method, struct tdm_bytes arguments,
                                  int64_t timeout_ms);
/* Waits for calls made already, NULL for none; does not release them. */
tdm_status tdm__worker_group_await(struct tdm__worker_group *workers, tdm_ref *const *refs,
                                   uint32_t count, int64_t timeout_ms);
void tdm__worker_group_release_refs(tdm_ref **refs, uint32_t count);

#endif
