/* writer.c - packs values by msgpack-c: into a growing buffer, into given memory, or counting
 * only. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A writer has one of three modes: GROWING owns a buffer, COUNTING only adds up sizes, OVER
 * writes to memory of the caller. msgpack-c calls writer_on_append() with the bytes of each
 * header; larger data is appended directly.
 *
 * Invariant: `space_bytes` is 0 in a counting writer and after a failure, so the fast path of an
 * append is one comparison.
 *
 * The first failure is kept until the writer is cleared, and makes all later writes fail.  A
 * GROWING writer starts with a buffer inside of the structure, because most calls pack a few
 * values only.
 *
 * A writer is used by one thread at a time. docs/protocols/values.md describes the bytes. */
#include "runtime/wire/writer.h"

#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/large_copy.h"

#include <msgpack.h>

#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* Size in bytes of the buffer inside of each writer. */
enum { INLINE_BUFFER_BYTES = 256 };

/* Where a writer puts the bytes. */
enum mode {
    GROWING,  /* The writer puts the bytes into a buffer of its own, which grows. */
    COUNTING, /* The writer only counts the bytes. */
    OVER      /* The writer puts the bytes into memory of the caller. */
};

/* A writer of packed values; owned by the code that created it. */
struct tdm_writer {
    msgpack_packer packer; /* Packer of msgpack-c, which calls writer_on_append(). */
    enum mode mode;        /* Where the writer puts the bytes. */
    /* Where the bytes are.  GROWING: `inline_buffer` or owned memory; OVER: memory of the caller;
     * COUNTING: NULL. */
    char *data;
    size_t size_bytes;     /* Number of bytes written or counted so far. */
    size_t capacity_bytes; /* Number of bytes for which `data` has room. */
    /* Number of free bytes behind the written bytes in `data`; 0 after a failure. */
    size_t space_bytes;
    tdm_status failed; /* First failure of the writer; TDM_OK if there was none. */
    const char *why;   /* Reason of the first failure; a string literal. */
    /* Size in bytes of what exceeds a limit, and the limit; both 0 after other failures. */
    size_t wanted_bytes;
    size_t limit_bytes;
    /* Memory that tdm__writer_attach() has returned; owned, NULL if absent. */
    void *attached;
    char inline_buffer[INLINE_BUFFER_BYTES]; /* First buffer of a growing writer. */
};

/* ---- buffer ----------------------------------------------------------------------------- */

void tdm__writer_fail(tdm_writer *writer, tdm_status status, const char *why)
{
    if (writer->failed == TDM_OK) {
        writer->failed = status;
        writer->why = why;
        writer->space_bytes = 0;
    }
}

/* Records that `what`, a string literal, has more bytes than `limit_bytes`. */
static void writer_fail_limit(tdm_writer *writer, const char *what, size_t wanted_bytes,
                              size_t limit_bytes)
{
    if (writer->failed == TDM_OK) {
        writer->wanted_bytes = wanted_bytes;
        writer->limit_bytes = limit_bytes;
    }
    tdm__writer_fail(writer, TDM_E_LIMIT, what);
}

/* Enlarges the buffer of a GROWING writer to at least `wanted_bytes` bytes.  Returns false and
 * records the failure if there is no memory. */
static bool writer_grow(tdm_writer *writer, size_t wanted_bytes)
{
    size_t capacity_bytes = 2 * writer->capacity_bytes;
    bool is_first = writer->data == writer->inline_buffer;
    char *data;

    capacity_bytes = capacity_bytes < wanted_bytes ? wanted_bytes : capacity_bytes;
    data = realloc(is_first ? NULL : writer->data, capacity_bytes);
    if (data == NULL) {
        tdm__writer_fail(writer, TDM_E_NOMEM, "no memory for more");
        return false;
    }
    if (is_first) {
        memcpy(data, writer->inline_buffer, writer->size_bytes);
    }
    writer->data = data;
    writer->capacity_bytes = capacity_bytes;
    writer->space_bytes = capacity_bytes - writer->size_bytes;
    return true;
}

/* Handles an append of more than `space_bytes`.  Returns true if the bytes must be copied now;
 * false after a failure and when only counting. */
static bool writer_reserve(tdm_writer *writer, size_t size_bytes)
{
    if (writer->failed != TDM_OK) {
        return false;
    }
    if (size_bytes > SIZE_MAX / 4 - writer->size_bytes) {
        tdm__writer_fail(writer, TDM_E_NOMEM, "no memory for more");
        return false;
    }
    switch (writer->mode) {
    case GROWING:
        return writer_grow(writer, writer->size_bytes + size_bytes);
    case COUNTING:
        writer->size_bytes += size_bytes;
        return false;
    case OVER:
        tdm__writer_fail(writer, TDM_E_LIMIT, "more than the memory it was given holds");
        return false;
    }
    return false;
}

/* Callback of msgpack-c: appends `size_bytes` bytes to the writer.  Always returns 0. */
static int writer_on_append(void *data, const char *bytes, size_t size_bytes)
{
    tdm_writer *writer = data;

    if (size_bytes == 0 ||
        (size_bytes > writer->space_bytes && !writer_reserve(writer, size_bytes))) {
        return 0; /* The writer has recorded the failure. */
    }
    tdm__rect_copy(writer->data + writer->size_bytes, bytes, size_bytes);
    writer->size_bytes += size_bytes;
    writer->space_bytes -= size_bytes;
    return 0;
}

void tdm__writer_append(tdm_writer *writer, const void *data, size_t size_bytes)
{
    (void)writer_on_append(writer, data, size_bytes);
}

void *tdm__writer_attach(tdm_writer *writer, size_t size_bytes)
{
    free(writer->attached);
    writer->attached = malloc(size_bytes);
    return writer->attached;
}

/* ---- creation and destruction ----------------------------------------------------------- */

/* Creates a writer of this mode over `memory`. */
static tdm_status writer_create(enum mode mode, void *memory, size_t size_bytes,
                                tdm_writer **writer_out)
{
    tdm_writer *writer = tdm__free_list_alloc(sizeof(*writer));

    if (writer == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a writer");
    }
    memset(writer, 0, offsetof(struct tdm_writer, inline_buffer));
    writer->mode = mode;
    writer->data = memory;
    writer->capacity_bytes = size_bytes;
    writer->space_bytes = size_bytes;
    msgpack_packer_init(&writer->packer, writer, writer_on_append);
    *writer_out = writer;
    return TDM_OK;
}

tdm_status tdm_writer_create(tdm_writer **writer_out)
{
    TDM__REQUIRE(writer_out);
    *writer_out = NULL;

    TDM_TRY(writer_create(GROWING, NULL, INLINE_BUFFER_BYTES, writer_out));
    (*writer_out)->data = (*writer_out)->inline_buffer;
    return TDM_OK;
}

tdm_status tdm__writer_create_counting(tdm_writer **writer_out)
{
    return writer_create(COUNTING, NULL, 0, writer_out);
}

tdm_status tdm__writer_create_over(void *memory, size_t size_bytes, tdm_writer **writer_out)
{
    return writer_create(OVER, memory, size_bytes, writer_out);
}

void tdm_writer_destroy(tdm_writer *writer)
{
    if (writer != NULL) {
        if (writer->mode == GROWING && writer->data != writer->inline_buffer) {
            free(writer->data);
        }
        free(writer->attached);
        tdm__free_list_free(writer, sizeof(*writer));
    }
}

void tdm_writer_clear(tdm_writer *writer)
{
    TDM__REQUIRE_OR(writer, );

    writer->size_bytes = 0;
    writer->space_bytes = writer->capacity_bytes;
    writer->failed = TDM_OK;
    writer->limit_bytes = 0;
    if (writer->attached != NULL) {
        free(writer->attached);
        writer->attached = NULL;
    }
}

struct tdm_bytes tdm_writer_bytes(const tdm_writer *writer)
{
    TDM__REQUIRE_OR(writer, ((struct tdm_bytes){NULL, 0}));

    struct tdm_bytes bytes = {writer->data, writer->size_bytes};

    return bytes;
}

tdm_status tdm_writer_status(const tdm_writer *writer)
{
    TDM__REQUIRE(writer);

    if (writer->failed != TDM_OK && writer->limit_bytes > 0) {
        return tdm__fail(writer->failed,
                         "packing values after %zu bytes: %s of %zu bytes, it may "
                         "have %zu",
                         writer->size_bytes, writer->why, writer->wanted_bytes,
                         writer->limit_bytes);
    }
    if (writer->failed != TDM_OK) {
        return tdm__fail(writer->failed, "packing values after %zu bytes: %s", writer->size_bytes,
                         writer->why);
    }
    return TDM_OK;
}

/* ---- values ----------------------------------------------------------------------------- */

void tdm_write_int(tdm_writer *writer, int64_t value)
{
    TDM__REQUIRE_OR(writer, );

    (void)msgpack_pack_int64(&writer->packer, value);
}

void tdm_write_uint(tdm_writer *writer, uint64_t value)
{
    TDM__REQUIRE_OR(writer, );

    (void)msgpack_pack_uint64(&writer->packer, value);
}

void tdm_write_double(tdm_writer *writer, double value)
{
    TDM__REQUIRE_OR(writer, );

    (void)msgpack_pack_double(&writer->packer, value);
}

void tdm_write_bool(tdm_writer *writer, int value)
{
    TDM__REQUIRE_OR(writer, );

    (void)(value != 0 ? msgpack_pack_true(&writer->packer) : msgpack_pack_false(&writer->packer));
}

/* Writes a string of `length` bytes, which need not end with a NUL. */
static void write_text(tdm_writer *writer, const char *text, size_t length)
{
    if (length > UINT32_MAX) {
        writer_fail_limit(writer, "a string", length, UINT32_MAX);
        return;
    }
    (void)msgpack_pack_str(&writer->packer, length);
    tdm__writer_append(writer, text, length);
}

void tdm_write_string(tdm_writer *writer, const char *text)
{
    TDM__REQUIRE_OR(writer, );

    if (text == NULL) {
        tdm_write_nil(writer);
        return;
    }
    write_text(writer, text, strlen(text));
}

void tdm_write_bytes(tdm_writer *writer, const void *data, size_t size_bytes)
{
    TDM__REQUIRE_OR(writer, );

    if (data == NULL && size_bytes > 0) {
        tdm__writer_fail(writer, TDM_E_INVAL, "argument \"data\" of tdm_write_bytes is NULL");
        return;
    }
    if (size_bytes > UINT32_MAX) {
        tdm__writer_append_large_ext(writer, TDM__EXT_LARGE_BYTES, size_bytes);
    } else {
        (void)msgpack_pack_bin(&writer->packer, size_bytes);
    }
    tdm__writer_append(writer, data, size_bytes);
}

void tdm_write_nil(tdm_writer *writer)
{
    TDM__REQUIRE_OR(writer, );

    (void)msgpack_pack_nil(&writer->packer);
}

void tdm_write_array(tdm_writer *writer, uint32_t values_count)
{
    TDM__REQUIRE_OR(writer, );

    (void)msgpack_pack_array(&writer->packer, values_count);
}

void tdm_write_map(tdm_writer *writer, uint32_t pairs_count)
{
    TDM__REQUIRE_OR(writer, );

    (void)msgpack_pack_map(&writer->packer, pairs_count);
}

void tdm__writer_append_ext(tdm_writer *writer, enum tdm__ext type, size_t size_bytes)
{
    const uint8_t head[] = {0xc9,
                            (uint8_t)(size_bytes >> 24),
                            (uint8_t)(size_bytes >> 16),
                            (uint8_t)(size_bytes >> 8),
                            (uint8_t)size_bytes,
                            (uint8_t)type};

    tdm__writer_append(writer, head, sizeof(head));
}

void tdm__writer_append_large_ext(tdm_writer *writer, enum tdm__ext type, uint64_t size_bytes)
{
    const uint8_t head[] = {0xd7, (uint8_t)type};
    uint64_t size = htobe64(size_bytes);

    tdm__writer_append(writer, head, sizeof(head));
    tdm__writer_append(writer, &size, sizeof(size));
}

void tdm__write_ext(tdm_writer *writer, enum tdm__ext type, struct tdm_bytes bytes)
{
    if (bytes.size_bytes > TDM__EXT_BYTES_MAX) {
        writer_fail_limit(writer, "a reference or handle", bytes.size_bytes, TDM__EXT_BYTES_MAX);
        return;
    }
    tdm__writer_append_ext(writer, type, bytes.size_bytes);
    tdm__writer_append(writer, bytes.data, bytes.size_bytes);
}

void tdm__write_part(tdm_writer *writer, uint8_t number)
{
    tdm__write_ext(writer, TDM__EXT_PART, (struct tdm_bytes){(const char *)&number, 1});
}

/* Writes the first `count` values inside of an array or a map. */
static void write_children(tdm_writer *writer, const tdm_value *value, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        tdm_write_value(writer, &value->as.values[i]);
    }
}

void tdm_write_value(tdm_writer *writer, const tdm_value *value)
{
    TDM__REQUIRE_OR(writer, );

    if (value == NULL) {
        tdm_write_nil(writer);
        return;
    }
    switch (value->kind) {
    case TDM_NIL:
        tdm_write_nil(writer);
        break;
    case TDM_BOOL:
        tdm_write_bool(writer, value->as.truth);
        break;
    case TDM_INT:
        if (value->as.integer.negative) {
            tdm_write_int(writer, (int64_t)value->as.integer.bits);
        } else {
            tdm_write_uint(writer, value->as.integer.bits);
        }
        break;
    case TDM_DOUBLE:
        tdm_write_double(writer, value->as.number);
        break;
    case TDM_STRING:
        write_text(writer, value->as.data, value->as.size_bytes);
        break;
    case TDM_BYTES:
        tdm_write_bytes(writer, value->as.data, value->as.size_bytes);
        break;
    case TDM_ARRAY:
        tdm_write_array(writer, value->count);
        write_children(writer, value, value->count);
        break;
    case TDM_MAP:
        tdm_write_map(writer, value->count);
        write_children(writer, value, 2 * (uint64_t)value->count);
        break;
    case TDM_NDARRAY:
        tdm_write_ndarray(writer, value->as.ndarray);
        break;
    case TDM_REFERENCE:
        tdm__write_ext(writer, TDM__EXT_REFERENCE, tdm__value_ext(value));
        break;
    case TDM_HANDLE:
        tdm__write_ext(writer, TDM__EXT_HANDLE, tdm__value_ext(value));
        break;
    }
}

void tdm_write_packed(tdm_writer *writer, struct tdm_bytes one_value)
{
    TDM__REQUIRE_OR(writer, );

    tdm__writer_append(writer, one_value.data, one_value.size_bytes);
}
