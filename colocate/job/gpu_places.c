/* gpu_places.c - reserves the GPUs of a job's trainers and engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/gpu_places.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>

/* Milliseconds: longest time to wait for GPUs that others use, for the store to note a reservation
 * that waits, for the removal of one, and one wait for nodes that join. */
enum { FREE_MS = 60000, RESERVE_MS = 2000, REMOVE_MS = 100, SLICE_MS = 500 };

/* Reserves `count` bundles of one GPU each. If `waits` is true the reservation may also wait for
 * nodes that have yet to join, and this function does not wait. */
static tdm_status reserve_gpus(struct tdm__worker_group *workers, uint32_t count,
                               enum tdm_placement_strategy strategy, bool waits,
                               tdm_placement_group **group_out)
{
    const struct tdm_placement_group_options options = {.strategy = strategy,
                                                        .asynchronous = waits ? 1 : 0};
    struct tdm_bundle *bundles = calloc(count, sizeof(*bundles));
    tdm_status status;

    if (bundles == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u bundles", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        bundles[i].num_gpus = 1;
    }
    status = tdm_placement_group_create_with(workers->runtime, bundles, count, &options,
                                             waits ? RESERVE_MS : FREE_MS, group_out);
    free(bundles);
    return status;
}

/* Waits until the GPUs of a reservation are there. An interrupt ends the wait. */
static tdm_status await_place(const struct tdm__worker_group *workers, tdm_placement_group *group,
                              int64_t deadline_ms)
{
    tdm_status status;
    bool is_first = true;

    while ((status = tdm_placement_group_wait(group, SLICE_MS)) == TDM_E_TIMEOUT &&
           tdm__deadline_remaining_ms(deadline_ms) > 0) {
        if (is_first) {
            tdm__log(TDM__WARN, "job", "waiting for GPUs: %s", tdm_error_detail());
        }
        is_first = false;
        if (workers->interrupts != NULL && *workers->interrupts > 0) {
            return tdm__fail(TDM_E_CANCELED, "interrupted while it waits for GPUs");
        }
    }
    return status;
}

/* How long the reservations of a job wait. */
struct place_waits {
    /* True if they may wait for nodes that have yet to join. */
    bool for_nodes;
    /* Until when they wait in that case, a deadline of runtime/clock.h. */
    int64_t deadline_ms;
};

/* Reserves GPUs as reserve_gpus() does, and waits for them. */
static tdm_status reserve_and_await(struct tdm__worker_group *workers, uint32_t count,
                                    enum tdm_placement_strategy strategy,
                                    const struct place_waits *waits,
                                    tdm_placement_group **group_out)
{
    TDM_TRY(reserve_gpus(workers, count, strategy, waits->for_nodes, group_out));
    return await_place(workers, *group_out, waits->deadline_ms);
}

/* The trainers come first: an engine, which needs fewer GPUs of one node, could take some of the
 * only node that has enough for them. */
tdm_status tdm__gpu_places_reserve(struct tdm__worker_group *workers, int64_t joining_ms)
{
    const struct tdm__job_spec *spec = workers->spec;
    const struct place_waits waits = {joining_ms != 0, tdm__deadline_after(joining_ms)};

    if (!tdm__engines_are_remote(workers)) {
        return reserve_and_await(workers, spec->num_gpus, TDM_PACK, &waits, &workers->group);
    }
    workers->engine_groups = calloc(spec->num_engines, sizeof(tdm_placement_group *));
    if (workers->engine_groups == NULL) {
        return tdm__fail(TDM_E_NOMEM, "places of %u engines", spec->num_engines);
    }
    TDM_TRY(reserve_and_await(workers, spec->trainer_num_ranks, TDM_STRICT_PACK, &waits,
                              &workers->group));
    for (uint32_t i = 0; i < spec->num_engines; i++) {
        TDM_TRY(reserve_and_await(workers, workers->ranks_per_engine, TDM_STRICT_PACK, &waits,
                                  &workers->engine_groups[i]));
    }
    return TDM_OK;
}

tdm_status tdm__gpu_places_replace(struct tdm__worker_group *workers, uint32_t engine,
                                   int64_t timeout_ms)
{
    tdm_placement_group **group = &workers->engine_groups[engine];
    struct tdm_placement_group_info info = {.is_placed = 1};

    if (*group != NULL) {
        tdm_placement_group_describe(*group, &info);
    }
    if (info.is_placed) {
        /* The removal goes on if it takes longer. */
        (void)tdm_placement_group_remove(*group, REMOVE_MS);
        *group = NULL;
        TDM_TRY(reserve_gpus(workers, workers->ranks_per_engine, TDM_STRICT_PACK, true, group));
    }
    return tdm_placement_group_wait(*group, timeout_ms);
}
