/* mover_world.c - trainer ranks and an engine rank that update each other's weights by routes.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mover_world.h"

#include "colocate/device/cuda/driver_api.h"
#include "colocate/plan/fp8.h"
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
    struct tdm_slice slice = {
        .tensor = tensor, .flat = 1, .extent = {tdm_tensor_elements(info)}};

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
    return (at + size_bytes + MOVERS_GAP_BYTES) / MOVERS_GAP_BYTES * MOVERS_GAP_BYTES;
}

/* Tensor behind tensor, with nothing between them here and there; the scales at the end. */
static void place_tensors(struct movers *m)
{
    char *base = tdm_region_address(m->world->weights);
    uint64_t at = MOVERS_GAP_BYTES;

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

struct movers *movers_open_with(bool in_place, enum tdm__verify verify, uint64_t window_bytes)
{
    struct movers *m = calloc(1, sizeof(*m));
    struct tdm__route_options options;
    struct tdm__layout layout;

    assert_non_null(m);
    m->world = weight_world_open("mover", verify);
    m->in_place = in_place;
    place_tensors(m);
    layout = (struct tdm__layout){m->slices, WORLD_TENSORS};
    TRY(tdm__receiver_set_layout(m->world->receiver, &layout));
    options = (struct tdm__route_options){.manifest = m->world->manifest,
                                          .from = m->world->layouts,
                                          .from_count = WORLD_RANKS,
                                          .to = &m->layout,
                                          .to_count = 1,
                                          .image_bytes = tdm_region_size(m->world->weights),
                                          .window_bytes = in_place ? 0 : window_bytes};
    TRY(tdm__route_create(&options, &m->route));
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        const struct tdm__mover_options mover = {.route = m->route,
                                                 .rank = rank,
                                                 .regions = m->world->regions[0],
                                                 .group = m->world->groups[rank],
                                                 .node = m->world->place.node,
                                                 .in_place = in_place};

        TRY(tdm__mover_create(&mover, &m->movers[rank]));
    }
    return m;
}

struct movers *movers_open(bool in_place, enum tdm__verify verify)
{
    return movers_open_with(in_place, verify, MOVERS_WINDOW_BYTES);
}

/* Also checks that nobody holds anything. */
void movers_close(struct movers *m)
{
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        tdm__mover_destroy(m->movers[rank]);
    }
    tdm__route_destroy(m->route);
    weight_world_close(m->world);
    free(m);
}

/* What trainers write into, as it is mapped by its owner. */
const tdm_region *movers_target(const struct movers *m)
{
    return m->in_place ? tdm__receiver_shadow(m->world->receiver)
                       : tdm__mover_bucket(m->movers[0]);
}

static void find_target(struct movers *m, struct tdm__target *target)
{
    struct tdm__block *const *blocks;

    *target = (struct tdm__target){
        .gpu = m->world->place.gpu, .absent = m->engine_is_absent, .journal = m->journal};
    TRY(tdm__mover_resume(m->movers[0], MOVERS_WAIT_MS));
    blocks = tdm__region_blocks(movers_target(m), &target->blocks_count);
    for (uint32_t i = 0; i < target->blocks_count; i++) {
        target->keys[i] = blocks[i]->key;
    }
}

void movers_make_room(struct movers *m, struct tdm__target *target)
{
    weight_world_begin(m->world);
    find_target(m, target);
}

static tdm_status measure_one(struct tdm__mover *mover, uint32_t window)
{
    (void)window;
    return tdm__mover_measure(mover);
}

static tdm_status share_scales_of_one(struct tdm__mover *mover, uint32_t window)
{
    (void)window;
    return tdm__mover_share_scales(mover);
}

/* The two ranks have a block between them. */
static tdm_status share_scales(struct movers *m)
{
    assert_true(tdm__mover_shares_blocks(m->movers[0]));
    TDM_TRY(movers_run(m, 0, measure_one));
    return movers_run(m, 0, share_scales_of_one);
}

void movers_open_targets(struct movers *m)
{
    struct tdm__target target;

    find_target(m, &target);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TRY(tdm__mover_open(m->movers[rank], &target));
    }
    TRY(share_scales(m));
}

void movers_begin(struct movers *m)
{
    weight_world_begin(m->world);
    movers_open_targets(m);
}

/* One step of a window, by all ranks at once. */
struct writing {
    tdm_status (*step)(struct tdm__mover *mover, uint32_t window);
    struct tdm__mover *mover;
    uint32_t window;
    tdm_status status;
};

static void *run_step(void *arg)
{
    struct writing *writing = arg;

    writing->status = writing->step(writing->mover, writing->window);
    return NULL;
}

tdm_status movers_run(struct movers *m, uint32_t window,
                      tdm_status (*step)(struct tdm__mover *mover, uint32_t window))
{
    struct writing writings[WORLD_RANKS];
    pthread_t threads[WORLD_RANKS];
    tdm_status status = TDM_OK;

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        writings[rank] =
            (struct writing){.step = step, .mover = m->movers[rank], .window = window};
        assert_int_equal(pthread_create(&threads[rank], NULL, run_step, &writings[rank]), 0);
    }
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        assert_int_equal(pthread_join(threads[rank], NULL), 0);
        status = writings[rank].status != TDM_OK ? writings[rank].status : status;
    }
    return status;
}

void movers_write(struct movers *m, uint32_t window)
{
    TRY(movers_run(m, window, tdm__mover_write));
    TRY(movers_run(m, window, tdm__mover_share));
}

static tdm_status go_on_one(struct tdm__mover *mover, uint32_t window)
{
    (void)window;
    return tdm__mover_go_on(mover);
}

/* The update before was given up: a new one, of whatever the trainers have now. */
void movers_begin_again(struct movers *m)
{
    weight_world_begin(m->world);
    TRY(tdm__receiver_go_on(m->world->receiver, &m->world->update, m->world->epoch,
                            &m->journal));
    movers_open_targets(m);
    TRY(movers_run(m, 0, go_on_one));
}

/* By any rank: each knows every sum. */
tdm_status movers_stage(struct movers *m, uint32_t window)
{
    struct tdm_bytes bytes;

    TRY(tdm__mover_describe(m->movers[window % WORLD_RANKS], &m->world->update, m->world->epoch,
                            window, 0, &bytes));
    return bytes.size_bytes == 0 ? TDM_OK : tdm__receiver_stage(m->world->receiver, bytes);
}

tdm_status movers_stage_received(struct movers *m, uint32_t window)
{
    struct tdm__regions *regions = m->world->regions[1];
    const tdm_region *bucket = movers_target(m);
    struct tdm_region_options room = {
        .tag = "received", .size_bytes = tdm_region_size(bucket), .policy = TDM_REGION_DROP};
    uint64_t place = tdm__mover_place(m->movers[0], window);
    unsigned char *bytes = malloc(room.size_bytes);
    struct tdm_bytes list;
    tdm_region *received;
    tdm_status status;

    assert_non_null(bytes);
    TRY(tdm__region_create(regions, &room, &received));
    weight_world_get(m->world, 0, bytes, tdm_region_address(bucket), room.size_bytes);
    weight_world_put(m->world, 1, tdm_region_address(received), bytes, room.size_bytes);
    TRY(tdm__mover_describe(m->movers[0], &m->world->update, m->world->epoch, window, 0,
                            &list));
    status = tdm__receiver_stage_from(m->world->receiver, list,
                                      (char *)tdm_region_address(received) + place,
                                      room.size_bytes - place);
    tdm_region_destroy(received);
    free(bytes);
    return status;
}

void movers_end(struct movers *m)
{
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        tdm__mover_close(m->movers[rank]);
    }
}

void movers_send(struct movers *m, uint32_t count)
{
    movers_begin(m);
    for (uint32_t i = 0; i < count; i++) {
        movers_write(m, i);
        TRY(movers_stage(m, i));
    }
    movers_end(m);
}

void movers_commit(struct movers *m)
{
    struct weight_world *world = m->world;

    movers_send(m, m->route->windows_count);
    TRY(tdm__receiver_prepare_parts(world->receiver, &world->update));
    TRY(tdm__receiver_flip(world->receiver, &world->update));
    TRY(tdm__mover_pause(m->movers[0]));
}

void movers_give_up(struct movers *m)
{
    movers_end(m);
    TRY(tdm__receiver_drop(m->world->receiver, m->world->epoch));
    TRY(tdm__mover_pause(m->movers[0]));
}

static uint64_t bytes_written(const struct movers *m)
{
    uint64_t bytes = 0;

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        for (uint32_t edge = 0; edge < TDM__EDGES_COUNT; edge++) {
            bytes += tdm__mover_moved(m->movers[rank])->bytes[edge];
        }
    }
    return bytes;
}

/* To the end, and committed.  Returns how many windows that took. */
uint32_t movers_finish(struct movers *m)
{
    struct weight_world *world = m->world;
    struct tdm__journal sent;
    uint32_t windows = 0;

    for (uint32_t i = 0; i < m->route->windows_count; i++) {
        bool is_held = tdm__mover_is_held(m->movers[0], i);

        assert_int_equal(tdm__mover_is_held(m->movers[1], i), is_held);
        movers_write(m, i);
        assert_true((bytes_written(m) == 0) == is_held);
        if (!is_held) {
            TRY(movers_stage(m, i));
        }
        windows += is_held ? 0 : 1;
    }
    sent = tdm__mover_journal(m->movers[0], 0);
    movers_end(m);
    TRY(tdm__receiver_prepare_sent(world->receiver, &world->update, &sent));
    TRY(tdm__receiver_flip(world->receiver, &world->update));
    TRY(tdm__mover_pause(m->movers[0]));
    return windows;
}

static void put_wanted(const struct movers *m, uint32_t tensor, unsigned char *wanted)
{
    const struct tdm_tensor_info *info = &m->world->infos[tensor];
    const struct tdm_slice *slice = &m->offsets[tensor];
    const unsigned char *truth = m->world->truth + m->world->offsets[tensor];
    unsigned char *place = wanted + (uintptr_t)slice->address;
    uint32_t columns = (uint32_t)info->shape[1];

    if (tensor == HALVED) {
        tdm__bf16_cast((uint16_t *)(void *)place, truth, tdm_tensor_elements(info));
    } else if (tensor == QUANTIZED) {
        float *scales = (float *)(void *)(wanted + (uintptr_t)slice->scales);

        tdm__fp8_quantize(&(struct tdm__matrix){truth, info->dtype, (uint32_t)info->shape[0],
                                                columns, columns},
                          &(struct tdm__fp8_matrix){place, scales, columns, 1});
    } else {
        memcpy(place, truth, tdm_tensor_bytes(info));
    }
}

/* What the engine has now; to be freed. */
unsigned char *movers_served(const struct movers *m)
{
    size_t size_bytes = tdm_region_size(m->world->weights);
    unsigned char *bytes = malloc(size_bytes);

    assert_non_null(bytes);
    weight_world_get(m->world, 1, bytes, tdm_region_address(m->world->weights), size_bytes);
    return bytes;
}

/* Every tensor, and zeros between them. */
bool movers_serve_truth(const struct movers *m)
{
    size_t size_bytes = tdm_region_size(m->world->weights);
    unsigned char *weights = movers_served(m);
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
void movers_flip_bits(struct movers *m, size_t offset, unsigned char bits)
{
    unsigned char *place = (unsigned char *)tdm_region_address(movers_target(m)) + offset;
    int owner = m->in_place ? 1 : 0;
    unsigned char byte;

    weight_world_get(m->world, owner, &byte, place, 1);
    byte ^= bits;
    weight_world_put(m->world, owner, place, &byte, 1);
}

/* ---- with failures ---- */

/* As far as it goes. */
static tdm_status try_update(struct movers *m, const struct tdm__target *target)
{
    struct weight_world *world = m->world;

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TDM_TRY(tdm__mover_open(m->movers[rank], target));
    }
    TDM_TRY(share_scales(m));
    for (uint32_t i = 0; i < m->route->windows_count; i++) {
        struct tdm_bytes bytes;

        TDM_TRY(movers_run(m, i, tdm__mover_write));
        TRY(movers_run(m, i, tdm__mover_share));
        TRY(tdm__mover_describe(m->movers[0], &world->update, world->epoch, i, 0, &bytes));
        if (bytes.size_bytes > 0) {
            TDM_TRY(tdm__receiver_stage(world->receiver, bytes));
        }
    }
    return tdm__receiver_prepare_parts(world->receiver, &world->update);
}

/* True if it ended with the new weights, false if it is to be given up. */
bool movers_update_while_a_call_fails(struct movers *m, uint64_t nth, uint64_t *calls_out)
{
    struct weight_world *world = m->world;
    struct tdm__target target;
    tdm_status status;

    movers_make_room(m, &target);
    cuda_gpu_standin.break_call("*", nth, CU_INVALID_VALUE);
    status = try_update(m, &target);
    *calls_out = cuda_gpu_standin.calls();
    if (status == TDM_OK) { /* committed: it must end well, at the second try at the latest */
        status = tdm__receiver_flip(world->receiver, &world->update);
        *calls_out = cuda_gpu_standin.calls();
        cuda_gpu_standin.break_call("", 0, 0);
        if (status != TDM_OK) {
            TRY(tdm__receiver_flip(world->receiver, &world->update));
        }
        movers_end(m);
        TRY(tdm__mover_pause(m->movers[0]));
        return true;
    }
    cuda_gpu_standin.break_call("", 0, 0);
    return false;
}
