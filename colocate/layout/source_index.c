/* source_index.c - an index of the slices that the ranks of a source hold, by the model's
 * tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/source_index.h"

#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Returns a negative value, 0 or a positive value if `one` is less than, equal to or greater than
 * `other`. */
static int compare_numbers(uint32_t one, uint32_t other)
{
    return (one > other) - (one < other);
}

/* Orders rectangles by row, column, number of rows and number of columns, for qsort(). */
static int compare_rectangles(const struct tdm__rectangle *one, const struct tdm__rectangle *other)
{
    int order = compare_numbers(one->row, other->row);

    order = order != 0 ? order : compare_numbers(one->column, other->column);
    order = order != 0 ? order : compare_numbers(one->rows, other->rows);
    return order != 0 ? order : compare_numbers(one->columns, other->columns);
}

/* Orders slices by rectangle, rank and index of the rank's tensor, for qsort(). */
static int compare_source_slices(const void *one, const void *other)
{
    const struct tdm__source_slice *a = one;
    const struct tdm__source_slice *b = other;
    int order = compare_rectangles(&a->rectangle, &b->rectangle);

    order = order != 0 ? order : compare_numbers(a->rank, b->rank);
    return order != 0 ? order : compare_numbers(a->shard_tensor, b->shard_tensor);
}

/* Computes tensor_offsets, the index of each tensor's first slice, and returns the number of slices
 * of all ranks. */
static uint32_t count_source_slices(const struct tdm__model *model,
                                    const struct tdm__rank_shards *shards, uint32_t ranks_count,
                                    uint32_t *tensor_offsets)
{
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        for (uint32_t i = 0; i < shards[rank].slices_count; i++) {
            tensor_offsets[shards[rank].slices[i].tensor + 1]++;
        }
    }
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        tensor_offsets[i + 1] += tensor_offsets[i];
    }
    return tensor_offsets[model->tensors_count];
}

/* Copies the slices of one rank into the index. `nexts` has the position of the next slice of
 * each tensor. */
static void fill_source_slices(const struct tdm__rank_shards *shards, uint32_t rank,
                               uint32_t *nexts, struct tdm__source_slice *source_slices)
{
    for (uint32_t i = 0; i < shards->slices_count; i++) {
        const struct tdm__tensor_slice *slice = &shards->slices[i];

        source_slices[nexts[slice->tensor]++] =
            (struct tdm__source_slice){.rectangle = slice->rectangle,
                                       .offset = slice->offset,
                                       .pitch = slice->pitch,
                                       .rank = rank,
                                       .shard_tensor = slice->shard_tensor,
                                       .dtype = shards->shard_tensors[slice->shard_tensor].dtype};
    }
}

tdm_status tdm__source_index_init(const struct tdm__model *model,
                                  const struct tdm__rank_shards *shards, uint32_t ranks_count,
                                  struct tdm__source_index *sources_out)
{
    size_t firsts_count = (size_t)model->tensors_count + 1;
    uint32_t *tensor_offsets = calloc(firsts_count, sizeof(*tensor_offsets));
    uint32_t *nexts = calloc(firsts_count, sizeof(*nexts));
    struct tdm__source_slice *source_slices = NULL;

    if (tensor_offsets != NULL && nexts != NULL) {
        uint32_t count = count_source_slices(model, shards, ranks_count, tensor_offsets);

        source_slices = calloc((size_t)count + 1, sizeof(*source_slices));
    }
    if (source_slices == NULL) {
        free(tensor_offsets);
        free(nexts);
        return tdm__fail(TDM_E_NOMEM, "the sources of %u tensors", model->tensors_count);
    }
    memcpy(nexts, tensor_offsets, firsts_count * sizeof(*nexts));
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        fill_source_slices(&shards[rank], rank, nexts, source_slices);
    }
    free(nexts);
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        qsort(source_slices + tensor_offsets[i], tensor_offsets[i + 1] - tensor_offsets[i],
              sizeof(*source_slices), compare_source_slices);
    }
    *sources_out = (struct tdm__source_index){tensor_offsets, source_slices};
    return TDM_OK;
}

void tdm__source_index_fini(struct tdm__source_index *sources)
{
    free(sources->tensor_offsets);
    free(sources->source_slices);
    *sources = (struct tdm__source_index){.tensor_offsets = NULL};
}

uint32_t tdm__source_replicas_count(const struct tdm__source_slice *source_slice,
                                    const struct tdm__source_slice *end)
{
    const struct tdm__source_slice *at = source_slice;

    while (at < end && compare_rectangles(&at->rectangle, &source_slice->rectangle) == 0) {
        at++;
    }
    return (uint32_t)(at - source_slice);
}
