/* plan_sources.c - what the trainer ranks of a transfer plan hold, and which of them copies. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Equal slices of trainer ranks are one group (replicas.h), of which each part is copied from the
 * nearest rank (tdm__plan_sources_choose()). Tensors of one or two dimensions whose slices are all
 * boxes are planned by rectangles, which are intersections of boxes. Groups of other tensors become
 * element runs: consecutive elements of a tensor that are also consecutive in a slice, sorted by
 * tensor and element. Overlaps that are no equal slices are refused.
 *
 * Ranks that are equally near share the work. The compiler's first pass counts the bytes that a
 * rank must send because no other one is as near. The second pass gives the rest to the ranks that
 * have sent the fewest. The result depends on the arguments only. There are no locks. */

#include "colocate/weights/plan_sources.h"

#include "colocate/weights/convert.h"
#include "runtime/array_grow.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/splitmix.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- slices as runs ------------------------------------------------------------------ */

/* Appends an element run, or extends the last run of the array if the new one continues it. */
static tdm_status add_run(struct tdm__element_runs *runs, struct tdm__element_run run)
{
    struct tdm__element_run *last = runs->count == 0 ? NULL : &runs->items[runs->count - 1];

    if (last != NULL && last->rank == run.rank && last->slice == run.slice &&
        last->end == run.begin) {
        last->end = run.end;
        return TDM_OK;
    }
    TDM_TRY(tdm__array_grow((void **)&runs->items, &runs->capacity, runs->count, sizeof(run)));
    TDM_ASSERT(runs->items != NULL);
    runs->items[runs->count++] = run;
    return TDM_OK;
}

/* Appends the element runs of a slice that is a box (a range in each dimension). The trailing
 * dimensions that the box covers fully, and the one before them, are consecutive in the tensor; the
 * dimensions before those are counted like an odometer. */
static tdm_status add_box(struct tdm__element_runs *runs, const struct tdm_tensor_info *tensor,
                          const struct tdm_slice *slice, struct tdm__element_run run)
{
    /* Distance in elements between neighbours in each dimension of the tensor. */
    uint64_t step[TDM_DIMS_MAX] = {0};
    uint64_t at[TDM_DIMS_MAX] = {0};
    uint64_t inner = 1;
    uint64_t whole = 1;
    uint32_t outer = tensor->dims_count;
    bool full = true;

    for (uint32_t i = tensor->dims_count; i-- > 0;) {
        step[i] = whole;
        whole *= tensor->shape[i];
        if (full) {
            inner *= slice->extent[i];
            outer = i;
            full = slice->extent[i] == tensor->shape[i];
        }
    }
    for (bool more = true; more;) {
        run.begin = 0;
        for (uint32_t i = 0; i < tensor->dims_count; i++) {
            run.begin += (slice->offset[i] + at[i]) * step[i];
        }
        run.end = run.begin + inner;
        TDM_TRY(add_run(runs, run));
        run.slice_offset += inner;
        more = false;
        for (uint32_t i = outer; i-- > 0 && !more;) {
            at[i] = at[i] + 1 < slice->extent[i] ? at[i] + 1 : 0;
            more = at[i] != 0;
        }
    }
    return TDM_OK;
}

tdm_status tdm__element_runs_add_slice(struct tdm__element_runs *runs,
                                       const struct tdm__manifest *manifest,
                                       const struct tdm_slice *slice, uint32_t index, uint32_t rank)
{
    struct tdm__element_run run = {.tensor = slice->tensor, .slice = index, .rank = rank};

    if (slice->flat == 0) {
        return add_box(runs, &manifest->tensors[slice->tensor], slice, run);
    }
    run.begin = slice->offset[0];
    run.end = slice->offset[0] + slice->extent[0];
    return add_run(runs, run);
}

/* ---- what trainers hold -------------------------------------------------------------- */

/* Orders element runs by tensor, first element and rank, for qsort(). */
static int compare_runs(const void *a, const void *b)
{
    const struct tdm__element_run *left = a;
    const struct tdm__element_run *right = b;

    if (left->tensor != right->tensor) {
        return left->tensor < right->tensor ? -1 : 1;
    }
    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Returns the error for elements that two slices of trainer ranks hold. */
static tdm_status overlap_error(const struct tdm__plan_sources *sources,
                                const struct tdm__element_run *first,
                                const struct tdm__element_run *second)
{
    return tdm__fail(TDM_E_INVAL,
                     "planning the transfer of weights failed: tensor %s: elements %" PRIu64
                     " to %" PRIu64 " are in slices of rank %" PRIu32 " and of rank %" PRIu32
                     ". Let the trainers' slices be equal or disjoint",
                     sources->options.manifest->tensors[second->tensor].name, second->begin,
                     (first->end < second->end ? first->end : second->end) - 1, first->rank,
                     second->rank);
}

/* Sorts the element runs that trainer ranks hold, refuses overlaps and fills `firsts`. */
static tdm_status sort_held_runs(struct tdm__plan_sources *sources)
{
    uint32_t tensors_count = sources->options.manifest->tensors_count;
    struct tdm__element_runs *held = &sources->held;

    if (held->count > 0) {
        qsort(held->items, held->count, sizeof(held->items[0]), compare_runs);
    }
    for (uint32_t i = 0; i < held->count; i++) {
        const struct tdm__element_run *run = &held->items[i];

        sources->firsts[run->tensor + 1] = i + 1;
        if (i > 0 && run[-1].tensor == run->tensor && run[-1].end > run->begin) {
            return overlap_error(sources, &run[-1], run);
        }
    }
    for (uint32_t i = 0; i < tensors_count; i++) {
        if (sources->firsts[i + 1] < sources->firsts[i]) {
            sources->firsts[i + 1] = sources->firsts[i]; /* No trainer rank holds this tensor. */
        }
    }
    return TDM_OK;
}

/* Checks that a trainer's slice does not ask for another dtype than the manifest has for its
 * tensor. */
static tdm_status check_held_dtype(const struct tdm__manifest *manifest,
                                   const struct tdm_slice *slice)
{
    const struct tdm_tensor_info *tensor = &manifest->tensors[slice->tensor];

    return tdm__slice_dtype(tensor, slice) == tensor->dtype
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL,
                           "planning the transfer of weights failed: tensor %s: a trainer's slice "
                           "is %s instead of %s. Declare it in the tensor's dtype",
                           tensor->name, tdm_dtype_name(slice->dtype),
                           tdm_dtype_name(tensor->dtype));
}

/* Checks the layouts of all trainer ranks. */
static tdm_status check_held_layouts(const struct tdm__plan_sources_options *options)
{
    for (uint32_t rank = 0; rank < options->from_count; rank++) {
        const struct tdm__layout *layout = &options->from[rank];

        TDM_TRY(
            tdm__wrap(tdm__layout_check(layout, options->manifest), "trainer rank %" PRIu32, rank));
        for (uint32_t i = 0; i < layout->slices_count; i++) {
            TDM_TRY(check_held_dtype(options->manifest, &layout->slices[i]));
        }
    }
    return TDM_OK;
}

const struct tdm_slice *tdm__plan_sources_slice(const struct tdm__plan_sources *sources,
                                                uint32_t group)
{
    const struct tdm__slice_holder *first =
        &sources->replicas.holders[sources->replicas.groups[group]];

    return &sources->options.from[first->rank].slices[first->slice];
}

/* Returns the rank of the first holder of a group. */
static uint32_t group_rank(const struct tdm__plan_sources *sources, uint32_t group)
{
    return sources->replicas.holders[sources->replicas.groups[group]].rank;
}

/* Marks the tensors that are planned by runs. */
static void mark_by_runs(struct tdm__plan_sources *sources)
{
    const struct tdm__plan_sources_options *options = &sources->options;

    for (uint32_t i = 0; i < options->manifest->tensors_count; i++) {
        const struct tdm_tensor_info *tensor = &options->manifest->tensors[i];

        sources->by_runs[i] = tensor->dims_count == 0 || tensor->dims_count > 2 ||
                              tdm_tensor_elements(tensor) > UINT32_MAX;
    }
    for (uint32_t i = 0; i < sources->replicas.groups_count; i++) {
        const struct tdm_slice *slice = tdm__plan_sources_slice(sources, i);

        sources->by_runs[slice->tensor] |= slice->flat != 0;
    }
    for (uint32_t rank = 0; rank < options->to_count; rank++) {
        for (uint32_t i = 0; i < options->to[rank].slices_count; i++) {
            const struct tdm_slice *slice = &options->to[rank].slices[i];

            sources->by_runs[slice->tensor] |= slice->flat != 0;
        }
    }
}

/* Collects and sorts the element runs of the tensors that are planned by runs. */
static tdm_status collect_held_runs(struct tdm__plan_sources *sources)
{
    for (uint32_t i = 0; i < sources->replicas.groups_count; i++) {
        const struct tdm_slice *slice = tdm__plan_sources_slice(sources, i);

        if (sources->by_runs[slice->tensor]) {
            TDM_TRY(tdm__element_runs_add_slice(&sources->held, sources->options.manifest, slice, i,
                                                group_rank(sources, i)));
        }
    }
    return sort_held_runs(sources);
}

/* ---- rectangles ---------------------------------------------------------------------- */

struct tdm__plan_rectangle tdm__plan_rectangle_of_slice(const struct tdm_tensor_info *tensor,
                                                        const struct tdm_slice *slice)
{
    return tensor->dims_count == 2
               ? (struct tdm__plan_rectangle){slice->offset[0], slice->offset[1], slice->extent[0],
                                              slice->extent[1]}
               : (struct tdm__plan_rectangle){0, slice->offset[0], 1, slice->extent[0]};
}

bool tdm__plan_rectangle_intersect(const struct tdm__plan_rectangle *one,
                                   const struct tdm__plan_rectangle *other,
                                   struct tdm__plan_rectangle *both_out)
{
    uint64_t row = one->row > other->row ? one->row : other->row;
    uint64_t column = one->column > other->column ? one->column : other->column;
    uint64_t row_end = one->row + one->rows;
    uint64_t column_end = one->column + one->columns;

    row_end = row_end < other->row + other->rows ? row_end : other->row + other->rows;
    column_end =
        column_end < other->column + other->columns ? column_end : other->column + other->columns;
    if (row >= row_end || column >= column_end) {
        return false;
    }
    *both_out = (struct tdm__plan_rectangle){row, column, row_end - row, column_end - column};
    return true;
}

/* Checks that the box of a group has nothing in common with those of the later groups of its
 * tensor, which are ordered by their first rows. */
static tdm_status check_group_disjoint(const struct tdm__plan_sources *sources, uint32_t group)
{
    const struct tdm_slice *slice = tdm__plan_sources_slice(sources, group);
    const struct tdm_tensor_info *tensor = &sources->options.manifest->tensors[slice->tensor];
    struct tdm__plan_rectangle box = tdm__plan_rectangle_of_slice(tensor, slice);

    for (uint32_t i = group + 1; i < sources->groups[slice->tensor + 1]; i++) {
        struct tdm__plan_rectangle other =
            tdm__plan_rectangle_of_slice(tensor, tdm__plan_sources_slice(sources, i));
        struct tdm__plan_rectangle common;

        if (other.row >= box.row + box.rows) {
            break;
        }
        if (tdm__plan_rectangle_intersect(&box, &other, &common)) {
            uint64_t columns = tensor->shape[tensor->dims_count - 1];
            uint64_t begin = common.row * columns + common.column;
            struct tdm__element_run first = {.end = begin + common.columns,
                                             .rank = group_rank(sources, group)};
            struct tdm__element_run second = {.begin = begin,
                                              .end = begin + common.columns,
                                              .tensor = slice->tensor,
                                              .rank = group_rank(sources, i)};

            return overlap_error(sources, &first, &second);
        }
    }
    return TDM_OK;
}

/* Fills `groups`, the index of each tensor's first group. */
static void index_groups(struct tdm__plan_sources *sources)
{
    for (uint32_t i = 0; i < sources->replicas.groups_count; i++) {
        sources->groups[tdm__plan_sources_slice(sources, i)->tensor + 1] = i + 1;
    }
    for (uint32_t i = 0; i < sources->options.manifest->tensors_count; i++) {
        if (sources->groups[i + 1] < sources->groups[i]) {
            sources->groups[i + 1] = sources->groups[i]; /* No trainer rank has this tensor. */
        }
    }
}

tdm_status tdm__plan_sources_init(const struct tdm__plan_sources_options *options,
                                  struct tdm__plan_sources *sources)
{
    size_t tensors_count = options->manifest->tensors_count;

    *sources = (struct tdm__plan_sources){.options = *options, .last_rank = TDM__PLAN_NO_RANK};
    TDM_TRY(check_held_layouts(options));
    sources->firsts = calloc(tensors_count + 1, sizeof(*sources->firsts));
    sources->groups = calloc(tensors_count + 1, sizeof(*sources->groups));
    sources->by_runs = calloc(tensors_count + 1, sizeof(*sources->by_runs));
    sources->sent_bytes = calloc((size_t)options->from_count + 1, sizeof(*sources->sent_bytes));
    if (sources->firsts == NULL || sources->groups == NULL || sources->by_runs == NULL ||
        sources->sent_bytes == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating slices of %zu tensors failed: out of memory",
                         tensors_count);
    }
    TDM_TRY(tdm__replicas_init(options->manifest, options->from, options->from_count,
                               &sources->replicas));
    index_groups(sources);
    mark_by_runs(sources);
    for (uint32_t i = 0; i < sources->replicas.groups_count; i++) {
        if (!sources->by_runs[tdm__plan_sources_slice(sources, i)->tensor]) {
            TDM_TRY(check_group_disjoint(sources, i));
        }
    }
    return collect_held_runs(sources);
}

void tdm__plan_sources_fini(struct tdm__plan_sources *sources)
{
    tdm__replicas_fini(&sources->replicas);
    free(sources->held.items);
    free(sources->firsts);
    free(sources->groups);
    free(sources->by_runs);
    free(sources->sent_bytes);
    *sources = (struct tdm__plan_sources){.firsts = NULL};
}

/* ---- choosing a trainer rank --------------------------------------------------------- */

uint8_t tdm__plan_sources_locality(const struct tdm__plan_sources *sources, uint32_t from_rank,
                                   uint32_t to_rank)
{
    const struct tdm__location *from = sources->options.from_locations;
    const struct tdm__location *to = sources->options.to_locations;

    if (from == NULL || to == NULL) {
        return from_rank == to_rank ? TDM__LOCALITY_SAME_GPU : TDM__LOCALITY_SAME_NODE;
    }
    return tdm__location_locality(&from[from_rank], &to[to_rank]);
}

/* Returns true if this rank was chosen last for the slice being planned, and is to go on. */
static bool rank_goes_on(const struct tdm__plan_sources *sources, uint32_t rank)
{
    return rank == sources->last_rank && sources->last_bytes < TDM__PLAN_SHARE_BYTES;
}

/* Returns a number that is the same for all engine ranks of a node and differs among groups. */
static uint64_t crossing_number(const struct tdm__plan_sources *sources, uint32_t to_rank,
                                uint32_t group)
{
    const struct tdm__location *to = sources->options.to_locations;
    uint32_t first = 0;

    while (!tdm__id_equal(&to[first].node, &to[to_rank].node)) {
        first++;
    }
    return tdm__splitmix64(first, group);
}

struct tdm__holder_choice tdm__plan_sources_choose(const struct tdm__plan_sources *sources,
                                                   uint32_t to_rank, uint32_t group)
{
    const struct tdm__slice_holder *holders = sources->replicas.holders;
    uint32_t first = sources->replicas.groups[group];
    struct tdm__holder_choice choice = {
        holders[first], tdm__plan_sources_locality(sources, holders[first].rank, to_rank), false};
    bool is_settled = rank_goes_on(sources, holders[first].rank);

    for (uint32_t i = first + 1; i < sources->replicas.groups[group + 1]; i++) {
        uint8_t locality = tdm__plan_sources_locality(sources, holders[i].rank, to_rank);
        bool goes_on = rank_goes_on(sources, holders[i].rank);

        if (locality > choice.locality) {
            continue;
        }
        choice.had_alternative = locality == choice.locality;
        if (locality < choice.locality || (goes_on && !is_settled) ||
            (!is_settled &&
             sources->sent_bytes[holders[i].rank] < sources->sent_bytes[choice.holder.rank])) {
            choice.holder = holders[i];
            choice.locality = locality;
            is_settled = goes_on;
        }
    }
    if (choice.locality == TDM__LOCALITY_OTHER_NODE && sources->options.crosses_once) {
        uint32_t count = sources->replicas.groups[group + 1] - first;

        choice.holder = holders[first + crossing_number(sources, to_rank, group) % count];
        choice.had_alternative = false;
    }
    return choice;
}

void tdm__plan_sources_count(struct tdm__plan_sources *sources,
                             const struct tdm__holder_choice *choice, uint64_t bytes)
{
    uint32_t rank = choice->holder.rank;

    if (choice->locality != TDM__LOCALITY_SAME_GPU &&
        choice->had_alternative != sources->counts_only) {
        sources->sent_bytes[rank] += bytes;
    }
    sources->last_bytes = rank_goes_on(sources, rank) ? sources->last_bytes + bytes : bytes;
    sources->last_rank = rank;
}

uint64_t tdm__plan_sources_share(const struct tdm_tensor_info *tensor,
                                 const struct tdm__holder_choice *choice, uint64_t count)
{
    uint64_t row = tensor->dims_count == 0 ? 1 : tdm_tensor_elements(tensor) / tensor->shape[0];
    uint64_t rows = TDM__PLAN_SHARE_BYTES / tdm_dtype_bytes(tensor->dtype) / row;
    uint64_t share = (rows == 0 ? 1 : rows) * row;

    count = count < UINT32_MAX ? count : UINT32_MAX;
    return choice->locality == TDM__LOCALITY_SAME_GPU || !choice->had_alternative || count < share
               ? count
               : share;
}

uint32_t tdm__plan_sources_find_run(const struct tdm__plan_sources *sources, uint32_t tensor,
                                    uint64_t at)
{
    uint32_t low = sources->firsts[tensor];
    uint32_t high = sources->firsts[tensor + 1];

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (sources->held.items[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}
