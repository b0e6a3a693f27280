/* scheme_send_version_test.c - all receivers serve one version, whatever dies at any step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/send_version.h"

#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { SOON_MS = 10000 };

static tdm_runtime *runtime;
static uint32_t worlds_count;

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

/* Creates an actor that kills itself when it passes the failpoint for the count-th time. */
static tdm_actor *doomed_pupil(const char *model, const char *step, int count, char name[64])
{
    char file[128];
    char variable[320];
    struct tdm_actor_options options = {.name = name, .environment = {variable}};
    tdm_actor *pupil;
    tdm_ref *ref;

    (void)snprintf(name, 64, "doomed-%u", worlds_count++);
    (void)snprintf(file, sizeof(file), "/tmp/tandem-scheme-%d-%s", (int)getpid(), name);
    (void)snprintf(variable, sizeof(variable), "TANDEM_FAILPOINT=%s %s %d kill %s", name, step,
                   count, file);
    TRY(tdm_actor_create(runtime, "pupil", &options, &pupil, ""));
    TRY(tdm_actor_call(pupil, "open", &ref, "suu", model, (uint64_t)PUPIL_KEEPS, (uint64_t)0));
    TRY(scheme_end(ref, NULL));
    return pupil;
}

static void remove_mark(const char *name)
{
    char file[128];

    (void)snprintf(file, sizeof(file), "/tmp/tandem-scheme-%d-%s", (int)getpid(), name);
    assert_int_equal(unlink(file), 0); /* The file exists if the failpoint was passed. */
}

/* ---- a receiver dies ----------------------------------------------------------------- */

/* Sends the second version to one receiver that survives and to one that does not. */
static void send_to_doomed(enum tdm_weights_scheme scheme, const char *step, int count)
{
    struct scheme_model model;
    struct tdm_actor_info info;
    char name[64];
    char id[64];
    tdm_actor *pupils[2];
    tdm_ref *refs[2];
    tdm_weights_sender *sender;
    tdm_status status;
    tdm_status received;
    uint64_t version = 0;

    (void)snprintf(id, sizeof(id), "step.%u", worlds_count);
    scheme_model_init(&model);
    scheme_model_fill(&model, 1);
    pupils[0] = scheme_pupil(runtime, id, 0);
    pupils[1] = doomed_pupil(id, step, count, name);
    sender = scheme_sender(runtime, id, scheme, &model, 2);
    for (int i = 0; i < 2; i++) {
        refs[i] = scheme_call(pupils[i], "connect", id);
    }
    TRY(tdm_weights_sender_connect(sender));
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
        refs[i] = scheme_receive(pupils[i], id, SOON_MS);
    }
    scheme_model_fill(&model, 2);
    tdm_actor_describe(pupils[1], &info);
    status = tdm_weights_send(sender, &version);
    if (status != TDM_OK) {
        assert_int_equal(status, TDM_E_ACTOR_DIED);
        assert_non_null(strstr(tdm_error_detail(), info.id));
    }
    assert_int_not_equal(scheme_end(refs[1], NULL), TDM_OK);
    received = scheme_end(refs[0], NULL);
    assert_int_equal(received, status == TDM_OK ? TDM_OK : TDM_E_ABORTED);
    TRY(scheme_check(pupils[0], id, status == TDM_OK ? 2 : 1, status == TDM_OK ? version : 1));
    refs[0] = scheme_receive(pupils[0], id, SOON_MS);
    scheme_model_fill(&model, 3);
    TRY(tdm_weights_send(sender, &version));
    TRY(scheme_end(refs[0], NULL));
    assert_int_equal(tdm_weights_receivers_count(sender), 1);
    TRY(scheme_check(pupils[0], id, 3, version));
    remove_mark(name);
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupils[0]);
    tdm_actor_destroy(pupils[1]);
    scheme_model_fini(&model);
}

/* The first version passes each failpoint once, and those of buckets twice. */
static void receiver_that_dies_at_any_step_is_named_and_left_out(void **state)
{
    static const enum tdm_weights_scheme schemes[] = {TDM_WEIGHTS_SHARED, TDM_WEIGHTS_PROCESSES,
                                                      TDM_WEIGHTS_DISTRIBUTED};

    (void)state;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        send_to_doomed(schemes[i], "weights.bucket_received", 3);
        send_to_doomed(schemes[i], "weights.vote", 2);
        send_to_doomed(schemes[i], "weights.voted", 2);
        send_to_doomed(schemes[i], "weights.flip", 2);
    }
}

/* ---- the sender dies ----------------------------------------------------------------- */

/* The sender that can be killed is the relay of a model. */
static void send_from_doomed(const char *step, int count)
{
    struct scheme_model model;
    char name[64];
    char top[64];
    char below[64];
    tdm_actor *relay;
    tdm_actor *pupils[2];
    tdm_ref *refs[2];
    tdm_ref *ref;
    tdm_weights_sender *sender;
    tdm_status got[2];
    int committed;

    (void)snprintf(top, sizeof(top), "top.%u", worlds_count);
    (void)snprintf(below, sizeof(below), "below.%u", worlds_count);
    scheme_model_init(&model);
    scheme_model_fill(&model, 1);
    relay = doomed_pupil(top, step, count, name);
    sender = scheme_sender(runtime, top, TDM_WEIGHTS_SHARED, &model, 1);
    ref = scheme_call(relay, "connect", top);
    TRY(tdm_weights_sender_connect(sender));
    TRY(scheme_end(ref, NULL));
    TRY(tdm_actor_call(relay, "relay", &ref, "ssu", top, below, (uint64_t)2));
    TRY(scheme_end(ref, NULL));
    for (int i = 0; i < 2; i++) {
        pupils[i] = scheme_pupil(runtime, below, 0);
        refs[i] = scheme_call(pupils[i], "connect", below);
    }
    TRY(scheme_end(scheme_call(relay, "send", top), NULL));
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
        refs[i] = scheme_receive(pupils[i], below, SOON_MS);
    }
    assert_int_equal(scheme_end(scheme_call(relay, "send", top), NULL), TDM_E_ACTOR_DIED);
    for (int i = 0; i < 2; i++) {
        got[i] = scheme_end(refs[i], NULL);
    }
    committed = got[0] == TDM_OK;
    /* Either both receivers have the version or neither has it. */
    assert_int_equal(got[1] == TDM_OK, committed);
    for (int i = 0; i < 2; i++) {
        if (got[i] != TDM_OK && got[i] != TDM_E_ABORTED && got[i] != TDM_E_END) {
            fail_msg("%s: %s", step, tdm_strerror(got[i]));
        }
        TRY(scheme_check(pupils[i], below, 1, 1)); /* The relay had no other version. */
        assert_int_equal(scheme_end(scheme_receive(pupils[i], below, SOON_MS), NULL), TDM_E_END);
        tdm_actor_destroy(pupils[i]);
    }
    remove_mark(name);
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(relay);
    scheme_model_fini(&model);
}

static void sender_that_dies_at_any_step_leaves_one_version(void **state)
{
    (void)state;
    send_from_doomed("weights.bucket_sent", 2);
    send_from_doomed("weights.decide", 2);
    send_from_doomed("weights.decided", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receiver_that_dies_at_any_step_is_named_and_left_out),
        cmocka_unit_test(sender_that_dies_at_any_step_leaves_one_version),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
