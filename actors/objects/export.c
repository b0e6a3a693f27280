/* export.c - large values exported to other processes, and values of other processes read here. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns three kinds of records, all guarded by the loop's lock. A struct shm_export is one value
 * of this process that one reader reads; it owns the value until the reader sends
 * "object.return" or its connection closes. A struct exporter is a connection on which another
 * process exported segments to this one; while it exists, mappings of those segments are kept
 * for reuse. A struct imported_value is one value of another process that a document reads in
 * place.
 *
 * Destroying the document returns the export. If the connection closed first, the memory stays
 * mapped until then. Documents may be destroyed on any thread, also after the runtime has
 * stopped. docs/protocols/references.md, "Large values", specifies the messages. */

#include "actors/objects/export.h"

#include "actors/objects/memory_quota.h"
#include "actors/objects/object_memory.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/wire/value.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A large value of this process that is exported to one reader. */
struct shm_export {
    /* Called when the reader's connection closes; must be the first field. */
    struct tdm__close_watcher closer;
    TAILQ_ENTRY(shm_export) link;
    struct tdm__conn *conn;   /* Connection to the reader, borrowed. */
    uint64_t id;              /* Number that the reader returns; unique in this process. */
    struct tdm__large *large; /* The exported value, retained. */
};

/* A connection on which another process exported segments that are mapped here. */
struct exporter {
    /* Called when the connection closes; must be the first field. */
    struct tdm__close_watcher closer;
    TAILQ_ENTRY(exporter) link;
    struct tdm__object_memory *memory; /* Shared memory of the runtime, borrowed. */
    const struct tdm__conn *conn;      /* Connection to the exporting process, borrowed. */
};

/* A value of another process that a document of this one reads in place. */
struct imported_value {
    /* Called when the connection closes; must be the first field. */
    struct tdm__close_watcher closer;
    struct tdm__object_memory *memory; /* Shared memory of the runtime, retained. */
    struct tdm__conn *conn; /* Connection to the exporting process; NULL after it has closed. */
    uint64_t id;            /* Number of the export, returned to the exporting process. */
    struct tdm__segment_view *view; /* Mapping of the segment that contains the value. */
};

/* ---- the exporting side ------------------------------------------------------------------ */

/* Removes the export and releases its value. */
static void shm_export_end(struct shm_export *shm_export)
{
    struct tdm__large *large = shm_export->large;

    TAILQ_REMOVE(&large->memory->shm_exports, shm_export, link);
    free(shm_export);
    tdm__large_release(large);
}

/* Close watcher: ends the export because its reader's connection closed. */
static void on_reader_closed(struct tdm__close_watcher *closer)
{
    shm_export_end((struct shm_export *)closer);
}

/* Frees the exporter; its mappings are unmapped when they are unused. */
static void exporter_end(struct exporter *exporter)
{
    tdm__segment_views_forget(&exporter->memory->views, exporter);
    TAILQ_REMOVE(&exporter->memory->exporters, exporter, link);
    free(exporter);
}

void tdm__exports_end(struct tdm__object_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    while (!TAILQ_EMPTY(&memory->shm_exports)) {
        struct shm_export *shm_export = TAILQ_FIRST(&memory->shm_exports);

        tdm__conn_unwatch_close(&shm_export->closer);
        shm_export_end(shm_export);
    }
    while (!TAILQ_EMPTY(&memory->exporters)) {
        struct exporter *exporter = TAILQ_FIRST(&memory->exporters);

        tdm__conn_unwatch_close(&exporter->closer);
        exporter_end(exporter);
    }
}

void tdm__object_memory_stats(tdm_runtime *runtime, struct tdm__object_memory_stats *use_out)
{
    const struct tdm__object_memory *memory = runtime->memory;
    const struct shm_export *shm_export;
    TDM__LOCK(runtime);

    *use_out = (struct tdm__object_memory_stats){.used_bytes = memory->segments.used_bytes,
                                                 .idle_bytes = memory->segments.idle_bytes,
                                                 .spilled_bytes = memory->spilled_bytes,
                                                 .unused_view_bytes = memory->views.unused_bytes,
                                                 .read_count = memory->read_count};
    if (memory->usage != NULL) {
        struct tdm__memory_usage_totals sums;

        tdm__memory_usage_read(memory->usage, &sums);
        use_out->node_used_bytes = sums.used_bytes;
    }
    TAILQ_FOREACH(shm_export, &memory->shm_exports, link)
    {
        use_out->exported_count++;
    }
}

void tdm__exports_count_readers(struct tdm__object_memory *memory)
{
    const struct shm_export *shm_export;
    struct tdm__large *large;

    TAILQ_FOREACH(large, &memory->values, link)
    {
        large->readers_count = 0;
    }
    TAILQ_FOREACH(shm_export, &memory->shm_exports, link)
    {
        shm_export->large->readers_count++;
    }
}

/* Creates an export of the value to the process at the other end of `conn`, after reading the
 * value back if it was spilled. */
static tdm_status export_create(struct tdm__large *large, struct tdm__conn *conn, uint64_t *id_out)
{
    struct tdm__object_memory *memory = large->memory;
    struct shm_export *shm_export;
    tdm_status status;

    TDM_TRY(tdm__large_load(large));
    shm_export = calloc(1, sizeof(*shm_export));
    if (shm_export == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an export of a large value");
    }
    shm_export->closer.fn = on_reader_closed;
    shm_export->conn = conn;
    shm_export->id = memory->last_export_id + 1;
    shm_export->large = large;
    status = tdm__conn_watch_close(conn, &shm_export->closer);
    if (status != TDM_OK) {
        free(shm_export);
        return status;
    }
    memory->last_export_id++;
    tdm__large_retain(large);
    TAILQ_INSERT_TAIL(&memory->shm_exports, shm_export, link);
    *id_out = shm_export->id;
    return TDM_OK;
}

/* Returns the export with this number on this connection, or NULL. */
static struct shm_export *export_find_by_id(struct tdm__object_memory *memory,
                                            const struct tdm__conn *conn, uint64_t id)
{
    struct shm_export *shm_export;

    TAILQ_FOREACH(shm_export, &memory->shm_exports, link)
    {
        if (shm_export->id == id && shm_export->conn == conn) {
            return shm_export;
        }
    }
    return NULL;
}

struct tdm__large *tdm__export_find(struct tdm__object_memory *memory, const struct tdm__conn *conn,
                                    uint64_t id)
{
    struct shm_export *shm_export = export_find_by_id(memory, conn, id);

    return shm_export == NULL ? NULL : shm_export->large;
}

/* Ends the export with this number on this connection, if it exists. */
static void export_finish(struct tdm__object_memory *memory, const struct tdm__conn *conn,
                          uint64_t id)
{
    struct shm_export *shm_export = export_find_by_id(memory, conn, id);

    if (shm_export != NULL) {
        tdm__conn_unwatch_close(&shm_export->closer);
        shm_export_end(shm_export);
    }
}

tdm_status tdm__large_export_message(struct tdm__large *large, struct tdm__conn *conn,
                                     struct tdm__value_export_message *message_out, int *fd_out)
{
    uint64_t id;

    TDM_TRY(export_create(large, conn, &id));
    *message_out =
        (struct tdm__value_export_message){.export_id = id,
                                           .segment = large->segment->id,
                                           .capacity_bytes = large->segment->capacity_bytes,
                                           .size_bytes = large->size_bytes};
    *fd_out = large->segment->fd;
    return TDM_OK;
}

void tdm__large_end_export(struct tdm__large *large, const struct tdm__conn *conn, uint64_t id)
{
    export_finish(large->memory, conn, id);
}

tdm_status tdm__large_export(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer,
                             int *fd_out)
{
    struct tdm__value_export_message message;
    tdm_status status;

    TDM_TRY(tdm__large_export_message(large, conn, &message, fd_out));
    status = tdm__value_export_encode(&message, writer);
    if (status != TDM_OK) {
        export_finish(large->memory, conn, message.export_id);
    }
    return status;
}

tdm_status tdm__large_offer(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer)
{
    struct tdm__value_offer_message message = {.size_bytes = large->size_bytes};

    TDM_TRY(export_create(large, conn, &message.export_id));
    tdm_write_map(writer, 1);
    tdm_write_string(writer, "pull");
    if (tdm__value_offer_encode(&message, writer) != TDM_OK) {
        export_finish(large->memory, conn, message.export_id);
        return tdm__fail(TDM_E_NOMEM, "offering a large value");
    }
    return TDM_OK;
}

void tdm__large_serve_return(tdm_runtime *runtime, struct tdm__incoming_call *incoming)
{
    struct tdm__export_return_message message;

    if (tdm__incoming_decode(incoming, tdm__export_return_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    export_finish(runtime->memory, tdm__incoming_conn(incoming), message.export_id);
    tdm__incoming_reply_pack(incoming, "");
}

/* ---- the importing side ------------------------------------------------------------------ */

/* Close watcher of an imported value. The memory stays mapped. */
static void on_exporter_closed(struct tdm__close_watcher *closer)
{
    ((struct imported_value *)closer)->conn = NULL;
}

void tdm__export_return(struct tdm__conn *conn, uint64_t id)
{
    struct tdm__rpc_request request = {.method = "object.return", .deadline_ms = TDM__NEVER};
    const struct tdm__export_return_message message = {id};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        return; /* The export ends with the connection. */
    }
    if (tdm__export_return_encode(&message, writer) == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        (void)tdm__conn_call(conn, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
}

/* Called when the document of an imported value is destroyed, on any thread. */
static void imported_value_end(void *arg)
{
    struct imported_value *imported_value = arg;
    struct tdm__object_memory *memory = imported_value->memory;
    TDM__LOOP_ENTER(tdm__current_loop());

    tdm__segment_views_release(&memory->views, imported_value->view);
    memory->read_count--;
    if (imported_value->conn != NULL) {
        tdm__conn_unwatch_close(&imported_value->closer);
        tdm__export_return(imported_value->conn, imported_value->id);
    }
    free(imported_value);
    tdm__object_memory_release(memory);
}

/* Close watcher: frees the exporter. */
static void on_exporter_gone(struct tdm__close_watcher *closer)
{
    exporter_end((struct exporter *)closer);
}

/* Finds or creates the exporter of a connection. Returns NULL if the connection has closed or
 * there is no memory; mappings of its segments are then not kept. */
static const struct exporter *exporter_get(struct tdm__object_memory *memory,
                                           struct tdm__conn *conn)
{
    struct exporter *exporter;

    TAILQ_FOREACH(exporter, &memory->exporters, link)
    {
        if (exporter->conn == conn) {
            return exporter;
        }
    }
    exporter = calloc(1, sizeof(*exporter));
    if (exporter == NULL) {
        return NULL;
    }
    *exporter = (struct exporter){.closer.fn = on_exporter_gone, .memory = memory, .conn = conn};
    if (tdm__conn_watch_close(conn, &exporter->closer) != TDM_OK) {
        free(exporter);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&memory->exporters, exporter, link);
    return exporter;
}

/* Returns the mapping of the segment `id` with one more user, mapping it if necessary. Closes
 * `fd` in any case. */
static tdm_status imported_view_get(struct tdm__object_memory *memory, const struct tdm__id *id,
                                    int fd, size_t capacity_bytes,
                                    struct tdm__segment_view **view_out)
{
    struct tdm__segment_view *view = tdm__segment_views_find(&memory->views, id);

    tdm__memory_quota_watch(memory);
    if (view == NULL) {
        return tdm__segment_views_open(&memory->views, id, fd, capacity_bytes, view_out);
    }
    (void)close(fd);
    if (view->capacity_bytes != capacity_bytes) {
        tdm__segment_views_release(&memory->views, view);
        return tdm__fail(TDM_E_PROTOCOL, "a segment of %zu bytes, said to have %zu",
                         view->capacity_bytes, capacity_bytes);
    }
    *view_out = view;
    return TDM_OK;
}

/* Creates the document of an imported value whose mapping is open. Takes ownership of
 * `imported_value`. */
static tdm_status imported_value_open(struct imported_value *imported_value, struct tdm__conn *conn,
                                      uint64_t size_bytes, tdm_document **document_out)
{
    struct tdm_bytes bytes = {imported_value->view->address, size_bytes};
    tdm_status status;

    imported_value->view->exporter = exporter_get(imported_value->memory, conn);
    imported_value->closer.fn = on_exporter_closed;
    imported_value->conn =
        tdm__conn_watch_close(conn, &imported_value->closer) == TDM_OK ? conn : NULL;
    tdm__object_memory_retain(imported_value->memory);
    imported_value->memory->read_count++;
    status =
        size_bytes > imported_value->view->capacity_bytes
            ? tdm__fail(TDM_E_PROTOCOL, "a value of %llu bytes in a segment of %zu",
                        (unsigned long long)size_bytes, imported_value->view->capacity_bytes)
            : tdm__document_parse_borrowed(bytes, imported_value_end, imported_value, document_out);
    if (status != TDM_OK) {
        imported_value_end(imported_value);
    }
    return status;
}

/* Creates an imported value with the mapping of its segment. Closes `fd` in any case. */
static tdm_status imported_value_create(struct tdm__object_memory *memory,
                                        const struct tdm__value_export_message *message, int fd,
                                        struct imported_value **imported_value_out)
{
    struct imported_value *imported_value = calloc(1, sizeof(*imported_value));
    tdm_status status;

    if (imported_value == NULL) {
        (void)close(fd);
        return tdm__fail(TDM_E_NOMEM, "a large value");
    }
    imported_value->memory = memory;
    imported_value->id = message->export_id;
    status = imported_view_get(memory, &message->segment, fd, message->capacity_bytes,
                               &imported_value->view);
    if (status != TDM_OK) {
        free(imported_value);
        return status;
    }
    *imported_value_out = imported_value;
    return TDM_OK;
}

tdm_status tdm__large_import_message(tdm_runtime *runtime, struct tdm__conn *conn,
                                     const struct tdm__value_export_message *message, int fd,
                                     tdm_document **document_out)
{
    struct imported_value *imported_value;
    tdm_status status = imported_value_create(runtime->memory, message, fd, &imported_value);

    if (status != TDM_OK) {
        /* Otherwise the exporter would keep the value until the connection closes. */
        tdm__export_return(conn, message->export_id);
        return status;
    }
    return imported_value_open(imported_value, conn, message->size_bytes, document_out);
}

tdm_status tdm__large_import(tdm_runtime *runtime, struct tdm__conn *conn,
                             const tdm_value *export_description, int fd,
                             tdm_document **document_out)
{
    struct tdm__value_export_message message;
    tdm_status status = tdm__value_export_decode(export_description, &message);

    if (status != TDM_OK) {
        (void)close(fd);
        return status;
    }
    return tdm__large_import_message(runtime, conn, &message, fd, document_out);
}
