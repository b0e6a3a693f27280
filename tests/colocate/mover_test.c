/* mover_test.c - trainer ranks write where an engine reads: in place, or into a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/mover.h"

#include "tests/support/mover_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

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
        assert_false(movers_serve_truth(m));
        movers_commit(m);
        assert_true(movers_serve_truth(m));
        assert_ptr_equal(tdm_region_address(m->world->weights), address);
    }
    assert_int_equal(m->world->engine.loads, 0);
    TRY(tdm__regions_pause(m->world->regions[0], "params"));
    movers_commit(m);
    assert_true(movers_serve_truth(m));
    TRY(tdm__regions_resume(m->world->regions[0], "params", MOVERS_WAIT_MS));
    movers_close(m);
}

static void a_flipped_byte_names_its_tensor(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct weight_world *world = m->world;

    movers_commit(m);
    weight_world_learn(world);
    movers_begin(m);
    movers_write(m, 0);
    movers_flip_bits(m, MOVERS_GAP_BYTES + 5, 0x10); /* windows begin with the image */
    assert_int_equal(movers_stage(m, 0), TDM_E_CHECKSUM);
    assert_told("tensor embed: ");
    assert_int_equal(movers_stage(m, 0), TDM_E_STATE);
    assert_int_equal(tdm__receiver_prepare_parts(world->receiver, &world->update), TDM_E_STATE);
    movers_give_up(m);
    assert_false(movers_serve_truth(m)); /* but what it served before */
    movers_commit(m);
    assert_true(movers_serve_truth(m));
    movers_close(m);
}

static void what_has_not_come_is_not_voted_for(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct weight_world *world = m->world;

    movers_begin(m);
    assert_int_equal(tdm__receiver_prepare_parts(world->receiver, &world->update), TDM_E_STATE);
    movers_give_up(m);
    movers_send(m, m->route->windows_count - 1);
    assert_int_equal(tdm__receiver_prepare_parts(world->receiver, &world->update), TDM_E_STATE);
    assert_told(in_place ? "nothing of this update" : "bytes have come");
    assert_int_equal(tdm__receiver_flip(world->receiver, &world->update), TDM_E_STATE);
    movers_give_up(m);
    movers_close(m);
}

static void contents_are_the_bytes_alone(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct tdm__hash first;
    struct tdm__hash next;

    movers_commit(m);
    first = tdm__mover_contents(m->movers[0]);
    next = tdm__mover_contents(m->movers[1]);
    assert_true(tdm__hash_equal(&first, &next));
    movers_commit(m);
    next = tdm__mover_contents(m->movers[0]);
    assert_true(tdm__hash_equal(&first, &next));
    weight_world_learn(m->world);
    movers_commit(m);
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
    movers_commit(m);
    there = tdm__mover_contents(m->movers[0]);
    m->engine_is_absent = true;
    movers_begin(m);
    for (uint32_t i = 0; i < m->route->windows_count; i++) {
        movers_write(m, i);
    }
    movers_give_up(m);
    absent = tdm__mover_contents(m->movers[1]);
    assert_true(tdm__hash_equal(&there, &absent));
    m->engine_is_absent = false;
    movers_commit(m);
    assert_true(movers_serve_truth(m));
    movers_close(m);
}

BOTH_WAYS(every_part_arrives)
BOTH_WAYS(a_flipped_byte_names_its_tensor)
BOTH_WAYS(what_has_not_come_is_not_voted_for)
BOTH_WAYS(contents_are_the_bytes_alone)
BOTH_WAYS(contents_do_not_depend_on_who_is_there)

/* ---- one way only ----------------------------------------------------------------------- */

/* What lies in the bucket, as it comes to an engine that cannot map it. */
static tdm_status stage_sent(struct movers *m, uint32_t window, size_t flipped,
                             size_t come_bytes)
{
    const tdm_region *bucket = movers_target(m);
    uint64_t place = tdm__mover_place(m->movers[0], window);
    size_t size_bytes = tdm_region_size(bucket) - place;
    char *copy = malloc(size_bytes);
    struct tdm_bytes bytes;
    tdm_status status;

    assert_non_null(copy);
    memcpy(copy, (const char *)tdm_region_address(bucket) + place, size_bytes);
    copy[flipped] = (char)(copy[flipped] ^ (flipped > 0 ? 0x10 : 0));
    TRY(tdm__mover_describe(m->movers[0], &m->world->update, m->world->epoch, window, 0,
                            &bytes));
    status = bytes.size_bytes == 0
                 ? TDM_OK
                 : tdm__receiver_stage_from(m->world->receiver, bytes, copy, come_bytes);
    free(copy);
    return status;
}

static void parts_that_were_sent_arrive_too(void **state)
{
    struct movers *m = movers_open(false, TDM__VERIFY_FULL);
    size_t all_bytes = tdm__mover_place(m->movers[0], 1); /* a half */

    (void)state;
    movers_begin(m);
    for (uint32_t i = 0; i < m->route->windows_count; i++) {
        movers_write(m, i);
        if (i == 0) {
            assert_int_equal(stage_sent(m, i, 0, 8), TDM_E_PROTOCOL);
            assert_told("of a bucket of 8");
        }
        TRY(stage_sent(m, i, 0, all_bytes));
    }
    movers_end(m);
    TRY(tdm__receiver_prepare_parts(m->world->receiver, &m->world->update));
    TRY(tdm__receiver_flip(m->world->receiver, &m->world->update));
    assert_true(movers_serve_truth(m));
    TRY(tdm__mover_pause(m->movers[0]));
    movers_begin(m);
    movers_write(m, 0);
    assert_int_equal(stage_sent(m, 0, MOVERS_GAP_BYTES + 5, all_bytes), TDM_E_CHECKSUM);
    assert_told("tensor embed: ");
    movers_give_up(m);
    movers_close(m);
}

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
                                            256 + chance_below(&chance, MOVERS_WINDOW_BYTES));

        for (int k = 0; k < 2; k++) {
            weight_world_learn(m->world);
            movers_commit(m);
            assert_true(movers_serve_truth(m));
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

        movers_begin(m);
        movers_write(m, 0);
        movers_flip_bits(m, MOVERS_GAP_BYTES, i > 0 ? 1 : 0);
        status = movers_stage(m, 0);
        found += status == TDM_E_CHECKSUM ? 1 : 0;
        if (i == 0) {
            TRY(tdm__receiver_prepare_parts(m->world->receiver, &m->world->update));
        }
        movers_give_up(m);
    }
    assert_int_equal(found, 1);
    movers_close(m);
}

/* ---- two halves of a bucket ------------------------------------------------------------- */

static void a_window_is_read_while_the_next_one_is_written(void **state)
{
    struct movers *m = movers_open(false, TDM__VERIFY_FULL);
    struct weight_world *world = m->world;
    uint32_t count = m->route->windows_count;

    (void)state;
    assert_true(count > 3);
    for (int i = 0; i < 3; i++) {
        weight_world_learn(world);
        movers_begin(m);
        movers_write(m, 0);
        for (uint32_t window = 0; window < count; window++) {
            if (window + 1 < count) {
                movers_write(m, window + 1);
            }
            TRY(movers_stage(m, window));
        }
        movers_end(m);
        TRY(tdm__receiver_prepare_parts(world->receiver, &world->update));
        TRY(tdm__receiver_flip(world->receiver, &world->update));
        TRY(tdm__mover_pause(m->movers[0]));
        assert_true(movers_serve_truth(m));
    }
    movers_close(m);
}

/* Why all engines have to read a window before the one after the next is written. */
static void a_window_that_was_written_over_is_noticed(void **state)
{
    struct movers *m = movers_open(false, TDM__VERIFY_FULL);

    (void)state;
    movers_begin(m);
    for (uint32_t window = 0; window <= TDM__BUCKET_HALVES; window++) {
        movers_write(m, window);
    }
    assert_int_equal(movers_stage(m, 0), TDM_E_CHECKSUM);
    movers_give_up(m);
    movers_commit(m);
    assert_true(movers_serve_truth(m));
    movers_close(m);
}

static void a_bucket_has_room_for_two_windows_and_no_more(void **state)
{
    struct movers *m = movers_open(false, TDM__VERIFY_FULL);
    struct movers *in_place = movers_open(true, TDM__VERIFY_FULL);
    uint64_t half = tdm__mover_place(m->movers[0], 1);

    (void)state;
    assert_true(half >= m->route->window_bytes_max);
    assert_true(half < m->route->window_bytes_max + TDM__ROUTE_ALIGNMENT);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        assert_int_equal(tdm__mover_place(m->movers[rank], 0), 0);
        assert_int_equal(tdm__mover_place(m->movers[rank], 2), 0);
        assert_int_equal(tdm__mover_place(m->movers[rank], 3), half);
        assert_int_equal(tdm__mover_place(in_place->movers[rank], 1), 0);
    }
    movers_close(in_place);
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
    movers_commit(m);
    TRY(tdm__region_create(world->regions[0], &region, &options.weights));
    TRY(tdm__receiver_create(&options, &late));
    TRY(tdm__receiver_show(world->receiver, &blocks));
    TRY(tdm__receiver_pull(late, &blocks));
    bytes = movers_served(m);
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
        unsigned char *before = movers_served(m);
        unsigned char *after;

        nth++;
        weight_world_learn(m->world);
        if (movers_update_while_a_call_fails(m, nth, &calls)) {
            assert_true(movers_serve_truth(m));
        } else {
            movers_give_up(m);
            given_up++;
            after = movers_served(m);
            assert_memory_equal(after, before, size_bytes);
            free(after);
        }
        free(before);
    } while (calls >= nth); /* in the last update no call was left to fail */
    assert_true(movers_serve_truth(m));
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
        cmocka_unit_test(a_target_that_is_none_is_refused_and_leaves_nothing),
        cmocka_unit_test(buckets_of_any_size_bring_the_same_bits),
        cmocka_unit_test(samples_are_of_everything_in_the_end),
        cmocka_unit_test(a_window_is_read_while_the_next_one_is_written),
        cmocka_unit_test(a_window_that_was_written_over_is_noticed),
        cmocka_unit_test(a_bucket_has_room_for_two_windows_and_no_more),
        cmocka_unit_test(a_late_engine_copies_what_is_served),
        cmocka_unit_test(no_failed_call_serves_half_a_version_in_place),
        cmocka_unit_test(no_failed_call_serves_half_a_version_by_copy),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

/* What is sent between nodes is host memory. */
static int run_on_host(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_that_were_sent_arrive_too)};

    return cmocka_run_group_tests_name("sent", tests, NULL, NULL);
}

int main(void)
{
    return run_on_host() + weight_world_everywhere(run_here);
}
