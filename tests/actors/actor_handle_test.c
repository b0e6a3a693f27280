/* actor_handle_test.c - the last counted handle ends the actor, and a packed handle is counted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/actor_handle.h"

#include "actors/objects/ref.h"
#include "runtime/messages/messages.h"
#include "tests/support/channel_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static struct channel_peer peer;
static char directory[32];

/* The runtime can pass references on, for which it listens in its directory. */
static int set_up(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    peer_create(&peer);
    (void)snprintf(peer.runtime->directory, sizeof(peer.runtime->directory), "%s", directory);
    peer_found(&peer);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    peer_destroy(&peer);
    return rmdir(directory);
}

static tdm_actor *handle(bool counted)
{
    tdm_actor *actor = NULL;

    peer.channel->holders_count++; /* The handle owns this count. */
    TRY(tdm__handle_create(peer.channel, counted, &actor));
    return actor;
}

/* Checks how often the daemon was asked to end the actor. */
static void expect_releases(uint32_t count)
{
    peer_settle(&peer);
    assert_int_equal(peer.releases_count, count);
    assert_true((peer.channel->keep_alive == NULL) == (count > 0));
}

/* ---- counting --------------------------------------------------------------------------- */

static void last_counted_handle_releases_the_actor(void **state)
{
    tdm_actor *counted[2];
    tdm_actor *uncounted;

    (void)state;
    TRY(tdm__handle_start_counting(peer.channel));
    counted[0] = handle(true);
    counted[1] = handle(true);
    uncounted = handle(false);
    tdm_actor_destroy(counted[0]);
    expect_releases(0);
    tdm_actor_destroy(counted[1]);
    expect_releases(1); /* The handle that is left does not count. */
    tdm_actor_destroy(uncounted);
    expect_releases(1);
}

static void uncounted_handle_releases_nothing(void **state)
{
    tdm_actor *counted;

    (void)state;
    TRY(tdm__handle_start_counting(peer.channel));
    counted = handle(true);
    tdm_actor_destroy(handle(false));
    expect_releases(0);
    tdm_actor_destroy(counted);
    expect_releases(1);
}

static void pending_call_keeps_the_actor(void **state)
{
    tdm_actor *actor;
    tdm_ref *result;

    (void)state;
    TRY(tdm__handle_start_counting(peer.channel));
    actor = handle(true);
    result = peer_call(&peer, 7, NULL);
    tdm_actor_destroy(actor);
    peer_hold(&peer, 1);
    expect_releases(0);
    peer_complete(&peer, 0);
    peer_expect_result(result, 7);
    expect_releases(1);
}

static void handles_are_destroyed_in_any_order(void **state)
{
    tdm_actor *actors[3];
    uint32_t holders_count = peer.channel->holders_count;

    (void)state;
    for (int i = 0; i < 3; i++) {
        actors[i] = handle(false);
    }
    tdm_actor_destroy(actors[1]);
    assert_ptr_equal(peer.channel->handles, actors[2]);
    assert_ptr_equal(actors[2]->next, actors[0]);
    tdm_actor_destroy(actors[2]);
    assert_ptr_equal(peer.channel->handles, actors[0]);
    tdm_actor_destroy(actors[0]);
    assert_null(peer.channel->handles);
    assert_int_equal(peer.channel->holders_count, holders_count);
    tdm_actor_destroy(NULL);
}

/* The daemon ends all actors of a process that ends. */
static void stopping_runtime_asks_the_daemon_for_nothing(void **state)
{
    (void)state;
    TRY(tdm__handle_start_counting(peer.channel));
    peer.runtime->is_stopping = true;
    tdm_actor_destroy(handle(true));
    peer_settle(&peer);
    peer.runtime->is_stopping = false;
    assert_int_equal(peer.releases_count, 0);
    assert_null(peer.channel->keep_alive);
}

static void handle_outlives_its_runtime(void **state)
{
    struct tdm_portable portable = {.size_bytes = 1};
    tdm_actor *actor = NULL;

    (void)state;
    peer_create(&peer);
    peer_found(&peer);
    actor = handle(false);
    peer_destroy(&peer);
    assert_int_equal(tdm_actor_export(actor, &portable), TDM_E_STATE);
    assert_int_equal(portable.size_bytes, 0);
    tdm_actor_destroy(actor);
}

/* ---- packed handles --------------------------------------------------------------------- */

/* A value that contains one packed handle. */
struct packed {
    tdm_writer *writer;
    tdm_document *document;
    struct tdm_bytes bytes; /* The packed handle, borrowed from the document. */
};

static void pack(tdm_actor *actor, struct packed *packed)
{
    TRY(tdm_writer_create(&packed->writer));
    TRY(tdm__handle_write(packed->writer, actor));
    TRY(tdm_document_parse(tdm_writer_bytes(packed->writer), &packed->document));
    assert_int_equal(tdm_value_kind_of(tdm_document_root(packed->document)), TDM_HANDLE);
    packed->bytes = tdm__value_ext(tdm_document_root(packed->document));
}

static void packed_free(struct packed *packed)
{
    tdm_document_destroy(packed->document);
    tdm_writer_destroy(packed->writer);
}

/* Checks the message inside a packed handle. */
static void expect_message(const struct packed *packed, enum tdm_value_kind keep_alive)
{
    struct tdm__packed_handle_message message;
    tdm_document *document;

    TRY(tdm_document_parse(packed->bytes, &document));
    TRY(tdm__packed_handle_decode(tdm_document_root(document), &message));
    assert_true(tdm__id_equal(&message.actor, &peer.channel->id));
    assert_string_equal(message.name, "m");
    assert_string_equal(message.class_name, "tester");
    assert_int_equal(tdm_value_kind_of(message.keep_alive.value), keep_alive);
    tdm_document_destroy(document);
}

static void counted_handle_opens_as_a_counted_one(void **state)
{
    struct packed packed;
    tdm_ref *keep_alive = NULL;
    tdm_actor *opened = NULL;
    tdm_actor *actor;

    (void)state;
    TRY(tdm__handle_start_counting(peer.channel));
    actor = handle(true);
    pack(actor, &packed);
    expect_message(&packed, TDM_REFERENCE);
    TRY(tdm__handle_open(peer.runtime, packed.bytes, &opened));
    assert_ptr_equal(opened->channel, peer.channel);
    assert_int_equal(peer.channel->counted_handles, 2);
    assert_int_equal(atomic_load(&peer.channel->keep_alive->holders_count), 1);
    tdm_actor_destroy(actor);
    expect_releases(0);
    /* The bytes alone keep the actor as long as their reference is held. */
    TRY(tdm__handle_bytes_keep_alive(peer.runtime, packed.bytes, &keep_alive));
    assert_ptr_equal(keep_alive, peer.channel->keep_alive);
    tdm_actor_destroy(opened);
    peer_settle(&peer);
    assert_int_equal(peer.releases_count, 0);
    tdm_ref_release(keep_alive);
    expect_releases(1);
    packed_free(&packed);
}

static void uncounted_handle_opens_as_an_uncounted_one(void **state)
{
    struct packed packed;
    tdm_ref *keep_alive = (tdm_ref *)&packed; /* The function must overwrite it. */
    tdm_actor *actors[2];
    tdm_actor *opened = NULL;

    (void)state;
    actors[0] = handle(true); /* The actor is detached, so that nothing counts its handles. */
    pack(actors[0], &packed);
    expect_message(&packed, TDM_NIL);
    packed_free(&packed);
    TRY(tdm__handle_start_counting(peer.channel));
    actors[1] = handle(false);
    pack(actors[1], &packed);
    expect_message(&packed, TDM_NIL);
    TRY(tdm__handle_bytes_keep_alive(peer.runtime, packed.bytes, &keep_alive));
    assert_null(keep_alive);
    TRY(tdm__handle_open(peer.runtime, packed.bytes, &opened));
    assert_int_equal(peer.channel->counted_handles, 1);
    tdm_actor_destroy(opened);
    tdm_actor_destroy(actors[1]);
    expect_releases(0);
    tdm_actor_destroy(actors[0]);
    expect_releases(1);
    packed_free(&packed);
}

/* The reader would call an actor that never comes to exist. */
static void handle_is_not_packed_before_its_actor_is_known(void **state)
{
    tdm_actor *actor = handle(true);
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    peer.channel->may_find_existing = true;
    assert_int_equal(tdm__handle_write(writer, actor), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "tdm_actor_wait_ready"));
    assert_int_equal(tdm_writer_bytes(writer).size_bytes, 0);
    peer.channel->may_find_existing = false;
    TRY(tdm__handle_write(writer, actor));
    tdm_writer_destroy(writer);
    tdm_actor_destroy(actor);
}

static void malformed_handle_is_refused(void **state)
{
    static const struct tdm_bytes wrong[] = {
        {"", 0},                   /* Nothing. */
        {"\x07", 1},               /* A number. */
        {"\x94\x01\x02", 3},       /* Fewer values than the array says. */
        {"\x94\1\xa0\xa0\xc0", 5}, /* The ID is a number. */
    };
    uint32_t holders_count = peer.channel->holders_count;

    (void)state;
    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        tdm_ref *keep_alive = NULL;
        tdm_actor *opened = NULL;

        assert_int_equal(tdm__handle_open(peer.runtime, wrong[i], &opened), TDM_E_PROTOCOL);
        assert_int_equal(tdm__handle_bytes_keep_alive(peer.runtime, wrong[i], &keep_alive),
                         TDM_E_PROTOCOL);
        assert_null(opened);
        assert_null(keep_alive);
    }
    assert_int_equal(peer.channel->holders_count, holders_count);
}

static void exported_handle_keeps_the_actor_and_can_be_imported(void **state)
{
    struct tdm_portable portable;
    tdm_actor *imported = NULL;
    tdm_actor *actor;

    (void)state;
    TRY(tdm__handle_start_counting(peer.channel));
    actor = handle(true);
    TRY(tdm_actor_export(actor, &portable));
    tdm_actor_destroy(actor);
    peer_settle(&peer);
    assert_int_equal(peer.releases_count, 0); /* The bytes may be anywhere. */
    TRY(tdm_actor_import(peer.runtime, (struct tdm_bytes){portable.bytes, portable.size_bytes},
                         &imported));
    assert_ptr_equal(imported->channel, peer.channel);
    assert_true(imported->is_counted);
    tdm_actor_destroy(imported);
    peer_settle(&peer);
    assert_int_equal(peer.releases_count, 0);
}

/* ---- other ways to a handle ------------------------------------------------------------- */

static void value_that_is_no_handle_has_no_actor(void **state)
{
    tdm_actor *actor = &peer.actor;
    tdm_document *document;

    (void)state;
    TRY(tdm_document_parse((struct tdm_bytes){"\x07", 1}, &document));
    assert_int_equal(tdm_value_actor(peer.runtime, tdm_document_root(document), &actor),
                     TDM_E_TYPE);
    assert_null(actor);
    assert_int_equal(tdm_value_actor(peer.runtime, NULL, &actor), TDM_E_TYPE);
    tdm_document_destroy(document);
    assert_null(peer.runtime->worker);
    assert_int_equal(tdm_actor_current(peer.runtime, &actor), TDM_E_STATE);
    assert_null(actor);
}

#define HANDLE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HANDLE_TEST(last_counted_handle_releases_the_actor),
        HANDLE_TEST(uncounted_handle_releases_nothing),
        HANDLE_TEST(pending_call_keeps_the_actor),
        HANDLE_TEST(handles_are_destroyed_in_any_order),
        HANDLE_TEST(stopping_runtime_asks_the_daemon_for_nothing),
        cmocka_unit_test(handle_outlives_its_runtime),
        HANDLE_TEST(counted_handle_opens_as_a_counted_one),
        HANDLE_TEST(uncounted_handle_opens_as_an_uncounted_one),
        HANDLE_TEST(handle_is_not_packed_before_its_actor_is_known),
        HANDLE_TEST(malformed_handle_is_refused),
        HANDLE_TEST(exported_handle_keeps_the_actor_and_can_be_imported),
        HANDLE_TEST(value_that_is_no_handle_has_no_actor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
