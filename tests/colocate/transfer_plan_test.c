/* transfer_plan_test.c - a plan brings every element to each rank that wants it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/transfer_plan.h"

#include "colocate/layout/model.h"
#include "colocate/weights/bucket.h"
#include "colocate/weights/convert.h"
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

enum { TENSORS = 5, RANKS_MAX = 4, SLICES_MAX = 64, MEMORY_BYTES = 1 << 16, ROUNDS = 300 };

/* One side of the transfer: which slices each rank has, and where in its memory or image. */
struct side {
    uint32_t ranks;
    struct tdm_slice slices[RANKS_MAX][SLICES_MAX];
    struct tdm__layout layouts[RANKS_MAX];
    uint64_t ends[RANKS_MAX]; /* Number of bytes that are used. */
};

struct fixture {
    struct test_random chance;
    struct tdm_tensor_info infos[TENSORS];
    struct tdm__manifest *manifest;
    struct side from;
    struct side to;
    _Alignas(64) unsigned char held[RANKS_MAX][MEMORY_BYTES];
    _Alignas(64) unsigned char images[RANKS_MAX][MEMORY_BYTES];
};

static void invent_tensors(struct fixture *fixture)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};
    static const enum tdm_dtype dtypes[TENSORS] = {TDM_F32, TDM_BF16, TDM_U8, TDM_I64, TDM_F32};

    for (uint32_t i = 0; i < TENSORS; i++) {
        fixture->infos[i] =
            (struct tdm_tensor_info){.name = names[i], .dtype = dtypes[i], .dims_count = i % 4};
        for (uint32_t dim = 0; dim < i % 4; dim++) {
            fixture->infos[i].shape[dim] = 4 + test_random_below(&fixture->chance, 9);
        }
    }
    TRY(tdm__manifest_create(fixture->infos, TENSORS, &fixture->manifest));
}

/* Returns a byte offset as an address, which is how both sides store addresses. */
static const void *offset(uint64_t bytes)
{
    const void *address;

    memcpy(&address, &bytes, sizeof(address));
    return address;
}

static void give(struct fixture *fixture, struct side *side, uint32_t rank, struct tdm_slice slice)
{
    struct tdm__layout *layout = &side->layouts[rank];
    uint64_t at = side->ends[rank] + test_random_below(&fixture->chance, 3) * UINT64_C(64);

    at = (at + 7) / 8 * 8;
    slice.address = offset(at);
    side->ends[rank] = at + tdm__slice_bytes(fixture->manifest, &slice);
    assert_true(layout->slices_count < SLICES_MAX && side->ends[rank] <= MEMORY_BYTES);
    side->slices[rank][layout->slices_count++] = slice;
    layout->slices = side->slices[rank];
}

/* Cuts the tensor along one dimension, or as a flat list, at random places. */
static void cut_tensor(struct fixture *fixture, struct side *side, uint32_t tensor)
{
    const struct tdm_tensor_info *info = &fixture->infos[tensor];
    uint32_t dim = test_random_below(&fixture->chance, info->dims_count + 1);
    uint32_t flat = dim == info->dims_count;
    uint64_t length = flat ? tdm_tensor_elements(info) : info->shape[dim];
    uint64_t at = 0;

    for (uint32_t rank = 0; rank < side->ranks && at < length; rank++) {
        uint64_t left = length - at;
        uint64_t count = rank + 1 == side->ranks
                             ? left
                             : test_random_below(&fixture->chance, (uint32_t)left + 1);
        struct tdm_slice slice = {.tensor = tensor, .flat = flat};

        if (count == 0) {
            continue;
        }
        for (uint32_t i = 0; i < info->dims_count && !flat; i++) {
            slice.extent[i] = info->shape[i];
        }
        slice.offset[flat ? 0 : dim] = at;
        slice.extent[flat ? 0 : dim] = count;
        give(fixture, side, rank, slice);
        for (uint32_t other = 0; side == &fixture->from && other < side->ranks; other++) {
            if (other != rank && test_random_below(&fixture->chance, 3) == 0) {
                give(fixture, side, other, slice); /* It is a replica. */
            }
        }
        at += count;
    }
}

static void invent_sides(struct fixture *fixture)
{
    fixture->from.ranks = 1 + test_random_below(&fixture->chance, RANKS_MAX);
    fixture->to.ranks = 1 + test_random_below(&fixture->chance, RANKS_MAX);
    for (uint32_t i = 0; i < TENSORS; i++) {
        cut_tensor(fixture, &fixture->from, i);
        cut_tensor(fixture, &fixture->to, i);
    }
}

/* Calls `fn` for every element of a slice, with its index in the tensor and in the slice. */
static void each_element(const struct fixture *fixture, const struct tdm_slice *slice,
                         void (*fn)(void *arg, uint64_t in_tensor, uint64_t in_slice), void *arg)
{
    const struct tdm_tensor_info *info = &fixture->infos[slice->tensor];
    size_t bytes = tdm_dtype_bytes(info->dtype);
    uint64_t count = tdm__slice_bytes(fixture->manifest, slice) / bytes;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t rest = i;
        uint64_t element = 0;
        uint64_t step = 1;

        for (uint32_t dim = info->dims_count; dim-- > 0 && slice->flat == 0;) {
            element += (slice->offset[dim] + rest % slice->extent[dim]) * step;
            rest /= slice->extent[dim];
            step *= info->shape[dim];
        }
        fn(arg, slice->flat != 0 ? slice->offset[0] + i : element, i);
    }
}

struct visit {
    unsigned char *memory; /* Memory of the slice. */
    uint32_t tensor;
    size_t bytes;
};

static uint64_t truth(uint32_t tensor, uint64_t element)
{
    return tdm__splitmix64(tensor + 1, element);
}

static void write_element(void *arg, uint64_t in_tensor, uint64_t in_slice)
{
    const struct visit *visit = arg;
    uint64_t value = truth(visit->tensor, in_tensor);

    memcpy(visit->memory + in_slice * visit->bytes, &value, visit->bytes);
}

static void check_element(void *arg, uint64_t in_tensor, uint64_t in_slice)
{
    const struct visit *visit = arg;
    uint64_t value = truth(visit->tensor, in_tensor);

    assert_memory_equal(visit->memory + in_slice * visit->bytes, &value, visit->bytes);
}

static void each_slice(struct fixture *fixture, struct side *side,
                       unsigned char memory[RANKS_MAX][MEMORY_BYTES],
                       void (*fn)(void *arg, uint64_t in_tensor, uint64_t in_slice))
{
    for (uint32_t rank = 0; rank < side->ranks; rank++) {
        for (uint32_t i = 0; i < side->layouts[rank].slices_count; i++) {
            const struct tdm_slice *slice = &side->slices[rank][i];
            struct visit visit = {memory[rank] + (uintptr_t)slice->address, slice->tensor,
                                  tdm_dtype_bytes(fixture->infos[slice->tensor].dtype)};

            each_element(fixture, slice, fn, &visit);
        }
    }
}

static void run(struct fixture *fixture, const struct tdm__transfer_plan *transfer_plan)
{
    for (uint32_t rank = 0; rank < transfer_plan->to_count; rank++) {
        const struct tdm__transfer_plan_image *image = &transfer_plan->images[rank];
        uint32_t next = 0;

        for (uint32_t i = 0; i < transfer_plan->chunks_count; i++) {
            const struct tdm__transfer_plan_chunk *chunk = &image->chunks[i];

            assert_true(chunk->copies_count == 0 || chunk->copies_first == next);
            for (uint32_t k = 0; k < chunk->copies_count; k++, next++) {
                const struct tdm__rect_copy *copy = &image->copies[next];
                const struct tdm_slice *from =
                    &fixture->from.slices[copy->from_rank][copy->from_tensor];
                const struct tdm_slice *to = &fixture->to.slices[rank][copy->to_tensor];
                uint64_t at = tdm__transfer_plan_image_offset(transfer_plan, rank, copy);
                uint64_t elements = (copy->rows - 1) * (uint64_t)copy->to_pitch + copy->columns;
                struct tdm__copy_op op;
                uint64_t sum;

                assert_true(at >= chunk->begin);
                assert_true(at + elements * tdm_dtype_bytes(copy->to_dtype) <= chunk->end);
                assert_int_equal(from->tensor, to->tensor);
                op =
                    tdm__convert_copy_op(copy,
                                         fixture->held[copy->from_rank] + (uintptr_t)from->address +
                                             copy->from_offset * tdm_dtype_bytes(copy->from_dtype),
                                         fixture->images[rank] + at);
                TRY(tdm__copy_op_execute(&op, &sum));
            }
        }
        assert_int_equal(next, image->copies_count);
    }
}

static struct tdm__transfer_plan_options options_of(const struct fixture *fixture,
                                                    uint64_t chunk_bytes)
{
    return (struct tdm__transfer_plan_options){.manifest = fixture->manifest,
                                               .from = fixture->from.layouts,
                                               .from_count = fixture->from.ranks,
                                               .to = fixture->to.layouts,
                                               .to_count = fixture->to.ranks,
                                               .image_bytes = MEMORY_BYTES,
                                               .chunk_bytes = chunk_bytes};
}

static struct fixture *actor_fixture_open(uint64_t seed)
{
    struct fixture *fixture = aligned_alloc(64, sizeof(*fixture));

    assert_non_null(fixture);
    memset(fixture, 0, sizeof(*fixture));
    fixture->chance = (struct test_random){.state = seed};
    invent_tensors(fixture);
    return fixture;
}

static void actor_fixture_close(struct fixture *fixture)
{
    tdm__manifest_destroy(fixture->manifest);
    free(fixture);
}

static void every_element_arrives_between_any_two_layouts(void **state)
{
    uint64_t first = test_random_first_seed("route");
    (void)state;
    for (uint64_t seed = first; seed < first + ROUNDS; seed++) {
        struct fixture *fixture = actor_fixture_open(seed);
        const uint64_t chunks[] = {0, 300, 4096};
        struct tdm__transfer_plan *transfer_plan;
        struct tdm__transfer_plan_options options;

        invent_sides(fixture);
        options = options_of(fixture, chunks[seed % 3]);
        each_slice(fixture, &fixture->from, fixture->held, write_element);
        TRY(tdm__transfer_plan_create(&options, &transfer_plan));
        run(fixture, transfer_plan);
        each_slice(fixture, &fixture->to, fixture->images, check_element);
        assert_int_equal(transfer_plan->cost.written_bytes, fixture->manifest->size_bytes);
        assert_true(chunks[seed % 3] != 0 || transfer_plan->chunks_count == 1);
        tdm__transfer_plan_destroy(transfer_plan);
        actor_fixture_close(fixture);
    }
}

/* No chunk exceeds the wanted size, however large the slices are. */
static void no_chunk_is_larger_than_wanted(void **state)
{
    uint64_t first = test_random_first_seed("route");
    (void)state;
    for (uint64_t seed = first; seed < first + ROUNDS; seed++) {
        struct fixture *fixture = actor_fixture_open(seed);
        uint64_t wanted = 1 + test_random_below(&fixture->chance, 5000);
        uint64_t most =
            wanted < TDM__TRANSFER_PLAN_ALIGNMENT ? TDM__TRANSFER_PLAN_ALIGNMENT : wanted;
        struct tdm__transfer_plan *transfer_plan;
        struct tdm__transfer_plan_options options;

        invent_sides(fixture);
        options = options_of(fixture, wanted);
        each_slice(fixture, &fixture->from, fixture->held, write_element);
        TRY(tdm__transfer_plan_create(&options, &transfer_plan));
        run(fixture, transfer_plan);
        each_slice(fixture, &fixture->to, fixture->images, check_element);
        assert_true(transfer_plan->chunk_bytes_max <= most);
        for (uint32_t rank = 0; rank < transfer_plan->to_count; rank++) {
            for (uint32_t i = 0; i < transfer_plan->chunks_count; i++) {
                const struct tdm__transfer_plan_chunk *chunk =
                    &transfer_plan->images[rank].chunks[i];

                assert_int_equal(chunk->begin % TDM__TRANSFER_PLAN_ALIGNMENT, 0);
                assert_true(chunk->end - chunk->begin <= transfer_plan->chunk_bytes_max);
            }
        }
        assert_int_equal(transfer_plan->cost.written_bytes, fixture->manifest->size_bytes);
        tdm__transfer_plan_destroy(transfer_plan);
        actor_fixture_close(fixture);
    }
}

/* Engines that get whole tensors have all of them, bucket after bucket. */
static void whole_tensors_arrive_from_any_layout(void **state)
{
    uint64_t first = test_random_first_seed("route");
    (void)state;
    for (uint64_t seed = first; seed < first + ROUNDS; seed++) {
        struct fixture *fixture = actor_fixture_open(seed);
        uint64_t bucket_bytes = 1 + test_random_below(&fixture->chance, 9000);
        struct tdm__transfer_plan *transfer_plan;
        struct tdm__transfer_plan_options options;
        struct tdm__bucket_plan *buckets;

        invent_sides(fixture);
        TRY(tdm__bucket_plan_create(fixture->manifest, bucket_bytes, &buckets));
        for (uint32_t rank = 0; rank < fixture->to.ranks; rank++) {
            tdm__bucket_plan_slices(buckets, fixture->manifest, fixture->to.slices[rank]);
            fixture->to.layouts[rank] = (struct tdm__layout){fixture->to.slices[rank], TENSORS};
        }
        options = options_of(fixture, bucket_bytes);
        options.image_bytes = buckets->image_bytes;
        options.keeps_slices_whole = true;
        each_slice(fixture, &fixture->from, fixture->held, write_element);
        TRY(tdm__transfer_plan_create(&options, &transfer_plan));
        run(fixture, transfer_plan);
        each_slice(fixture, &fixture->to, fixture->images, check_element);
        assert_int_equal(transfer_plan->chunks_count, buckets->buckets_count);
        for (uint32_t i = 0; i < buckets->buckets_count; i++) {
            const struct tdm__transfer_plan_chunk *chunk = &transfer_plan->images[0].chunks[i];

            assert_int_equal(chunk->begin, buckets->buckets[i].image_offset);
            assert_int_equal(chunk->end - chunk->begin, buckets->buckets[i].size_bytes);
        }
        assert_int_equal(transfer_plan->cost.written_bytes,
                         fixture->to.ranks * fixture->manifest->size_bytes);
        tdm__transfer_plan_destroy(transfer_plan);
        tdm__bucket_plan_destroy(buckets);
        actor_fixture_close(fixture);
    }
}

/* Checks that the copies of a chunk lie within it and have whole rows of blocks. */
static void assert_chunks_hold_their_copies(const struct tdm__transfer_plan *transfer_plan)
{
    const struct tdm__transfer_plan_image *image = &transfer_plan->images[0];

    for (uint32_t i = 0; i < image->copies_count; i++) {
        const struct tdm__rect_copy *copy = &image->copies[i];
        const struct tdm__strided_rows rows = tdm__convert_written_rows(copy);
        uint64_t begin = tdm__transfer_plan_image_offset(transfer_plan, 0, copy);
        uint64_t end = begin + (rows.count - 1) * rows.to_pitch + rows.size_bytes;
        const struct tdm__transfer_plan_chunk *chunk = image->chunks;

        while (chunk->copies_first + chunk->copies_count <= i) {
            chunk++;
        }
        assert_true(begin >= chunk->begin && end <= chunk->end);
        assert_int_equal(copy->from_offset / copy->from_pitch % TDM__FP8_BLOCK, 0);
    }
}

/* Rows of scales and of blocks whose size is no multiple of the alignment of chunks. */
static void fp8_tensor_is_split_between_block_rows(void **state)
{
    static const uint64_t columns[] = {1, 640, 3072};
    struct fixture *fixture = actor_fixture_open(1);

    (void)state;
    fixture->from.ranks = 1;
    fixture->to.ranks = 1;
    tdm__manifest_destroy(fixture->manifest);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        struct tdm_tensor_info info = {
            .name = "m", .dtype = TDM_BF16, .dims_count = 2, .shape = {12800, columns[i]}};
        struct tdm_slice slice = {.extent = {info.shape[0], info.shape[1]}};
        struct tdm__layout from = {&slice, 1};
        struct tdm_slice wanted = slice;
        struct tdm__layout to = {&wanted, 1};
        struct tdm__transfer_plan_options options = {
            .from = &from, .from_count = 1, .to = &to, .to_count = 1, .chunk_bytes = 512};
        struct tdm__transfer_plan *transfer_plan;

        TRY(tdm__manifest_create(&info, 1, &fixture->manifest));
        options.manifest = fixture->manifest;
        wanted.dtype = TDM_F8_E4M3;
        wanted.scales = offset(64);
        wanted.address = offset(1 << 20 | 64);
        options.image_bytes = UINT64_C(1) << 30;
        TRY(tdm__transfer_plan_create(&options, &transfer_plan));
        assert_true(transfer_plan->chunks_count > 2);
        assert_chunks_hold_their_copies(transfer_plan);
        tdm__transfer_plan_destroy(transfer_plan);
        tdm__manifest_destroy(fixture->manifest);
    }
    fixture->manifest = NULL;
    actor_fixture_close(fixture);
}

static void columns_are_one_copy_and_not_one_a_row(void **state)
{
    struct fixture *fixture = actor_fixture_open(1);
    const struct tdm_tensor_info *info = &fixture->infos[2];
    struct tdm__transfer_plan_options options;
    struct tdm__transfer_plan *transfer_plan;

    (void)state;
    fixture->from.ranks = 1;
    fixture->to.ranks = 1;
    give(fixture, &fixture->from, 0,
         (struct tdm_slice){.tensor = 2, .extent = {info->shape[0], info->shape[1]}});
    give(fixture, &fixture->to, 0,
         (struct tdm_slice){.tensor = 2, .offset = {0, 1}, .extent = {info->shape[0], 2}});
    options = options_of(fixture, 0);
    TRY(tdm__transfer_plan_create(&options, &transfer_plan));
    assert_int_equal(transfer_plan->images[0].copies_count, 1);
    assert_int_equal(transfer_plan->images[0].copies[0].rows, info->shape[0]);
    assert_int_equal(tdm__transfer_plan_copies_between(transfer_plan, 0, 0, 0), 1);
    assert_string_equal(
        tdm__transfer_plan_tensor(transfer_plan, 0, &transfer_plan->images[0].copies[0])->name,
        "c");
    tdm__transfer_plan_destroy(transfer_plan);
    actor_fixture_close(fixture);
}

/* ---- replicas ---------------------------------------------------------------------------- */

enum { ROWS = 64, COLUMNS = 1 << 16, HOLDERS = 4 };

/* Every trainer rank has the whole of one tensor of 8 MiB for each of `tensors` tensors. Each
 * engine rank wants them all. */
struct whole_plan {
    struct tdm_tensor_info infos[TENSORS];
    struct tdm__manifest *manifest;
    struct tdm_slice slices[TENSORS];
    struct tdm__layout layouts[HOLDERS];
    struct tdm__transfer_plan *plan;
};

/* Returns the location of a GPU, of which each node has two. */
static struct tdm__location gpu(uint8_t number)
{
    return (struct tdm__location){.node = {{(uint8_t)(number / 2 + 1)}},
                                  .gpu = {{(uint8_t)(number + 1)}}};
}

static void plan_wholes(struct whole_plan *whole, uint32_t tensors,
                        const struct tdm__location *from, const struct tdm__location *to,
                        uint32_t to_count)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};
    struct tdm__transfer_plan_options options = {.from = whole->layouts,
                                                 .from_count = HOLDERS,
                                                 .to = whole->layouts,
                                                 .to_count = to_count,
                                                 .from_locations = from,
                                                 .to_locations = to,
                                                 .image_bytes = UINT64_C(1) << 30};

    for (uint32_t i = 0; i < tensors; i++) {
        whole->infos[i] = (struct tdm_tensor_info){names[i], TDM_BF16, 2, {ROWS, COLUMNS}};
        whole->slices[i] = (struct tdm_slice){
            .tensor = i, .extent = {ROWS, COLUMNS}, .address = offset(i * UINT64_C(8) << 20)};
    }
    for (uint32_t i = 0; i < HOLDERS; i++) {
        whole->layouts[i] = (struct tdm__layout){whole->slices, tensors};
    }
    TRY(tdm__manifest_create(whole->infos, tensors, &whole->manifest));
    options.manifest = whole->manifest;
    if (tdm__transfer_plan_create(&options, &whole->plan) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
}

static void drop_wholes(struct whole_plan *whole)
{
    tdm__transfer_plan_destroy(whole->plan);
    tdm__manifest_destroy(whole->manifest);
}

static void nearest_replica_is_taken(void **state)
{
    const struct tdm__location from[HOLDERS] = {gpu(0), gpu(1), gpu(2), gpu(3)};
    const struct tdm__location same[2] = {gpu(3), gpu(0)};
    const struct tdm__location near[1] = {{.node = gpu(2).node, .gpu = {{77}}}};
    struct whole_plan whole;

    (void)state;
    plan_wholes(&whole, 3, NULL, NULL, HOLDERS); /* As in a job whose ranks share GPUs in pairs. */
    for (uint32_t rank = 0; rank < HOLDERS; rank++) {
        for (uint32_t i = 0; i < whole.plan->images[rank].copies_count; i++) {
            assert_int_equal(whole.plan->images[rank].copies[i].from_rank, rank);
        }
    }
    assert_int_equal(whole.plan->cost.bytes_by_locality[TDM__LOCALITY_SAME_GPU],
                     whole.plan->cost.written_bytes);
    drop_wholes(&whole);

    plan_wholes(&whole, 3, from, same, 2); /* The numbers of ranks do not matter, the GPUs do. */
    assert_int_equal(whole.plan->images[0].copies[0].from_rank, 3);
    assert_int_equal(whole.plan->images[1].copies[0].from_rank, 0);
    assert_int_equal(whole.plan->cost.bytes_by_locality[TDM__LOCALITY_SAME_GPU],
                     whole.plan->cost.written_bytes);
    drop_wholes(&whole);

    plan_wholes(&whole, 4, from, near, 1); /* A rank of the node is as good as the other one. */
    assert_int_equal(whole.plan->cost.bytes_by_locality[TDM__LOCALITY_SAME_NODE],
                     whole.plan->cost.written_bytes);
    assert_int_equal(whole.plan->cost.sent_bytes_min, 0);
    assert_int_equal(whole.plan->cost.sent_bytes_max, whole.plan->cost.written_bytes / 2);
    drop_wholes(&whole);
}

static void equally_near_replicas_share_the_sending(void **state)
{
    const struct tdm__location from[HOLDERS] = {gpu(0), gpu(1), gpu(2), gpu(3)};
    const struct tdm__location far[2] = {gpu(10), gpu(12)};
    struct whole_plan whole;

    (void)state;
    plan_wholes(&whole, 4, from, far, 2);
    assert_int_equal(whole.plan->cost.bytes_by_locality[TDM__LOCALITY_OTHER_NODE],
                     whole.plan->cost.written_bytes);
    assert_int_equal(whole.plan->cost.sent_bytes_min, whole.plan->cost.sent_bytes_max);
    assert_int_equal(whole.plan->cost.copies_max, 4);
    drop_wholes(&whole);
}

/* A rank that must send much is not asked for what another one has, too. */
static void rank_with_more_to_send_is_spared(void **state)
{
    const struct tdm__location from[HOLDERS] = {gpu(0), gpu(1), gpu(2), gpu(3)};
    const struct tdm__location far[1] = {gpu(10)};
    struct whole_plan whole;
    struct tdm__transfer_plan_options options;

    (void)state;
    plan_wholes(&whole, 3, from, far, 1);
    tdm__transfer_plan_destroy(whole.plan);
    options = (struct tdm__transfer_plan_options){.manifest = whole.manifest,
                                                  .from = whole.layouts,
                                                  .from_count = 2,
                                                  .to = &whole.layouts[2],
                                                  .to_count = 1,
                                                  .from_locations = from,
                                                  .to_locations = far,
                                                  .image_bytes = UINT64_C(1) << 30};
    whole.layouts[1].slices_count = 1; /* Rank 0 alone has tensors b and c. */
    TRY(tdm__transfer_plan_create(&options, &whole.plan));
    assert_int_equal(whole.plan->images[0].copies_count, 3);
    assert_int_equal(whole.plan->images[0].copies[0].from_rank, 1);
    drop_wholes(&whole);
}

static void assert_refused(const struct fixture *fixture, const char *words)
{
    const struct tdm__transfer_plan_options options = options_of(fixture, 0);
    struct tdm__transfer_plan *transfer_plan;

    assert_int_equal(tdm__transfer_plan_create(&options, &transfer_plan), TDM_E_INVAL);
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

static void impossible_layout_is_refused_by_name(void **state)
{
    struct fixture *fixture = actor_fixture_open(1);
    const struct tdm_slice whole = {.tensor = 1, .flat = 1, .extent = {4}};
    const struct tdm_slice part = {.tensor = 1, .flat = 1, .offset = {1}, .extent = {2}};

    (void)state;
    fixture->from.ranks = 2;
    fixture->to.ranks = 1;
    give(fixture, &fixture->to, 0, whole);
    assert_refused(fixture, "tensor b: element 0 is in no rank's slices");
    give(fixture, &fixture->from, 0, part);
    assert_refused(fixture, "tensor b: element 0 is in no rank's slices");
    give(fixture, &fixture->from, 1, whole);
    assert_refused(fixture, "tensor b: elements 1 to 2 are in slices of rank 1 and of rank 0");
    fixture->from.layouts[0].slices_count = 0;
    give(fixture, &fixture->to, 0, part);
    fixture->to.slices[0][1].address = fixture->to.slices[0][0].address;
    assert_refused(fixture, "where another one ends");
    fixture->to.slices[0][1].address = offset(MEMORY_BYTES - 2);
    assert_refused(fixture, "tensor b: a slice from");
    fixture->to.slices[0][1].address = offset(MEMORY_BYTES - 9);
    assert_refused(fixture, "not aligned");
    actor_fixture_close(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_arrives_between_any_two_layouts),
        cmocka_unit_test(no_chunk_is_larger_than_wanted),
        cmocka_unit_test(whole_tensors_arrive_from_any_layout),
        cmocka_unit_test(fp8_tensor_is_split_between_block_rows),
        cmocka_unit_test(columns_are_one_copy_and_not_one_a_row),
        cmocka_unit_test(nearest_replica_is_taken),
        cmocka_unit_test(equally_near_replicas_share_the_sending),
        cmocka_unit_test(rank_with_more_to_send_is_spared),
        cmocka_unit_test(impossible_layout_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
