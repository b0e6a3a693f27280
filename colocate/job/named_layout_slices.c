/* named_layout_slices.c - computes the slices of the model that a rank of a named layout sends
 * or receives. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A slice names a tensor by its index in the manifest, the list of tensors that trainers and
 * engines share. Its rectangle says which part of the tensor it is, and its address says where
 * it lies in the region "weights".
 * Trainer ranks may have copies of the same slice; the transfer plan chooses which of them sends
 * it (colocate/weights/transfer_plan.h). All ranks list the model's tensors in the same order:
 * those of which some trainer rank has a slice. Engine ranks look up each tensor by name in the
 * manifest. Scales are sent with the FP8 tensor that they belong to. */
#include "colocate/job/named_layout_slices.h"

#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Maps the model's tensors to their indices in the manifest. */
struct tensor_index {
    /* Owned array: for each tensor of the model its index in the manifest; UINT32_MAX if it is
     * not in the manifest. */
    uint32_t *manifest_index;
};

/* Allocates the map; no tensor is in the manifest yet. */
static tdm_status tensor_index_init(struct tensor_index *index, const struct tdm__model *model)
{
    index->manifest_index = malloc((model->tensors_count + 1u) * sizeof(*index->manifest_index));
    if (index->manifest_index == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u tensors", model->tensors_count);
    }
    memset(index->manifest_index, 0xff,
           (model->tensors_count + 1u) * sizeof(*index->manifest_index));
    return TDM_OK;
}

/* Returns whether a tensor of the model holds the scales of an FP8 tensor. */
static bool is_scale(const struct tdm__model *model, uint32_t tensor)
{
    return model->tensors[tensor].kind == TDM__TENSOR_KIND_SCALE;
}

/* ---- slices ----------------------------------------------------------------------------- */

/* Returns the address of a slice in the region "weights". TDM_E_INVAL if its rows are not
 * contiguous. */
static tdm_status find_address(const struct tdm__named_layout *named_layout, const void *weights,
                               const struct tdm__tensor_slice *piece, const void **address_out)
{
    const struct tdm__shard_tensor *shard_tensor =
        &named_layout->shards.shard_tensors[piece->shard_tensor];
    uint64_t offset_bytes;
    char name[TDM_TENSOR_NAME_BYTES_MAX];

    if (piece->rectangle.rows > 1 && piece->pitch != piece->rectangle.columns) {
        return tdm__fail(TDM_E_INVAL, "%s: %s lies in %s with a gap behind each row of %u",
                         named_layout->where,
                         tdm__model_tensor_name(named_layout->model, piece->tensor, name),
                         named_layout->names[piece->shard_tensor], piece->rectangle.columns);
    }
    offset_bytes = named_layout->tensors[piece->shard_tensor].offset_bytes +
                   piece->offset * tdm_dtype_bytes((enum tdm_dtype)shard_tensor->dtype);
    /* Where a plan is only computed there is no memory, and `weights` is NULL. */
    *address_out = (const void *)((uintptr_t)weights + offset_bytes);
    return TDM_OK;
}

/* Appends a slice, and the address of its scales if it is FP8. `manifest_dtype` is the type of
 * the tensor in the manifest; another type in memory means a conversion. */
static tdm_status add_slice(struct tdm__named_layout *named_layout, const void *weights,
                            const struct tdm__tensor_slice *piece, const struct tensor_index *index,
                            enum tdm_dtype manifest_dtype)
{
    enum tdm_dtype dtype =
        (enum tdm_dtype)named_layout->shards.shard_tensors[piece->shard_tensor].dtype;
    struct tdm_slice *slice = &named_layout->slices[named_layout->slices_count];

    *slice = (struct tdm_slice){
        .tensor = index->manifest_index[piece->tensor],
        .offset = {piece->rectangle.row},
        .extent = {piece->rectangle.rows},
        .dtype = dtype != manifest_dtype ? dtype : 0,
    };
    if (named_layout->model->tensors[piece->tensor].dims_count == 2) {
        slice->offset[1] = piece->rectangle.column;
        slice->extent[1] = piece->rectangle.columns;
    }
    TDM_TRY(find_address(named_layout, weights, piece, &slice->address));
    if (dtype == TDM_F8_E4M3 && piece->scale != TDM__NO_SLICE) {
        TDM_TRY(find_address(named_layout, weights, &named_layout->shards.slices[piece->scale],
                             &slice->scales));
    }
    named_layout->slices_count++;
    return TDM_OK;
}

/* Replaces the array of slices by an empty one with space for all slices of the rank. */
static tdm_status allocate_slices(struct tdm__named_layout *named_layout)
{
    free(named_layout->slices);
    named_layout->slices_count = 0;
    named_layout->slices =
        calloc(named_layout->shards.slices_count + 1u, sizeof(*named_layout->slices));
    return named_layout->slices != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_NOMEM, "%s: %u parts", named_layout->where,
                           named_layout->shards.slices_count);
}

/* ---- slices of a trainer ---------------------------------------------------------------- */

/* Notes in `dtypes` the type of each tensor of which a trainer rank has a slice; 0 for the others.
 * Trainers cannot send FP8: TDM_E_UNSUPPORTED. */
static tdm_status note_dtypes(const struct tdm__named_layout *named_layout,
                              const struct tdm__rank_shards *shards, uint8_t *dtypes)
{
    for (uint32_t i = 0; i < shards->slices_count; i++) {
        const struct tdm__tensor_slice *piece = &shards->slices[i];
        uint8_t dtype = shards->shard_tensors[piece->shard_tensor].dtype;
        char name[TDM_TENSOR_NAME_BYTES_MAX];

        if (dtype == TDM_F8_E4M3 || is_scale(named_layout->model, piece->tensor)) {
            return tdm__fail(TDM_E_UNSUPPORTED, "%s: %s is FP8, which trainers do not send",
                             named_layout->where,
                             tdm__model_tensor_name(named_layout->model, piece->tensor, name));
        }
        dtypes[piece->tensor] = dtype;
    }
    return TDM_OK;
}

/* Notes in `dtypes` what all trainer ranks have. */
static tdm_status collect_dtypes(const struct tdm__named_layout *named_layout, uint8_t *dtypes)
{
    for (uint32_t rank = 0; rank < named_layout->sharding.ranks_count; rank++) {
        struct tdm__rank_shards shards;
        tdm_status status = tdm__rank_shards_init(named_layout->model, &named_layout->sharding,
                                                  rank, TDM__SHARDS_SOURCE, &shards);

        if (status == TDM_OK) {
            status = note_dtypes(named_layout, &shards, dtypes);
            tdm__rank_shards_fini(&shards);
        }
        TDM_TRY(tdm__wrap(status, "%s: rank %u", named_layout->where, rank));
    }
    return TDM_OK;
}

/* Adds a tensor to the list of the model's tensors, as trainers have it. */
static void add_model_tensor(struct tdm__named_layout *named_layout, uint32_t model_index,
                             enum tdm_dtype dtype, struct tensor_index *index)
{
    const struct tdm__model_tensor *tensor = &named_layout->model->tensors[model_index];
    uint32_t i = named_layout->model_tensors_count++;

    index->manifest_index[model_index] = i;
    named_layout->model_tensors[i] = (struct tdm_tensor_info){
        .name =
            tdm__model_tensor_name(named_layout->model, model_index, named_layout->model_names[i]),
        .dtype = dtype,
        .dims_count = tensor->dims_count,
        .shape = {tensor->rows, tensor->dims_count == 2 ? tensor->columns : 0}};
}

/* Builds the list of tensors and the slices that this trainer rank has. `dtypes` has an entry of
 * zero for each tensor of the model. */
static tdm_status make_trainer_layout(struct tdm__named_layout *named_layout, const void *weights,
                                      uint8_t *dtypes, struct tensor_index *index)
{
    size_t count = named_layout->model->tensors_count + (size_t)1;

    TDM_TRY(collect_dtypes(named_layout, dtypes));
    TDM_TRY(allocate_slices(named_layout));
    free(named_layout->model_tensors);
    free(named_layout->model_names);
    named_layout->model_tensors_count = 0;
    named_layout->model_tensors = calloc(count, sizeof(*named_layout->model_tensors));
    named_layout->model_names = calloc(count, sizeof(*named_layout->model_names));
    if (named_layout->model_tensors == NULL || named_layout->model_names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s: %zu tensors", named_layout->where, count);
    }
    for (uint32_t i = 0; i < named_layout->model->tensors_count; i++) {
        if (dtypes[i] != 0) {
            add_model_tensor(named_layout, i, (enum tdm_dtype)dtypes[i], index);
        }
    }
    for (uint32_t i = 0; i < named_layout->shards.slices_count; i++) {
        const struct tdm__tensor_slice *piece = &named_layout->shards.slices[i];

        TDM_TRY(
            add_slice(named_layout, weights, piece, index, (enum tdm_dtype)dtypes[piece->tensor]));
    }
    return TDM_OK;
}

tdm_status tdm__named_layout_build_trainer(struct tdm__named_layout *named_layout,
                                           const void *weights,
                                           const struct tdm_tensor_info **tensors_out,
                                           uint32_t *tensors_count_out,
                                           struct tdm__layout *layout_out)
{
    uint8_t *dtypes = calloc(named_layout->model->tensors_count + 1u, sizeof(*dtypes));
    struct tensor_index index = {.manifest_index = NULL};
    tdm_status status = dtypes == NULL ? tdm__fail(TDM_E_NOMEM, "%s", named_layout->where)
                                       : tensor_index_init(&index, named_layout->model);

    if (status == TDM_OK) {
        status = make_trainer_layout(named_layout, weights, dtypes, &index);
    }
    free(dtypes);
    free(index.manifest_index);
    TDM_TRY(status);
    *tensors_out = named_layout->model_tensors;
    *tensors_count_out = named_layout->model_tensors_count;
    *layout_out = (struct tdm__layout){named_layout->slices, named_layout->slices_count};
    return TDM_OK;
}

/* ---- slices of an engine ---------------------------------------------------------------- */

/* Orders pointers to tensors by name; for qsort() and bsearch(). */
static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct tdm_tensor_info *const *)a)->name,
                  (*(const struct tdm_tensor_info *const *)b)->name);
}

/* Fails if the tensor of the model has another shape in the manifest. */
static tdm_status check_shape(const struct tdm__named_layout *named_layout, uint32_t tensor,
                              const struct tdm_tensor_info *actual)
{
    const struct tdm__model_tensor *expected = &named_layout->model->tensors[tensor];

    if (actual->dims_count != expected->dims_count || actual->shape[0] != expected->rows ||
        (expected->dims_count == 2 && actual->shape[1] != expected->columns)) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: %s has %u x %u elements in model.config, but trainers have "
                         "%llu x %llu",
                         named_layout->where, actual->name, expected->rows, expected->columns,
                         (unsigned long long)actual->shape[0],
                         (unsigned long long)(actual->dims_count == 2 ? actual->shape[1] : 1));
    }
    return TDM_OK;
}

/* Finds a tensor of the model in the manifest by name. `sorted` are the manifest's tensors,
 * ordered by name. */
static tdm_status find_tensor(const struct tdm__named_layout *named_layout, uint32_t tensor,
                              const struct tdm__manifest *manifest,
                              const struct tdm_tensor_info *const *sorted,
                              struct tensor_index *index)
{
    char name[TDM_TENSOR_NAME_BYTES_MAX];
    const struct tdm_tensor_info wanted = {
        .name = tdm__model_tensor_name(named_layout->model, tensor, name)};
    const struct tdm_tensor_info *key = &wanted;
    const struct tdm_tensor_info *const *found =
        bsearch(&key, sorted, manifest->tensors_count, sizeof(*sorted), compare_names);

    if (found == NULL) {
        return tdm__fail(TDM_E_INVAL, "%s: trainers have no tensor %s", named_layout->where, name);
    }
    TDM_TRY(check_shape(named_layout, tensor, *found));
    index->manifest_index[tensor] = (uint32_t)(*found - manifest->tensors);
    return TDM_OK;
}

/* Builds the slices that this engine rank needs. */
static tdm_status make_engine_layout(struct tdm__named_layout *named_layout, const void *weights,
                                     const struct tdm__manifest *manifest,
                                     const struct tdm_tensor_info **sorted,
                                     struct tensor_index *index)
{
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        sorted[i] = &manifest->tensors[i];
    }
    qsort(sorted, manifest->tensors_count, sizeof(*sorted), compare_names);
    TDM_TRY(allocate_slices(named_layout));
    for (uint32_t i = 0; i < named_layout->shards.slices_count; i++) {
        const struct tdm__tensor_slice *piece = &named_layout->shards.slices[i];

        if (is_scale(named_layout->model, piece->tensor)) {
            continue; /* Scales are sent with the FP8 tensor that they belong to. */
        }
        if (index->manifest_index[piece->tensor] == UINT32_MAX) {
            TDM_TRY(find_tensor(named_layout, piece->tensor, manifest, sorted, index));
        }
        TDM_TRY(add_slice(named_layout, weights, piece, index,
                          manifest->tensors[index->manifest_index[piece->tensor]].dtype));
    }
    return TDM_OK;
}

tdm_status tdm__named_layout_build_engine(struct tdm__named_layout *named_layout,
                                          const void *weights, const struct tdm__manifest *manifest,
                                          struct tdm__layout *layout_out)
{
    const struct tdm_tensor_info **sorted = calloc(manifest->tensors_count + 1u, sizeof(*sorted));
    struct tensor_index index = {.manifest_index = NULL};
    tdm_status status = sorted == NULL ? tdm__fail(TDM_E_NOMEM, "%s", named_layout->where)
                                       : tensor_index_init(&index, named_layout->model);

    if (status == TDM_OK) {
        status = make_engine_layout(named_layout, weights, manifest, sorted, &index);
    }
    free(index.manifest_index);
    free(sorted);
    TDM_TRY(status);
    *layout_out = (struct tdm__layout){named_layout->slices, named_layout->slices_count};
    return TDM_OK;
}
