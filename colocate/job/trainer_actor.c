/* trainer_actor.c - the class of trainer ranks: a library's table, and its memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/samples.h"
#include "colocate/job/trainer.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------- */

static tdm_status open_library(struct trainer *trainer)
{
    struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX];
    uint32_t count = 0;

    trainer->ops = trainer->rank.library.jobs->trainer;
    TDM_TRY(trainer->ops->open(&trainer->rank.context, &trainer->rank.state));
    TDM_TRY(trainer->ops->regions(trainer->rank.state, specs, &count));
    return tdm__rank_declare(&trainer->rank, specs, count);
}

static tdm_status join_gather_group(struct trainer *trainer)
{
    uint32_t per_engine = trainer->rank.per_engine;
    uint32_t rank = trainer->rank.context.rank;
    char name[32];
    struct tdm_group_options options = {.name = name,
                                        .rank = rank % per_engine,
                                        .ranks_count = per_engine,
                                        .timeout_ms = trainer->rank.timeout_ms};

    (void)snprintf(name, sizeof(name), "gather/%u", rank / per_engine);
    return tdm_group_join(trainer->rank.runtime, &options, &trainer->gather);
}

static tdm_status build(tdm_call *call, struct trainer *trainer)
{
    TDM_TRY(tdm__rank_open(&trainer->rank, call, "trainer"));
    TDM_TRY(join_gather_group(trainer));
    return open_library(trainer);
}

static void destruct(void *self)
{
    struct trainer *trainer = self;

    tdm__trainer_disconnect(trainer);
    tdm__sender_destroy(trainer->sender);
    for (uint32_t i = 0; trainer->layouts != NULL && i < trainer->rank.context.ranks_count;
         i++) {
        if (i != trainer->rank.context.rank) {
            tdm__layout_fini(&trainer->layouts[i]);
        }
    }
    free(trainer->layouts);
    free(trainer->lists);
    tdm__manifest_destroy(trainer->manifest);
    tdm_actor_destroy(trainer->engine);
    tdm_group_leave(trainer->gather);
    tdm__line_close(&trainer->line);
    tdm__rank_close(&trainer->rank, trainer->ops == NULL ? NULL : trainer->ops->close);
}

/* What was opened before a failure is closed again: the other ranks learn of it at once. */
static tdm_status construct(tdm_call *call, void *self)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status status = build(call, self);

    if (status == TDM_OK) {
        return TDM_OK;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    destruct(self);
    return tdm__fail(status, "%s", detail);
}

/* ---- who holds what --------------------------------------------------------------------- */

/* Every rank's layout to every rank, as packed values of one size: the largest. */
static tdm_status gather_layouts(struct trainer *trainer, struct tdm_bytes own, char **all_out,
                                 size_t *each_out)
{
    double largest = (double)own.size_bytes;
    size_t each;
    char *all;
    tdm_status status;

    TDM_TRY(tdm_group_all_reduce_double(trainer->rank.group, &largest, 1, TDM_MAX));
    each = (size_t)largest + sizeof(uint64_t);
    all = calloc(trainer->rank.context.ranks_count + 1, each);
    if (all == NULL) {
        return tdm__fail(TDM_E_NOMEM, "layouts of %zu bytes each", each);
    }
    memcpy(all, &(uint64_t){own.size_bytes}, sizeof(uint64_t)); /* at first in place 0 */
    memcpy(all + sizeof(uint64_t), own.data, own.size_bytes);
    memmove(all + each * trainer->rank.context.ranks_count, all, each);
    status = tdm_group_all_gather(trainer->rank.group,
                                  all + each * trainer->rank.context.ranks_count, each, all);
    if (status != TDM_OK) {
        free(all);
        return status;
    }
    *all_out = all;
    *each_out = each;
    return TDM_OK;
}

static tdm_status decode_layouts(struct trainer *trainer, const char *all, size_t each)
{
    for (uint32_t i = 0; i < trainer->rank.context.ranks_count; i++) {
        const char *one = all + i * each;
        uint64_t size_bytes;

        memcpy(&size_bytes, one, sizeof(size_bytes));
        if (size_bytes > each - sizeof(size_bytes)) {
            return tdm__fail(TDM_E_PROTOCOL, "trainer rank %u: a layout of %llu bytes in %zu",
                             i, (unsigned long long)size_bytes, each);
        }
        if (i != trainer->rank.context.rank) {
            TDM_TRY(tdm__layout_decode((struct tdm_bytes){one + sizeof(size_bytes), size_bytes},
                                       &trainer->layouts[i]));
            TDM_TRY(tdm__wrap(tdm__layout_check(&trainer->layouts[i], trainer->manifest),
                              "trainer rank %u", i));
        }
    }
    return TDM_OK;
}

/* Slices name tensors by their index, which means the same everywhere or garbage. */
static tdm_status check_manifests(struct trainer *trainer)
{
    uint32_t ranks_count = trainer->rank.context.ranks_count;
    struct tdm__hash *all = calloc(ranks_count, sizeof(*all));
    tdm_status status;

    if (all == NULL) {
        return tdm__fail(TDM_E_NOMEM, "manifests of %u ranks", ranks_count);
    }
    status =
        tdm_group_all_gather(trainer->rank.group, &trainer->manifest->hash, sizeof(*all), all);
    for (uint32_t i = 1; i < ranks_count && status == TDM_OK; i++) {
        if (!tdm__hash_equal(&all[i], &all[0])) {
            status = tdm__fail(TDM_E_INVAL, "trainer ranks 0 and %u list other tensors", i);
        }
    }
    free(all);
    return status;
}

static tdm_status exchange_layouts(struct trainer *trainer)
{
    tdm_writer *writer;
    char *all;
    size_t each;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__layout_encode(&trainer->layouts[trainer->rank.context.rank], NULL, writer);
    if (status == TDM_OK) {
        status = gather_layouts(trainer, tdm_writer_bytes(writer), &all, &each);
    }
    tdm_writer_destroy(writer);
    TDM_TRY(status);
    status = decode_layouts(trainer, all, each);
    free(all);
    return status;
}

/* The library's, or of the layout that the job file names. */
static tdm_status ask_layout(struct trainer *trainer, const struct tdm_tensor_info **tensors,
                             uint32_t *tensors_count, struct tdm__layout *own)
{
    tdm_region *weights;

    if (trainer->rank.named == NULL) {
        return trainer->ops->layout(trainer->rank.state, tensors, tensors_count, &own->slices,
                                    &own->slices_count);
    }
    TDM_TRY(tdm__rank_region(&trainer->rank, "weights", &weights));
    return tdm__named_trainer_layout(trainer->rank.named, tdm_region_address(weights), tensors,
                                     tensors_count, own);
}

static tdm_status learn_layout(struct trainer *trainer)
{
    const struct tdm_tensor_info *tensors;
    uint32_t tensors_count;
    struct tdm__layout own;

    TDM_TRY(ask_layout(trainer, &tensors, &tensors_count, &own));
    TDM_TRY(tdm__manifest_create(tensors, tensors_count, &trainer->manifest));
    TDM_TRY(tdm__layout_check(&own, trainer->manifest));
    trainer->layouts = calloc(trainer->rank.context.ranks_count, sizeof(own));
    if (trainer->layouts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "layouts of %u ranks", trainer->rank.context.ranks_count);
    }
    trainer->layouts[trainer->rank.context.rank] = own;
    TDM_TRY(check_manifests(trainer));
    return exchange_layouts(trainer);
}

static tdm_status make_sender(struct trainer *trainer)
{
    struct tdm__sender_options options = {.manifest = trainer->manifest,
                                          .layouts = trainer->layouts,
                                          .rank = trainer->rank.context.rank,
                                          .ranks_count = trainer->rank.context.ranks_count,
                                          .regions = trainer->rank.regions,
                                          .group = trainer->rank.group,
                                          .place = trainer->rank.place,
                                          .bucket_bytes = trainer->rank.bucket_bytes};

    return tdm__sender_create(&options, &trainer->sender);
}

/* ---- methods: life ---------------------------------------------------------------------- */

/* → the manifest, packed */
static tdm_status start(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    void *addresses[TDM_RANK_REGIONS_MAX];
    tdm_writer *writer;
    struct tdm_bytes packed;
    tdm_status status;

    TDM_TRY(tdm__rank_resume(&trainer->rank, NULL));
    tdm__rank_addresses(&trainer->rank, addresses);
    TDM_TRY(trainer->ops->start(trainer->rank.state, addresses));
    TDM_TRY(learn_layout(trainer));
    TDM_TRY(make_sender(trainer));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__manifest_encode(trainer->manifest, writer);
    if (status == TDM_OK) {
        packed = tdm_writer_bytes(writer);
        status = tdm_call_reply(call, "b", packed.data, packed.size_bytes);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Weights that lie on the GPU may be changed: what is known of the last update's is void. */
static void forget_sums(struct trainer *trainer)
{
    if (trainer->mover != NULL) {
        tdm__mover_forget(trainer->mover);
    }
}

static tdm_status resume(tdm_call *call, void *self)
{
    (void)call;
    forget_sums(self);
    return tdm__rank_resume(self, NULL);
}

static tdm_status pause_all(tdm_call *call, void *self)
{
    (void)call;
    return tdm__rank_pause(self);
}

static tdm_status trace(tdm_call *call, void *self)
{
    return tdm__rank_method_trace(self, call);
}

/* (supervised, step, steps_count, [sample …]) → metrics */
static tdm_status step(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm_metrics metrics = {.count = 0};
    int64_t begin_ns = tdm__clock_ns();
    struct tdm_batch batch;
    tdm_writer *writer;
    tdm_status status;

    forget_sums(trainer);
    TDM_TRY(tdm__batch_read(tdm_call_arguments(call), &batch));
    status = trainer->ops->step(trainer->rank.state, &batch, &metrics);
    tdm__batch_fini(&batch);
    TDM_TRY(status);
    tdm__spans_add(&trainer->rank.spans, "step", begin_ns, 0, 0);
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__metrics_write(writer, &metrics);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status save(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    const char *directory;

    TDM_TRY(tdm_call_unpack(call, "s", &directory));
    return trainer->ops->save(trainer->rank.state, directory);
}

static tdm_status load(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    const char *directory;

    TDM_TRY(tdm_call_unpack(call, "s", &directory));
    forget_sums(trainer);
    return trainer->ops->load(trainer->rank.state, directory);
}

static const struct tdm_actor_class trainer_class = {
    .name = "tandem.trainer",
    .state_bytes = sizeof(struct trainer),
    .construct = construct,
    .destruct = destruct,
    .methods = {{"start", start},
                {"resume", resume},
                {"pause", pause_all},
                {"step", step},
                {"save", save},
                {"load", load},
                {"connect", tdm__trainer_connect},
                {"take_bucket", tdm__trainer_take_bucket},
                {"give_bucket", tdm__trainer_give_bucket},
                {"forget_engine", tdm__trainer_forget_engine},
                {"line", tdm__trainer_make_line},
                {"update", tdm__trainer_update},
                {"update_parts", tdm__trainer_update_parts},
                {"trace", trace}},
};

__attribute__((constructor)) static void register_trainer(void)
{
    tdm_class_register(&trainer_class);
}
