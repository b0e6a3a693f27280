/* frame.h - the fixed header in front of each call and reply on a connection. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_FRAME_H
#define TDM_RUNTIME_WIRE_FRAME_H

#include "runtime/id.h"

#include <stddef.h>

/* Text of the fields, kinds and flags of a frame's header.  It is a part of the protocol's
 * version (runtime/rpc/protocol.h). */
extern const char tdm__frame_layout[];

/* A frame is the header, the method's name (calls only, no NUL), the payload, and a tail (calls
 * only).  File descriptors travel with its first byte.  All numbers are little-endian. */
enum { TDM__FRAME_HEADER_BYTES = 72, TDM__FRAME_METHOD_BYTES_MAX = 63, TDM__FRAME_FDS_MAX = 8 };
#define TDM__FRAME_BYTES_MAX 268435456u /* 256 MiB */
/* Of a payload with a tail behind it. */
enum { TDM__FRAME_HEAD_BYTES_MAX = 65535 };

/* CALL and CANCEL and CREDIT go from the caller to the callee, REPLY and ITEM back; all five
 * name the call by the caller's call id.
 *
 * CALL: a method and its arguments; as the tail, bytes that are in no value.
 *
 * REPLY: its result, or why there is none; after it nothing more is said of the call.
 *
 * CANCEL: the result is no longer wanted, nor, with `children`, what the call's method has
 * called.  A call that waits is dropped, one that runs is told; it is still answered.  An
 * unknown call id is ignored: the answer was faster.
 *
 * ITEM: one more item of a stream, before the reply that ends it.
 *
 * CREDIT: the caller has taken `sequence` items of the stream so far. */
#define TDM__FRAME_KINDS(KIND)                                                                     \
    KIND(CALL, 1)                                                                                  \
    KIND(REPLY, 2)                                                                                 \
    KIND(CANCEL, 3)                                                                                \
    KIND(ITEM, 4)                                                                                  \
    KIND(CREDIT, 5)
#define TDM__FRAME_KIND(name, number) TDM__FRAME_##name = (number),
enum tdm__frame_kind { TDM__FRAME_KINDS(TDM__FRAME_KIND) };

struct tdm__frame {
    enum tdm__frame_kind kind;
    uint32_t fds_count;
    uint32_t method_bytes; /* calls: 1 to 63; replies: 0 */
    uint32_t payload_bytes;
    uint32_t tail_bytes;   /* calls; with one, the payload has 1 to 65,535 bytes */
    uint64_t call_id;      /* the caller's, never 0 */
    struct tdm__id target; /* calls */
    tdm_status status;     /* replies; the payload of a failure is its text */
    int64_t remaining_ms;  /* calls: until the deadline, -1 for none */
    /* Calls: place among the caller's to this target, from 1, the same when it is sent again; 0
     * for calls that need none.  Items: from 1.  Credits: items taken. */
    uint64_t sequence;
    uint64_t acknowledged;      /* calls: replies up to this sequence have arrived at the caller */
    uint32_t concurrency_group; /* calls: number of a concurrency group; 0: the method's own */
    bool children;              /* cancels */
    bool wants_items;           /* calls: the caller takes the items of a stream */
    uint32_t cpu;               /* where the sender runs, plus 1; 0: it does not say */
};

/* The frame must keep the limits above. */
void tdm__frame_encode(const struct tdm__frame *frame, uint8_t header_out[TDM__FRAME_HEADER_BYTES]);
/* TDM_E_PROTOCOL, with the field and its value, for every header that encode cannot make. */
tdm_status tdm__frame_decode(const uint8_t header[TDM__FRAME_HEADER_BYTES],
                             struct tdm__frame *frame_out);
/* 1 to 63 printable characters of ASCII, no blanks. */
bool tdm__frame_method_is_valid(const char *method, size_t method_bytes);

#endif
