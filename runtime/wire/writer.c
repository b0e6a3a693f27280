/* writer.c - packs values, with msgpack-c, into a growing buffer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/error.h"
#include "runtime/wire/value.h"

/* Most calls pack a few values: room for them, rather than a heap's page for each call. */
#define MSGPACK_SBUFFER_INIT_SIZE 256
#include <msgpack.h>

#include <stdlib.h>
#include <string.h>

struct tdm_writer {
    msgpack_sbuffer buffer; /* owned */
    msgpack_packer packer;
    bool failed; /* out of memory once: nothing is written any more */
};

static int append(void *data, const char *bytes, size_t size_bytes)
{
    tdm_writer *writer = data;

    if (writer->failed || msgpack_sbuffer_write(&writer->buffer, bytes, size_bytes) != 0) {
        writer->failed = true;
        return -1;
    }
    return 0;
}

tdm_status tdm_writer_create(tdm_writer **writer_out)
{
    tdm_writer *writer = calloc(1, sizeof(*writer));

    if (writer == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a writer");
    }
    msgpack_sbuffer_init(&writer->buffer);
    msgpack_packer_init(&writer->packer, writer, append);
    *writer_out = writer;
    return TDM_OK;
}

void tdm_writer_destroy(tdm_writer *writer)
{
    if (writer != NULL) {
        msgpack_sbuffer_destroy(&writer->buffer);
        free(writer);
    }
}

void tdm_writer_clear(tdm_writer *writer)
{
    msgpack_sbuffer_clear(&writer->buffer);
    writer->failed = false;
}

struct tdm_bytes tdm_writer_bytes(const tdm_writer *writer)
{
    struct tdm_bytes bytes = {writer->buffer.data, writer->buffer.size};

    return bytes;
}

tdm_status tdm_writer_status(const tdm_writer *writer)
{
    if (writer->failed) {
        return tdm__fail(TDM_E_NOMEM, "packing values after %zu bytes", writer->buffer.size);
    }
    return TDM_OK;
}

void tdm_write_int(tdm_writer *writer, int64_t value)
{
    (void)msgpack_pack_int64(&writer->packer, value);
}

void tdm_write_uint(tdm_writer *writer, uint64_t value)
{
    (void)msgpack_pack_uint64(&writer->packer, value);
}

void tdm_write_double(tdm_writer *writer, double value)
{
    (void)msgpack_pack_double(&writer->packer, value);
}

void tdm_write_bool(tdm_writer *writer, int value)
{
    (void)(value != 0 ? msgpack_pack_true(&writer->packer)
                      : msgpack_pack_false(&writer->packer));
}

static void write_text(tdm_writer *writer, const char *text, size_t length)
{
    if (length > UINT32_MAX) {
        writer->failed = true; /* no msgpack header can hold it */
        return;
    }
    (void)msgpack_pack_str(&writer->packer, length);
    (void)append(writer, text, length);
}

void tdm_write_string(tdm_writer *writer, const char *text)
{
    if (text == NULL) {
        tdm_write_nil(writer);
        return;
    }
    write_text(writer, text, strlen(text));
}

void tdm_write_bytes(tdm_writer *writer, const void *data, size_t size_bytes)
{
    if (size_bytes > UINT32_MAX) {
        writer->failed = true;
        return;
    }
    (void)msgpack_pack_bin(&writer->packer, size_bytes);
    (void)append(writer, data, size_bytes);
}

void tdm_write_nil(tdm_writer *writer)
{
    (void)msgpack_pack_nil(&writer->packer);
}

void tdm_write_array(tdm_writer *writer, uint32_t values_count)
{
    (void)msgpack_pack_array(&writer->packer, values_count);
}

void tdm_write_map(tdm_writer *writer, uint32_t pairs_count)
{
    (void)msgpack_pack_map(&writer->packer, pairs_count);
}

static void write_children(tdm_writer *writer, const tdm_value *value, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        tdm_write_value(writer, &value->as.values[i]);
    }
}

void tdm_write_value(tdm_writer *writer, const tdm_value *value)
{
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
        write_text(writer, value->as.data, value->count);
        break;
    case TDM_BYTES:
        tdm_write_bytes(writer, value->as.data, value->count);
        break;
    case TDM_ARRAY:
        tdm_write_array(writer, value->count);
        write_children(writer, value, value->count);
        break;
    case TDM_MAP:
        tdm_write_map(writer, value->count);
        write_children(writer, value, 2 * (uint64_t)value->count);
        break;
    }
}

void tdm_write_packed(tdm_writer *writer, struct tdm_bytes one_value)
{
    (void)append(writer, one_value.data, one_value.size_bytes);
}
