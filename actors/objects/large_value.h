/* large_value.h - large values: packed once into shared memory, read in place by whoever is lent
 * it.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_LARGE_VALUE_H
#define TDM_ACTORS_OBJECTS_LARGE_VALUE_H

#include "actors/runtime.h"

#include <tandem/value.h>

/* Whatever packs to more lies in a segment where its reader is on the same node. */
enum { TDM__INLINE_BYTES_MAX = 100 * 1024 };

/* One packed value in a segment of this process.  It is counted: by who packed it, by each
 * document that reads it, and by each process that it was lent to; with the last of them the
 * segment is free for the next value.  With the loop's lock. */
struct tdm__large;

/* The segments and views of a runtime; what is still read when it ends goes with its reader. */
struct tdm__object_memory;
tdm_status tdm__object_memory_create(tdm_runtime *runtime, struct tdm__object_memory **memory_out);
void tdm__object_memory_destroy(struct tdm__object_memory *memory); /* NULL is allowed */

/* Room for `size_bytes`, counted once; TDM_E_LIMIT where the node's store is full. */
tdm_status tdm__large_create(tdm_runtime *runtime, size_t size_bytes,
                             struct tdm__large **large_out);
/* The same, over the limit if it must be: for what has to be read now. */
tdm_status tdm__large_create_over_limit(tdm_runtime *runtime, size_t size_bytes,
                                        struct tdm__large **large_out);
void tdm__large_retain(struct tdm__large *large);  /* NULL is allowed */
void tdm__large_release(struct tdm__large *large); /* NULL is allowed */
/* One of those who hold it is a reference that does not read it: while there is nobody else, it
 * may be spilled to disk.  Lending it, or a document of it, reads it back. */
void tdm__large_allow_spill(struct tdm__large *large);
/* Not of one that may_spill. */
struct tdm_bytes tdm__large_bytes(const struct tdm__large *large);
/* A document that reads it in place, and counts. */
tdm_status tdm__large_document(struct tdm__large *large, tdm_document **document_out);

/* Packs by format if that is large (and leaves NULL otherwise): the only copy of the data. This
 * and the next wait while others make room: not in callbacks. */
tdm_status tdm__large_pack(tdm_runtime *runtime, const char *format, va_list args,
                           struct tdm__large **large_out);
/* Copies what is packed already if it is large, else leaves NULL. */
tdm_status tdm__large_copy(tdm_runtime *runtime, struct tdm_bytes packed,
                           struct tdm__large **large_out);
/* The same, without waiting. */
tdm_status tdm__large_copy_now(tdm_runtime *runtime, struct tdm_bytes packed,
                               struct tdm__large **large_out);
/* The same for a value. */
tdm_status tdm__large_of_value(tdm_runtime *runtime, const tdm_value *value,
                               struct tdm__large **large_out);

/* ---- shm_export: one message with a descriptor, on a connection of this node ---------------- */

/* Writes what the reader must know (one value) and says which descriptor to send along.  The
 * value stays until the reader returns it, or the connection ends. */
tdm_status tdm__large_export(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer,
                             int *fd_out);
/* Is the caller of `incoming` on another node, and the value too large for a message? */
bool tdm__large_is_offered(const struct tdm__large *large, const tdm_runtime *runtime,
                           const struct tdm__incoming_call *incoming);
/* The same for such a reader, who fetches it: pull.h. */
tdm_status tdm__large_offer(struct tdm__large *large, struct tdm__conn *conn, tdm_writer *writer);
/* The reader's side; takes `fd` in any case.  The document returns it as it is destroyed. */
tdm_status tdm__large_import(tdm_runtime *runtime, struct tdm__conn *conn,
                             const tdm_value *export_description, int fd,
                             tdm_document **document_out);
/* Answers "object.return". */
void tdm__large_serve_return(tdm_runtime *runtime, struct tdm__incoming_call *incoming);

/* The arguments of a call that arrived, and the result in a reply, wherever they lie. */
tdm_status tdm__incoming_document(tdm_runtime *runtime, struct tdm__incoming_call *incoming,
                                  tdm_document **document_out);
/* Nobody will read the arguments: what the caller has lent or offered for them goes back. */
void tdm__incoming_discard(struct tdm__incoming_call *incoming);
/* The same, and a failure is the answer. */
void tdm__incoming_refuse(struct tdm__incoming_call *incoming, tdm_status status,
                          const char *detail);
tdm_status tdm__result_document(tdm_runtime *runtime, struct tdm__conn *conn,
                                struct tdm__rpc_reply *reply, tdm_document **document_out);
/* Replies with where it lies, with its bytes, or with an offer: as its size and the caller's
 * node have it. */
void tdm__large_reply(struct tdm__large *large, tdm_runtime *runtime,
                      struct tdm__incoming_call *incoming);

/* The same as an item of a stream. */
tdm_status tdm__large_item(struct tdm__large *large, const tdm_runtime *runtime,
                           struct tdm__incoming_call *incoming, uint64_t index);

struct tdm__object_memory_stats {
    uint64_t used_bytes;
    uint64_t idle_bytes;
    uint64_t spilled_bytes;
    uint64_t node_used_bytes; /* by all of its processes */
    uint64_t kept_bytes;      /* of others, mapped for their next value there */
    uint32_t exported_count;
    uint32_t read_count; /* values of others */
};
void tdm__object_memory_stats(tdm_runtime *runtime, struct tdm__object_memory_stats *use_out);

#endif
