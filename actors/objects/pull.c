/* pull.c - large values of other nodes: fetched in chunks, straight into shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/pull.h"

#include "actors/objects/object_memory.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Freed when its end has been told and no chunk is in flight. */
struct tdm__pull {
    tdm_runtime *runtime;     /* borrowed */
    struct tdm__conn *conn;   /* borrowed: its calls end before it does */
    uint64_t export_id;       /* 0: not known yet */
    struct tdm__large *large; /* owned; NULL once it was handed over */
    uint64_t size_bytes;
    uint64_t asked_bytes;
    uint64_t got_bytes;
    uint32_t in_flight;
    tdm__pull_done_fn *fn; /* NULL once it has been called, or must not be */
    void *arg;
};

struct chunk {
    struct tdm__pull *pull;
    uint64_t offset;
    uint64_t size_bytes;
};

/* ---- the reader ------------------------------------------------------------------------- */

bool tdm__pull_is_offer(struct tdm_bytes packed)
{
    static const char head[] = "\x81\xa4pull";

    return packed.size_bytes > sizeof(head) && memcmp(packed.data, head, sizeof(head) - 1) == 0;
}

static tdm_status read_offer(struct tdm_bytes offer, uint64_t *export_id_out, uint64_t *size_out)
{
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(offer, &document));
    status = tdm_unpack(tdm_value_find(tdm_document_root(document), "pull"), "uu", export_id_out,
                        size_out);
    tdm_document_destroy(document);
    if (status != TDM_OK) {
        return status == TDM_E_TYPE ? TDM_E_PROTOCOL : status;
    }
    if (*size_out == 0 || *size_out > UINT64_MAX >> 16) {
        return tdm__fail(TDM_E_PROTOCOL, "a value of %llu bytes is offered",
                         (unsigned long long)*size_out);
    }
    return TDM_OK;
}

/* However it ended, the export_id goes back. */
static void release_if_over(struct tdm__pull *pull)
{
    if (pull->fn == NULL && pull->in_flight == 0) {
        if (pull->export_id != 0) {
            tdm__export_return(pull->conn, pull->export_id);
        }
        tdm__large_release(pull->large);
        free(pull);
    }
}

static void pull_fail(struct tdm__pull *pull, tdm_status status, const char *detail)
{
    tdm__pull_done_fn *fn = pull->fn;

    if (fn != NULL) {
        pull->fn = NULL;
        fn(pull->arg, status, detail, NULL);
    }
}

static void pull_succeed(struct tdm__pull *pull)
{
    tdm__pull_done_fn *fn = pull->fn;
    struct tdm__large *large = pull->large;

    if (fn != NULL) {
        pull->fn = NULL;
        pull->large = NULL;
        fn(pull->arg, TDM_OK, "", large);
    }
}

static tdm_status take_chunk(const struct chunk *chunk, const struct tdm__rpc_reply *reply)
{
    struct tdm_bytes bytes;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm__rpc_reply_document(reply, &document));
    status = tdm_unpack(tdm_document_root(document), "b", &bytes.data, &bytes.size_bytes);
    if (status == TDM_OK && bytes.size_bytes != chunk->size_bytes) {
        status = tdm__fail(TDM_E_PROTOCOL, "%llu bytes of a value were asked for, %zu came",
                           (unsigned long long)chunk->size_bytes, bytes.size_bytes);
    }
    if (status == TDM_OK) {
        memcpy((char *)chunk->pull->large->segment->address + chunk->offset, bytes.data,
               bytes.size_bytes);
    }
    tdm_document_destroy(document);
    return status;
}

static tdm_status ask_more(struct tdm__pull *pull);

static void on_chunk(void *arg, struct tdm__rpc_reply *reply)
{
    struct chunk *chunk = arg;
    struct tdm__pull *pull = chunk->pull;
    tdm_status status = reply->status;
    const char *detail = reply->detail;

    pull->in_flight--;
    if (status == TDM_OK && pull->fn != NULL) {
        status = take_chunk(chunk, reply);
        pull->got_bytes += chunk->size_bytes;
        if (status == TDM_OK && pull->got_bytes < pull->size_bytes) {
            status = ask_more(pull);
        }
        detail = tdm_error_detail();
    }
    free(chunk);
    if (status != TDM_OK) {
        pull_fail(pull, status, detail);
    } else if (pull->got_bytes == pull->size_bytes) {
        pull_succeed(pull);
    }
    release_if_over(pull);
}

static tdm_status ask_chunk(struct tdm__pull *pull, tdm_writer *writer)
{
    struct tdm__rpc_request request = {.method = "object.read", .deadline_ms = TDM__NEVER};
    uint64_t left_bytes = pull->size_bytes - pull->asked_bytes;
    struct chunk *chunk = malloc(sizeof(*chunk));
    tdm_status status;

    if (chunk == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a chunk of a value");
    }
    *chunk = (struct chunk){
        .pull = pull,
        .offset = pull->asked_bytes,
        .size_bytes = left_bytes < TDM__PULL_CHUNK_BYTES ? left_bytes : TDM__PULL_CHUNK_BYTES};
    tdm_writer_clear(writer);
    status = tdm_pack(writer, "uuu", pull->export_id, chunk->offset, chunk->size_bytes);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(pull->conn, &request, on_chunk, chunk, NULL);
    }
    if (status != TDM_OK) {
        free(chunk);
        return status;
    }
    pull->asked_bytes += chunk->size_bytes;
    pull->in_flight++;
    return TDM_OK;
}

static tdm_status ask_more(struct tdm__pull *pull)
{
    tdm_writer *writer;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm_writer_create(&writer));
    while (status == TDM_OK && pull->asked_bytes < pull->size_bytes &&
           pull->in_flight < TDM__PULL_CHUNKS_IN_FLIGHT) {
        status = ask_chunk(pull, writer);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__pull_start(tdm_runtime *runtime, struct tdm__conn *conn, struct tdm_bytes offer,
                           tdm__pull_done_fn *fn, void *arg, struct tdm__pull **pull_out)
{
    struct tdm__pull *pull = calloc(1, sizeof(*pull));
    tdm_status status = pull == NULL ? tdm__fail(TDM_E_NOMEM, "fetching a value") : TDM_OK;

    if (status == TDM_OK) {
        pull->runtime = runtime;
        pull->conn = conn;
        status = read_offer(offer, &pull->export_id, &pull->size_bytes);
    }
    if (status == TDM_OK) {
        status = tdm__large_create_over_limit(runtime, pull->size_bytes, &pull->large);
    }
    if (status == TDM_OK) {
        status = ask_more(pull);
    }
    if (status != TDM_OK) {
        if (pull != NULL) {
            release_if_over(pull);
        }
        return status;
    }
    pull->fn = fn;
    pull->arg = arg;
    *pull_out = pull;
    return TDM_OK;
}

void tdm__pull_abandon(struct tdm__pull *pull)
{
    if (pull != NULL) {
        pull->fn = NULL;
        release_if_over(pull);
    }
}

tdm_status tdm__pull_decline(struct tdm__conn *conn, struct tdm_bytes offer)
{
    uint64_t size_bytes;
    uint64_t export_id;

    TDM_TRY(read_offer(offer, &export_id, &size_bytes));
    tdm__export_return(conn, export_id);
    return TDM_OK;
}

/* ---- the maker -------------------------------------------------------------------------- */

void tdm__pull_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming)
{
    struct tdm__large *large;
    uint64_t export_id;
    uint64_t offset;
    uint64_t size_bytes;
    struct tdm_bytes bytes;

    if (tdm__incoming_unpack(incoming, "uuu", &export_id, &offset, &size_bytes) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    large = tdm__export_find(runtime->memory, tdm__incoming_conn(incoming), export_id);
    if (large == NULL) {
        tdm__incoming_fail(incoming, TDM_E_VALUE_LOST, "that value is not lent to this reader");
        return;
    }
    bytes = tdm__large_bytes(large);
    if (size_bytes > TDM__PULL_CHUNK_BYTES || offset > bytes.size_bytes ||
        size_bytes > bytes.size_bytes - offset) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, "a chunk beyond the end of its value");
        return;
    }
    tdm__incoming_reply_pack(incoming, "b", (const char *)bytes.data + offset, (size_t)size_bytes);
}
