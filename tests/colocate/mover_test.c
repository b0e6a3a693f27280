/* mover_test.c - trainer ranks write where an engine reads: in place, or into a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/mover.h"

#include "colocate/device/cuda/driver_api.h"
#include "colocate/plan/fp8.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/weight_world.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { HALVED = 0, QUANTIZED = 1, WINDOW_BYTES = 4096, GAP_BYTES = 64, WAIT_MS = 5000 };

struct movers {
    struct weight_world *world;
    bool in_place;
    struct tdm_slice slices[WORLD_TENSORS];  /* of the engine rank, in its weights */
    struct tdm_slice offsets[WORLD_TENSORS]; /* the same as a route wants them */
    struct tdm__layout layout;
    struct tdm__route *route;
    struct tdm__mover *movers[WORLD_RANKS];
    bool engine_is_absent;
    struct tdm__journal journal; /* what the engine rank has told */
};

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
    return (at + size_bytes + GAP_BYTES) / GAP_BYTES * GAP_BYTES;
}

/* Tensor behind tensor, with nothing between them here and there; the scales at the end. */
static void place_tensors(struct movers *m)
{
    char *base = tdm_region_address(m->world->weights);
    uint64_t at = GAP_BYTES;

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

static struct movers *movers_open_with(bool in_place, enum tdm__verify verify,
                                       uint64_t window_bytes)
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

static struct movers *movers_open(bool in_place, enum tdm__verify verify)
{
    return movers_open_with(in_place, verify, WINDOW_BYTES);
}

/* Also checks that nobody holds anything. */
static void movers_close(struct movers *m)
{
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        tdm__mover_destroy(m->movers[rank]);
    }
    tdm__route_destroy(m->route);
    weight_world_close(m->world);
    free(m);
}

/* What trainers write into, as it is mapped by its owner. */
static const tdm_region *written(const struct movers *m)
{
    return m->in_place ? tdm__receiver_shadow(m->world->receiver)
                       : tdm__mover_bucket(m->movers[0]);
}

static void find_target(struct movers *m, struct tdm__target *target)
{
    struct tdm__block *const *blocks;

    *target = (struct tdm__target){
        .gpu = m->world->place.gpu, .absent = m->engine_is_absent, .journal = m->journal};
    TRY(tdm__mover_resume(m->movers[0], WAIT_MS));
    blocks = tdm__region_blocks(written(m), &target->blocks_count);
    for (uint32_t i = 0; i < target->blocks_count; i++) {
        target->keys[i] = blocks[i]->key;
    }
}

static void make_room(struct movers *m, struct tdm__target *target)
{
    weight_world_begin(m->world);
    find_target(m, target);
}

static void open_targets(struct movers *m)
{
    struct tdm__target target;

    find_target(m, &target);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TRY(tdm__mover_open(m->movers[rank], &target));
    }
}

static void begin(struct movers *m)
{
    weight_world_begin(m->world);
    open_targets(m);
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

static tdm_status all_run(struct movers *m, uint32_t window,
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

static void write_all(struct movers *m, uint32_t window)
{
    TRY(all_run(m, window, tdm__mover_write));
    TRY(all_run(m, window, tdm__mover_share));
}

static tdm_status go_on_one(struct tdm__mover *mover, uint32_t window)
{
    (void)window;
    return tdm__mover_go_on(mover);
}

/* The update before was given up: a new one, of whatever the trainers have now. */
static void begin_again(struct movers *m)
{
    weight_world_begin(m->world);
    TRY(tdm__receiver_go_on(m->world->receiver, &m->world->update, m->world->epoch,
                            &m->journal));
    open_targets(m);
    TRY(all_run(m, 0, go_on_one));
}

/* By any rank: each knows every sum. */
static tdm_status stage(struct movers *m, uint32_t window)
{
    struct tdm_bytes bytes;

    TRY(tdm__mover_describe(m->movers[window % WORLD_RANKS], &m->world->update, m->world->epoch,
                            window, 0, &bytes));
    return bytes.size_bytes == 0 ? TDM_OK : tdm__receiver_stage(m->world->receiver, bytes);
}

static void end(struct movers *m)
{
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        tdm__mover_close(m->movers[rank]);
    }
}

static void send_windows(struct movers *m, uint32_t count)
{
    begin(m);
    for (uint32_t i = 0; i < count; i++) {
        write_all(m, i);
        TRY(stage(m, i));
    }
    end(m);
}

static void commit(struct movers *m)
{
    struct weight_world *world = m->world;

    send_windows(m, m->route->windows_count);
    TRY(tdm__receiver_prepare_parts(world->receiver, &world->update));
    TRY(tdm__receiver_flip(world->receiver, &world->update));
    TRY(tdm__mover_pause(m->movers[0]));
}

static void give_up(struct movers *m)
{
    end(m);
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
static uint32_t finish(struct movers *m)
{
    struct weight_world *world = m->world;
    struct tdm__journal sent;
    uint32_t windows = 0;

    for (uint32_t i = 0; i < m->route->windows_count; i++) {
        bool is_held = tdm__mover_is_held(m->movers[0], i);

        assert_int_equal(tdm__mover_is_held(m->movers[1], i), is_held);
        write_all(m, i);
        assert_true((bytes_written(m) == 0) == is_held);
        if (!is_held) {
            TRY(stage(m, i));
        }
        windows += is_held ? 0 : 1;
    }
    sent = tdm__mover_journal(m->movers[0], 0);
    end(m);
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
static unsigned char *served(const struct movers *m)
{
    size_t size_bytes = tdm_region_size(m->world->weights);
    unsigned char *bytes = malloc(size_bytes);

    assert_non_null(bytes);
    weight_world_get(m->world, 1, bytes, tdm_region_address(m->world->weights), size_bytes);
    return bytes;
}

/* Every tensor, and zeros between them. */
static bool serves_truth(const struct movers *m)
{
    size_t size_bytes = tdm_region_size(m->world->weights);
    unsigned char *weights = served(m);
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
static void flip_bits(struct movers *m, size_t offset, unsigned char bits)
{
    unsigned char *place = (unsigned char *)tdm_region_address(written(m)) + offset;
    int owner = m->in_place ? 1 : 0;
    unsigned char byte;

    weight_world_get(m->world, owner, &byte, place, 1);
    byte ^= bits;
    weight_world_put(m->world, owner, place, &byte, 1);
}

static void assert_told(const char *words)
{
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

/* ---- the same promises in both ways ----------------------------------------------------- */

static void every_part_arrives(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    void *address = tdm_region_address(m->world->weights);
    static const unsigned char spoiled[64] = {0xee};

    assert_true(in_place || m->route->windows_count > 1);
    for (int i = 0; i < 4; i++) {
        weight_world_learn(m->world);
        weight_world_put(m->world, 1, tdm_region_address(m->world->weights), spoiled,
                         sizeof(spoiled));
        assert_false(serves_truth(m));
        commit(m);
        assert_true(serves_truth(m));
        assert_ptr_equal(tdm_region_address(m->world->weights), address);
    }
    assert_int_equal(m->world->engine.loads, 0);
    TRY(tdm__regions_pause(m->world->regions[0], "params"));
    commit(m);
    assert_true(serves_truth(m));
    TRY(tdm__regions_resume(m->world->regions[0], "params", WAIT_MS));
    movers_close(m);
}

static void a_flipped_byte_names_its_tensor(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct weight_world *world = m->world;

    commit(m);
    weight_world_learn(world);
    begin(m);
    write_all(m, 0);
    flip_bits(m, GAP_BYTES + 5, 0x10); /* windows begin with the image */
    assert_int_equal(stage(m, 0), TDM_E_CHECKSUM);
    assert_told("tensor embed: ");
    assert_int_equal(stage(m, 0), TDM_E_STATE);
    assert_int_equal(tdm__receiver_prepare_parts(world->receiver, &world->update), TDM_E_STATE);
    give_up(m);
    assert_false(serves_truth(m)); /* but what it served before */
    commit(m);
    assert_true(serves_truth(m));
    movers_close(m);
}

static void what_has_not_come_is_not_voted_for(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct weight_world *world = m->world;

    begin(m);
    assert_int_equal(tdm__receiver_prepare_parts(world->receiver, &world->update), TDM_E_STATE);
    give_up(m);
    send_windows(m, m->route->windows_count - 1);
    assert_int_equal(tdm__receiver_prepare_parts(world->receiver, &world->update), TDM_E_STATE);
    assert_told(in_place ? "nothing of this update" : "bytes have come");
    assert_int_equal(tdm__receiver_flip(world->receiver, &world->update), TDM_E_STATE);
    give_up(m);
    movers_close(m);
}

static void contents_are_the_bytes_alone(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct tdm__hash first;
    struct tdm__hash next;

    commit(m);
    first = tdm__mover_contents(m->movers[0]);
    next = tdm__mover_contents(m->movers[1]);
    assert_true(tdm__hash_equal(&first, &next));
    commit(m);
    next = tdm__mover_contents(m->movers[0]);
    assert_true(tdm__hash_equal(&first, &next));
    weight_world_learn(m->world);
    commit(m);
    next = tdm__mover_contents(m->movers[0]);
    assert_false(tdm__hash_equal(&first, &next));
    movers_close(m);
}

/* Else two tries of an update would vote for different words, though the bytes are the same. */
static void contents_do_not_depend_on_who_is_there(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct tdm__hash there;
    struct tdm__hash absent;

    weight_world_learn(m->world);
    commit(m);
    there = tdm__mover_contents(m->movers[0]);
    m->engine_is_absent = true;
    begin(m);
    for (uint32_t i = 0; i < m->route->windows_count; i++) {
        write_all(m, i);
    }
    give_up(m);
    absent = tdm__mover_contents(m->movers[1]);
    assert_true(tdm__hash_equal(&there, &absent));
    m->engine_is_absent = false;
    commit(m);
    assert_true(serves_truth(m));
    movers_close(m);
}

/* Interrupted after any window, while the next one is being written. */
static void what_is_here_is_not_sent_again(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    uint32_t windows_count = m->route->windows_count;
    struct tdm__hash first;
    struct tdm__hash next;

    commit(m);
    for (uint32_t k = 0; k <= windows_count; k++) {
        weight_world_learn(m->world);
        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            tdm__mover_forget(m->movers[rank]);
        }
        begin(m);
        for (uint32_t i = 0; i <= k && i < windows_count; i++) {
            write_all(m, i);
            if (i < k) {
                TRY(stage(m, i));
            }
        }
        end(m);
        begin_again(m);
        assert_int_equal(m->journal.next, k);
        assert_int_equal(finish(m), windows_count - k);
        assert_true(serves_truth(m));
        first = tdm__mover_contents(m->movers[0]);
        m->journal = (struct tdm__journal){.next = 0};
        commit(m);
        next = tdm__mover_contents(m->movers[1]);
        assert_true(tdm__hash_equal(&first, &next));
    }
    movers_close(m);
}

/* The engine has all of the weights before: nothing of that is taken for the new ones. */
static void weights_that_changed_are_sent_from_the_start(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);

    send_windows(m, m->route->windows_count);
    weight_world_learn(m->world);
    tdm__mover_forget(m->movers[1]); /* one rank is enough */
    begin_again(m);
    assert_int_equal(m->journal.next, m->route->windows_count);
    assert_int_equal(finish(m), m->route->windows_count);
    assert_true(serves_truth(m));
    movers_close(m);
}

static void a_shadow_that_went_has_no_journal(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);

    send_windows(m, m->route->windows_count);
    TRY(tdm__regions_pause(m->world->regions[1], "shadow"));
    TRY(tdm__regions_resume(m->world->regions[1], "shadow", WAIT_MS));
    begin_again(m);
    assert_int_equal(m->journal.next, 0);
    assert_int_equal(finish(m), m->route->windows_count);
    assert_true(serves_truth(m));
    send_windows(m, m->route->windows_count);
    give_up(m);
    begin_again(m);
    assert_int_equal(m->journal.next, 0);
    give_up(m);
    movers_close(m);
}

static void a_window_that_failed_voids_the_journal(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    uint32_t last = m->route->windows_count - 1;
    const struct tdm__route_window *window = &m->route->images[0].windows[last];

    send_windows(m, last);
    begin_again(m);
    write_all(m, last);
    flip_bits(m, window->end - 1 - (in_place ? 0 : window->begin), 1);
    assert_int_equal(stage(m, last), TDM_E_CHECKSUM);
    end(m);
    begin_again(m);
    assert_int_equal(m->journal.next, 0);
    assert_int_equal(finish(m), last + 1);
    assert_true(serves_truth(m));
    movers_close(m);
}

/* In place others may have written since; what a member copies, nobody else writes. */
static void only_what_was_lent_is_in_doubt(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    uint32_t windows_count = m->route->windows_count;

    send_windows(m, windows_count);
    begin_again(m);
    assert_int_equal(m->journal.next, windows_count);
    end(m);
    begin_again(m);
    assert_int_equal(m->journal.next, in_place ? 0 : windows_count);
    assert_int_equal(finish(m), in_place ? windows_count : 0);
    assert_true(serves_truth(m));
    movers_close(m);
}

/* A journal that is wrong, or another update's, is worth nothing: neither to trainers nor, at
 * the end, to the member. */
static void another_journal_is_not_believed(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct weight_world *world = m->world;
    struct tdm__journal sent;

    send_windows(m, m->route->windows_count);
    sent = tdm__mover_journal(m->movers[0], 0);
    sent.sums.low ^= 1;
    assert_int_equal(tdm__receiver_prepare_sent(world->receiver, &world->update, &sent),
                     TDM_E_CHECKSUM);
    m->journal = sent;
    open_targets(m);
    assert_false(tdm__mover_is_held(m->movers[0], 0));
    give_up(m);
    movers_close(m);
}

#define BOTH_WAYS(promise)                                                                     \
    static void promise##_in_place(void **state)                                               \
    {                                                                                          \
        (void)state;                                                                           \
        promise(true);                                                                         \
    }                                                                                          \
    static void promise##_by_copy(void **state)                                                \
    {                                                                                          \
        (void)state;                                                                           \
        promise(false);                                                                        \
    }

BOTH_WAYS(every_part_arrives)
BOTH_WAYS(a_flipped_byte_names_its_tensor)
BOTH_WAYS(what_has_not_come_is_not_voted_for)
BOTH_WAYS(contents_are_the_bytes_alone)
BOTH_WAYS(contents_do_not_depend_on_who_is_there)
BOTH_WAYS(what_is_here_is_not_sent_again)
BOTH_WAYS(weights_that_changed_are_sent_from_the_start)
BOTH_WAYS(a_shadow_that_went_has_no_journal)
BOTH_WAYS(a_window_that_failed_voids_the_journal)
BOTH_WAYS(only_what_was_lent_is_in_doubt)
BOTH_WAYS(another_journal_is_not_believed)

/* ---- one way only ----------------------------------------------------------------------- */

static void a_target_that_is_none_is_refused_and_leaves_nothing(void **state)
{
    struct movers *m = movers_open(true, TDM__VERIFY_FULL);
    struct tdm__target target = {.gpu = m->world->place.gpu};

    (void)state;
    assert_int_equal(tdm__mover_open(m->movers[0], &target), TDM_E_PROTOCOL);
    target.blocks_count = 1;
    assert_int_equal(tdm__mover_open(m->movers[0], &target), TDM_E_NOT_FOUND);
    movers_close(m);
}

/* Most tensors are larger than these. */
static void buckets_of_any_size_bring_the_same_bits(void **state)
{
    struct chance chance = chance_start("buckets", 1);

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct movers *m = movers_open_with(false, TDM__VERIFY_FULL,
                                            256 + chance_below(&chance, WINDOW_BYTES));

        for (int k = 0; k < 2; k++) {
            weight_world_learn(m->world);
            commit(m);
            assert_true(serves_truth(m));
        }
        movers_close(m);
    }
}

/* In full at first, then a record in sixteen, another one each time. */
static void samples_are_of_everything_in_the_end(void **state)
{
    struct movers *m = movers_open(true, TDM__VERIFY_SAMPLE);
    int found = 0;

    (void)state;
    for (int i = 0; i < 17; i++) {
        tdm_status status;

        begin(m);
        write_all(m, 0);
        flip_bits(m, GAP_BYTES, i > 0 ? 1 : 0);
        status = stage(m, 0);
        found += status == TDM_E_CHECKSUM ? 1 : 0;
        if (i == 0) {
            TRY(tdm__receiver_prepare_parts(m->world->receiver, &m->world->update));
        }
        give_up(m);
    }
    assert_int_equal(found, 1);
    movers_close(m);
}

/* ---- a late engine ---------------------------------------------------------------------- */

static void begin_nothing(void *state)
{
    (void)state;
}

static void a_late_engine_copies_what_is_served(void **state)
{
    static const struct tdm_engine_ops ops = {.size_bytes = sizeof(ops),
                                              .begin = begin_nothing};
    struct movers *m = movers_open(true, TDM__VERIFY_FULL);
    struct weight_world *world = m->world;
    const size_t size_bytes = tdm_region_size(world->weights);
    const struct tdm_region_options region = {
        .tag = "weights", .size_bytes = size_bytes, .policy = TDM_REGION_DROP};
    struct tdm__receiver_options options = {.manifest = world->manifest,
                                            .ops = &ops,
                                            .regions = world->regions[0],
                                            .place = world->place,
                                            .verify = TDM__VERIFY_FULL};
    unsigned char *late_bytes = malloc(size_bytes);
    struct tdm__weight_blocks blocks;
    struct tdm__receiver *late;
    unsigned char *bytes;

    (void)state;
    commit(m);
    TRY(tdm__region_create(world->regions[0], &region, &options.weights));
    TRY(tdm__receiver_create(&options, &late));
    TRY(tdm__receiver_show(world->receiver, &blocks));
    TRY(tdm__receiver_pull(late, &blocks));
    bytes = served(m);
    weight_world_get(world, 0, late_bytes, tdm_region_address(options.weights), size_bytes);
    assert_memory_equal(late_bytes, bytes, size_bytes);
    blocks.sums[0] ^= 1;
    assert_int_equal(tdm__receiver_pull(late, &blocks), TDM_E_CHECKSUM);
    tdm__receiver_destroy(late);
    tdm_region_destroy(options.weights);
    free(late_bytes);
    free(bytes);
    movers_close(m);
}

/* ---- on a GPU alone --------------------------------------------------------------------- */

/* As far as it goes. */
static tdm_status try_update(struct movers *m, const struct tdm__target *target)
{
    struct weight_world *world = m->world;

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        TDM_TRY(tdm__mover_open(m->movers[rank], target));
    }
    for (uint32_t i = 0; i < m->route->windows_count; i++) {
        struct tdm_bytes bytes;

        TDM_TRY(all_run(m, i, tdm__mover_write));
        TRY(all_run(m, i, tdm__mover_share));
        TRY(tdm__mover_describe(m->movers[0], &world->update, world->epoch, i, 0, &bytes));
        if (bytes.size_bytes > 0) {
            TDM_TRY(tdm__receiver_stage(world->receiver, bytes));
        }
    }
    return tdm__receiver_prepare_parts(world->receiver, &world->update);
}

/* True if it ended with the new weights, false if it was given up. */
static bool update_while_a_call_fails(struct movers *m, uint64_t nth, uint64_t *calls_out)
{
    struct weight_world *world = m->world;
    struct tdm__target target;
    tdm_status status;

    make_room(m, &target);
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
        end(m);
        TRY(tdm__mover_pause(m->movers[0]));
        return true;
    }
    cuda_gpu_standin.break_call("", 0, 0);
    give_up(m);
    return false;
}

/* Goal: whichever call to the driver fails, the engine has all of the old weights or all of the
 * new ones, and the next update works.  Method: update after update, in each the next call. */
static void no_failed_call_serves_half_a_version(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    size_t size_bytes = tdm_region_size(m->world->weights);
    uint64_t calls = 0;
    uint64_t given_up = 0;
    uint64_t nth = 0;

    if (!weight_world_is_cuda()) {
        movers_close(m);
        return;
    }
    do {
        unsigned char *before = served(m);
        unsigned char *after;

        nth++;
        weight_world_learn(m->world);
        if (update_while_a_call_fails(m, nth, &calls)) {
            assert_true(serves_truth(m));
        } else {
            given_up++;
            after = served(m);
            assert_memory_equal(after, before, size_bytes);
            free(after);
        }
        free(before);
    } while (calls >= nth); /* in the last update no call was left to fail */
    assert_true(serves_truth(m));
    assert_true(given_up > 20);
    movers_close(m);
}

BOTH_WAYS(no_failed_call_serves_half_a_version)

static int run_here(const char *device)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_arrives_in_place),
        cmocka_unit_test(every_part_arrives_by_copy),
        cmocka_unit_test(a_flipped_byte_names_its_tensor_in_place),
        cmocka_unit_test(a_flipped_byte_names_its_tensor_by_copy),
        cmocka_unit_test(what_has_not_come_is_not_voted_for_in_place),
        cmocka_unit_test(what_has_not_come_is_not_voted_for_by_copy),
        cmocka_unit_test(contents_are_the_bytes_alone_in_place),
        cmocka_unit_test(contents_are_the_bytes_alone_by_copy),
        cmocka_unit_test(contents_do_not_depend_on_who_is_there_in_place),
        cmocka_unit_test(contents_do_not_depend_on_who_is_there_by_copy),
        cmocka_unit_test(what_is_here_is_not_sent_again_in_place),
        cmocka_unit_test(what_is_here_is_not_sent_again_by_copy),
        cmocka_unit_test(weights_that_changed_are_sent_from_the_start_in_place),
        cmocka_unit_test(weights_that_changed_are_sent_from_the_start_by_copy),
        cmocka_unit_test(a_shadow_that_went_has_no_journal_in_place),
        cmocka_unit_test(a_shadow_that_went_has_no_journal_by_copy),
        cmocka_unit_test(a_window_that_failed_voids_the_journal_in_place),
        cmocka_unit_test(a_window_that_failed_voids_the_journal_by_copy),
        cmocka_unit_test(only_what_was_lent_is_in_doubt_in_place),
        cmocka_unit_test(only_what_was_lent_is_in_doubt_by_copy),
        cmocka_unit_test(another_journal_is_not_believed_in_place),
        cmocka_unit_test(another_journal_is_not_believed_by_copy),
        cmocka_unit_test(a_target_that_is_none_is_refused_and_leaves_nothing),
        cmocka_unit_test(buckets_of_any_size_bring_the_same_bits),
        cmocka_unit_test(samples_are_of_everything_in_the_end),
        cmocka_unit_test(a_late_engine_copies_what_is_served),
        cmocka_unit_test(no_failed_call_serves_half_a_version_in_place),
        cmocka_unit_test(no_failed_call_serves_half_a_version_by_copy),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void)
{
    return weight_world_everywhere(run_here);
}
