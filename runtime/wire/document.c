/* document.c - parses packed values into a tree, and reads the tree. */
/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack-c's own parser nests 32 deep and allocates what a header claims, so its input would
 * have to be walked beforehand anyway.  This one walks the bytes twice: the first time it
 * checks everything and counts the values, then all memory is taken at once, and the second
 * time it fills it. */
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/wire/value.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64, VALUES_MAX = 1 << 24 };

struct tdm_document {
    char *bytes;               /* the copied input, behind the values */
    struct tdm_value values[]; /* [0] is the root */
};

struct reader {
    char *bytes; /* written only by fill(), which owns them */
    size_t size_bytes;
    size_t offset;
    struct tdm_value *unused; /* fill(): the next free value */
    uint32_t values_count;    /* scan(): values so far */
};

/* ---- one value's header ----------------------------------------------------------------- */

static size_t bytes_left(const struct reader *reader)
{
    return reader->size_bytes - reader->offset;
}

static tdm_status cut_short(const struct reader *reader, uint64_t wanted)
{
    return tdm__fail(TDM_E_PROTOCOL,
                     "packed value: %llu bytes wanted at offset %zu, %zu are left",
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
    default: /* 0xc1 is unused, the others are extension types */
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
    switch (value->kind) {
    case TDM_ARRAY:
        return value->count;
    case TDM_MAP:
        return 2 * (uint64_t)value->count;
    case TDM_NIL:
    case TDM_BOOL:
    case TDM_INT:
    case TDM_DOUBLE:
    case TDM_STRING:
    case TDM_BYTES:
        break;
    }
    return 0;
}

/* ---- the two walks ---------------------------------------------------------------------- */

static tdm_status scan_text(struct reader *reader, const struct tdm_value *value)
{
    if (bytes_left(reader) < value->count) {
        return cut_short(reader, value->count);
    }
    if (value->kind == TDM_STRING &&
        memchr(reader->bytes + reader->offset, '\0', value->count) != NULL) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "packed value: the string at offset %zu contains a NUL byte",
                         reader->offset);
    }
    reader->offset += value->count;
    return TDM_OK;
}

static tdm_status scan(struct reader *reader, uint32_t depth)
{
    struct tdm_value value;
    uint64_t children;

    TDM_TRY(read_head(reader, &value));
    if (++reader->values_count > VALUES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "packed value: more than %d values", VALUES_MAX);
    }
    if (value.kind == TDM_STRING || value.kind == TDM_BYTES) {
        return scan_text(reader, &value);
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

/* scan() has checked everything. */
static void fill(struct reader *reader, struct tdm_value *value)
{
    struct tdm_value *children;
    uint64_t count = 0;
    tdm_status status = read_head(reader, value);

    TDM_ASSERT(status == TDM_OK);
    if (value->kind == TDM_STRING || value->kind == TDM_BYTES) {
        char *data = reader->bytes + reader->offset;

        reader->offset += value->count;
        if (value->kind == TDM_STRING) { /* its header, read by now, makes room for the NUL */
            memmove(data - 1, data, value->count);
            data--;
            data[value->count] = '\0';
        }
        value->as.data = data;
        return;
    }
    count = children_count(value);
    if (value->kind == TDM_ARRAY || value->kind == TDM_MAP) {
        children = reader->unused;
        reader->unused += count;
        value->as.values = children;
        for (uint64_t i = 0; i < count; i++) {
            fill(reader, &children[i]);
        }
    }
}

tdm_status tdm_document_parse(struct tdm_bytes bytes, tdm_document **document_out)
{
    struct reader reader = {.bytes = (char *)bytes.data, .size_bytes = bytes.size_bytes};
    tdm_document *document;
    size_t values_bytes;

    TDM_TRY(scan(&reader, 0));
    if (bytes_left(&reader) != 0) {
        return tdm__fail(TDM_E_PROTOCOL, "packed value: it ends at offset %zu of %zu bytes",
                         reader.offset, reader.size_bytes);
    }
    values_bytes = reader.values_count * sizeof(struct tdm_value);
    document = calloc(1, sizeof(*document) + values_bytes + bytes.size_bytes);
    if (document == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a document of %u values, %zu bytes", reader.values_count,
                         bytes.size_bytes);
    }
    document->bytes = (char *)document->values + values_bytes;
    memcpy(document->bytes, bytes.data, bytes.size_bytes);
    reader.bytes = document->bytes;
    reader.offset = 0;
    reader.unused = document->values + 1;
    fill(&reader, document->values);
    *document_out = document;
    return TDM_OK;
}

void tdm_document_destroy(tdm_document *document)
{
    free(document);
}

const tdm_value *tdm_document_root(const tdm_document *document)
{
    return document->values;
}

/* ---- reading ---------------------------------------------------------------------------- */

static bool is_a(const tdm_value *value, enum tdm_value_kind kind)
{
    return value != NULL && value->kind == kind;
}

enum tdm_value_kind tdm_value_kind_of(const tdm_value *value)
{
    return value != NULL ? value->kind : TDM_NIL;
}

uint32_t tdm_value_count(const tdm_value *value)
{
    return is_a(value, TDM_ARRAY) || is_a(value, TDM_MAP) ? value->count : 0;
}

const tdm_value *tdm_value_at(const tdm_value *array, uint32_t index)
{
    return is_a(array, TDM_ARRAY) && index < array->count ? &array->as.values[index] : NULL;
}

const tdm_value *tdm_value_pair(const tdm_value *map, uint32_t index, const char **key_out)
{
    const tdm_value *pair;

    if (!is_a(map, TDM_MAP) || index >= map->count) {
        return NULL;
    }
    pair = &map->as.values[2 * (size_t)index];
    if (key_out != NULL) {
        *key_out = tdm_value_string(&pair[0], NULL);
    }
    return &pair[1];
}

const tdm_value *tdm_value_find(const tdm_value *map, const char *key)
{
    for (uint32_t i = 0; is_a(map, TDM_MAP) && i < map->count; i++) {
        const char *name = NULL;
        const tdm_value *value = tdm_value_pair(map, i, &name);

        if (name != NULL && strcmp(name, key) == 0) {
            return value;
        }
    }
    return NULL;
}

bool tdm__value_fits_int(const tdm_value *value)
{
    return is_a(value, TDM_INT) &&
           (value->as.integer.negative || value->as.integer.bits <= INT64_MAX);
}

bool tdm__value_fits_uint(const tdm_value *value)
{
    return is_a(value, TDM_INT) && !value->as.integer.negative;
}

int64_t tdm_value_int(const tdm_value *value, int64_t otherwise)
{
    return tdm__value_fits_int(value) ? (int64_t)value->as.integer.bits : otherwise;
}

uint64_t tdm_value_uint(const tdm_value *value, uint64_t otherwise)
{
    return tdm__value_fits_uint(value) ? value->as.integer.bits : otherwise;
}

double tdm_value_double(const tdm_value *value, double otherwise)
{
    if (is_a(value, TDM_INT)) {
        return value->as.integer.negative ? (double)(int64_t)value->as.integer.bits
                                          : (double)value->as.integer.bits;
    }
    return is_a(value, TDM_DOUBLE) ? value->as.number : otherwise;
}

int tdm_value_bool(const tdm_value *value, int otherwise)
{
    return is_a(value, TDM_BOOL) ? value->as.truth : otherwise;
}

const char *tdm_value_string(const tdm_value *value, const char *otherwise)
{
    return is_a(value, TDM_STRING) ? value->as.data : otherwise;
}

struct tdm_bytes tdm_value_bytes(const tdm_value *value)
{
    struct tdm_bytes bytes = {NULL, 0};

    if (is_a(value, TDM_BYTES)) {
        bytes.data = value->as.data;
        bytes.size_bytes = value->count;
    }
    return bytes;
}
