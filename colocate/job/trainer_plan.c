/* trainer_plan.c - the transfer plan of a trainer rank, and the writer that executes it. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every trainer rank computes the same plan from the same layouts. If it copies between
 * nodes, it is computed a second time with an exchange (node_exchange.h). The buffers of the
 * exchange are taken from the size of the bucket. */
#include "colocate/job/trainer_plan.h"

#include "colocate/job/trainer_agreement.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>

/* Number of buffers of an exchange between nodes: one for sending, one for receiving. */
enum { EXCHANGE_BUFFERS = 2 };

/* Returns the number of images of the transfer plan. */
static uint32_t images_count(const struct trainer *trainer)
{
    return tdm__gather_groups_images(&trainer->rank.groups);
}

/* Returns the size in bytes of each part of a bucket, which has as many parts as a trainer rank
 * serves images at most. The parts share what is left of the bucket by the two buffers of exchanges
 * between nodes, which have `exchange_bytes` each. */
static uint64_t bucket_part_bytes(const struct trainer *trainer, uint64_t exchange_bytes)
{
    return (trainer->rank.bucket_bytes - EXCHANGE_BUFFERS * exchange_bytes) /
           tdm__gather_groups_images_max(&trainer->rank.groups);
}

/* Computes the transfer plan from the layouts of trainers and engines. `image_bytes` is the size of
 * an engine rank's weights. `exchange_bytes` is the size of each of the two buffers of an exchange
 * between nodes, or 0 without an exchange. */
static tdm_status compile_slices_plan(struct trainer *trainer, uint64_t image_bytes, bool in_place,
                                      uint64_t exchange_bytes)
{
    uint64_t halves_bytes = bucket_part_bytes(trainer, exchange_bytes);
    const struct tdm__transfer_plan_options transfer_plan = {
        .manifest = trainer->manifest,
        .from = trainer->layouts,
        .from_count = trainer->rank.context.ranks_count,
        .to = trainer->engine_layouts,
        .to_count = images_count(trainer),
        .from_locations = trainer->locations,
        .to_locations = trainer->image_places.locations,
        .image_bytes = image_bytes,
        .chunk_bytes = in_place ? 0 : halves_bytes / TDM__BUCKET_HALVES,
        .exchange_bytes = exchange_bytes};

    return tdm__transfer_plan_create(&transfer_plan, &trainer->transfer_plan);
}

/* Computes the transfer plan to engines that get whole tensors. All engine ranks want the same, so
 * that those which a trainer rank serves share its bucket. */
static tdm_status compile_whole_plan(struct trainer *trainer, uint64_t exchange_bytes)
{
    uint64_t bucket_bytes = trainer->rank.bucket_bytes - EXCHANGE_BUFFERS * exchange_bytes;
    uint32_t ranks_count = trainer->rank.context.ranks_count;

    tdm__whole_tensors_destroy(trainer->whole_tensors);
    trainer->whole_tensors = NULL;
    TDM_TRY(tdm__whole_tensors_create(trainer->manifest, bucket_bytes, images_count(trainer),
                                      &trainer->whole_tensors));
    return tdm__whole_tensors_compile_plan(trainer->whole_tensors, trainer->layouts, ranks_count,
                                           trainer->locations, trainer->image_places.locations,
                                           exchange_bytes, &trainer->transfer_plan);
}

/* Computes the transfer plan for the mode of the update. */
static tdm_status compile_plan(struct trainer *trainer,
                               const struct tdm__trainer_connect_message *message,
                               uint64_t exchange_bytes)
{
    return message->layouts.count == 0 ? compile_whole_plan(trainer, exchange_bytes)
                                       : compile_slices_plan(trainer, message->weights_bytes,
                                                             message->in_place, exchange_bytes);
}

/* Computes the transfer plan again, with an exchange, if it copies between nodes: trainer ranks
 * write into memory of their own node only. The buffers of the exchange get half of
 * update_weight_buffer_size, or all of it if the ranks write in place and have no bucket. So the
 * exchange does not change the memory budget. */
static tdm_status add_exchange(struct trainer *trainer,
                               const struct tdm__trainer_connect_message *message)
{
    bool has_bucket = message->layouts.count == 0 || !message->in_place;
    uint64_t bytes = trainer->rank.bucket_bytes / (has_bucket ? 2 : 1) / EXCHANGE_BUFFERS;

    if (trainer->transfer_plan->cost.bytes_by_locality[TDM__LOCALITY_OTHER_NODE] == 0) {
        return TDM_OK;
    }
    tdm__transfer_plan_destroy(trainer->transfer_plan);
    trainer->transfer_plan = NULL;
    return compile_plan(trainer, message, bytes);
}

/* Joins the group through which the ranks exchange what crosses between nodes, unless this rank has
 * joined it or the plan has no exchange, which all ranks know. On CUDA NCCL moves its data. */
static tdm_status join_exchange_group(struct trainer *trainer)
{
    char name[TDM__RANK_NAME_BYTES + 32];
    char node[TDM__ID_TEXT_BYTES];
    const struct tdm_collective_options options = {
        .name = name,
        .rank = trainer->rank.context.rank,
        .ranks_count = trainer->rank.context.ranks_count,
        .timeout_ms = trainer->rank.timeout_ms,
        .node_id = tdm__id_text(&trainer->locations[0].node, node),
        .on_gpu = 1};

    if (trainer->transfer_plan->exchange == NULL || trainer->exchange != NULL) {
        return TDM_OK;
    }
    (void)snprintf(name, sizeof(name), "%s/exchange", trainer->rank.group_name);
    return tdm_collective_join(trainer->rank.runtime, &options, &trainer->exchange);
}

/* Creates the writer that executes the transfer plan for this rank. */
static tdm_status create_weight_writer(struct trainer *trainer, bool in_place)
{
    const struct tdm__weight_writer_options weight_writer = {
        .transfer_plan = trainer->transfer_plan,
        .rank = trainer->rank.context.rank,
        .regions = trainer->rank.regions,
        .group = trainer->rank.group,
        .node = trainer->rank.location.node,
        .in_place = in_place,
        .has_one_half = trainer->whole_tensors != NULL,
        .bucket_parts = trainer->whole_tensors != NULL ? NULL : trainer->image_places.bucket_parts};

    return tdm__weight_writer_create(&weight_writer, &trainer->weight_writer);
}

/* Decodes the layouts of the images. */
static tdm_status read_engine_layouts(struct trainer *trainer,
                                      const struct tdm__message_list *layouts)
{
    uint32_t count = images_count(trainer);

    if (layouts->count != count) {
        return tdm__fail(TDM_E_PROTOCOL, "layouts of %u engine ranks for %u images", layouts->count,
                         count);
    }
    trainer->engine_layouts = calloc(count, sizeof(*trainer->engine_layouts));
    if (trainer->engine_layouts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "layouts of %u ranks", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct tdm_bytes layout;

        tdm__message_list_read(layouts, i, &layout, sizeof(layout));
        TDM_TRY(tdm__layout_decode(layout, &trainer->engine_layouts[i]));
    }
    return TDM_OK;
}

tdm_status tdm__trainer_plan_create(struct trainer *trainer,
                                    const struct tdm__trainer_connect_message *message)
{
    if (message->layouts.count > 0) {
        TDM_TRY(read_engine_layouts(trainer, &message->layouts));
    }
    TDM_TRY(tdm__image_places_init(&trainer->rank.groups, trainer->locations, &message->gpus,
                                   &trainer->image_places));
    TDM_TRY(compile_plan(trainer, message, 0));
    TDM_TRY(add_exchange(trainer, message));
    TDM_TRY(create_weight_writer(trainer, message->layouts.count > 0 && message->in_place));
    TDM_TRY(tdm__trainer_agreement_reserve(trainer));
    return join_exchange_group(trainer);
}

void tdm__trainer_plan_destroy(struct trainer *trainer)
{
    tdm__trainer_agreement_fini(&trainer->agreement);
    tdm__weight_writer_destroy(trainer->weight_writer);
    tdm__transfer_plan_destroy(trainer->transfer_plan);
    tdm__whole_tensors_destroy(trainer->whole_tensors);
    tdm__image_places_fini(&trainer->image_places);
    for (uint32_t i = 0; trainer->engine_layouts != NULL && i < images_count(trainer); i++) {
        tdm__layout_fini(&trainer->engine_layouts[i]);
    }
    free(trainer->engine_layouts);
    trainer->weight_writer = NULL;
    trainer->transfer_plan = NULL;
    trainer->whole_tensors = NULL;
    trainer->engine_layouts = NULL;
}
