/* export_test.c - exported values live until they are returned, and imported ones are returned. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/export.h"

#include "actors/objects/object_memory.h"
#include "runtime/messages/messages.h"
#include "tests/support/object_fixture.h"
#include "tests/support/open_files.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { VALUE_BYTES = 200000 };

/* Another process on the node, and this runtime's end of the connection with it. */
struct neighbour {
    struct remote_peer peer;
    struct tdm__conn *conn;
};

/* The connection that is not among those seen before. */
struct newest {
    struct tdm__conn *conn;
    const struct tdm__id *process;
};

static void find_conn(void *arg, struct tdm__conn *conn)
{
    struct newest *newest = arg;

    if (tdm__id_equal(&tdm__conn_peer(conn)->id, newest->process)) {
        newest->conn = conn;
    }
}

static void neighbour_open(struct object_fixture *scene, struct neighbour *neighbour)
{
    struct newest newest = {.process = &neighbour->peer.self.id};

    object_fixture_borrower(scene, &neighbour->peer);
    object_fixture_settle(scene);
    tdm__rpc_each_conn(scene->runtime->rpc, find_conn, &newest);
    assert_non_null(newest.conn);
    neighbour->conn = newest.conn;
}

/* Ends the connection, whose structure stays until tdm__conn_release(). */
static void neighbour_cut(struct object_fixture *scene, struct neighbour *neighbour)
{
    tdm__conn_retain(neighbour->conn);
    remote_peer_cut(&neighbour->peer);
    object_fixture_settle(scene);
    assert_false(tdm__conn_is_open(neighbour->conn));
}

static void neighbour_close(struct object_fixture *scene, struct neighbour *neighbour)
{
    object_fixture_settle(scene);
    assert_int_equal(neighbour->peer.held_count, 0);
    remote_peer_close(&neighbour->peer);
    object_fixture_settle(scene);
}

static struct tdm__object_memory_stats use(struct object_fixture *scene)
{
    struct tdm__object_memory_stats stats;

    tdm__object_memory_stats(scene->runtime, &stats);
    return stats;
}

/* Creates the value [bytes] with one owner, and copies its packed bytes to shared memory. */
static struct tdm__large *value_create(struct object_fixture *scene)
{
    static char bytes[VALUE_BYTES];
    struct tdm__large *large = NULL;
    tdm_writer *writer;

    memset(bytes, 'v', sizeof(bytes));
    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "b", (const void *)bytes, sizeof(bytes)));
    TRY(tdm__large_copy_now(scene->runtime, tdm_writer_bytes(writer), &large));
    tdm_writer_destroy(writer);
    assert_non_null(large);
    return large;
}

static bool is_value(const tdm_document *document)
{
    struct tdm_bytes bytes = tdm_value_bytes(tdm_value_at(tdm_document_root(document), 0));
    const char *data = bytes.data;

    return bytes.size_bytes == VALUE_BYTES && data[0] == 'v' && data[VALUE_BYTES - 1] == 'v';
}

/* Exports the value to the neighbour. The descriptor is borrowed from the value. */
static struct tdm__value_export_message export_to(struct tdm__large *large,
                                                  const struct neighbour *neighbour, int *fd_out)
{
    struct tdm__value_export_message message;

    TRY(tdm__large_export_message(large, neighbour->conn, &message, fd_out));
    return message;
}

static tdm_status return_export(struct neighbour *neighbour, uint64_t id)
{
    return remote_peer_call(&neighbour->peer, "object.return", "u", id);
}

/* ---- the exporting side ------------------------------------------------------------------ */

static void exported_value_lives_until_its_reader_returns_it(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct tdm__value_export_message message;
    struct neighbour readers[2];
    int fd = -1;

    neighbour_open(scene, &readers[0]);
    neighbour_open(scene, &readers[1]);
    message = export_to(large, &readers[0], &fd);
    assert_true(message.size_bytes > VALUE_BYTES);
    assert_true(message.capacity_bytes >= message.size_bytes);
    assert_int_equal(message.capacity_bytes, large->segment->capacity_bytes);
    assert_true(tdm__id_equal(&message.segment, &large->segment->id));
    assert_int_equal(fd, large->segment->fd);
    tdm__large_release(large);
    assert_true(use(scene).used_bytes > 0);
    assert_int_equal(use(scene).exported_count, 1);
    assert_ptr_equal(tdm__export_find(scene->runtime->memory, readers[0].conn, message.export_id),
                     large);
    /* Another export, and the export of another reader, end nothing. */
    TRY(return_export(&readers[0], message.export_id + 1));
    TRY(return_export(&readers[1], message.export_id));
    assert_int_equal(use(scene).exported_count, 1);
    assert_true(use(scene).used_bytes > 0);
    TRY(return_export(&readers[0], message.export_id));
    assert_int_equal(use(scene).exported_count, 0);
    assert_int_equal(use(scene).used_bytes, 0);
    assert_null(tdm__export_find(scene->runtime->memory, readers[0].conn, message.export_id));
    TRY(return_export(&readers[0], message.export_id)); /* A second return is harmless. */
    neighbour_close(scene, &readers[0]);
    neighbour_close(scene, &readers[1]);
}

static void malformed_return_ends_nothing(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct neighbour reader;
    int fd;

    neighbour_open(scene, &reader);
    (void)export_to(large, &reader, &fd);
    assert_int_equal(remote_peer_call(&reader.peer, "object.return", "s", "1"), TDM_E_PROTOCOL);
    assert_int_equal(remote_peer_call(&reader.peer, "object.return", ""), TDM_E_PROTOCOL);
    assert_int_equal(use(scene).exported_count, 1);
    neighbour_close(scene, &reader);
    tdm__large_release(large);
}

static void closed_connection_ends_the_exports_of_its_reader_only(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *larges[2] = {value_create(scene), value_create(scene)};
    struct neighbour readers[2];
    int fd;

    neighbour_open(scene, &readers[0]);
    neighbour_open(scene, &readers[1]);
    (void)export_to(larges[0], &readers[0], &fd);
    (void)export_to(larges[1], &readers[0], &fd);
    (void)export_to(larges[1], &readers[1], &fd);
    tdm__exports_count_readers(scene->runtime->memory);
    assert_int_equal(larges[0]->readers_count, 1);
    assert_int_equal(larges[1]->readers_count, 2);
    tdm__large_release(larges[0]);
    neighbour_close(scene, &readers[0]);
    assert_int_equal(use(scene).exported_count, 1);
    assert_int_equal(larges[1]->owners_count, 2);
    assert_int_equal(use(scene).used_bytes, larges[1]->segment->capacity_bytes);
    tdm__exports_count_readers(scene->runtime->memory); /* It does not add to the last count. */
    assert_int_equal(larges[1]->readers_count, 1);
    neighbour_close(scene, &readers[1]);
    assert_int_equal(use(scene).exported_count, 0);
    tdm__large_release(larges[1]);
    assert_int_equal(use(scene).used_bytes, 0);
}

static void each_export_has_its_own_number(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct neighbour reader;
    uint64_t ids[2];
    int fd;

    neighbour_open(scene, &reader);
    ids[0] = export_to(large, &reader, &fd).export_id;
    ids[1] = export_to(large, &reader, &fd).export_id;
    assert_int_not_equal(ids[0], ids[1]);
    TRY(return_export(&reader, ids[0]));
    assert_ptr_equal(tdm__export_find(scene->runtime->memory, reader.conn, ids[1]), large);
    tdm__large_end_export(large, reader.conn, ids[1]);
    assert_int_equal(use(scene).exported_count, 0);
    assert_int_equal(large->owners_count, 1);
    tdm__large_release(large);
    neighbour_close(scene, &reader);
}

static void value_is_not_exported_to_a_closed_connection(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct tdm__value_export_message message;
    struct neighbour reader;
    tdm_writer *writer;
    int fd = -1;

    neighbour_open(scene, &reader);
    neighbour_cut(scene, &reader);
    TRY(tdm_writer_create(&writer));
    assert_int_equal(tdm__large_export_message(large, reader.conn, &message, &fd), TDM_E_CLOSED);
    assert_int_equal(tdm__large_export(large, reader.conn, writer, &fd), TDM_E_CLOSED);
    assert_int_equal(tdm__large_offer(large, reader.conn, writer), TDM_E_CLOSED);
    assert_int_equal(tdm_writer_bytes(writer).size_bytes, 0);
    assert_int_equal(fd, -1);
    assert_int_equal(use(scene).exported_count, 0);
    assert_int_equal(large->owners_count, 1);
    tdm_writer_destroy(writer);
    tdm__large_release(large);
    tdm__conn_release(reader.conn);
    neighbour_close(scene, &reader);
}

static void offer_names_the_export_and_the_size(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct tdm__value_offer_message message;
    struct neighbour reader;
    tdm_document *document;
    tdm_writer *writer;

    neighbour_open(scene, &reader);
    TRY(tdm_writer_create(&writer));
    TRY(tdm__large_offer(large, reader.conn, writer));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    TRY(tdm__value_offer_decode(tdm_value_find(tdm_document_root(document), "pull"), &message));
    assert_int_equal(message.size_bytes, large->size_bytes);
    assert_ptr_equal(tdm__export_find(scene->runtime->memory, reader.conn, message.export_id),
                     large);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    tdm__large_release(large);
    TRY(return_export(&reader, message.export_id));
    assert_int_equal(use(scene).used_bytes, 0);
    neighbour_close(scene, &reader);
}

static void end_of_the_runtime_ends_all_exports_once(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct neighbour readers[2];
    int fd;

    neighbour_open(scene, &readers[0]);
    neighbour_open(scene, &readers[1]);
    (void)export_to(large, &readers[0], &fd);
    (void)export_to(large, &readers[1], &fd);
    tdm__exports_end(NULL);
    tdm__exports_end(scene->runtime->memory);
    assert_int_equal(use(scene).exported_count, 0);
    assert_int_equal(large->owners_count, 1);
    neighbour_close(scene, &readers[0]); /* The end of the connections changes nothing more. */
    neighbour_close(scene, &readers[1]);
    assert_int_equal(large->owners_count, 1);
    tdm__large_release(large);
}

/* ---- the importing side ------------------------------------------------------------------ */

enum { EXPORT_ID = 77 };

/* Describes a value of this process as a neighbour does that exports it as number EXPORT_ID. */
static struct tdm__value_export_message described(const struct tdm__large *large)
{
    return (struct tdm__value_export_message){.export_id = EXPORT_ID,
                                              .segment = large->segment->id,
                                              .capacity_bytes = large->segment->capacity_bytes,
                                              .size_bytes = large->size_bytes};
}

/* Imports what the message describes from the neighbour. */
static tdm_status import(struct object_fixture *scene, const struct neighbour *exporter,
                         const struct tdm__value_export_message *message, int fd,
                         tdm_document **document_out)
{
    *document_out = NULL;
    return tdm__large_import_message(scene->runtime, exporter->conn, message,
                                     fcntl(fd, F_DUPFD_CLOEXEC, 0), document_out);
}

/* Waits until the exporter is told that its export is no longer read. */
static void expect_return(struct neighbour *exporter)
{
    struct tdm__incoming_call *incoming = object_fixture_expect(&exporter->peer, "object.return");
    struct tdm__export_return_message message;

    TRY(tdm__incoming_decode(incoming, tdm__export_return_table(), &message));
    assert_int_equal(message.export_id, EXPORT_ID);
    tdm__incoming_reply_pack(incoming, "");
}

static void imported_value_is_returned_when_its_document_is_destroyed(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct tdm__value_export_message message = described(large);
    struct neighbour exporter;
    tdm_document *document;

    neighbour_open(scene, &exporter);
    TRY(import(scene, &exporter, &message, large->segment->fd, &document));
    assert_true(is_value(document));
    object_fixture_settle(scene);
    assert_int_equal(exporter.peer.asked_count, 0);
    assert_int_equal(use(scene).read_count, 1);
    assert_int_equal(use(scene).unused_view_bytes, 0);
    tdm_document_destroy(document);
    expect_return(&exporter);
    assert_int_equal(use(scene).read_count, 0);
    /* The mapping stays for the next value in the segment while the exporter is connected. */
    assert_int_equal(use(scene).unused_view_bytes, message.capacity_bytes);
    TRY(import(scene, &exporter, &message, large->segment->fd, &document));
    assert_int_equal(use(scene).unused_view_bytes, 0);
    tdm_document_destroy(document);
    expect_return(&exporter);
    neighbour_close(scene, &exporter);
    assert_int_equal(use(scene).unused_view_bytes, 0);
    tdm__large_release(large);
}

static void document_of_a_closed_exporter_stays_readable(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct tdm__value_export_message message = described(large);
    struct neighbour exporter;
    tdm_document *document;

    neighbour_open(scene, &exporter);
    TRY(import(scene, &exporter, &message, large->segment->fd, &document));
    neighbour_close(scene, &exporter);
    tdm__large_release(large);
    assert_true(is_value(document));
    assert_int_equal(use(scene).read_count, 1);
    tdm_document_destroy(document);
    assert_int_equal(use(scene).read_count, 0);
    assert_int_equal(use(scene).unused_view_bytes, 0); /* The segment comes from no process. */
}

static void import_from_a_closed_connection_is_not_kept(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct tdm__value_export_message message = described(large);
    struct neighbour exporter;
    tdm_document *document;

    neighbour_open(scene, &exporter);
    neighbour_cut(scene, &exporter);
    TRY(import(scene, &exporter, &message, large->segment->fd, &document));
    assert_true(is_value(document));
    tdm_document_destroy(document);
    assert_int_equal(use(scene).unused_view_bytes, 0);
    tdm__conn_release(exporter.conn);
    neighbour_close(scene, &exporter);
    tdm__large_release(large);
}

/* The exporter would keep the memory of a value that no process reads until the connection
 * ends. */
static void refused_import_is_returned(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct tdm__value_export_message good = described(large);
    struct tdm__value_export_message wrong[3] = {good, good, good};
    struct neighbour exporter;
    uint32_t open_files;
    tdm_document *read;
    tdm_document *document;
    int pipe_fds[2];

    wrong[0].capacity_bytes += 4096;               /* The segment is smaller than that. */
    wrong[1].size_bytes = good.capacity_bytes + 1; /* The value ends behind the segment. */
    wrong[2].size_bytes = 5;                       /* The value ends too early. */
    neighbour_open(scene, &exporter);
    open_files = open_files_count("");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(import(scene, &exporter, &wrong[i], large->segment->fd, &document),
                         TDM_E_PROTOCOL);
        assert_int_equal(i == 1, strstr(tdm_error_detail(), "bytes in a segment of") != NULL);
        assert_null(document);
        expect_return(&exporter);
    }
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    TRY(tdm__id_generate(&wrong[1].segment));
    assert_int_equal(import(scene, &exporter, &wrong[1], pipe_fds[0], &document), TDM_E_PROTOCOL);
    expect_return(&exporter);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    /* A value that is being read is not affected by a wrong description of its segment. */
    TRY(import(scene, &exporter, &good, large->segment->fd, &read));
    assert_int_equal(import(scene, &exporter, &wrong[0], large->segment->fd, &document),
                     TDM_E_PROTOCOL);
    expect_return(&exporter);
    assert_true(is_value(read));
    assert_int_equal(use(scene).read_count, 1);
    tdm_document_destroy(read);
    expect_return(&exporter);
    assert_int_equal(use(scene).read_count, 0);
    assert_int_equal(open_files_count(""), open_files);
    neighbour_close(scene, &exporter);
    tdm__large_release(large);
}

static void malformed_description_closes_the_descriptor(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__large *large = value_create(scene);
    struct neighbour exporter;
    uint32_t open_files;
    tdm_document *description;
    tdm_document *document = NULL;

    neighbour_open(scene, &exporter);
    open_files = open_files_count("");
    TRY(tdm_document_parse((struct tdm_bytes){"\x91\x4d", 2}, &description));
    assert_int_equal(tdm__large_import(scene->runtime, exporter.conn,
                                       tdm_document_root(description),
                                       fcntl(large->segment->fd, F_DUPFD_CLOEXEC, 0), &document),
                     TDM_E_PROTOCOL);
    assert_null(document);
    assert_int_equal(open_files_count(""), open_files);
    tdm_document_destroy(description);
    neighbour_close(scene, &exporter);
    tdm__large_release(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(exported_value_lives_until_its_reader_returns_it),
        OBJECT_FIXTURE_TEST(malformed_return_ends_nothing),
        OBJECT_FIXTURE_TEST(closed_connection_ends_the_exports_of_its_reader_only),
        OBJECT_FIXTURE_TEST(each_export_has_its_own_number),
        OBJECT_FIXTURE_TEST(value_is_not_exported_to_a_closed_connection),
        OBJECT_FIXTURE_TEST(offer_names_the_export_and_the_size),
        OBJECT_FIXTURE_TEST(end_of_the_runtime_ends_all_exports_once),
        OBJECT_FIXTURE_TEST(imported_value_is_returned_when_its_document_is_destroyed),
        OBJECT_FIXTURE_TEST(document_of_a_closed_exporter_stays_readable),
        OBJECT_FIXTURE_TEST(import_from_a_closed_connection_is_not_kept),
        OBJECT_FIXTURE_TEST(refused_import_is_returned),
        OBJECT_FIXTURE_TEST(malformed_description_closes_the_descriptor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
