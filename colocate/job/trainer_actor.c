/* trainer_actor.c - the actor class of trainer ranks: the library's trainer, its memory, its
 * tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
/* This file has the life cycle, the training methods and the exchange of layouts;
 * trainer_update.c has the methods of weight updates. When a trainer starts, all ranks exchange
 * which slices of which tensors they have, and check that their lists of tensors are equal. A
 * rank can then compute transfer plans for all ranks without further communication.
 * All methods run on the actor's method thread, except those of the scale mailbox, which have a
 * thread of their own. Methods that may change the weights call
 * invalidate_sums(), because cached checksums of the last update are no longer valid. */
#include "colocate/job/job_file.h"
#include "colocate/job/named_layout_slices.h"
#include "colocate/job/train_batch.h"
#include "colocate/job/trainer_plan.h"
#include "colocate/job/trainer_update.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------- */

/* Refuses a library whose log-probabilities the job file wants to compare and which has none. */
static tdm_status check_logprobs(const struct trainer *trainer)
{
    bool compares;

    TDM_TRY(tdm__rank_compares_logprobs(&trainer->rank, &compares));
    return !compares || trainer->ops->logprobs != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_UNSUPPORTED,
                           "update.logprob_tolerance is set, but the trainer of the job library "
                           "has no function logprobs(); write one, or leave the setting out");
}

/* Opens the library's trainer and reserves the regions that it declares. */
static tdm_status open_library(struct trainer *trainer)
{
    struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX];
    uint32_t count = 0;

    trainer->ops = trainer->rank.library.jobs->trainer;
    TDM_TRY(trainer->ops->open(&trainer->rank.context, &trainer->rank.state));
    TDM_TRY(check_logprobs(trainer));
    TDM_TRY(trainer->ops->regions(trainer->rank.state, specs, &count));
    trainer->rank.resume_outside = trainer->ops->resume;
    trainer->rank.pause_outside = trainer->ops->pause;
    return tdm__rank_reserve_regions(&trainer->rank, specs, count);
}

/* Joins the gather group: the trainer ranks that serve the same engines as this rank. Its name has
 * the name of the group of all trainer ranks, which no other job has, and the number of the gather
 * group, so that two jobs of one node do not meet in a group. On CUDA NCCL moves its data, unless
 * two of the ranks share a GPU or there is one rank. A rank without an image joins none. */
static tdm_status join_gather_group(struct trainer *trainer)
{
    const struct tdm__gather_groups *groups = &trainer->rank.groups;
    uint32_t rank = trainer->rank.context.rank;
    char name[TDM__RANK_NAME_BYTES + 32];
    struct tdm_collective_options options = {.name = name,
                                             .rank = rank % groups->ranks_per_group,
                                             .ranks_count = groups->ranks_per_group,
                                             .timeout_ms = trainer->rank.timeout_ms,
                                             .on_gpu = groups->ranks_per_group > 1};

    if (tdm__gather_groups_images_of(groups, rank) == 0) {
        return TDM_OK;
    }
    (void)snprintf(name, sizeof(name), "%s/gather/%u", trainer->rank.group_name,
                   tdm__gather_groups_of_trainer(groups, rank));
    return tdm_collective_join(trainer->rank.runtime, &options, &trainer->gather);
}

/* Opens everything that the constructor needs. */
static tdm_status trainer_open(tdm_call *call, struct trainer *trainer)
{
    TDM_TRY(tdm__rank_open(&trainer->rank, call, "trainer"));
    TDM_TRY(join_gather_group(trainer));
    return open_library(trainer);
}

/* Destructor of the class: releases everything, also after a failed constructor. */
static void trainer_destruct(void *self)
{
    struct trainer *trainer = self;

    tdm__trainer_plan_destroy(trainer);
    for (uint32_t i = 0; trainer->layouts != NULL && i < trainer->rank.context.ranks_count; i++) {
        if (i != trainer->rank.context.rank) {
            tdm__layout_fini(&trainer->layouts[i]);
        }
    }
    free(trainer->layouts);
    free(trainer->locations);
    tdm__gathered_fini(&trainer->gathered);
    tdm__announcement_list_fini(&trainer->for_others);
    tdm__announcement_list_fini(&trainer->for_gather);
    tdm__manifest_destroy(trainer->manifest);
    tdm_collective_leave(trainer->gather);
    tdm_collective_leave(trainer->exchange);
    tdm__served_engines_fini(&trainer->engines);
    tdm__scale_mailbox_fini(&trainer->scale_mailbox);
    tdm__rank_close(&trainer->rank, trainer->ops == NULL ? NULL : trainer->ops->close);
}

/* Constructor of the class. After a failure everything is closed again, so that the other ranks
 * of the group notice at once. */
static tdm_status trainer_construct(tdm_call *call, void *self)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    tdm_status status;

    tdm__scale_mailbox_init(&((struct trainer *)self)->scale_mailbox);
    status = trainer_open(call, self);
    if (status == TDM_OK) {
        return TDM_OK;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    trainer_destruct(self);
    return tdm__fail(status, "%s", detail);
}

/* ---- layouts of all ranks -------------------------------------------------------------- */

/* Gathers the encoded layouts of all ranks on all ranks. They are padded to the size of the
 * largest: the caller gets `each_out` bytes for each rank, which start with the layout's real
 * size. The caller frees `all_out`. */
static tdm_status gather_layouts(struct trainer *trainer, struct tdm_bytes own, char **all_out,
                                 size_t *each_out)
{
    double largest = (double)own.size_bytes;
    size_t each;
    char *all;
    tdm_status status;

    TDM_TRY(tdm_collective_all_reduce_double(trainer->rank.group, &largest, 1, TDM_MAX));
    each = (size_t)largest + sizeof(uint64_t);
    all = calloc(trainer->rank.context.ranks_count + 1, each);
    if (all == NULL) {
        return tdm__fail(TDM_E_NOMEM, "layouts of %zu bytes each", each);
    }
    /* The own layout is written to element 0 first and then moved behind the last element. */
    memcpy(all, &(uint64_t){own.size_bytes}, sizeof(uint64_t));
    memcpy(all + sizeof(uint64_t), own.data, own.size_bytes);
    memmove(all + each * trainer->rank.context.ranks_count, all, each);
    status = tdm_collective_all_gather(trainer->rank.group,
                                       all + each * trainer->rank.context.ranks_count, each, all);
    if (status != TDM_OK) {
        free(all);
        return status;
    }
    *all_out = all;
    *each_out = each;
    return TDM_OK;
}

/* Decodes and checks the gathered layouts of the other ranks. */
static tdm_status decode_layouts(struct trainer *trainer, const char *all, size_t each)
{
    for (uint32_t i = 0; i < trainer->rank.context.ranks_count; i++) {
        const char *one = all + i * each;
        uint64_t size_bytes;

        memcpy(&size_bytes, one, sizeof(size_bytes));
        if (size_bytes > each - sizeof(size_bytes)) {
            return tdm__fail(TDM_E_PROTOCOL, "trainer rank %u: a layout of %llu bytes in %zu", i,
                             (unsigned long long)size_bytes, each);
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

/* Checks that all ranks have the same list of tensors. Slices refer to tensors by their index in
 * it. */
static tdm_status check_manifests(struct trainer *trainer)
{
    uint32_t ranks_count = trainer->rank.context.ranks_count;
    struct tdm__hash *all = calloc(ranks_count, sizeof(*all));
    tdm_status status;

    if (all == NULL) {
        return tdm__fail(TDM_E_NOMEM, "manifests of %u ranks", ranks_count);
    }
    status =
        tdm_collective_all_gather(trainer->rank.group, &trainer->manifest->hash, sizeof(*all), all);
    for (uint32_t i = 1; i < ranks_count && status == TDM_OK; i++) {
        if (!tdm__hash_equal(&all[i], &all[0])) {
            status = tdm__fail(TDM_E_INVAL, "trainer ranks 0 and %u list other tensors", i);
        }
    }
    free(all);
    return status;
}

/* Sends this rank's layout to all trainer ranks and receives theirs. */
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

/* Tells all trainer ranks the node and GPU of this rank, and learns theirs. */
static tdm_status exchange_locations(struct trainer *trainer)
{
    uint32_t ranks_count = trainer->rank.context.ranks_count;

    trainer->locations = calloc(ranks_count, sizeof(*trainer->locations));
    if (trainer->locations == NULL) {
        return tdm__fail(TDM_E_NOMEM, "locations of %u ranks", ranks_count);
    }
    return tdm_collective_all_gather(trainer->rank.group, &trainer->rank.location,
                                     sizeof(trainer->rank.location), trainer->locations);
}

/* Gets the tensors and slices of this rank from the library, or from the layout that the job
 * file names. */
static tdm_status request_own_layout(struct trainer *trainer,
                                     const struct tdm_tensor_info **tensors,
                                     uint32_t *tensors_count, struct tdm__layout *own)
{
    tdm_region *weights;

    if (trainer->rank.named_layout == NULL) {
        return trainer->ops->layout(trainer->rank.state, tensors, tensors_count, &own->slices,
                                    &own->slices_count);
    }
    TDM_TRY(tdm__rank_find_region(&trainer->rank, "weights", &weights));
    return tdm__named_layout_build_trainer(trainer->rank.named_layout, tdm_region_address(weights),
                                           tensors, tensors_count, own);
}

/* Determines the tensors of the model and the layouts of all trainer ranks. */
static tdm_status build_layouts(struct trainer *trainer)
{
    const struct tdm_tensor_info *tensors;
    uint32_t tensors_count;
    struct tdm__layout own;

    TDM_TRY(request_own_layout(trainer, &tensors, &tensors_count, &own));
    TDM_TRY(tdm__manifest_create(tensors, tensors_count, &trainer->manifest));
    TDM_TRY(tdm__layout_check(&own, trainer->manifest));
    trainer->layouts = calloc(trainer->rank.context.ranks_count, sizeof(own));
    if (trainer->layouts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "layouts of %u ranks", trainer->rank.context.ranks_count);
    }
    trainer->layouts[trainer->rank.context.rank] = own;
    TDM_TRY(check_manifests(trainer));
    TDM_TRY(exchange_locations(trainer));
    return exchange_layouts(trainer);
}

/* Waits until the GPU has done what the library queued in streams of its own, so that updates read
 * the weights that it has computed. */
static tdm_status await_device(const struct trainer *trainer)
{
    struct tdm__device *device = tdm__regions_device(trainer->rank.regions);

    return device->ops->synchronize(device);
}

/* ---- methods: life ---------------------------------------------------------------------- */

/* Method "start": resumes all regions, starts the library and exchanges layouts. Replies the
 * list of tensors. */
static tdm_status trainer_start(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    void *addresses[TDM_RANK_REGIONS_MAX];
    struct tdm__model_manifest_message message;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__rank_resume_regions(&trainer->rank, NULL));
    tdm__rank_region_addresses(&trainer->rank, addresses);
    TDM_TRY(trainer->ops->start(trainer->rank.state, addresses));
    TDM_TRY(await_device(trainer));
    TDM_TRY(build_layouts(trainer));
    TDM_TRY(tdm_writer_create(&writer));
    message = tdm__manifest_to_message(trainer->manifest);
    status = tdm__model_manifest_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Drops the cached checksums of the last update, because the weights may change now. */
static void invalidate_sums(struct trainer *trainer)
{
    if (trainer->weight_writer != NULL) {
        tdm__weight_writer_forget_sums(trainer->weight_writer);
    }
}

/* Method "resume": drops the cached checksums of the last update and resumes all regions. */
static tdm_status trainer_resume(tdm_call *call, void *self)
{
    (void)call;
    tdm__failpoint_hit("trainer.resume");
    invalidate_sums(self);
    return tdm__rank_resume_regions(self, NULL);
}

/* Method "pause": pauses all regions. */
static tdm_status trainer_pause(tdm_call *call, void *self)
{
    (void)call;
    tdm__failpoint_hit("trainer.pause");
    return tdm__rank_pause_regions(self);
}

/* Method "trace": replies the spans for the trace. */
static tdm_status trainer_trace(tdm_call *call, void *self)
{
    return tdm__rank_method_trace(self, call);
}

/* Method "step": trains one step on the batch in the arguments and replies the metrics. */
static tdm_status trainer_step(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm_metrics metrics = {.count = 0};
    int64_t begin_ns = tdm__clock_ns();
    struct tdm_batch batch;
    tdm_writer *writer;
    tdm_status status;

    tdm__failpoint_hit("trainer.step");
    invalidate_sums(trainer);
    TDM_TRY(tdm__batch_read(tdm_call_arguments(call), &batch));
    status = trainer->ops->step(trainer->rank.state, &batch, &metrics);
    status = status == TDM_OK ? await_device(trainer) : status;
    tdm__batch_fini(&batch);
    TDM_TRY(status);
    tdm__spans_add(&trainer->rank.spans, "step", begin_ns, 0, 0);
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__train_metrics_write(writer, &metrics);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Returns the largest difference between the engine's log-probabilities of a sample and those that
 * the trainer has computed; infinity if one of the trainer's is not a number. */
static float largest_difference(const struct tdm_sample *sample, const float *logprobs)
{
    float largest = 0.0F;

    for (uint32_t i = 0; i < sample->tokens_count; i++) {
        float difference = fabsf(sample->logprobs[i] - logprobs[i]);

        if (!isfinite(difference)) {
            return INFINITY;
        }
        largest = fmaxf(largest, difference);
    }
    return largest;
}

/* Lets the library compute the log-probabilities of a batch and writes the largest difference of
 * each sample to `largest`. */
static tdm_status compare_batch(const struct trainer *trainer, const struct tdm_batch *batch,
                                float *largest)
{
    size_t tokens = 0;
    float **rows = calloc((size_t)batch->samples_count + 1, sizeof(*rows));
    float *logprobs;
    tdm_status status;

    for (uint32_t i = 0; i < batch->samples_count; i++) {
        if (batch->samples[i].logprobs == NULL) {
            free(rows);
            return tdm__fail(TDM_E_PROTOCOL, "sample %u has no log-probabilities", i);
        }
        tokens += batch->samples[i].tokens_count;
    }
    logprobs = calloc(tokens + 1, sizeof(*logprobs));
    if (rows == NULL || logprobs == NULL) {
        free(rows);
        free(logprobs);
        return tdm__fail(TDM_E_NOMEM, "log-probabilities of %zu tokens", tokens);
    }
    tokens = 0;
    for (uint32_t i = 0; i < batch->samples_count; i++) {
        rows[i] = logprobs + tokens;
        tokens += batch->samples[i].tokens_count;
    }
    status = trainer->ops->logprobs(trainer->rank.state, batch, rows);
    status = status == TDM_OK ? await_device(trainer) : status;
    for (uint32_t i = 0; i < batch->samples_count && status == TDM_OK; i++) {
        largest[i] = largest_difference(&batch->samples[i], rows[i]);
    }
    free(rows);
    free(logprobs);
    return status;
}

/* Replies the largest difference of each sample. */
static tdm_status reply_differences(tdm_call *call, const float *largest, uint32_t count)
{
    const struct tdm__logprob_differences_message message = {
        .largest = {largest, count * sizeof(*largest)}};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__logprob_differences_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Method "compare_logprobs": replies how far the trainer's log-probabilities of the samples in the
 * arguments are from the engines'. Learns nothing. */
static tdm_status trainer_compare_logprobs(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    int64_t begin_ns = tdm__clock_ns();
    struct tdm_batch batch;
    float *largest;
    tdm_status status;

    if (trainer->ops->logprobs == NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED, "the trainer has no function logprobs()");
    }
    TDM_TRY(tdm__batch_read(tdm_call_arguments(call), &batch));
    largest = calloc((size_t)batch.samples_count + 1, sizeof(*largest));
    status = largest == NULL ? tdm__fail(TDM_E_NOMEM, "a batch of %u samples", batch.samples_count)
                             : compare_batch(trainer, &batch, largest);
    if (status == TDM_OK) {
        status = reply_differences(call, largest, batch.samples_count);
    }
    free(largest);
    tdm__batch_fini(&batch);
    tdm__spans_add(&trainer->rank.spans, "compare logprobs", begin_ns, 0, 0);
    return status;
}

/* Method "save": saves this rank's part of a checkpoint to the given directory. */
static tdm_status trainer_save(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__checkpoint_directory_message directory;

    TDM_TRY(tdm__checkpoint_directory_decode(tdm_call_arguments(call), &directory));
    tdm__failpoint_hit("trainer.save");
    TDM_TRY(trainer->ops->save(trainer->rank.state, directory.path));
    tdm__failpoint_hit("trainer.saved");
    return TDM_OK;
}

/* Method "load": loads this rank's part of a checkpoint from the given directory. */
static tdm_status trainer_load(tdm_call *call, void *self)
{
    struct trainer *trainer = self;
    struct tdm__checkpoint_directory_message directory;

    TDM_TRY(tdm__checkpoint_directory_decode(tdm_call_arguments(call), &directory));
    invalidate_sums(trainer);
    TDM_TRY(trainer->ops->load(trainer->rank.state, directory.path));
    return await_device(trainer);
}

/* Method "scale": a command asks for another number of engines, or for the state. */
static tdm_status trainer_scale(tdm_call *call, void *self)
{
    return tdm__scale_mailbox_request(&((struct trainer *)self)->scale_mailbox, call);
}

/* Method "report_scale": the controller says its state and asks for the last request. */
static tdm_status trainer_report_scale(tdm_call *call, void *self)
{
    return tdm__scale_mailbox_report(&((struct trainer *)self)->scale_mailbox, call);
}

static const struct tdm_actor_class trainer_class = {
    .name = "tandem.trainer",
    .state_bytes = sizeof(struct trainer),
    .construct = trainer_construct,
    .destruct = trainer_destruct,
    .concurrency_groups = {{"scale", 1}},
    .methods = {{"start", trainer_start},
                {"resume", trainer_resume},
                {"pause", trainer_pause},
                {"step", trainer_step},
                {"compare_logprobs", trainer_compare_logprobs},
                {"save", trainer_save},
                {"load", trainer_load},
                {"connect", tdm__trainer_connect},
                {"acquire_bucket", tdm__trainer_acquire_bucket},
                {"release_bucket", tdm__trainer_release_bucket},
                {"detach_engine", tdm__trainer_detach_engine},
                {"open_pair", tdm__trainer_open_pair},
                {"update", tdm__trainer_update},
                {"scale", trainer_scale, "scale"},
                {"report_scale", trainer_report_scale, "scale"},
                {"trace", trainer_trace}},
};

__attribute__((constructor)) static void register_trainer(void)
{
    tdm_class_register(&trainer_class);
}
