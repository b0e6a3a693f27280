/* frame.h - the fixed header in front of each message on a connection. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_FRAME_H
#define TDM_RUNTIME_WIRE_FRAME_H

#include "runtime/id.h"

#include <stddef.h>

/* Text that names the fields, kinds and flags of the frame header.  The version of the protocol
 * is computed from it (runtime/rpc/protocol.h). */
extern const char tdm__frame_layout[];

/* Sizes in bytes of the header and of the longest method name, and the largest number of file
 * descriptors in a frame.  A frame is the header, the name of the method (calls only, no NUL),
 * the payload, and a tail (calls only).  File descriptors travel with its first byte.  All
 * numbers are little-endian. */
enum { TDM__FRAME_HEADER_BYTES = 72, TDM__FRAME_METHOD_BYTES_MAX = 63, TDM__FRAME_FDS_MAX = 8 };
#define TDM__FRAME_BYTES_MAX 268435456u /* Largest frame in bytes, 256 MiB. */
/* Longest payload in bytes of a frame that has a tail. */
enum { TDM__FRAME_HEAD_BYTES_MAX = 65535 };

/* The kinds of frames.  CALL, CANCEL and CREDIT go from the caller to the callee, REPLY and ITEM
 * back.  All five name the call by the call id that the caller has chosen.
 *
 * CALL: a method and its arguments.  The tail holds bytes that are not part of any value.
 *
 * REPLY: the result of the call, or its error.  No further frame of this call follows.
 *
 * CANCEL: the caller no longer wants the result.  With the flag `children` it does not want the
 * calls that the method has made, either.  A waiting call is dropped and a running call gets a
 * notice; both still get a reply.  The callee ignores an unknown call id, because its reply may
 * have crossed the CANCEL.
 *
 * ITEM: one item of a stream, before the reply that ends the stream.
 *
 * CREDIT: the caller has consumed `sequence` items of the stream so far. */
#define TDM__FRAME_KINDS(KIND)                                                                     \
    KIND(CALL, 1)                                                                                  \
    KIND(REPLY, 2)                                                                                 \
    KIND(CANCEL, 3)                                                                                \
    KIND(ITEM, 4)                                                                                  \
    KIND(CREDIT, 5)
/* Expands one kind to an enum constant such as TDM__FRAME_CALL. */
#define TDM__FRAME_KIND(name, number) TDM__FRAME_##name = (number),
/* Kind of a frame; the numbers are on the wire. */
enum tdm__frame_kind { TDM__FRAME_KINDS(TDM__FRAME_KIND) };

/* The decoded header of a frame.  Members that the kind of the frame does not use are 0, except
 * remaining_ms, which is -1. */
struct tdm__frame {
    enum tdm__frame_kind kind; /* Kind of the frame, which decides which other fields are used. */
    uint32_t fds_count;        /* Number of file descriptors that travel with the frame. */
    uint32_t method_bytes;     /* Length of the method name: 1 to 63 in calls, else 0. */
    uint32_t payload_bytes;    /* Length of the payload, without the tail. */
    /* Length of the tail of a call, 0 if absent.  With a tail the payload has 1 to 65,535
     * bytes. */
    uint32_t tail_bytes;
    uint64_t call_id; /* Number of the call, chosen by the caller; never 0. */
    /* ID of the actor that a call is for; all zero if the call is for a service of the process. */
    struct tdm__id target;
    /* Status of a reply.  If it is not TDM_OK, the payload is the text of the error; a NUL and a
     * packed value may follow the text. */
    tdm_status status;
    /* Milliseconds until the deadline of a call when the frame was sent; -1 without a deadline. */
    int64_t remaining_ms;
    /* Of a call: its number among the calls of this caller to this target, from 1; a repeated
     * call keeps its number, and 0 means that the order does not matter.  Of an item: its number,
     * from 1.  Of a credit: the number of items consumed. */
    uint64_t sequence;
    /* Of a call: the caller has received all replies up to this sequence number. */
    uint64_t acknowledged;
    /* Of a call: number of the concurrency group; 0 for that of the method. */
    uint32_t concurrency_group;
    bool children;    /* Of a CANCEL: also cancel the calls that the method has made. */
    bool wants_items; /* Of a call: the caller consumes the items of a stream. */
    uint32_t cpu;     /* Processor on which the sender runs, plus 1; 0 if unknown. */
};

/* Encodes the header of a frame.  The frame must keep the limits above; that is asserted. */
void tdm__frame_encode(const struct tdm__frame *frame, uint8_t header_out[TDM__FRAME_HEADER_BYTES]);
/* Decodes and checks the header of a frame.  Returns TDM_E_PROTOCOL, with the wrong field and its
 * value, for every header that tdm__frame_encode() cannot produce. */
tdm_status tdm__frame_decode(const uint8_t header[TDM__FRAME_HEADER_BYTES],
                             struct tdm__frame *frame_out);
/* Returns true if `method`, a method's name, consists of 1 to 63 printable ASCII characters without
 * blanks. */
bool tdm__frame_method_is_valid(const char *method, size_t method_bytes);

#endif
