/* node_exchange_test.c - what engine ranks want from other nodes crosses once and arrives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/node_exchange.h"

#include "colocate/layout/model.h"
#include "colocate/transfer/casts.h"
#include "colocate/weights/convert.h"
#include "colocate/weights/exchange_rounds.h"
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

enum {
    TENSORS = 5,
    RANKS_MAX = 6,
    NODES = 3,
    SLICES_MAX = 64,
    ELEMENTS_MAX = 12 * 12 * 12,
    MEMORY_BYTES = 1 << 17,
    CASES = 300
};

/* One side of the transfer: which slices each rank has, and where in its memory or image. */
struct side {
    uint32_t ranks;
    struct tdm_slice slices[RANKS_MAX][SLICES_MAX];
    struct tdm__layout layouts[RANKS_MAX];
    struct tdm__location locations[RANKS_MAX];
    uint64_t ends[RANKS_MAX]; /* Number of bytes that are used. */
};

struct fixture {
    struct test_random chance;
    struct tdm_tensor_info infos[TENSORS];
    enum tdm_dtype wanted[TENSORS]; /* Data type in which engines want the tensor. */
    struct tdm__manifest *manifest;
    struct side from;
    struct side to;
    struct tdm__transfer_plan *plan;
    uint64_t round_bytes;
    _Alignas(64) unsigned char held[RANKS_MAX][MEMORY_BYTES];
    _Alignas(64) unsigned char images[RANKS_MAX][MEMORY_BYTES];
    unsigned char *sends[RANKS_MAX];
    unsigned char *receives[RANKS_MAX];
    struct tdm__exchange_rounds *rounds[RANKS_MAX];
    /* Bytes that cross from one node to another. */
    uint64_t crossed[NODES][NODES];
};

static uint32_t below(struct fixture *fixture, uint32_t bound)
{
    return test_random_below(&fixture->chance, bound);
}

/* Returns a byte offset as an address, which is how both sides store addresses. */
static const void *offset(uint64_t bytes)
{
    const void *address;

    memcpy(&address, &bytes, sizeof(address));
    return address;
}

/* ---- random layouts ------------------------------------------------------------------ */

static void invent_tensors(struct fixture *fixture)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};
    static const enum tdm_dtype dtypes[TENSORS] = {TDM_F32, TDM_BF16, TDM_U8, TDM_I64, TDM_F32};

    for (uint32_t i = 0; i < TENSORS; i++) {
        fixture->infos[i] =
            (struct tdm_tensor_info){.name = names[i], .dtype = dtypes[i], .dims_count = i % 4};
        fixture->wanted[i] = dtypes[i] == TDM_F32 && below(fixture, 2) == 0 ? TDM_BF16 : dtypes[i];
        for (uint32_t dim = 0; dim < i % 4; dim++) {
            fixture->infos[i].shape[dim] = 4 + below(fixture, 9);
        }
    }
    TRY(tdm__manifest_create(fixture->infos, TENSORS, &fixture->manifest));
}

static void give(struct fixture *fixture, struct side *side, uint32_t rank, struct tdm_slice slice)
{
    struct tdm__layout *layout = &side->layouts[rank];
    uint64_t gap = below(fixture, side == &fixture->to ? 16 : 3) * UINT64_C(64);
    uint64_t at = side->ends[rank] + gap;

    at = (at + 7) / 8 * 8;
    slice.address = offset(at);
    slice.dtype = side == &fixture->to ? fixture->wanted[slice.tensor] : 0;
    side->ends[rank] = at + tdm__slice_bytes(fixture->manifest, &slice);
    assert_true(layout->slices_count < SLICES_MAX && side->ends[rank] <= MEMORY_BYTES);
    side->slices[rank][layout->slices_count++] = slice;
    layout->slices = side->slices[rank];
}

/* Gives each of `parts` ranks a part of the tensor, and what one rank gets also to others: to a
 * random few of the trainers, or to the ranks with the same number of all engines. */
static void cut_tensor(struct fixture *fixture, struct side *side, uint32_t parts, uint32_t tensor)
{
    const struct tdm_tensor_info *info = &fixture->infos[tensor];
    uint32_t dim = below(fixture, info->dims_count + 1);
    uint32_t flat = dim == info->dims_count;
    uint64_t length = flat ? tdm_tensor_elements(info) : info->shape[dim];
    uint64_t at = 0;

    for (uint32_t part = 0; part < parts && at < length; part++) {
        uint64_t left = length - at;
        uint64_t count = part + 1 == parts ? left : below(fixture, (uint32_t)left + 1);
        struct tdm_slice slice = {.tensor = tensor, .flat = flat};

        if (count == 0) {
            continue;
        }
        for (uint32_t i = 0; i < info->dims_count && !flat; i++) {
            slice.extent[i] = info->shape[i];
        }
        slice.offset[flat ? 0 : dim] = at;
        slice.extent[flat ? 0 : dim] = count;
        for (uint32_t rank = 0; rank < side->ranks; rank++) {
            bool is_own = side == &fixture->from ? rank == part || below(fixture, 4) == 0
                                                 : rank % parts == part;

            if (is_own) {
                give(fixture, side, rank, slice);
            }
        }
        at += count;
    }
}

/* Engine ranks are on nodes with trainer ranks, on their GPUs or on others. */
static void place_ranks(struct fixture *fixture)
{
    for (uint32_t i = 0; i < fixture->from.ranks; i++) {
        fixture->from.locations[i] = (struct tdm__location){
            .node = {{(uint8_t)(1 + below(fixture, NODES))}}, .gpu = {{(uint8_t)(100 + i)}}};
    }
    for (uint32_t i = 0; i < fixture->to.ranks; i++) {
        fixture->to.locations[i] = fixture->from.locations[below(fixture, fixture->from.ranks)];
        if (below(fixture, 3) == 0) {
            fixture->to.locations[i].gpu.bytes[0] = (uint8_t)(200 + i);
        }
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
                                               .from_locations = fixture->from.locations,
                                               .to_locations = fixture->to.locations,
                                               .image_bytes = MEMORY_BYTES,
                                               .chunk_bytes = chunk_bytes,
                                               .exchange_bytes = fixture->round_bytes};
}

static struct fixture *fixture_open(uint64_t seed)
{
    static const uint64_t chunks[] = {0, 512, 1024, 4096};
    static const uint64_t rounds[] = {16, 600, 1 << 20};
    struct fixture *fixture = aligned_alloc(64, sizeof(*fixture));
    struct tdm__transfer_plan_options options;
    uint32_t parts;

    assert_non_null(fixture);
    memset(fixture, 0, sizeof(*fixture));
    fixture->chance = (struct test_random){.state = seed};
    invent_tensors(fixture);
    fixture->from.ranks = 1 + below(fixture, RANKS_MAX);
    parts = 1 + below(fixture, RANKS_MAX / 2);
    fixture->to.ranks = parts * (1 + below(fixture, RANKS_MAX / parts));
    for (uint32_t i = 0; i < TENSORS; i++) {
        cut_tensor(fixture, &fixture->from, fixture->from.ranks, i);
        cut_tensor(fixture, &fixture->to, parts, i);
    }
    place_ranks(fixture);
    fixture->round_bytes = rounds[below(fixture, 3)];
    options = options_of(fixture, chunks[below(fixture, 4)]);
    TRY(tdm__transfer_plan_create(&options, &fixture->plan));
    return fixture;
}

static void fixture_close(struct fixture *fixture)
{
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
        tdm__exchange_rounds_destroy(fixture->rounds[rank]);
        free(fixture->sends[rank]);
        free(fixture->receives[rank]);
    }
    tdm__transfer_plan_destroy(fixture->plan);
    tdm__manifest_destroy(fixture->manifest);
    free(fixture);
}

/* ---- the bytes ----------------------------------------------------------------------- */

/* Calls `fn` for every element of a slice, with its index in the tensor and in the slice. */
static void each_element(const struct fixture *fixture, const struct tdm_slice *slice,
                         void (*fn)(void *arg, uint64_t in_tensor, uint64_t in_slice), void *arg)
{
    const struct tdm_tensor_info *info = &fixture->infos[slice->tensor];
    uint64_t count = slice->flat != 0 ? slice->extent[0] : 1;

    for (uint32_t dim = 0; dim < info->dims_count && slice->flat == 0; dim++) {
        count *= slice->extent[dim];
    }
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
    enum tdm_dtype dtype; /* Data type of the elements in memory. */
    bool converts;        /* True if they were floats before. */
};

static void truth_of(const struct visit *visit, uint64_t element, unsigned char *bytes)
{
    uint64_t value = tdm__splitmix64(visit->tensor + 1, element);
    float number = (float)value;

    if (visit->converts) {
        uint16_t half;

        tdm__bf16_from_floats(&half, &number, 1);
        memcpy(bytes, &half, sizeof(half));
    } else if (visit->dtype == TDM_F32) {
        memcpy(bytes, &number, sizeof(number));
    } else {
        memcpy(bytes, &value, tdm_dtype_bytes(visit->dtype));
    }
}

static void write_element(void *arg, uint64_t in_tensor, uint64_t in_slice)
{
    const struct visit *visit = arg;

    truth_of(visit, in_tensor, visit->memory + in_slice * tdm_dtype_bytes(visit->dtype));
}

static void check_element(void *arg, uint64_t in_tensor, uint64_t in_slice)
{
    const struct visit *visit = arg;
    size_t bytes = tdm_dtype_bytes(visit->dtype);
    unsigned char wanted[8];

    truth_of(visit, in_tensor, wanted);
    assert_memory_equal(visit->memory + in_slice * bytes, wanted, bytes);
}

static void each_slice(struct fixture *fixture, struct side *side,
                       unsigned char memory[RANKS_MAX][MEMORY_BYTES],
                       void (*fn)(void *arg, uint64_t in_tensor, uint64_t in_slice))
{
    for (uint32_t rank = 0; rank < side->ranks; rank++) {
        for (uint32_t i = 0; i < side->layouts[rank].slices_count; i++) {
            const struct tdm_slice *slice = &side->slices[rank][i];
            enum tdm_dtype held = fixture->infos[slice->tensor].dtype;
            struct visit visit = {.memory = memory[rank] + (uintptr_t)slice->address,
                                  .tensor = slice->tensor,
                                  .dtype = slice->dtype != 0 ? slice->dtype : held};

            visit.converts = visit.dtype != held;
            each_element(fixture, slice, fn, &visit);
        }
    }
}

/* ---- executing a plan ---------------------------------------------------------------- */

static void execute(const struct tdm__rect_copy *copy, const void *from, void *to)
{
    struct tdm__copy_op op = tdm__convert_copy_op(copy, from, to);
    uint64_t sum;

    TRY(tdm__copy_op_execute(&op, &sum));
}

static const void *source_of(const struct fixture *fixture, const struct tdm__rect_copy *copy)
{
    uint64_t at = copy->from_offset * tdm_dtype_bytes(copy->from_dtype);

    return copy->from_tensor == TDM__TRANSFER_PLAN_RECEIVED
               ? fixture->receives[copy->from_rank] + at
               : fixture->held[copy->from_rank] +
                     (uintptr_t)fixture->from.slices[copy->from_rank][copy->from_tensor].address +
                     at;
}

/* Makes the copies of a chunk whose pieces come in round `round`, or that need no piece of this
 * chunk (UINT32_MAX). */
static void write_images(struct fixture *fixture, uint32_t chunk, uint32_t round)
{
    const struct tdm__node_exchange *exchange = fixture->plan->exchange;

    for (uint32_t i = 0; i < fixture->plan->to_count; i++) {
        const struct tdm__transfer_plan_image *image = &fixture->plan->images[i];
        const struct tdm__transfer_plan_chunk *about = &image->chunks[chunk];

        for (uint32_t k = about->copies_first; k < about->copies_first + about->copies_count; k++) {
            const struct tdm__rect_copy *copy = &image->copies[k];
            uint32_t piece = exchange == NULL ? 0 : exchange->image_pieces[i][k];
            uint32_t comes =
                piece == 0 || exchange->pieces[piece - 1].round < exchange->chunk_rounds[chunk]
                    ? UINT32_MAX
                    : exchange->pieces[piece - 1].round;

            assert_int_not_equal(copy->locality, TDM__LOCALITY_OTHER_NODE);
            assert_int_equal(copy->locality,
                             tdm__location_locality(&fixture->from.locations[copy->from_rank],
                                                    &fixture->to.locations[i]));
            if (comes == round) {
                execute(copy, source_of(fixture, copy),
                        fixture->images[i] +
                            tdm__transfer_plan_image_offset(fixture->plan, i, copy));
            }
        }
    }
}

static void pack_round(struct fixture *fixture, uint32_t round)
{
    const struct tdm__node_exchange *exchange = fixture->plan->exchange;

    for (uint32_t i = exchange->round_firsts[round]; i < exchange->round_firsts[round + 1]; i++) {
        const struct tdm__exchange_piece *piece = &exchange->pieces[i];
        const struct tdm__location *from = &fixture->from.locations[piece->copy.from_rank];
        const struct tdm__location *to = &fixture->from.locations[piece->carrier];

        assert_int_equal(piece->round, round);
        fixture->crossed[from->node.bytes[0] - 1][to->node.bytes[0] - 1] += piece->size_bytes;
        execute(&piece->copy, source_of(fixture, &piece->copy),
                fixture->sends[piece->copy.from_rank] + piece->send_offset);
    }
}

/* No rank sends or receives more than the limit. */
static void check_load(const struct fixture *fixture, const struct tdm__exchange_parts *parts)
{
    uint64_t limit = fixture->round_bytes / 16 * 16;
    size_t bytes[2] = {0, 0};

    for (uint32_t i = 0; i < fixture->from.ranks; i++) {
        bytes[0] += parts->send_bytes[i];
        bytes[1] += parts->receive_bytes[i];
        assert_true(parts->send_bytes[i] <= parts->part_bytes_max);
    }
    assert_true(bytes[0] <= limit && bytes[1] <= limit);
}

static void exchange_round(struct fixture *fixture, uint32_t round)
{
    struct tdm__exchange_round views[RANKS_MAX];
    const struct tdm__node_exchange *exchange = fixture->plan->exchange;

    for (uint32_t i = 0; i < fixture->from.ranks; i++) {
        tdm__exchange_rounds_begin(fixture->rounds[i], round, &views[i]);
        check_load(fixture, &views[i].pieces);
    }
    for (uint32_t i = 0; i < fixture->from.ranks; i++) {
        for (uint32_t k = 0; k < fixture->from.ranks; k++) {
            const struct tdm__exchange_parts *from = &views[i].pieces;
            const struct tdm__exchange_parts *to = &views[k].pieces;

            assert_int_equal(from->send_bytes[k], to->receive_bytes[i]);
            assert_true(from->send_offsets[k] + from->send_bytes[k] <= exchange->send_bytes);
            assert_true(to->receive_offsets[i] + to->receive_bytes[i] <= exchange->receive_bytes);
            memcpy(fixture->receives[k] + to->receive_offsets[i],
                   fixture->sends[i] + from->send_offsets[k], from->send_bytes[k]);
        }
    }
}

static void run(struct fixture *fixture)
{
    const struct tdm__node_exchange *exchange = fixture->plan->exchange;

    for (uint32_t i = 0; i < fixture->from.ranks && exchange != NULL; i++) {
        fixture->sends[i] = aligned_alloc(16, exchange->send_bytes);
        fixture->receives[i] = aligned_alloc(16, exchange->receive_bytes);
        TRY(tdm__exchange_rounds_create(exchange, i, fixture->from.ranks, &fixture->rounds[i]));
    }
    for (uint32_t chunk = 0; chunk < fixture->plan->chunks_count; chunk++) {
        write_images(fixture, chunk, UINT32_MAX);
        for (uint32_t i = 0; i < tdm__node_exchange_rounds(exchange, chunk); i++) {
            pack_round(fixture, exchange->chunk_rounds[chunk] + i);
            exchange_round(fixture, exchange->chunk_rounds[chunk] + i);
            write_images(fixture, chunk, exchange->chunk_rounds[chunk] + i);
        }
    }
}

/* ---- what must cross ----------------------------------------------------------------- */

/* Which elements of a tensor the ranks of one side have on one node. */
struct elements {
    bool has[ELEMENTS_MAX];
};

static void mark_element(void *arg, uint64_t in_tensor, uint64_t in_slice)
{
    (void)in_slice;
    ((struct elements *)arg)->has[in_tensor] = true;
}

static void mark_side(const struct fixture *fixture, const struct side *side, uint32_t node,
                      uint32_t tensor, struct elements *elements)
{
    memset(elements, 0, sizeof(*elements));
    for (uint32_t rank = 0; rank < side->ranks; rank++) {
        for (uint32_t i = 0; i < side->layouts[rank].slices_count; i++) {
            if (side->slices[rank][i].tensor == tensor &&
                side->locations[rank].node.bytes[0] == node + 1) {
                each_element(fixture, &side->slices[rank][i], mark_element, elements);
            }
        }
    }
}

/* Returns the bytes that must come to a node: each element that an engine rank there wants and no
 * trainer rank there has, once. */
static uint64_t bytes_wanted(const struct fixture *fixture, uint32_t node)
{
    static struct elements wanted;
    static struct elements held;
    uint64_t bytes = 0;

    for (uint32_t tensor = 0; tensor < TENSORS; tensor++) {
        mark_side(fixture, &fixture->to, node, tensor, &wanted);
        mark_side(fixture, &fixture->from, node, tensor, &held);
        for (uint32_t i = 0; i < ELEMENTS_MAX; i++) {
            bytes += wanted.has[i] && !held.has[i] ? tdm_dtype_bytes(fixture->wanted[tensor]) : 0;
        }
    }
    return bytes;
}

static void each_byte_crosses_once_and_arrives(void **state)
{
    uint64_t seed = test_random_first_seed("node_exchange_test");
    uint32_t kept = 0;
    uint32_t divided = 0;

    (void)state;
    for (uint32_t round = 0; round < CASES; round++) {
        struct fixture *fixture = fixture_open(seed + round);
        const struct tdm__node_exchange *exchange = fixture->plan->exchange;
        uint64_t all = 0;

        each_slice(fixture, &fixture->from, fixture->held, write_element);
        run(fixture);
        each_slice(fixture, &fixture->to, fixture->images, check_element);
        for (uint32_t to = 0; to < NODES; to++) {
            uint64_t bytes = 0;

            for (uint32_t from = 0; from < NODES; from++) {
                bytes += fixture->crossed[from][to];
                assert_true(from != to || fixture->crossed[from][to] == 0);
            }
            if (bytes != bytes_wanted(fixture, to)) {
                fail_msg("seed %llu: %llu bytes come to node %u instead of %llu",
                         (unsigned long long)(seed + round), (unsigned long long)bytes, to,
                         (unsigned long long)bytes_wanted(fixture, to));
            }
            all += bytes;
        }
        assert_int_equal(fixture->plan->cost.bytes_by_locality[TDM__LOCALITY_OTHER_NODE], all);
        assert_int_equal(exchange != NULL, all > 0);
        for (uint32_t i = 0; exchange != NULL && i < fixture->plan->chunks_count; i++) {
            kept += exchange->chunk_keeps[i] ? 1 : 0;
            divided += tdm__node_exchange_rounds(exchange, i) > 1 ? 1 : 0;
        }
        fixture_close(fixture);
    }
    /* The random layouts have chunks whose pieces later chunks need, and chunks of many rounds. */
    if (kept < 20 || divided < 20) {
        fail_msg("pieces of %u chunks are kept, %u chunks have several rounds", kept, divided);
    }
}

/* ---- single promises ----------------------------------------------------------------- */

enum { ROWS = 256, COLUMNS = 512 };

/* Two trainer ranks on the first node have one tensor each; both engine ranks want both. */
struct small_plan {
    struct tdm_tensor_info infos[2];
    struct tdm__manifest *manifest;
    struct tdm_slice held[2];
    struct tdm_slice wanted[2];
    struct tdm__layout from[4];
    struct tdm__layout to[2];
    struct tdm__location from_locations[4];
    struct tdm__location to_locations[2];
    struct tdm__transfer_plan_options options;
    struct tdm__transfer_plan *plan;
};

static struct tdm__location gpu(uint8_t node, uint8_t number)
{
    return (struct tdm__location){.node = {{node}}, .gpu = {{number}}};
}

static void small_plan_init(struct small_plan *small, enum tdm_dtype wanted)
{
    *small = (struct small_plan){.plan = NULL};
    for (uint32_t i = 0; i < 2; i++) {
        small->infos[i] = (struct tdm_tensor_info){i == 0 ? "a" : "b", TDM_F32, 2, {ROWS, COLUMNS}};
        small->held[i] = (struct tdm_slice){.tensor = i, .extent = {ROWS, COLUMNS}};
        small->wanted[i] = small->held[i];
        small->wanted[i].dtype = wanted;
        small->wanted[i].address = offset(i * UINT64_C(1048576));
        small->wanted[i].scales = offset(i * UINT64_C(1048576) + 786432);
        small->from[i] = (struct tdm__layout){&small->held[i], 1};
        small->to[i] = (struct tdm__layout){small->wanted, 2};
        small->from_locations[i] = gpu(1, (uint8_t)i);
        small->from_locations[i + 2] = gpu(2, (uint8_t)(i + 2));
        small->to_locations[i] = gpu(2, (uint8_t)(i + 2));
    }
    TRY(tdm__manifest_create(small->infos, 2, &small->manifest));
    small->options = (struct tdm__transfer_plan_options){.manifest = small->manifest,
                                                         .from = small->from,
                                                         .from_count = 4,
                                                         .to = small->to,
                                                         .to_count = 2,
                                                         .from_locations = small->from_locations,
                                                         .to_locations = small->to_locations,
                                                         .image_bytes = UINT64_C(1) << 22,
                                                         .exchange_bytes = UINT64_C(1) << 22};
}

static void small_plan_fini(struct small_plan *small)
{
    tdm__transfer_plan_destroy(small->plan);
    tdm__manifest_destroy(small->manifest);
}

/* Each of the two tensors goes to another carrier, which writes it to both engine ranks. */
static void carriers_of_a_node_share_the_receiving(void **state)
{
    const uint64_t bytes = (uint64_t)ROWS * COLUMNS * sizeof(float);
    const uint64_t *by_locality;
    struct small_plan small;

    (void)state;
    small_plan_init(&small, TDM_F32);
    TRY(tdm__transfer_plan_create(&small.options, &small.plan));
    by_locality = small.plan->cost.bytes_by_locality;
    assert_int_equal(small.plan->exchange->pieces_count, 2);
    assert_int_equal(small.plan->exchange->rounds_count, 1);
    assert_int_not_equal(small.plan->exchange->pieces[0].carrier,
                         small.plan->exchange->pieces[1].carrier);
    assert_int_equal(by_locality[TDM__LOCALITY_OTHER_NODE], 2 * bytes);
    assert_int_equal(by_locality[TDM__LOCALITY_SAME_GPU], 2 * bytes);
    assert_int_equal(by_locality[TDM__LOCALITY_SAME_NODE], 2 * bytes);
    assert_int_equal(small.plan->cost.written_bytes, 4 * bytes);
    assert_int_equal(small.plan->exchange->send_bytes, bytes);
    assert_int_equal(small.plan->exchange->receive_bytes, bytes);
    small_plan_fini(&small);
}

/* Codes and scales cross, not the elements, also in pieces of 128 rows. */
static void fp8_crosses_converted(void **state)
{
    const uint64_t codes = (uint64_t)ROWS * COLUMNS;
    const uint64_t scales = UINT64_C(2) * 4 * sizeof(float);

    (void)state;
    for (int divided = 0; divided < 2; divided++) {
        struct small_plan small;
        const struct tdm__node_exchange *exchange;

        small_plan_init(&small, TDM_F8_E4M3);
        small.options.exchange_bytes = divided ? 100 : small.options.exchange_bytes;
        TRY(tdm__transfer_plan_create(&small.options, &small.plan));
        exchange = small.plan->exchange;
        assert_int_equal(small.plan->cost.bytes_by_locality[TDM__LOCALITY_OTHER_NODE],
                         2 * (codes + scales));
        for (uint32_t i = 0; i < exchange->pieces_count; i++) {
            const struct tdm__rect_copy *copy = &exchange->pieces[i].copy;

            assert_int_equal(copy->rows,
                             divided && copy->conversion == TDM__CONVERT_FP8 ? 128 : ROWS);
        }
        for (uint32_t i = 0; i < small.plan->images[0].copies_count; i++) {
            const struct tdm__rect_copy *copy = &small.plan->images[0].copies[i];
            uint64_t at = tdm__transfer_plan_image_offset(small.plan, 0, copy);

            assert_int_equal(copy->from_tensor == TDM__TRANSFER_PLAN_RECEIVED_SCALES,
                             at % 1048576 >= 786432);
        }
        small_plan_fini(&small);
    }
}

static void node_without_a_trainer_rank_is_refused(void **state)
{
    struct small_plan small;

    (void)state;
    small_plan_init(&small, TDM_F32);
    small.options.from_count = 2;
    assert_int_equal(tdm__transfer_plan_create(&small.options, &small.plan), TDM_E_UNSUPPORTED);
    assert_non_null(
        strstr(tdm_error_detail(), "engine rank 0 is on a node without a trainer rank"));
    assert_non_null(strstr(tdm_error_detail(), "Place a trainer rank on each node with engines"));
    small.plan = NULL;
    small_plan_fini(&small);
}

/* Without a limit for rounds plans are as they were. */
static void plan_without_an_exchange_copies_between_nodes(void **state)
{
    struct small_plan small;

    (void)state;
    small_plan_init(&small, TDM_F32);
    small.options.exchange_bytes = 0;
    TRY(tdm__transfer_plan_create(&small.options, &small.plan));
    assert_null(small.plan->exchange);
    assert_int_equal(small.plan->images[1].copies[0].locality, TDM__LOCALITY_OTHER_NODE);
    assert_int_equal(tdm__node_exchange_rounds(NULL, 0), 0);
    small_plan_fini(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_crosses_once_and_arrives),
        cmocka_unit_test(carriers_of_a_node_share_the_receiving),
        cmocka_unit_test(fp8_crosses_converted),
        cmocka_unit_test(node_without_a_trainer_rank_is_refused),
        cmocka_unit_test(plan_without_an_exchange_copies_between_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
