/* engine_scaling.c - adds engines to a running job, and ends engines that it no longer needs. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays of the worker group have room for as many engines as a job may have
 * (tdm__engines_limit()), so that pointers into them stay valid. An added engine has the layout of
 * the other engines of its gather group: the trainers' transfer plan stays as it is. All functions
 * run on the controller's thread. */
#include "colocate/job/engine_scaling.h"

#include "colocate/job/engine_failover.h"
#include "colocate/job/gpu_places.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>

/* Returns how many live engines are left if the job has only the first `wanted`. */
static uint32_t count_live_of_first(const struct tdm__worker_group *workers, uint32_t wanted)
{
    uint32_t live = 0;

    for (uint32_t i = 0; i < wanted && i < workers->spec->num_engines; i++) {
        live += workers->engines[(size_t)i * workers->ranks_per_engine] != NULL ? 1 : 0;
    }
    return live;
}

/* Checks that enough engines are left if the job has only `wanted`. */
static tdm_status check_removal(const struct tdm__worker_group *workers, uint32_t wanted)
{
    const struct tdm__job_spec *spec = workers->spec;
    uint32_t needed = spec->num_engines_min > 0 ? spec->num_engines_min : 1;
    uint32_t live = count_live_of_first(workers, wanted);

    if (wanted < needed) {
        return tdm__fail(TDM_E_INVAL,
                         "job %s has %u engines and cannot have %u, because it needs %u "
                         "(rollout.num_engines_min); ask for %u or more",
                         spec->name, spec->num_engines, wanted, needed, needed);
    }
    if (live < needed) {
        return tdm__fail(TDM_E_STATE,
                         "job %s has %u engines and cannot have %u now, because only %u of these "
                         "run and it needs %u; ask again when the others are back",
                         spec->name, spec->num_engines, wanted, live, needed);
    }
    return TDM_OK;
}

tdm_status tdm__engine_scaling_check(const struct tdm__worker_group *workers, uint32_t wanted)
{
    const struct tdm__job_spec *spec = workers->spec;

    if (wanted == spec->num_engines) {
        return TDM_OK;
    }
    if (!tdm__engines_are_remote(workers)) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "job %s has %u engines and cannot have %u, because its engines are on the "
                         "GPUs of its %u trainer ranks; start it with engine.colocate: false",
                         spec->name, spec->num_engines, wanted, spec->trainer_num_ranks);
    }
    if (wanted > workers->engines_max) {
        return tdm__fail(TDM_E_LIMIT,
                         "job %s has %u engines and cannot have %u, because a job has at most %u "
                         "engines of %u ranks; ask for %u or fewer",
                         spec->name, spec->num_engines, wanted, workers->engines_max,
                         workers->ranks_per_engine, workers->engines_max);
    }
    return wanted < spec->num_engines ? check_removal(workers, wanted) : TDM_OK;
}

void tdm__engine_scaling_add(struct tdm__worker_group *workers)
{
    uint32_t engine = workers->spec->num_engines;
    uint32_t group = tdm__gather_groups_of_engine(&workers->gather_groups, engine);
    struct tdm__worker_group_engine *state = &workers->engine_states[engine];

    for (uint32_t i = 0; i < workers->ranks_per_engine; i++) {
        uint32_t index = engine * workers->ranks_per_engine + i;

        workers->layouts[index] = workers->layouts[tdm__worker_group_image_of_rank(workers, index)];
    }
    if (tdm__engine_set_has(&workers->converting_engines, group)) {
        tdm__engine_set_add(&workers->converting_engines, engine);
    } else {
        tdm__engine_set_remove(&workers->converting_engines, engine);
    }
    tdm__recovery_on_added(&state->recovery, tdm__clock_ms());
    state->is_new = true;
    state->trouble[0] = '\0';
    workers->engines_count += workers->ranks_per_engine;
}

tdm_status tdm__engine_scaling_remove(struct tdm__worker_group *workers, const char *why)
{
    uint32_t engine = workers->spec->num_engines - 1;

    if (workers->engines[(size_t)engine * workers->ranks_per_engine] != NULL) {
        TDM_TRY(tdm__failover_retire_engine(workers, engine, why));
    }
    tdm__gpu_places_release(workers, engine);
    workers->engines_count -= workers->ranks_per_engine;
    return TDM_OK;
}

uint32_t tdm__engine_scaling_serving(const struct tdm__worker_group *workers)
{
    uint32_t serving = 0;

    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        serving += tdm__worker_group_engine_serves(workers, i) ? 1 : 0;
    }
    return serving;
}

/* Writes what an engine that is not in use waits for. */
static void write_lack(const struct tdm__worker_group *workers, uint32_t engine, char *text,
                       size_t text_bytes)
{
    const struct tdm__worker_group_engine *state = &workers->engine_states[engine];
    const char *colon = state->trouble[0] == '\0' ? "" : ": ";

    switch (state->recovery.stage) {
    case TDM__RECOVERY_NONE:
        (void)snprintf(text, text_bytes, "engine %u runs and gets its weights with the next update",
                       engine);
        break;
    case TDM__RECOVERY_KILL:
    case TDM__RECOVERY_PLACE:
        (void)snprintf(text, text_bytes, "engine %u waits for a node with %u free GPUs%s%s", engine,
                       workers->ranks_per_engine, colon, state->trouble);
        break;
    case TDM__RECOVERY_CREATE:
    case TDM__RECOVERY_AWAIT:
    case TDM__RECOVERY_CONNECT:
        (void)snprintf(text, text_bytes, "engine %u is being started%s%s", engine, colon,
                       state->trouble);
        break;
    case TDM__RECOVERY_GIVEN_UP:
        (void)snprintf(text, text_bytes, "engine %u could not be started in %d attempts%s%s",
                       engine, TDM__RECOVERY_ATTEMPTS_MAX, colon, state->trouble);
        break;
    }
}

void tdm__engine_scaling_lack(const struct tdm__worker_group *workers, char *text,
                              size_t text_bytes)
{
    uint32_t engine = 0;

    while (engine < workers->spec->num_engines &&
           tdm__worker_group_engine_serves(workers, engine)) {
        engine++;
    }
    text[0] = '\0';
    if (engine < workers->spec->num_engines) {
        write_lack(workers, engine, text, text_bytes);
    }
}
