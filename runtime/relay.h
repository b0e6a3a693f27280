/* relay.h - copies bytes between pairs of connected sockets. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RELAY_H
#define TDM_RUNTIME_RELAY_H

#include "runtime/loop/loop.h"
#include "runtime/tls.h"

/* A set of relays that one owner created. A relay copies what arrives at each of two sockets to the
 * other one. It ends, and closes both sockets, when
 *
 * - one of the sockets has ended or failed and what it sent before has been written,
 * - bytes wait for a peer that has read nothing for `stall_ms` milliseconds, or
 * - the machine at the other end of a TCP connection has not replied for some seconds. */
struct tdm__relays;

/* Usual value of `stall_ms`: a relay with waiting bytes ends after 10 s without progress. */
enum { TDM__RELAY_STALL_MS = 10000 };

/* Creates an empty set of relays on the event loop `loop`, which is borrowed. `stall_ms` is the
 * time without progress after which a relay with waiting bytes ends. The caller destroys the
 * set. */
tdm_status tdm__relays_create(struct tdm__loop *loop, int64_t stall_ms,
                              struct tdm__relays **relays_out);
/* Ends all relays of the set, closes their sockets and frees the set. NULL is allowed. */
void tdm__relays_destroy(struct tdm__relays *relays);
/* Adds a relay between the connected sockets `first` and `second`, which become non-blocking. `tls`
 * is the TLS state through which the bytes of `first` go; NULL if they are plain. After TDM_OK the
 * set owns all three; after a failure the caller still owns them. */
tdm_status tdm__relays_add(struct tdm__relays *relays, int first, struct tdm__tls *tls, int second);

#endif
