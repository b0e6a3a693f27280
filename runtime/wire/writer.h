/* writer.h - writers that count or write to given memory, and functions for the files of this
 * folder. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_WRITER_H
#define TDM_RUNTIME_WIRE_WRITER_H

#include "runtime/wire/value.h"

/* Large values are written twice: a counting writer first determines the size, and a second
 * writer then packs them directly into their final memory.  So the data is copied only once.  The
 * same writes give the same bytes in both passes. */

/* Creates a writer that only counts: tdm_writer_bytes() returns {NULL, number of bytes}.  The
 * caller destroys it. */
tdm_status tdm__writer_create_counting(tdm_writer **writer_out);
/* Creates a writer that packs into `memory`, which is borrowed until the writer is destroyed.  A
 * write that does not fit fails with TDM_E_LIMIT.  Array data is aligned to 64 bytes if `memory`
 * is.  The caller destroys the writer. */
tdm_status tdm__writer_create_over(void *memory, size_t size_bytes, tdm_writer **writer_out);

/* Size in bytes of the header in front of bytes or an array of 4 GiB or more: the tag, the type,
 * and the size. */
enum { TDM__LARGE_EXT_HEAD_BYTES = 10 };

/* ---- for the files of this folder ------------------------------------------------------- */

/* Appends raw bytes of a packed value to the writer.  A failure is recorded in the writer. */
void tdm__writer_append(tdm_writer *writer, const void *data, size_t size_bytes);
/* Appends the header of an extension with `size_bytes` bytes.  It always uses the longest form,
 * so that its size is constant. */
void tdm__writer_append_ext(tdm_writer *writer, enum tdm__ext type, size_t size_bytes);
/* Appends the header of a TDM__EXT_LARGE_… extension, TDM__LARGE_EXT_HEAD_BYTES long.  The caller
 * then appends `size_bytes` bytes. */
void tdm__writer_append_large_ext(tdm_writer *writer, enum tdm__ext type, uint64_t size_bytes);
/* Records a failure, which makes all later writes fail; only the first one is kept.  `why` is a
 * string literal. */
void tdm__writer_fail(tdm_writer *writer, tdm_status status, const char *why);
/* Returns memory that is freed when the writer is cleared or destroyed; NULL if there is no memory.
 * A second call frees the memory of the first one. */
void *tdm__writer_attach(tdm_writer *writer, size_t size_bytes);

#endif
