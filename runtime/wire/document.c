/* document.c - parses packed values into a tree. */
/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack-c's own parser nests 32 deep and allocates what a header claims, so its input would
 * have to be walked beforehand anyway.  This one walks the bytes twice: the first time it
 * checks everything and counts what the document will hold, then all memory is taken at once,
 * and the second time it fills it.  The two must agree to the byte. */
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/wire/ndarray.h"
#include "runtime/wire/value.h"

#include <string.h>

enum { DEPTH_MAX = 64, VALUES_MAX = 1 << 24 };

/* Behind the values, in the same memory: pointers to the references and handles, the arrays,
 * the data of those that could not be borrowed, and the text. */
struct tdm_document {
    void (*release)(void *arg); /* of what is borrowed; NULL if nothing is */
    void *release_arg;
    size_t size_bytes;   /* of this memory */
    size_t packed_bytes; /* of what was parsed */
    const struct tdm_value **exts;
    uint32_t exts_count;
    struct tdm_value values[]; /* [0] is the root */
};

/* What the document will hold. */
struct counts {
    uint32_t values;
    uint32_t exts;
    uint32_t ndarrays;
    size_t data_bytes; /* of arrays, each rounded up to the alignment */
    size_t text_bytes; /* strings with their NUL; if nothing is borrowed, all other bytes too */
};

/* The next free place of each part. */
struct places {
    struct tdm_value *values;
    const struct tdm_value **exts;
    struct tdm_ndarray *ndarrays;
    char *data;
    char *text;
};

struct reader {
    const char *bytes;
    size_t size_bytes;
    size_t offset;
    bool borrows; /* points into `bytes` where it can */
    struct counts counts;
    struct places places;
};

/* ---- one value's header ----------------------------------------------------------------- */

static size_t bytes_left(const struct reader *reader)
{
    return reader->size_bytes - reader->offset;
}

static tdm_status cut_short(const struct reader *reader, uint64_t wanted)
{
    return tdm__fail(TDM_E_PROTOCOL, "packed value: %llu bytes wanted at offset %zu, %zu are left",
                     (unsigned long long)wanted, reader->offset, bytes_left(reader));
}

/* A big-endian number of 1, 2, 4 or 8 bytes. */
static tdm_status read_number(struct reader *reader, size_t width, uint64_t *number_out)
{
    uint64_t number = 0;

    if (bytes_left(reader) < width) {
        return cut_short(reader, width);
    }
    for (size_t i = 0; i < width; i++) {
        number = number << 8 | (uint8_t)reader->bytes[reader->offset + i];
    }
    reader->offset += width;
    *number_out = number;
    return TDM_OK;
}

static tdm_status read_unsigned(struct reader *reader, size_t width, struct tdm_value *value)
{
    value->kind = TDM_INT;
    value->as.integer.negative = false;
    return read_number(reader, width, &value->as.integer.bits);
}

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

static tdm_status read_sized(struct reader *reader, enum tdm_value_kind kind, size_t width,
                             struct tdm_value *value)
{
    uint64_t count = 0;

    TDM_TRY(read_number(reader, width, &count));
    value->kind = kind;
    value->count = (uint32_t)count;
    return TDM_OK;
}

static tdm_status read_ext(struct reader *reader, size_t width, struct tdm_value *value)
{
    uint64_t type = 0;

    TDM_TRY(read_sized(reader, TDM_NIL, width, value));
    TDM_TRY(read_number(reader, 1, &type));
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
    default:
        return tdm__fail(TDM_E_PROTOCOL, "packed value: unknown extension type %llu at offset %zu",
                         (unsigned long long)type, reader->offset - 1);
    }
}

/* Its size is in the tag. */
static tdm_status read_fixed_ext(struct reader *reader, uint32_t size_bytes,
                                 struct tdm_value *value)
{
    TDM_TRY(read_ext(reader, 0, value));
    value->count = size_bytes;
    return TDM_OK;
}

static tdm_status small(struct tdm_value *value, enum tdm_value_kind kind, uint32_t count)
{
    value->kind = kind;
    value->count = count;
    return TDM_OK;
}

static tdm_status read_wide_head(struct reader *reader, uint8_t tag, struct tdm_value *value)
{
    switch (tag) {
    case 0xc0:
        return small(value, TDM_NIL, 0);
    case 0xc2:
    case 0xc3:
        value->as.truth = tag == 0xc3;
        return small(value, TDM_BOOL, 0);
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
        return read_fixed_ext(reader, 1u << (tag - 0xd4), value);
    case 0xd9:
    case 0xda:
    case 0xdb:
        return read_sized(reader, TDM_STRING, (size_t)1 << (tag - 0xd9), value);
    case 0xdc:
    case 0xdd:
        return read_sized(reader, TDM_ARRAY, tag == 0xdc ? 2 : 4, value);
    case 0xde:
    case 0xdf:
        return read_sized(reader, TDM_MAP, tag == 0xde ? 2 : 4, value);
    default: /* 0xc1 */
        return tdm__fail(TDM_E_PROTOCOL, "packed value: unknown type 0x%02x at offset %zu", tag,
                         reader->offset - 1);
    }
}

/* Reads all of a number, and of the other kinds the type and the count. */
static tdm_status read_head(struct reader *reader, struct tdm_value *value)
{
    uint64_t tag = 0;

    TDM_TRY(read_number(reader, 1, &tag));
    value->count = 0;
    if (tag <= 0x7f || tag >= 0xe0) {
        reader->offset--;
        return read_signed(reader, 1, value);
    }
    if (tag <= 0x8f) {
        return small(value, TDM_MAP, tag & 0x0f);
    }
    if (tag <= 0x9f) {
        return small(value, TDM_ARRAY, tag & 0x0f);
    }
    if (tag <= 0xbf) {
        return small(value, TDM_STRING, tag & 0x1f);
    }
    return read_wide_head(reader, (uint8_t)tag, value);
}

/* Values inside this one. */
static uint64_t children_count(const struct tdm_value *value)
{
    if (value->kind == TDM_ARRAY) {
        return value->count;
    }
    return value->kind == TDM_MAP ? 2 * (uint64_t)value->count : 0;
}

/* Its count is that of the bytes behind its header. */
static bool has_body(const struct tdm_value *value)
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

/* ---- arrays ----------------------------------------------------------------------------- */

static tdm_status read_ndarray(const struct reader *reader, uint32_t body_bytes,
                               struct tdm_ndarray *ndarray_out)
{
    struct tdm_bytes body = {reader->bytes + reader->offset, body_bytes};

    return tdm__ndarray_read(body, reader->offset, ndarray_out);
}

/* The room for its data in the document's own memory; 0 if it can stay where it is. */
static size_t data_room(const struct reader *reader, const struct tdm_ndarray *ndarray)
{
    size_t size_bytes = tdm_ndarray_bytes(ndarray);

    if (reader->borrows && (uintptr_t)ndarray->data % tdm_dtype_bytes(ndarray->dtype) == 0) {
        return 0;
    }
    return (size_bytes + TDM__NDARRAY_ALIGNMENT - 1) & -(size_t)TDM__NDARRAY_ALIGNMENT;
}

/* ---- the first walk --------------------------------------------------------------------- */

static tdm_status scan_string(struct reader *reader, uint32_t length)
{
    if (memchr(reader->bytes + reader->offset, '\0', length) != NULL) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "packed value: the string at offset %zu contains a NUL byte",
                         reader->offset);
    }
    reader->counts.text_bytes += (size_t)length + 1;
    return TDM_OK;
}

static tdm_status scan_ext(struct reader *reader, uint32_t size_bytes)
{
    if (size_bytes > TDM__EXT_BYTES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "packed value: the reference or handle at offset %zu has %u bytes, "
                         "the limit is %d",
                         reader->offset, size_bytes, TDM__EXT_BYTES_MAX);
    }
    reader->counts.exts++;
    reader->counts.text_bytes += reader->borrows ? 0 : size_bytes;
    return TDM_OK;
}

static tdm_status scan_ndarray(struct reader *reader, uint32_t body_bytes)
{
    struct tdm_ndarray ndarray;

    TDM_TRY(read_ndarray(reader, body_bytes, &ndarray));
    reader->counts.ndarrays++;
    reader->counts.data_bytes += data_room(reader, &ndarray);
    return TDM_OK;
}

static tdm_status scan_body(struct reader *reader, const struct tdm_value *value)
{
    tdm_status status = TDM_OK;

    if (bytes_left(reader) < value->count) {
        return cut_short(reader, value->count);
    }
    if (value->kind == TDM_STRING) {
        status = scan_string(reader, value->count);
    } else if (value->kind == TDM_NDARRAY) {
        status = scan_ndarray(reader, value->count);
    } else if (value->kind == TDM_BYTES) {
        reader->counts.text_bytes += reader->borrows ? 0 : value->count;
    } else {
        status = scan_ext(reader, value->count);
    }
    reader->offset += value->count;
    return status;
}

static tdm_status scan(struct reader *reader, uint32_t depth)
{
    struct tdm_value value;
    uint64_t children;

    TDM_TRY(read_head(reader, &value));
    if (++reader->counts.values > VALUES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "packed value: more than %d values", VALUES_MAX);
    }
    if (has_body(&value)) {
        return scan_body(reader, &value);
    }
    children = children_count(&value);
    if (children > bytes_left(reader)) { /* each takes a byte at least */
        return cut_short(reader, children);
    }
    if ((value.kind == TDM_ARRAY || value.kind == TDM_MAP) && depth == DEPTH_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "packed value: nested deeper than %d at offset %zu",
                         DEPTH_MAX, reader->offset);
    }
    for (uint64_t i = 0; i < children; i++) {
        TDM_TRY(scan(reader, depth + 1));
    }
    return TDM_OK;
}

/* ---- the second walk, which cannot fail ------------------------------------------------- */

static const char *copy_text(struct reader *reader, const char *data, size_t size_bytes)
{
    char *copy = reader->places.text;

    memcpy(copy, data, size_bytes);
    reader->places.text += size_bytes;
    return copy;
}

static const struct tdm_ndarray *fill_ndarray(struct reader *reader, uint32_t body_bytes)
{
    static const _Alignas(TDM__NDARRAY_ALIGNMENT) char no_data[1];
    struct tdm_ndarray *ndarray = reader->places.ndarrays++;
    tdm_status status = read_ndarray(reader, body_bytes, ndarray);
    size_t room;

    TDM_ASSERT(status == TDM_OK);
    room = data_room(reader, ndarray);
    if (tdm_ndarray_bytes(ndarray) == 0) {
        ndarray->data = no_data; /* aligned as others are, and never gone */
    } else if (room > 0) {
        memcpy(reader->places.data, ndarray->data, tdm_ndarray_bytes(ndarray));
        ndarray->data = reader->places.data;
        reader->places.data += room;
    }
    return ndarray;
}

static void fill_body(struct reader *reader, struct tdm_value *value)
{
    const char *data = reader->bytes + reader->offset;

    if (value->kind == TDM_NDARRAY) {
        value->as.ndarray = fill_ndarray(reader, value->count);
    } else if (value->kind == TDM_STRING) {
        value->as.data = copy_text(reader, data, value->count);
        *reader->places.text++ = '\0';
    } else {
        value->as.data = reader->borrows ? data : copy_text(reader, data, value->count);
    }
    if (value->kind == TDM_REFERENCE || value->kind == TDM_HANDLE) {
        *reader->places.exts++ = value;
    }
    reader->offset += value->count;
}

static void fill(struct reader *reader, struct tdm_value *value)
{
    struct tdm_value *children = reader->places.values;
    tdm_status status = read_head(reader, value);
    uint64_t count;

    TDM_ASSERT(status == TDM_OK);
    if (has_body(value)) {
        fill_body(reader, value);
        return;
    }
    if (value->kind == TDM_ARRAY || value->kind == TDM_MAP) {
        count = children_count(value);
        reader->places.values += count;
        value->as.values = children;
        for (uint64_t i = 0; i < count; i++) {
            fill(reader, &children[i]);
        }
    }
}

/* ---- documents -------------------------------------------------------------------------- */

static tdm_status document_create(struct reader *reader, tdm_document **document_out)
{
    const struct counts *counts = &reader->counts;
    struct places *places = &reader->places;
    size_t data_bytes =
        counts->data_bytes > 0 ? counts->data_bytes + TDM__NDARRAY_ALIGNMENT - 1 : 0;
    size_t size_bytes = sizeof(tdm_document) + counts->values * sizeof(struct tdm_value) +
                        counts->exts * sizeof(struct tdm_value *) +
                        counts->ndarrays * sizeof(struct tdm_ndarray) + data_bytes +
                        counts->text_bytes;
    tdm_document *document = tdm__free_list_alloc(size_bytes);

    if (document == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a document of %u values, %zu bytes", counts->values,
                         size_bytes);
    }
    places->values = document->values + 1;
    places->exts = (const struct tdm_value **)(document->values + counts->values);
    places->ndarrays = (struct tdm_ndarray *)(places->exts + counts->exts);
    places->data = (char *)(places->ndarrays + counts->ndarrays);
    places->text = places->data + data_bytes;
    if (data_bytes > 0) {
        places->data += -(uintptr_t)places->data % TDM__NDARRAY_ALIGNMENT;
    }
    document->size_bytes = size_bytes;
    document->packed_bytes = reader->size_bytes;
    document->exts = places->exts;
    document->exts_count = counts->exts;
    *document_out = document;
    return TDM_OK;
}

static tdm_status parse(struct reader *reader, tdm_document **document_out)
{
    TDM_TRY(scan(reader, 0));
    if (bytes_left(reader) != 0) {
        return tdm__fail(TDM_E_PROTOCOL, "packed value: it ends at offset %zu of %zu bytes",
                         reader->offset, reader->size_bytes);
    }
    TDM_TRY(document_create(reader, document_out));
    reader->offset = 0;
    fill(reader, (*document_out)->values);
    return TDM_OK;
}

tdm_status tdm_document_parse(struct tdm_bytes bytes, tdm_document **document_out)
{
    TDM__REQUIRE(document_out);
    *document_out = NULL;

    struct reader reader = {.bytes = bytes.data, .size_bytes = bytes.size_bytes};

    TDM_TRY(parse(&reader, document_out));
    (*document_out)->release = NULL;
    return TDM_OK;
}

tdm_status tdm__document_parse_borrowed(struct tdm_bytes bytes, void (*release)(void *arg),
                                        void *arg, tdm_document **document_out)
{
    struct reader reader = {.bytes = bytes.data, .size_bytes = bytes.size_bytes, .borrows = true};

    TDM_TRY(parse(&reader, document_out));
    (*document_out)->release = release;
    (*document_out)->release_arg = arg;
    return TDM_OK;
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
    *count_out = document->exts_count;
    return document->exts;
}
