/* fdpass.h - one record and its file descriptors over a local socket. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_FDPASS_H
#define TDM_RUNTIME_FDPASS_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* For SOCK_SEQPACKET sockets: a record is whole or not there. */
enum { TDM__FDPASS_MAX = 8 };

/* Sends all of `record` and duplicates of the descriptors.  Blocks as the socket does. */
tdm_status tdm__fds_send(int socket_fd, const void *record, size_t record_bytes, const int *fds,
                         uint32_t fds_count);
/* Receives a record of at most *record_bytes (then: of exactly so many; 0: the other side
 * closed) and at most *fds_count descriptors, close-on-exec, the caller's.  TDM_E_PROTOCOL for
 * more. */
tdm_status tdm__fds_receive(int socket_fd, void *record, size_t *record_bytes, int *fds,
                            uint32_t *fds_count);

#endif
