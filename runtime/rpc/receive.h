/* receive.h - reads the frames of a connection, and owns their memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_RECEIVE_H
#define TDM_RUNTIME_RPC_RECEIVE_H

#include "runtime/rpc/types.h"

/* Returns the connection's next complete frame in `*incoming_out`, or NULL if none is complete. It
 * reads the socket only if `readable`. */
tdm_status tdm__conn_receive(struct tdm__conn *conn, bool readable,
                             struct tdm__incoming_call **incoming_out);
/* Frees the connection's input buffer and partial frame, and closes the received descriptors
 * without a frame. */
void tdm__conn_discard_input(struct tdm__conn *conn);
/* Frees a frame that arrived: closes its descriptors that were not taken, and frees the memory
 * unless a document still borrows it. */
void tdm__incoming_free(struct tdm__incoming_call *incoming);
/* Parses the payload of a frame into a document that borrows the payload, without a copy. */
tdm_status tdm__incoming_parse(struct tdm__incoming_call *incoming, tdm_document **document_out);

#endif
