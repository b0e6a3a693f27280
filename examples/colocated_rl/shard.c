/* shard.c - one rank's share of the parameters and of the moments of AdamW. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/shard.h"

#include "examples/colocated_rl/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Computes which parts of tensors lie in this share. */
static void make_slices(struct shard *shard)
{
    const struct model *model = shard->model;

    for (uint32_t i = 0; i < model->tensors_count; i++) {
        size_t from = model->offsets[i];
        size_t to = from + tdm_tensor_elements(&model->tensors[i]);
        size_t start = larger(from, shard->first);
        size_t end = smaller(to, shard->first + shard->count);

        if (start < end) {
            shard->slices[shard->slices_count++] = (struct tdm_slice){
                .tensor = i, .flat = 1, .offset = {start - from}, .extent = {end - start}};
        }
    }
}

tdm_status shard_init(struct shard *shard, const struct model *model, tdm_collective_group *group,
                      uint32_t rank, uint32_t ranks_count)
{
    *shard = (struct shard){
        .model = model,
        .group = group,
        .ranks_count = ranks_count,
        .count = (model->elements + ranks_count - 1) / ranks_count,
    };
    shard->first = rank * shard->count;
    shard->slices = calloc(model->tensors_count, sizeof(*shard->slices));
    if (shard->slices == NULL) {
        return tdm_fail(TDM_E_NOMEM, "slices of %" PRIu32 " tensors", model->tensors_count);
    }
    make_slices(shard);
    return TDM_OK;
}

void shard_fini(struct shard *shard)
{
    free(shard->slices);
    *shard = (struct shard){0};
}

/* Returns the index in this share of a slice's first element. */
static size_t slice_start(const struct shard *shard, const struct tdm_slice *slice)
{
    return shard->model->offsets[slice->tensor] + slice->offset[0] - shard->first;
}

void shard_bind_memory(struct shard *shard, struct machine *machine, float *parameters)
{
    shard->machine = machine;
    shard->parameters = parameters;
    for (uint32_t i = 0; i < shard->slices_count; i++) {
        shard->slices[i].address = parameters + slice_start(shard, &shard->slices[i]);
    }
}

/* Returns 1 if the slice belongs to a norm. Norms are vectors, all other tensors are matrices. */
static int is_norm(const struct shard *shard, const struct tdm_slice *slice)
{
    return shard->model->tensors[slice->tensor].dims_count == 1;
}

/* Allocates a share of zeros in host memory. The caller frees it. */
static tdm_status make_share(const struct shard *shard, float **share_out)
{
    float *share = calloc(shard->count, sizeof(float));

    if (share == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a share of %zu parameters", shard->count);
    }
    *share_out = share;
    return TDM_OK;
}

/* Copies a share from host memory to the parameters on the machine. */
static tdm_status write_share(const struct shard *shard, const float *share)
{
    return shard->machine->ops->write(shard->machine, shard->parameters, share,
                                      shard->count * sizeof(float));
}

tdm_status shard_init_random(struct shard *shard, uint64_t seed, double deviation)
{
    tdm_status status;
    float *share;

    TDM_TRY(make_share(shard, &share));
    for (uint32_t i = 0; i < shard->slices_count; i++) {
        const struct tdm_slice *slice = &shard->slices[i];
        size_t start = slice_start(shard, slice);

        for (size_t at = start; at < start + slice->extent[0]; at++) {
            share[at] = is_norm(shard, slice)
                            ? 1.0F
                            : (float)(deviation * random_normal(seed, shard->first + at));
        }
    }
    status = write_share(shard, share);
    free(share);
    return status;
}

/* Copies one slice from a file to the share in host memory. */
static tdm_status read_slice(const struct shard *shard, const tdm_safetensors *file,
                             const struct tdm_slice *slice, float *share)
{
    const struct tdm_tensor_info *info = &shard->model->tensors[slice->tensor];
    const struct tdm_tensor_view *view = tdm_safetensors_find(file, info->name);
    float *whole;
    tdm_status status;

    if (view == NULL) {
        return tdm_fail(TDM_E_NOT_FOUND, "the model has no tensor %s", info->name);
    }
    whole = malloc(tdm_tensor_bytes(info));
    if (whole == NULL) {
        return tdm_fail(TDM_E_NOMEM, "tensor %s of %" PRIu64 " bytes", info->name,
                        tdm_tensor_bytes(info));
    }
    status = model_cut(shard->model, slice->tensor, 0, view, whole);
    if (status == TDM_OK) {
        memcpy(share + slice_start(shard, slice), whole + slice->offset[0],
               slice->extent[0] * sizeof(float));
    }
    free(whole);
    return status;
}

/* Reads the slices of this share from the model in the folder `path`. */
static tdm_status read_share(const struct shard *shard, const char *path, float *share)
{
    tdm_status status = TDM_OK;
    tdm_safetensors *file;

    TDM_TRY(tdm_safetensors_open(path, &file));
    for (uint32_t i = 0; i < shard->slices_count && status == TDM_OK; i++) {
        status = read_slice(shard, file, &shard->slices[i], share);
    }
    tdm_safetensors_close(file);
    return status;
}

tdm_status shard_read(struct shard *shard, const char *directory)
{
    tdm_status status;
    float *share;

    TDM_TRY(make_share(shard, &share));
    status = read_share(shard, directory, share);
    if (status == TDM_OK) {
        status = write_share(shard, share);
    }
    free(share);
    return status;
}

void shard_reset_moments(struct shard *shard)
{
    const struct ops *ops = shard->machine->ops;

    ops->zero(shard->machine, &(const struct filling){shard->mean, shard->count});
    ops->zero(shard->machine, &(const struct filling){shard->square, shard->count});
}

void shard_copy(const struct shard *shard, float *to, const float *from)
{
    const struct transfer work = {.to = to, .from = from, .width = shard->count, .count = 1};

    shard->machine->ops->transfer(shard->machine, &work);
}

tdm_status shard_gather(const struct shard *shard, const float *share, float *all)
{
    if (shard->group == NULL) {
        shard_copy(shard, all, share);
        return TDM_OK;
    }
    return shard->machine->ops->all_gather(shard->machine, shard->group, share, shard->count, all);
}

/* Sums the gradients over the ranks. Each rank gets the sum of its share. With several replicas the
 * sums of all shares are computed in place, in the order of all ranks. */
static tdm_status shard_reduce_gradients(struct shard *shard, float *gradients)
{
    if (shard->all_replicas != NULL) {
        TDM_TRY(shard->machine->ops->all_reduce(shard->machine, shard->all_replicas, gradients,
                                                shard->count * shard->ranks_count));
        shard_copy(shard, shard->gradients, gradients + shard->first);
        return TDM_OK;
    }
    if (shard->group == NULL) {
        shard_copy(shard, shard->gradients, gradients);
        return TDM_OK;
    }
    return shard->machine->ops->reduce_scatter(shard->machine, shard->group, gradients,
                                               shard->count, shard->gradients);
}

/* Computes the norm of the complete gradient over the ranks of a replica. TDM_E_METHOD if it is not
 * finite. */
static tdm_status gradient_norm(const struct shard *shard, double *norm_out)
{
    double squares = 0.0;

    TDM_TRY(shard->machine->ops->squares(shard->machine, shard->gradients, shard->count, &squares));
    if (shard->group != NULL) {
        TDM_TRY(tdm_collective_all_reduce_double(shard->group, &squares, 1, TDM_SUM));
    }
    *norm_out = sqrt(squares);
    return isfinite(*norm_out)
               ? TDM_OK
               : tdm_fail(TDM_E_METHOD, "the gradient is not finite (%g)", *norm_out);
}

/* Multiplies the matrices of this share by a factor; norms are not decayed. */
static void shard_decay_weights(struct shard *shard, float factor)
{
    for (uint32_t i = 0; i < shard->slices_count; i++) {
        const struct tdm_slice *slice = &shard->slices[i];
        const struct scaling work = {shard->parameters + slice_start(shard, slice),
                                     slice->extent[0], factor};

        if (!is_norm(shard, slice)) {
            shard->machine->ops->scale(shard->machine, &work);
        }
    }
}

/* Updates the share and its moments by one step of Adam. `scale` is the factor of the gradients. */
static void shard_run_adam(struct shard *shard, const struct optimizer_settings *settings,
                           float scale, const struct shard_step *step)
{
    double number = (double)step->number;
    const struct adam work = {
        .parameters = shard->parameters,
        .mean = shard->mean,
        .square = shard->square,
        .gradients = shard->gradients,
        .count = shard->count,
        .beta1 = (float)settings->beta1,
        .beta2 = (float)settings->beta2,
        .scale = scale,
        .stride = (float)(step->lr / (1.0 - pow(settings->beta1, number))),
        .widen = (float)(1.0 / sqrt(1.0 - pow(settings->beta2, number))),
        .eps = (float)settings->eps,
    };

    shard->machine->ops->adam(shard->machine, &work);
}

tdm_status shard_optimizer_step(struct shard *shard, const struct optimizer_settings *settings,
                                float *gradients, struct shard_step *step)
{
    double scale = 1.0;

    TDM_TRY(shard_reduce_gradients(shard, gradients));
    TDM_TRY(gradient_norm(shard, &step->grad_norm));
    if (settings->clip_grad > 0.0) {
        scale = fmin(1.0, settings->clip_grad / (step->grad_norm + 1e-6));
    }
    if (settings->weight_decay != 0.0) {
        shard_decay_weights(shard, (float)(1.0 - step->lr * settings->weight_decay));
    }
    shard_run_adam(shard, settings, (float)scale, step);
    return TDM_OK;
}
