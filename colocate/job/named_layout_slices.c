/* named_layout_slices.c - computes the slices of the model that a rank of a named layout sends
 * or receives. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A slice names a tensor by its index in the manifest, the list of tensors that trainers and
 * engines share. Its rectangle says which part of the tensor it is, and its address says where
 * it lies in the region "weights".
 * Trainer ranks may have copies of the same slice. All ranks compute the same sorted list of
 * holdings and agree without communication which rank sends each slice: the holders take turns,
 * tensor by tensor. Engine ranks look up each tensor by name in the manifest. Scales are sent with
 * the FP8 tensor that they belong to. */
#include "colocate/job/named_layout_slices.h"

#include "runtime/array_grow.h"
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
    char name[TDM_TENSOR_NAME_BYTES_MAX];

    if (piece->rectangle.rows > 1 && piece->pitch != piece->rectangle.columns) {
        return tdm__fail(TDM_E_INVAL, "%s: %s lies in %s with a gap behind each row of %u",
                         named_layout->where,
                         tdm__model_tensor_name(named_layout->model, piece->tensor, name),
                         named_layout->names[piece->shard_tensor], piece->rectangle.columns);
    }
    *address_out = (const char *)weights + named_layout->tensors[piece->shard_tensor].offset_bytes +
                   piece->offset * tdm_dtype_bytes((enum tdm_dtype)shard_tensor->dtype);
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

/* One slice of the model that a trainer rank has in memory. */
struct slice_holding {
    /* Index of the tensor in the model. */
    uint32_t tensor;
    /* Part of the tensor. */
    struct tdm__rectangle rectangle;
    /* Trainer rank that has the slice. */
    uint32_t rank;
    /* Index of the slice among the slices of that rank. */
    uint32_t piece;
    /* Type of the elements in that rank's memory. */
    enum tdm_dtype dtype;
};

/* The slices of all trainer ranks. */
struct slice_holdings {
    /* Owned array; sorted once it is complete. */
    struct slice_holding *all;
    /* Number of elements. */
    uint32_t count;
    /* Number of elements that `all` has space for. */
    uint32_t capacity;
};

/* Orders holdings by tensor and rectangle. Returns 0 if both are the same slice of the model. */
static int compare_parts(const struct slice_holding *one, const struct slice_holding *other)
{
    if (one->tensor != other->tensor) {
        return one->tensor < other->tensor ? -1 : 1;
    }
    return memcmp(&one->rectangle, &other->rectangle, sizeof(one->rectangle));
}

/* Orders holdings by slice, then by rank; for qsort(). */
static int compare_holdings(const void *a, const void *b)
{
    const struct slice_holding *one = a;
    const struct slice_holding *other = b;
    int order = compare_parts(one, other);

    if (order != 0) {
        return order;
    }
    if (one->rank != other->rank) {
        return one->rank < other->rank ? -1 : 1;
    }
    return one->piece < other->piece ? -1 : one->piece > other->piece;
}

/* Appends a slice of a rank to the holdings. Trainers cannot send FP8: TDM_E_UNSUPPORTED. */
static tdm_status add_holding(const struct tdm__named_layout *named_layout,
                              const struct tdm__rank_shards *shards, uint32_t rank,
                              uint32_t piece_index, struct slice_holdings *holdings)
{
    const struct tdm__tensor_slice *piece = &shards->slices[piece_index];
    struct slice_holding holding = {
        .tensor = piece->tensor,
        .rectangle = piece->rectangle,
        .rank = rank,
        .piece = piece_index,
        .dtype = (enum tdm_dtype)shards->shard_tensors[piece->shard_tensor].dtype};
    char name[TDM_TENSOR_NAME_BYTES_MAX];

    if (holding.dtype == TDM_F8_E4M3 || is_scale(named_layout->model, piece->tensor)) {
        return tdm__fail(TDM_E_UNSUPPORTED, "%s: %s is FP8, which trainers do not send",
                         named_layout->where,
                         tdm__model_tensor_name(named_layout->model, piece->tensor, name));
    }
    TDM_TRY(tdm__array_grow((void **)&holdings->all, &holdings->capacity, holdings->count,
                            sizeof(holding)));
    holdings->all[holdings->count++] = holding;
    return TDM_OK;
}

/* Appends all slices of a rank to the holdings. */
static tdm_status add_rank(const struct tdm__named_layout *named_layout, uint32_t rank,
                           struct slice_holdings *holdings)
{
    struct tdm__rank_shards shards;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__rank_shards_init(named_layout->model, &named_layout->sharding, rank,
                                  TDM__SHARDS_SOURCE, &shards));
    for (uint32_t i = 0; i < shards.slices_count && status == TDM_OK; i++) {
        status = add_holding(named_layout, &shards, rank, i, holdings);
    }
    tdm__rank_shards_fini(&shards);
    return status;
}

/* Collects and sorts the slices of all trainer ranks, so that holdings of the same slice are
 * adjacent. */
static tdm_status collect_holdings(const struct tdm__named_layout *named_layout,
                                   struct slice_holdings *holdings)
{
    for (uint32_t rank = 0; rank < named_layout->sharding.ranks_count; rank++) {
        TDM_TRY(tdm__wrap(add_rank(named_layout, rank, holdings), "%s: rank %u",
                          named_layout->where, rank));
    }
    if (holdings->count > 0) {
        qsort(holdings->all, holdings->count, sizeof(holdings->all[0]), compare_holdings);
    }
    return TDM_OK;
}

/* Adds a tensor to the list of the model's tensors, as trainers have it. */
static void add_model_tensor(struct tdm__named_layout *named_layout,
                             const struct slice_holding *holding, struct tensor_index *index)
{
    const struct tdm__model_tensor *tensor = &named_layout->model->tensors[holding->tensor];
    uint32_t i = named_layout->model_tensors_count++;

    index->manifest_index[holding->tensor] = i;
    named_layout->model_tensors[i] = (struct tdm_tensor_info){
        .name = tdm__model_tensor_name(named_layout->model, holding->tensor,
                                       named_layout->model_names[i]),
        .dtype = holding->dtype,
        .dims_count = tensor->dims_count,
        .shape = {tensor->rows, tensor->dims_count == 2 ? tensor->columns : 0}};
}

/* Decides for each slice which of its holders sends it, and adds those that this rank sends. The
 * holders take turns, tensor by tensor. */
static tdm_status assign_senders(struct tdm__named_layout *named_layout, const void *weights,
                                 const struct slice_holdings *holdings, struct tensor_index *index)
{
    uint32_t end;

    for (uint32_t first = 0; first < holdings->count; first = end) {
        const struct slice_holding *part = &holdings->all[first];
        const struct slice_holding *sender;

        end = first + 1;
        while (end < holdings->count && compare_parts(part, &holdings->all[end]) == 0) {
            end++;
        }
        if (index->manifest_index[part->tensor] == UINT32_MAX) {
            add_model_tensor(named_layout, part, index);
        }
        sender = &holdings->all[first + part->tensor % (end - first)];
        if (sender->rank == named_layout->rank) {
            TDM_TRY(add_slice(named_layout, weights, &named_layout->shards.slices[sender->piece],
                              index, sender->dtype));
        }
    }
    return TDM_OK;
}

/* Builds the list of tensors and the slices that this trainer rank sends. */
static tdm_status make_trainer_layout(struct tdm__named_layout *named_layout, const void *weights,
                                      struct slice_holdings *holdings, struct tensor_index *index)
{
    size_t count = named_layout->model->tensors_count + (size_t)1;

    TDM_TRY(collect_holdings(named_layout, holdings));
    TDM_TRY(allocate_slices(named_layout));
    named_layout->model_tensors = calloc(count, sizeof(*named_layout->model_tensors));
    named_layout->model_names = calloc(count, sizeof(*named_layout->model_names));
    if (named_layout->model_tensors == NULL || named_layout->model_names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s: %zu tensors", named_layout->where, count);
    }
    return assign_senders(named_layout, weights, holdings, index);
}

tdm_status tdm__named_layout_build_trainer(struct tdm__named_layout *named_layout,
                                           const void *weights,
                                           const struct tdm_tensor_info **tensors_out,
                                           uint32_t *tensors_count_out,
                                           struct tdm__layout *layout_out)
{
    struct slice_holdings holdings = {.all = NULL};
    struct tensor_index index;
    tdm_status status;

    TDM_TRY(tensor_index_init(&index, named_layout->model));
    status = make_trainer_layout(named_layout, weights, &holdings, &index);
    free(holdings.all);
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
