/* pull.c - large values of other nodes, fetched in chunks straight into shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm__pull: one value that is being fetched. A pull is active while `fn` is set. It
 * ends when all chunks have arrived, one has failed, or the caller abandons it; `fn` is then
 * NULL. An ended pull is freed when no request is in flight, and then returns the export to the
 * value's owner. At most TDM__PULL_CHUNKS_IN_FLIGHT requests are in flight.
 *
 * The other side, tdm__pull_serve(), only copies chunks out of an exported value. Everything
 * runs on the loop with its lock. docs/protocols/references.md, "Large values", specifies the
 * messages. */

#include "actors/objects/pull.h"

#include "actors/objects/export.h"
#include "actors/objects/object_memory.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* A value that is being fetched. It is freed after it has ended and no request is in flight. */
struct tdm__pull {
    tdm_runtime *runtime; /* The runtime that it belongs to, borrowed. */
    /* Connection to the value's owner, borrowed; its calls end before it does. */
    struct tdm__conn *conn;
    uint64_t export_id; /* Number of the export to return; 0 before the offer has been parsed. */
    struct tdm__large *large; /* Destination, owned; NULL after it was passed to `fn`. */
    uint64_t size_bytes;      /* Size of the value. */
    uint64_t requested_bytes; /* Bytes requested so far. */
    uint64_t received_bytes;  /* Bytes received so far. */
    uint32_t in_flight;       /* Number of requests in flight. */
    /* Callback for the result; NULL after its call, or after the pull was abandoned. */
    tdm__pull_done_fn *fn;
    void *arg; /* Argument of `fn`. */
};

/* One request for a chunk in flight. Freed when its reply arrives. */
struct chunk {
    struct tdm__pull *pull; /* The pull that sent the request. */
    uint64_t offset;        /* First byte of the chunk in the value. */
    uint64_t size_bytes;    /* Number of bytes. */
};

/* ---- the reader's side -------------------------------------------------------------------- */

bool tdm__pull_is_offer(struct tdm_bytes packed)
{
    static const char head[] = "\x81\xa4pull";

    return packed.size_bytes > sizeof(head) && memcmp(packed.data, head, sizeof(head) - 1) == 0;
}

/* Parses an offer. Returns TDM_E_PROTOCOL if it is malformed or its size is impossible. */
static tdm_status offer_parse(struct tdm_bytes offer, struct tdm__value_offer_message *offer_out)
{
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(offer, &document));
    status =
        tdm__value_offer_decode(tdm_value_find(tdm_document_root(document), "pull"), offer_out);
    tdm_document_destroy(document);
    TDM_TRY(status);
    if (offer_out->size_bytes == 0 || offer_out->size_bytes > UINT64_MAX >> 16) {
        return tdm__fail(TDM_E_PROTOCOL, "a value of %llu bytes is offered",
                         (unsigned long long)offer_out->size_bytes);
    }
    return TDM_OK;
}

/* Frees the pull and returns the export if the pull has ended and no request is in flight. */
static void pull_free_if_ended(struct tdm__pull *pull)
{
    if (pull->fn == NULL && pull->in_flight == 0) {
        if (pull->export_id != 0) {
            tdm__export_return(pull->conn, pull->export_id);
        }
        tdm__large_release(pull->large);
        free(pull);
    }
}

/* Ends the pull with a failure, unless it has ended. */
static void pull_fail(struct tdm__pull *pull, tdm_status status, const char *detail)
{
    tdm__pull_done_fn *fn = pull->fn;

    if (fn != NULL) {
        pull->fn = NULL;
        fn(pull->arg, status, detail, NULL);
    }
}

/* Ends the pull with its value, unless it has ended. */
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

/* Copies a chunk that arrived to its place in the value. */
static tdm_status chunk_store(const struct chunk *chunk, const struct tdm__rpc_reply *reply)
{
    struct tdm__value_chunk_message message;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm__rpc_reply_document(reply, &document));
    status = tdm__value_chunk_decode(tdm_document_root(document), &message);
    if (status == TDM_OK && message.bytes.size_bytes != chunk->size_bytes) {
        status = tdm__fail(TDM_E_PROTOCOL, "%llu bytes of a value were requested, %zu arrived",
                           (unsigned long long)chunk->size_bytes, message.bytes.size_bytes);
    }
    if (status == TDM_OK) {
        memcpy((char *)chunk->pull->large->segment->address + chunk->offset, message.bytes.data,
               message.bytes.size_bytes);
    }
    tdm_document_destroy(document);
    return status;
}

static tdm_status pull_request_chunks(struct tdm__pull *pull);

/* Reply to one request: stores the chunk, sends more requests, and ends the pull if it was the
 * last. */
static void on_chunk(void *arg, struct tdm__rpc_reply *reply)
{
    struct chunk *chunk = arg;
    struct tdm__pull *pull = chunk->pull;
    tdm_status status = reply->status;
    const char *detail = reply->detail;

    pull->in_flight--;
    if (status == TDM_OK && pull->fn != NULL) {
        status = chunk_store(chunk, reply);
        pull->received_bytes += chunk->size_bytes;
        if (status == TDM_OK && pull->received_bytes < pull->size_bytes) {
            status = pull_request_chunks(pull);
        }
        detail = tdm_error_detail();
    }
    free(chunk);
    if (status != TDM_OK) {
        pull_fail(pull, status, detail);
    } else if (pull->received_bytes == pull->size_bytes) {
        pull_succeed(pull);
    }
    pull_free_if_ended(pull);
}

/* Sends the request for the next chunk. */
static tdm_status pull_request_chunk(struct tdm__pull *pull, tdm_writer *writer)
{
    struct tdm__rpc_request request = {.method = "object.read", .deadline_ms = TDM__NEVER};
    uint64_t left_bytes = pull->size_bytes - pull->requested_bytes;
    struct chunk *chunk = malloc(sizeof(*chunk));
    struct tdm__value_read_message message;
    tdm_status status;

    if (chunk == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a chunk of a value");
    }
    *chunk = (struct chunk){
        .pull = pull,
        .offset = pull->requested_bytes,
        .size_bytes = left_bytes < TDM__PULL_CHUNK_BYTES ? left_bytes : TDM__PULL_CHUNK_BYTES};
    tdm_writer_clear(writer);
    message = (struct tdm__value_read_message){pull->export_id, chunk->offset, chunk->size_bytes};
    status = tdm__value_read_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(pull->conn, &request, on_chunk, chunk, NULL);
    }
    if (status != TDM_OK) {
        free(chunk);
        return status;
    }
    pull->requested_bytes += chunk->size_bytes;
    pull->in_flight++;
    return TDM_OK;
}

/* Sends requests until enough are in flight or all chunks have been requested. */
static tdm_status pull_request_chunks(struct tdm__pull *pull)
{
    tdm_writer *writer;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm_writer_create(&writer));
    while (status == TDM_OK && pull->requested_bytes < pull->size_bytes &&
           pull->in_flight < TDM__PULL_CHUNKS_IN_FLIGHT) {
        status = pull_request_chunk(pull, writer);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__pull_start(tdm_runtime *runtime, struct tdm__conn *conn, struct tdm_bytes offer,
                           tdm__pull_done_fn *fn, void *arg, struct tdm__pull **pull_out)
{
    struct tdm__pull *pull = calloc(1, sizeof(*pull));
    tdm_status status = pull == NULL ? tdm__fail(TDM_E_NOMEM, "fetching a value") : TDM_OK;
    struct tdm__value_offer_message message;

    if (status == TDM_OK) {
        pull->runtime = runtime;
        pull->conn = conn;
        status = offer_parse(offer, &message);
    }
    if (status == TDM_OK) {
        pull->export_id = message.export_id;
        pull->size_bytes = message.size_bytes;
        status = tdm__large_create_over_limit(runtime, pull->size_bytes, &pull->large);
    }
    if (status == TDM_OK) {
        status = pull_request_chunks(pull);
    }
    if (status != TDM_OK) {
        if (pull != NULL) {
            pull_free_if_ended(pull);
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
        pull_free_if_ended(pull);
    }
}

tdm_status tdm__pull_decline(struct tdm__conn *conn, struct tdm_bytes offer)
{
    struct tdm__value_offer_message message;

    TDM_TRY(offer_parse(offer, &message));
    tdm__export_return(conn, message.export_id);
    return TDM_OK;
}

/* ---- the owner's side --------------------------------------------------------------------- */

void tdm__pull_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming)
{
    struct tdm__large *large;
    struct tdm__value_read_message message;
    struct tdm__value_chunk_message reply;
    struct tdm_bytes bytes;

    if (tdm__incoming_decode(incoming, tdm__value_read_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    large = tdm__export_find(runtime->memory, tdm__incoming_conn(incoming), message.export_id);
    if (large == NULL) {
        tdm__incoming_fail(incoming, TDM_E_VALUE_LOST, "that value is not exported to this reader");
        return;
    }
    bytes = tdm__large_bytes(large);
    if (message.size_bytes > TDM__PULL_CHUNK_BYTES || message.offset > bytes.size_bytes ||
        message.size_bytes > bytes.size_bytes - message.offset) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, "a chunk beyond the end of its value");
        return;
    }
    reply.bytes = (struct tdm_bytes){(const char *)bytes.data + message.offset, message.size_bytes};
    tdm__incoming_reply_message(incoming, tdm__value_chunk_table(), &reply);
}
