/* named_slices.c - a rank of a layout that the job file names: its parts of the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/named.h"

#include "colocate/plan/grow.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Where tensors of the model are among those of the manifest; none: UINT32_MAX. */
struct index {
    uint32_t *of; /* owned; one for each of the model's tensors */
};

static tdm_status index_init(struct index *index, const struct tdm__model *model)
{
    index->of = malloc((model->tensors_count + 1u) * sizeof(*index->of));
    if (index->of == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u tensors", model->tensors_count);
    }
    memset(index->of, 0xff, (model->tensors_count + 1u) * sizeof(*index->of));
    return TDM_OK;
}

static bool is_scale(const struct tdm__model *model, uint32_t tensor)
{
    return model->tensors[tensor].kind == TDM__KIND_SCALE;
}

/* ---- slices ----------------------------------------------------------------------------- */

/* TDM_E_INVAL for a part whose rows do not lie one behind the other. */
static tdm_status find_address(const struct tdm__named *named, const void *weights,
                               const struct tdm__piece *piece, const void **address_out)
{
    const struct tdm__local *local = &named->shards.locals[piece->local];
    char name[TDM_TENSOR_NAME_BYTES_MAX];

    if (piece->rectangle.rows > 1 && piece->pitch != piece->rectangle.columns) {
        return tdm__fail(TDM_E_INVAL, "%s: %s lies in %s with a gap behind each row of %u",
                         named->where, tdm__model_name(named->model, piece->tensor, name),
                         named->names[piece->local], piece->rectangle.columns);
    }
    *address_out = (const char *)weights + named->tensors[piece->local].offset_bytes +
                   piece->offset * tdm_dtype_bytes((enum tdm_dtype)local->dtype);
    return TDM_OK;
}

static tdm_status add_slice(struct tdm__named *named, const void *weights,
                            const struct tdm__piece *piece, const struct index *index,
                            enum tdm_dtype dtype_there)
{
    enum tdm_dtype dtype = (enum tdm_dtype)named->shards.locals[piece->local].dtype;
    struct tdm_slice *slice = &named->slices[named->slices_count];

    *slice = (struct tdm_slice){
        .tensor = index->of[piece->tensor],
        .offset = {piece->rectangle.row},
        .extent = {piece->rectangle.rows},
        .dtype = dtype != dtype_there ? dtype : 0,
    };
    if (named->model->tensors[piece->tensor].dims_count == 2) {
        slice->offset[1] = piece->rectangle.column;
        slice->extent[1] = piece->rectangle.columns;
    }
    TDM_TRY(find_address(named, weights, piece, &slice->address));
    if (dtype == TDM_F8_E4M3 && piece->scale != TDM__NO_PIECE) {
        TDM_TRY(
            find_address(named, weights, &named->shards.pieces[piece->scale], &slice->scales));
    }
    named->slices_count++;
    return TDM_OK;
}

static tdm_status begin_slices(struct tdm__named *named)
{
    free(named->slices);
    named->slices_count = 0;
    named->slices = calloc(named->shards.pieces_count + 1u, sizeof(*named->slices));
    return named->slices != NULL ? TDM_OK
                                 : tdm__fail(TDM_E_NOMEM, "%s: %u parts", named->where,
                                             named->shards.pieces_count);
}

/* ---- a trainer's ------------------------------------------------------------------------ */

/* A part that a rank has. */
struct holding {
    uint32_t tensor;
    struct tdm__rectangle rectangle;
    uint32_t rank;
    uint32_t piece;
    enum tdm_dtype dtype;
};

struct holdings {
    struct holding *all; /* owned */
    uint32_t count;
    uint32_t room;
};

static int compare_parts(const struct holding *one, const struct holding *other)
{
    if (one->tensor != other->tensor) {
        return one->tensor < other->tensor ? -1 : 1;
    }
    return memcmp(&one->rectangle, &other->rectangle, sizeof(one->rectangle));
}

static int compare_holdings(const void *a, const void *b)
{
    const struct holding *one = a;
    const struct holding *other = b;
    int order = compare_parts(one, other);

    if (order != 0) {
        return order;
    }
    if (one->rank != other->rank) {
        return one->rank < other->rank ? -1 : 1;
    }
    return one->piece < other->piece ? -1 : one->piece > other->piece;
}

static tdm_status add_holding(const struct tdm__named *named, const struct tdm__shards *shards,
                              uint32_t rank, uint32_t piece_index, struct holdings *holdings)
{
    const struct tdm__piece *piece = &shards->pieces[piece_index];
    struct holding holding = {.tensor = piece->tensor,
                              .rectangle = piece->rectangle,
                              .rank = rank,
                              .piece = piece_index,
                              .dtype = (enum tdm_dtype)shards->locals[piece->local].dtype};
    char name[TDM_TENSOR_NAME_BYTES_MAX];

    if (holding.dtype == TDM_F8_E4M3 || is_scale(named->model, piece->tensor)) {
        return tdm__fail(TDM_E_UNSUPPORTED, "%s: %s is FP8, which trainers do not send",
                         named->where, tdm__model_name(named->model, piece->tensor, name));
    }
    TDM_TRY(
        tdm__grow((void **)&holdings->all, &holdings->room, holdings->count, sizeof(holding)));
    holdings->all[holdings->count++] = holding;
    return TDM_OK;
}

static tdm_status add_rank(const struct tdm__named *named, uint32_t rank,
                           struct holdings *holdings)
{
    struct tdm__shards shards;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__shards_make(named->model, &named->sharding, rank, TDM__ROLE_SOURCE, &shards));
    for (uint32_t i = 0; i < shards.pieces_count && status == TDM_OK; i++) {
        status = add_holding(named, &shards, rank, i, holdings);
    }
    tdm__shards_fini(&shards);
    return status;
}

/* Of all ranks, each part with those who hold it behind each other. */
static tdm_status collect(const struct tdm__named *named, struct holdings *holdings)
{
    for (uint32_t rank = 0; rank < named->sharding.ranks_count; rank++) {
        TDM_TRY(tdm__wrap(add_rank(named, rank, holdings), "%s: rank %u", named->where, rank));
    }
    if (holdings->count > 0) {
        qsort(holdings->all, holdings->count, sizeof(holdings->all[0]), compare_holdings);
    }
    return TDM_OK;
}

static void add_model_tensor(struct tdm__named *named, const struct holding *holding,
                             struct index *index)
{
    const struct tdm__model_tensor *tensor = &named->model->tensors[holding->tensor];
    uint32_t i = named->model_tensors_count++;

    index->of[holding->tensor] = i;
    named->model_tensors[i] = (struct tdm_tensor_info){
        .name = tdm__model_name(named->model, holding->tensor, named->model_names[i]),
        .dtype = holding->dtype,
        .dims_count = tensor->dims_count,
        .shape = {tensor->rows, tensor->dims_count == 2 ? tensor->columns : 0}};
}

/* Those who hold the same part take turns, tensor by tensor, in sending it. */
static tdm_status share_out(struct tdm__named *named, const void *weights,
                            const struct holdings *holdings, struct index *index)
{
    uint32_t end;

    for (uint32_t first = 0; first < holdings->count; first = end) {
        const struct holding *part = &holdings->all[first];
        const struct holding *sender;

        end = first + 1;
        while (end < holdings->count && compare_parts(part, &holdings->all[end]) == 0) {
            end++;
        }
        if (index->of[part->tensor] == UINT32_MAX) {
            add_model_tensor(named, part, index);
        }
        sender = &holdings->all[first + part->tensor % (end - first)];
        if (sender->rank == named->rank) {
            TDM_TRY(add_slice(named, weights, &named->shards.pieces[sender->piece], index,
                              sender->dtype));
        }
    }
    return TDM_OK;
}

static tdm_status make_trainer_layout(struct tdm__named *named, const void *weights,
                                      struct holdings *holdings, struct index *index)
{
    size_t count = named->model->tensors_count + (size_t)1;

    TDM_TRY(collect(named, holdings));
    TDM_TRY(begin_slices(named));
    named->model_tensors = calloc(count, sizeof(*named->model_tensors));
    named->model_names = calloc(count, sizeof(*named->model_names));
    if (named->model_tensors == NULL || named->model_names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s: %zu tensors", named->where, count);
    }
    return share_out(named, weights, holdings, index);
}

tdm_status tdm__named_trainer_layout(struct tdm__named *named, const void *weights,
                                     const struct tdm_tensor_info **tensors_out,
                                     uint32_t *tensors_count_out,
                                     struct tdm__layout *layout_out)
{
    struct holdings holdings = {.all = NULL};
    struct index index;
    tdm_status status;

    TDM_TRY(index_init(&index, named->model));
    status = make_trainer_layout(named, weights, &holdings, &index);
    free(holdings.all);
    free(index.of);
    TDM_TRY(status);
    *tensors_out = named->model_tensors;
    *tensors_count_out = named->model_tensors_count;
    *layout_out = (struct tdm__layout){named->slices, named->slices_count};
    return TDM_OK;
}

/* ---- an engine's ------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct tdm_tensor_info *const *)a)->name,
                  (*(const struct tdm_tensor_info *const *)b)->name);
}

static tdm_status check_shape(const struct tdm__named *named, uint32_t tensor,
                              const struct tdm_tensor_info *there)
{
    const struct tdm__model_tensor *here = &named->model->tensors[tensor];

    if (there->dims_count != here->dims_count || there->shape[0] != here->rows ||
        (here->dims_count == 2 && there->shape[1] != here->columns)) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: %s has %u x %u elements in model.config, but trainers have "
                         "%llu x %llu",
                         named->where, there->name, here->rows, here->columns,
                         (unsigned long long)there->shape[0],
                         (unsigned long long)(there->dims_count == 2 ? there->shape[1] : 1));
    }
    return TDM_OK;
}

/* `sorted` are the manifest's tensors, by name. */
static tdm_status find_tensor(const struct tdm__named *named, uint32_t tensor,
                              const struct tdm__manifest *manifest,
                              const struct tdm_tensor_info *const *sorted, struct index *index)
{
    char name[TDM_TENSOR_NAME_BYTES_MAX];
    const struct tdm_tensor_info wanted = {.name = tdm__model_name(named->model, tensor, name)};
    const struct tdm_tensor_info *key = &wanted;
    const struct tdm_tensor_info *const *found =
        bsearch(&key, sorted, manifest->tensors_count, sizeof(*sorted), compare_names);

    if (found == NULL) {
        return tdm__fail(TDM_E_INVAL, "%s: trainers have no tensor %s", named->where, name);
    }
    TDM_TRY(check_shape(named, tensor, *found));
    index->of[tensor] = (uint32_t)(*found - manifest->tensors);
    return TDM_OK;
}

static tdm_status make_engine_layout(struct tdm__named *named, const void *weights,
                                     const struct tdm__manifest *manifest,
                                     const struct tdm_tensor_info **sorted, struct index *index)
{
    for (uint32_t i = 0; i < manifest->tensors_count; i++) {
        sorted[i] = &manifest->tensors[i];
    }
    qsort(sorted, manifest->tensors_count, sizeof(*sorted), compare_names);
    TDM_TRY(begin_slices(named));
    for (uint32_t i = 0; i < named->shards.pieces_count; i++) {
        const struct tdm__piece *piece = &named->shards.pieces[i];

        if (is_scale(named->model, piece->tensor)) {
            continue; /* comes with what it is the scale of */
        }
        if (index->of[piece->tensor] == UINT32_MAX) {
            TDM_TRY(find_tensor(named, piece->tensor, manifest, sorted, index));
        }
        TDM_TRY(add_slice(named, weights, piece, index,
                          manifest->tensors[index->of[piece->tensor]].dtype));
    }
    return TDM_OK;
}

tdm_status tdm__named_engine_layout(struct tdm__named *named, const void *weights,
                                    const struct tdm__manifest *manifest,
                                    struct tdm__layout *layout_out)
{
    const struct tdm_tensor_info **sorted =
        calloc(manifest->tensors_count + 1u, sizeof(*sorted));
    struct index index = {.of = NULL};
    tdm_status status = sorted == NULL ? tdm__fail(TDM_E_NOMEM, "%s", named->where)
                                       : index_init(&index, named->model);

    if (status == TDM_OK) {
        status = make_engine_layout(named, weights, manifest, sorted, &index);
    }
    free(index.of);
    free(sorted);
    TDM_TRY(status);
    *layout_out = (struct tdm__layout){named->slices, named->slices_count};
    return TDM_OK;
}
