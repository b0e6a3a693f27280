/* scheme_read_gate_test.c - a version goes live when the reads of the one before have ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/read_gate.h"

#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { SHORT_MS = 800, SOON_MS = 10000 };

static tdm_runtime *runtime;
static struct scheme_model model;

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

/* ---- an actor with a long read ------------------------------------------------------- */

struct reader {
    tdm_weights_receiver *receiver;
};

static tdm_status reader_connect(tdm_call *call, void *self)
{
    static const struct tdm_weights_tensor norm = {
        .info = {.name = "norm", .dtype = TDM_BF16, .dims_count = 1, .shape = {33}}};
    struct tdm_weights_receiver_options options = {
        .tensors = &norm, .tensors_count = 1, .background = 1};
    struct reader *reader = self;

    TDM_TRY(tdm_call_unpack(call, "s", &options.model));
    TDM_TRY(tdm_weights_receiver_create(tdm_runtime_current(), &options, &reader->receiver));
    return tdm_weights_receiver_connect(reader->receiver);
}

static tdm_status reader_begin(tdm_call *call, void *self)
{
    struct reader *reader = self;
    uint64_t version;

    TDM_TRY(tdm_weights_read_begin(reader->receiver, &version));
    return tdm_call_reply(call, "u", version);
}

static tdm_status reader_end(tdm_call *call, void *self)
{
    struct reader *reader = self;

    (void)call;
    tdm_weights_read_end(reader->receiver);
    return TDM_OK;
}

static void reader_destruct(void *self)
{
    struct reader *reader = self;

    tdm_weights_receiver_shutdown(reader->receiver);
}

TDM_ACTOR_CLASS(reader, .state_bytes = sizeof(struct reader), .destruct = reader_destruct,
                .methods = {
                    {"connect", reader_connect}, {"begin", reader_begin}, {"end", reader_end}});

static tdm_weights_sender *sender_of(const char *id)
{
    scheme_model_fill(&model, 1);
    return scheme_sender(runtime, id, TDM_WEIGHTS_ACTORS, &model, 1);
}

static void version_waits_for_readers_of_the_previous_one(void **state)
{
    tdm_weights_sender *sender = sender_of("reading");
    tdm_actor *reader;
    uint64_t version;
    tdm_ref *ref;

    (void)state;
    TRY(tdm_actor_create(runtime, "reader", NULL, &reader, ""));
    ref = scheme_call(reader, "connect", "reading");
    TRY(tdm_weights_sender_connect(sender));
    TRY(scheme_end(ref, NULL));
    TRY(scheme_end(scheme_call(reader, "begin", ""), &version));
    assert_true(version == 1);
    TRY(tdm_weights_send_async(sender));
    assert_int_equal(tdm_weights_wait(sender, 100, NULL), TDM_E_TIMEOUT);
    TRY(scheme_end(scheme_call(reader, "end", ""), NULL));
    TRY(tdm_weights_wait(sender, SOON_MS, &version));
    TRY(scheme_end(scheme_call(reader, "begin", ""), &version));
    assert_true(version == 2);
    TRY(scheme_end(scheme_call(reader, "end", ""), NULL));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(reader);
}

static void readers_that_never_end_fail_the_version_and_nothing_else(void **state)
{
    const struct tdm_weights_sender_options options = {.model = "endless",
                                                       .scheme = TDM_WEIGHTS_ACTORS,
                                                       .tensors = model.tensors,
                                                       .tensors_count = SCHEME_TENSORS,
                                                       .timeout_ms = SHORT_MS};
    tdm_weights_sender *sender;
    tdm_actor *reader;
    uint64_t version;
    tdm_ref *ref;

    (void)state;
    TRY(tdm_actor_create(runtime, "reader", NULL, &reader, ""));
    TRY(tdm_actor_wait_ready(reader, SOON_MS));
    TRY(tdm_weights_sender_create(runtime, &options, &sender));
    ref = scheme_call(reader, "connect", "endless");
    TRY(tdm_weights_sender_connect(sender));
    TRY(scheme_end(ref, NULL));
    TRY(scheme_end(scheme_call(reader, "begin", ""), NULL));
    assert_int_equal(tdm_weights_send(sender, NULL), TDM_E_TIMEOUT);
    /* The old version can still be read. */
    TRY(scheme_end(scheme_call(reader, "begin", ""), &version));
    assert_true(version == 1);
    TRY(scheme_end(scheme_call(reader, "end", ""), NULL));
    TRY(scheme_end(scheme_call(reader, "end", ""), NULL));
    TRY(tdm_weights_send(sender, &version));
    assert_true(version == 3);
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_waits_for_readers_of_the_previous_one),
        cmocka_unit_test(readers_that_never_end_fail_the_version_and_nothing_else),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    scheme_model_init(&model);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    scheme_model_fini(&model);
    tdm_runtime_stop(runtime);
    return failed;
}
