/* large_value.h - values packed once into shared memory and read in place by other processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_LARGE_VALUE_H
#define TDM_ACTORS_OBJECTS_LARGE_VALUE_H

#include "actors/runtime.h"

#include <tandem/value.h>

/* Packed values of more bytes than this are placed in a shared memory segment; smaller ones
 * travel inside messages. */
enum { TDM__INLINE_BYTES_MAX = 100 * 1024 };

/* One packed value of this process in a shared memory segment, or spilled to disk. Its owners
 * are counted: the creator, each document that reads it, and each export to another process.
 * When the last owner releases it, the segment becomes idle and is reused for a later value.
 * Guarded by the loop's lock. */
struct tdm__large;

/* The shared memory of one runtime: its segments, its views of segments of other processes, and
 * its large values. */
struct tdm__object_memory;
/* Creates the shared memory of `runtime`. It takes no memory of the node until the first large
 * value is created. */
tdm_status tdm__object_memory_create(tdm_runtime *runtime, struct tdm__object_memory **memory_out);
/* Ends all exports and drops the runtime's hold on `memory`. Values that are still read stay
 * mapped until their last document is destroyed. NULL is allowed. */
void tdm__object_memory_destroy(struct tdm__object_memory *memory);

/* Creates an unwritten value of `size_bytes` with one owner. Returns TDM_E_LIMIT if the node's
 * object store is full and this process can free nothing. Does not wait. */
tdm_status tdm__large_create(tdm_runtime *runtime, size_t size_bytes,
                             struct tdm__large **large_out);
/* As tdm__large_create(), but exceeds the node's limit rather than fail. For values that must be
 * read now, such as one fetched from another node. */
tdm_status tdm__large_create_over_limit(tdm_runtime *runtime, size_t size_bytes,
                                        struct tdm__large **large_out);
/* Adds an owner to the value. NULL is allowed. */
void tdm__large_retain(struct tdm__large *large);
/* Removes an owner; the last one makes the value's segment idle or closes its spill file. NULL
 * is allowed. */
void tdm__large_release(struct tdm__large *large);
/* Declares that one owner of the value is a reference, which does not read it. While that owner
 * is the only one, the value may be spilled to disk. An export or a document of the value reads
 * it back. */
void tdm__large_allow_spill(struct tdm__large *large);
/* Returns the packed bytes in shared memory. The value must not be spilled; see
 * tdm__large_load(). */
struct tdm_bytes tdm__large_bytes(const struct tdm__large *large);
/* Creates a document that reads the value in place and counts as an owner until it is destroyed.
 * Reads a spilled value back first. */
tdm_status tdm__large_document(struct tdm__large *large, tdm_document **document_out);

/* Packs by format straight into shared memory if the result is large; this is the only copy of
 * the data. Leaves `*large_out` NULL if it is small. May drive the loop for seconds while other
 * processes free memory, so callbacks must not call it. */
tdm_status tdm__large_pack(tdm_runtime *runtime, const char *format, va_list args,
                           struct tdm__large **large_out);
/* Copies bytes that are already packed into shared memory if they are large, else leaves
 * `*large_out` NULL. May drive the loop for seconds, as tdm__large_pack(). */
tdm_status tdm__large_copy(tdm_runtime *runtime, struct tdm_bytes packed,
                           struct tdm__large **large_out);
/* As tdm__large_copy(), but fails at once with TDM_E_LIMIT instead of waiting for other
 * processes. */
tdm_status tdm__large_copy_now(tdm_runtime *runtime, struct tdm_bytes packed,
                               struct tdm__large **large_out);
/* Packs a value that has been read into a new large value if it is large, else leaves
 * `*large_out` NULL. Does not wait. */
tdm_status tdm__large_of_value(tdm_runtime *runtime, const tdm_value *value,
                               struct tdm__large **large_out);

/* ---- exports: one message with a file descriptor to a reader on this node ------------------- */

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
