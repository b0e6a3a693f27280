/* scheme_receiver_test.c - a receiver's life: waits, the background thread, shards, and its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/receiver.h"

#include "runtime/clock.h"
#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { SOON_MS = 10000, LONG_MS = 20000, EARLY_MS = 8000 };

static tdm_runtime *runtime;
static struct scheme_model model;

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

/* Connects a sender and one receiver, which then serves the bytes of seed 1. */
static tdm_weights_sender *connect_to(const char *id, tdm_actor *pupil)
{
    tdm_weights_sender *sender = scheme_sender(runtime, id, TDM_WEIGHTS_SHARED, &model, 1);
    tdm_ref *ref = scheme_call(pupil, "connect", id);

    scheme_model_fill(&model, 1);
    TRY(tdm_weights_sender_connect(sender));
    TRY(scheme_end(ref, NULL));
    return sender;
}

static void send_seed(tdm_weights_sender *sender, uint64_t seed)
{
    scheme_model_fill(&model, seed);
    TRY(tdm_weights_send(sender, NULL));
}

/* ---- receive ------------------------------------------------------------------------- */

static void receive_returns_as_soon_as_something_has_come(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "early", 0);
    tdm_weights_sender *sender = connect_to("early", pupil);
    int64_t begun_ms = tdm__clock_ms();
    tdm_ref *ref = scheme_receive(pupil, "early", LONG_MS);
    uint64_t version;

    (void)state;
    send_seed(sender, 2);
    TRY(scheme_end(ref, &version));
    assert_true(version == 2);
    assert_true(tdm__clock_ms() - begun_ms < EARLY_MS);
    assert_int_equal(scheme_end(scheme_receive(pupil, "early", 50), NULL), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "early"));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupil);
}

static void who_only_looks_finds_what_is_there(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "looks", 0);
    tdm_weights_sender *sender = connect_to("looks", pupil);
    int64_t deadline_ms = tdm__deadline_after(SOON_MS);
    tdm_status status;

    (void)state;
    TRY(tdm_weights_send_async(sender));
    do {
        status = scheme_end(scheme_receive(pupil, "looks", 0), NULL);
    } while (status == TDM_E_TIMEOUT && tdm__clock_ms() < deadline_ms);
    TRY(status);
    TRY(tdm_weights_wait(sender, SOON_MS, NULL));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupil);
}

static void a_sender_that_shut_down_is_the_end(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "end", 0);
    tdm_weights_sender *sender = connect_to("end", pupil);
    tdm_ref *ref = scheme_receive(pupil, "end", LONG_MS);

    (void)state;
    tdm_weights_sender_shutdown(sender);
    assert_int_equal(scheme_end(ref, NULL), TDM_E_END);
    assert_int_equal(scheme_end(scheme_receive(pupil, "end", LONG_MS), NULL), TDM_E_END);
    TRY(scheme_check(pupil, "end", 1, 1)); /* The receiver keeps what it has. */
    tdm_actor_destroy(pupil);
}

static void a_receiver_may_come_back_after_a_shutdown(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "again", 0);
    tdm_weights_sender *sender = connect_to("again", pupil);
    tdm_ref *ref;

    (void)state;
    TRY(scheme_end(scheme_call(pupil, "close", "again"), NULL));
    assert_int_equal(tdm_weights_send(sender, NULL), TDM_E_NOT_FOUND);
    TRY(tdm_actor_call(pupil, "open", &ref, "suu", "again", (uint64_t)PUPIL_KEEPS, (uint64_t)0));
    TRY(scheme_end(ref, NULL));
    ref = scheme_call(pupil, "connect", "again");
    scheme_model_fill(&model, 3);
    TRY(tdm_weights_sender_connect(sender)); /* Connecting waits for one receiver and sends. */
    TRY(scheme_end(ref, NULL));
    TRY(scheme_check(pupil, "again", 3, 2));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupil);
}

static void a_receiver_of_a_restarted_actor_is_another_one(void **state)
{
    const struct tdm_actor_options options = {.max_restarts = 1};
    tdm_weights_sender *sender;
    tdm_actor *pupil;
    uint64_t version;
    tdm_ref *ref;
    tdm_status status;

    (void)state;
    TRY(tdm_actor_create(runtime, "pupil", &options, &pupil, ""));
    TRY(tdm_actor_call(pupil, "open", &ref, "suu", "born-again", (uint64_t)0, (uint64_t)0));
    TRY(scheme_end(ref, NULL));
    sender = connect_to("born-again", pupil);
    one_node_kill_actor(pupil);
    do { /* Wait until its callers know that it was restarted. */
        TRY(tdm_actor_call(pupil, "open", &ref, "suu", "born-again", (uint64_t)0, (uint64_t)0));
        status = scheme_end(ref, NULL);
    } while (status == TDM_E_ACTOR_RESTARTING || status == TDM_E_ACTOR_DIED ||
             status == TDM_E_EXISTS);
    TRY(status);
    /* The restarted receiver has not joined yet. */
    assert_int_equal(tdm_weights_send(sender, NULL), TDM_E_NOT_FOUND);
    ref = scheme_call(pupil, "connect", "born-again");
    TRY(tdm_weights_sender_connect(sender));
    TRY(scheme_end(ref, NULL));
    ref = scheme_receive(pupil, "born-again", SOON_MS);
    TRY(tdm_weights_send(sender, &version));
    TRY(scheme_end(ref, NULL));
    assert_true(version == 3);
    TRY(scheme_check(pupil, "born-again", 1, 3));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupil);
}

/* ---- the background ------------------------------------------------------------------ */

static void a_background_receiver_needs_no_calls(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "background", PUPIL_BACKGROUND);
    tdm_weights_sender *sender = connect_to("background", pupil);
    uint64_t version;

    (void)state;
    send_seed(sender, 2);
    send_seed(sender, 3);
    TRY(scheme_check(pupil, "background", 3, 3));
    TRY(scheme_end(scheme_receive(pupil, "background", 0), &version));
    assert_true(version == 3); /* The newest version is returned once. */
    assert_int_equal(scheme_end(scheme_receive(pupil, "background", 20), NULL), TDM_E_TIMEOUT);
    tdm_weights_sender_shutdown(sender);
    assert_int_equal(scheme_end(scheme_receive(pupil, "background", LONG_MS), NULL), TDM_E_END);
    tdm_actor_destroy(pupil);
}

static void a_background_receiver_can_be_shut_down_while_it_waits(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "waiting", PUPIL_BACKGROUND);
    tdm_weights_sender *sender = connect_to("waiting", pupil);

    (void)state;
    TRY(scheme_end(scheme_call(pupil, "close", "waiting"), NULL));
    assert_int_equal(tdm_weights_send(sender, NULL), TDM_E_NOT_FOUND);
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupil);
}

/* Reads how often the receiver's callback ran, and for which version last. */
static void read_told(tdm_actor *pupil, const char *name, uint64_t *count_out, uint64_t *last_out)
{
    tdm_ref *ref = scheme_call(pupil, "told", name);

    TRY(tdm_get(ref, SOON_MS, "uu", count_out, last_out));
    tdm_ref_release(ref);
}

static void the_callback_runs_once_for_each_version(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "told", PUPIL_BACKGROUND);
    tdm_weights_sender *sender = connect_to("told", pupil);
    int64_t deadline_ms = tdm__deadline_after(SOON_MS);
    uint64_t count;
    uint64_t last;

    (void)state;
    send_seed(sender, 2);
    send_seed(sender, 3);
    do { /* A version is served before the callback runs. */
        read_told(pupil, "told", &count, &last);
    } while (last < 3 && tdm__deadline_remaining_ms(deadline_ms) > 0);
    assert_true(last == 3);
    assert_true(count == 3); /* Connecting brought version 1. */
    tdm_weights_sender_shutdown(sender);
    TRY(scheme_end(scheme_receive(pupil, "told", LONG_MS), NULL)); /* The newest version. */
    assert_int_equal(scheme_end(scheme_receive(pupil, "told", LONG_MS), NULL), TDM_E_END);
    read_told(pupil, "told", &count, &last);
    assert_true(count == 3);
    tdm_actor_destroy(pupil);
}

/* ---- some of the tensors, parts of them ---------------------------------------------- */

static void a_receiver_takes_the_tensors_it_asks_for_and_parts_of_them(void **state)
{
    static const uint64_t flags[] = {PUPIL_PARTIAL, PUPIL_PARTIAL | PUPIL_KEEPS};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char id[32];
        tdm_actor *pupil;
        tdm_weights_sender *sender;
        tdm_ref *ref;

        (void)snprintf(id, sizeof(id), "parts.%zu", i);
        TRY(tdm_actor_create(runtime, "pupil", NULL, &pupil, ""));
        TRY(tdm_actor_call(pupil, "open", &ref, "suu", id, flags[i], (uint64_t)3));
        TRY(scheme_end(ref, NULL));
        sender = connect_to(id, pupil);
        TRY(scheme_check(pupil, id, 1, 1));
        tdm_weights_sender_shutdown(sender);
        tdm_actor_destroy(pupil);
    }
}

static void parts_that_do_not_divide_a_tensor_are_refused(void **state)
{
    tdm_actor *pupil;
    tdm_ref *ref;

    (void)state;
    TRY(tdm_actor_create(runtime, "pupil", NULL, &pupil, ""));
    TRY(tdm_actor_call(pupil, "open", &ref, "suu", "odd", (uint64_t)0, (uint64_t)5));
    assert_int_equal(scheme_end(ref, NULL), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "head"));
    tdm_actor_destroy(pupil);
}

/* ---- several models ------------------------------------------------------------------ */

static void two_models_in_one_actor_do_not_mix(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "actor-critic.a", 0);
    tdm_weights_sender *first;
    tdm_weights_sender *second;
    tdm_ref *ref;

    (void)state;
    TRY(tdm_actor_call(pupil, "open", &ref, "suu", "actor-critic.b", (uint64_t)PUPIL_KEEPS,
                       (uint64_t)0));
    TRY(scheme_end(ref, NULL));
    TRY(tdm_actor_call(pupil, "open", &ref, "suu", "actor-critic.a", (uint64_t)0, (uint64_t)0));
    assert_int_equal(scheme_end(ref, NULL), TDM_E_EXISTS);
    first = connect_to("actor-critic.a", pupil);
    second = connect_to("actor-critic.b", pupil);
    scheme_model_fill(&model, 5);
    TRY(tdm_weights_send_async(first)); /* Both sends are in progress. */
    ref = scheme_receive(pupil, "actor-critic.b", SOON_MS);
    TRY(tdm_weights_send(second, NULL));
    TRY(scheme_end(ref, NULL));
    TRY(scheme_check(pupil, "actor-critic.b", 5, 2));
    TRY(scheme_check(pupil, "actor-critic.a", 1, 1)); /* No receiver has received this model yet. */
    TRY(scheme_end(scheme_receive(pupil, "actor-critic.a", SOON_MS), NULL));
    TRY(tdm_weights_wait(first, SOON_MS, NULL));
    TRY(scheme_check(pupil, "actor-critic.a", 5, 2));
    tdm_weights_sender_shutdown(first);
    tdm_weights_sender_shutdown(second);
    tdm_actor_destroy(pupil);
}

/* ---- misuse -------------------------------------------------------------------------- */

static void a_driver_has_no_receivers(void **state)
{
    const struct tdm_weights_receiver_options options = {
        .model = "driver", .tensors = model.tensors, .tensors_count = SCHEME_TENSORS};
    tdm_weights_receiver *receiver = NULL;

    (void)state;
    assert_int_equal(tdm_weights_receiver_create(runtime, &options, &receiver), TDM_E_STATE);
    assert_null(receiver);
    tdm_weights_receiver_shutdown(NULL);
}

static void nothing_works_before_connect(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "before", 0);

    (void)state;
    assert_int_equal(scheme_end(scheme_receive(pupil, "before", 0), NULL), TDM_E_STATE);
    assert_int_equal(scheme_check(pupil, "before", 1, 1), TDM_E_STATE);
    tdm_actor_destroy(pupil);
}

static void a_tensor_that_the_sender_lacks_is_named(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "lacking", 0);
    struct tdm_weights_sender_options options = {.model = "lacking",
                                                 .scheme = TDM_WEIGHTS_SHARED,
                                                 .tensors = model.tensors,
                                                 .tensors_count = SCHEME_TENSORS - 1,
                                                 .timeout_ms = 500};
    tdm_weights_sender *sender;
    tdm_ref *ref = scheme_call(pupil, "connect", "lacking");

    (void)state;
    TRY(tdm_weights_sender_create(runtime, &options, &sender));
    assert_int_equal(tdm_weights_sender_connect(sender), TDM_E_TIMEOUT);
    assert_int_equal(scheme_end(ref, NULL), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "tensor head"));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupil);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receive_returns_as_soon_as_something_has_come),
        cmocka_unit_test(who_only_looks_finds_what_is_there),
        cmocka_unit_test(a_sender_that_shut_down_is_the_end),
        cmocka_unit_test(a_receiver_may_come_back_after_a_shutdown),
        cmocka_unit_test(a_receiver_of_a_restarted_actor_is_another_one),
        cmocka_unit_test(a_background_receiver_needs_no_calls),
        cmocka_unit_test(a_background_receiver_can_be_shut_down_while_it_waits),
        cmocka_unit_test(the_callback_runs_once_for_each_version),
        cmocka_unit_test(a_receiver_takes_the_tensors_it_asks_for_and_parts_of_them),
        cmocka_unit_test(parts_that_do_not_divide_a_tensor_are_refused),
        cmocka_unit_test(two_models_in_one_actor_do_not_mix),
        cmocka_unit_test(a_driver_has_no_receivers),
        cmocka_unit_test(nothing_works_before_connect),
        cmocka_unit_test(a_tensor_that_the_sender_lacks_is_named),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    scheme_model_init(&model);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    scheme_model_fini(&model);
    tdm_runtime_stop(runtime);
    return failed;
}
