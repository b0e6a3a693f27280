/* weight_writer_test.c - trainer ranks write where an engine reads: in place, or into a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/weight_writer.h"

#include "colocate/weights/node_exchange.h"
#include "tests/support/weight_writer_world.h"

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

/* ---- properties of both ways --------------------------------------------------------- */

static void every_part_arrives(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    void *address = tdm_region_address(m->world->weights);
    static const unsigned char spoiled[64] = {0xee};

    assert_true(in_place || m->transfer_plan->chunks_count > 1);
    for (int i = 0; i < 4; i++) {
        weight_fixture_learn(m->world);
        weight_fixture_put(m->world, 1, tdm_region_address(m->world->weights), spoiled,
                           sizeof(spoiled));
        assert_false(weight_writers_serve_truth(m));
        weight_writers_commit(m);
        assert_true(weight_writers_serve_truth(m));
        assert_ptr_equal(tdm_region_address(m->world->weights), address);
    }
    assert_int_equal(m->world->engine.loads, 0);
    TRY(tdm__regions_pause(m->world->regions[0], "params"));
    weight_writers_commit(m);
    assert_true(weight_writers_serve_truth(m));
    TRY(tdm__regions_resume(m->world->regions[0], "params", WEIGHT_WRITERS_WAIT_MS));
    weight_writers_close(m);
}

static void flipped_byte_names_its_tensor(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    struct weight_fixture *world = m->world;

    weight_writers_commit(m);
    weight_fixture_learn(world);
    weight_writers_begin(m);
    weight_writers_write(m, 0);
    weight_writers_flip_bits(m, WEIGHT_WRITERS_GAP_BYTES + 5,
                             0x10); /* Chunks begin with the image. */
    assert_int_equal(weight_writers_stage(m, 0), TDM_E_CHECKSUM);
    assert_told("what trainer rank 0 described: verifying the slices failed: tensor embed: ");
    assert_int_equal(weight_writers_stage(m, 0), TDM_E_STATE);
    assert_int_equal(tdm__receiver_prepare_slices(world->receiver, &world->update), TDM_E_STATE);
    weight_writers_give_up(m);
    assert_false(weight_writers_serve_truth(m)); /* The engine serves what it served before. */
    weight_writers_commit(m);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

static void what_has_not_come_is_not_voted_for(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    struct weight_fixture *world = m->world;

    weight_writers_begin(m);
    assert_int_equal(tdm__receiver_prepare_slices(world->receiver, &world->update), TDM_E_STATE);
    weight_writers_give_up(m);
    weight_writers_send(m, m->transfer_plan->chunks_count - 1);
    assert_int_equal(tdm__receiver_prepare_slices(world->receiver, &world->update), TDM_E_STATE);
    assert_told(in_place ? "no bucket of this update" : "bytes have arrived");
    assert_int_equal(tdm__receiver_flip_shadow(world->receiver, &world->update), TDM_E_STATE);
    weight_writers_give_up(m);
    weight_writers_close(m);
}

static void contents_are_the_bytes_alone(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    struct tdm__hash first;
    struct tdm__hash next;

    weight_writers_commit(m);
    first = tdm__weight_writer_contents_hash(m->weight_writers[0]);
    next = tdm__weight_writer_contents_hash(m->weight_writers[1]);
    assert_true(tdm__hash_equal(&first, &next));
    weight_writers_commit(m);
    next = tdm__weight_writer_contents_hash(m->weight_writers[0]);
    assert_true(tdm__hash_equal(&first, &next));
    weight_fixture_learn(m->world);
    weight_writers_commit(m);
    next = tdm__weight_writer_contents_hash(m->weight_writers[0]);
    assert_false(tdm__hash_equal(&first, &next));
    weight_writers_close(m);
}

/* Otherwise two attempts of an update would vote for different hashes, although the bytes are the
 * same. */
static void compare_contents_without_the_engine(struct weight_writers *m)
{
    struct tdm__hash there;
    struct tdm__hash absent;

    weight_fixture_learn(m->world);
    weight_writers_commit(m);
    there = tdm__weight_writer_contents_hash(m->weight_writers[0]);
    m->engine_is_absent = true;
    weight_writers_begin(m);
    for (uint32_t i = 0; i < m->transfer_plan->chunks_count; i++) {
        weight_writers_write(m, i);
    }
    weight_writers_give_up(m);
    absent = tdm__weight_writer_contents_hash(m->weight_writers[1]);
    assert_true(tdm__hash_equal(&there, &absent));
    m->engine_is_absent = false;
    weight_writers_commit(m);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

static void contents_do_not_depend_on_who_is_there(bool in_place)
{
    compare_contents_without_the_engine(weight_writers_open(in_place, TDM__VERIFY_FULL));
}

/* ---- a trainer that is divided among two nodes ---------------------------------------- */

/* Returns the bytes of the last chunk that went over one kind of edge, from all ranks. */
static uint64_t bytes_over(const struct weight_writers *m, enum tdm__copy_locality locality)
{
    uint64_t bytes = 0;

    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        bytes += tdm__weight_writer_last_totals(m->weight_writers[rank])->bytes[locality];
    }
    return bytes;
}

static void parts_of_another_node_arrive(bool in_place)
{
    struct weight_writers *m = weight_writers_open_divided(in_place);
    const uint64_t *wanted = m->transfer_plan->cost.bytes_by_locality;
    uint64_t written[TDM__LOCALITIES_COUNT] = {0};

    assert_non_null(m->transfer_plan->exchange);
    assert_true(m->transfer_plan->exchange->rounds_count > 1);
    assert_true(wanted[TDM__LOCALITY_OTHER_NODE] > 0);
    for (int i = 0; i < 3; i++) {
        weight_fixture_learn(m->world);
        weight_writers_commit(m);
        assert_true(weight_writers_serve_truth(m));
    }
    weight_writers_begin(m);
    for (uint32_t i = 0; i < m->transfer_plan->chunks_count; i++) {
        struct tdm_bytes nothing;

        weight_writers_write(m, i);
        for (int edge = 0; edge < TDM__LOCALITIES_COUNT; edge++) {
            written[edge] += bytes_over(m, (enum tdm__copy_locality)edge);
        }
        /* Rank 0 writes what rank 1 sends, and describes it. */
        TRY(tdm__weight_writer_describe_chunk(m->weight_writers[1], &m->world->update,
                                              m->world->epoch, i, 0, &nothing));
        assert_int_equal(nothing.size_bytes, 0);
    }
    weight_writers_give_up(m);
    for (int edge = 0; edge < TDM__LOCALITIES_COUNT; edge++) {
        assert_int_equal(written[edge], wanted[edge]);
    }
    weight_writers_close(m);
}

static void byte_that_flips_between_nodes_names_tensor_and_sender(bool in_place)
{
    struct weight_writers *m = weight_writers_open_divided(in_place);

    weight_writers_begin(m);
    m->flipped_bits = 0x40;
    assert_int_equal(weight_writers_try_write(m, 0), TDM_E_CHECKSUM);
    assert_told("tensor embed: what trainer rank 1 sent to another node arrived with the checksum");
    m->flipped_bits = 0;
    weight_writers_give_up(m);
    weight_fixture_learn(m->world);
    weight_writers_commit(m);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

static void contents_of_a_divided_trainer_do_not_depend_on_who_is_there(bool in_place)
{
    compare_contents_without_the_engine(weight_writers_open_divided(in_place));
}

BOTH_WAYS(contents_of_a_divided_trainer_do_not_depend_on_who_is_there)
BOTH_WAYS(parts_of_another_node_arrive)
BOTH_WAYS(byte_that_flips_between_nodes_names_tensor_and_sender)
BOTH_WAYS(every_part_arrives)
BOTH_WAYS(flipped_byte_names_its_tensor)
BOTH_WAYS(what_has_not_come_is_not_voted_for)
BOTH_WAYS(contents_are_the_bytes_alone)
BOTH_WAYS(contents_do_not_depend_on_who_is_there)

/* ---- properties of one way ----------------------------------------------------------- */

/* Stages what lies in the bucket, as an engine does that cannot map it. */
static tdm_status stage_sent(struct weight_writers *m, uint32_t chunk, size_t flipped,
                             size_t come_bytes)
{
    const tdm_region *bucket = weight_writers_target(m);
    uint64_t location = tdm__weight_writer_chunk_offset(m->weight_writers[0], chunk, 0);
    size_t size_bytes = tdm_region_size(bucket) - location;
    char *copy = malloc(size_bytes);
    tdm_status status;

    assert_non_null(copy);
    memcpy(copy, (const char *)tdm_region_address(bucket) + location, size_bytes);
    copy[flipped] = (char)(copy[flipped] ^ (flipped > 0 ? 0x10 : 0));
    status = weight_writers_stage_arrival(m, chunk, copy, come_bytes);
    free(copy);
    return status;
}

static void parts_that_were_sent_arrive_too(void **state)
{
    struct weight_writers *m = weight_writers_open(false, TDM__VERIFY_FULL);
    /* This is half of the bucket. */
    size_t all_bytes = tdm__weight_writer_chunk_offset(m->weight_writers[0], 1, 0);

    (void)state;
    weight_writers_begin(m);
    for (uint32_t i = 0; i < m->transfer_plan->chunks_count; i++) {
        weight_writers_write(m, i);
        if (i == 0) {
            assert_int_equal(stage_sent(m, i, 0, 8), TDM_E_PROTOCOL);
            assert_told("of a bucket of 8");
        }
        TRY(stage_sent(m, i, 0, all_bytes));
    }
    weight_writers_end(m);
    TRY(tdm__receiver_prepare_slices(m->world->receiver, &m->world->update));
    TRY(tdm__receiver_flip_shadow(m->world->receiver, &m->world->update));
    assert_true(weight_writers_serve_truth(m));
    TRY(tdm__weight_writer_pause_bucket(m->weight_writers[0]));
    weight_writers_begin(m);
    weight_writers_write(m, 0);
    assert_int_equal(stage_sent(m, 0, WEIGHT_WRITERS_GAP_BYTES + 5, all_bytes), TDM_E_CHECKSUM);
    assert_told("tensor embed: ");
    weight_writers_give_up(m);
    weight_writers_close(m);
}

static void target_that_is_none_is_refused_and_leaves_nothing(void **state)
{
    struct weight_writers *m = weight_writers_open(true, TDM__VERIFY_FULL);
    struct tdm__transfer_target target = {.gpu = m->world->location.gpu};

    (void)state;
    assert_int_equal(tdm__weight_writer_map_targets(m->weight_writers[0], &target), TDM_E_PROTOCOL);
    target.blocks_count = 1;
    assert_int_equal(tdm__weight_writer_map_targets(m->weight_writers[0], &target),
                     TDM_E_NOT_FOUND);
    weight_writers_close(m);
}

/* Most tensors are larger than these chunks. */
static void buckets_of_any_size_bring_the_same_bits(void **state)
{
    struct test_random chance = test_random_init("buckets", 1);

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct weight_writers *m = weight_writers_open_with(
            false, TDM__VERIFY_FULL, 256 + test_random_below(&chance, WRITERS_CHUNK_BYTES));

        for (int k = 0; k < 2; k++) {
            weight_fixture_learn(m->world);
            weight_writers_commit(m);
            assert_true(weight_writers_serve_truth(m));
        }
        weight_writers_close(m);
    }
}

/* Everything is verified at first, then one record of sixteen, another one each time. */
static void samples_are_of_everything_in_the_end(void **state)
{
    struct weight_writers *m = weight_writers_open(true, TDM__VERIFY_SAMPLE);
    int found = 0;

    (void)state;
    for (int i = 0; i < 17; i++) {
        tdm_status status;

        weight_writers_begin(m);
        weight_writers_write(m, 0);
        weight_writers_flip_bits(m, WEIGHT_WRITERS_GAP_BYTES, i > 0 ? 1 : 0);
        status = weight_writers_stage(m, 0);
        found += status == TDM_E_CHECKSUM ? 1 : 0;
        if (i == 0) {
            TRY(tdm__receiver_prepare_slices(m->world->receiver, &m->world->update));
        }
        weight_writers_give_up(m);
    }
    assert_int_equal(found, 1);
    weight_writers_close(m);
}

/* ---- two halves of a bucket ---------------------------------------------------------- */

static void chunk_is_read_while_the_next_one_is_written(void **state)
{
    struct weight_writers *m = weight_writers_open(false, TDM__VERIFY_FULL);
    struct weight_fixture *world = m->world;
    uint32_t count = m->transfer_plan->chunks_count;

    (void)state;
    assert_true(count > 3);
    for (int i = 0; i < 3; i++) {
        weight_fixture_learn(world);
        weight_writers_begin(m);
        weight_writers_write(m, 0);
        for (uint32_t chunk = 0; chunk < count; chunk++) {
            if (chunk + 1 < count) {
                weight_writers_write(m, chunk + 1);
            }
            TRY(weight_writers_stage(m, chunk));
        }
        weight_writers_end(m);
        TRY(tdm__receiver_prepare_slices(world->receiver, &world->update));
        TRY(tdm__receiver_flip_shadow(world->receiver, &world->update));
        TRY(tdm__weight_writer_pause_bucket(m->weight_writers[0]));
        assert_true(weight_writers_serve_truth(m));
    }
    weight_writers_close(m);
}

/* Shows why all engines have to read a chunk before the one after the next is written. */
static void chunk_that_was_written_over_is_noticed(void **state)
{
    struct weight_writers *m = weight_writers_open(false, TDM__VERIFY_FULL);

    (void)state;
    weight_writers_begin(m);
    for (uint32_t chunk = 0; chunk <= TDM__BUCKET_HALVES; chunk++) {
        weight_writers_write(m, chunk);
    }
    assert_int_equal(weight_writers_stage(m, 0), TDM_E_CHECKSUM);
    weight_writers_give_up(m);
    weight_writers_commit(m);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

static void bucket_has_room_for_two_chunks_and_no_more(void **state)
{
    struct weight_writers *m = weight_writers_open(false, TDM__VERIFY_FULL);
    struct weight_writers *in_place = weight_writers_open(true, TDM__VERIFY_FULL);
    uint64_t half = tdm__weight_writer_chunk_offset(m->weight_writers[0], 1, 0);

    (void)state;
    assert_true(half >= m->transfer_plan->chunk_bytes_max);
    assert_true(half < m->transfer_plan->chunk_bytes_max + TDM__TRANSFER_PLAN_ALIGNMENT);
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        assert_int_equal(tdm__weight_writer_chunk_offset(m->weight_writers[rank], 0, 0), 0);
        assert_int_equal(tdm__weight_writer_chunk_offset(m->weight_writers[rank], 2, 0), 0);
        assert_int_equal(tdm__weight_writer_chunk_offset(m->weight_writers[rank], 3, 0), half);
        assert_int_equal(tdm__weight_writer_chunk_offset(in_place->weight_writers[rank], 1, 0), 0);
    }
    weight_writers_close(in_place);
    weight_writers_close(m);
}

/* ---- a late engine ------------------------------------------------------------------- */

static void begin_nothing(void *state)
{
    (void)state;
}

static void late_engine_copies_what_is_served(void **state)
{
    static const struct tdm_engine_ops ops = {.size_bytes = sizeof(ops), .begin = begin_nothing};
    struct weight_writers *m = weight_writers_open(true, TDM__VERIFY_FULL);
    struct weight_fixture *world = m->world;
    const size_t size_bytes = tdm_region_size(world->weights);
    const struct tdm_region_options region = {
        .tag = "weights", .size_bytes = size_bytes, .policy = TDM_REGION_DROP};
    struct tdm__receiver_options options = {.manifest = world->manifest,
                                            .ops = &ops,
                                            .regions = world->regions[0],
                                            .location = world->location,
                                            .verify = TDM__VERIFY_FULL};
    unsigned char *late_bytes = malloc(size_bytes);
    struct tdm__weight_blocks blocks;
    struct tdm__receiver *late;
    unsigned char *bytes;

    (void)state;
    weight_writers_commit(m);
    TRY(tdm__region_create(world->regions[0], &region, &options.weights));
    TRY(tdm__receiver_create(&options, &late));
    TRY(tdm__receiver_export_weights(world->receiver, &blocks));
    TRY(tdm__receiver_pull_weights(late, &blocks));
    bytes = weight_writers_served(m);
    weight_fixture_get(world, 0, late_bytes, tdm_region_address(options.weights), size_bytes);
    assert_memory_equal(late_bytes, bytes, size_bytes);
    blocks.sums[0] ^= 1;
    assert_int_equal(tdm__receiver_pull_weights(late, &blocks), TDM_E_CHECKSUM);
    tdm__receiver_destroy(late);
    tdm_region_destroy(options.weights);
    free(late_bytes);
    free(bytes);
    weight_writers_close(m);
}

/* ---- on one GPU ---------------------------------------------------------------------- */

/* Goal: whichever call to the driver fails, the engine has all of the old weights or all of the
 * new ones, and the next update works.
 *
 * Method: run update after update, and let the next call fail in each. */
static void no_failed_call_serves_half_a_version(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    size_t size_bytes = tdm_region_size(m->world->weights);
    uint64_t calls = 0;
    uint64_t given_up = 0;
    uint64_t nth = 0;

    if (!weight_fixture_is_cuda()) {
        weight_writers_close(m);
        return;
    }
    do {
        unsigned char *before = weight_writers_served(m);
        unsigned char *after;

        nth++;
        weight_fixture_learn(m->world);
        if (weight_writers_update_while_a_call_fails(m, nth, &calls)) {
            assert_true(weight_writers_serve_truth(m));
        } else {
            weight_writers_give_up(m);
            given_up++;
            after = weight_writers_served(m);
            assert_memory_equal(after, before, size_bytes);
            free(after);
        }
        free(before);
    } while (calls >= nth); /* In the last update no call was left to fail. */
    assert_true(weight_writers_serve_truth(m));
    assert_true(given_up > 20);
    weight_writers_close(m);
}

BOTH_WAYS(no_failed_call_serves_half_a_version)

static int run_here(const char *device)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_of_a_divided_trainer_do_not_depend_on_who_is_there_in_place),
        cmocka_unit_test(contents_of_a_divided_trainer_do_not_depend_on_who_is_there_by_copy),
        cmocka_unit_test(parts_of_another_node_arrive_in_place),
        cmocka_unit_test(parts_of_another_node_arrive_by_copy),
        cmocka_unit_test(byte_that_flips_between_nodes_names_tensor_and_sender_in_place),
        cmocka_unit_test(byte_that_flips_between_nodes_names_tensor_and_sender_by_copy),
        cmocka_unit_test(every_part_arrives_in_place),
        cmocka_unit_test(every_part_arrives_by_copy),
        cmocka_unit_test(flipped_byte_names_its_tensor_in_place),
        cmocka_unit_test(flipped_byte_names_its_tensor_by_copy),
        cmocka_unit_test(what_has_not_come_is_not_voted_for_in_place),
        cmocka_unit_test(what_has_not_come_is_not_voted_for_by_copy),
        cmocka_unit_test(contents_are_the_bytes_alone_in_place),
        cmocka_unit_test(contents_are_the_bytes_alone_by_copy),
        cmocka_unit_test(contents_do_not_depend_on_who_is_there_in_place),
        cmocka_unit_test(contents_do_not_depend_on_who_is_there_by_copy),
        cmocka_unit_test(target_that_is_none_is_refused_and_leaves_nothing),
        cmocka_unit_test(buckets_of_any_size_bring_the_same_bits),
        cmocka_unit_test(samples_are_of_everything_in_the_end),
        cmocka_unit_test(chunk_is_read_while_the_next_one_is_written),
        cmocka_unit_test(chunk_that_was_written_over_is_noticed),
        cmocka_unit_test(bucket_has_room_for_two_chunks_and_no_more),
        cmocka_unit_test(late_engine_copies_what_is_served),
        cmocka_unit_test(no_failed_call_serves_half_a_version_in_place),
        cmocka_unit_test(no_failed_call_serves_half_a_version_by_copy),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

/* What is sent between nodes is in host memory. */
static int run_on_host(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_that_were_sent_arrive_too)};

    return cmocka_run_group_tests_name("sent", tests, NULL, NULL);
}

int main(void)
{
    return run_on_host() + weight_fixture_everywhere(run_here);
}
