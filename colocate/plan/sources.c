/* sources.c - who holds which rectangles of each of a model's tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/plan/sources.h"

#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

static int compare_numbers(uint32_t one, uint32_t other)
{
    return (one > other) - (one < other);
}

static int compare_rectangles(const struct tdm__rectangle *one,
                              const struct tdm__rectangle *other)
{
    int order = compare_numbers(one->row, other->row);

    order = order != 0 ? order : compare_numbers(one->column, other->column);
    order = order != 0 ? order : compare_numbers(one->rows, other->rows);
    return order != 0 ? order : compare_numbers(one->columns, other->columns);
}

static int compare_holders(const void *one, const void *other)
{
    const struct tdm__holder *a = one;
    const struct tdm__holder *b = other;
    int order = compare_rectangles(&a->rectangle, &b->rectangle);

    order = order != 0 ? order : compare_numbers(a->rank, b->rank);
    return order != 0 ? order : compare_numbers(a->local, b->local);
}

/* Leaves in firsts[i + 1] how many holders tensor i has, then where those of i + 1 begin. */
static uint32_t count_holders(const struct tdm__model *model, const struct tdm__shards *shards,
                              uint32_t ranks_count, uint32_t *firsts)
{
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        for (uint32_t i = 0; i < shards[rank].pieces_count; i++) {
            firsts[shards[rank].pieces[i].tensor + 1]++;
        }
    }
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        firsts[i + 1] += firsts[i];
    }
    return firsts[model->tensors_count];
}

/* `nexts` is where the next holder of each tensor goes. */
static void fill_holders(const struct tdm__shards *shards, uint32_t rank, uint32_t *nexts,
                         struct tdm__holder *holders)
{
    for (uint32_t i = 0; i < shards->pieces_count; i++) {
        const struct tdm__piece *piece = &shards->pieces[i];

        holders[nexts[piece->tensor]++] =
            (struct tdm__holder){.rectangle = piece->rectangle,
                                 .offset = piece->offset,
                                 .pitch = piece->pitch,
                                 .rank = rank,
                                 .local = piece->local,
                                 .dtype = shards->locals[piece->local].dtype};
    }
}

tdm_status tdm__sources_make(const struct tdm__model *model, const struct tdm__shards *shards,
                             uint32_t ranks_count, struct tdm__sources *sources_out)
{
    size_t firsts_count = (size_t)model->tensors_count + 1;
    uint32_t *firsts = calloc(firsts_count, sizeof(*firsts));
    uint32_t *nexts = calloc(firsts_count, sizeof(*nexts));
    struct tdm__holder *holders = NULL;

    if (firsts != NULL && nexts != NULL) {
        uint32_t count = count_holders(model, shards, ranks_count, firsts);

        holders = calloc((size_t)count + 1, sizeof(*holders));
    }
    if (holders == NULL) {
        free(firsts);
        free(nexts);
        return tdm__fail(TDM_E_NOMEM, "the sources of %u tensors", model->tensors_count);
    }
    memcpy(nexts, firsts, firsts_count * sizeof(*nexts));
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        fill_holders(&shards[rank], rank, nexts, holders);
    }
    free(nexts);
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        qsort(holders + firsts[i], firsts[i + 1] - firsts[i], sizeof(*holders),
              compare_holders);
    }
    *sources_out = (struct tdm__sources){firsts, holders};
    return TDM_OK;
}

void tdm__sources_fini(struct tdm__sources *sources)
{
    free(sources->firsts);
    free(sources->holders);
    *sources = (struct tdm__sources){.firsts = NULL};
}

uint32_t tdm__sources_replicas(const struct tdm__holder *holder, const struct tdm__holder *end)
{
    const struct tdm__holder *at = holder;

    while (at < end && compare_rectangles(&at->rectangle, &holder->rectangle) == 0) {
        at++;
    }
    return (uint32_t)(at - holder);
}
