/* receiver_overwrite_test.c - an engine rank that loads new weights over those that it serves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/receiver.h"

#include "tests/support/weight_writer_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((size_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

static void served_weights_are_overwritten_in_place(void **state)
{
    struct weight_fixture *fixture = weight_fixture_open("overwrite", TDM__VERIFY_FULL);
    void *address = tdm_region_address(fixture->weights);
    struct tdm__hash hash;

    (void)state;
    weight_fixture_overwrite(fixture);
    for (int i = 0; i < 3; i++) {
        weight_fixture_learn(fixture);
        weight_fixture_begin(fixture);
        assert_false(tdm__receiver_is_torn(fixture->receiver));
        weight_fixture_send_all(fixture);
        assert_true(tdm__receiver_is_torn(fixture->receiver));
        TRY(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash));
        assert_true(tdm__receiver_is_torn(fixture->receiver)); /* The vote is no commit. */
        TRY(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update));
        TRY(tdm__receiver_flip_shadow(fixture->receiver, &fixture->update));
        assert_false(tdm__receiver_is_torn(fixture->receiver));
        weight_fixture_pause_buckets(fixture);
        assert_true(weight_fixture_serves_truth(fixture));
        assert_ptr_equal(tdm_region_address(fixture->weights), address);
    }
    weight_fixture_close(fixture);
}

/* An update takes no memory beside the weights but the senders' buckets. */
static void no_second_copy_takes_memory(void **state)
{
    struct weight_fixture *fixture = weight_fixture_open("overwrite", TDM__VERIFY_FULL);
    size_t with_shadow;
    size_t buckets;
    size_t before;

    (void)state;
    before = host_gpu_used_bytes(fixture->gpu);
    weight_fixture_begin(fixture);
    with_shadow = host_gpu_used_bytes(fixture->gpu);
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    buckets = host_gpu_used_bytes(fixture->gpu) - before;
    assert_int_equal(with_shadow - before - buckets, tdm_region_size(fixture->weights));
    weight_fixture_overwrite(fixture);
    assert_int_equal(tdm__receiver_shadow_bytes(fixture->receiver), 0);
    weight_fixture_begin(fixture);
    weight_fixture_send_all(fixture);
    assert_int_equal(host_gpu_used_bytes(fixture->gpu), before + buckets);
    weight_fixture_close(fixture);
}

static void abort_leaves_no_version(void **state)
{
    struct weight_fixture *fixture = weight_fixture_open("overwrite", TDM__VERIFY_FULL);
    struct tdm__hash hash;

    (void)state;
    weight_fixture_overwrite(fixture);
    weight_fixture_commit(fixture);
    weight_fixture_learn(fixture);
    weight_fixture_begin(fixture);
    TRY(weight_fixture_send(fixture, 0));
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    assert_true(tdm__receiver_is_torn(fixture->receiver));
    /* What came before the abort does not count for the next update. */
    weight_fixture_begin(fixture);
    for (uint32_t i = 1; i < weight_fixture_buckets_count(fixture); i++) {
        TRY(weight_fixture_send(fixture, i));
    }
    assert_int_equal(tdm__receiver_prepare(fixture->receiver, &fixture->update, &hash),
                     TDM_E_STATE);
    weight_fixture_commit(fixture);
    assert_false(tdm__receiver_is_torn(fixture->receiver));
    assert_true(weight_fixture_serves_truth(fixture));
    weight_fixture_close(fixture);
}

/* A rank that got no bucket of an aborted update still serves the version before. */
static void bucket_after_the_drop_does_not_touch_what_is_served(void **state)
{
    struct weight_fixture *fixture = weight_fixture_open("overwrite", TDM__VERIFY_FULL);

    (void)state;
    weight_fixture_overwrite(fixture);
    weight_fixture_commit(fixture);
    weight_fixture_begin(fixture);
    TRY(tdm__receiver_drop_shadow(fixture->receiver, fixture->epoch));
    assert_int_equal(weight_fixture_send(fixture, 0), TDM_E_STATE);
    assert_false(tdm__receiver_is_torn(fixture->receiver));
    assert_true(weight_fixture_serves_truth(fixture));
    fixture->epoch++; /* It joins after another update. */
    tdm__receiver_join(fixture->receiver, fixture->epoch);
    assert_int_equal(weight_fixture_send(fixture, 0), TDM_E_STATE);
    assert_false(tdm__receiver_is_torn(fixture->receiver));
    weight_fixture_begin(fixture);
    TRY(tdm_region_pause(fixture->weights));
    assert_int_equal(weight_fixture_send(fixture, 0), TDM_E_STATE);
    assert_false(tdm__receiver_is_torn(fixture->receiver));
    weight_fixture_close(fixture);
}

/* The resume log is in the weights: an update that is started again sends what is missing. */
static void torn_rank_does_not_receive_the_same_bytes_again(void **state)
{
    struct weight_writers *m = weight_writers_open_overwriting();
    uint32_t chunks_count = m->transfer_plan->chunks_count;

    (void)state;
    assert_true(chunks_count > 2);
    weight_writers_commit(m);
    for (uint32_t k = 1; k <= chunks_count; k++) {
        weight_fixture_learn(m->world);
        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            tdm__weight_writer_forget_sums(m->weight_writers[rank]);
        }
        weight_writers_send(m, k);
        assert_true(tdm__receiver_is_torn(m->world->receiver));
        weight_writers_begin_again(m);
        assert_int_equal(m->resume_log.next, k);
        assert_int_equal(weight_writers_finish(m), chunks_count - k);
        assert_false(tdm__receiver_is_torn(m->world->receiver));
        assert_true(weight_writers_serve_truth(m));
        m->resume_log = (struct tdm__resume_log){.next = 0};
    }
    weight_writers_close(m);
}

/* A pause may move the weights, or lose them. */
static void paused_weights_have_no_resume_log(void **state)
{
    struct weight_writers *m = weight_writers_open_overwriting();

    (void)state;
    weight_writers_send(m, m->transfer_plan->chunks_count);
    TRY(tdm_region_pause(m->world->weights));
    TRY(tdm_region_resume(m->world->weights, WEIGHT_WRITERS_WAIT_MS));
    weight_writers_begin_again(m);
    assert_int_equal(m->resume_log.next, 0);
    assert_int_equal(weight_writers_finish(m), m->transfer_plan->chunks_count);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

/* The rank copies a peer's weights over what it has staged, so that none of that counts any more.
 */
static void pull_voids_what_is_staged(void **state)
{
    struct weight_writers *m = weight_writers_open_overwriting();
    struct tdm__receiver *receiver = m->world->receiver;
    struct tdm__weight_blocks blocks;
    struct tdm__resume_log resume_log;

    (void)state;
    weight_writers_commit(m);
    TRY(tdm__receiver_export_weights(receiver, &blocks));
    weight_writers_send(m, m->transfer_plan->chunks_count);
    blocks.keys[0].bytes[3] ^= 1; /* This peer has gone. */
    assert_int_equal(tdm__receiver_pull_weights(receiver, &blocks), TDM_E_NOT_FOUND);
    assert_true(tdm__receiver_is_torn(receiver));
    assert_int_equal(tdm__receiver_prepare_slices(receiver, &m->world->update), TDM_E_STATE);
    TRY(tdm__receiver_resume_update(receiver, &m->world->update, m->world->epoch + 1, &resume_log));
    assert_int_equal(resume_log.next, 0);
    weight_writers_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_weights_are_overwritten_in_place),
        cmocka_unit_test(no_second_copy_takes_memory),
        cmocka_unit_test(abort_leaves_no_version),
        cmocka_unit_test(bucket_after_the_drop_does_not_touch_what_is_served),
        cmocka_unit_test(torn_rank_does_not_receive_the_same_bytes_again),
        cmocka_unit_test(paused_weights_have_no_resume_log),
        cmocka_unit_test(pull_voids_what_is_staged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
