/* replicas.c - which trainer ranks hold the same slice of a tensor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/replicas.h"

#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Returns a negative value, 0 or a positive value if `one` is less than, equal to or greater than
 * `other`. */
static int compare_numbers(uint64_t one, uint64_t other)
{
    return (one > other) - (one < other);
}

/* Orders slices by tensor and by the elements that they contain; 0 if both contain the same ones in
 * the same order. */
static int compare_contents(const struct tdm_slice *one, const struct tdm_slice *other)
{
    int order = compare_numbers(one->tensor, other->tensor);

    order = order != 0 ? order : compare_numbers(one->flat, other->flat);
    for (uint32_t i = 0; i < TDM_DIMS_MAX && order == 0; i++) {
        order = compare_numbers(one->offset[i], other->offset[i]);
        order = order != 0 ? order : compare_numbers(one->extent[i], other->extent[i]);
    }
    return order;
}

/* Orders holders by what they hold, then by rank and slice, for qsort_r(). */
static int compare_holders(const void *a, const void *b, void *arg)
{
    const struct tdm__layout *layouts = arg;
    const struct tdm__slice_holder *one = a;
    const struct tdm__slice_holder *other = b;
    int order = compare_contents(&layouts[one->rank].slices[one->slice],
                                 &layouts[other->rank].slices[other->slice]);

    order = order != 0 ? order : compare_numbers(one->rank, other->rank);
    return order != 0 ? order : compare_numbers(one->slice, other->slice);
}

/* Lists the slices of all ranks, ordered by group and rank. */
static void list_holders(const struct tdm__layout *layouts, uint32_t layouts_count, uint32_t total,
                         struct tdm__replicas *replicas)
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < layouts_count; rank++) {
        replicas->rank_firsts[rank] = count;
        for (uint32_t i = 0; i < layouts[rank].slices_count; i++) {
            replicas->holders[count++] = (struct tdm__slice_holder){rank, i};
        }
    }
    qsort_r(replicas->holders, total, sizeof(*replicas->holders), compare_holders,
            (void *)(uintptr_t)layouts);
}

/* Finds where each group begins. */
static void find_groups(const struct tdm__layout *layouts, uint32_t total,
                        struct tdm__replicas *replicas)
{
    for (uint32_t i = 0; i < total; i++) {
        const struct tdm__slice_holder *holder = &replicas->holders[i];

        if (i == 0 || compare_contents(&layouts[holder[-1].rank].slices[holder[-1].slice],
                                       &layouts[holder->rank].slices[holder->slice]) != 0) {
            replicas->groups[replicas->groups_count++] = i;
        }
    }
    replicas->groups[replicas->groups_count] = total;
}

/* Chooses for each group the holder whose rank sends the fewest bytes so far. */
static void choose_senders(const struct tdm__manifest *manifest, const struct tdm__layout *layouts,
                           uint64_t *sent_bytes, struct tdm__replicas *replicas)
{
    for (uint32_t group = 0; group < replicas->groups_count; group++) {
        const struct tdm__slice_holder *chosen = &replicas->holders[replicas->groups[group]];

        for (uint32_t i = replicas->groups[group] + 1; i < replicas->groups[group + 1]; i++) {
            if (sent_bytes[replicas->holders[i].rank] < sent_bytes[chosen->rank]) {
                chosen = &replicas->holders[i];
            }
        }
        replicas->sends[replicas->rank_firsts[chosen->rank] + chosen->slice] = true;
        sent_bytes[chosen->rank] +=
            tdm__slice_bytes(manifest, &layouts[chosen->rank].slices[chosen->slice]);
    }
}

tdm_status tdm__replicas_init(const struct tdm__manifest *manifest,
                              const struct tdm__layout *layouts, uint32_t layouts_count,
                              struct tdm__replicas *replicas_out)
{
    struct tdm__replicas replicas = {.groups_count = 0};
    uint64_t *sent_bytes = calloc((size_t)layouts_count + 1, sizeof(*sent_bytes));
    size_t total = 0;

    for (uint32_t rank = 0; rank < layouts_count; rank++) {
        total += layouts[rank].slices_count;
    }
    replicas.holders = calloc(total + 1, sizeof(*replicas.holders));
    replicas.groups = calloc(total + 1, sizeof(*replicas.groups));
    replicas.rank_firsts = calloc((size_t)layouts_count + 1, sizeof(*replicas.rank_firsts));
    replicas.sends = calloc(total + 1, sizeof(*replicas.sends));
    if (sent_bytes == NULL || replicas.holders == NULL || replicas.groups == NULL ||
        replicas.rank_firsts == NULL || replicas.sends == NULL || total >= UINT32_MAX) {
        free(sent_bytes);
        tdm__replicas_fini(&replicas);
        return tdm__fail(TDM_E_NOMEM, "allocating %zu slices of %u ranks failed: out of memory",
                         total, layouts_count);
    }
    list_holders(layouts, layouts_count, (uint32_t)total, &replicas);
    find_groups(layouts, (uint32_t)total, &replicas);
    choose_senders(manifest, layouts, sent_bytes, &replicas);
    free(sent_bytes);
    *replicas_out = replicas;
    return TDM_OK;
}

void tdm__replicas_fini(struct tdm__replicas *replicas)
{
    free(replicas->holders);
    free(replicas->groups);
    free(replicas->rank_firsts);
    free(replicas->sends);
    *replicas = (struct tdm__replicas){.holders = NULL};
}

bool tdm__replicas_sends(const struct tdm__replicas *replicas, uint32_t rank, uint32_t slice)
{
    return replicas->sends[replicas->rank_firsts[rank] + slice];
}
