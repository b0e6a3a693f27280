/* socket.h - checks before listening at an address, and the options of sockets to other processes.
 */
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

/* Returns true if the other end of the connected TCP socket `fd` is on this machine: its address is
 * a loopback address or that of this end. The bytes of such a connection leave no machine. */
bool tdm__socket_is_on_this_machine(int fd);

/* Milliseconds after which the kernel ends a TCP connection whose other machine does not answer. */
enum { TDM__SOCKET_UNANSWERED_MS = 10000 };

/* Sets the options of a new socket to another process: disables Nagle's algorithm, and makes the
 * kernel end a TCP connection whose other machine has not answered for
 * TDM__SOCKET_UNANSWERED_MS. With `peer_may_stall` a machine that answers, but whose process reads
 * nothing, keeps the connection. Failures are ignored: Unix sockets have none of these options. */
void tdm__socket_set_options(int fd, bool peer_may_stall);
/* Makes the kernel stop to probe the other end of the connected TCP socket `fd` if that is on this
 * machine: the kernel closes the connections of a process that ends, and probes find nothing more.
 * Failures are ignored. */
void tdm__socket_limit_probes(int fd);

#endif
