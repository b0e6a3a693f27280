/* ndarray.c - the size of n-dimensional arrays, and how they are packed. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The body of the extension (docs/protocols/values.md): version, dtype, number of dimensions
 * and number of padding bytes, a byte each; the shape, 8 big-endian bytes a dimension; zeros up
 * to the next multiple of 64 from the start of the stream; the data. */
#include "runtime/wire/ndarray.h"

#include "runtime/error.h"
#include "runtime/wire/writer.h"

#include <endian.h>
#include <string.h>

enum {
    VERSION = 1,     /* Version of the layout of a packed array. */
    FIXED_BYTES = 4, /* Size in bytes of the fixed part of a packed array's head. */
    DIM_BYTES = 8,   /* Size in bytes of each dimension in a packed array's head. */
    /* Size in bytes of the header of the msgpack extension around a packed array. */
    EXT_HEAD_BYTES = 6
};

uint64_t tdm_ndarray_bytes(const struct tdm_ndarray *ndarray)
{
    TDM__REQUIRE_OR(ndarray, UINT64_MAX);

    uint64_t size_bytes = tdm_dtype_bytes(ndarray->dtype);
    bool overflow = size_bytes == 0 || ndarray->dims_count > TDM_NDARRAY_DIMS_MAX;

    if (overflow) {
        return UINT64_MAX;
    }
    for (uint32_t i = 0; i < ndarray->dims_count; i++) {
        if (ndarray->shape[i] == 0) {
            /* An array with a dimension of 0 is empty.  The product of its other dimensions may
             * overflow. */
            return 0;
        }
        overflow |= __builtin_mul_overflow(size_bytes, ndarray->shape[i], &size_bytes);
    }
    return overflow ? UINT64_MAX : size_bytes;
}

/* ---- writing ---------------------------------------------------------------------------- */

/* Returns the size in bytes of a packed array's head without padding. */
static size_t ndarray_head_bytes(uint32_t dims_count)
{
    return FIXED_BYTES + DIM_BYTES * (size_t)dims_count;
}

/* Returns the number of padding bytes after a packed array's head that ends at `offset`. */
static size_t ndarray_padding(size_t offset)
{
    return -offset % TDM__NDARRAY_ALIGNMENT;
}

/* Writes the head of a packed array and its padding. */
static void ndarray_append_head(tdm_writer *writer, const struct tdm_ndarray *ndarray,
                                size_t padding)
{
    uint8_t head[FIXED_BYTES + DIM_BYTES * TDM_NDARRAY_DIMS_MAX] = {
        VERSION, (uint8_t)ndarray->dtype, (uint8_t)ndarray->dims_count, (uint8_t)padding};
    static const uint8_t zeros[TDM__NDARRAY_ALIGNMENT];

    for (uint32_t i = 0; i < ndarray->dims_count; i++) {
        uint64_t dim = htobe64(ndarray->shape[i]);

        memcpy(head + ndarray_head_bytes(i), &dim, sizeof(dim));
    }
    tdm__writer_append(writer, head, ndarray_head_bytes(ndarray->dims_count));
    tdm__writer_append(writer, zeros, padding);
}

void tdm_write_ndarray(tdm_writer *writer, const struct tdm_ndarray *ndarray)
{
    TDM__REQUIRE_OR(writer, );

    uint64_t size_bytes = ndarray == NULL ? 0 : tdm_ndarray_bytes(ndarray);
    size_t head;
    size_t padding;

    if (ndarray == NULL) {
        tdm__writer_fail(writer, TDM_E_INVAL, "argument \"ndarray\" of tdm_write_ndarray is NULL");
        return;
    }
    if (size_bytes == UINT64_MAX || (size_bytes > 0 && ndarray->data == NULL)) {
        tdm__writer_fail(writer, TDM_E_INVAL,
                         "an array without data, or of an impossible dtype or shape");
        return;
    }
    head = ndarray_head_bytes(ndarray->dims_count);
    padding = ndarray_padding(tdm_writer_bytes(writer).size_bytes + EXT_HEAD_BYTES + head);
    if (size_bytes <= UINT32_MAX - head - padding) {
        tdm__writer_append_ext(writer, TDM__EXT_NDARRAY, head + padding + size_bytes);
    } else {
        padding =
            ndarray_padding(tdm_writer_bytes(writer).size_bytes + TDM__LARGE_EXT_HEAD_BYTES + head);
        tdm__writer_append_large_ext(writer, TDM__EXT_LARGE_NDARRAY, head + padding + size_bytes);
    }
    ndarray_append_head(writer, ndarray, padding);
    tdm__writer_append(writer, ndarray->data, size_bytes);
}

/* ---- reading ---------------------------------------------------------------------------- */

/* Records that a packed array at `offset` is malformed.  Returns TDM_E_PROTOCOL. */
static tdm_status ndarray_fail(size_t offset, const char *what, uint64_t value)
{
    return tdm__fail(TDM_E_PROTOCOL, "packed array at offset %zu: %s %llu", offset, what,
                     (unsigned long long)value);
}

/* Checks that a packed array has fewer than 64 padding bytes and that all are zero. */
static tdm_status ndarray_check_padding(const uint8_t *zeros, size_t padding, size_t offset)
{
    if (padding >= TDM__NDARRAY_ALIGNMENT) {
        return ndarray_fail(offset, "padding bytes", padding);
    }
    for (size_t i = 0; i < padding; i++) {
        if (zeros[i] != 0) {
            return ndarray_fail(offset, "a padding byte is", zeros[i]);
        }
    }
    return TDM_OK;
}

tdm_status tdm__ndarray_read(struct tdm_bytes body, size_t offset, struct tdm_ndarray *ndarray_out)
{
    const uint8_t *bytes = body.data;
    struct tdm_ndarray ndarray = {.dims_count = 0};
    size_t padding;
    size_t head;

    if (body.size_bytes < FIXED_BYTES) {
        return ndarray_fail(offset, "its head is missing, bytes:", body.size_bytes);
    }
    ndarray.dtype = (enum tdm_dtype)bytes[1];
    ndarray.dims_count = bytes[2];
    padding = bytes[3];
    if (bytes[0] != VERSION) {
        return ndarray_fail(offset, "unknown version", bytes[0]);
    }
    if (tdm_dtype_bytes(ndarray.dtype) == 0) {
        return ndarray_fail(offset, "unknown dtype", bytes[1]);
    }
    if (ndarray.dims_count > TDM_NDARRAY_DIMS_MAX) {
        return ndarray_fail(offset, "more than 8 dimensions:", ndarray.dims_count);
    }
    head = ndarray_head_bytes(ndarray.dims_count);
    if (body.size_bytes < head + padding) {
        return ndarray_fail(offset, "its head is cut short, bytes:", body.size_bytes);
    }
    TDM_TRY(ndarray_check_padding(bytes + head, padding, offset));
    for (uint32_t i = 0; i < ndarray.dims_count; i++) {
        memcpy(&ndarray.shape[i], bytes + ndarray_head_bytes(i), DIM_BYTES);
        ndarray.shape[i] = be64toh(ndarray.shape[i]);
    }
    ndarray.data = bytes + head + padding;
    if (tdm_ndarray_bytes(&ndarray) != body.size_bytes - head - padding) {
        return ndarray_fail(
            offset, "its shape and dtype do not make its bytes:", body.size_bytes - head - padding);
    }
    *ndarray_out = ndarray;
    return TDM_OK;
}
