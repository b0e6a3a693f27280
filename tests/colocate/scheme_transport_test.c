/* scheme_transport_test.c - the same properties hold for every scheme of the table. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/transport.h"

#include "colocate/scheme/mailbox.h"
#include "colocate/scheme/sender.h"
#include "runtime/clock.h"
#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { PUPILS = 2, SOON_MS = 10000 };

static tdm_runtime *runtime;
static uint32_t models_count;

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

/* A sender in this process and two receivers. One receiver has its own memory; the other uses
 * Tandem's. */
struct fixture {
    enum tdm_weights_scheme scheme;
    char name[64];
    struct scheme_model model;
    tdm_weights_sender *sender;
    tdm_actor *pupils[PUPILS];
    bool moves; /* True if the scheme moves bytes. */
    bool asks;  /* True if receivers receive by themselves. */
};

static void make_sender(struct fixture *f)
{
    struct tdm_weights_sender_options options = {.model = f->name,
                                                 .scheme = f->scheme,
                                                 .tensors = f->model.tensors,
                                                 .tensors_count = SCHEME_TENSORS,
                                                 .receivers_count = PUPILS,
                                                 .timeout_ms = SOON_MS,
                                                 .bucket_bytes = 8192};

    if (!f->asks) {
        options.modules = f->pupils;
        options.modules_count = PUPILS;
    }
    TRY(tdm_weights_sender_create(runtime, &options, &f->sender));
}

static void begin_all(struct fixture *f, tdm_ref **refs)
{
    for (uint32_t i = 0; i < PUPILS; i++) {
        refs[i] = f->asks ? scheme_receive(f->pupils[i], f->name, SOON_MS) : NULL;
    }
}

static void end_all(struct fixture *f, tdm_ref **refs, uint64_t version)
{
    for (uint32_t i = 0; f->asks && i < PUPILS; i++) {
        uint64_t got;

        TRY(scheme_end(refs[i], &got));
        assert_true(got == version);
    }
}

static void assert_all_serve(struct fixture *f, uint64_t seed, uint64_t version)
{
    for (uint32_t i = 0; f->moves && i < PUPILS; i++) {
        TRY(scheme_check(f->pupils[i], f->name, seed, version));
    }
}

static void fixture_open(struct fixture *f, enum tdm_weights_scheme scheme)
{
    tdm_ref *refs[PUPILS];

    *f = (struct fixture){.scheme = scheme,
                          .moves = scheme != TDM_WEIGHTS_NONE,
                          .asks = scheme != TDM_WEIGHTS_MODULE};
    (void)snprintf(f->name, sizeof(f->name), "%s.%u", tdm_weights_scheme_name(scheme),
                   models_count++);
    scheme_model_init(&f->model);
    scheme_model_fill(&f->model, 1);
    for (uint32_t i = 0; i < PUPILS; i++) {
        f->pupils[i] = scheme_pupil(runtime, f->name, i == 0 ? 0 : PUPIL_KEEPS);
    }
    make_sender(f);
    for (uint32_t i = 0; f->asks && i < PUPILS; i++) {
        refs[i] = scheme_call(f->pupils[i], "connect", f->name);
    }
    TRY(tdm_weights_sender_connect(f->sender));
    for (uint32_t i = 0; f->asks && i < PUPILS; i++) {
        TRY(scheme_end(refs[i], NULL));
    }
    assert_all_serve(f, 1, 1);
}

static void fixture_close(struct fixture *f)
{
    tdm_weights_sender_shutdown(f->sender);
    for (uint32_t i = 0; i < PUPILS; i++) {
        tdm_actor_destroy(f->pupils[i]);
    }
    scheme_model_fini(&f->model);
}

/* ---- the properties ------------------------------------------------------------------ */

static void versions_arrive_whole_and_in_order(enum tdm_weights_scheme scheme)
{
    struct fixture f;
    tdm_ref *refs[PUPILS];

    fixture_open(&f, scheme);
    for (uint64_t version = 2; version <= 4; version++) {
        uint64_t sent = 0;

        scheme_model_fill(&f.model, version);
        begin_all(&f, refs);
        TRY(tdm_weights_send(f.sender, &sent));
        assert_true(sent == version);
        end_all(&f, refs, version);
        assert_all_serve(&f, version, version);
    }
    assert_int_equal(tdm_weights_receivers_count(f.sender), PUPILS);
    fixture_close(&f);
}

static void nothing_sent_is_a_timeout(enum tdm_weights_scheme scheme)
{
    struct fixture f;

    fixture_open(&f, scheme);
    assert_int_equal(scheme_end(scheme_receive(f.pupils[0], f.name, 0), NULL), TDM_E_TIMEOUT);
    assert_int_equal(scheme_end(scheme_receive(f.pupils[1], f.name, 30), NULL), TDM_E_TIMEOUT);
    assert_all_serve(&f, 1, 1);
    fixture_close(&f);
}

/* Checks that a send succeeds to the first receiver alone, and that it serves what was sent. */
static void send_to_the_first(struct fixture *f, uint64_t seed)
{
    tdm_ref *ref = f->asks ? scheme_receive(f->pupils[0], f->name, SOON_MS) : NULL;
    uint64_t version;

    scheme_model_fill(&f->model, seed);
    TRY(tdm_weights_send(f->sender, &version));
    if (f->asks) {
        TRY(scheme_end(ref, NULL));
    }
    assert_int_equal(tdm_weights_receivers_count(f->sender), 1);
    if (f->moves) {
        TRY(scheme_check(f->pupils[0], f->name, seed, version));
    }
}

/* How a call to the dead receiver ends: at once if its death is known, else with its reply. */
static tdm_status call_of_the_dead(const struct fixture *f)
{
    tdm_ref *ref;
    tdm_status status = tdm_actor_call(f->pupils[1], "told", &ref, "s", f->name);

    return status == TDM_OK ? scheme_end(ref, NULL) : status;
}

/* The daemon says why a call has failed, so it knows of the death before the send begins. */
static void receiver_that_is_known_to_be_dead_is_left_out(enum tdm_weights_scheme scheme)
{
    struct fixture f;

    fixture_open(&f, scheme);
    one_node_kill_actor(f.pupils[1]);
    assert_int_equal(call_of_the_dead(&f), TDM_E_ACTOR_DIED);
    send_to_the_first(&f, 7);
    fixture_close(&f);
}

/* Waits until the update of this epoch waits for a receiver that is stopped: until the other one
 * has voted or, where both take part in each broadcast, until the update is offered to them. */
static void await_update(const struct fixture *f, uint64_t epoch)
{
    char key[TDM__UPDATE_KEY_BYTES];
    struct tdm__message_list messages;
    tdm_ref *ref;

    if (f->scheme == TDM_WEIGHTS_DISTRIBUTED) {
        (void)snprintf(key, sizeof(key), "offer/%020llu", (unsigned long long)epoch);
    } else {
        (void)tdm__update_message_key(epoch, "vote/", key);
    }
    TRY(tdm__mailbox_wait_messages(f->sender->mailbox, key, "", 1, &ref));
    TRY(tdm__mailbox_get_messages(ref, SOON_MS, &messages));
    tdm_ref_release(ref);
}

/* Checks that the receiver did not get the version. If the update was aborted before the receiver
 * looked for one, it has waited in vain. */
static void assert_not_received(const struct fixture *f, tdm_ref *ref)
{
    tdm_status status = scheme_end(ref, NULL);

    assert_true(status == TDM_E_ABORTED ||
                (status == TDM_E_TIMEOUT && f->scheme == TDM_WEIGHTS_DISTRIBUTED));
}

/* One receiver is stopped when the update begins. It is a member and does not vote, so the update
 * waits for it until it dies. */
static void receiver_that_dies_in_an_update_is_named_and_left_out(enum tdm_weights_scheme scheme)
{
    struct fixture f;
    struct tdm_actor_info info;
    tdm_ref *ref = NULL;

    fixture_open(&f, scheme);
    tdm_actor_describe(f.pupils[1], &info);
    assert_int_equal(kill((pid_t)info.pid, SIGSTOP), 0);
    scheme_model_fill(&f.model, 6);
    if (f.asks) {
        ref = scheme_receive(f.pupils[0], f.name, SOON_MS);
    }
    TRY(tdm_weights_send_async(f.sender));
    await_update(&f, 2);
    one_node_kill_actor(f.pupils[1]);
    assert_int_equal(tdm_weights_wait(f.sender, SOON_MS, NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), info.id));
    if (f.asks) {
        assert_not_received(&f, ref);
    }
    if (f.moves) {
        TRY(scheme_check(f.pupils[0], f.name, 1, 1)); /* The old version is served on. */
    }
    send_to_the_first(&f, 7);
    fixture_close(&f);
}

static void send_may_be_waited_for_later(enum tdm_weights_scheme scheme)
{
    struct fixture f;
    tdm_ref *refs[PUPILS];
    uint64_t version = 0;

    fixture_open(&f, scheme);
    assert_int_equal(tdm_weights_wait(f.sender, 0, &version), TDM_E_STATE);
    scheme_model_fill(&f.model, 9);
    TRY(tdm_weights_send_async(f.sender));
    assert_int_equal(tdm_weights_send(f.sender, NULL), TDM_E_STATE);
    assert_int_equal(tdm_weights_send_async(f.sender), TDM_E_STATE);
    if (f.asks) {
        assert_int_equal(tdm_weights_wait(f.sender, 0, &version), TDM_E_TIMEOUT);
    }
    begin_all(&f, refs);
    TRY(tdm_weights_wait(f.sender, SOON_MS, &version));
    assert_true(version == 2);
    end_all(&f, refs, 2);
    assert_all_serve(&f, 9, 2);
    fixture_close(&f);
}

/* ---- bytes that are damaged in transit ----------------------------------------------- */

static const struct tdm__weight_transport *honest;
static struct tdm__weight_transport damaging;

/* Flips one bit of the second tensor, "norm", after its checksum was computed. */
static tdm_status give_damaged(const struct tdm__transport_context *way,
                               const struct tdm__outgoing_bucket *parcel)
{
    if (parcel->bucket == 1) {
        ((unsigned char *)parcel->image)[5] ^= 4;
    }
    return honest->send_bucket(way, parcel);
}

/* Checks that the update fails at all receivers. The first one that finds the damage ends the
 * update. A slower one may learn only that it was aborted, or may see no open offer at all and wait
 * for the next one until its timeout. */
static void assert_all_refuse(struct fixture *f, tdm_ref **refs)
{
    uint32_t found_count = 0;

    for (uint32_t i = 0; f->asks && i < PUPILS; i++) {
        tdm_status status = scheme_end(refs[i], NULL);

        if (status != TDM_E_CHECKSUM && status != TDM_E_ABORTED && status != TDM_E_TIMEOUT) {
            fail_msg("receiver %u: %s: %s", i, tdm_strerror(status), tdm_error_detail());
        }
        found_count += status == TDM_E_CHECKSUM;
    }
    assert_true(found_count > 0 || !f->asks);
}

static void damaged_bytes_name_their_tensor(enum tdm_weights_scheme scheme)
{
    struct fixture f;
    tdm_ref *refs[PUPILS];
    uint64_t version;

    fixture_open(&f, scheme);
    honest = f.sender->transport;
    damaging = *honest;
    damaging.send_bucket = give_damaged;
    scheme_model_fill(&f.model, 5);
    if (f.moves) {
        f.sender->transport = &damaging;
        begin_all(&f, refs);
        assert_int_equal(tdm_weights_send(f.sender, &version), TDM_E_CHECKSUM);
        assert_non_null(strstr(tdm_error_detail(), "tensor norm"));
        assert_all_refuse(&f, refs);
        assert_all_serve(&f, 1, 1); /* The receivers serve as if nothing had been sent. */
        f.sender->transport = honest;
    }
    begin_all(&f, refs);
    TRY(tdm_weights_send(f.sender, &version));
    end_all(&f, refs, version);
    assert_all_serve(&f, 5, version);
    fixture_close(&f);
}

/* ---- bytes that are attached to a version -------------------------------------------- */

/* Sends a version with these attached bytes, and checks that each receiver reads them. */
static void assert_attached_arrive(struct fixture *f, struct tdm_bytes bytes)
{
    tdm_ref *refs[PUPILS];
    uint64_t version;

    TRY(tdm_weights_attach(f->sender, bytes));
    begin_all(f, refs);
    TRY(tdm_weights_send(f->sender, &version));
    end_all(f, refs, version);
    for (uint32_t i = 0; i < PUPILS; i++) {
        TRY(scheme_check_attached(f->pupils[i], f->name, bytes));
    }
}

/* Sends a version whose attached bytes do not have the sender's checksum. */
static void assert_damaged_attachment_is_refused(struct fixture *f, struct tdm_bytes served)
{
    tdm_ref *refs[PUPILS];
    uint64_t version;

    TRY(tdm_weights_attach(f->sender, (struct tdm_bytes){"damaged", 7}));
    f->sender->attached.sum ^= 1;
    begin_all(f, refs);
    assert_int_equal(tdm_weights_send(f->sender, &version), TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), "checksum of the 7 attached bytes"));
    assert_all_refuse(f, refs);
    for (uint32_t i = 0; i < PUPILS; i++) {
        TRY(scheme_check_attached(f->pupils[i], f->name, served));
    }
}

static void attached_bytes_arrive_with_their_version(enum tdm_weights_scheme scheme)
{
    /* Bytes of any values, such as one that ends texts and one that begins a pickle. */
    static const char opaque[] = {'\x80', '\x05', '\0', '\xff', 'x'};
    const struct tdm_bytes none = {.size_bytes = 0};
    const struct tdm_bytes small = {opaque, sizeof(opaque)};
    struct tdm_bytes largest = {.size_bytes = TDM_WEIGHTS_ATTACHED_BYTES_MAX};
    struct fixture f;
    void *memory = malloc(largest.size_bytes);

    assert_non_null(memory);
    memset(memory, 7, largest.size_bytes);
    largest.data = memory;
    fixture_open(&f, scheme);
    TRY(scheme_check_attached(f.pupils[0], f.name, none));
    assert_attached_arrive(&f, largest);
    assert_attached_arrive(&f, small);
    assert_damaged_attachment_is_refused(&f, small);
    assert_attached_arrive(&f, none);
    fixture_close(&f);
    free(memory);
}

/* ---- all entries of the table -------------------------------------------------------- */

#define FOR_EVERY_SCHEME(promise)                                                                  \
    static void every_scheme_##promise(void **state)                                               \
    {                                                                                              \
        (void)state;                                                                               \
        for (int scheme = TDM_WEIGHTS_SHARED; scheme <= TDM_WEIGHTS_NONE; scheme++) {              \
            promise((enum tdm_weights_scheme)scheme);                                              \
        }                                                                                          \
    }

FOR_EVERY_SCHEME(versions_arrive_whole_and_in_order)
FOR_EVERY_SCHEME(nothing_sent_is_a_timeout)
FOR_EVERY_SCHEME(receiver_that_is_known_to_be_dead_is_left_out)
FOR_EVERY_SCHEME(receiver_that_dies_in_an_update_is_named_and_left_out)
FOR_EVERY_SCHEME(send_may_be_waited_for_later)
FOR_EVERY_SCHEME(damaged_bytes_name_their_tensor)
FOR_EVERY_SCHEME(attached_bytes_arrive_with_their_version)

static void every_scheme_has_a_name_and_no_other_has_one(void **state)
{
    (void)state;
    for (int scheme = TDM_WEIGHTS_SHARED; scheme <= TDM_WEIGHTS_NONE; scheme++) {
        assert_non_null(tdm_weights_scheme_name((enum tdm_weights_scheme)scheme));
    }
    assert_null(tdm_weights_scheme_name((enum tdm_weights_scheme)0));
    assert_null(tdm__weight_transport_of_scheme((enum tdm_weights_scheme)(TDM_WEIGHTS_NONE + 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scheme_has_a_name_and_no_other_has_one),
        cmocka_unit_test(every_scheme_versions_arrive_whole_and_in_order),
        cmocka_unit_test(every_scheme_nothing_sent_is_a_timeout),
        cmocka_unit_test(every_scheme_receiver_that_is_known_to_be_dead_is_left_out),
        cmocka_unit_test(every_scheme_receiver_that_dies_in_an_update_is_named_and_left_out),
        cmocka_unit_test(every_scheme_send_may_be_waited_for_later),
        cmocka_unit_test(every_scheme_damaged_bytes_name_their_tensor),
        cmocka_unit_test(every_scheme_attached_bytes_arrive_with_their_version),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
