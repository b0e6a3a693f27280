/* large_value.h - values packed once into shared memory and read in place by other processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_LARGE_VALUE_H
#define TDM_ACTORS_OBJECTS_LARGE_VALUE_H

#include "actors/process/runtime.h"
#include "runtime/wire/placeholders.h"

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
/* Drops the runtime's hold on `memory`, whose exports have ended (tdm__exports_end()). Values that
 * are still read stay mapped until their last document is destroyed. NULL is allowed. */
void tdm__object_memory_destroy(struct tdm__object_memory *memory);

/* Adds an owner to the shared memory. */
void tdm__object_memory_retain(struct tdm__object_memory *memory);
/* Removes an owner; the last one unmaps all segments and frees `memory`. */
void tdm__object_memory_release(struct tdm__object_memory *memory);

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
 * the data. write(runtime, …) writes the references and handles among the values. Leaves
 * `*large_out` NULL if the result is small, or waits for the value of a reference (letter r). May
 * drive the loop for seconds while other processes free memory, so callbacks must not call it. */
tdm_status tdm__large_pack(tdm_runtime *runtime, const char *format, va_list args,
                           tdm__object_write_fn *write, struct tdm__large **large_out);
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

#endif
