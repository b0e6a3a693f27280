/* value.h - typed values: arguments and replies of calls (msgpack between processes). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_VALUE_H
#define TANDEM_VALUE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/dtype.h>
#include <tandem/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A format string has one letter for each value.  The C types are
 *
 *   letter  packing takes                    unpacking fills
 *   ------  -------------------------------  ------------------------------------------------
 *   i       int64_t (cast an int)            int64_t *
 *   u       uint64_t                         uint64_t *
 *   f       double                           double * (an integer value is accepted)
 *   ?       int (0 or 1)                     int *
 *   s       const char * (NULL packs nil)    const char ** (borrowed; nil gives NULL)
 *   b       const void *, size_t             const void **, size_t * (borrowed)
 *   a       const struct tdm_ndarray *       struct tdm_ndarray * (its data is borrowed)
 *   n       nothing: packs nil               nothing: accepts nil
 *   v       const tdm_value *                const tdm_value ** (borrowed)
 *   p       const struct tdm_bytes *         - (bytes that hold exactly one packed value)
 *   ( )     an array of the values inside    an array of exactly that many values
 *   { }     a map: pairs, each an s first    - (read maps with tdm_value_find)
 *
 * Arguments of calls and constructors, and puts, may also have references and handles:
 *
 *   r       tdm_ref *: its value, once it    -
 *           is there; not inside ( ) or { }
 *   R       tdm_ref *: the reference itself  tdm_ref **
 *   h       tdm_actor *: a handle            tdm_actor **
 *
 * Two more letters pack as many values as a list has, when their number is known at run time
 * only.  They stand among the values of an array, not in a map:
 *
 *   *       const struct tdm_items *:        -
 *           b, a, i, and ( for an array
 *   &       const struct tdm_items *:        -
 *           also R, h, and r outside of ( )
 *
 * A whole format packs one array: "is" is an array of an integer and a string, "" an empty
 * array. "Borrowed" means until the value, call or reference that holds it is released.
 * Integers are packed in msgpack's shortest form; i and u read any integer that fits.
 * docs/protocols/values.md describes the bytes, which are the same in every version.
 *
 * No function of this header blocks.  An object may be used by one thread at a time; a document
 * and its values may be read by any number of threads. */

/* A borrowed range of bytes, which the struct does not own. */
struct tdm_bytes {
    const void *data;  /* Address of the first byte; may be NULL if there are no bytes. */
    size_t size_bytes; /* Number of bytes in the range. */
};

/* One value of a list for the letters * and & of a format. */
struct tdm_item {
    char letter; /* b, a, i or ( for the letter *; also r, R or h for the letter &. */
    /* Borrowed for the call: the bytes (b), a struct tdm_ndarray (a), an int64_t (i), a struct
     * tdm_items whose items are the values of an array ((), a tdm_ref (r, R), or a tdm_actor
     * (h). */
    const void *object;
    size_t size_bytes; /* Number of bytes of the letter b; else not used. */
};

/* A list of values for the letters * and & of a format. */
struct tdm_items {
    const struct tdm_item *items; /* The values in order; may be NULL if `count` is 0. */
    uint32_t count;               /* Number of values. */
};

/* Largest depth of arrays inside of each other in a list for the letters * and &. */
enum { TDM_ITEMS_DEPTH_MAX = 8 };

/* Largest number of dimensions of an array of numbers. */
enum { TDM_NDARRAY_DIMS_MAX = 8 };

/* An array of numbers, row after row without gaps, in little-endian order. */
struct tdm_ndarray {
    enum tdm_dtype dtype; /* Type of the array's elements. */
    uint32_t dims_count;  /* Number of dimensions, 0 (a scalar) to 8. */
    /* Number of elements along each dimension, outermost first. */
    uint64_t shape[TDM_NDARRAY_DIMS_MAX];
    /* Address of the first element.  For packing any address is allowed; after unpacking it is
     * aligned at least as an element.  May be NULL if there are no elements. */
    const void *data;
};

/* Returns the size in bytes of all elements of the array.  Returns UINT64_MAX if the number does
 * not fit, the dtype is unknown, or there are more than 8 dimensions. */
TDM_API uint64_t tdm_ndarray_bytes(const struct tdm_ndarray *ndarray);

/* A growing buffer of packed values.  It needs no runtime. */
struct tdm_value;
typedef struct tdm_writer tdm_writer;

/* Creates an empty writer, which the caller destroys.  On failure, which is TDM_E_NOMEM,
 * `*writer_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_writer_create(tdm_writer **writer_out);
/* Frees the writer and its bytes.  NULL is allowed. */
TDM_API void tdm_writer_destroy(tdm_writer *writer);
/* Drops the contents and the failure of a writer; the memory is kept for the next values. */
TDM_API void tdm_writer_clear(tdm_writer *writer);
/* Returns the bytes that the writer has written so far.  They are borrowed until the next write. */
TDM_API struct tdm_bytes tdm_writer_bytes(const tdm_writer *writer);

/* These functions append one value each.  A failed write makes every later one fail too, so
 * that the caller may check once, with tdm_writer_status().  The failures are TDM_E_NOMEM;
 * TDM_E_LIMIT for a text of 4 GiB or more; TDM_E_INVAL for an n-dimensional array of an
 * impossible dtype, number of dimensions or shape, and for data that is NULL.
 *
 * tdm_write_array() and tdm_write_map() write a header only.  The caller must then write that
 * many values, or pairs of a key and a value. */

/* Appends a signed integer to the writer. */
TDM_API void tdm_write_int(tdm_writer *writer, int64_t value);
/* Appends an unsigned integer to the writer. */
TDM_API void tdm_write_uint(tdm_writer *writer, uint64_t value);
/* Appends a floating point number to the writer. */
TDM_API void tdm_write_double(tdm_writer *writer, double value);
/* Appends true, or false if `value` is 0. */
TDM_API void tdm_write_bool(tdm_writer *writer, int value);
/* Appends a NUL-terminated text in UTF-8; NULL appends nil. */
TDM_API void tdm_write_string(tdm_writer *writer, const char *text);
/* Appends `size_bytes` bytes; `data` may be NULL if `size_bytes` is 0. */
TDM_API void tdm_write_bytes(tdm_writer *writer, const void *data, size_t size_bytes);
/* Appends a copy of the array with its type and shape. */
TDM_API void tdm_write_ndarray(tdm_writer *writer, const struct tdm_ndarray *ndarray);
/* Appends nil, which stands for a missing value, to the writer. */
TDM_API void tdm_write_nil(tdm_writer *writer);
/* Appends the header of an array; the caller then writes that many values. */
TDM_API void tdm_write_array(tdm_writer *writer, uint32_t values_count);
/* Appends the header of a map; the caller then writes that many keys and values. */
TDM_API void tdm_write_map(tdm_writer *writer, uint32_t pairs_count);
/* Appends a copy of a parsed value; NULL appends nil. */
TDM_API void tdm_write_value(tdm_writer *writer, const struct tdm_value *value);
/* Appends bytes that hold exactly one packed value. */
TDM_API void tdm_write_packed(tdm_writer *writer, struct tdm_bytes one_value);
/* Returns TDM_OK, or the first failure since the writer was created or cleared. */
TDM_API tdm_status tdm_writer_status(const tdm_writer *writer);

/* Appends one array of values given by format; see the table at the top of this header.
 * TDM_E_INVAL: the format has an unknown letter. Other failures are those of
 * tdm_writer_status(). */
TDM_API tdm_status tdm_pack(tdm_writer *writer, const char *format, ...);
/* Does the same as tdm_pack() with a va_list of arguments. */
TDM_API tdm_status tdm_pack_va(tdm_writer *writer, const char *format, va_list args);

/* A parsed value.  It is part of a tdm_document, which owns it and has its own copy of the
 * bytes. */
typedef struct tdm_value tdm_value;
typedef struct tdm_document tdm_document;

/* The kinds of values. */
enum tdm_value_kind {
    TDM_NIL,       /* Nil, which stands for a missing value. */
    TDM_BOOL,      /* A truth value: true or false. */
    TDM_INT,       /* An integer, signed or unsigned, of at most 64 bits. */
    TDM_DOUBLE,    /* A floating point number of 64 bits. */
    TDM_STRING,    /* A text in UTF-8. */
    TDM_BYTES,     /* A sequence of bytes that Tandem does not interpret. */
    TDM_ARRAY,     /* A sequence of values of any kinds. */
    TDM_MAP,       /* Pairs of a key, which is a text, and a value. */
    TDM_NDARRAY,   /* An array of numbers, see struct tdm_ndarray. */
    TDM_REFERENCE, /* A reference to an object, packed by the letter R. */
    TDM_HANDLE     /* A handle to an actor, packed by the letter h. */
};

/* Parses exactly one packed value, which must fill all of `bytes`, and copies it.  The caller
 * destroys the document.  TDM_E_PROTOCOL for anything else, for nesting deeper than 64, for sizes
 * that claim more elements than there are bytes, and for n-dimensional arrays whose parts do not
 * agree.  On failure `*document_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_document_parse(struct tdm_bytes bytes,
                                                     tdm_document **document_out);
/* Frees a document with all of its values.  NULL is allowed. */
TDM_API void tdm_document_destroy(tdm_document *document);
/* Returns the value that the document contains, borrowed from the document. */
TDM_API const tdm_value *tdm_document_root(const tdm_document *document);

/* In the functions below a value, array or map that is NULL reads as nil, so that look-ups can
 * be chained.  Results are borrowed from the document. */

/* Returns the kind of the value; TDM_NIL for NULL. */
TDM_API enum tdm_value_kind tdm_value_kind_of(const tdm_value *value);
/* Returns the number of values of an array or of pairs of a map; 0 for other kinds. */
TDM_API uint32_t tdm_value_count(const tdm_value *value);
/* Returns element number `index` of an array value, or NULL if there is no such element. */
TDM_API const tdm_value *tdm_value_at(const tdm_value *array, uint32_t index);
/* Returns the value of the pair of a map with this key, or NULL if absent. */
TDM_API const tdm_value *tdm_value_find(const tdm_value *map, const char *key);
/* Returns the value of pair number `index` of a map and writes the pair's key to `*key_out`, unless
 * `key_out` is NULL. Returns NULL, and leaves `*key_out` unchanged, if there is no such pair. */
TDM_API const tdm_value *tdm_value_pair(const tdm_value *map, uint32_t index, const char **key_out);

/* Returns the signed integer that the value is, or `otherwise` if the value is NULL, of another
 * kind, or does not fit. */
TDM_API int64_t tdm_value_int(const tdm_value *value, int64_t otherwise);
/* Returns the unsigned integer that the value is, or `otherwise` if the value is NULL, of another
 * kind, or negative. */
TDM_API uint64_t tdm_value_uint(const tdm_value *value, uint64_t otherwise);
/* Returns the number that the value is, integer or floating point, or `otherwise` if it is
 * neither. */
TDM_API double tdm_value_double(const tdm_value *value, double otherwise);
/* Returns 1 for the value true and 0 for false, or `otherwise` if the value is neither. */
TDM_API int tdm_value_bool(const tdm_value *value, int otherwise);
/* Returns the text that the value is, borrowed from the document, or `otherwise` if the value is no
 * text. */
TDM_API const char *tdm_value_string(const tdm_value *value, const char *otherwise);
/* Returns the bytes that the value is, or {NULL, 0} if the value is of another kind. */
TDM_API struct tdm_bytes tdm_value_bytes(const tdm_value *value);
/* Returns the n-dimensional array that the value is, or NULL if the value is of another kind. */
TDM_API const struct tdm_ndarray *tdm_value_ndarray(const tdm_value *value);

/* Reads the elements of an array value by format.  TDM_E_TYPE names the position and both shapes,
 * as in "argument 2: wanted an integer, got a string" or "wanted (is), got 3 values (iss)"; nothing
 * is filled then. TDM_E_INVAL: the format has an unknown letter. */
TDM_API tdm_status tdm_unpack(const tdm_value *array, const char *format, ...);
/* Does the same as tdm_unpack() with a va_list of arguments. */
TDM_API tdm_status tdm_unpack_va(const tdm_value *array, const char *format, va_list args);

#ifdef __cplusplus
}
#endif

#endif
