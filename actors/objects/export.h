/* export.h - large values exported to other processes, and values of other processes read here. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_EXPORT_H
#define TDM_ACTORS_OBJECTS_EXPORT_H

#include "actors/objects/large_value.h"
#include "runtime/rpc/rpc.h"

/* ---- one message with a file descriptor to a reader on this node, or an offer to another --- */

/* Exports the value to the process at the other end of `conn`, which must be on this node.
 * Writes one array that describes the segment and sets `*fd_out` to the descriptor to send with
 * it (borrowed). The export owns the value until the reader returns it or the connection closes. */
tdm_status tdm__large_export(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer,
                             int *fd_out);
/* Returns true if the caller of `incoming` is on another node and the value is too large for one
 * message, so that it must be offered. */
bool tdm__large_is_offered(const struct tdm__large *large, const tdm_runtime *runtime,
                           const struct tdm__incoming_call *incoming);
/* Exports the value to a reader on another node, which fetches it in chunks (pull.h), and writes
 * the offer. */
tdm_status tdm__large_offer(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer);
/* Maps an exported value of another process on this node and creates a document that reads it in
 * place. Closes `fd` in any case. Destroying the document returns the export to its owner. */
tdm_status tdm__large_import(tdm_runtime *runtime, struct tdm__conn *conn,
                             const tdm_value *export_description, int fd,
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

/* ---- calls and replies that contain large values --------------------------------------------- */

/* Creates a document of the arguments of a call that arrived, either from its message or from
 * shared memory. */
tdm_status tdm__incoming_document(tdm_runtime *runtime, struct tdm__incoming_call *incoming,
                                  tdm_document **document_out);
/* Returns the exported or offered arguments of a call that will not be executed to the caller. */
void tdm__incoming_discard(struct tdm__incoming_call *incoming);
/* Returns the arguments as tdm__incoming_discard() does, and replies with a failure. */
void tdm__incoming_refuse(struct tdm__incoming_call *incoming, tdm_status status,
                          const char *detail);
/* Creates a document of the result in a reply, either from its message or from shared memory.
 * Takes the reply's first descriptor. */
tdm_status tdm__result_document(tdm_runtime *runtime, struct tdm__conn *conn,
                                struct tdm__rpc_reply *reply, tdm_document **document_out);
/* Replies with the value: as a descriptor to a caller on this node, as an offer if it is too
 * large for one message, else as its bytes. */
void tdm__large_reply(struct tdm__large *large, tdm_runtime *runtime,
                      struct tdm__incoming_call *incoming);
/* As tdm__large_reply(), but sends the value as item `index` of the call's stream. */
tdm_status tdm__large_item(struct tdm__large *large, const tdm_runtime *runtime,
                           struct tdm__incoming_call *incoming, uint64_t index);

/* ---- numbers ----------------------------------------------------------------------------------
 */

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
    uint32_t read_count; /* Values of other processes that are read here. */
};
/* Fills the totals of this process's large values. */
void tdm__object_memory_stats(tdm_runtime *runtime, struct tdm__object_memory_stats *use_out);

#endif
