/* gpu_places.c - reserves the GPUs of a job's trainers and engines. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A reservation is a placement group with one bundle for each GPU. Colocated engines and their
 * trainers have one for all; engines with GPUs of their own have one each, beside that of the
 * trainers, so that a lost engine is placed again, and an added or ended one comes and goes,
 * without the others. The worker group owns the reservations. All functions run on the controller's
 * thread.
 */
#include "colocate/job/gpu_places.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/state.h>

/* Milliseconds: longest time to wait for GPUs that others use, for the store to note a reservation
 * that waits, for the removal of one, and one wait for nodes that join. */
enum { FREE_MS = 60000, RESERVE_MS = 2000, REMOVE_MS = 100, SLICE_MS = 500 };
/* Longest time in milliseconds to ask for the nodes, for an error message. */
enum { LIST_MS = 2000 };

/* Number of GPUs to reserve, and how they are distributed over the nodes. */
struct places {
    uint32_t count;                       /* Number of GPUs. */
    uint32_t together;                    /* Number of consecutive GPUs on one node. */
    enum tdm_placement_strategy strategy; /* How the nodes are chosen. */
};

/* Reserves one bundle for each GPU. If `waits` is true the reservation may also wait for nodes that
 * have yet to join, and this function does not wait. */
static tdm_status reserve_gpus(struct tdm__worker_group *workers, const struct places *places,
                               bool waits, tdm_placement_group **group_out)
{
    const struct tdm_placement_group_options options = {.strategy = places->strategy,
                                                        .asynchronous = waits ? 1 : 0,
                                                        .bundles_together = places->together};
    uint32_t count = places->count;
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
static tdm_status reserve_and_await(struct tdm__worker_group *workers, const struct places *places,
                                    const struct place_waits *waits,
                                    tdm_placement_group **group_out)
{
    TDM_TRY(reserve_gpus(workers, places, waits->for_nodes, group_out));
    return await_place(workers, *group_out, waits->deadline_ms);
}

/* Returns how many sets of `each` GPUs the nodes offer, where no set is divided among nodes. */
static uint32_t count_sets(const struct tdm_node_state *nodes, uint32_t nodes_count, uint32_t each)
{
    uint32_t sets = 0;

    for (uint32_t i = 0; i < nodes_count; i++) {
        for (uint32_t k = 0; k < nodes[i].amounts_count; k++) {
            if (strcmp(nodes[i].amounts[k].name, "GPU") == 0) {
                sets += (uint32_t)nodes[i].amounts[k].total / each;
            }
        }
    }
    return sets;
}

/* Explains why the nodes can never hold the engines of a colocated job, of which `together` GPUs
 * are on one node: names the first engine for which no node has enough GPUs left. Returns `status`.
 */
static tdm_status explain_lack(const struct tdm__worker_group *workers, uint32_t together,
                               tdm_status status)
{
    uint32_t engines_each = together / workers->ranks_per_engine;
    char detail[TDM__ERROR_DETAIL_BYTES];
    const struct tdm_node_state *nodes;
    uint32_t nodes_count;
    uint32_t sets;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    if (tdm_list_nodes(workers->runtime, LIST_MS, &nodes, &nodes_count) != TDM_OK) {
        return tdm__fail(status, "%s", detail);
    }
    sets = count_sets(nodes, nodes_count, together) * engines_each;
    tdm_list_free(nodes);
    if (sets >= workers->spec->num_engines) {
        return tdm__fail(status, "%s",
                         detail); /* A node has joined since, or it is not the GPUs. */
    }
    return tdm__fail(
        status,
        "engine %u needs %u GPUs of one node for its ranks%s and their trainers, but the nodes "
        "have "
        "such GPUs for %u of %u engines. Add a node with %u GPUs, or lower engine.num_engines or "
        "engine.rollout_num_gpus_per_engine: %s",
        sets, together,
        engines_each == 1 ? "" : ", for those of the engines that the same trainer rank serves,",
        sets, workers->spec->num_engines, together, detail);
}

/* Reserves the GPUs that trainers and engines share, in one placement group: the GPUs of an engine,
 * or of the engines that one trainer rank serves, are on one node, and engines are numbered node by
 * node. */
static tdm_status reserve_shared(struct tdm__worker_group *workers, const struct place_waits *waits)
{
    uint32_t together = tdm__gather_groups_images_each(&workers->gather_groups);
    const struct places places = {workers->spec->num_gpus, together, TDM_PACK};
    tdm_status status = reserve_and_await(workers, &places, waits, &workers->group);

    return status == TDM_E_NO_RESOURCES ? explain_lack(workers, together, status) : status;
}

/* The trainers come first: an engine, which needs fewer GPUs of one node, could take some of the
 * only node that has enough for them. */
tdm_status tdm__gpu_places_reserve(struct tdm__worker_group *workers, int64_t joining_ms)
{
    const struct tdm__job_spec *spec = workers->spec;
    const struct place_waits waits = {joining_ms != 0, tdm__deadline_after(joining_ms)};
    const struct places trainers = {spec->trainer_num_ranks, 1, TDM_STRICT_PACK};
    const struct places engine = {workers->ranks_per_engine, 1, TDM_STRICT_PACK};

    if (!tdm__engines_are_remote(workers)) {
        return reserve_shared(workers, &waits);
    }
    workers->engine_groups = calloc(workers->engines_max, sizeof(tdm_placement_group *));
    if (workers->engine_groups == NULL) {
        return tdm__fail(TDM_E_NOMEM, "places of %u engines", workers->engines_max);
    }
    TDM_TRY(reserve_and_await(workers, &trainers, &waits, &workers->group));
    for (uint32_t i = 0; i < spec->num_engines; i++) {
        TDM_TRY(reserve_and_await(workers, &engine, &waits, &workers->engine_groups[i]));
    }
    return TDM_OK;
}

tdm_status tdm__gpu_places_meeting_node(const struct tdm__worker_group *workers,
                                        char node_id_out[TDM__ID_TEXT_BYTES], bool *is_one_node_out)
{
    struct tdm_bundle_placement first;

    TDM_TRY(tdm_placement_group_locate_bundle(workers->group, 0, &first));
    (void)snprintf(node_id_out, TDM__ID_TEXT_BYTES, "%s", first.node_id);
    *is_one_node_out = true;
    for (uint32_t i = 1; i < workers->spec->trainer_num_ranks; i++) {
        struct tdm_bundle_placement place;

        TDM_TRY(tdm_placement_group_locate_bundle(
            workers->group, tdm__worker_group_trainer_gpu(workers, i), &place));
        *is_one_node_out = *is_one_node_out && strcmp(place.node_id, first.node_id) == 0;
    }
    return TDM_OK;
}

void tdm__gpu_places_release(struct tdm__worker_group *workers, uint32_t engine)
{
    if (workers->engine_groups[engine] != NULL) {
        /* The removal goes on if it takes longer. */
        (void)tdm_placement_group_remove(workers->engine_groups[engine], REMOVE_MS);
        workers->engine_groups[engine] = NULL;
    }
}

tdm_status tdm__gpu_places_replace(struct tdm__worker_group *workers, uint32_t engine,
                                   int64_t timeout_ms)
{
    tdm_placement_group **group = &workers->engine_groups[engine];
    const struct places places = {workers->ranks_per_engine, 1, TDM_STRICT_PACK};
    struct tdm_placement_group_info info = {.is_placed = 1};

    if (*group != NULL) {
        tdm_placement_group_describe(*group, &info);
    }
    if (info.is_placed) {
        tdm__gpu_places_release(workers, engine);
        TDM_TRY(reserve_gpus(workers, &places, true, group));
    }
    return tdm_placement_group_wait(*group, timeout_ms);
}
