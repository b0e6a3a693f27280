/* tcp_sockets.h - TCP ports for tests, and the options of the TCP connections of a process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_TCP_SOCKETS_H
#define TDM_TESTS_SUPPORT_TCP_SOCKETS_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the number of connected TCP sockets of this process. The test fails unless the kernel
 * ends each connection about ten seconds after the other machine is lost. This applies to
 * connections with bytes in flight, and with `sends_probes` also to idle ones. Without
 * `sends_probes` the test fails if a socket sends probes, because a connection within a machine
 * must not send any (tdm__socket_limit_probes). */
uint32_t tcp_sockets_check(bool sends_probes);
/* Returns a free port at 127.0.0.1. The port is below the range from which the kernel chooses ports
 * for the sockets of other tests, so that no other test takes it first. */
uint16_t tcp_sockets_free_port(void);

#endif
