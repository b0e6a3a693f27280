/* frame.c - the fixed header in front of each message on a connection. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The header is struct wire_header in little-endian order without padding.  Its fields, the kinds
 * and the flags are written as lists of macros.  So the structure cannot differ from the text
 * tdm__frame_layout, which is part of the version of the protocol.
 *
 * Decoding trusts nothing: every field is checked against the limits and against the kind of the
 * frame.  Exactly those headers are accepted that encoding can produce (the tests fuzz this).
 * The payload is not looked at.
 *
 * There is no state; any thread may call the functions. docs/protocols/calls.md describes the
 * calls. */
#include "runtime/wire/frame.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <endian.h>
#include <string.h>

enum { MAGIC = 0x4d445446 }; /* First four bytes of each frame: "FTDM". */
/* Flags of the header: WANTS_ITEMS for calls, CHILDREN for cancellations.  FLAGS is the set of
 * all. */
#define FLAGS_OF_FRAMES(FLAG)                                                                      \
    FLAG(WANTS_ITEMS, 1)                                                                           \
    FLAG(CHILDREN, 2)
/* Expands a flag to an enum constant such as FLAG_CHILDREN. */
#define FLAG_CONSTANT(name, number) FLAG_##name = (number),
/* Bits of the field `flags`; FLAGS is all of them. */
enum { FLAGS_OF_FRAMES(FLAG_CONSTANT) FLAGS = 3 };

/* The fields of the header in their order on the wire.  The handshake of the connection has
 * compared the versions of both ends, so the header needs no version. */
#define HEADER_FIELDS(FIELD)                                                                       \
    FIELD(uint32_t, magic, )                                                                       \
    FIELD(uint8_t, reserved, ) /* Always 0. */                                                     \
    FIELD(uint8_t, kind, )                                                                         \
    FIELD(uint8_t, fds_count, )                                                                    \
    FIELD(uint8_t, method_bytes, )                                                                 \
    FIELD(uint16_t, flags, )                                                                       \
    FIELD(uint16_t, head_bytes, ) /* Payload bytes if there is a tail, else 0. */                  \
    FIELD(uint32_t, total_bytes, )                                                                 \
    FIELD(uint64_t, call_id, )                                                                     \
    FIELD(uint8_t, target, [16])                                                                   \
    FIELD(uint32_t, status, ) /* Concurrency group of a call. */                                   \
    FIELD(uint32_t, cpu, )                                                                         \
    FIELD(uint64_t, remaining_ms, )                                                                \
    FIELD(uint64_t, sequence, )                                                                    \
    FIELD(uint64_t, acknowledged, )

/* Expands a field of the header to a member of struct wire_header. */
#define FIELD_MEMBER(type, name, array) type name array;
/* The header of a frame as it is on the wire.  All numbers are little-endian. */
struct wire_header {
    HEADER_FIELDS(FIELD_MEMBER)
};

/* Expands a field of the header to its part of the text tdm__frame_layout. */
#define FIELD_TEXT(type, name, array) #type " " #name #array ";"
/* Expands a kind or a flag of frames to its part of the text tdm__frame_layout. */
#define NUMBER_TEXT(name, number) #name "=" #number ";"
const char tdm__frame_layout[] =
    HEADER_FIELDS(FIELD_TEXT) TDM__FRAME_KINDS(NUMBER_TEXT) FLAGS_OF_FRAMES(NUMBER_TEXT);

_Static_assert(sizeof(struct wire_header) == TDM__FRAME_HEADER_BYTES, "no padding");
_Static_assert(offsetof(struct wire_header, total_bytes) == 12, "wire format");
_Static_assert(offsetof(struct wire_header, call_id) == 16, "wire format");
_Static_assert(offsetof(struct wire_header, target) == 24, "wire format");
_Static_assert(offsetof(struct wire_header, status) == 40, "wire format");
_Static_assert(offsetof(struct wire_header, remaining_ms) == 48, "wire format");
_Static_assert(offsetof(struct wire_header, acknowledged) == 64, "wire format");
_Static_assert(sizeof(struct tdm__id) == 16, "wire format");

void tdm__frame_encode(const struct tdm__frame *frame, uint8_t header_out[TDM__FRAME_HEADER_BYTES])
{
    uint32_t inner_bytes = frame->method_bytes + frame->payload_bytes + frame->tail_bytes;
    int flags = (frame->wants_items ? FLAG_WANTS_ITEMS : 0) | (frame->children ? FLAG_CHILDREN : 0);
    struct wire_header wire = {
        .magic = htole32(MAGIC),
        .kind = (uint8_t)frame->kind,
        .fds_count = (uint8_t)frame->fds_count,
        .method_bytes = (uint8_t)frame->method_bytes,
        .flags = htole16((uint16_t)flags),
        .head_bytes = htole16((uint16_t)(frame->tail_bytes > 0 ? frame->payload_bytes : 0)),
        .total_bytes = htole32(TDM__FRAME_HEADER_BYTES + inner_bytes),
        .call_id = htole64(frame->call_id),
        .status = htole32(frame->kind == TDM__FRAME_CALL ? frame->concurrency_group
                                                         : (uint32_t)frame->status),
        .cpu = htole32(frame->cpu),
        .remaining_ms = htole64((uint64_t)frame->remaining_ms),
        .sequence = htole64(frame->sequence),
        .acknowledged = htole64(frame->acknowledged),
    };

    TDM_ASSERT(frame->method_bytes <= TDM__FRAME_METHOD_BYTES_MAX);
    TDM_ASSERT(frame->fds_count <= TDM__FRAME_FDS_MAX);
    TDM_ASSERT(frame->payload_bytes <= TDM__FRAME_BYTES_MAX);
    TDM_ASSERT(frame->tail_bytes == 0 ||
               (frame->payload_bytes > 0 && frame->payload_bytes <= TDM__FRAME_HEAD_BYTES_MAX));
    memcpy(wire.target, frame->target.bytes, sizeof(wire.target));
    memcpy(header_out, &wire, sizeof(wire));
}

/* Records that a field of a received header has a wrong value.  Returns TDM_E_PROTOCOL. */
static tdm_status frame_fail(const char *field, int64_t value)
{
    return tdm__fail(TDM_E_PROTOCOL, "frame header: %s %lld", field, (long long)value);
}

/* Checks the fields of a received call. */
static tdm_status frame_check_call(const struct tdm__frame *frame)
{
    if (frame->method_bytes == 0 || frame->method_bytes > TDM__FRAME_METHOD_BYTES_MAX) {
        return frame_fail("method length of a call", frame->method_bytes);
    }
    if (frame->children) {
        return frame_fail("flags of a call", FLAG_CHILDREN);
    }
    if (frame->sequence != 0 && frame->acknowledged >= frame->sequence) {
        return frame_fail("acknowledged replies of a call", (int64_t)frame->acknowledged);
    }
    return frame->remaining_ms >= -1 ? TDM_OK
                                     : frame_fail("deadline of a call", frame->remaining_ms);
}

/* Checks the fields of a received frame that is not a call. */
static tdm_status frame_check_not_call(const struct tdm__frame *frame)
{
    bool has_status = frame->kind == TDM__FRAME_REPLY;
    bool has_sequence = frame->kind == TDM__FRAME_ITEM || frame->kind == TDM__FRAME_CREDIT;
    bool has_payload = frame->kind == TDM__FRAME_REPLY || frame->kind == TDM__FRAME_ITEM;

    if (frame->wants_items) {
        return frame_fail("flags of what is no call", FLAG_WANTS_ITEMS);
    }
    if (frame->tail_bytes != 0) {
        return frame_fail("tail of what is no call", frame->tail_bytes);
    }
    if (frame->children && frame->kind != TDM__FRAME_CANCEL) {
        return frame_fail("flags of what is no cancellation", FLAG_CHILDREN);
    }
    if (frame->method_bytes != 0) {
        return frame_fail("method length of what is no call", frame->method_bytes);
    }
    if (frame->status > TDM_OK || (!has_status && frame->status != TDM_OK)) {
        return frame_fail("status", frame->status);
    }
    if (!tdm__id_is_none(&frame->target)) {
        return frame_fail("target of what is no call, first byte", frame->target.bytes[0]);
    }
    if (frame->acknowledged != 0 || (has_sequence != (frame->sequence != 0))) {
        return frame_fail("sequence", (int64_t)frame->sequence);
    }
    if (!has_payload && (frame->payload_bytes != 0 || frame->fds_count != 0)) {
        return frame_fail("payload bytes of a notice", frame->payload_bytes);
    }
    return frame->remaining_ms == -1
               ? TDM_OK
               : frame_fail("deadline of what is no call", frame->remaining_ms);
}

/* Checks the fields of a received frame against its kind. */
static tdm_status frame_check(const struct tdm__frame *frame)
{
    switch (frame->kind) {
    case TDM__FRAME_CALL:
        return frame_check_call(frame);
    case TDM__FRAME_REPLY:
    case TDM__FRAME_CANCEL:
    case TDM__FRAME_ITEM:
    case TDM__FRAME_CREDIT:
        return frame_check_not_call(frame);
    }
    return frame_fail("kind", frame->kind);
}

/* Divides the bytes behind the method into the payload, of `head_bytes`, and the tail. */
static tdm_status frame_split_tail(struct tdm__frame *frame, uint32_t head_bytes)
{
    if (head_bytes >= frame->payload_bytes) {
        return frame_fail("bytes before the tail", head_bytes);
    }
    frame->tail_bytes = frame->payload_bytes - head_bytes;
    frame->payload_bytes = head_bytes;
    return TDM_OK;
}

tdm_status tdm__frame_decode(const uint8_t header[TDM__FRAME_HEADER_BYTES],
                             struct tdm__frame *frame_out)
{
    struct wire_header wire;
    struct tdm__frame frame;
    uint32_t total_bytes;

    memcpy(&wire, header, sizeof(wire));
    if (le32toh(wire.magic) != MAGIC) {
        return frame_fail("magic", le32toh(wire.magic));
    }
    if (wire.reserved != 0) {
        return frame_fail("reserved byte", wire.reserved);
    }
    if ((le16toh(wire.flags) & ~(uint32_t)FLAGS) != 0) {
        return frame_fail("flags", le16toh(wire.flags));
    }
    total_bytes = le32toh(wire.total_bytes);
    if (total_bytes < TDM__FRAME_HEADER_BYTES + (uint32_t)wire.method_bytes ||
        total_bytes > TDM__FRAME_BYTES_MAX) {
        return frame_fail("total bytes", total_bytes);
    }
    if (wire.fds_count > TDM__FRAME_FDS_MAX) {
        return frame_fail("number of descriptors", wire.fds_count);
    }
    if (wire.call_id == 0) {
        return frame_fail("call id", 0);
    }
    frame.kind = (enum tdm__frame_kind)wire.kind;
    frame.fds_count = wire.fds_count;
    frame.method_bytes = wire.method_bytes;
    frame.payload_bytes = total_bytes - TDM__FRAME_HEADER_BYTES - wire.method_bytes;
    frame.tail_bytes = 0;
    if (wire.head_bytes != 0) {
        TDM_TRY(frame_split_tail(&frame, le16toh(wire.head_bytes)));
    }
    frame.call_id = le64toh(wire.call_id);
    memcpy(frame.target.bytes, wire.target, sizeof(wire.target));
    frame.concurrency_group = frame.kind == TDM__FRAME_CALL ? le32toh(wire.status) : 0;
    frame.status =
        frame.kind == TDM__FRAME_CALL ? TDM_OK : (tdm_status)(int32_t)le32toh(wire.status);
    frame.remaining_ms = (int64_t)le64toh(wire.remaining_ms);
    frame.sequence = le64toh(wire.sequence);
    frame.acknowledged = le64toh(wire.acknowledged);
    frame.wants_items = (le16toh(wire.flags) & FLAG_WANTS_ITEMS) != 0;
    frame.children = (le16toh(wire.flags) & FLAG_CHILDREN) != 0;
    frame.cpu = le32toh(wire.cpu);
    TDM_TRY(frame_check(&frame));
    *frame_out = frame;
    return TDM_OK;
}

bool tdm__frame_method_is_valid(const char *method, size_t method_bytes)
{
    if (method_bytes == 0 || method_bytes > TDM__FRAME_METHOD_BYTES_MAX) {
        return false;
    }
    for (size_t i = 0; i < method_bytes; i++) {
        if (method[i] <= ' ' || method[i] > '~') {
            return false;
        }
    }
    return true;
}
