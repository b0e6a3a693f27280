/* owned_refs_test.c - each pin of other processes on a reference is counted once and ends once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/owned_refs.h"
#include "actors/objects/ref_complete.h"
#include "actors/objects/ref_table.h"
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- an object of this process ---------------------------------------------------------- */

/* Packs the reference, so that other processes may request it. Returns its id. */
static struct tdm__id pass_on(tdm_ref *ref)
{
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__reference_write(writer, ref));
    tdm_writer_destroy(writer);
    return ref->shared->id;
}

static tdm_ref *put(struct object_fixture *scene, struct tdm__id *id_out)
{
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    *id_out = pass_on(ref);
    return ref;
}

static tdm_ref *create_incomplete(struct object_fixture *scene, struct tdm__id *id_out)
{
    tdm_ref *ref;

    TRY(tdm__ref_create(scene->runtime, &ref));
    *id_out = pass_on(ref);
    return ref;
}

static void complete(tdm_ref *ref)
{
    tdm_document *document;

    TRY(tdm_document_parse((struct tdm_bytes){"\x91\x07", 2}, &document));
    tdm__ref_complete(ref, TDM_OK, NULL, document);
}

static tdm_status call(struct remote_peer *borrower, const char *method, const struct tdm__id *id)
{
    return remote_peer_call(borrower, method, "b", (const void *)id->bytes, sizeof(id->bytes));
}

static void send_request(struct remote_peer *borrower, struct remote_reply *reply,
                         const char *method, const struct tdm__id *id)
{
    remote_peer_ask(borrower, reply, method, "b", (const void *)id->bytes, sizeof(id->bytes));
}

static void expect_seven(struct remote_peer *borrower, struct remote_reply *reply)
{
    TRY(remote_peer_wait(borrower, reply));
    assert_int_equal(tdm_value_int(tdm_value_at(remote_reply_value(reply), 0), 0), 7);
    remote_reply_free(reply);
}

/* ---- object.pin, object.unpin ------------------------------------------------------------- */

static void process_pins_an_object_once(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer borrower;
    struct tdm__id id;
    tdm_ref *ref = put(scene, &id);

    object_fixture_borrower(scene, &borrower);
    assert_int_equal(call(&borrower, "object.unpin", &id), TDM_E_STATE);
    TRY(call(&borrower, "object.pin", &id));
    assert_int_equal(call(&borrower, "object.pin", &id), TDM_E_STATE);
    assert_int_equal(object_fixture_count(scene).borrower_pins, 1);
    TRY(call(&borrower, "object.unpin", &id));
    assert_int_equal(call(&borrower, "object.unpin", &id), TDM_E_STATE);
    assert_int_equal(object_fixture_count(scene).borrower_pins, 0);
    TRY(call(&borrower, "object.pin", &id));
    tdm_ref_release(ref); /* The pin of the borrower is the last holder. */
    assert_int_equal(object_fixture_count(scene).owned, 1);
    TRY(call(&borrower, "object.unpin", &id));
    assert_int_equal(object_fixture_count(scene).owned, 0);
    assert_int_equal(call(&borrower, "object.pin", &id), TDM_E_OWNER_DIED);
    assert_int_equal(call(&borrower, "object.unpin", &id), TDM_E_OWNER_DIED);
    remote_peer_close(&borrower);
}

static void kept_reference_outlives_its_borrower(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer borrower;
    struct tdm__id id;
    tdm_ref *ref = put(scene, &id);

    object_fixture_borrower(scene, &borrower);
    TRY(call(&borrower, "object.pin", &id));
    TRY(call(&borrower, "object.keep", &id));
    TRY(call(&borrower, "object.keep", &id)); /* Another borrower may ask, too. */
    TRY(call(&borrower, "object.unpin", &id));
    remote_peer_close(&borrower);
    object_fixture_settle(scene);
    assert_true(ref->shared->is_kept);
    assert_int_equal(atomic_load(&ref->holders_count), 2);
    tdm_ref_release(ref);
    assert_int_equal(object_fixture_count(scene).owned, 1);
    tdm_ref_release(ref); /* The end of the table would do so. */
    assert_int_equal(object_fixture_count(scene).owned, 0);
}

static void the_end_of_a_connection_ends_its_own_holds_alone(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer borrowers[2];
    struct tdm__id ids[3];
    tdm_ref *refs[3];

    for (int i = 0; i < 2; i++) {
        object_fixture_borrower(scene, &borrowers[i]);
    }
    for (int i = 0; i < 3; i++) {
        refs[i] = put(scene, &ids[i]);
        TRY(call(&borrowers[0], "object.pin", &ids[i]));
    }
    TRY(call(&borrowers[1], "object.pin", &ids[1]));
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(refs[i]);
    }
    assert_int_equal(object_fixture_count(scene).borrower_pins, 4);
    remote_peer_cut(&borrowers[0]);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).owned, 1);
    assert_int_equal(object_fixture_count(scene).borrower_pins, 1);
    remote_peer_cut(&borrowers[1]);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).owned, 0);
    remote_peer_close(&borrowers[0]);
    remote_peer_close(&borrowers[1]);
}

static void pins_end_with_the_owner(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_peer borrower;
    struct tdm__id id;
    tdm_ref *ref = put(scene, &id);

    object_fixture_borrower(scene, &borrower);
    TRY(call(&borrower, "object.pin", &id));
    assert_int_equal(atomic_load(&ref->holders_count), 2);
    tdm__borrowers_destroy(scene->objects);
    assert_int_equal(object_fixture_count(scene).borrower_pins, 0);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    remote_peer_cut(&borrower); /* The connection's end after the unpin changes nothing. */
    object_fixture_settle(scene);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    tdm_ref_release(ref);
    remote_peer_close(&borrower);
}

/* ---- object.get, object.fetch, object.sibling ----------------------------------------------- */

static void early_requests_are_replied_to_in_order(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_reply replies[2];
    struct remote_reply later;
    struct remote_peer borrower;
    struct tdm__id id;
    tdm_ref *ref = create_incomplete(scene, &id);

    object_fixture_borrower(scene, &borrower);
    send_request(&borrower, &replies[0], "object.get", &id);
    send_request(&borrower, &replies[1], "object.fetch", &id);
    object_fixture_settle(scene);
    assert_int_equal(replies[0].count + replies[1].count, 0);
    complete(ref);
    expect_seven(&borrower, &replies[0]);
    expect_seven(&borrower, &replies[1]);
    assert_true(replies[0].order < replies[1].order);
    send_request(&borrower, &later, "object.get", &id);
    expect_seven(&borrower, &later);
    tdm_ref_release(ref);
    remote_peer_close(&borrower);
}

static void failure_is_the_value(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_reply replies[2];
    struct remote_peer borrower;
    struct tdm__id id;
    tdm_ref *ref = create_incomplete(scene, &id);

    object_fixture_borrower(scene, &borrower);
    send_request(&borrower, &replies[0], "object.get", &id);
    object_fixture_settle(scene);
    tdm__ref_complete(ref, TDM_E_CANCELED, NULL, NULL); /* The failure has no text. */
    send_request(&borrower, &replies[1], "object.get", &id);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(remote_peer_wait(&borrower, &replies[i]), TDM_E_CANCELED);
        assert_string_equal(replies[i].detail, "");
    }
    tdm_ref_release(ref);
    remote_peer_close(&borrower);
}

/* A request for the value is not a pin. */
static void request_without_a_pin_may_lose_the_value(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_reply reply;
    struct remote_peer borrower;
    struct tdm__id id;
    tdm_ref *ref = create_incomplete(scene, &id);

    object_fixture_borrower(scene, &borrower);
    send_request(&borrower, &reply, "object.get", &id);
    object_fixture_settle(scene);
    tdm_ref_release(ref);
    assert_int_equal(remote_peer_wait(&borrower, &reply), TDM_E_VALUE_LOST);
    assert_string_equal(reply.detail, "the object is no longer referenced");
    remote_peer_close(&borrower);
}

static void closed_requester_does_not_affect_others(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_reply replies[2];
    struct remote_peer borrowers[2];
    struct tdm__id id;
    tdm_ref *ref = create_incomplete(scene, &id);

    for (int i = 0; i < 2; i++) {
        object_fixture_borrower(scene, &borrowers[i]);
        TRY(call(&borrowers[i], "object.pin", &id));
        send_request(&borrowers[i], &replies[i], "object.get", &id);
    }
    object_fixture_settle(scene);
    remote_peer_cut(&borrowers[0]);
    assert_int_equal(remote_peer_wait(&borrowers[0], &replies[0]), TDM_E_CLOSED);
    object_fixture_settle(scene);
    assert_int_equal(object_fixture_count(scene).borrower_pins, 1);
    complete(ref);
    expect_seven(&borrowers[1], &replies[1]);
    tdm_ref_release(ref);
    remote_peer_close(&borrowers[0]);
    remote_peer_close(&borrowers[1]);
}

/* Only a process that fetches a large value itself may pass it on; otherwise two could wait for
 * each other. */
static void value_that_is_not_fetched_here_is_refused(void **state)
{
    struct object_fixture *scene = *state;
    struct remote_reply reply;
    struct remote_peer borrower;
    struct tdm__id ids[2];
    tdm_ref *there = put(scene, &ids[0]);
    tdm_ref *to_come = create_incomplete(scene, &ids[1]);

    object_fixture_borrower(scene, &borrower);
    for (int i = 0; i < 2; i++) {
        send_request(&borrower, &reply, "object.sibling", &ids[i]);
        assert_int_equal(remote_peer_wait(&borrower, &reply), TDM_E_VALUE_LOST);
        assert_string_equal(reply.detail, "this does not fetch the value");
    }
    tdm_ref_release(there);
    tdm_ref_release(to_come);
    remote_peer_close(&borrower);
}

/* ---- malformed requests ------------------------------------------------------------------- */

static void wrong_calls_are_refused_and_count_nothing(void **state)
{
    static const char *const methods[] = {"object.pin", "object.unpin", "object.keep",
                                          "object.get", "object.fetch", "object.sibling"};
    struct object_fixture *scene = *state;
    struct remote_peer borrower;
    struct tdm__id unknown;
    struct tdm__id id;
    tdm_ref *ref = put(scene, &id);

    TRY(tdm__id_generate(&unknown));
    object_fixture_borrower(scene, &borrower);
    for (uint32_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        assert_int_equal(remote_peer_call(&borrower, methods[i], "b", (const void *)id.bytes,
                                          sizeof(id.bytes) - 1),
                         TDM_E_PROTOCOL);
        assert_int_not_equal(remote_peer_call(&borrower, methods[i], "i", (int64_t)7), TDM_OK);
        assert_int_not_equal(remote_peer_call(&borrower, methods[i], ""), TDM_OK);
        assert_int_not_equal(call(&borrower, methods[i], &unknown), TDM_OK);
    }
    assert_int_equal(object_fixture_count(scene).borrower_pins, 0);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    tdm_ref_release(ref);
    remote_peer_close(&borrower);
}

/* ---- the address of the owner ------------------------------------------------------------- */

static void reference_is_passed_on_only_where_others_can_ask(void **state)
{
    struct object_fixture *scene = *state;
    tdm_writer *writer;
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    TRY(tdm_writer_create(&writer));
    TRY(rmdir(scene->directory));
    assert_int_not_equal(tdm__reference_write(writer, ref), TDM_OK);
    assert_null(ref->shared);
    assert_false(scene->objects->listening);
    TRY(mkdir(scene->directory, 0700));
    TRY(tdm__reference_write(writer, ref));
    assert_int_equal(object_fixture_count(scene).owned, 1);
    tdm_ref_release(ref);
    tdm_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(process_pins_an_object_once),
        OBJECT_FIXTURE_TEST(the_end_of_a_connection_ends_its_own_holds_alone),
        OBJECT_FIXTURE_TEST(pins_end_with_the_owner),
        OBJECT_FIXTURE_TEST(early_requests_are_replied_to_in_order),
        OBJECT_FIXTURE_TEST(failure_is_the_value),
        OBJECT_FIXTURE_TEST(request_without_a_pin_may_lose_the_value),
        OBJECT_FIXTURE_TEST(closed_requester_does_not_affect_others),
        OBJECT_FIXTURE_TEST(value_that_is_not_fetched_here_is_refused),
        OBJECT_FIXTURE_TEST(kept_reference_outlives_its_borrower),
        OBJECT_FIXTURE_TEST(wrong_calls_are_refused_and_count_nothing),
        OBJECT_FIXTURE_TEST(reference_is_passed_on_only_where_others_can_ask),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
