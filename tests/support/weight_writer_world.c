/* weight_writer_world.c - trainer ranks and an engine rank that update each other's weights by
 * routes.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/weight_writer_world.h"

#include "colocate/device/cuda/driver_api.h"
#include "colocate/transfer/casts.h"
#include "tests/support/cuda_gpu.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { HALVED = 0, QUANTIZED = 1 };

/* What the engine wants: the first tensor in halves, the second by blocks with scales, and the
 * others as they are. */
static struct tdm_slice wish(const struct tdm_tensor_info *info, uint32_t tensor)
{
    struct tdm_slice slice = {.tensor = tensor, .flat = 1, .extent = {tdm_tensor_elements(info)}};

    if (tensor == QUANTIZED) {
        slice = (struct tdm_slice){
            .tensor = tensor, .extent = {info->shape[0], info->shape[1]}, .dtype = TDM_F8_E4M3};
    } else if (tensor == HALVED) {
        slice.dtype = TDM_BF16;
    }
    return slice;
}

static uint64_t after(uint64_t at, uint64_t size_bytes)
{
    return (at + size_bytes + WEIGHT_WRITERS_GAP_BYTES) / WEIGHT_WRITERS_GAP_BYTES *
           WEIGHT_WRITERS_GAP_BYTES;
}

/* Tensor behind tensor, with nothing between them here and there; the scales at the end. */
static void place_tensors(struct weight_writers *m)
{
    char *base = tdm_region_address(m->world->weights);
    uint64_t at = WEIGHT_WRITERS_GAP_BYTES;

    for (uint32_t i = 0; i < WORLD_TENSORS; i++) {
        m->offsets[i] = wish(&m->world->infos[i], i);
        m->slices[i] = m->offsets[i];
        memcpy(&m->offsets[i].address, &at, sizeof(at));
        m->slices[i].address = base + at;
        at = after(at, tdm__slice_bytes(m->world->manifest, &m->slices[i]));
    }
    memcpy(&m->offsets[QUANTIZED].scales, &at, sizeof(at));
    m->slices[QUANTIZED].scales = base + at;
    m->layout = (struct tdm__layout){m->offsets, WORLD_TENSORS};
}

/* Compiles the plan and creates the writers of all trainer ranks. */
static struct weight_writers *open_writers(bool in_place, enum tdm__verify verify,
                                           uint64_t chunk_bytes, uint64_t exchange_bytes)
{
    struct weight_writers *m = calloc(1, sizeof(*m));
    struct tdm__transfer_plan_options options;
    struct tdm__layout layout;

    assert_non_null(m);
    m->world = weight_fixture_open("weight_writer", verify);
    m->in_place = in_place;
    place_tensors(m);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        m->locations[rank] = m->world->location;
        m->locations[rank].node.bytes[0] ^= (uint8_t)(exchange_bytes > 0 ? rank : 0);
    }
    layout = (struct tdm__layout){m->slices, WORLD_TENSORS};
    TRY(tdm__receiver_set_layout(m->world->receiver, &layout));
    options = (struct tdm__transfer_plan_options){.manifest = m->world->manifest,
                                                  .from = m->world->layouts,
                                                  .from_count = WORLD_RANKS,
                                                  .to = &m->layout,
                                                  .to_count = 1,
                                                  .from_locations = m->locations,
                                                  .to_locations = m->locations,
                                                  .image_bytes = tdm_region_size(m->world->weights),
                                                  .chunk_bytes = in_place ? 0 : chunk_bytes,
                                                  .exchange_bytes = exchange_bytes};
    TRY(tdm__transfer_plan_create(&options, &m->transfer_plan));
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        const struct tdm__weight_writer_options weight_writer = {.transfer_plan = m->transfer_plan,
                                                                 .rank = rank,
                                                                 .regions = m->world->regions[0],
                                                                 .group = m->world->groups[rank],
                                                                 .node = m->world->location.node,
                                                                 .in_place = in_place};

        TRY(tdm__weight_writer_create(&weight_writer, &m->weight_writers[rank]));
    }
    return m;
}

struct weight_writers *weight_writers_open_with(bool in_place, enum tdm__verify verify,
                                                uint64_t chunk_bytes)
{
    return open_writers(in_place, verify, chunk_bytes, 0);
}

struct weight_writers *weight_writers_open_divided(bool in_place)
{
    return open_writers(in_place, TDM__VERIFY_FULL, WRITERS_CHUNK_BYTES, WRITERS_ROUND_BYTES);
}

struct weight_writers *weight_writers_open(bool in_place, enum tdm__verify verify)
{
    return weight_writers_open_with(in_place, verify, WRITERS_CHUNK_BYTES);
}

struct weight_writers *weight_writers_open_overwriting(void)
{
    struct weight_writers *m = weight_writers_open(false, TDM__VERIFY_FULL);
    const struct tdm__layout layout = {m->slices, WORLD_TENSORS};

    weight_fixture_overwrite(m->world);
    TRY(tdm__receiver_set_layout(m->world->receiver, &layout));
    return m;
}

/* Also checks that no memory is held. */
void weight_writers_close(struct weight_writers *m)
{
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        tdm__weight_writer_destroy(m->weight_writers[rank]);
    }
    tdm__transfer_plan_destroy(m->transfer_plan);
    weight_fixture_close(m->world);
    free(m);
}

/* What trainers write into, as it is mapped by its owner. */
const tdm_region *weight_writers_target(const struct weight_writers *m)
{
    return m->in_place ? tdm__receiver_shadow(m->world->receiver)
                       : tdm__weight_writer_bucket(m->weight_writers[0]);
}

static void find_target(struct weight_writers *m, struct tdm__transfer_target *target)
{
    struct tdm__block *const *blocks;

    *target = (struct tdm__transfer_target){
        .gpu = m->world->location.gpu, .absent = m->engine_is_absent, .resume_log = m->resume_log};
    for (uint32_t rank = 0; rank < (m->transfer_plan->exchange == NULL ? 1 : WORLD_RANKS); rank++) {
        TRY(tdm__weight_writer_resume_bucket(m->weight_writers[rank], WEIGHT_WRITERS_WAIT_MS));
    }
    blocks = tdm__region_blocks(weight_writers_target(m), &target->blocks_count);
    for (uint32_t i = 0; i < target->blocks_count; i++) {
        target->keys[i] = blocks[i]->key;
    }
}

/* Frees what the ranks have for one update. */
static void pause_buckets(struct weight_writers *m)
{
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TRY(tdm__weight_writer_pause_bucket(m->weight_writers[rank]));
    }
}

void weight_writers_make_room(struct weight_writers *m, struct tdm__transfer_target *target)
{
    weight_fixture_begin(m->world);
    find_target(m, target);
}

static tdm_status measure_one(struct tdm__weight_writer *weight_writer, uint32_t chunk)
{
    (void)chunk;
    return tdm__weight_writer_find_scales(weight_writer);
}

static tdm_status share_scales_of_one(struct tdm__weight_writer *weight_writer, uint32_t chunk)
{
    (void)chunk;
    return tdm__weight_writer_share_scales(weight_writer);
}

/* The two ranks have a block between them. */
static tdm_status share_scales(struct weight_writers *m)
{
    assert_true(tdm__weight_writer_shares_blocks(m->weight_writers[0]));
    TDM_TRY(weight_writers_run(m, 0, measure_one));
    return weight_writers_run(m, 0, share_scales_of_one);
}

void weight_writers_open_targets(struct weight_writers *m)
{
    struct tdm__transfer_target target;

    find_target(m, &target);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TRY(tdm__weight_writer_map_targets(m->weight_writers[rank], &target));
    }
    TRY(share_scales(m));
}

void weight_writers_begin(struct weight_writers *m)
{
    weight_fixture_begin(m->world);
    weight_writers_open_targets(m);
}

/* One step of a chunk, by all ranks at once. */
struct writing {
    tdm_status (*step)(struct tdm__weight_writer *weight_writer, uint32_t chunk);
    struct tdm__weight_writer *weight_writer;
    uint32_t chunk;
    tdm_status status;
};

static void *run_step(void *arg)
{
    struct writing *writing = arg;

    writing->status = writing->step(writing->weight_writer, writing->chunk);
    return NULL;
}

tdm_status weight_writers_run(struct weight_writers *m, uint32_t chunk,
                              tdm_status (*step)(struct tdm__weight_writer *weight_writer,
                                                 uint32_t chunk))
{
    struct writing writings[WORLD_RANKS];
    pthread_t threads[WORLD_RANKS];
    tdm_status status = TDM_OK;

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        writings[rank] = (struct writing){
            .step = step, .weight_writer = m->weight_writers[rank], .chunk = chunk};
        assert_int_equal(pthread_create(&threads[rank], NULL, run_step, &writings[rank]), 0);
    }
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        assert_int_equal(pthread_join(threads[rank], NULL), 0);
        status = writings[rank].status != TDM_OK ? writings[rank].status : status;
    }
    return status;
}

/* Copies what rank `from` gives to rank `to` in a round, and its checksums. */
static void carry_part(struct weight_writers *m, const struct tdm__exchange_round *rounds,
                       uint32_t from, uint32_t to)
{
    const struct tdm__exchange_parts *given = &rounds[from].pieces;
    const struct tdm__exchange_parts *got = &rounds[to].pieces;
    size_t size_bytes = given->send_bytes[to];
    unsigned char *bytes = malloc(size_bytes + 1);

    assert_non_null(bytes);
    assert_int_equal(size_bytes, got->receive_bytes[from]);
    assert_int_equal(rounds[from].sums.send_bytes[to], rounds[to].sums.receive_bytes[from]);
    if (size_bytes > 0) {
        weight_fixture_get(m->world, 0, bytes,
                           (const char *)rounds[from].send + given->send_offsets[to], size_bytes);
        bytes[0] ^= m->flipped_bits;
        weight_fixture_put(m->world, 0, (char *)rounds[to].receive + got->receive_offsets[from],
                           bytes, size_bytes);
        memcpy((char *)rounds[to].received_sums + rounds[to].sums.receive_offsets[from],
               (const char *)rounds[from].sent_sums + rounds[from].sums.send_offsets[to],
               rounds[from].sums.send_bytes[to]);
    }
    free(bytes);
}

tdm_status weight_writers_try_write(struct weight_writers *m, uint32_t chunk)
{
    uint32_t rounds_count = tdm__weight_writer_rounds_count(m->weight_writers[0], chunk);

    TDM_TRY(weight_writers_run(m, chunk, tdm__weight_writer_write_chunk));
    for (uint32_t i = 0; i < rounds_count; i++) {
        struct tdm__exchange_round rounds[WORLD_RANKS];

        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            assert_int_equal(tdm__weight_writer_rounds_count(m->weight_writers[rank], chunk),
                             rounds_count);
            tdm__weight_writer_begin_round(m->weight_writers[rank], chunk, i, &rounds[rank]);
        }
        carry_part(m, rounds, 0, 1);
        carry_part(m, rounds, 1, 0);
        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            TDM_TRY(tdm__weight_writer_end_round(m->weight_writers[rank], chunk, i));
        }
    }
    return TDM_OK;
}

void weight_writers_write(struct weight_writers *m, uint32_t chunk)
{
    TRY(weight_writers_try_write(m, chunk));
}

/* Tells each rank the claims of all. */
static void
exchange_claims(struct weight_writers *m,
                void (*claim)(struct tdm__weight_writer *weight_writer, uint64_t *claim_out),
                void (*settle)(struct tdm__weight_writer *weight_writer, const uint64_t *claims))
{
    uint32_t words = tdm__weight_writer_claim_words(m->weight_writers[0]);
    uint64_t *claims = calloc((size_t)words * WORLD_RANKS, sizeof(*claims));

    assert_non_null(claims);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        claim(m->weight_writers[rank], &claims[(size_t)rank * words]);
    }
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        settle(m->weight_writers[rank], claims);
    }
    free(claims);
}

/* All ranks compare their checksums with the resume log. */
void weight_writers_find_held(struct weight_writers *m)
{
    exchange_claims(m, tdm__weight_writer_claim_held, tdm__weight_writer_settle_held);
}

/* The update before was given up: a new one, of whatever the trainers have now. */
void weight_writers_begin_again(struct weight_writers *m)
{
    weight_fixture_begin(m->world);
    TRY(tdm__receiver_resume_update(m->world->receiver, &m->world->update, m->world->epoch,
                                    &m->resume_log));
    weight_writers_open_targets(m);
    weight_writers_find_held(m);
}

tdm_status weight_writers_stage_arrival(struct weight_writers *m, uint32_t chunk,
                                        const char *source, size_t source_bytes)
{
    struct tdm__bucket_description descriptions[WORLD_RANKS];
    struct tdm__bucket_arrival arrival = {
        .descriptions = descriptions, .source = source, .source_bytes = source_bytes};

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        struct tdm__bucket_description *description = &descriptions[arrival.descriptions_count];

        description->writer = rank;
        TRY(tdm__weight_writer_describe_chunk(m->weight_writers[rank], &m->world->update,
                                              m->world->epoch, chunk, 0, &description->handles));
        arrival.descriptions_count += description->handles.size_bytes > 0 ? 1 : 0;
    }
    return arrival.descriptions_count == 0
               ? TDM_OK
               : tdm__receiver_stage_arrival(m->world->receiver, &arrival);
}

tdm_status weight_writers_stage(struct weight_writers *m, uint32_t chunk)
{
    return weight_writers_stage_arrival(m, chunk, NULL, 0);
}

tdm_status weight_writers_stage_received(struct weight_writers *m, uint32_t chunk)
{
    struct tdm__regions *regions = m->world->regions[1];
    const tdm_region *bucket = weight_writers_target(m);
    struct tdm_region_options room = {
        .tag = "received", .size_bytes = tdm_region_size(bucket), .policy = TDM_REGION_DROP};
    uint64_t location = tdm__weight_writer_chunk_offset(m->weight_writers[0], chunk, 0);
    unsigned char *bytes = malloc(room.size_bytes);
    tdm_region *received;
    tdm_status status;

    assert_non_null(bytes);
    TRY(tdm__region_create(regions, &room, &received));
    weight_fixture_get(m->world, 0, bytes, tdm_region_address(bucket), room.size_bytes);
    weight_fixture_put(m->world, 1, tdm_region_address(received), bytes, room.size_bytes);
    status = weight_writers_stage_arrival(m, chunk, (char *)tdm_region_address(received) + location,
                                          room.size_bytes - location);
    tdm_region_destroy(received);
    free(bytes);
    return status;
}

void weight_writers_end(struct weight_writers *m)
{
    exchange_claims(m, tdm__weight_writer_claim_result, tdm__weight_writer_settle_result);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        tdm__weight_writer_unmap_targets(m->weight_writers[rank]);
    }
}

void weight_writers_send(struct weight_writers *m, uint32_t count)
{
    weight_writers_begin(m);
    for (uint32_t i = 0; i < count; i++) {
        weight_writers_write(m, i);
        TRY(weight_writers_stage(m, i));
    }
    weight_writers_end(m);
}

void weight_writers_commit(struct weight_writers *m)
{
    struct weight_fixture *world = m->world;

    weight_writers_send(m, m->transfer_plan->chunks_count);
    TRY(tdm__receiver_prepare_slices(world->receiver, &world->update));
    TRY(tdm__receiver_flip_shadow(world->receiver, &world->update));
    pause_buckets(m);
}

void weight_writers_give_up(struct weight_writers *m)
{
    weight_writers_end(m);
    TRY(tdm__receiver_drop_shadow(m->world->receiver, m->world->epoch));
    pause_buckets(m);
}

static uint64_t bytes_written(const struct weight_writers *m)
{
    uint64_t bytes = 0;

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        for (uint32_t edge = 0; edge < TDM__LOCALITIES_COUNT; edge++) {
            bytes += tdm__weight_writer_last_totals(m->weight_writers[rank])->bytes[edge];
        }
    }
    return bytes;
}

/* To the end, and committed.  Returns how many chunks that took. */
uint32_t weight_writers_finish(struct weight_writers *m)
{
    struct weight_fixture *world = m->world;
    struct tdm__resume_log sent;
    uint32_t chunks = 0;

    for (uint32_t i = 0; i < m->transfer_plan->chunks_count; i++) {
        bool is_held = tdm__weight_writer_chunk_is_held(m->weight_writers[0], i);

        assert_int_equal(tdm__weight_writer_chunk_is_held(m->weight_writers[1], i), is_held);
        weight_writers_write(m, i);
        assert_true((bytes_written(m) == 0) == is_held);
        if (!is_held) {
            TRY(weight_writers_stage(m, i));
        }
        chunks += is_held ? 0 : 1;
    }
    weight_writers_end(m);
    sent = tdm__weight_writer_resume_log(m->weight_writers[0], 0);
    TRY(tdm__receiver_prepare_sent(world->receiver, &world->update, &sent));
    TRY(tdm__receiver_flip_shadow(world->receiver, &world->update));
    pause_buckets(m);
    return chunks;
}

static void put_wanted(const struct weight_writers *m, uint32_t tensor, unsigned char *wanted)
{
    const struct tdm_tensor_info *info = &m->world->infos[tensor];
    const struct tdm_slice *slice = &m->offsets[tensor];
    const unsigned char *truth = m->world->truth + m->world->offsets[tensor];
    unsigned char *location = wanted + (uintptr_t)slice->address;
    uint32_t columns = (uint32_t)info->shape[1];

    if (tensor == HALVED) {
        tdm__bf16_from_floats((uint16_t *)(void *)location, truth, tdm_tensor_elements(info));
    } else if (tensor == QUANTIZED) {
        float *scales = (float *)(void *)(wanted + (uintptr_t)slice->scales);

        tdm__fp8_quantize(&(struct tdm__strided_matrix){truth, info->dtype,
                                                        (uint32_t)info->shape[0], columns, columns},
                          &(struct tdm__fp8_matrix){location, scales, columns, 1});
    } else {
        memcpy(location, truth, tdm_tensor_bytes(info));
    }
}

/* What the engine has now; to be freed. */
unsigned char *weight_writers_served(const struct weight_writers *m)
{
    size_t size_bytes = tdm_region_size(m->world->weights);
    unsigned char *bytes = malloc(size_bytes);

    assert_non_null(bytes);
    weight_fixture_get(m->world, 1, bytes, tdm_region_address(m->world->weights), size_bytes);
    return bytes;
}

/* Every tensor, and zeros between them. */
bool weight_writers_serve_truth(const struct weight_writers *m)
{
    size_t size_bytes = tdm_region_size(m->world->weights);
    unsigned char *weights = weight_writers_served(m);
    unsigned char *wanted = calloc(1, size_bytes);
    bool same;

    assert_non_null(wanted);
    for (uint32_t i = 0; i < WORLD_TENSORS; i++) {
        put_wanted(m, i, wanted);
    }
    same = memcmp(weights, wanted, size_bytes) == 0;
    free(wanted);
    free(weights);
    return same;
}

/* In what was written, before it is staged. */
void weight_writers_flip_bits(struct weight_writers *m, size_t offset, unsigned char bits)
{
    unsigned char *location =
        (unsigned char *)tdm_region_address(weight_writers_target(m)) + offset;
    int owner = m->in_place ? 1 : 0;
    unsigned char byte;

    weight_fixture_get(m->world, owner, &byte, location, 1);
    byte ^= bits;
    weight_fixture_put(m->world, owner, location, &byte, 1);
}

/* ---- with failures ---- */

/* As far as it goes. */
static tdm_status try_update(struct weight_writers *m, const struct tdm__transfer_target *target)
{
    struct weight_fixture *world = m->world;

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TDM_TRY(tdm__weight_writer_map_targets(m->weight_writers[rank], target));
    }
    TDM_TRY(share_scales(m));
    for (uint32_t i = 0; i < m->transfer_plan->chunks_count; i++) {
        TDM_TRY(weight_writers_run(m, i, tdm__weight_writer_write_chunk));
        TDM_TRY(weight_writers_stage(m, i));
    }
    return tdm__receiver_prepare_slices(world->receiver, &world->update);
}

/* True if it ended with the new weights, false if it is to be given up. */
bool weight_writers_update_while_a_call_fails(struct weight_writers *m, uint64_t nth,
                                              uint64_t *calls_out)
{
    struct weight_fixture *world = m->world;
    struct tdm__transfer_target target;
    tdm_status status;

    weight_writers_make_room(m, &target);
    cuda_gpu_fake.break_call("*", nth, CU_INVALID_VALUE);
    status = try_update(m, &target);
    *calls_out = cuda_gpu_fake.calls();
    /* The update is committed, so that it must succeed at the second attempt at the latest. */
    if (status == TDM_OK) {
        status = tdm__receiver_flip_shadow(world->receiver, &world->update);
        *calls_out = cuda_gpu_fake.calls();
        cuda_gpu_fake.break_call("", 0, 0);
        if (status != TDM_OK) {
            TRY(tdm__receiver_flip_shadow(world->receiver, &world->update));
        }
        weight_writers_end(m);
        pause_buckets(m);
        return true;
    }
    cuda_gpu_fake.break_call("", 0, 0);
    return false;
}
