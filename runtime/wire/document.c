/* document.c - parses packed values into a tree. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A document is one block of memory: the header, all values of the tree, and behind them what the
 * values point to.  Parsing reads the bytes twice.  The first pass (scan_...) checks everything
 * and counts what the document will hold; then the memory is allocated at once; and the second
 * pass (fill_...) fills it.  The two passes must agree to the byte, and the second one cannot
 * fail.
 *
 * There are two kinds of documents: one that copies everything (tdm_document_parse), and one that
 * owns the packed bytes and points into them where it can (tdm__document_parse_borrowed).  The
 * input is not trusted: nesting, number of values and all sizes are limited before memory is
 * allocated. msgpack-c's own parser nests at most 32 levels and allocates what a header claims
 * (docs/decisions/0006-own-msgpack-parser.md).
 *
 * A document does not change after parsing, so any number of threads may read it.
 * docs/protocols/values.md describes the bytes. */
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/wire/ndarray.h"
#include "runtime/wire/value.h"

#include <string.h>

enum { DEPTH_MAX = 64 }; /* Largest depth of nested arrays and maps in a document. */

/* A parsed document; owned by the code that parsed it.  Behind the values, in the same memory,
 * are the pointers to references and handles, the structures of n-dimensional arrays, array data
 * that could not be borrowed, and the texts. */
struct tdm_document {
    /* Callback that releases the packed bytes into which the document points; NULL if it copied
     * them. */
    void (*release)(void *arg);
    void *release_arg;   /* First argument of release(). */
    size_t size_bytes;   /* Size in bytes of the memory block that is the document. */
    size_t packed_bytes; /* Number of packed bytes from which the document was parsed. */
    /* References and handles in the order in which they were packed. */
    const struct tdm_value **extensions;
    uint32_t extensions_count; /* Number of entries in `extensions`. */
    struct tdm_value values[]; /* All values of the tree; values[0] is the root. */
};

/* What a document will hold, counted by the first pass. */
struct document_counts {
    uint32_t values;     /* Number of values in the packed bytes. */
    uint32_t extensions; /* Number of references and handles. */
    uint32_t ndarrays;   /* Number of n-dimensional arrays. */
    /* Number of bytes of array data to copy, each array rounded up to TDM__NDARRAY_ALIGNMENT. */
    size_t data_bytes;
    /* Number of bytes of the strings with their NULs and, if the document borrows nothing, of all
     * other bodies. */
    size_t text_bytes;
};

/* Where the second pass writes next in each section of the document. */
struct fill_cursors {
    struct tdm_value *values;            /* Next unused value of the tree. */
    const struct tdm_value **extensions; /* Place of the next pointer to a reference or handle. */
    struct tdm_ndarray *ndarrays;        /* Place of the next struct tdm_ndarray. */
    char *data;                          /* Place for the next array's data, aligned. */
    char *text;                          /* Place of the next byte of strings and other bodies. */
};

/* State of one parse; lives on the stack. */
struct reader {
    const char *bytes;             /* Packed bytes that are parsed; borrowed. */
    size_t size_bytes;             /* Number of packed bytes. */
    size_t offset;                 /* Position of the next byte to read. */
    bool borrows;                  /* True if the document may point into `bytes`. */
    uint32_t values_max;           /* Most values that the document may have. */
    const tdm_value *const *parts; /* Values that stand for parts; borrowed. */
    uint32_t parts_count;          /* Number of entries in `parts`. */
    /* True if the header that was read last is that of a part, whose value is complete. */
    bool is_part;
    struct document_counts counts; /* What the document will hold, counted by the first pass. */
    struct fill_cursors cursors;   /* Where the second pass writes next. */
};

/* ---- one value's header ----------------------------------------------------------------- */

/* Returns the number of packed bytes that have not been read. */
static size_t bytes_left(const struct reader *reader)
{
    return reader->size_bytes - reader->offset;
}

/* Records that the input ends too early.  Returns TDM_E_PROTOCOL. */
static tdm_status reader_fail_short(const struct reader *reader, uint64_t wanted)
{
    return tdm__fail(TDM_E_PROTOCOL, "packed value: %llu bytes wanted at offset %zu, %zu are left",
                     (unsigned long long)wanted, reader->offset, bytes_left(reader));
}

/* Reads a big-endian number of `width` bytes: 1, 2, 4 or 8; 0 bytes give 0. */
static tdm_status read_number(struct reader *reader, size_t width, uint64_t *number_out)
{
    uint64_t number = 0;

    if (bytes_left(reader) < width) {
        return reader_fail_short(reader, width);
    }
    for (size_t i = 0; i < width; i++) {
        number = number << 8 | (uint8_t)reader->bytes[reader->offset + i];
    }
    reader->offset += width;
    *number_out = number;
    return TDM_OK;
}

/* Reads an unsigned integer of `width` bytes. */
static tdm_status read_unsigned(struct reader *reader, size_t width, struct tdm_value *value)
{
    value->kind = TDM_INT;
    value->as.integer.negative = false;
    return read_number(reader, width, &value->as.integer.bits);
}

/* Reads a signed integer of `width` bytes and extends its sign. */
static tdm_status read_signed(struct reader *reader, size_t width, struct tdm_value *value)
{
    uint64_t bits = 0;
    unsigned shift = (unsigned)(64 - 8 * width);

    TDM_TRY(read_number(reader, width, &bits));
    bits = (uint64_t)((int64_t)(bits << shift) >> shift);
    value->kind = TDM_INT;
    value->as.integer.bits = bits;
    value->as.integer.negative = bits >> 63 != 0;
    return TDM_OK;
}

/* Reads a float of 4 or 8 bytes as a double. */
static tdm_status read_float(struct reader *reader, size_t width, struct tdm_value *value)
{
    uint64_t bits = 0;

    TDM_TRY(read_number(reader, width, &bits));
    value->kind = TDM_DOUBLE;
    if (width == sizeof(float)) {
        uint32_t narrow_bits = (uint32_t)bits;
        float narrow;

        memcpy(&narrow, &narrow_bits, sizeof(narrow));
        value->as.number = (double)narrow;
    } else {
        memcpy(&value->as.number, &bits, sizeof(bits));
    }
    return TDM_OK;
}

/* Reads the number of values of an array or of pairs of a map, a number of `width` bytes. */
static tdm_status read_counted(struct reader *reader, enum tdm_value_kind kind, size_t width,
                               struct tdm_value *value)
{
    uint64_t count = 0;

    TDM_TRY(read_number(reader, width, &count));
    value->kind = kind;
    value->count = (uint32_t)count;
    return TDM_OK;
}

/* Reads the number of bytes of a string or of bytes, a number of `width` bytes. */
static tdm_status read_sized(struct reader *reader, enum tdm_value_kind kind, size_t width,
                             struct tdm_value *value)
{
    uint64_t size_bytes = 0;

    TDM_TRY(read_number(reader, width, &size_bytes));
    value->kind = kind;
    value->as.size_bytes = size_bytes;
    return TDM_OK;
}

/* Reads the extension of a value whose bytes follow behind the extension: their number. */
static tdm_status read_large(struct reader *reader, enum tdm_value_kind kind, uint64_t ext_bytes,
                             struct tdm_value *value)
{
    if (ext_bytes != sizeof(uint64_t)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "packed value: the size at offset %zu has %llu bytes instead of 8",
                         reader->offset, (unsigned long long)ext_bytes);
    }
    return read_sized(reader, kind, sizeof(uint64_t), value);
}

/* Reads the number of a part, and gives the value for which it stands. */
static tdm_status read_part(struct reader *reader, uint64_t ext_bytes, struct tdm_value *value)
{
    uint64_t number = 0;

    TDM_TRY(read_number(reader, 1, &number));
    if (ext_bytes != 1 || number >= reader->parts_count) {
        return tdm__fail(TDM_E_PROTOCOL, "packed value: part %llu at offset %zu, there are %u",
                         (unsigned long long)number, reader->offset - 1, reader->parts_count);
    }
    *value = *reader->parts[number];
    reader->is_part = true;
    return TDM_OK;
}

/* Reads the type of an extension of `size_bytes` bytes. */
static tdm_status read_ext_type(struct reader *reader, uint64_t size_bytes, struct tdm_value *value)
{
    uint64_t type = 0;

    TDM_TRY(read_number(reader, 1, &type));
    value->as.size_bytes = size_bytes;
    if (type == TDM__EXT_PART && reader->parts_count > 0) {
        return read_part(reader, size_bytes, value);
    }
    switch (type) {
    case TDM__EXT_NDARRAY:
        value->kind = TDM_NDARRAY;
        return TDM_OK;
    case TDM__EXT_REFERENCE:
        value->kind = TDM_REFERENCE;
        return TDM_OK;
    case TDM__EXT_HANDLE:
        value->kind = TDM_HANDLE;
        return TDM_OK;
    case TDM__EXT_LARGE_BYTES:
        return read_large(reader, TDM_BYTES, size_bytes, value);
    case TDM__EXT_LARGE_NDARRAY:
        return read_large(reader, TDM_NDARRAY, size_bytes, value);
    default:
        return tdm__fail(TDM_E_PROTOCOL, "packed value: unknown extension type %llu at offset %zu",
                         (unsigned long long)type, reader->offset - 1);
    }
}

/* Reads the size, of `width` bytes, and the type of an extension. */
static tdm_status read_ext(struct reader *reader, size_t width, struct tdm_value *value)
{
    uint64_t size_bytes = 0;

    TDM_TRY(read_number(reader, width, &size_bytes));
    return read_ext_type(reader, size_bytes, value);
}

/* Sets the size of a string whose tag byte contains it.  Returns TDM_OK. */
static tdm_status value_set_string(struct tdm_value *value, uint32_t size_bytes)
{
    value->kind = TDM_STRING;
    value->as.size_bytes = size_bytes;
    return TDM_OK;
}

/* Sets kind and count of a value whose tag byte contains both.  Returns TDM_OK. */
static tdm_status value_set_count(struct tdm_value *value, enum tdm_value_kind kind, uint32_t count)
{
    value->kind = kind;
    value->count = count;
    return TDM_OK;
}

/* Reads the rest of a header that starts with a tag from 0xc0 to 0xdf. */
static tdm_status read_tagged_head(struct reader *reader, uint8_t tag, struct tdm_value *value)
{
    switch (tag) {
    case 0xc0:
        return value_set_count(value, TDM_NIL, 0);
    case 0xc2:
    case 0xc3:
        value->as.truth = tag == 0xc3;
        return value_set_count(value, TDM_BOOL, 0);
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return read_sized(reader, TDM_BYTES, (size_t)1 << (tag - 0xc4), value);
    case 0xc7:
    case 0xc8:
    case 0xc9:
        return read_ext(reader, (size_t)1 << (tag - 0xc7), value);
    case 0xca:
    case 0xcb:
        return read_float(reader, tag == 0xca ? 4 : 8, value);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        return read_unsigned(reader, (size_t)1 << (tag - 0xcc), value);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return read_signed(reader, (size_t)1 << (tag - 0xd0), value);
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return read_ext_type(reader, 1u << (tag - 0xd4), value);
    case 0xd9:
    case 0xda:
    case 0xdb:
        return read_sized(reader, TDM_STRING, (size_t)1 << (tag - 0xd9), value);
    case 0xdc:
    case 0xdd:
        return read_counted(reader, TDM_ARRAY, tag == 0xdc ? 2 : 4, value);
    case 0xde:
    case 0xdf:
        return read_counted(reader, TDM_MAP, tag == 0xde ? 2 : 4, value);
    default: /* 0xc1 */
        return tdm__fail(TDM_E_PROTOCOL, "packed value: unknown type 0x%02x at offset %zu", tag,
                         reader->offset - 1);
    }
}

/* Reads the header of a value: all of a nil, bool or number, and kind and count of the other
 * kinds. */
static tdm_status read_head(struct reader *reader, struct tdm_value *value)
{
    uint64_t tag = 0;

    TDM_TRY(read_number(reader, 1, &tag));
    value->count = 0;
    reader->is_part = false;
    if (tag <= 0x7f || tag >= 0xe0) {
        reader->offset--;
        return read_signed(reader, 1, value);
    }
    if (tag <= 0x8f) {
        return value_set_count(value, TDM_MAP, tag & 0x0f);
    }
    if (tag <= 0x9f) {
        return value_set_count(value, TDM_ARRAY, tag & 0x0f);
    }
    if (tag <= 0xbf) {
        return value_set_string(value, tag & 0x1f);
    }
    return read_tagged_head(reader, (uint8_t)tag, value);
}

/* Returns the number of values directly inside of an array or a map; 0 for other kinds. */
static uint64_t children_count(const struct tdm_value *value)
{
    if (value->kind == TDM_ARRAY) {
        return value->count;
    }
    return value->kind == TDM_MAP ? 2 * (uint64_t)value->count : 0;
}

/* Returns true for the kinds whose header is followed by `as.size_bytes` bytes. */
static bool value_has_body(const struct tdm_value *value)
{
    switch (value->kind) {
    case TDM_STRING:
    case TDM_BYTES:
    case TDM_NDARRAY:
    case TDM_REFERENCE:
    case TDM_HANDLE:
        return true;
    case TDM_NIL:
    case TDM_BOOL:
    case TDM_INT:
    case TDM_DOUBLE:
    case TDM_ARRAY:
    case TDM_MAP:
        break;
    }
    return false;
}

/* ---- n-dimensional arrays --------------------------------------------------------------- */

/* Reads the body of an n-dimensional array at the current offset; the data stays where it is. */
static tdm_status read_ndarray(const struct reader *reader, size_t body_bytes,
                               struct tdm_ndarray *ndarray_out)
{
    struct tdm_bytes body = {reader->bytes + reader->offset, body_bytes};

    return tdm__ndarray_read(body, reader->offset, ndarray_out);
}

/* Returns the size of the aligned copy of the array data that the document needs; 0 if the
 * document can point to the data in the packed bytes. */
static size_t ndarray_copy_bytes(const struct reader *reader, const struct tdm_ndarray *ndarray)
{
    size_t size_bytes = tdm_ndarray_bytes(ndarray);

    if (reader->borrows && (uintptr_t)ndarray->data % tdm_dtype_bytes(ndarray->dtype) == 0) {
        return 0;
    }
    return (size_bytes + TDM__NDARRAY_ALIGNMENT - 1) & -(size_t)TDM__NDARRAY_ALIGNMENT;
}

/* ---- first pass: checks and counts ------------------------------------------------------ */

/* Checks the body of a string and counts it. */
static tdm_status scan_string(struct reader *reader, size_t length)
{
    if (memchr(reader->bytes + reader->offset, '\0', length) != NULL) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "packed value: the string at offset %zu contains a NUL byte",
                         reader->offset);
    }
    reader->counts.text_bytes += length + 1;
    return TDM_OK;
}

/* Checks the body of a reference or handle and counts it. */
static tdm_status scan_ext(struct reader *reader, size_t size_bytes)
{
    if (size_bytes > TDM__EXT_BYTES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "packed value: the reference or handle at offset %zu has %zu bytes, "
                         "the limit is %d",
                         reader->offset, size_bytes, TDM__EXT_BYTES_MAX);
    }
    reader->counts.extensions++;
    reader->counts.text_bytes += reader->borrows ? 0 : size_bytes;
    return TDM_OK;
}

/* Checks the body of an n-dimensional array and counts it. */
static tdm_status scan_ndarray(struct reader *reader, size_t body_bytes)
{
    struct tdm_ndarray ndarray;

    TDM_TRY(read_ndarray(reader, body_bytes, &ndarray));
    reader->counts.ndarrays++;
    reader->counts.data_bytes += ndarray_copy_bytes(reader, &ndarray);
    return TDM_OK;
}

/* Checks and counts the body of a value and skips it. */
static tdm_status scan_body(struct reader *reader, const struct tdm_value *value)
{
    size_t size_bytes = value->as.size_bytes;
    tdm_status status = TDM_OK;

    if (bytes_left(reader) < size_bytes) {
        return reader_fail_short(reader, size_bytes);
    }
    if (value->kind == TDM_STRING) {
        status = scan_string(reader, size_bytes);
    } else if (value->kind == TDM_NDARRAY) {
        status = scan_ndarray(reader, size_bytes);
    } else if (value->kind == TDM_BYTES) {
        reader->counts.text_bytes += reader->borrows ? 0 : size_bytes;
    } else {
        status = scan_ext(reader, size_bytes);
    }
    reader->offset += size_bytes;
    return status;
}

/* Checks and counts one value with everything inside of it.  `depth` is the number of arrays and
 * maps around it. */
static tdm_status scan_value(struct reader *reader, uint32_t depth)
{
    struct tdm_value value;
    uint64_t children;

    TDM_TRY(read_head(reader, &value));
    if (++reader->counts.values > reader->values_max) {
        return tdm__fail(reader->values_max < TDM__DOCUMENT_VALUES_MAX ? TDM_E_LIMIT
                                                                       : TDM_E_PROTOCOL,
                         "packed value: more than %u values", reader->values_max);
    }
    if (reader->is_part) {
        return TDM_OK;
    }
    if (value_has_body(&value)) {
        return scan_body(reader, &value);
    }
    children = children_count(&value);
    if (children > bytes_left(reader)) { /* Each value takes at least one packed byte. */
        return reader_fail_short(reader, children);
    }
    if ((value.kind == TDM_ARRAY || value.kind == TDM_MAP) && depth == DEPTH_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "packed value: nested deeper than %d at offset %zu",
                         DEPTH_MAX, reader->offset);
    }
    for (uint64_t i = 0; i < children; i++) {
        TDM_TRY(scan_value(reader, depth + 1));
    }
    return TDM_OK;
}

/* ---- second pass: fills the document, cannot fail --------------------------------------- */

/* Copies bytes to the text section of the document and returns the copy. */
static const char *copy_text(struct reader *reader, const char *data, size_t size_bytes)
{
    char *copy = reader->cursors.text;

    memcpy(copy, data, size_bytes);
    reader->cursors.text += size_bytes;
    return copy;
}

/* Creates the structure of an n-dimensional array, and copies its data if necessary. */
static const struct tdm_ndarray *fill_ndarray(struct reader *reader, size_t body_bytes)
{
    static const _Alignas(TDM__NDARRAY_ALIGNMENT) char no_data[1];
    struct tdm_ndarray *ndarray = reader->cursors.ndarrays++;
    tdm_status status = read_ndarray(reader, body_bytes, ndarray);
    size_t copy_bytes;

    TDM_ASSERT(status == TDM_OK);
    copy_bytes = ndarray_copy_bytes(reader, ndarray);
    if (tdm_ndarray_bytes(ndarray) == 0) {
        /* Empty data points to a static address, which is aligned like other data. */
        ndarray->data = no_data;
    } else if (copy_bytes > 0) {
        memcpy(reader->cursors.data, ndarray->data, tdm_ndarray_bytes(ndarray));
        ndarray->data = reader->cursors.data;
        reader->cursors.data += copy_bytes;
    }
    return ndarray;
}

/* Stores the body of a value in the document. */
static void fill_body(struct reader *reader, struct tdm_value *value)
{
    const char *data = reader->bytes + reader->offset;
    size_t size_bytes = value->as.size_bytes;

    if (value->kind == TDM_NDARRAY) {
        value->as.ndarray = fill_ndarray(reader, size_bytes);
    } else if (value->kind == TDM_STRING) {
        value->as.data = copy_text(reader, data, size_bytes);
        *reader->cursors.text++ = '\0';
    } else {
        value->as.data = reader->borrows ? data : copy_text(reader, data, size_bytes);
    }
    if (value->kind == TDM_REFERENCE || value->kind == TDM_HANDLE) {
        *reader->cursors.extensions++ = value;
    }
    reader->offset += size_bytes;
}

/* Stores one value and all values inside of it in the document. */
static void fill_value(struct reader *reader, struct tdm_value *value)
{
    struct tdm_value *children = reader->cursors.values;
    tdm_status status = read_head(reader, value);
    uint64_t count;

    TDM_ASSERT(status == TDM_OK);
    if (reader->is_part) {
        return;
    }
    if (value_has_body(value)) {
        fill_body(reader, value);
        return;
    }
    if (value->kind == TDM_ARRAY || value->kind == TDM_MAP) {
        count = children_count(value);
        reader->cursors.values += count;
        value->as.values = children;
        for (uint64_t i = 0; i < count; i++) {
            fill_value(reader, &children[i]);
        }
    }
}

/* ---- documents -------------------------------------------------------------------------- */

/* Allocates the document from the counts of the first pass and sets the cursors to its sections.
 */
static tdm_status document_create(struct reader *reader, tdm_document **document_out)
{
    const struct document_counts *counts = &reader->counts;
    struct fill_cursors *cursors = &reader->cursors;
    size_t data_bytes =
        counts->data_bytes > 0 ? counts->data_bytes + TDM__NDARRAY_ALIGNMENT - 1 : 0;
    size_t size_bytes = sizeof(tdm_document) + counts->values * sizeof(struct tdm_value) +
                        counts->extensions * sizeof(struct tdm_value *) +
                        counts->ndarrays * sizeof(struct tdm_ndarray) + data_bytes +
                        counts->text_bytes;
    tdm_document *document = tdm__free_list_alloc(size_bytes);

    if (document == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocation of a document of %u values, %zu bytes failed",
                         counts->values, size_bytes);
    }
    cursors->values = document->values + 1;
    cursors->extensions = (const struct tdm_value **)(document->values + counts->values);
    cursors->ndarrays = (struct tdm_ndarray *)(cursors->extensions + counts->extensions);
    cursors->data = (char *)(cursors->ndarrays + counts->ndarrays);
    cursors->text = cursors->data + data_bytes;
    if (data_bytes > 0) {
        cursors->data += -(uintptr_t)cursors->data % TDM__NDARRAY_ALIGNMENT;
    }
    document->size_bytes = size_bytes;
    document->packed_bytes = reader->size_bytes;
    document->extensions = cursors->extensions;
    document->extensions_count = counts->extensions;
    *document_out = document;
    return TDM_OK;
}

/* Runs both passes over the packed bytes and creates the document. */
static tdm_status reader_parse(struct reader *reader, tdm_document **document_out)
{
    TDM_TRY(scan_value(reader, 0));
    if (bytes_left(reader) != 0) {
        return tdm__fail(TDM_E_PROTOCOL, "packed value: it ends at offset %zu of %zu bytes",
                         reader->offset, reader->size_bytes);
    }
    TDM_TRY(document_create(reader, document_out));
    reader->offset = 0;
    fill_value(reader, (*document_out)->values);
    return TDM_OK;
}

tdm_status tdm_document_parse(struct tdm_bytes bytes, tdm_document **document_out)
{
    TDM__REQUIRE(document_out);
    *document_out = NULL;

    struct reader reader = {.bytes = bytes.data,
                            .size_bytes = bytes.size_bytes,
                            .values_max = TDM__DOCUMENT_VALUES_MAX};

    TDM_TRY(reader_parse(&reader, document_out));
    (*document_out)->release = NULL;
    return TDM_OK;
}

tdm_status tdm__document_parse_borrowed(struct tdm_bytes bytes, void (*release)(void *arg),
                                        void *arg, tdm_document **document_out)
{
    return tdm__document_parse_limited(bytes, TDM__DOCUMENT_VALUES_MAX, release, arg, document_out);
}

/* Runs the reader over bytes that the document borrows, and gives them to the document. */
static tdm_status reader_parse_borrowed(struct reader *reader, void (*release)(void *arg),
                                        void *arg, tdm_document **document_out)
{
    TDM_TRY(reader_parse(reader, document_out));
    (*document_out)->release = release;
    (*document_out)->release_arg = arg;
    return TDM_OK;
}

tdm_status tdm__document_parse_limited(struct tdm_bytes bytes, uint32_t values_max,
                                       void (*release)(void *arg), void *arg,
                                       tdm_document **document_out)
{
    struct reader reader = {.bytes = bytes.data,
                            .size_bytes = bytes.size_bytes,
                            .borrows = true,
                            .values_max = values_max};

    return reader_parse_borrowed(&reader, release, arg, document_out);
}

tdm_status tdm__document_parse_parts(struct tdm_bytes bytes, const tdm_value *const *parts,
                                     uint32_t parts_count, void (*release)(void *arg), void *arg,
                                     tdm_document **document_out)
{
    struct reader reader = {.bytes = bytes.data,
                            .size_bytes = bytes.size_bytes,
                            .borrows = true,
                            .values_max = TDM__DOCUMENT_VALUES_MAX,
                            .parts = parts,
                            .parts_count = parts_count};

    return reader_parse_borrowed(&reader, release, arg, document_out);
}

void tdm_document_destroy(tdm_document *document)
{
    if (document == NULL) {
        return;
    }
    if (document->release != NULL) {
        document->release(document->release_arg);
    }
    tdm__free_list_free(document, document->size_bytes);
}

const tdm_value *tdm_document_root(const tdm_document *document)
{
    TDM__REQUIRE_OR(document, NULL);

    return document->values;
}

size_t tdm__document_packed_bytes(const tdm_document *document)
{
    return document->packed_bytes;
}

const tdm_value *const *tdm__document_exts(const tdm_document *document, uint32_t *count_out)
{
    *count_out = document->extensions_count;
    return document->extensions;
}
