/* value.h - typed values: what calls carry as arguments and replies (msgpack on the wire). */
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

/* A format string has one letter per value; the C types are
 *
 *   letter  packing takes                    unpacking fills
 *   ------  -------------------------------  ------------------------------------------------
 *   i       int64_t (int works when cast)    int64_t *
 *   u       uint64_t                         uint64_t *
 *   f       double                           double * (an integer value is accepted)
 *   ?       int (0 or 1)                     int *
 *   s       const char * (NULL packs nil)    const char ** (borrowed; nil gives NULL)
 *   b       const void *, size_t             const void **, size_t * (borrowed)
 *   a       const struct tdm_ndarray *       struct tdm_ndarray * (its data borrowed)
 *   n       nothing: packs nil               nothing: accepts nil
 *   v       const tdm_value *                const tdm_value ** (borrowed)
 *   p       const struct tdm_bytes *         - (bytes that hold exactly one packed value)
 *   ( )     an array of what is inside       an array of exactly that many values
 *   { }     a map: pairs, an s first         - (read maps with tdm_value_find)
 *
 * and for the arguments of calls and constructors and for puts only, since elsewhere nobody
 * could resolve them:
 *
 *   r       tdm_ref *: its value, once it is there; not inside ( ) or { }
 *   R       tdm_ref *: the reference itself  tdm_ref **
 *   h       tdm_actor *: a handle            tdm_actor **
 *
 * A whole format packs one array: "is" is an array of an integer and a string; "" is an empty
 * array.  "Borrowed" means until the value, call or reference it came from is released.
 * Integers are packed in msgpack's shortest form; u and i read any integer that fits.  The
 * bytes are the same in every version: docs/protocols/values.md. */

struct tdm_bytes {
    const void *data;
    size_t size_bytes;
};

enum { TDM_NDARRAY_DIMS_MAX = 8 };

/* An array of numbers, row after row without gaps, in this machine's (little-endian) order. */
struct tdm_ndarray {
    enum tdm_dtype dtype;
    uint32_t dims_count; /* 0 (a scalar) to 8 */
    uint64_t shape[TDM_NDARRAY_DIMS_MAX];
    const void *data; /* packing: any address; unpacked: at least as aligned as an element */
};

/* Of all elements.  UINT64_MAX where that does not fit, for an unknown dtype, and for more than
 * 8 dimensions. */
TDM_API uint64_t tdm_ndarray_bytes(const struct tdm_ndarray *ndarray);

/* A growing buffer of packed values.  Not thread-safe; free of ties to a runtime. */
struct tdm_value;
typedef struct tdm_writer tdm_writer;

TDM_API tdm_status tdm_writer_create(tdm_writer **writer_out);
TDM_API void tdm_writer_destroy(tdm_writer *writer); /* NULL is allowed */
TDM_API void tdm_writer_clear(tdm_writer *writer);   /* forgets the content, keeps the memory */

/* The bytes written so far, borrowed until the next write. */
TDM_API struct tdm_bytes tdm_writer_bytes(const tdm_writer *writer);

/* A failed write makes every later one fail too, so that a caller may check once, by
 * tdm_writer_status(): TDM_E_NOMEM; TDM_E_LIMIT for a single value of 4 GiB or more;
 * TDM_E_INVAL for an n-dimensional array whose dtype, number of dimensions or shape is
 * impossible.  An array or a map header must be followed by that many values (a map: key,
 * value, key, value …); that is the caller's duty. */
TDM_API void tdm_write_int(tdm_writer *writer, int64_t value);
TDM_API void tdm_write_uint(tdm_writer *writer, uint64_t value);
TDM_API void tdm_write_double(tdm_writer *writer, double value);
TDM_API void tdm_write_bool(tdm_writer *writer, int value);
TDM_API void tdm_write_string(tdm_writer *writer, const char *text); /* NULL writes nil */
TDM_API void tdm_write_bytes(tdm_writer *writer, const void *data, size_t size_bytes);
TDM_API void tdm_write_ndarray(tdm_writer *writer, const struct tdm_ndarray *ndarray);
TDM_API void tdm_write_nil(tdm_writer *writer);
TDM_API void tdm_write_array(tdm_writer *writer, uint32_t values_count);
TDM_API void tdm_write_map(tdm_writer *writer, uint32_t pairs_count);
TDM_API void tdm_write_value(tdm_writer *writer, const struct tdm_value *value);
TDM_API void tdm_write_packed(tdm_writer *writer, struct tdm_bytes one_value);
TDM_API tdm_status tdm_writer_status(const tdm_writer *writer);

/* Writes one array by format; see the table above.  TDM_E_INVAL for a format it does not know.
 */
TDM_API tdm_status tdm_pack(tdm_writer *writer, const char *format, ...);
TDM_API tdm_status tdm_pack_va(tdm_writer *writer, const char *format, va_list args);

/* A parsed value: a tree inside a tdm_document, which owns it and copied the bytes. */
typedef struct tdm_value tdm_value;
typedef struct tdm_document tdm_document;

enum tdm_value_kind {
    TDM_NIL,
    TDM_BOOL,
    TDM_INT,
    TDM_DOUBLE,
    TDM_STRING,
    TDM_BYTES,
    TDM_ARRAY,
    TDM_MAP,
    TDM_NDARRAY,
    TDM_REFERENCE, /* of an object: what R packed */
    TDM_HANDLE     /* of an actor: what h packed */
};

/* Parses exactly one value that fills all of `bytes`.  TDM_E_PROTOCOL for anything else, for
 * nesting deeper than 64, for sizes that claim more elements than there are bytes, and for
 * n-dimensional arrays whose parts do not agree. */
TDM_API tdm_status tdm_document_parse(struct tdm_bytes bytes, tdm_document **document_out);
TDM_API void tdm_document_destroy(tdm_document *document); /* NULL is allowed */
TDM_API const tdm_value *tdm_document_root(const tdm_document *document);

TDM_API enum tdm_value_kind tdm_value_kind_of(const tdm_value *value);
TDM_API uint32_t
tdm_value_count(const tdm_value *value); /* array: values, map: pairs, else 0 */
/* NULL when there is no such element; `value` may be NULL, so that look-ups can be chained. */
TDM_API const tdm_value *tdm_value_at(const tdm_value *array, uint32_t index);
TDM_API const tdm_value *tdm_value_find(const tdm_value *map, const char *key);
TDM_API const tdm_value *tdm_value_pair(const tdm_value *map, uint32_t index,
                                        const char **key_out);

/* The value, or `otherwise` where `value` is NULL or of another kind (or does not fit). */
TDM_API int64_t tdm_value_int(const tdm_value *value, int64_t otherwise);
TDM_API uint64_t tdm_value_uint(const tdm_value *value, uint64_t otherwise);
TDM_API double tdm_value_double(const tdm_value *value, double otherwise);
TDM_API int tdm_value_bool(const tdm_value *value, int otherwise);
TDM_API const char *tdm_value_string(const tdm_value *value, const char *otherwise);
TDM_API struct tdm_bytes tdm_value_bytes(const tdm_value *value); /* {NULL, 0} otherwise */
TDM_API const struct tdm_ndarray *tdm_value_ndarray(const tdm_value *value); /* or NULL */

/* Reads an array by format.  TDM_E_TYPE names the position and both shapes ("argument 2: wanted
 * an integer, got a string"; "wanted (is), got 3 values (iss)"); nothing is filled then. */
TDM_API tdm_status tdm_unpack(const tdm_value *array, const char *format, ...);
TDM_API tdm_status tdm_unpack_va(const tdm_value *array, const char *format, va_list args);

#ifdef __cplusplus
}
#endif

#endif
