/* frame.h - the fixed header in front of each call and reply on a connection. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_FRAME_H
#define TDM_RUNTIME_WIRE_FRAME_H

#include "runtime/id.h"

#include <stddef.h>

/* A frame is the header, the method's name (calls only, no NUL), the payload.  File descriptors
 * travel with its first byte.  All numbers are little-endian. */
enum { TDM__FRAME_HEADER_BYTES = 56, TDM__FRAME_METHOD_BYTES_MAX = 63, TDM__FRAME_FDS_MAX = 8 };
#define TDM__FRAME_BYTES_MAX 268435456u /* 256 MiB */

enum tdm__frame_kind { TDM__FRAME_CALL = 1, TDM__FRAME_REPLY = 2 };

struct tdm__frame {
    enum tdm__frame_kind kind;
    uint32_t fds_count;
    uint32_t method_bytes; /* calls: 1 to 63; replies: 0 */
    uint32_t payload_bytes;
    uint64_t call_id;      /* the caller's, never 0 */
    struct tdm__id target; /* calls */
    tdm_status status;     /* replies; the payload of a failure is its text */
    int64_t left_ms;       /* calls: until the deadline, -1 for none */
};

/* The frame must keep the limits above. */
void tdm__frame_encode(const struct tdm__frame *frame,
                       uint8_t header_out[TDM__FRAME_HEADER_BYTES]);
/* TDM_E_PROTOCOL, with the field and its value, for every header that encode cannot make. */
tdm_status tdm__frame_decode(const uint8_t header[TDM__FRAME_HEADER_BYTES],
                             struct tdm__frame *frame_out);
/* 1 to 63 printable characters of ASCII, no blanks. */
bool tdm__frame_method_is_valid(const char *method, size_t method_bytes);

#endif
