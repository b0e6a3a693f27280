/* socket.h - what all who listen at an address have to look at first. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SOCKET_H
#define TDM_RUNTIME_SOCKET_H

#include <stdbool.h>
#include <tandem/error.h>

/* Decimal, 0 to 65535.  getaddrinfo() takes larger ones, too, and forgets their high bits. */
bool tdm__port_is_valid(const char *port);

/* Makes room for the file of a Unix socket: removes one at which nobody listens any more.
 * TDM_E_EXISTS if somebody does, and for a file that is no socket, which stays. */
tdm_status tdm__socket_remove_stale(const char *path);

#endif
