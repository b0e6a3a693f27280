/* weight_writer_resume_test.c - a resumed update sends exactly the chunks that are missing. */
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

/* Interrupts an update after each chunk, while the next one is being written. */
static void resume_after_each_chunk(struct weight_writers *m)
{
    uint32_t chunks_count = m->transfer_plan->chunks_count;
    struct tdm__hash first;
    struct tdm__hash next;

    weight_writers_commit(m);
    for (uint32_t k = 0; k <= chunks_count; k++) {
        weight_fixture_learn(m->world);
        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            tdm__weight_writer_forget_sums(m->weight_writers[rank]);
        }
        weight_writers_begin(m);
        for (uint32_t i = 0; i <= k && i < chunks_count; i++) {
            weight_writers_write(m, i);
            if (i < k) {
                TRY(weight_writers_stage(m, i));
            }
        }
        weight_writers_end(m);
        weight_writers_begin_again(m);
        assert_int_equal(m->resume_log.next, k);
        assert_int_equal(weight_writers_finish(m), chunks_count - k);
        assert_true(weight_writers_serve_truth(m));
        first = tdm__weight_writer_contents_hash(m->weight_writers[0]);
        m->resume_log = (struct tdm__resume_log){.next = 0};
        weight_writers_commit(m);
        next = tdm__weight_writer_contents_hash(m->weight_writers[1]);
        assert_true(tdm__hash_equal(&first, &next));
    }
    weight_writers_close(m);
}

static void what_is_here_is_not_sent_again(bool in_place)
{
    resume_after_each_chunk(weight_writers_open(in_place, TDM__VERIFY_FULL));
}

/* What the engine has is not exchanged between nodes again, either. */
static void divided_trainer_resumes_an_update(bool in_place)
{
    resume_after_each_chunk(weight_writers_open_divided(in_place));
}

/* The engine has all of the old weights, and none of them is taken for the new ones. */
static void weights_that_changed_are_sent_from_the_start(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);

    weight_writers_send(m, m->transfer_plan->chunks_count);
    weight_fixture_learn(m->world);
    /* One rank that forgets its checksums is enough. */
    tdm__weight_writer_forget_sums(m->weight_writers[1]);
    weight_writers_begin_again(m);
    assert_int_equal(m->resume_log.next, m->transfer_plan->chunks_count);
    assert_int_equal(weight_writers_finish(m), m->transfer_plan->chunks_count);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

static void shadow_that_went_has_no_resume_log(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);

    weight_writers_send(m, m->transfer_plan->chunks_count);
    TRY(tdm__regions_pause(m->world->regions[1], "shadow"));
    TRY(tdm__regions_resume(m->world->regions[1], "shadow", WEIGHT_WRITERS_WAIT_MS));
    weight_writers_begin_again(m);
    assert_int_equal(m->resume_log.next, 0);
    assert_int_equal(weight_writers_finish(m), m->transfer_plan->chunks_count);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_send(m, m->transfer_plan->chunks_count);
    weight_writers_give_up(m);
    weight_writers_begin_again(m);
    assert_int_equal(m->resume_log.next, 0);
    weight_writers_give_up(m);
    weight_writers_close(m);
}

static void chunk_that_failed_voids_the_journal(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    uint32_t last = m->transfer_plan->chunks_count - 1;
    const struct tdm__transfer_plan_chunk *chunk = &m->transfer_plan->images[0].chunks[last];
    /* Offset of the chunk's first byte in the image, or in the bucket, whose halves alternate. */
    uint64_t begin =
        in_place ? chunk->begin : tdm__weight_writer_chunk_offset(m->weight_writers[0], last, 0);

    weight_writers_send(m, last);
    weight_writers_begin_again(m);
    weight_writers_write(m, last);
    weight_writers_flip_bits(m, begin + (chunk->end - chunk->begin) - 1, 1);
    assert_int_equal(weight_writers_stage(m, last), TDM_E_CHECKSUM);
    weight_writers_end(m);
    weight_writers_begin_again(m);
    assert_int_equal(m->resume_log.next, 0);
    assert_int_equal(weight_writers_finish(m), last + 1);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

/* In place other processes may have written since. No other process writes what a member copies
 * itself. */
static void only_what_was_lent_is_in_doubt(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    uint32_t chunks_count = m->transfer_plan->chunks_count;

    weight_writers_send(m, chunks_count);
    weight_writers_begin_again(m);
    assert_int_equal(m->resume_log.next, chunks_count);
    weight_writers_end(m);
    weight_writers_begin_again(m);
    assert_int_equal(m->resume_log.next, in_place ? 0 : chunks_count);
    assert_int_equal(weight_writers_finish(m), in_place ? chunks_count : 0);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

/* A resume log that is wrong, or that of another update, is ignored by the trainers and, at the
 * end, by the member. */
static void another_resume_log_is_not_believed(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    struct weight_fixture *world = m->world;
    struct tdm__resume_log sent;

    weight_writers_send(m, m->transfer_plan->chunks_count);
    sent = tdm__weight_writer_resume_log(m->weight_writers[0], 0);
    sent.sums.low ^= 1;
    assert_int_equal(tdm__receiver_prepare_sent(world->receiver, &world->update, &sent),
                     TDM_E_CHECKSUM);
    m->resume_log = sent;
    weight_writers_open_targets(m);
    weight_writers_find_held(m);
    assert_false(tdm__weight_writer_chunk_is_held(m->weight_writers[0], 0));
    weight_writers_give_up(m);
    weight_writers_close(m);
}

/* What arrived over a connection was copied by the member, so it is in the shadow like everything
 * else. */
static void received_buckets_are_not_sent_again(void **state)
{
    struct weight_writers *m = weight_writers_open(false, TDM__VERIFY_FULL);
    uint32_t half = m->transfer_plan->chunks_count / 2;

    (void)state;
    assert_true(half > 0);
    weight_writers_begin(m);
    for (uint32_t i = 0; i < half; i++) {
        weight_writers_write(m, i);
        TRY(weight_writers_stage_received(m, i));
    }
    weight_writers_end(m);
    weight_writers_begin_again(m);
    assert_int_equal(m->resume_log.next, half);
    assert_int_equal(weight_writers_finish(m), m->transfer_plan->chunks_count - half);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

/* The engine has everything, but later chunks may need what ranks exchange for these. */
static void pieces_that_later_chunks_need_are_exchanged_again(void **state)
{
    struct weight_writers *m = weight_writers_open_divided(false);
    const struct tdm__node_exchange *exchange = m->transfer_plan->exchange;
    uint32_t kept = 0;

    (void)state;
    for (uint32_t i = 0; i < m->transfer_plan->chunks_count; i++) {
        exchange->chunk_keeps[i] = tdm__node_exchange_rounds(exchange, i) > 0;
        kept += exchange->chunk_keeps[i] ? 1 : 0;
    }
    assert_true(kept > 0);
    weight_fixture_learn(m->world);
    weight_writers_begin(m);
    for (uint32_t i = 0; i < m->transfer_plan->chunks_count; i++) {
        weight_writers_write(m, i);
        TRY(weight_writers_stage(m, i));
    }
    weight_writers_end(m);
    weight_writers_begin_again(m);
    assert_int_equal(weight_writers_finish(m), kept);
    assert_true(weight_writers_serve_truth(m));
    weight_writers_close(m);
}

BOTH_WAYS(what_is_here_is_not_sent_again)
BOTH_WAYS(divided_trainer_resumes_an_update)
BOTH_WAYS(weights_that_changed_are_sent_from_the_start)
BOTH_WAYS(shadow_that_went_has_no_resume_log)
BOTH_WAYS(chunk_that_failed_voids_the_journal)
BOTH_WAYS(only_what_was_lent_is_in_doubt)
BOTH_WAYS(another_resume_log_is_not_believed)

/* Goal: whichever call fails, an incomplete chunk is not taken for a complete one when the
 * update is resumed.
 *
 * Method: the same as above, but the resume log is used and not dropped. */
static void no_failed_call_leaves_half_a_chunk(bool in_place)
{
    struct weight_writers *m = weight_writers_open(in_place, TDM__VERIFY_FULL);
    uint32_t chunks_count = m->transfer_plan->chunks_count;
    uint64_t calls = 0;
    uint64_t nth = 0;
    int gone_on = 0;

    if (!weight_fixture_is_cuda()) {
        weight_writers_close(m);
        return;
    }
    weight_writers_commit(m);
    do {
        nth++;
        weight_fixture_learn(m->world);
        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            tdm__weight_writer_forget_sums(m->weight_writers[rank]);
        }
        m->resume_log = (struct tdm__resume_log){.next = 0};
        if (!weight_writers_update_while_a_call_fails(m, nth, &calls)) {
            weight_writers_end(m);
            weight_writers_begin_again(m);
            gone_on += weight_writers_finish(m) < chunks_count ? 1 : 0;
        }
        assert_true(weight_writers_serve_truth(m));
    } while (calls >= nth);
    assert_true(in_place || gone_on > 0);
    weight_writers_close(m);
}

BOTH_WAYS(no_failed_call_leaves_half_a_chunk)

static int run_here(const char *device)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_here_is_not_sent_again_in_place),
        cmocka_unit_test(what_is_here_is_not_sent_again_by_copy),
        cmocka_unit_test(divided_trainer_resumes_an_update_in_place),
        cmocka_unit_test(divided_trainer_resumes_an_update_by_copy),
        cmocka_unit_test(pieces_that_later_chunks_need_are_exchanged_again),
        cmocka_unit_test(received_buckets_are_not_sent_again),
        cmocka_unit_test(weights_that_changed_are_sent_from_the_start_in_place),
        cmocka_unit_test(weights_that_changed_are_sent_from_the_start_by_copy),
        cmocka_unit_test(shadow_that_went_has_no_resume_log_in_place),
        cmocka_unit_test(shadow_that_went_has_no_resume_log_by_copy),
        cmocka_unit_test(chunk_that_failed_voids_the_journal_in_place),
        cmocka_unit_test(chunk_that_failed_voids_the_journal_by_copy),
        cmocka_unit_test(only_what_was_lent_is_in_doubt_in_place),
        cmocka_unit_test(only_what_was_lent_is_in_doubt_by_copy),
        cmocka_unit_test(another_resume_log_is_not_believed_in_place),
        cmocka_unit_test(another_resume_log_is_not_believed_by_copy),
        cmocka_unit_test(no_failed_call_leaves_half_a_chunk_in_place),
        cmocka_unit_test(no_failed_call_leaves_half_a_chunk_by_copy),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void)
{
    return weight_fixture_everywhere(run_here);
}
