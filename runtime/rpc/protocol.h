/* protocol.h - the version of the protocol, derived from what processes send. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_PROTOCOL_H
#define TDM_RUNTIME_RPC_PROTOCOL_H

#include <stdint.h>

/* Returns a hash over the layouts of hellos and frames and over the tables of all messages
 * (runtime/messages). It is never 0. The handshake refuses a connection between two builds whose
 * versions differ, and names both versions.
 *
 * The hash does not change with a change of meaning that changes no table, name or type. Rename the
 * field or the message in that case. */
uint32_t tdm__protocol_version(void);

/* Text of the fields and types of the hello (hello.h), over which the version is computed. */
extern const char tdm__hello_layout[];

#endif
