/* crew.h - the actors of a job, and calls to many of them at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CREW_H
#define TDM_COLOCATE_JOB_CREW_H

#include "colocate/job/job.h"
#include "colocate/weights/standing.h"

#include <tandem/actor.h>

struct tdm__vigil;

struct tdm__crew_engine {
    bool fresh;        /* lives, but serves nothing yet: it came back, and has no weights */
    uint32_t attempts; /* to bring it back, since it served in a rollout */
};

enum tdm__engine_news {
    TDM__ENGINE_LOST,  /* text: why */
    TDM__ENGINE_LIVES, /* again; fresh */
    TDM__ENGINE_SERVES /* again */
};

/* Trainer rank r lies on GPU r; rank t of engine e on GPU e × per_engine + t, unless engines
 * have GPUs of their own. */
struct tdm__crew {
    tdm_runtime *runtime;                    /* borrowed */
    const struct tdm__job_spec *spec;        /* borrowed */
    const volatile sig_atomic_t *interrupts; /* borrowed; 2 ends every wait */
    tdm_placement_group *group;              /* owned, like the rest */
    tdm_placement_group **engine_groups;     /* one an engine, where they are far; else NULL */
    tdm_actor **trainers;
    uint32_t trainers_count;
    tdm_actor **engines; /* engine after engine, rank after rank; NULL: lost (loss.h) */
    uint32_t engines_count;
    uint32_t per_engine;
    struct tdm__crew_engine *about; /* each engine; NULL: they all serve */

    struct tdm__vigil *vigil; /* over the engines' ranks; NULL: nobody looks after them */
    struct tdm__vigil *trainers_vigil; /* the same */
    struct tdm__member *dead;          /* engine ranks lost since the last update began */
    uint32_t dead_count;
    struct tdm__standing standing; /* what the record has answered */
    /* NULL is allowed. */
    void (*on_news)(void *arg, uint32_t engine, enum tdm__engine_news news, const char *text);
    void *on_news_arg;

    /* How weights go, once tdm__weight_update_connect() knows. */
    bool by_parts;  /* in the engines' own layout; else whole tensors, by name */
    bool in_place;  /* written where engines will serve them; else into buckets */
    void *manifest; /* as engines were told it; owned, like the rest */
    size_t manifest_bytes;
    uint64_t *layouts; /* checksums of the engine ranks' layouts */

    /* Where engines are on other GPUs or nodes than the trainers (far.h). */
    uint64_t window_bytes; /* of the largest bucket */
    bool lines_stand;
};

/* Engines have GPUs of their own; nobody pauses for them, or they for others. */
bool tdm__crew_is_far(const struct tdm__crew *crew);

/* Reserves the GPUs, creates all actors, waits until they are constructed. */
tdm_status tdm__crew_start(struct tdm__crew *crew, tdm_runtime *runtime,
                           const struct tdm__job_spec *spec,
                           const volatile sig_atomic_t *interrupts);
/* Creates the ranks of a lost engine anew, on their bundles, and waits until they are
 * constructed.  On failure it is as lost as before. */
tdm_status tdm__crew_create_engine(struct tdm__crew *crew, uint32_t engine);
/* Lets go of the handles; the actors end with the runtime. */
void tdm__crew_fini(struct tdm__crew *crew);

/* Engines that are not lost; does this one answer prompts? */
uint32_t tdm__crew_engines_left(const struct tdm__crew *crew);
bool tdm__crew_serves(const struct tdm__crew *crew, uint32_t engine);

/* The same call to all of these actors, but for those that are NULL; blocks until all have
 * answered.  When some fail, the
 * failure that explains the others is returned: a death rather than what it tore down.
 * TDM_E_CANCELED after a second interrupt. */
tdm_status tdm__crew_call(struct tdm__crew *crew, tdm_actor *const *actors, uint32_t count,
                          const char *method, struct tdm_bytes arguments, int64_t timeout_ms);
/* Waits for calls made already, NULL for none; does not release them. */
tdm_status tdm__crew_await(struct tdm__crew *crew, tdm_ref *const *refs, uint32_t count,
                           int64_t timeout_ms);
void tdm__crew_release(tdm_ref **refs, uint32_t count);

#endif
