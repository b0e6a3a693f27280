/* mover_again_test.c - an update that is begun anew sends what is not there, and nothing else.
 */
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

/* Interrupted after any window, while the next one is being written. */
static void what_is_here_is_not_sent_again(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    uint32_t windows_count = m->route->windows_count;
    struct tdm__hash first;
    struct tdm__hash next;

    movers_commit(m);
    for (uint32_t k = 0; k <= windows_count; k++) {
        weight_world_learn(m->world);
        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            tdm__mover_forget(m->movers[rank]);
        }
        movers_begin(m);
        for (uint32_t i = 0; i <= k && i < windows_count; i++) {
            movers_write(m, i);
            if (i < k) {
                TRY(movers_stage(m, i));
            }
        }
        movers_end(m);
        movers_begin_again(m);
        assert_int_equal(m->journal.next, k);
        assert_int_equal(movers_finish(m), windows_count - k);
        assert_true(movers_serve_truth(m));
        first = tdm__mover_contents(m->movers[0]);
        m->journal = (struct tdm__journal){.next = 0};
        movers_commit(m);
        next = tdm__mover_contents(m->movers[1]);
        assert_true(tdm__hash_equal(&first, &next));
    }
    movers_close(m);
}

/* The engine has all of the weights before: nothing of that is taken for the new ones. */
static void weights_that_changed_are_sent_from_the_start(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);

    movers_send(m, m->route->windows_count);
    weight_world_learn(m->world);
    tdm__mover_forget(m->movers[1]); /* one rank is enough */
    movers_begin_again(m);
    assert_int_equal(m->journal.next, m->route->windows_count);
    assert_int_equal(movers_finish(m), m->route->windows_count);
    assert_true(movers_serve_truth(m));
    movers_close(m);
}

static void a_shadow_that_went_has_no_journal(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);

    movers_send(m, m->route->windows_count);
    TRY(tdm__regions_pause(m->world->regions[1], "shadow"));
    TRY(tdm__regions_resume(m->world->regions[1], "shadow", MOVERS_WAIT_MS));
    movers_begin_again(m);
    assert_int_equal(m->journal.next, 0);
    assert_int_equal(movers_finish(m), m->route->windows_count);
    assert_true(movers_serve_truth(m));
    movers_send(m, m->route->windows_count);
    movers_give_up(m);
    movers_begin_again(m);
    assert_int_equal(m->journal.next, 0);
    movers_give_up(m);
    movers_close(m);
}

static void a_window_that_failed_voids_the_journal(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    uint32_t last = m->route->windows_count - 1;
    const struct tdm__route_window *window = &m->route->images[0].windows[last];

    movers_send(m, last);
    movers_begin_again(m);
    movers_write(m, last);
    movers_flip_bits(m, window->end - 1 - (in_place ? 0 : window->begin), 1);
    assert_int_equal(movers_stage(m, last), TDM_E_CHECKSUM);
    movers_end(m);
    movers_begin_again(m);
    assert_int_equal(m->journal.next, 0);
    assert_int_equal(movers_finish(m), last + 1);
    assert_true(movers_serve_truth(m));
    movers_close(m);
}

/* In place others may have written since; what a member copies, nobody else writes. */
static void only_what_was_lent_is_in_doubt(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    uint32_t windows_count = m->route->windows_count;

    movers_send(m, windows_count);
    movers_begin_again(m);
    assert_int_equal(m->journal.next, windows_count);
    movers_end(m);
    movers_begin_again(m);
    assert_int_equal(m->journal.next, in_place ? 0 : windows_count);
    assert_int_equal(movers_finish(m), in_place ? windows_count : 0);
    assert_true(movers_serve_truth(m));
    movers_close(m);
}

/* A journal that is wrong, or another update's, is worth nothing: neither to trainers nor, at
 * the end, to the member. */
static void another_journal_is_not_believed(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    struct weight_world *world = m->world;
    struct tdm__journal sent;

    movers_send(m, m->route->windows_count);
    sent = tdm__mover_journal(m->movers[0], 0);
    sent.sums.low ^= 1;
    assert_int_equal(tdm__receiver_prepare_sent(world->receiver, &world->update, &sent),
                     TDM_E_CHECKSUM);
    m->journal = sent;
    movers_open_targets(m);
    assert_false(tdm__mover_is_held(m->movers[0], 0));
    movers_give_up(m);
    movers_close(m);
}

/* What came over a line was copied by the member, and lies in its shadow like all else. */
static void what_was_received_is_not_sent_again(void **state)
{
    struct movers *m = movers_open(false, TDM__VERIFY_FULL);
    uint32_t half = m->route->windows_count / 2;

    (void)state;
    assert_true(half > 0);
    movers_begin(m);
    for (uint32_t i = 0; i < half; i++) {
        movers_write(m, i);
        TRY(movers_stage_received(m, i));
    }
    movers_end(m);
    movers_begin_again(m);
    assert_int_equal(m->journal.next, half);
    assert_int_equal(movers_finish(m), m->route->windows_count - half);
    assert_true(movers_serve_truth(m));
    movers_close(m);
}

BOTH_WAYS(what_is_here_is_not_sent_again)
BOTH_WAYS(weights_that_changed_are_sent_from_the_start)
BOTH_WAYS(a_shadow_that_went_has_no_journal)
BOTH_WAYS(a_window_that_failed_voids_the_journal)
BOTH_WAYS(only_what_was_lent_is_in_doubt)
BOTH_WAYS(another_journal_is_not_believed)

/* Goal: whichever call fails, what it left half done is not taken for a window that is here
 * when the update is begun anew.  Method: the same, but the journal is believed, not dropped.
 */
static void no_failed_call_leaves_half_a_window(bool in_place)
{
    struct movers *m = movers_open(in_place, TDM__VERIFY_FULL);
    uint32_t windows_count = m->route->windows_count;
    uint64_t calls = 0;
    uint64_t nth = 0;
    int gone_on = 0;

    if (!weight_world_is_cuda()) {
        movers_close(m);
        return;
    }
    movers_commit(m);
    do {
        nth++;
        weight_world_learn(m->world);
        for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
            tdm__mover_forget(m->movers[rank]);
        }
        m->journal = (struct tdm__journal){.next = 0};
        if (!movers_update_while_a_call_fails(m, nth, &calls)) {
            movers_end(m);
            movers_begin_again(m);
            gone_on += movers_finish(m) < windows_count ? 1 : 0;
        }
        assert_true(movers_serve_truth(m));
    } while (calls >= nth);
    assert_true(in_place || gone_on > 0);
    movers_close(m);
}

BOTH_WAYS(no_failed_call_leaves_half_a_window)

static int run_here(const char *device)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_here_is_not_sent_again_in_place),
        cmocka_unit_test(what_is_here_is_not_sent_again_by_copy),
        cmocka_unit_test(what_was_received_is_not_sent_again),
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
        cmocka_unit_test(no_failed_call_leaves_half_a_window_in_place),
        cmocka_unit_test(no_failed_call_leaves_half_a_window_by_copy),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void)
{
    return weight_world_everywhere(run_here);
}
