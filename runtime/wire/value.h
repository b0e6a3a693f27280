/* value.h - the inside of parsed values, and functions that only Tandem itself uses. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_VALUE_H
#define TDM_RUNTIME_WIRE_VALUE_H

#include <stdbool.h>
#include <tandem/value.h>

/* A parsed value.  Everything it points to lies in the document that owns the value, or in the
 * bytes that the document has borrowed. */
struct tdm_value {
    enum tdm_value_kind kind; /* Kind of the value, which says what member of `as` is valid. */
    uint32_t count;           /* Number of values of an array, or of pairs of a map. */
    /* What the value is; `kind` says which member is valid. */
    union {
        bool truth; /* Value of a TDM_BOOL. */
        /* Value of a TDM_INT, from the smallest int64_t to the largest uint64_t. */
        struct {
            uint64_t bits; /* Value of a TDM_INT; two's complement if it is negative. */
            bool negative; /* True if the integer is less than 0. */
        } integer;
        double number; /* Value of a TDM_DOUBLE. */
        /* A string, TDM_BYTES, or an extension. */
        struct {
            const char *data;  /* The bytes of the body; those of a string end with a NUL. */
            size_t size_bytes; /* Number of bytes of the body, without the NUL of a string. */
        };
        const struct tdm_ndarray *ndarray; /* Value of a TDM_NDARRAY. */
        /* Values of an array, or keys and values of a map in turn. */
        const struct tdm_value *values;
    } as;
};

/* Returns true if the value is an integer that fits int64_t.  NULL is allowed. */
bool tdm__value_fits_int(const tdm_value *value);
/* Returns true if the value is an integer that fits uint64_t.  NULL is allowed. */
bool tdm__value_fits_uint(const tdm_value *value);
/* Returns the kind of the value in words for errors, such as "a string"; "nothing" for NULL. */
const char *tdm__value_kind_text(const tdm_value *value);

/* ---- extensions ------------------------------------------------------------------------- */

/* Extension types of msgpack.  The bytes of references and handles are opaque here; the layer
 * above writes and reads them. */
enum tdm__ext {
    TDM__EXT_NDARRAY = 1,   /* The extension is an n-dimensional array. */
    TDM__EXT_REFERENCE = 2, /* The extension is a reference to a value. */
    TDM__EXT_HANDLE = 3,    /* The extension is a handle to an actor. */
    /* The extension is the size, 8 big-endian bytes, of bytes that follow behind it. */
    TDM__EXT_LARGE_BYTES = 4,
    /* The extension is the size, 8 big-endian bytes, of an n-dimensional array that follows behind
     * it, with the same body as in TDM__EXT_NDARRAY. */
    TDM__EXT_LARGE_NDARRAY = 5,
    /* The extension is the number, one byte, of a value that is not among the packed bytes. Only
     * messages of processes on one node contain such parts. */
    TDM__EXT_PART = 6
};
enum { TDM__EXT_BYTES_MAX = 1024 }; /* Largest size in bytes of a packed reference or handle. */

/* Writes the bytes of a reference or a handle as a msgpack extension.  More than TDM__EXT_BYTES_MAX
 * bytes make the writer fail with TDM_E_LIMIT. */
void tdm__write_ext(tdm_writer *writer, enum tdm__ext type, struct tdm_bytes bytes);
/* Returns the bytes of a reference or a handle, borrowed from the document; {NULL, 0} for other
 * kinds. */
struct tdm_bytes tdm__value_ext(const tdm_value *value);
/* Returns all references and handles of a document in the order in which they were packed.  They
 * were collected by the parser, so this is a constant-time operation. */
const tdm_value *const *tdm__document_exts(const tdm_document *document, uint32_t *count_out);

/* Writes a part: the place of the value number `number`, which the reader gets elsewhere. */
void tdm__write_part(tdm_writer *writer, uint8_t number);
/* Returns the number of bytes that were parsed into the document. */
size_t tdm__document_packed_bytes(const tdm_document *document);

/* Most values in one document. */
enum { TDM__DOCUMENT_VALUES_MAX = 1 << 24 };

/* ---- parsing without copies ------------------------------------------------------------- */

/* Parses like tdm_document_parse(), but copies only strings, which get a NUL.  Bytes, references
 * and handles point into `bytes`, and so do n-dimensional arrays whose data is aligned to their
 * elements.  On success the document owns `bytes`, which must not change until the document is
 * destroyed.  It then calls release(arg), in whatever thread destroys it. */
tdm_status tdm__document_parse_borrowed(struct tdm_bytes bytes, void (*release)(void *arg),
                                        void *arg, tdm_document **document_out);
/* Parses like tdm__document_parse_borrowed(), but refuses more than `values_max` values with
 * TDM_E_LIMIT before it allocates memory. */
tdm_status tdm__document_parse_limited(struct tdm_bytes bytes, uint32_t values_max,
                                       void (*release)(void *arg), void *arg,
                                       tdm_document **document_out);
/* Parses like tdm__document_parse_borrowed(), with the value parts[i] in the place of part i. The
 * parts must not change until the document is destroyed, and contain no references and handles,
 * because tdm__document_exts() does not list those. A part with another number makes it fail with
 * TDM_E_PROTOCOL, as every part does in the other functions. */
tdm_status tdm__document_parse_parts(struct tdm_bytes bytes, const tdm_value *const *parts,
                                     uint32_t parts_count, void (*release)(void *arg), void *arg,
                                     tdm_document **document_out);

#endif
