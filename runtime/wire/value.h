/* value.h - what a parsed value is made of, and what only Tandem itself packs and reads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_VALUE_H
#define TDM_RUNTIME_WIRE_VALUE_H

#include <stdbool.h>
#include <tandem/value.h>

/* Everything pointed to lies in the document that owns the value, or in what it borrowed. */
struct tdm_value {
    enum tdm_value_kind kind;
    uint32_t count; /* arrays: values; maps: pairs; what has a body: its bytes */
    union {
        bool truth;
        struct {
            uint64_t bits; /* two's complement if negative */
            bool negative;
        } integer;
        double number;
        const char *data;                  /* strings (NUL-terminated), bytes, extensions */
        const struct tdm_ndarray *ndarray; /* TDM_NDARRAY */
        const struct tdm_value *values;    /* maps: key, value, key, value … */
    } as;
};

bool tdm__value_fits_int(const tdm_value *value);
bool tdm__value_fits_uint(const tdm_value *value);
/* The kind of the value in words for errors, such as "a string"; "nothing" for NULL. */
const char *tdm__value_kind_text(const tdm_value *value);

/* ---- extensions ------------------------------------------------------------------------- */

/* msgpack's extension types.  References and handles are opaque here: the layer above fills and
 * reads their bytes. */
enum tdm__ext { TDM__EXT_NDARRAY = 1, TDM__EXT_REFERENCE = 2, TDM__EXT_HANDLE = 3 };
enum { TDM__EXT_BYTES_MAX = 512 }; /* of a reference or a handle */

/* A reference or a handle; more than 512 bytes make the writer fail (TDM_E_LIMIT). */
void tdm__write_ext(tdm_writer *writer, enum tdm__ext type, struct tdm_bytes bytes);
/* What was written; {NULL, 0} for any other kind. */
struct tdm_bytes tdm__value_ext(const tdm_value *value);
/* All references and handles of a document, in the order packed.  Costs nothing. */
const tdm_value *const *tdm__document_exts(const tdm_document *document, uint32_t *count_out);

/* How long it was before it was parsed. */
size_t tdm__document_packed_bytes(const tdm_document *document);

/* ---- without copies --------------------------------------------------------------------- */

/* tdm_document_parse(), but only strings are copied (for their NUL); bytes, references and
 * handles point into `bytes`, and so do n-dimensional arrays unless they lie there less aligned
 * than an element.  On TDM_OK the document owns `bytes`: they must stay as they are until it is
 * destroyed, when it calls release(arg), on whichever thread that happens. */
tdm_status tdm__document_parse_borrowed(struct tdm_bytes bytes, void (*release)(void *arg),
                                        void *arg, tdm_document **document_out);

#endif
