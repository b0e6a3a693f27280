/* fdpass.h - sends and receives one record with file descriptors over a local socket. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_FDPASS_H
#define TDM_RUNTIME_FDPASS_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* Most descriptors that tdm__fds_send() sends with one record. The sockets are of type
 * SOCK_SEQPACKET, which delivers each record whole or not at all. */
enum { TDM__FDPASS_MAX = 8 };

/* Sends the bytes `record` and duplicates of the descriptors `fds` in one message. Blocks if the
 * socket is in blocking mode and full. The caller keeps its descriptors. */
tdm_status tdm__fds_send(int socket_fd, const void *record, size_t record_bytes, const int *fds,
                         uint32_t fds_count);
/* Receives one record with its descriptors.  On entry `*record_bytes` and `*fds_count` are the
 * capacities of `record` and `fds`; on return they are the received numbers. 0 bytes mean that
 * the peer has closed.  The descriptors are close-on-exec and the caller owns them.  Returns
 * TDM_E_PROTOCOL, and closes what arrived, if the record or the descriptors exceed the
 * capacities. */
tdm_status tdm__fds_receive(int socket_fd, void *record, size_t *record_bytes, int *fds,
                            uint32_t *fds_count);

#endif
