/* send.h - writes the frames of a connection. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_SEND_H
#define TDM_RUNTIME_RPC_SEND_H

#include "runtime/rpc/types.h"

/* Header of an RPC frame, see runtime/wire/frame.h. */
struct tdm__frame;

/* Returns the number of the CPU on which this thread runs, plus 1, for the header of a frame; 0 if
 * unknown. */
uint32_t tdm__current_cpu(void);
/* Sends a frame over the connection now or before the loop polls next. Returns TDM_E_AGAIN when too
 * many bytes wait to be written, but never for failures and notices. `tail` and `method` are NULL
 * if the frame has none. */
tdm_status tdm__conn_send(struct tdm__conn *conn, const struct tdm__frame *frame,
                          const char *method, const void *payload, const void *tail,
                          const int *fds);
/* Writes as much of the connection's output as the socket accepts. */
void tdm__conn_flush(struct tdm__conn *conn);
/* Continues to write the connection's output after its socket has become writable. */
void tdm__conn_unblock(struct tdm__conn *conn);
/* Removes the connection from its endpoint's list of connections whose output is to be written
 * before the next poll. */
void tdm__conn_uncork(struct tdm__conn *conn);
/* Writes the output of all corked connections of the endpoint `arg`. Runs before each poll of the
 * loop. */
void tdm__rpc_flush(void *arg);

#endif
