/* send_queue_test.c - every call of a channel is completed once and in order, whatever happens
 * to the actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/send_queue.h"

#include "actors/client/actor_handle.h"
#include "actors/client/client.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_complete.h"
#include "runtime/clock.h"
#include "tests/support/channel_peer.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct channel_peer peer;

static void expect_failure(tdm_ref *ref, tdm_status status, const char *part)
{
    assert_int_equal(tdm_get(ref, PEER_WAIT_MS, ""), status);
    if (strstr(tdm_error_detail(), part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), part);
    }
    tdm_ref_release(ref);
}

/* ---- awaited_call event at a time
 * ------------------------------------------------------------------ */

static void calls_wait_for_their_actor_and_keep_their_order(void **state)
{
    tdm_ref *refs[50];

    (void)state;
    for (int64_t i = 0; i < 50; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    peer_found(&peer);
    peer_hold(&peer, 50);
    for (int64_t i = 0; i < 50; i++) {
        assert_int_equal(peer.runs[i].number, i);
        assert_int_equal(peer.runs[i].sequence, i + 1);
        peer_complete(&peer, 0);
        peer_expect_result(refs[i], i);
    }
}

static void closed_connection_is_reopened_and_nothing_runs_twice(void **state)
{
    tdm_ref *refs[4];

    (void)state;
    peer_found(&peer);
    for (int64_t i = 0; i < 3; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    peer_hold(&peer, 3);
    peer_complete(&peer, 0); /* The reply may be lost with the connection. */
    peer_cut(&peer);
    refs[3] = peer_call(&peer, 3, NULL);
    peer_hold(&peer, 3);
    assert_int_equal(peer.runs_count, 4);
    assert_true(peer.repeats_count >= 2);
    for (int64_t i = 0; i < 4; i++) {
        if (i > 0) {
            peer_complete(&peer, 0);
        }
        peer_expect_result(refs[i], i);
    }
}

/* The failed call is sent as a new awaited_call, whose reply may be lost like any other. */
static void failure_that_may_is_tried_again_under_a_new_number(void **state)
{
    const struct tdm_call_options options = {.max_retries = 2, .retry_failures = {TDM_ANY_FAILURE}};
    tdm_ref *refs[2];

    (void)state;
    peer_found(&peer);
    refs[0] = peer_call(&peer, 0, &options);
    refs[1] = peer_call(&peer, 1, NULL);
    peer_hold(&peer, 2);
    peer_fail(&peer, 0, TDM_E_METHOD, "not yet");
    peer_hold(&peer, 2);
    assert_int_equal(peer.runs[2].number, 0);
    assert_int_equal(peer.runs[2].sequence, 3);
    peer_cut(&peer);
    peer_hold(&peer, 2);
    assert_int_equal(peer.runs_count, 3);
    peer_complete(&peer, 0);
    peer_expect_result(refs[1], 1);
    peer_fail(&peer, 0, TDM_E_METHOD, "still not");
    peer_hold(&peer, 1);
    peer_fail(&peer, 0, TDM_E_METHOD, "the last time");
    expect_failure(refs[0], TDM_E_METHOD, "the last time");
    assert_int_equal(peer.runs_count, 4);
}

static void canceled_call_is_not_tried_again(void **state)
{
    const struct tdm_call_options options = {.max_retries = -1,
                                             .retry_failures = {TDM_ANY_FAILURE}};
    tdm_ref *ref;

    (void)state;
    peer_found(&peer);
    ref = peer_call(&peer, 0, &options);
    peer_hold(&peer, 1);
    assert_int_equal(tdm_cancel(ref, 0), TDM_OK);
    peer_fail(&peer, 0, TDM_E_METHOD, "too late");
    peer_settle(&peer);
    expect_failure(ref, TDM_E_CANCELED, "");
    assert_int_equal(peer.runs_count, 1);
}

/* The actor would reply in the same way forever, as fast as messages travel. */
static void method_that_is_not_there_is_not_tried_again(void **state)
{
    const struct tdm_call_options options = {.max_retries = -1,
                                             .retry_failures = {TDM_ANY_FAILURE}};
    tdm_ref *ref;

    (void)state;
    peer_found(&peer);
    ref = peer_call(&peer, 0, &options);
    peer_hold(&peer, 1);
    peer_fail(&peer, 0, TDM_E_NOT_FOUND, "class x has no method \"m\"");
    peer_settle(&peer);
    assert_int_equal(peer.runs_count, 1);
    expect_failure(ref, TDM_E_NOT_FOUND, "no method");
}

static void daemon_is_asked_about_an_unreachable_actor(void **state)
{
    char address[sizeof(peer.address)];
    tdm_ref *ref = peer_call(&peer, 7, NULL);

    (void)state;
    memcpy(address, peer.address, sizeof(address));
    (void)snprintf(peer.address, sizeof(peer.address), "unix:/tmp/channel_peer.%d.gone",
                   (int)getpid());
    peer_found(&peer); /* The address is what the daemon knew before the actor ended. */
    memcpy(peer.address, address, sizeof(address));
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_expect_result(ref, 7);
}

static bool was_released(void *arg)
{
    return ((const struct channel_peer *)arg)->releases_count > 0;
}

static void last_call_releases_the_actor_even_if_its_argument_fails(void **state)
{
    tdm_ref *argument;
    tdm_ref *ref;

    (void)state;
    peer_found(&peer);
    assert_int_equal(tdm__handle_start_counting(peer.channel), TDM_OK);
    assert_int_equal(tdm__ref_create(peer.runtime, &argument), TDM_OK);
    assert_int_equal(tdm_actor_call(&peer.actor, "m", &ref, "r", argument), TDM_OK);
    tdm__actor_channel_release_keep_alive(peer.channel);
    assert_non_null(peer.channel->keep_alive);
    tdm__ref_complete(argument, TDM_E_METHOD, "on purpose", NULL);
    peer.runtime->client->results_arrived = true;
    tdm__actor_channels_flush(peer.runtime);
    expect_failure(ref, TDM_E_METHOD, "on purpose");
    peer_run_until(&peer, was_released, &peer);
    assert_null(peer.channel->keep_alive);
    tdm_ref_release(argument);
}

static void restart_fails_what_may_not_run_twice_and_repeats_the_rest(void **state)
{
    const struct tdm_call_options again = {.max_retries = 1};
    tdm_ref *refs[4];

    (void)state;
    peer_found(&peer);
    refs[0] = peer_call(&peer, 0, NULL);
    refs[1] = peer_call(&peer, 1, &again);
    refs[2] = peer_call(&peer, 2, NULL);
    peer_hold(&peer, 3);
    peer_restart(&peer);
    peer_settle(&peer);
    refs[3] = peer_call(&peer, 3, NULL);
    expect_failure(refs[0], TDM_E_ACTOR_RESTARTING,
                   "actor m died and was restarted, in method m, call 1, ");
    expect_failure(refs[2], TDM_E_ACTOR_RESTARTING, "in method m, call 3, ");
    peer_hold(&peer, 2);
    assert_int_equal(peer.runs[3].number, 1);
    assert_int_equal(peer.runs[3].sequence, 1);
    assert_int_equal(peer.runs[4].number, 3);
    peer_complete(&peer, 0);
    peer_complete(&peer, 0);
    peer_expect_result(refs[1], 1);
    peer_expect_result(refs[3], 3);
}

static void retries_are_used_up(void **state)
{
    const struct tdm_call_options again = {.max_retries = 2};
    tdm_ref *ref;

    (void)state;
    peer_found(&peer);
    ref = peer_call(&peer, 7, &again);
    for (int i = 0; i < 2; i++) {
        peer_hold(&peer, 1);
        peer_restart(&peer);
        peer_settle(&peer);
    }
    peer_hold(&peer, 1);
    peer_restart(&peer);
    expect_failure(ref, TDM_E_ACTOR_RESTARTING, "in method m");
    assert_int_equal(peer.runs_count, 3);
}

static void the_actors_retries_are_the_default_and_a_call_may_have_none(void **state)
{
    const struct tdm_call_options none = {.max_retries = -2};
    tdm_ref *refs[2];

    (void)state;
    peer.channel->max_task_retries = -1;
    peer_found(&peer);
    refs[0] = peer_call(&peer, 0, &none);
    refs[1] = peer_call(&peer, 1, NULL);
    peer_hold(&peer, 2);
    peer_restart(&peer);
    expect_failure(refs[0], TDM_E_ACTOR_RESTARTING, "in method m");
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_expect_result(refs[1], 1);
}

static void death_message_names_the_callers_call(void **state)
{
    tdm_ref *ref;

    (void)state;
    peer_found(&peer);
    ref = peer_call(&peer, 1, NULL);
    peer_hold(&peer, 1);
    peer_die(&peer);
    assert_int_equal(tdm_get(ref, PEER_WAIT_MS, ""), TDM_E_ACTOR_DIED);
    assert_non_null(
        strstr(tdm_error_detail(), "actor m died: by the script, in method m, call 1, "));
    assert_non_null(strstr(tdm_error_detail(), "ms ago, probably started\nlast words"));
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_call(&peer.actor, "m", NULL, ""), TDM_E_ACTOR_DIED);
}

static void waiting_for_readiness_does_not_query_the_daemon(void **state)
{
    (void)state;
    peer_found(&peer);
    tdm_ref_release(peer_call(&peer, 1, NULL));
    peer_hold(&peer, 1);
    peer.channel->state = TDM__CHANNEL_RECONNECTING;
    assert_int_equal(tdm_actor_wait_ready(&peer.actor, 10), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "not ready after 10 ms: the script says so"));
    peer.channel->state = TDM__CHANNEL_OPEN;
    assert_int_equal(tdm_actor_wait_ready(&peer.actor, 10), TDM_OK);
}

static void deadline_ends_a_call_in_every_state(void **state)
{
    const struct tdm_call_options soon = {.timeout_ms = 30};
    tdm_ref *late;
    tdm_ref *ref;

    (void)state;
    expect_failure(peer_call(&peer, 0, &soon), TDM_E_TIMEOUT,
                   "no reply from actor m: the actor is not connected, in method m");
    peer_found(&peer);
    ref = peer_call(&peer, 1, &soon);
    late = peer_call(&peer, 2, NULL);
    peer_hold(&peer, 2);
    assert_true(tdm__incoming_deadline(peer.held[0]) <= tdm__clock_ms() + 30);
    expect_failure(ref, TDM_E_TIMEOUT, "no reply from actor m, in method m, call 1");
    peer_complete(&peer, 0); /* The reply arrives after the deadline. */
    peer_complete(&peer, 0);
    peer_expect_result(late, 2);
}

static void canceled_call_that_waits_is_never_sent(void **state)
{
    tdm_ref *refs[2];

    (void)state;
    refs[0] = peer_call(&peer, 0, NULL);
    refs[1] = peer_call(&peer, 1, NULL);
    assert_int_equal(tdm_cancel(refs[0], 0), TDM_OK);
    /* Canceling a completed call has no effect. */
    assert_int_equal(tdm_cancel(refs[0], 1), TDM_OK);
    expect_failure(refs[0], TDM_E_CANCELED, "method m of actor m");
    peer_found(&peer);
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_expect_result(refs[1], 1);
    assert_int_equal(peer.runs[0].number, 1);
    assert_int_equal(peer.cancels_count + peer.kills_count, 0);
}

static bool was_killed(void *arg)
{
    return ((const struct channel_peer *)arg)->kills_count > 0;
}

static void running_call_is_canceled_or_killed(void **state)
{
    tdm_ref *ref;

    (void)state;
    peer_found(&peer);
    ref = peer_call(&peer, 0, NULL);
    peer_hold(&peer, 1);
    assert_int_equal(tdm_cancel(ref, 0), TDM_OK);
    expect_failure(ref, TDM_E_CANCELED, "canceled");
    peer_settle(&peer);
    assert_int_equal(peer.cancels_count, 1);
    assert_int_equal(peer.kills_count, 0);
    peer_complete(&peer, 0); /* No call waits for this reply. */
    ref = peer_call(&peer, 1, NULL);
    peer_hold(&peer, 1);
    assert_int_equal(tdm_cancel(ref, 1), TDM_OK);
    expect_failure(ref, TDM_E_CANCELED, "canceled");
    peer_run_until(&peer, was_killed, &peer);
}

static void put_value_cannot_be_canceled(void **state)
{
    tdm_ref *ref;

    (void)state;
    assert_int_equal(tdm_put(peer.runtime, &ref, "i", (int64_t)1), TDM_OK);
    assert_int_equal(tdm_cancel(ref, 0), TDM_E_STATE);
    tdm_ref_release(ref);
}

static void too_many_pending_calls_are_refused_at_once(void **state)
{
    tdm_ref *refs[3];

    (void)state;
    peer.channel->max_pending_calls = 2;
    refs[0] = peer_call(&peer, 0, NULL);
    refs[1] = peer_call(&peer, 1, NULL);
    assert_int_equal(tdm_actor_call(&peer.actor, "m", &refs[2], "i", (int64_t)2), TDM_E_AGAIN);
    assert_string_equal(tdm_error_detail(), "2 calls of actor m are pending, its limit is 2");
    peer_found(&peer);
    peer_hold(&peer, 2);
    peer_complete(&peer, 0);
    peer_expect_result(refs[0], 0);
    refs[2] = peer_call(&peer, 2, NULL);
    /* A canceled call no longer counts as pending. */
    assert_int_equal(tdm_cancel(refs[1], 0), TDM_OK);
    tdm_ref_release(peer_call(&peer, 3, NULL));
    tdm_ref_release(refs[1]);
    tdm_ref_release(refs[2]);
}

/* The limit is 8 here instead of 100,000. */
static void calls_beyond_the_limit_wait_for_replies(void **state)
{
    tdm_ref *refs[30];

    (void)state;
    peer.channel->in_flight_max = 8;
    peer_found(&peer);
    for (int64_t i = 0; i < 30; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    peer_hold(&peer, 8);
    peer_settle(&peer);
    assert_int_equal(peer.held_count, 8);
    peer_complete(&peer, 0); /* Room for one, but a quarter must be free. */
    peer_settle(&peer);
    assert_int_equal(peer.held_count, 7);
    peer_complete(&peer, 0);
    peer_hold(&peer, 8);
    for (int64_t i = 2; i < 30; i++) {
        peer_hold(&peer, 1);
        peer_complete(&peer, 0);
        peer_settle(&peer);
        assert_true(peer.held_count <= 8);
    }
    for (int64_t i = 0; i < 30; i++) {
        peer_expect_result(refs[i], i);
    }
    assert_int_equal(peer.channel->in_flight_count, 0);
    assert_int_equal(peer.channel->in_flight_bytes, 0);
}

static void waiting_calls_leave_when_a_call_in_flight_is_canceled(void **state)
{
    tdm_ref *refs[2];

    (void)state;
    peer.channel->in_flight_max = 1;
    peer_found(&peer);
    refs[0] = peer_call(&peer, 0, NULL);
    refs[1] = peer_call(&peer, 1, NULL);
    peer_hold(&peer, 1);
    assert_int_equal(tdm_cancel(refs[0], 0), TDM_OK);
    peer_settle(&peer);
    assert_int_equal(peer.held_count, 1); /* The actor has not confirmed the cancellation. */
    peer_complete(&peer, 0);
    peer_hold(&peer, 1);
    peer_complete(&peer, 0);
    peer_expect_result(refs[1], 1);
    tdm_ref_release(refs[0]);
}

/* The caller may make a call between the death and the moment in which it hears of it. */
static void death_message_names_the_method_of_a_call_that_was_not_sent(void **state)
{
    tdm_ref *refs[2];

    (void)state;
    peer.channel->in_flight_max = 1;
    peer_found(&peer);
    refs[0] = peer_call(&peer, 0, NULL);
    refs[1] = peer_call(&peer, 1, NULL);
    peer_hold(&peer, 1);
    peer_die(&peer);
    expect_failure(refs[0], TDM_E_ACTOR_DIED, ", in method m, call 1, made ");
    assert_int_equal(tdm_get(refs[1], PEER_WAIT_MS, ""), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "by the script, in method m, made "));
    assert_non_null(strstr(tdm_error_detail(), " ms ago, not sent\nlast words"));
    tdm_ref_release(refs[1]);
}

static void idle_caller_acknowledges_replies(void **state)
{
    tdm_ref *refs[100];

    (void)state;
    peer_found(&peer);
    for (int64_t i = 0; i < 100; i++) {
        refs[i] = peer_call(&peer, i, NULL);
    }
    peer_hold(&peer, 100);
    assert_int_equal(peer.acknowledged, 0);
    for (int64_t i = 0; i < 100; i++) {
        peer_complete(&peer, 0);
        peer_expect_result(refs[i], i);
    }
    peer_settle(&peer);
    assert_int_equal(peer.acknowledge_calls, 1);
    assert_int_equal(peer.acknowledged, 100);
}

/* ---- random events ------------------------------------------------------------------------ */

enum { PROGRAM_CALLS = 60 };

/* A random sequence of calls and failures, and what the calls should return. */
struct program {
    struct test_random chance;
    bool restarts;
    bool fails; /* Methods fail, and repeatable calls are retried. */
    tdm_ref *refs[PROGRAM_CALLS];
    bool repeatable[PROGRAM_CALLS];
    bool canceled[PROGRAM_CALLS];
    int64_t made;
};

static void program_make_call(struct program *program)
{
    struct tdm_call_options options = {0};
    int64_t i = program->made;

    if (i == PROGRAM_CALLS) {
        return;
    }
    program->repeatable[i] = test_random_below(&program->chance, 2) == 0;
    options.max_retries = program->repeatable[i] ? -1 : -2;
    options.retry_failures[0] = program->fails ? TDM_ANY_FAILURE : TDM_OK;
    program->refs[i] = peer_call(&peer, i, &options);
    program->made++;
}

static void program_cancel_call(struct program *program)
{
    uint32_t i;

    if (program->made == 0) {
        return;
    }
    i = test_random_below(&program->chance, (uint32_t)program->made);
    assert_int_equal(tdm_cancel(program->refs[i], 0), TDM_OK);
    program->canceled[i] = true;
}

static void program_reply_to_call(struct program *program)
{
    uint32_t index = test_random_below(&program->chance, peer.held_count);

    if (program->fails && test_random_below(&program->chance, 3) == 0) {
        peer_fail(&peer, index, TDM_E_METHOD, "on purpose");
    } else {
        peer_complete(&peer, index);
    }
}

static void program_step(struct program *program)
{
    uint32_t what = test_random_below(&program->chance, 100);

    if (what < 40) {
        program_make_call(program);
    } else if (what < 65 && peer.held_count > 0) {
        program_reply_to_call(program);
    } else if (what < 69) {
        peer_cut(&peer);
    } else if (what < 72 && program->restarts && peer.actor_conn != NULL) {
        peer_restart(&peer);
    } else if (what < 75) {
        program_cancel_call(program);
    } else {
        (void)tdm__loop_run(peer.runtime->loop, NULL, NULL, tdm__deadline_after(0));
    }
}

struct awaited_call {
    const tdm_ref *ref;
};

static bool ref_is_done_or_held(void *arg)
{
    return ((const struct awaited_call *)arg)->ref->done || peer.held_count > 0;
}

static void program_check_result(struct program *program, int64_t i)
{
    struct awaited_call awaited_call = {program->refs[i]};
    int64_t number = -1;
    tdm_status status;

    while (!awaited_call.ref->done) {
        peer_run_until(&peer, ref_is_done_or_held, &awaited_call);
        if (peer.held_count > 0) {
            peer_complete(&peer, 0);
        }
    }
    status = tdm_get(program->refs[i], 0, "i", &number);
    if (status == TDM_OK) {
        assert_int_equal(number, i);
    } else if (!program->canceled[i]) {
        assert_false(program->repeatable[i]);
        assert_true((program->restarts && status == TDM_E_ACTOR_RESTARTING) ||
                    (program->fails && status == TDM_E_METHOD));
    }
    tdm_ref_release(program->refs[i]);
}

/* Asserts that each incarnation of the actor receives each call once and in order, and a second
 * time only if it failed there. Only repeatable calls are received more than once. */
static void program_check_executions(const struct program *program)
{
    uint32_t seen[PROGRAM_CALLS] = {0};

    for (uint32_t i = 0; i < peer.runs_count; i++) {
        const struct peer_run *run = &peer.runs[i];

        seen[run->number]++;
        assert_true(seen[run->number] == 1 || program->repeatable[run->number]);
        if (i > 0 && run[-1].incarnation == run->incarnation) {
            assert_true(program->fails || run->number > run[-1].number);
            assert_true(run->sequence > run[-1].sequence);
        }
    }
    for (int64_t i = 0; i < program->made; i++) {
        assert_true(seen[i] > 0 || program->canceled[i] ||
                    /* The call was in flight when the actor ended. */
                    (program->restarts && !program->repeatable[i]));
    }
}

static void program_run(uint64_t seed, bool restarts, bool fails)
{
    struct program program = {.chance = {seed}, .restarts = restarts, .fails = fails};

    peer_create(&peer);
    peer_found(&peer);
    for (int step = 0; step < 250; step++) {
        program_step(&program);
    }
    for (int64_t i = 0; i < program.made; i++) {
        program_check_result(&program, i);
    }
    program_check_executions(&program);
    peer_settle(&peer);
    assert_int_equal(peer.channel->pending_count, 0);
    peer_destroy(&peer);
}

static void random_programs_keep_their_promises(void **state)
{
    struct test_random chance = test_random_init("traffic_test", 4);

    (void)state;
    for (int i = 0; i < 40; i++) {
        uint64_t seed = test_random_next(&chance);

        print_message("program %d: state %llu\n", i, (unsigned long long)seed);
        program_run(seed, i % 2 == 1, i % 4 >= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PEER_TEST(calls_wait_for_their_actor_and_keep_their_order),
        PEER_TEST(closed_connection_is_reopened_and_nothing_runs_twice),
        PEER_TEST(failure_that_may_is_tried_again_under_a_new_number),
        PEER_TEST(canceled_call_is_not_tried_again),
        PEER_TEST(method_that_is_not_there_is_not_tried_again),
        PEER_TEST(daemon_is_asked_about_an_unreachable_actor),
        PEER_TEST(last_call_releases_the_actor_even_if_its_argument_fails),
        PEER_TEST(restart_fails_what_may_not_run_twice_and_repeats_the_rest),
        PEER_TEST(retries_are_used_up),
        PEER_TEST(the_actors_retries_are_the_default_and_a_call_may_have_none),
        PEER_TEST(death_message_names_the_callers_call),
        PEER_TEST(death_message_names_the_method_of_a_call_that_was_not_sent),
        PEER_TEST(waiting_for_readiness_does_not_query_the_daemon),
        PEER_TEST(deadline_ends_a_call_in_every_state),
        PEER_TEST(canceled_call_that_waits_is_never_sent),
        PEER_TEST(running_call_is_canceled_or_killed),
        PEER_TEST(put_value_cannot_be_canceled),
        PEER_TEST(too_many_pending_calls_are_refused_at_once),
        PEER_TEST(idle_caller_acknowledges_replies),
        PEER_TEST(calls_beyond_the_limit_wait_for_replies),
        PEER_TEST(waiting_calls_leave_when_a_call_in_flight_is_canceled),
        cmocka_unit_test(random_programs_keep_their_promises),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
