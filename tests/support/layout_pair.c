/* layout_pair.c - the transfer plan between two layouts of a model, as jobs compile it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Each side is built from the same parts as in a rank actor: the rank's shards, their places in the
 * region "weights", and the slices that named_layout_slices.c makes of them. */
#include "tests/support/layout_pair.h"

#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 256 }; /* Of every tensor of a rank, in bytes. */

/* ---- both sides ------------------------------------------------------------------------- */

/* Computes what a rank has, and places its tensors one after the other. */
static tdm_status make_rank(const struct layout_pair_side *side, uint32_t rank, bool trains,
                            struct tdm__named_layout *named)
{
    *named = (struct tdm__named_layout){
        .model = side->model, .sharding = *side->sharding, .rank = rank, .trains = trains};
    (void)snprintf(named->where, sizeof(named->where), "layout");
    TDM_TRY(tdm__rank_shards_init(side->model, side->sharding, rank,
                                  trains ? TDM__SHARDS_SOURCE : TDM__SHARDS_DESTINATION,
                                  &named->shards));
    named->tensors = calloc(named->shards.shard_tensors_count + 1u, sizeof(*named->tensors));
    named->names = calloc(named->shards.shard_tensors_count + 1u, sizeof(*named->names));
    if (named->tensors == NULL || named->names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the tensors of a rank");
    }
    for (uint32_t i = 0; i < named->shards.shard_tensors_count; i++) {
        uint64_t bytes = tdm__shard_tensor_bytes(&named->shards.shard_tensors[i]);

        named->tensors[i].offset_bytes = named->size_bytes;
        named->size_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return TDM_OK;
}

static tdm_status make_side(const struct layout_pair_options *options, bool trains,
                            struct layout_pair_side *side)
{
    struct tdm__model_options model = {.mtp = options->mtp};

    side->sharding = trains ? options->from : options->to;
    model.scales = side->sharding->dtype == TDM_F8_E4M3;
    TDM_TRY(tdm__sharding_validate(side->sharding));
    TDM_TRY(tdm__model_create(options->config, &model, &side->model));
    side->ranks = calloc(side->sharding->ranks_count, sizeof(*side->ranks));
    side->layouts = calloc(side->sharding->ranks_count, sizeof(*side->layouts));
    if (side->ranks == NULL || side->layouts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u ranks", side->sharding->ranks_count);
    }
    for (uint32_t i = 0; i < side->sharding->ranks_count; i++) {
        TDM_TRY(make_rank(side, i, trains, &side->ranks[i]));
    }
    return TDM_OK;
}

static void drop_side(struct layout_pair_side *side)
{
    for (uint32_t i = 0; side->ranks != NULL && i < side->sharding->ranks_count; i++) {
        side->ranks[i].model = NULL; /* It belongs to the side. */
        tdm__rank_shards_fini(&side->ranks[i].shards);
        free(side->ranks[i].tensors);
        free(side->ranks[i].names);
        free(side->ranks[i].model_tensors);
        free(side->ranks[i].model_names);
        free(side->ranks[i].slices);
    }
    free(side->ranks);
    free(side->layouts);
    tdm__model_destroy(side->model);
}

static tdm_status make_slices(struct layout_pair *pair)
{
    const struct tdm_tensor_info *tensors;
    uint32_t count = 0;

    for (uint32_t i = 0; i < pair->from.sharding->ranks_count; i++) {
        TDM_TRY(tdm__named_layout_build_trainer(&pair->from.ranks[i], NULL, &tensors, &count,
                                                &pair->from.layouts[i]));
    }
    TDM_TRY(tdm__manifest_create(tensors, count, &pair->manifest));
    for (uint32_t i = 0; i < pair->to.sharding->ranks_count; i++) {
        TDM_TRY(tdm__named_layout_build_engine(&pair->to.ranks[i], NULL, pair->manifest,
                                               &pair->to.layouts[i]));
    }
    return TDM_OK;
}

static tdm_status make_pair(const struct layout_pair_options *options, struct layout_pair *pair)
{
    struct tdm__transfer_plan_options plan = {.from_locations = options->from_locations,
                                              .to_locations = options->to_locations,
                                              .chunk_bytes = options->chunk_bytes};

    TDM_TRY(make_side(options, true, &pair->from));
    TDM_TRY(make_side(options, false, &pair->to));
    TDM_TRY(make_slices(pair));
    plan.manifest = pair->manifest;
    plan.from = pair->from.layouts;
    plan.from_count = pair->from.sharding->ranks_count;
    plan.to = pair->to.layouts;
    plan.to_count = pair->to.sharding->ranks_count;
    for (uint32_t i = 0; i < plan.to_count; i++) {
        uint64_t bytes = pair->to.ranks[i].size_bytes;

        plan.image_bytes = bytes > plan.image_bytes ? bytes : plan.image_bytes;
    }
    return tdm__transfer_plan_create(&plan, &pair->plan);
}

tdm_status layout_pair_plan(const struct layout_pair_options *options, struct layout_pair *pair)
{
    tdm_status status;

    *pair = (struct layout_pair){.plan = NULL};
    status = make_pair(options, pair);
    if (status != TDM_OK) {
        layout_pair_drop(pair);
    }
    return status;
}

void layout_pair_drop(struct layout_pair *pair)
{
    tdm__transfer_plan_destroy(pair->plan);
    tdm__manifest_destroy(pair->manifest);
    drop_side(&pair->from);
    drop_side(&pair->to);
}
