/* scheme_sender_test.c - a sender's life: what it refuses, what it waits for, and relays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/sender.h"

#include "runtime/clock.h"
#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

/* A collective group waits until its deadline. */
enum { SHORT_MS = 400, GROUP_MS = 2000, SOON_MS = 10000 };

static tdm_runtime *runtime;
static struct scheme_model model;

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

static struct tdm_weights_sender_options options_of(const char *id)
{
    return (struct tdm_weights_sender_options){.model = id,
                                               .scheme = TDM_WEIGHTS_SHARED,
                                               .tensors = model.tensors,
                                               .tensors_count = SCHEME_TENSORS,
                                               .timeout_ms = SHORT_MS};
}

static void assert_refused(const struct tdm_weights_sender_options *options, const char *word)
{
    tdm_weights_sender *sender = NULL;

    assert_int_not_equal(tdm_weights_sender_create(runtime, options, &sender), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), word));
    assert_null(sender);
}

static void options_that_make_no_sense_are_refused(void **state)
{
    struct tdm_weights_tensor tensors[SCHEME_TENSORS];
    struct tdm_weights_sender_options options = options_of("odd");

    (void)state;
    options.model = "a/b";
    assert_refused(&options, "a/b");
    options.model = NULL;
    assert_refused(&options, "model");
    options.model = "this-id-has-more-characters-than-an-id-may-have.";
    assert_refused(&options, "47");
    options = options_of("odd");
    options.scheme = (enum tdm_weights_scheme)99;
    assert_refused(&options, "99");
    options = options_of("odd");
    options.scheme = TDM_WEIGHTS_MODULE;
    assert_refused(&options, "0 modules");
    options = options_of("odd");
    options.tensors_count = 0;
    assert_refused(&options, "tensors");
    options = options_of("odd");
    options.receivers_count = TDM_WEIGHTS_RECEIVERS_MAX + 1;
    assert_refused(&options, "257");
    memcpy(tensors, model.tensors, sizeof(tensors));
    options = options_of("odd");
    options.tensors = tensors;
    tensors[1].address = NULL;
    assert_refused(&options, "norm");
    tensors[1].address = model.tensors[1].address;
    tensors[2].shards_count = 2;
    assert_refused(&options, "scale");
    tensors[2] = tensors[0];
    assert_refused(&options, "embed");
}

static void missing_receivers_are_counted(void **state)
{
    const struct tdm_weights_sender_options options = options_of("alone");
    tdm_weights_sender *sender;
    int64_t begun_ms = tdm__clock_ms();

    (void)state;
    TRY(tdm_weights_sender_create(runtime, &options, &sender));
    assert_int_equal(tdm_weights_send(sender, NULL), TDM_E_STATE);
    assert_int_equal(tdm_weights_sender_connect(sender), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "0 of 1 receivers"));
    assert_true(tdm__clock_ms() - begun_ms >= SHORT_MS);
    assert_int_equal(tdm_weights_send(sender, NULL), TDM_E_NOT_FOUND);
    tdm_weights_sender_shutdown(sender);
    tdm_weights_sender_shutdown(NULL);
}

static void model_has_one_sender_at_a_time(void **state)
{
    const struct tdm_weights_sender_options options = options_of("only");
    tdm_weights_sender *first;
    tdm_weights_sender *second;

    (void)state;
    TRY(tdm_weights_sender_create(runtime, &options, &first));
    TRY(tdm_weights_sender_create(runtime, &options, &second));
    assert_int_equal(tdm_weights_sender_connect(first), TDM_E_TIMEOUT);
    assert_int_equal(tdm_weights_sender_connect(second), TDM_E_EXISTS);
    tdm_weights_sender_shutdown(first);
    /* The second sender can create its mailbox now. */
    assert_int_equal(tdm_weights_sender_connect(second), TDM_E_TIMEOUT);
    tdm_weights_sender_shutdown(second);
}

/* ---- a receiver that does not come --------------------------------------------------- */

static tdm_weights_sender *connect_two(const char *id, enum tdm_weights_scheme scheme,
                                       tdm_actor *pupils[2])
{
    struct tdm_weights_sender_options options = options_of(id);
    tdm_weights_sender *sender;
    tdm_ref *refs[2];

    scheme_model_fill(&model, 1);
    options.scheme = scheme;
    options.receivers_count = 2;
    options.timeout_ms = scheme == TDM_WEIGHTS_DISTRIBUTED ? GROUP_MS : SOON_MS;
    TRY(tdm_weights_sender_create(runtime, &options, &sender));
    for (int i = 0; i < 2; i++) {
        pupils[i] = scheme_pupil(runtime, id, 0);
        refs[i] = scheme_call(pupils[i], "connect", id);
    }
    TRY(tdm_weights_sender_connect(sender));
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
    }
    sender->timeout_ms = SHORT_MS;
    return sender;
}

static void silent_receiver_is_named_and_the_others_keep_what_they_have(void **state)
{
    static const enum tdm_weights_scheme schemes[] = {TDM_WEIGHTS_SHARED, TDM_WEIGHTS_DISTRIBUTED};
    static const char *const ids[] = {"silent.0", "silent.1"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        tdm_actor *pupils[2];
        tdm_weights_sender *sender = connect_two(ids[i], schemes[i], pupils);
        tdm_ref *ref = scheme_receive(pupils[0], ids[i], SOON_MS);
        struct tdm_actor_info info;
        uint64_t version;

        scheme_model_fill(&model, 2);
        assert_int_equal(tdm_weights_send(sender, &version), TDM_E_TIMEOUT);
        tdm_actor_describe(pupils[1], &info);
        if (schemes[i] == TDM_WEIGHTS_SHARED) { /* The error of a collective group names a rank. */
            assert_non_null(strstr(tdm_error_detail(), info.id));
        }
        assert_int_not_equal(scheme_end(ref, NULL), TDM_OK);
        TRY(scheme_check(pupils[0], ids[i], 1, 1));
        sender->timeout_ms = SOON_MS;
        /* The receiver is fenced, so the next send proceeds without it. */
        TRY(tdm_actor_kill(pupils[1], SOON_MS));
        ref = scheme_receive(pupils[0], ids[i], SOON_MS);
        TRY(tdm_weights_send(sender, &version));
        TRY(scheme_end(ref, NULL));
        TRY(scheme_check(pupils[0], ids[i], 2, version));
        tdm_weights_sender_shutdown(sender);
        tdm_actor_destroy(pupils[0]);
        tdm_actor_destroy(pupils[1]);
    }
}

static void silent_receiver_that_comes_late_gets_the_next_version(void **state)
{
    tdm_actor *pupils[2];
    tdm_weights_sender *sender = connect_two("late", TDM_WEIGHTS_SHARED, pupils);
    tdm_ref *refs[2];
    uint64_t version;

    (void)state;
    refs[0] = scheme_receive(pupils[0], "late", SOON_MS);
    scheme_model_fill(&model, 2);
    assert_int_equal(tdm_weights_send(sender, &version), TDM_E_TIMEOUT);
    assert_int_equal(scheme_end(refs[0], NULL), TDM_E_ABORTED);
    sender->timeout_ms = SOON_MS;
    for (int i = 0; i < 2; i++) {
        refs[i] = scheme_receive(pupils[i], "late", SOON_MS);
    }
    TRY(tdm_weights_send(sender, &version));
    assert_true(version == 3); /* The number of the failed version is not used again. */
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
        TRY(scheme_check(pupils[i], "late", 2, 3));
        tdm_actor_destroy(pupils[i]);
    }
    tdm_weights_sender_shutdown(sender);
}

static void update_that_was_never_begun_is_passed_over(void **state)
{
    tdm_actor *pupils[2];
    tdm_weights_sender *sender = connect_two("undecided", TDM_WEIGHTS_SHARED, pupils);
    tdm_ref *refs[2];
    uint64_t version;

    (void)state;
    sender->timeout_ms = SOON_MS;
    for (int i = 0; i < 2; i++) {
        refs[i] = scheme_receive(pupils[i], "undecided", SOON_MS);
    }
    /* This is the state in which BEGIN did not reach the store and no reply came. */
    sender->undecided = true;
    sender->epoch += 1;
    TRY(tdm_weights_send(sender, &version));
    assert_true(version == 2);
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
        tdm_actor_destroy(pupils[i]);
    }
    tdm_weights_sender_shutdown(sender);
}

static void attached_bytes_that_cannot_be_sent_are_refused(void **state)
{
    const struct tdm_weights_sender_options options = options_of("attaching");
    tdm_weights_sender *sender;

    (void)state;
    TRY(tdm_weights_sender_create(runtime, &options, &sender));
    TRY(tdm_weights_attach(sender, (struct tdm_bytes){"step 5", 6}));
    assert_int_equal(
        tdm_weights_attach(sender, (struct tdm_bytes){"", TDM_WEIGHTS_ATTACHED_BYTES_MAX + 1}),
        TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "4194305 bytes are attached"));
    assert_int_equal(sender->attached.size_bytes, 6);
    TRY(tdm_weights_send_async(sender)); /* Fails, because nothing is connected. */
    assert_int_equal(tdm_weights_attach(sender, (struct tdm_bytes){"step 6", 6}), TDM_E_STATE);
    assert_int_equal(tdm_weights_wait(sender, SOON_MS, NULL), TDM_E_STATE);
    tdm_weights_sender_shutdown(sender);
}

/* ---- cascade ------------------------------------------------------------------------- */

static void relay_sends_on_what_it_got_under_the_same_number(void **state)
{
    tdm_actor *relays[2];
    tdm_weights_sender *sender = connect_two("top", TDM_WEIGHTS_SHARED, relays);
    tdm_actor *leaf = scheme_pupil(runtime, "below", PUPIL_KEEPS);
    tdm_ref *refs[2];
    tdm_ref *ref;
    uint64_t version;

    (void)state;
    sender->timeout_ms = SOON_MS;
    TRY(tdm_actor_call(relays[0], "relay", &ref, "ssu", "top", "top", (uint64_t)1));
    assert_int_equal(scheme_end(ref, NULL), TDM_E_INVAL); /* The relay needs another model name. */
    TRY(tdm_actor_call(relays[0], "relay", &ref, "ssu", "top", "below", (uint64_t)1));
    TRY(scheme_end(ref, NULL));
    for (int i = 0; i < 2; i++) {
        refs[i] = scheme_receive(relays[i], "top", SOON_MS);
    }
    scheme_model_fill(&model, 2);
    TRY(tdm_weights_attach(sender, (struct tdm_bytes){"two", 3}));
    TRY(tdm_weights_send(sender, &version));
    TRY(scheme_end(refs[0], NULL));
    TRY(scheme_end(refs[1], NULL));
    ref = scheme_call(leaf, "connect", "below");
    TRY(scheme_end(scheme_call(relays[0], "send", "top"), NULL));
    TRY(scheme_end(ref, NULL));
    /* The leaf has the first version that arrived and number 2. */
    TRY(scheme_check(leaf, "below", 2, 2));
    TRY(scheme_check_attached(leaf, "below", (struct tdm_bytes){"two", 3}));
    for (int i = 0; i < 2; i++) {
        refs[i] = scheme_receive(relays[i], "top", SOON_MS);
    }
    scheme_model_fill(&model, 3);
    TRY(tdm_weights_attach(sender, (struct tdm_bytes){"three", 5}));
    TRY(tdm_weights_send(sender, &version));
    TRY(scheme_end(refs[0], NULL));
    TRY(scheme_end(refs[1], NULL));
    TRY(scheme_check(leaf, "below", 2, 2));
    TRY(scheme_check_attached(leaf, "below", (struct tdm_bytes){"two", 3}));
    ref = scheme_receive(leaf, "below", SOON_MS);
    TRY(scheme_end(scheme_call(relays[0], "send", "top"), &version));
    assert_true(version == 3);
    TRY(scheme_end(ref, NULL));
    TRY(scheme_check(leaf, "below", 3, 3));
    TRY(scheme_check_attached(leaf, "below", (struct tdm_bytes){"three", 5}));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(leaf);
    tdm_actor_destroy(relays[0]);
    tdm_actor_destroy(relays[1]);
}

static void slow_receiver_behind_a_relay_does_not_block_the_sender(void **state)
{
    tdm_actor *relay = scheme_pupil(runtime, "above", PUPIL_BACKGROUND);
    tdm_actor *leaf = scheme_pupil(runtime, "slow", 0);
    tdm_weights_sender *sender = scheme_sender(runtime, "above", TDM_WEIGHTS_RPC, &model, 1);
    tdm_ref *ref = scheme_call(relay, "connect", "above");
    uint64_t version;
    uint8_t done = 0;

    (void)state;
    scheme_model_fill(&model, 1);
    TRY(tdm_weights_sender_connect(sender));
    TRY(scheme_end(ref, NULL));
    TRY(tdm_actor_call(relay, "relay", &ref, "ssu", "above", "slow", (uint64_t)1));
    TRY(scheme_end(ref, NULL));
    ref = scheme_call(leaf, "connect", "slow");
    TRY(scheme_end(scheme_call(relay, "send", "above"), NULL));
    TRY(scheme_end(ref, NULL));
    ref = scheme_call(relay, "send", "above"); /* The leaf does not take part in this model. */
    assert_int_equal(tdm_wait(&ref, 1, 1, SHORT_MS, &done), TDM_E_TIMEOUT);
    scheme_model_fill(&model, 2);
    TRY(tdm_weights_send(sender, &version));
    assert_int_equal(tdm_wait(&ref, 1, 1, 0, &done), TDM_E_TIMEOUT);
    one_node_kill_actor(leaf);
    assert_int_equal(scheme_end(ref, NULL), TDM_E_ACTOR_DIED);
    TRY(scheme_check(relay, "above", 2, version));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(relay);
    tdm_actor_destroy(leaf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(missing_receivers_are_counted),
        cmocka_unit_test(model_has_one_sender_at_a_time),
        cmocka_unit_test(silent_receiver_is_named_and_the_others_keep_what_they_have),
        cmocka_unit_test(silent_receiver_that_comes_late_gets_the_next_version),
        cmocka_unit_test(update_that_was_never_begun_is_passed_over),
        cmocka_unit_test(attached_bytes_that_cannot_be_sent_are_refused),
        cmocka_unit_test(relay_sends_on_what_it_got_under_the_same_number),
        cmocka_unit_test(slow_receiver_behind_a_relay_does_not_block_the_sender),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    scheme_model_init(&model);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    scheme_model_fini(&model);
    tdm_runtime_stop(runtime);
    return failed;
}
