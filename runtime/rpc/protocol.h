/* protocol.h - the version of the protocol, derived from what processes send. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_PROTOCOL_H
#define TDM_RUNTIME_RPC_PROTOCOL_H

/* Returns a hash over the layouts of hellos and frames and over the tables of all messages
 * (runtime/messages). It is never 0. The handshake refuses a connection between two builds whose
 * versions differ, and names both versions.
 *
 * The hash does not change with a change of meaning that changes no table, name or type. Rename the
 * field or the message in that case. */
#include <stdint.h>

/* Returns a hash over the layouts of hellos and frames and over the tables of all messages
 * (runtime/messages).  It is never 0.  Two builds whose versions differ do not talk to each
 * other: the handshake refuses the connection and names both versions.
 *
 * A change of meaning that changes no table, name or kind is not seen by the hash.  Rename the
 * field or the message then. */
uint32_t tdm__protocol_version(void);

/* Text of the fields and kinds of the hello; defined beside the structure in handshake.c. */
extern const char tdm__hello_layout[];
/* Text of the fields and types of the hello. It is defined beside the structure in handshake.c. */

#endif
