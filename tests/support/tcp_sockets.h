/* tcp_sockets.h - the options of the TCP connections that a test's process has. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_TCP_SOCKETS_H
#define TDM_TESTS_SUPPORT_TCP_SOCKETS_H

#include <stdint.h>

/* Returns the number of connected TCP sockets of this process. Fails the test if the kernel would
 * not end one of them about ten seconds after its other machine is gone, with bytes under way and
 * without. */
uint32_t tcp_sockets_check(void);

#endif
