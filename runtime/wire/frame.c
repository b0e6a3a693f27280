/* frame.c - the fixed header in front of each call and reply on a connection. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/frame.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <endian.h>
#include <string.h>

enum { MAGIC = 0x4d445446 }; /* "FTDM" */
#define FLAGS_OF_FRAMES(FLAG)                                                                      \
    FLAG(WANTS_ITEMS, 1)                                                                           \
    FLAG(CHILDREN, 2)
#define FLAG_CONSTANT(name, number) FLAG_##name = (number),
enum { FLAGS_OF_FRAMES(FLAG_CONSTANT) FLAGS = 3 };

/* The connection's handshake has compared the versions of both ends, so that a header needs
 * none. */
#define HEADER_FIELDS(FIELD)                                                                       \
    FIELD(uint32_t, magic, )                                                                       \
    FIELD(uint8_t, reserved, ) /* 0 */                                                             \
    FIELD(uint8_t, kind, )                                                                         \
    FIELD(uint8_t, fds_count, )                                                                    \
    FIELD(uint8_t, method_bytes, )                                                                 \
    FIELD(uint16_t, flags, )                                                                       \
    FIELD(uint16_t, head_bytes, ) /* the payload's where there is a tail, else 0 */                \
    FIELD(uint32_t, total_bytes, )                                                                 \
    FIELD(uint64_t, call_id, )                                                                     \
    FIELD(uint8_t, target, [16])                                                                   \
    FIELD(uint32_t, status, ) /* of a call: its group */                                           \
    FIELD(uint32_t, cpu, )                                                                         \
    FIELD(uint64_t, remaining_ms, )                                                                \
    FIELD(uint64_t, sequence, )                                                                    \
    FIELD(uint64_t, acknowledged, )

#define FIELD_MEMBER(type, name, array) type name array;
struct wire_header {
    HEADER_FIELDS(FIELD_MEMBER)
};

#define FIELD_TEXT(type, name, array) #type " " #name #array ";"
#define NUMBER_TEXT(name, number)     #name "=" #number ";"
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

static tdm_status wrong(const char *field, int64_t value)
{
    return tdm__fail(TDM_E_PROTOCOL, "frame header: %s %lld", field, (long long)value);
}

/* What each kind must and must not have. */
static tdm_status check_call(const struct tdm__frame *frame)
{
    if (frame->method_bytes == 0 || frame->method_bytes > TDM__FRAME_METHOD_BYTES_MAX) {
        return wrong("method length of a call", frame->method_bytes);
    }
    if (frame->children) {
        return wrong("flags of a call", FLAG_CHILDREN);
    }
    if (frame->sequence != 0 && frame->acknowledged >= frame->sequence) {
        return wrong("acknowledged replies of a call", (int64_t)frame->acknowledged);
    }
    return frame->remaining_ms >= -1 ? TDM_OK : wrong("deadline of a call", frame->remaining_ms);
}

static tdm_status check_other(const struct tdm__frame *frame)
{
    bool has_status = frame->kind == TDM__FRAME_REPLY;
    bool has_sequence = frame->kind == TDM__FRAME_ITEM || frame->kind == TDM__FRAME_CREDIT;
    bool has_payload = frame->kind == TDM__FRAME_REPLY || frame->kind == TDM__FRAME_ITEM;

    if (frame->wants_items) {
        return wrong("flags of what is no call", FLAG_WANTS_ITEMS);
    }
    if (frame->tail_bytes != 0) {
        return wrong("tail of what is no call", frame->tail_bytes);
    }
    if (frame->children && frame->kind != TDM__FRAME_CANCEL) {
        return wrong("flags of what is no cancellation", FLAG_CHILDREN);
    }
    if (frame->method_bytes != 0) {
        return wrong("method length of what is no call", frame->method_bytes);
    }
    if (frame->status > TDM_OK || (!has_status && frame->status != TDM_OK)) {
        return wrong("status", frame->status);
    }
    if (!tdm__id_is_none(&frame->target)) {
        return wrong("target of what is no call, first byte", frame->target.bytes[0]);
    }
    if (frame->acknowledged != 0 || (has_sequence != (frame->sequence != 0))) {
        return wrong("sequence", (int64_t)frame->sequence);
    }
    if (!has_payload && (frame->payload_bytes != 0 || frame->fds_count != 0)) {
        return wrong("payload bytes of a notice", frame->payload_bytes);
    }
    return frame->remaining_ms == -1 ? TDM_OK
                                     : wrong("deadline of what is no call", frame->remaining_ms);
}

static tdm_status check_kind(const struct tdm__frame *frame)
{
    switch (frame->kind) {
    case TDM__FRAME_CALL:
        return check_call(frame);
    case TDM__FRAME_REPLY:
    case TDM__FRAME_CANCEL:
    case TDM__FRAME_ITEM:
    case TDM__FRAME_CREDIT:
        return check_other(frame);
    }
    return wrong("kind", frame->kind);
}

static tdm_status cut_tail(struct tdm__frame *frame, uint32_t head_bytes)
{
    if (head_bytes >= frame->payload_bytes) {
        return wrong("bytes before the tail", head_bytes);
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
        return wrong("magic", le32toh(wire.magic));
    }
    if (wire.reserved != 0) {
        return wrong("reserved byte", wire.reserved);
    }
    if ((le16toh(wire.flags) & ~(uint32_t)FLAGS) != 0) {
        return wrong("flags", le16toh(wire.flags));
    }
    total_bytes = le32toh(wire.total_bytes);
    if (total_bytes < TDM__FRAME_HEADER_BYTES + (uint32_t)wire.method_bytes ||
        total_bytes > TDM__FRAME_BYTES_MAX) {
        return wrong("total bytes", total_bytes);
    }
    if (wire.fds_count > TDM__FRAME_FDS_MAX) {
        return wrong("number of descriptors", wire.fds_count);
    }
    if (wire.call_id == 0) {
        return wrong("call id", 0);
    }
    frame.kind = (enum tdm__frame_kind)wire.kind;
    frame.fds_count = wire.fds_count;
    frame.method_bytes = wire.method_bytes;
    frame.payload_bytes = total_bytes - TDM__FRAME_HEADER_BYTES - wire.method_bytes;
    frame.tail_bytes = 0;
    if (wire.head_bytes != 0) {
        TDM_TRY(cut_tail(&frame, le16toh(wire.head_bytes)));
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
    TDM_TRY(check_kind(&frame));
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
