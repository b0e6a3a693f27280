/* lend.c - large values of this process lent to others, and those of others read here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/memory.h"
#include "actors/objects/pull.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/wire/value.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The maker's: to one reader. */
struct lending {
    struct tdm__closer closer;
    TAILQ_ENTRY(lending) link;
    struct tdm__conn *conn;
    uint64_t id;
    struct tdm__large *large; /* counted */
};

/* The reader's: a connection on which segments were lent that are mapped here. */
struct lender {
    struct tdm__closer closer;
    TAILQ_ENTRY(lender) link;
    struct tdm__memory *memory;
    const struct tdm__conn *conn;
};

/* The reader's: of one value that another process made. */
struct reading {
    struct tdm__closer closer;
    struct tdm__memory *memory; /* counted */
    struct tdm__conn *conn;     /* NULL once it has ended */
    uint64_t id;
    struct tdm__view *view;
};

/* ---- lending ---------------------------------------------------------------------------- */

static void lending_end(struct lending *lending)
{
    struct tdm__large *large = lending->large;

    TAILQ_REMOVE(&large->memory->lendings, lending, link);
    free(lending);
    tdm__large_release(large);
}

static void on_reader_closed(struct tdm__closer *closer)
{
    lending_end((struct lending *)closer);
}

static void lender_end(struct lender *lender)
{
    tdm__views_forget(&lender->memory->views, lender);
    TAILQ_REMOVE(&lender->memory->lenders, lender, link);
    free(lender);
}

void tdm__lendings_end(struct tdm__memory *memory)
{
    while (!TAILQ_EMPTY(&memory->lendings)) {
        struct lending *lending = TAILQ_FIRST(&memory->lendings);

        tdm__conn_unwatch_close(&lending->closer);
        lending_end(lending);
    }
    while (!TAILQ_EMPTY(&memory->lenders)) {
        struct lender *lender = TAILQ_FIRST(&memory->lenders);

        tdm__conn_unwatch_close(&lender->closer);
        lender_end(lender);
    }
}

void tdm__memory_use(tdm_runtime *runtime, struct tdm__memory_use *use_out)
{
    const struct tdm__memory *memory = runtime->memory;
    const struct lending *lending;
    TDM__LOCK(runtime);

    *use_out = (struct tdm__memory_use){.used_bytes = memory->segments.used_bytes,
                                        .idle_bytes = memory->segments.idle_bytes,
                                        .spilled_bytes = memory->spilled_bytes,
                                        .kept_bytes = memory->views.unused_bytes,
                                        .read_count = memory->read_count};
    if (memory->account != NULL) {
        struct tdm__account_sums sums;

        tdm__account_read(memory->account, &sums);
        use_out->node_used_bytes = sums.used_bytes;
    }
    TAILQ_FOREACH(lending, &memory->lendings, link)
    {
        use_out->lent_count++;
    }
}

void tdm__lendings_count(struct tdm__memory *memory)
{
    const struct lending *lending;
    struct tdm__large *large;

    TAILQ_FOREACH(large, &memory->values, link)
    {
        large->readers_count = 0;
    }
    TAILQ_FOREACH(lending, &memory->lendings, link)
    {
        lending->large->readers_count++;
    }
}

static tdm_status lend(struct tdm__large *large, struct tdm__conn *conn, uint64_t *id_out)
{
    struct tdm__memory *memory = large->memory;
    struct lending *lending;
    tdm_status status;

    TDM_TRY(tdm__large_load(large));
    lending = calloc(1, sizeof(*lending));
    if (lending == NULL) {
        return tdm__fail(TDM_E_NOMEM, "lending a large value");
    }
    lending->closer.fn = on_reader_closed;
    lending->conn = conn;
    lending->id = memory->last_loan + 1;
    lending->large = large;
    status = tdm__conn_watch_close(conn, &lending->closer);
    if (status != TDM_OK) {
        free(lending);
        return status;
    }
    memory->last_loan++;
    tdm__large_retain(large);
    TAILQ_INSERT_TAIL(&memory->lendings, lending, link);
    *id_out = lending->id;
    return TDM_OK;
}

static struct lending *find_lending(struct tdm__memory *memory, const struct tdm__conn *conn,
                                    uint64_t id)
{
    struct lending *lending;

    TAILQ_FOREACH(lending, &memory->lendings, link)
    {
        if (lending->id == id && lending->conn == conn) {
            return lending;
        }
    }
    return NULL;
}

struct tdm__large *tdm__loan_find(struct tdm__memory *memory, const struct tdm__conn *conn,
                                  uint64_t id)
{
    struct lending *lending = find_lending(memory, conn, id);

    return lending == NULL ? NULL : lending->large;
}

static void end_loan(struct tdm__memory *memory, const struct tdm__conn *conn, uint64_t id)
{
    struct lending *lending = find_lending(memory, conn, id);

    if (lending != NULL) {
        tdm__conn_unwatch_close(&lending->closer);
        lending_end(lending);
    }
}

/* (loan, segment, its capacity, bytes of the value) */
tdm_status tdm__large_lend(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer,
                           int *fd_out)
{
    uint64_t id;
    tdm_status status;

    TDM_TRY(lend(large, conn, &id));
    status = tdm_pack(writer, "ubuu", id, (const void *)large->segment->id.bytes,
                      sizeof(large->segment->id.bytes),
                      (uint64_t)large->segment->capacity_bytes, (uint64_t)large->size_bytes);
    if (status != TDM_OK) {
        end_loan(large->memory, conn, id);
        return status;
    }
    *fd_out = large->segment->fd;
    return TDM_OK;
}

tdm_status tdm__large_offer(struct tdm__large *large, struct tdm__conn *conn,
                            tdm_writer *writer)
{
    uint64_t id;

    TDM_TRY(lend(large, conn, &id));
    tdm_write_map(writer, 1);
    tdm_write_string(writer, "pull");
    tdm_write_array(writer, 2);
    tdm_write_uint(writer, id);
    tdm_write_uint(writer, large->size_bytes);
    if (tdm_writer_status(writer) != TDM_OK) {
        end_loan(large->memory, conn, id);
        return tdm__fail(TDM_E_NOMEM, "offering a large value");
    }
    return TDM_OK;
}

void tdm__large_returned(tdm_runtime *runtime, struct tdm__incoming *incoming)
{
    uint64_t id;

    if (tdm__incoming_unpack(incoming, "u", &id) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    end_loan(runtime->memory, tdm__incoming_conn(incoming), id);
    tdm__incoming_reply_pack(incoming, "");
}

/* ---- borrowing -------------------------------------------------------------------------- */

static void on_lender_closed(struct tdm__closer *closer)
{
    ((struct reading *)closer)->conn = NULL; /* the memory stays mapped here all the same */
}

void tdm__loan_return(struct tdm__conn *conn, uint64_t id)
{
    struct tdm__request request = {.method = "object.return", .deadline_ms = TDM__NEVER};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        return; /* it comes back with the connection's end */
    }
    if (tdm_pack(writer, "u", id) == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        (void)tdm__conn_call(conn, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
}

static void reading_ends(void *arg)
{
    struct reading *reading = arg;
    struct tdm__memory *memory = reading->memory;
    TDM__ENTER(tdm__loop_to_enter());

    tdm__views_release(&memory->views, reading->view);
    memory->read_count--;
    if (reading->conn != NULL) {
        tdm__conn_unwatch_close(&reading->closer);
        tdm__loan_return(reading->conn, reading->id);
    }
    free(reading);
    tdm__memory_release(memory);
}

static void on_lender_gone(struct tdm__closer *closer)
{
    lender_end((struct lender *)closer);
}

/* NULL when what it lends is not to be kept: it is gone already, or there is no memory. */
static const struct lender *lender_of(struct tdm__memory *memory, struct tdm__conn *conn)
{
    struct lender *lender;

    TAILQ_FOREACH(lender, &memory->lenders, link)
    {
        if (lender->conn == conn) {
            return lender;
        }
    }
    lender = calloc(1, sizeof(*lender));
    if (lender == NULL) {
        return NULL;
    }
    *lender = (struct lender){.closer.fn = on_lender_gone, .memory = memory, .conn = conn};
    if (tdm__conn_watch_close(conn, &lender->closer) != TDM_OK) {
        free(lender);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&memory->lenders, lender, link);
    return lender;
}

static tdm_status find_view(struct tdm__memory *memory, const struct tdm__id *id, int fd,
                            size_t capacity_bytes, struct tdm__view **view_out)
{
    struct tdm__view *view = tdm__views_find(&memory->views, id);

    tdm__room_watch(memory);
    if (view == NULL) {
        return tdm__views_open(&memory->views, id, fd, capacity_bytes, view_out);
    }
    (void)close(fd);
    if (view->capacity_bytes != capacity_bytes) {
        tdm__views_release(&memory->views, view);
        return tdm__fail(TDM_E_PROTOCOL, "a segment of %zu bytes, said to have %zu",
                         view->capacity_bytes, capacity_bytes);
    }
    *view_out = view;
    return TDM_OK;
}

/* Takes `reading`, whose view is open. */
static tdm_status read_in_place(struct reading *reading, struct tdm__conn *conn,
                                uint64_t size_bytes, tdm_document **document_out)
{
    struct tdm_bytes bytes = {reading->view->address, size_bytes};
    tdm_status status;

    reading->view->lender = lender_of(reading->memory, conn);
    reading->closer.fn = on_lender_closed;
    reading->conn = tdm__conn_watch_close(conn, &reading->closer) == TDM_OK ? conn : NULL;
    tdm__memory_retain(reading->memory);
    reading->memory->read_count++;
    status = size_bytes > reading->view->capacity_bytes
                 ? tdm__fail(TDM_E_PROTOCOL, "a value of %llu bytes in a segment of %zu",
                             (unsigned long long)size_bytes, reading->view->capacity_bytes)
                 : tdm__document_parse_borrowed(bytes, reading_ends, reading, document_out);
    if (status != TDM_OK) {
        reading_ends(reading);
    }
    return status;
}

tdm_status tdm__large_borrow(tdm_runtime *runtime, struct tdm__conn *conn,
                             const tdm_value *told, int fd, tdm_document **document_out)
{
    struct reading *reading = calloc(1, sizeof(*reading));
    uint64_t capacity_bytes;
    uint64_t size_bytes;
    struct tdm_bytes segment;
    struct tdm__id id = {{0}};
    tdm_status status = reading == NULL ? tdm__fail(TDM_E_NOMEM, "a large value") : TDM_OK;

    if (status == TDM_OK) {
        reading->memory = runtime->memory;
        status = tdm_unpack(told, "ubuu", &reading->id, &segment.data, &segment.size_bytes,
                            &capacity_bytes, &size_bytes);
    }
    if (status == TDM_OK && segment.size_bytes != sizeof(id.bytes)) {
        status = tdm__fail(TDM_E_PROTOCOL, "a segment's id of %zu bytes", segment.size_bytes);
    }
    if (status != TDM_OK) {
        (void)close(fd);
        free(reading);
        return status == TDM_E_TYPE ? TDM_E_PROTOCOL : status;
    }
    memcpy(id.bytes, segment.data, sizeof(id.bytes));
    status = find_view(runtime->memory, &id, fd, capacity_bytes, &reading->view);
    if (status != TDM_OK) {
        free(reading);
        return status;
    }
    return read_in_place(reading, conn, size_bytes, document_out);
}

/* ---- calls and replies ------------------------------------------------------------------- */

tdm_status tdm__incoming_document(tdm_runtime *runtime, struct tdm__incoming *incoming,
                                  tdm_document **document_out)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    const tdm_value *told;
    int fd = tdm__incoming_take_fd(incoming, 0);
    tdm_status status;

    if (fd < 0) {
        return tdm__incoming_take_document(incoming, document_out);
    }
    status = conn == NULL ? tdm__fail(TDM_E_CLOSED, "the caller is gone")
                          : tdm__incoming_value(incoming, &told);
    if (status != TDM_OK) {
        (void)close(fd);
        return status;
    }
    return tdm__large_borrow(runtime, conn, told, fd, document_out);
}

void tdm__incoming_give_back(struct tdm__incoming *incoming)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct tdm_bytes packed = tdm__incoming_packed(incoming);
    int fd = tdm__incoming_take_fd(incoming, 0);
    const tdm_value *told;

    if (conn != NULL && fd >= 0 && tdm__incoming_value(incoming, &told) == TDM_OK) {
        tdm__loan_return(conn, tdm_value_uint(tdm_value_at(told, 0), 0));
    } else if (conn != NULL && tdm__is_offer(packed)) {
        (void)tdm__pull_decline(conn, packed);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

void tdm__incoming_refuse(struct tdm__incoming *incoming, tdm_status status, const char *detail)
{
    tdm__incoming_give_back(incoming);
    tdm__incoming_fail(incoming, status, detail);
}

tdm_status tdm__result_document(tdm_runtime *runtime, struct tdm__conn *conn,
                                struct tdm__reply *reply, tdm_document **document_out)
{
    tdm_document *told;
    tdm_status status;
    int fd;

    if (reply->fds_count == 0 || reply->fds[0] < 0) {
        return tdm__reply_document(reply, document_out);
    }
    TDM_TRY(tdm_document_parse(reply->packed, &told));
    fd = reply->fds[0];
    reply->fds[0] = -1;
    status = tdm__large_borrow(runtime, conn, tdm_document_root(told), fd, document_out);
    tdm_document_destroy(told);
    return status;
}

/* What is sent for a large value. */
struct told {
    tdm_writer *writer; /* owned */
    struct tdm_bytes packed;
    int fd;
    uint32_t fds_count;
};

static bool is_near(const tdm_runtime *runtime, const struct tdm__incoming *incoming)
{
    return tdm__id_equal(&tdm__incoming_peer(incoming)->node, &runtime->self.node);
}

bool tdm__large_is_offered(const struct tdm__large *large, const tdm_runtime *runtime,
                           const struct tdm__incoming *incoming)
{
    return tdm__incoming_conn(incoming) != NULL && !is_near(runtime, incoming) &&
           large->size_bytes > TDM__PULL_CHUNK_BYTES;
}

static tdm_status tell(struct tdm__large *large, const tdm_runtime *runtime,
                       const struct tdm__incoming *incoming, struct told *told)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    bool offered = tdm__large_is_offered(large, runtime, incoming);
    bool near = is_near(runtime, incoming);

    TDM_TRY(tdm__large_load(large));
    if (conn == NULL || (!near && !offered)) {
        told->packed = tdm__large_bytes(large);
        return TDM_OK;
    }
    TDM_TRY(tdm_writer_create(&told->writer));
    TDM_TRY(near ? tdm__large_lend(large, conn, told->writer, &told->fd)
                 : tdm__large_offer(large, conn, told->writer));
    told->fds_count = near ? 1 : 0;
    told->packed = tdm_writer_bytes(told->writer);
    return TDM_OK;
}

void tdm__large_reply(struct tdm__large *large, tdm_runtime *runtime,
                      struct tdm__incoming *incoming)
{
    struct told told = {.fd = -1};
    tdm_status status = tell(large, runtime, incoming, &told);

    if (status == TDM_OK) {
        tdm__incoming_reply(incoming, told.packed, &told.fd, told.fds_count);
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
    tdm_writer_destroy(told.writer);
}

tdm_status tdm__large_item(struct tdm__large *large, const tdm_runtime *runtime,
                           struct tdm__incoming *incoming, uint64_t index)
{
    struct told told = {.fd = -1};
    tdm_status status = tell(large, runtime, incoming, &told);

    if (status == TDM_OK) {
        status = tdm__incoming_item(incoming, index, told.packed, &told.fd, told.fds_count);
    }
    tdm_writer_destroy(told.writer);
    return status;
}
