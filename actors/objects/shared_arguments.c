/* shared_arguments.c - calls whose arguments contain large values that are read where they are. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A value that is passed by the letter r is part of the arguments of a call. If it is large and the
 * callee is on this node, its bytes are not copied into the arguments: they have a *part* in its
 * place, a number, and the descriptor of the value's own segment travels beside the message. So
 * every callee maps the same pages.
 *
 * The message is a map where otherwise there is an array: {"shared": shared_arguments}. The callee
 * imports each value as a document (export.c) and then parses the arguments with the roots of these
 * documents in place of the parts. That document owns the others. Everything runs with the loop's
 * lock, except that documents are destroyed on any thread. */

#include "actors/objects/shared_arguments.h"

#include "actors/objects/export.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/wire/value.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* First bytes of a message with shared values: a map with the key "shared". */
static const char message_head[] = "\x81\xa6shared";

const tdm_value *tdm__result_as_argument(const tdm_value *result)
{
    return tdm_value_count(result) == 1 ? tdm_value_at(result, 0) : result;
}

void tdm__shared_values_add(struct tdm__shared_values *shared, struct tdm__large *large)
{
    TDM_ASSERT(shared->count < TDM__RPC_FDS_MAX);
    tdm__large_retain(large);
    shared->values[shared->count++] = large;
}

void tdm__shared_values_release(struct tdm__shared_values *shared)
{
    while (shared->count > 0) {
        tdm__large_release(shared->values[--shared->count]);
    }
}

/* ---- the calling side -------------------------------------------------------------------- */

tdm_status tdm__shared_arguments_export(const struct tdm__shared_values *shared,
                                        struct tdm_bytes arguments, struct tdm__conn *conn,
                                        tdm_writer *writer, int fds_out[TDM__RPC_FDS_MAX])
{
    struct tdm__value_export_message exports[TDM__RPC_FDS_MAX];
    const struct tdm__shared_arguments_message message = {
        .arguments = arguments, .values = {.count = shared->count, .items = exports}};
    uint32_t count = 0;
    tdm_status status = TDM_OK;

    while (status == TDM_OK && count < shared->count) {
        status = tdm__large_export_message(shared->values[count], conn, &exports[count],
                                           &fds_out[count]);
        count += status == TDM_OK ? 1 : 0;
    }
    if (status == TDM_OK) {
        tdm_write_map(writer, 1);
        tdm_write_string(writer, "shared");
        status = tdm__shared_arguments_encode(&message, writer);
    }
    while (status != TDM_OK && count > 0) {
        count--;
        tdm__large_end_export(shared->values[count], conn, exports[count].export_id);
    }
    return status;
}

/* ---- the called side --------------------------------------------------------------------- */

bool tdm__shared_arguments_are(struct tdm_bytes packed)
{
    return packed.size_bytes > sizeof(message_head) &&
           memcmp(packed.data, message_head, sizeof(message_head) - 1) == 0;
}

/* Decodes the message of a call. The message borrows from the call. */
static tdm_status message_read(struct tdm__incoming_call *incoming,
                               struct tdm__shared_arguments_message *message_out)
{
    const tdm_value *value;

    TDM_TRY(tdm__incoming_value(incoming, &value));
    TDM_TRY(tdm__shared_arguments_decode(tdm_value_find(value, "shared"), message_out));
    return message_out->values.count <= TDM__RPC_FDS_MAX
               ? TDM_OK
               : tdm__fail(TDM_E_PROTOCOL, "a call with %u shared values, at most %d",
                           message_out->values.count, TDM__RPC_FDS_MAX);
}

/* What a document of arguments with parts owns. */
struct parts {
    tdm_document *documents[TDM__RPC_FDS_MAX]; /* The values, owned. */
    uint32_t count;                            /* Number of entries in `documents`. */
    char bytes[];                              /* The packed arguments. */
};

/* Frees the parts when their document is destroyed, on any thread. */
static void parts_free(void *arg)
{
    struct parts *parts = arg;

    while (parts->count > 0) {
        tdm_document_destroy(parts->documents[--parts->count]);
    }
    free(parts);
}

/* Imports the value number `index` of the message, whose descriptor it takes. */
static tdm_status part_import(tdm_runtime *runtime, struct tdm__incoming_call *incoming,
                              const struct tdm__shared_arguments_message *message, uint32_t index,
                              tdm_document **document_out)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct tdm__value_export_message description;
    int fd = tdm__incoming_take_fd(incoming, index);

    if (fd < 0) {
        return tdm__fail(TDM_E_PROTOCOL, "shared value %u has no descriptor", index);
    }
    if (conn == NULL) {
        (void)close(fd);
        return tdm__fail(TDM_E_CLOSED, "the caller is gone");
    }
    tdm__message_list_read(&message->values, index, &description, sizeof(description));
    return tdm__large_import_message(runtime, conn, &description, fd, document_out);
}

tdm_status tdm__shared_arguments_import(tdm_runtime *runtime, struct tdm__incoming_call *incoming,
                                        tdm_document **document_out)
{
    const tdm_value *values[TDM__RPC_FDS_MAX];
    struct tdm__shared_arguments_message message;
    struct parts *parts;
    struct tdm_bytes packed;
    tdm_status status = TDM_OK;

    TDM_TRY(message_read(incoming, &message));
    parts = malloc(sizeof(*parts) + message.arguments.size_bytes);
    if (parts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "arguments of %zu bytes", message.arguments.size_bytes);
    }
    parts->count = 0;
    memcpy(parts->bytes, message.arguments.data, message.arguments.size_bytes);
    packed = (struct tdm_bytes){parts->bytes, message.arguments.size_bytes};
    while (status == TDM_OK && parts->count < message.values.count) {
        status =
            part_import(runtime, incoming, &message, parts->count, &parts->documents[parts->count]);
        if (status == TDM_OK) {
            values[parts->count] =
                tdm__result_as_argument(tdm_document_root(parts->documents[parts->count]));
            parts->count++;
        }
    }
    if (status == TDM_OK) {
        status = tdm__document_parse_parts(packed, values, parts->count, parts_free, parts,
                                           document_out);
    }
    if (status != TDM_OK) {
        parts_free(parts);
    }
    return status;
}

void tdm__shared_arguments_return(struct tdm__conn *conn, struct tdm__incoming_call *incoming)
{
    struct tdm__shared_arguments_message message;
    struct tdm__value_export_message description;

    if (message_read(incoming, &message) != TDM_OK) {
        return; /* The exports end with the connection. */
    }
    for (uint32_t i = 0; i < message.values.count; i++) {
        tdm__message_list_read(&message.values, i, &description, sizeof(description));
        tdm__export_return(conn, description.export_id);
    }
}
