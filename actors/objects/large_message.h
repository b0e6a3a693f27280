/* large_message.h - calls and replies that contain large values. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_LARGE_MESSAGE_H
#define TDM_ACTORS_OBJECTS_LARGE_MESSAGE_H

#include "actors/objects/large_value.h"
#include "runtime/rpc/rpc.h"

/* Returns true if the caller of `incoming` is on another node and the value is too large for one
 * message, so that it must be offered. */
bool tdm__large_is_offered(const struct tdm__large *large, const tdm_runtime *runtime,
                           const struct tdm__incoming_call *incoming);
/* Creates a document of the arguments of a call that arrived, either from its message or from
 * shared memory. */
tdm_status tdm__incoming_document(tdm_runtime *runtime, struct tdm__incoming_call *incoming,
                                  tdm_document **document_out);
/* Returns the exported or offered arguments of a call that will not be executed to the caller. */
void tdm__incoming_discard(struct tdm__incoming_call *incoming);
/* Returns the arguments as tdm__incoming_discard() does, and replies with a failure. */
void tdm__incoming_refuse(struct tdm__incoming_call *incoming, tdm_status status,
                          const char *detail);
/* Creates a document of the result in a reply, either from its message or from shared memory.
 * Takes the reply's first descriptor. */
tdm_status tdm__result_document(tdm_runtime *runtime, struct tdm__conn *conn,
                                struct tdm__rpc_reply *reply, tdm_document **document_out);
/* Returns the exported result in a reply whose descriptor was lost (`fds_lost`) to the callee. Does
 * nothing for other replies. */
void tdm__result_return_lost(struct tdm__conn *conn, const struct tdm__rpc_reply *reply);
/* Parses the values that the failure in a reply carries. The caller destroys the document. Returns
 * NULL if the failure carries none, or bytes that are no array, which are logged. */
tdm_document *tdm__failure_document(const struct tdm__rpc_reply *reply);
/* Replies with the value: as a descriptor to a caller on this node, as an offer if it is too
 * large for one message, else as its bytes. */
void tdm__large_reply(struct tdm__large *large, tdm_runtime *runtime,
                      struct tdm__incoming_call *incoming);
/* As tdm__large_reply(), but sends the value as item `index` of the call's stream. */
tdm_status tdm__large_item(struct tdm__large *large, const tdm_runtime *runtime,
                           struct tdm__incoming_call *incoming, uint64_t index);

#endif
