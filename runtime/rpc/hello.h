/* hello.h - the first message of a handshake, as it travels. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_HELLO_H
#define TDM_RUNTIME_RPC_HELLO_H

#include <stdint.h>

/* The fields of a hello in the order of the wire: type, name, array size. Integers are
 * little-endian. */
#define HELLO_FIELDS(FIELD)                                                                        \
    FIELD(char, magic, [6])                                                                        \
    FIELD(uint16_t, old_version, ) /* 0 */                                                         \
    FIELD(uint8_t, role, )                                                                         \
    FIELD(uint8_t, kind, )                                                                         \
    FIELD(uint8_t, reserved, [2]) /* 0 */                                                          \
    FIELD(uint32_t, version, )                                                                     \
    FIELD(uint64_t, pid, )                                                                         \
    FIELD(uint8_t, id, [16])                                                                       \
    FIELD(uint8_t, node, [16])                                                                     \
    FIELD(uint64_t, node_epoch, )                                                                  \
    FIELD(uint8_t, nonce, [32])                                                                    \
    FIELD(char, name, [64])

/* Expands one entry of HELLO_FIELDS to a field of struct wire_hello. */
#define FIELD_MEMBER(type, name, array) type name array;
/* The first message of a handshake (hello) as it travels. `old_version` and `reserved` are 0;
 * `version` is tdm__protocol_version(); `name` ends with NUL. */
struct wire_hello {
    HELLO_FIELDS(FIELD_MEMBER)
};

/* Size of a hello message in bytes. */
enum { HELLO_BYTES = 160 };
_Static_assert(sizeof(struct wire_hello) == HELLO_BYTES, "no padding");

#endif
