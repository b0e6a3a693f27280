/* writer.h - writers that need no memory of their own, and the inside of all of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_WRITER_H
#define TDM_RUNTIME_WIRE_WRITER_H

#include "runtime/wire/value.h"

/* Large values are written twice: first counted, then packed straight to where they belong,
 * with one copy of the data.  Both passes give the same bytes for the same writes. */

/* Counts only: tdm_writer_bytes() gives {NULL, bytes so far}. */
tdm_status tdm__writer_create_counting(tdm_writer **writer_out);
/* Writes to `memory` (borrowed until destroyed); what does not fit fails with TDM_E_LIMIT.
 * Arrays come to lie 64-aligned if `memory` does. */
tdm_status tdm__writer_create_over(void *memory, size_t size_bytes, tdm_writer **writer_out);

/* ---- for the files of this folder ------------------------------------------------------- */

void tdm__writer_append(tdm_writer *writer, const void *data, size_t size_bytes);
/* The header of an extension in its longest form, whatever the size. */
void tdm__writer_append_ext(tdm_writer *writer, enum tdm__ext type, size_t size_bytes);
/* Only the first failure counts.  `why` is a literal. */
void tdm__writer_fail(tdm_writer *writer, tdm_status status, const char *why);
/* Memory that lives until the writer is cleared or destroyed.  NULL when there is none. */
void *tdm__writer_attach(tdm_writer *writer, size_t size_bytes);

#endif
