/* shared_arguments_test.c - large values travel beside the arguments, and malformed ones do not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/shared_arguments.h"

#include "actors/objects/export.h"
#include "actors/objects/large_message.h"
#include "runtime/clock.h"
#include "runtime/messages/messages.h"
#include "runtime/wire/value.h"
#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static uint32_t exports_of(struct object_fixture *scene)
{
    struct tdm__object_memory_stats use;

    tdm__object_memory_stats(scene->runtime, &use);
    return use.exported_count;
}

static void exported_values_are_described_in_order(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__shared_values shared = {.count = 0};
    struct tdm__shared_arguments_message message;
    struct tdm__value_export_message description;
    struct remote_peer callee;
    tdm_document *document;
    tdm_writer *writer;
    int fds[TDM__RPC_FDS_MAX];

    object_fixture_borrower(scene, &callee);
    object_fixture_settle(scene);
    for (size_t i = 1; i <= 2; i++) {
        struct tdm__large *large;

        TRY(tdm__large_create(scene->runtime, i * 1000, &large));
        tdm__shared_values_add(&shared, large);
        tdm__large_release(large);
    }
    TRY(tdm_writer_create(&writer));
    TRY(tdm__shared_arguments_export(&shared, (struct tdm_bytes){"\x90", 1}, callee.conn, writer,
                                     fds));
    assert_int_equal(exports_of(scene), 2);
    assert_true(tdm__shared_arguments_are(tdm_writer_bytes(writer)));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    TRY(tdm__shared_arguments_decode(tdm_value_find(tdm_document_root(document), "shared"),
                                     &message));
    assert_int_equal(message.values.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        tdm__message_list_read(&message.values, i, &description, sizeof(description));
        assert_int_equal(description.size_bytes, (i + 1) * 1000);
        assert_true(fds[i] >= 0);
    }
    assert_memory_equal(message.arguments.data, "\x90", 1);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    tdm__shared_values_release(&shared);
    assert_int_equal(shared.count, 0);
    remote_peer_close(&callee); /* The exports end with the connection. */
    object_fixture_settle(scene);
    assert_int_equal(exports_of(scene), 0);
}

static void other_messages_are_not_taken_for_shared_ones(void **state)
{
    (void)state;
    assert_false(tdm__shared_arguments_are((struct tdm_bytes){"\x90", 1}));
    assert_false(tdm__shared_arguments_are((struct tdm_bytes){"\x81\xa6shared", 8}));
    assert_false(tdm__shared_arguments_are((struct tdm_bytes){"\x81\xa4pull\x92\x01\x02", 9}));
    assert_false(tdm__shared_arguments_are((struct tdm_bytes){NULL, 0}));
}

/* A peer announces a value and sends no descriptor, or announces too many. */
static void malformed_messages_are_refused(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__value_export_message exports[TDM__RPC_FDS_MAX + 1] = {{0}};
    struct remote_peer caller;
    tdm_document *document;

    object_fixture_borrower(scene, &caller);
    for (uint32_t count = 1; count <= TDM__RPC_FDS_MAX + 1; count += TDM__RPC_FDS_MAX) {
        const struct tdm__shared_arguments_message message = {
            .arguments = {"\x90", 1}, .values = {.count = count, .items = exports}};
        struct tdm__rpc_request request = {.method = "method", .deadline_ms = TDM__NEVER};
        tdm_writer *writer;

        TRY(tdm_writer_create(&writer));
        tdm_write_map(writer, 1);
        tdm_write_string(writer, "shared");
        TRY(tdm__shared_arguments_encode(&message, writer));
        request.packed = tdm_writer_bytes(writer);
        TRY(tdm__conn_call(caller.conn, &request, NULL, NULL, NULL));
        tdm_writer_destroy(writer);
        object_fixture_settle(scene);
        assert_non_null(scene->last);
        assert_int_equal(tdm__incoming_document(scene->runtime, scene->last, &document),
                         TDM_E_PROTOCOL);
        tdm__incoming_refuse(scene->last, TDM_E_PROTOCOL, "malformed");
        scene->last = NULL;
        object_fixture_settle(scene);
    }
    remote_peer_close(&caller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(exported_values_are_described_in_order),
        OBJECT_FIXTURE_TEST(other_messages_are_not_taken_for_shared_ones),
        OBJECT_FIXTURE_TEST(malformed_messages_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
