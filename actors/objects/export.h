/* export.h - large values exported to other processes, and values of other processes read here. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_EXPORT_H
#define TDM_ACTORS_OBJECTS_EXPORT_H

#include "actors/objects/large_value.h"
#include "runtime/rpc/rpc.h"

struct tdm__value_export_message; /* runtime/messages/object.def */

/* ---- one message with a file descriptor to a reader on this node, or an offer to another --- */

/* Exports the value to the process at the other end of `conn`, which must be on this node.
 * Writes one array that describes the segment and sets `*fd_out` to the descriptor to send with
 * it (borrowed). The export owns the value until the reader returns it or the connection closes. */
tdm_status tdm__large_export(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer,
                             int *fd_out);
/* As tdm__large_export(), but fills a message that describes the segment. */
tdm_status tdm__large_export_message(struct tdm__large *large, struct tdm__conn *conn,
                                     struct tdm__value_export_message *message_out, int *fd_out);
/* Ends the export `id` of the value to the process at the other end of `conn`, which has not been
 * told of it. */
void tdm__large_end_export(struct tdm__large *large, const struct tdm__conn *conn, uint64_t id);
/* Exports the value to a reader on another node, which fetches it in chunks (pull.h), and writes
 * the offer. */
tdm_status tdm__large_offer(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer);
/* Maps an exported value of another process on this node and creates a document that reads it in
 * place. Closes `fd` in any case. Destroying the document returns the export to its owner; a value
 * that cannot be read is returned at once. */
tdm_status tdm__large_import(tdm_runtime *runtime, struct tdm__conn *conn,
                             const tdm_value *export_description, int fd,
                             tdm_document **document_out);
/* As tdm__large_import(), from a decoded message. */
tdm_status tdm__large_import_message(tdm_runtime *runtime, struct tdm__conn *conn,
                                     const struct tdm__value_export_message *message, int fd,
                                     tdm_document **document_out);
/* Replies to "object.return": ends the export that the reader names. */
void tdm__large_serve_return(tdm_runtime *runtime, struct tdm__incoming_call *incoming);
/* Sets `readers_count` of each value to the number of its exports (export.c). */
void tdm__exports_count_readers(struct tdm__object_memory *memory);
/* Ends all exports and forgets all exporters, at the end of the runtime. NULL is allowed. */
void tdm__exports_end(struct tdm__object_memory *memory);
/* Returns the value that is exported on `conn` under `id`, or NULL. */
struct tdm__large *tdm__export_find(struct tdm__object_memory *memory, const struct tdm__conn *conn,
                                    uint64_t id);
/* Tells the exporter at the other end of `conn` that this process no longer reads the export
 * `id`. Does not wait. */
void tdm__export_return(struct tdm__conn *conn, uint64_t id);

/* ---- numbers ------------------------------------------------------------------------------- */

/* What the large values of one process use at this moment, for tests and metrics. */
struct tdm__object_memory_stats {
    uint64_t used_bytes; /* Bytes of this process's segments that hold a value. */
    /* Bytes of this process's segments that hold no value and wait for reuse. */
    uint64_t idle_bytes;
    uint64_t spilled_bytes; /* Bytes of this process's values that are on disk. */
    /* Bytes of the segments of all processes of the node; 0 if the node has no limit. */
    uint64_t node_used_bytes;
    /* Bytes of segments of other processes that stay mapped though nothing reads them. */
    uint64_t unused_view_bytes;
    /* Values of this process that are exported, counted once for each reader. */
    uint32_t exported_count;
    /* Number of values of other processes that this process reads now, counted once for each
     * import. */
    uint32_t read_count;
};
/* Fills the totals of this process's large values. */
void tdm__object_memory_stats(tdm_runtime *runtime, struct tdm__object_memory_stats *use_out);

#endif
