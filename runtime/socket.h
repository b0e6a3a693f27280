/* socket.h - checks before listening at an address: the port number and stale socket files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SOCKET_H
#define TDM_RUNTIME_SOCKET_H

#include <stdbool.h>
#include <tandem/error.h>

/* Returns true if `port` is a decimal number from 0 to 65535. getaddrinfo() also accepts larger
 * numbers and drops their high bits. */
bool tdm__port_is_valid(const char *port);

/* Removes the file of a Unix socket at which no process listens any more, so that a new socket
 * can be bound.  Returns TDM_OK if there is no file.  Returns TDM_E_EXISTS, and leaves the file,
 * if a process listens there or the file is not a socket. */
tdm_status tdm__socket_remove_stale(const char *path);

#endif
