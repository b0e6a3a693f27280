/* weight_connect.c - tells engines and trainers what the other side keeps, before the first update.
 */
/* SPDX-License-Identifier: Apache-2.0 */
/* The engines get the list of the trainers' tensors and reply their layouts. The trainers get the
 * layouts of the images and compute the transfer plan, which every update follows. From the layouts
 * also follows how updates are sent, which the worker group keeps: as slices or as whole tensors,
 * and directly into the engines' memory or through buckets. All functions run on the controller's
 * thread and block. */
#include "colocate/job/weight_connect.h"

#include "colocate/job/worker_replies.h"
#include "colocate/weights/checksum.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* Decodes what engine rank `index` replied to "connect". Returns false if it has no layout. */
static bool read_layout(const struct tdm__worker_replies *layouts, uint32_t index,
                        struct tdm__engine_layout_message *layout_out)
{
    return tdm__engine_layout_decode(tdm__worker_replies_value(layouts, index), layout_out) ==
           TDM_OK;
}

/* Getter of a message list: returns the encoded layout of engine rank `index`. */
static void get_layout(const void *arg, uint32_t index, void *item_out)
{
    struct tdm__engine_layout_message layout;

    if (read_layout(arg, index, &layout)) {
        *(struct tdm_bytes *)item_out = layout.layout;
    }
}

/* Getter of a message list: returns the GPU of engine rank `index`. */
static void get_gpu(const void *arg, uint32_t index, void *item_out)
{
    struct tdm__engine_layout_message layout;

    if (read_layout(arg, index, &layout)) {
        *(struct tdm__id *)item_out = layout.gpu;
    }
}

/* Returns the number of images of the trainers' transfer plan. */
static uint32_t images_count(const struct tdm__worker_group *workers)
{
    return tdm__gather_groups_images(&workers->gather_groups);
}

/* Sends the layouts of the images to the trainers, which compute the transfer plan, and returns its
 * cost. The image of each engine rank of the first engines has the rank's number. Sends no layouts
 * if engines get whole tensors. */
static tdm_status connect_trainers(struct tdm__worker_group *workers,
                                   const struct tdm__worker_replies *layouts,
                                   struct tdm__weight_cost *cost_out)
{
    struct tdm__worker_replies costs = {.refs = NULL};
    struct tdm__engine_layout_message first = {.weights_bytes = 0};
    struct tdm__trainer_connect_message message = {
        .in_place = workers->in_place,
        .layouts = {.count = workers->by_slices ? images_count(workers) : 0,
                    .get = get_layout,
                    .arg = layouts},
        .gpus = {.count = workers->in_place ? images_count(workers) : 0,
                 .get = get_gpu,
                 .arg = layouts}};
    struct tdm__update_cost_message cost;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    message.weights_bytes = read_layout(layouts, 0, &first) ? first.weights_bytes : 0;
    status = tdm__trainer_connect_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__worker_replies_collect(workers, workers->trainers, workers->trainers_count,
                                             "connect", tdm_writer_bytes(writer),
                                             (int64_t)workers->spec->update_timeout_ms, &costs);
    }
    if (status == TDM_OK) {
        status = tdm__update_cost_decode(tdm__worker_replies_value(&costs, 0), &cost);
    }
    if (status == TDM_OK) {
        *cost_out = (struct tdm__weight_cost){.same_gpu_bytes = cost.same_gpu_bytes,
                                              .other_gpu_bytes = cost.other_gpu_bytes,
                                              .other_node_bytes = cost.other_node_bytes,
                                              .copies_max = cost.copies_max,
                                              .buckets_count = cost.buckets_count,
                                              .bucket_bytes = cost.bucket_bytes,
                                              .measured_bytes = cost.measured_bytes};
        workers->chunk_bytes = cost_out->bucket_bytes;
    }
    tdm__worker_replies_fini(&costs);
    tdm_writer_destroy(writer);
    return status;
}

/* Returns whether every engine rank replied with a layout. */
static bool all_have_layouts(const struct tdm__worker_replies *layouts)
{
    for (uint32_t i = 0; i < layouts->count; i++) {
        struct tdm__engine_layout_message layout;

        if (!read_layout(layouts, i, &layout)) {
            return false;
        }
    }
    return true;
}

/* Returns the checksum of the layout that engine rank `index` replied; 0 if it has none. */
static uint64_t layout_sum(const struct tdm__worker_replies *layouts, uint32_t index)
{
    struct tdm__engine_layout_message message;

    return !read_layout(layouts, index, &message) || message.layout.size_bytes == 0
               ? 0
               : tdm__checksum_tensor(message.layout.data, message.layout.size_bytes);
}

/* Notes the checksums of the layouts that all engine ranks replied, and which engines keep tensors
 * in another dtype than the trainers. */
static void keep_layout_facts(struct tdm__worker_group *workers,
                              const struct tdm__worker_replies *layouts)
{
    tdm__engine_set_clear(&workers->converting_engines);
    for (uint32_t i = 0; i < workers->engines_count; i++) {
        struct tdm__engine_layout_message message;

        workers->layouts[i] = layout_sum(layouts, i);
        if (read_layout(layouts, i, &message) && message.converts) {
            tdm__engine_set_add(&workers->converting_engines, i / workers->ranks_per_engine);
        }
    }
}

/* Fails if engines of one gather group keep their weights in different layouts. */
static tdm_status check_equal_layouts(const struct tdm__worker_group *workers)
{
    for (uint32_t i = 0; i < workers->engines_count; i++) {
        uint32_t image = tdm__worker_group_image_of_rank(workers, i);

        if (workers->layouts[i] != workers->layouts[image]) {
            return tdm__fail(TDM_E_UNSUPPORTED,
                             "engines have different layouts: engine/%u/%u keeps its weights "
                             "elsewhere than engine/%u/%u, but trainer rank %u sends both the same "
                             "bytes. Let engines %u and %u have equal layouts, or start the job "
                             "with %u trainer ranks",
                             i / workers->ranks_per_engine, i % workers->ranks_per_engine,
                             image / workers->ranks_per_engine, image % workers->ranks_per_engine,
                             tdm__gather_groups_server(&workers->gather_groups, image),
                             i / workers->ranks_per_engine, image / workers->ranks_per_engine,
                             workers->engines_count);
        }
    }
    return TDM_OK;
}

/* Keeps the encoded list of tensors in the worker group, for engines that are restarted later. */
static tdm_status keep_manifest(struct tdm__worker_group *workers, const tdm_value *manifest)
{
    struct tdm_bytes packed;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_value(writer, manifest);
    status = tdm_writer_status(writer);
    packed = tdm_writer_bytes(writer);
    workers->manifest = status == TDM_OK ? malloc(packed.size_bytes) : NULL;
    if (workers->manifest != NULL) {
        memcpy(workers->manifest, packed.data, packed.size_bytes);
        workers->manifest_bytes = packed.size_bytes;
    } else if (status == TDM_OK) {
        status = tdm__fail(TDM_E_NOMEM, "a manifest of %zu bytes", packed.size_bytes);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__weight_connect(struct tdm__worker_group *workers, const tdm_value *manifest,
                               struct tdm__weight_cost *cost_out)
{
    struct tdm__worker_replies layouts = {.refs = NULL};
    tdm_status status;

    memset(cost_out, 0, sizeof(*cost_out));
    TDM_TRY(keep_manifest(workers, manifest));
    status =
        tdm__worker_replies_collect(workers, workers->engines, workers->engines_count, "connect",
                                    (struct tdm_bytes){workers->manifest, workers->manifest_bytes},
                                    (int64_t)workers->spec->update_timeout_ms, &layouts);
    if (status == TDM_OK) {
        workers->by_slices =
            strcmp(workers->spec->update_mode, "names") != 0 && all_have_layouts(&layouts);
        workers->in_place = workers->by_slices &&
                            strcmp(workers->spec->update_mode, "donate") == 0 &&
                            !tdm__engines_are_remote(workers);
        keep_layout_facts(workers, &layouts);
        status = check_equal_layouts(workers);
    }
    if (status == TDM_OK && !workers->by_slices && tdm__engines_are_remote(workers)) {
        status = tdm__fail(TDM_E_UNSUPPORTED, "engines on GPUs of their own get parts of tensors: "
                                              "they need a layout");
    }
    if (status == TDM_OK) {
        status = connect_trainers(workers, &layouts, cost_out);
    }
    tdm__worker_replies_fini(&layouts);
    return status;
}

tdm_status tdm__weight_connect_engine(struct tdm__worker_group *workers, uint32_t engine)
{
    uint32_t first = engine * workers->ranks_per_engine;
    struct tdm__worker_replies layouts = {.refs = NULL};
    tdm_status status = tdm__worker_replies_collect(
        workers, &workers->engines[first], workers->ranks_per_engine, "connect",
        (struct tdm_bytes){workers->manifest, workers->manifest_bytes},
        (int64_t)workers->spec->update_timeout_ms, &layouts);

    workers->transfer_pairs_are_open = false;
    for (uint32_t i = 0; i < workers->ranks_per_engine && status == TDM_OK; i++) {
        if (layout_sum(&layouts, i) != workers->layouts[first + i]) {
            status = tdm__fail(TDM_E_STATE,
                               "engine/%u/%u keeps its weights elsewhere than the one before "
                               "it did, for which trainers have their routes",
                               engine, i);
        }
    }
    tdm__worker_replies_fini(&layouts);
    return status;
}
