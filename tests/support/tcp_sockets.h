/* tcp_sockets.h - TCP ports for tests, and the options of the TCP connections of a process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_TCP_SOCKETS_H
#define TDM_TESTS_SUPPORT_TCP_SOCKETS_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the number of connected TCP sockets of this process. Fails the test if the kernel would
 * not end one of them about ten seconds after its other machine is gone: with bytes under way, and,
 * if `sends_probes`, without. Without `sends_probes` it fails if one sends probes, which a
 * connection within a machine must not (tdm__socket_limit_probes). */
uint32_t tcp_sockets_check(bool sends_probes);
/* Returns a port at 127.0.0.1 that nobody uses now. It is below those that the kernel gives to
 * sockets of other tests, which could take it before the test does. */
uint16_t tcp_sockets_free_port(void);

#endif
