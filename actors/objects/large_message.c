/* large_message.c - calls and replies that contain large values. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A large value travels as the descriptor of its segment to a process of this node (export.c), as
 * an offer to a process of another node (pull.c), or as its bytes if one message has room for them.
 * Arguments may also contain several large values, each with its own segment (shared_arguments.c).
 * Here a message is written in one of these forms, read, or returned to its sender unread.
 * Everything runs with the loop's lock. */

#include "actors/objects/large_message.h"

#include "actors/objects/export.h"
#include "actors/objects/memory_quota.h"
#include "actors/objects/object_memory.h"
#include "actors/objects/pull.h"
#include "actors/objects/shared_arguments.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <unistd.h>

tdm_status tdm__incoming_document(tdm_runtime *runtime, struct tdm__incoming_call *incoming,
                                  tdm_document **document_out)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    const tdm_value *export_description;
    tdm_status status;
    int fd;

    if (tdm__shared_arguments_are(tdm__incoming_packed(incoming))) {
        return tdm__shared_arguments_import(runtime, incoming, document_out);
    }
    fd = tdm__incoming_take_fd(incoming, 0);
    if (fd < 0) {
        return tdm__incoming_take_document(incoming, document_out);
    }
    status = conn == NULL ? tdm__fail(TDM_E_CLOSED, "the caller is gone")
                          : tdm__incoming_value(incoming, &export_description);
    if (status != TDM_OK) {
        (void)close(fd);
        return status;
    }
    return tdm__large_import(runtime, conn, export_description, fd, document_out);
}

void tdm__incoming_discard(struct tdm__incoming_call *incoming)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct tdm_bytes packed = tdm__incoming_packed(incoming);
    struct tdm__value_export_message message;
    int fd;

    if (tdm__shared_arguments_are(packed)) {
        if (conn != NULL) {
            tdm__shared_arguments_return(conn, incoming);
        }
        return; /* The descriptors are closed with the call. */
    }
    fd = tdm__incoming_take_fd(incoming, 0);
    if (conn != NULL && fd >= 0 &&
        tdm__incoming_decode(incoming, tdm__value_export_table(), &message) == TDM_OK) {
        tdm__export_return(conn, message.export_id);
    } else if (conn != NULL && tdm__pull_is_offer(packed)) {
        (void)tdm__pull_decline(conn, packed);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

void tdm__incoming_refuse(struct tdm__incoming_call *incoming, tdm_status status,
                          const char *detail)
{
    tdm__incoming_discard(incoming);
    tdm__incoming_fail(incoming, status, detail);
}

tdm_status tdm__result_document(tdm_runtime *runtime, struct tdm__conn *conn,
                                struct tdm__rpc_reply *reply, tdm_document **document_out)
{
    tdm_document *export_description;
    tdm_status status;
    int fd;

    if (reply->fds_count == 0 || reply->fds[0] < 0) {
        return tdm__rpc_reply_document(reply, document_out);
    }
    TDM_TRY(tdm_document_parse(reply->packed, &export_description));
    fd = reply->fds[0];
    reply->fds[0] = -1;
    status =
        tdm__large_import(runtime, conn, tdm_document_root(export_description), fd, document_out);
    tdm_document_destroy(export_description);
    return status;
}

void tdm__result_return_lost(struct tdm__conn *conn, const struct tdm__rpc_reply *reply)
{
    struct tdm__value_export_message message;
    tdm_document *document;

    if (!reply->fds_lost || tdm__rpc_reply_lost_document(reply, &document) != TDM_OK) {
        return;
    }
    if (tdm__value_export_decode(tdm_document_root(document), &message) == TDM_OK) {
        tdm__export_return(conn, message.export_id);
    }
    tdm_document_destroy(document);
}

tdm_document *tdm__failure_document(const struct tdm__rpc_reply *reply)
{
    tdm_document *document = NULL;

    if (reply->packed.size_bytes == 0) {
        return NULL;
    }
    if (tdm_document_parse(reply->packed, &document) == TDM_OK &&
        tdm_value_kind_of(tdm_document_root(document)) == TDM_ARRAY) {
        return document;
    }
    tdm__log(TDM__WARN, "objects", "the values of a failure cannot be read: %s",
             document == NULL ? tdm_error_detail() : "they are no array");
    tdm_document_destroy(document);
    return NULL;
}

/* What a message contains in the place of a large value. */
struct export_description {
    tdm_writer *writer;      /* Owned; NULL if `packed` is the value itself. */
    struct tdm_bytes packed; /* Description, offer, or the bytes of the value. */
    int fd;                  /* Descriptor of the segment, borrowed; -1 if none is sent. */
    uint32_t fds_count;      /* 1 if a descriptor is sent, else 0. */
};

/* Returns true if the caller is on this node. */
static bool caller_is_on_this_node(const tdm_runtime *runtime,
                                   const struct tdm__incoming_call *incoming)
{
    return tdm__id_equal(&tdm__incoming_peer(incoming)->node, &runtime->self.node);
}

bool tdm__large_is_offered(const struct tdm__large *large, const tdm_runtime *runtime,
                           const struct tdm__incoming_call *incoming)
{
    return tdm__incoming_conn(incoming) != NULL && !caller_is_on_this_node(runtime, incoming) &&
           large->size_bytes > TDM__PULL_CHUNK_BYTES;
}

/* Exports or offers the value to the caller of `incoming`, as tdm__large_reply() describes, or
 * refers to its bytes. */
static tdm_status export_write_description(struct tdm__large *large, const tdm_runtime *runtime,
                                           const struct tdm__incoming_call *incoming,
                                           struct export_description *export_description)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    bool offered = tdm__large_is_offered(large, runtime, incoming);
    bool same_node = caller_is_on_this_node(runtime, incoming);

    TDM_TRY(tdm__large_load(large));
    if (conn == NULL || (!same_node && !offered)) {
        export_description->packed = tdm__large_bytes(large);
        return TDM_OK;
    }
    TDM_TRY(tdm_writer_create(&export_description->writer));
    TDM_TRY(same_node ? tdm__large_export(large, conn, export_description->writer,
                                          &export_description->fd)
                      : tdm__large_offer(large, conn, export_description->writer));
    export_description->fds_count = same_node ? 1 : 0;
    export_description->packed = tdm_writer_bytes(export_description->writer);
    return TDM_OK;
}

void tdm__large_reply(struct tdm__large *large, tdm_runtime *runtime,
                      struct tdm__incoming_call *incoming)
{
    struct export_description export_description = {.fd = -1};
    tdm_status status = export_write_description(large, runtime, incoming, &export_description);

    if (status == TDM_OK) {
        tdm__incoming_reply(incoming, export_description.packed, &export_description.fd,
                            export_description.fds_count);
    } else {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
    tdm_writer_destroy(export_description.writer);
}

tdm_status tdm__large_item(struct tdm__large *large, const tdm_runtime *runtime,
                           struct tdm__incoming_call *incoming, uint64_t index)
{
    struct export_description export_description = {.fd = -1};
    tdm_status status = export_write_description(large, runtime, incoming, &export_description);

    if (status == TDM_OK) {
        status = tdm__incoming_send_item(incoming, index, export_description.packed,
                                         &export_description.fd, export_description.fds_count);
    }
    tdm_writer_destroy(export_description.writer);
    return status;
}
