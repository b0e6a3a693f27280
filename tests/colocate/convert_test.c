/* convert_test.c - a plan's conversions equal those of the whole tensor, bit for bit. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/convert.h"

#include "colocate/transfer/casts.h"
#include "colocate/weights/transfer_plan.h"
#include "runtime/splitmix.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { BLOCK = 128, TENSORS = 3, RANKS_MAX = 5, MEMORY_BYTES = 4 << 20, ROUNDS = 60 };

/* One side of the transfer: which slices each rank has, and where in its memory. */
struct side {
    uint32_t ranks;
    struct tdm_slice slices[RANKS_MAX][TENSORS];
    struct tdm__layout layouts[RANKS_MAX];
    uint64_t ends[RANKS_MAX];
    unsigned char *memory[RANKS_MAX]; /* Memory of each rank; owned. */
};

/* The random model of one round, with both sides and the expected bytes. */
struct fixture {
    struct test_random chance;
    struct tdm_tensor_info infos[TENSORS];
    struct tdm__manifest *manifest;
    struct side from;
    struct side to;
    /* Each whole tensor as trainers have it, and in each converted form. */
    unsigned char *truth[TENSORS];
    uint16_t *halves[TENSORS];
    uint8_t *codes[TENSORS];
    float *scales[TENSORS];
};

static uint64_t blocks(uint64_t elements)
{
    return (elements + BLOCK - 1) / BLOCK;
}

static const void *offset(uint64_t bytes)
{
    const void *address;

    memcpy(&address, &bytes, sizeof(address));
    return address;
}

static uint64_t take(struct side *side, uint32_t rank, uint64_t size_bytes)
{
    uint64_t at = (side->ends[rank] + 255) / 256 * 256;

    side->ends[rank] = at + size_bytes;
    assert_true(side->ends[rank] <= MEMORY_BYTES);
    return at;
}

/* Returns a value of random magnitude, sometimes an extreme one. */
static float invent_value(uint64_t tensor, uint64_t element)
{
    static const uint32_t worst[] = {0, 0x80000000, 0x7f800000, 0x7fc00001, 1, 0x7f7fffff};
    uint64_t mixed = tdm__splitmix64(tensor + 1, element);
    uint32_t bits = (uint32_t)mixed;
    float value;

    bits = mixed >> 40 == 0 ? worst[mixed % 6] : (bits & 0x8fffffff) | 0x30000000;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void invent_truth(struct fixture *fixture, uint32_t tensor)
{
    const struct tdm_tensor_info *info = &fixture->infos[tensor];
    uint64_t elements = tdm_tensor_elements(info);
    uint32_t columns = (uint32_t)info->shape[1];
    uint64_t scales_count = blocks(info->shape[0]) * blocks(columns);

    fixture->truth[tensor] = malloc(elements * sizeof(float));
    fixture->halves[tensor] = malloc(elements * sizeof(uint16_t));
    fixture->codes[tensor] = malloc(elements);
    fixture->scales[tensor] = malloc(scales_count * sizeof(float));
    for (uint64_t i = 0; i < elements; i++) {
        float value = invent_value(tensor, i);

        fixture->halves[tensor][i] = tdm__bf16_from_float(value);
        if (info->dtype == TDM_F32) {
            memcpy(fixture->truth[tensor] + i * sizeof(value), &value, sizeof(value));
        } else {
            memcpy(fixture->truth[tensor] + i * 2, &fixture->halves[tensor][i], 2);
        }
    }
    tdm__fp8_quantize(&(struct tdm__strided_matrix){fixture->truth[tensor], info->dtype,
                                                    (uint32_t)info->shape[0], columns, columns},
                      &(struct tdm__fp8_matrix){fixture->codes[tensor], fixture->scales[tensor],
                                                columns, (uint32_t)blocks(columns)});
}

/* Chooses a shape, mostly of a few blocks and sometimes wide. */
static void invent_shape(struct fixture *fixture, uint64_t shape[TDM_DIMS_MAX])
{
    bool wide = test_random_below(&fixture->chance, 8) == 0;

    shape[0] = 1 + test_random_below(&fixture->chance, wide ? 30 : 400);
    shape[1] = (wide ? 8150U : 1U) + test_random_below(&fixture->chance, 400);
}

static void invent_tensors(struct fixture *fixture)
{
    static const char *const names[TENSORS] = {"q_proj", "gate_up", "norm"};

    for (uint32_t i = 0; i < TENSORS; i++) {
        fixture->infos[i] = (struct tdm_tensor_info){
            .name = names[i],
            .dtype = test_random_below(&fixture->chance, 2) == 0 ? TDM_F32 : TDM_BF16,
            .dims_count = 2};
        invent_shape(fixture, fixture->infos[i].shape);
        invent_truth(fixture, i);
    }
    TRY(tdm__manifest_create(fixture->infos, TENSORS, &fixture->manifest));
}

/* Returns a position at which to cut the range from `at` to `length`: at a block boundary, or
 * nearly anywhere. */
static uint64_t cut(struct fixture *fixture, uint64_t at, uint64_t length, bool by_blocks)
{
    uint64_t end = at + test_random_below(&fixture->chance, (uint32_t)(length - at) + 1);

    end = by_blocks ? blocks(end) * BLOCK : end;
    return end < length ? end : length;
}

/* Gives each rank a range of consecutive elements with random ends. */
static void cut_flat(struct fixture *fixture, struct side *side, uint32_t tensor)
{
    const struct tdm_tensor_info *info = &fixture->infos[tensor];
    uint64_t elements = tdm_tensor_elements(info);
    uint64_t at = 0;

    for (uint32_t rank = 0; rank < side->ranks; rank++) {
        uint64_t end = rank + 1 == side->ranks ? elements : cut(fixture, at, elements, false);
        struct tdm__layout *layout = &side->layouts[rank];

        if (end > at) {
            side->slices[rank][layout->slices_count++] = (struct tdm_slice){
                .tensor = tensor, .flat = 1, .offset = {at}, .extent = {end - at}};
            layout->slices = side->slices[rank];
        }
        at = end;
    }
}

/* Gives each rank rows or columns; trainers may also get flat ranges. */
static void cut_tensor(struct fixture *fixture, struct side *side, uint32_t tensor, bool by_blocks)
{
    const struct tdm_tensor_info *info = &fixture->infos[tensor];
    uint32_t dim = test_random_below(&fixture->chance, 2);
    bool flat = side == &fixture->from && dim == 0 && test_random_below(&fixture->chance, 2) == 0;
    uint64_t at = 0;

    if (flat && !by_blocks && test_random_below(&fixture->chance, 2) == 0) {
        cut_flat(fixture, side, tensor);
        return;
    }
    for (uint32_t rank = 0; rank < side->ranks; rank++) {
        uint64_t end = rank + 1 == side->ranks ? info->shape[dim]
                                               : cut(fixture, at, info->shape[dim], by_blocks);
        struct tdm_slice slice = {.tensor = tensor, .extent = {info->shape[0], info->shape[1]}};
        struct tdm__layout *layout = &side->layouts[rank];

        if (end == at) {
            continue;
        }
        slice.offset[dim] = at;
        slice.extent[dim] = end - at;
        if (flat) {
            slice = (struct tdm_slice){.tensor = tensor,
                                       .flat = 1,
                                       .offset = {at * info->shape[1]},
                                       .extent = {(end - at) * info->shape[1]}};
        }
        side->slices[rank][layout->slices_count++] = slice;
        layout->slices = side->slices[rank];
        at = end;
    }
}

/* Chooses the dtype of each engine slice and its place. */
static void place_engine(struct fixture *fixture)
{
    for (uint32_t rank = 0; rank < fixture->to.ranks; rank++) {
        for (uint32_t i = 0; i < fixture->to.layouts[rank].slices_count; i++) {
            struct tdm_slice *slice = &fixture->to.slices[rank][i];
            const struct tdm_tensor_info *info = &fixture->infos[slice->tensor];
            const enum tdm_dtype wanted[] = {0, TDM_BF16, TDM_F8_E4M3};

            slice->dtype = wanted[slice->tensor];
            slice->scales = offset(take(&fixture->to, rank, tdm__slice_scales_bytes(info, slice)));
            slice->address =
                offset(take(&fixture->to, rank, tdm__slice_bytes(fixture->manifest, slice)));
        }
    }
}

static void copy_in(const struct fixture *fixture, const struct tdm_slice *slice, unsigned char *to)
{
    const struct tdm_tensor_info *info = &fixture->infos[slice->tensor];
    size_t bytes = tdm_dtype_bytes(info->dtype);
    const unsigned char *truth = fixture->truth[slice->tensor];

    if (slice->flat != 0) {
        memcpy(to, truth + slice->offset[0] * bytes, slice->extent[0] * bytes);
        return;
    }
    for (uint64_t row = 0; row < slice->extent[0]; row++) {
        uint64_t first = (slice->offset[0] + row) * info->shape[1] + slice->offset[1];

        memcpy(to + row * slice->extent[1] * bytes, truth + first * bytes,
               slice->extent[1] * bytes);
    }
}

static void place_trainers(struct fixture *fixture)
{
    for (uint32_t rank = 0; rank < fixture->from.ranks; rank++) {
        for (uint32_t i = 0; i < fixture->from.layouts[rank].slices_count; i++) {
            struct tdm_slice *slice = &fixture->from.slices[rank][i];
            uint64_t at = take(&fixture->from, rank, tdm__slice_bytes(fixture->manifest, slice));

            slice->address = offset(at);
            copy_in(fixture, slice, fixture->from.memory[rank] + at);
        }
    }
}

/* Opens a random model. Only the third tensor becomes FP8, so only its cuts matter. */
static struct fixture *actor_fixture_open(uint64_t seed, bool by_blocks)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->chance = (struct test_random){.state = seed};
    fixture->from.ranks = 1 + test_random_below(&fixture->chance, RANKS_MAX);
    fixture->to.ranks = 1 + test_random_below(&fixture->chance, RANKS_MAX);
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
        fixture->from.memory[rank] = calloc(1, MEMORY_BYTES);
        fixture->to.memory[rank] = calloc(1, MEMORY_BYTES);
    }
    invent_tensors(fixture);
    for (uint32_t i = 0; i < TENSORS; i++) {
        cut_tensor(fixture, &fixture->from, i, by_blocks && i == TENSORS - 1);
        cut_tensor(fixture, &fixture->to, i, i == TENSORS - 1);
    }
    place_engine(fixture);
    place_trainers(fixture);
    return fixture;
}

static void actor_fixture_close(struct fixture *fixture)
{
    for (uint32_t i = 0; i < TENSORS; i++) {
        free(fixture->truth[i]);
        free(fixture->halves[i]);
        free(fixture->codes[i]);
        free(fixture->scales[i]);
    }
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
        free(fixture->from.memory[rank]);
        free(fixture->to.memory[rank]);
    }
    tdm__manifest_destroy(fixture->manifest);
    free(fixture);
}

static tdm_status make_route(const struct fixture *fixture, uint64_t chunk_bytes,
                             struct tdm__transfer_plan **route_out)
{
    const struct tdm__transfer_plan_options options = {.manifest = fixture->manifest,
                                                       .from = fixture->from.layouts,
                                                       .from_count = fixture->from.ranks,
                                                       .to = fixture->to.layouts,
                                                       .to_count = fixture->to.ranks,
                                                       .image_bytes = MEMORY_BYTES,
                                                       .chunk_bytes = chunk_bytes};

    return tdm__transfer_plan_create(&options, route_out);
}

static const unsigned char *source_of(const struct fixture *fixture,
                                      const struct tdm__rect_copy *copy)
{
    const struct tdm_slice *from = &fixture->from.slices[copy->from_rank][copy->from_tensor];

    return fixture->from.memory[copy->from_rank] + (uintptr_t)from->address +
           copy->from_offset * tdm_dtype_bytes(copy->from_dtype);
}

/* Returns the scales that all ranks have computed together, in random order. The caller frees
 * them. */
static float *find_scales(const struct fixture *fixture,
                          const struct tdm__transfer_plan *transfer_plan)
{
    const struct tdm__scales *scales = &transfer_plan->scales;
    float *table = calloc(scales->count + 1, sizeof(*table));

    assert_non_null(table);
    for (uint32_t i = scales->measures_count; i-- > 0;) {
        const struct tdm__rect_copy *measure = &scales->measures[i];
        uint64_t count = tdm__scales_measured_count(measure);
        float *found = malloc(count * sizeof(*found));
        struct tdm__copy_op part =
            tdm__convert_copy_op(measure, source_of(fixture, measure), found);
        uint64_t sum;

        assert_non_null(found);
        part.to_pitch = tdm__convert_blocks_count(measure->columns);
        TRY(tdm__copy_op_execute(&part, &sum));
        tdm__scales_merge(measure, found, table);
        free(found);
    }
    return table;
}

/* Runs the plan as weight writers do, and checks that the checksums are those of the written
 * bytes. */
static uint64_t run(struct fixture *fixture, const struct tdm__transfer_plan *transfer_plan)
{
    float *table = find_scales(fixture, transfer_plan);
    uint64_t written = 0;

    for (uint32_t rank = 0; rank < transfer_plan->to_count; rank++) {
        const struct tdm__transfer_plan_image *image = &transfer_plan->images[rank];

        for (uint32_t i = 0; i < image->copies_count; i++) {
            const struct tdm__rect_copy *copy = &image->copies[i];
            struct tdm__strided_rows rows = tdm__convert_written_rows(copy);
            const void *source = copy->from_tensor == TDM__TRANSFER_PLAN_SCALES
                                     ? (const void *)(table + copy->from_offset)
                                     : source_of(fixture, copy);
            unsigned char *target = fixture->to.memory[rank] +
                                    tdm__transfer_plan_image_offset(transfer_plan, rank, copy);
            struct tdm__copy_op part = tdm__convert_copy_op(copy, source, target);
            uint64_t sum;
            uint64_t unwritten;

            tdm__scales_attach(&transfer_plan->scales, &fixture->to.slices[rank][copy->to_tensor],
                               copy, table, &part);
            TRY(tdm__copy_op_execute(&part, &sum));
            part.to = NULL;
            TRY(tdm__copy_op_execute(&part, &unwritten));
            rows.from_pitch = rows.to_pitch;
            assert_true(sum == tdm__rect_checksum(&rows, target));
            assert_true(sum == unwritten);
            written += rows.count * rows.size_bytes;
        }
    }
    free(table);
    return written;
}

/* Compares a rectangle row by row with that of the whole tensor. */
static void check_rectangle(const void *found, const void *whole, const uint64_t place[4],
                            uint64_t whole_columns, size_t bytes)
{
    for (uint64_t row = 0; row < place[2]; row++) {
        uint64_t first = (place[0] + row) * whole_columns + place[1];

        assert_memory_equal((const unsigned char *)found + row * place[3] * bytes,
                            (const unsigned char *)whole + first * bytes, place[3] * bytes);
    }
}

static void check_slice(const struct fixture *fixture, const struct tdm_slice *slice,
                        const unsigned char *memory)
{
    const struct tdm_tensor_info *info = &fixture->infos[slice->tensor];
    enum tdm_dtype dtype = tdm__slice_dtype(info, slice);
    const uint64_t place[4] = {slice->offset[0], slice->offset[1], slice->extent[0],
                               slice->extent[1]};
    const uint64_t of_blocks[4] = {place[0] / BLOCK, place[1] / BLOCK, blocks(place[2]),
                                   blocks(place[3])};
    const void *whole = fixture->truth[slice->tensor];

    if (dtype != info->dtype) {
        whole = dtype == TDM_BF16 ? (const void *)fixture->halves[slice->tensor]
                                  : (const void *)fixture->codes[slice->tensor];
    }
    check_rectangle(memory + (uintptr_t)slice->address, whole, place, info->shape[1],
                    tdm_dtype_bytes(dtype));
    if (dtype == TDM_F8_E4M3) {
        check_rectangle(memory + (uintptr_t)slice->scales, fixture->scales[slice->tensor],
                        of_blocks, blocks(info->shape[1]), sizeof(float));
    }
}

static void check_all(const struct fixture *fixture)
{
    for (uint32_t rank = 0; rank < fixture->to.ranks; rank++) {
        for (uint32_t i = 0; i < fixture->to.layouts[rank].slices_count; i++) {
            check_slice(fixture, &fixture->to.slices[rank][i], fixture->to.memory[rank]);
        }
    }
}

static void converting_in_parts_equals_converting_at_once(void **state)
{
    uint64_t first = test_random_first_seed("convert");
    (void)state;
    for (uint64_t seed = first; seed < first + ROUNDS; seed++) {
        const uint64_t chunks[] = {0, 20000, 300000};
        struct fixture *fixture = actor_fixture_open(seed, true);
        struct tdm__transfer_plan *transfer_plan;

        TRY(make_route(fixture, chunks[seed % 3], &transfer_plan));
        assert_true(run(fixture, transfer_plan) == transfer_plan->cost.written_bytes);
        assert_true(transfer_plan->cost.written_bytes ==
                    transfer_plan->cost.bytes_by_locality[TDM__LOCALITY_SAME_GPU] +
                        transfer_plan->cost.bytes_by_locality[TDM__LOCALITY_SAME_NODE]);
        check_all(fixture);
        tdm__transfer_plan_destroy(transfer_plan);
        actor_fixture_close(fixture);
    }
}

/* Returns the largest size of a chunk: the wanted size, or that of a row of blocks, which is never
 * divided. */
static uint64_t most_bytes(const struct fixture *fixture, uint64_t wanted)
{
    uint64_t most = wanted;

    for (uint32_t rank = 0; rank < fixture->to.ranks; rank++) {
        for (uint32_t i = 0; i < fixture->to.layouts[rank].slices_count; i++) {
            const struct tdm_slice *slice = &fixture->to.slices[rank][i];
            uint64_t row_bytes = slice->extent[1] * BLOCK + TDM__TRANSFER_PLAN_ALIGNMENT;

            if (slice->dtype == TDM_F8_E4M3 && row_bytes > most) {
                most = row_bytes;
            }
        }
    }
    return most;
}

/* Chunks may be as small as a few KiB, whatever is converted on the way. */
static void buckets_of_any_size_bring_the_same_bits(void **state)
{
    uint64_t first = test_random_first_seed("convert");
    (void)state;
    for (uint64_t seed = first; seed < first + ROUNDS; seed++) {
        struct fixture *fixture = actor_fixture_open(seed, true);
        uint64_t wanted = 1024 + test_random_below(&fixture->chance, 30000);
        struct tdm__transfer_plan *transfer_plan;

        TRY(make_route(fixture, wanted, &transfer_plan));
        assert_true(run(fixture, transfer_plan) == transfer_plan->cost.written_bytes);
        assert_true(transfer_plan->chunk_bytes_max <= most_bytes(fixture, wanted));
        check_all(fixture);
        tdm__transfer_plan_destroy(transfer_plan);
        actor_fixture_close(fixture);
    }
}

/* Goal: codes and scales are those of the whole tensor, however trainers' slices cut through its
 * blocks.
 *
 * Method: cuts anywhere, by rows, by columns and in the middle of rows, among two to five ranks,
 * some of which have nothing; chunks of all sizes. */
static void block_shared_by_trainers_is_converted_at_once(void **state)
{
    uint64_t first = test_random_first_seed("convert");
    uint32_t shared = 0;

    (void)state;
    for (uint64_t seed = first; seed < first + 4 * (uint64_t)ROUNDS; seed++) {
        const uint64_t chunks[] = {0, 5000, 300000};
        struct fixture *fixture = actor_fixture_open(seed, false);
        struct tdm__transfer_plan *transfer_plan;

        TRY(make_route(fixture, chunks[seed % 3], &transfer_plan));
        assert_true(run(fixture, transfer_plan) == transfer_plan->cost.written_bytes);
        check_all(fixture);
        assert_true(transfer_plan->scales.firsts[0] == TDM__SCALES_NOT_SHARED);
        assert_true((transfer_plan->scales.count > 0) ==
                    (transfer_plan->scales.firsts[TENSORS - 1] != TDM__SCALES_NOT_SHARED));
        assert_true(
            transfer_plan->scales.measured_bytes ==
            (transfer_plan->scales.count > 0 ? tdm_tensor_bytes(&fixture->infos[TENSORS - 1]) : 0));
        shared += transfer_plan->scales.count > 0 ? 1 : 0;
        tdm__transfer_plan_destroy(transfer_plan);
        actor_fixture_close(fixture);
    }
    assert_in_range(shared, ROUNDS, 4 * ROUNDS - 1);
}

static void assert_refused(const struct tdm_tensor_info *info, const struct tdm_slice *slice,
                           const char *words)
{
    assert_int_equal(tdm__convert_check(info, slice), TDM_E_INVAL);
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

static void impossible_conversion_is_refused_with_the_tensor(void **state)
{
    struct tdm_tensor_info info = {
        .name = "w", .dtype = TDM_BF16, .dims_count = 2, .shape = {300, 256}};
    struct tdm_slice slice = {.extent = {300, 256}, .dtype = TDM_F8_E4M3};

    (void)state;
    TRY(tdm__convert_check(&info, &slice));
    slice.extent[0] = 200;
    assert_refused(&info, &slice, "tensor w: a slice from 0 to 200 of dimension 0 (300) cuts");
    slice.offset[0] = 128;
    slice.extent[0] = 172;
    TRY(tdm__convert_check(&info, &slice));
    slice.flat = 1;
    assert_refused(&info, &slice, "tensor w: only boxes of matrices");
    slice.flat = 0;
    slice.dtype = TDM_F32;
    assert_refused(&info, &slice, "tensor w: BF16 does not become F32");
    info.dtype = TDM_I32;
    slice.dtype = TDM_BF16;
    assert_refused(&info, &slice, "tensor w: I32 does not become BF16");
    slice.dtype = TDM_I32;
    TRY(tdm__convert_check(&info, &slice));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converting_in_parts_equals_converting_at_once),
        cmocka_unit_test(buckets_of_any_size_bring_the_same_bits),
        cmocka_unit_test(block_shared_by_trainers_is_converted_at_once),
        cmocka_unit_test(impossible_conversion_is_refused_with_the_tensor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
