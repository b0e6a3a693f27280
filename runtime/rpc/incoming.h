/* incoming.h - calls that arrive from peers, and the replies to them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_INCOMING_H
#define TDM_RUNTIME_RPC_INCOMING_H

#include "runtime/rpc/types.h"

/* The fields of one kind of message (runtime/messages). */
struct tdm__message;

/* Returns the id of the actor that the call addresses; all zero for a service of this process.
 * Valid until the reply. */
const struct tdm__id *tdm__incoming_target(const struct tdm__incoming_call *incoming);
/* Returns the name of the called method, ending with NUL. Valid until the reply. */
const char *tdm__incoming_method(const struct tdm__incoming_call *incoming);
/* Returns the call's ID, which the caller chose and which is unique on its connection. */
uint64_t tdm__incoming_call_id(const struct tdm__incoming_call *incoming);
/* Returns the packed value that the call carries (its arguments). Valid until the reply. */
struct tdm_bytes tdm__incoming_packed(const struct tdm__incoming_call *incoming);
/* Returns the root of the call's value, parsed on first use. Returns TDM_E_PROTOCOL if the payload
 * is not a valid packed value. */
tdm_status tdm__incoming_value(struct tdm__incoming_call *incoming, const tdm_value **value_out);
/* Decodes the call's arguments as a message (runtime/messages) into the message's structure. The
 * strings, bytes and lists in the structure are valid until the reply. Errors name the method. */
tdm_status tdm__incoming_decode(struct tdm__incoming_call *incoming,
                                const struct tdm__message *message, void *structure_out);
/* Returns the bytes that follow the call's packed value (the tail), or {NULL, 0} if absent.
 * Valid until the reply. */
struct tdm_bytes tdm__incoming_tail(const struct tdm__incoming_call *incoming);
/* Moves the call's parsed arguments to the caller, which destroys the document. The document stays
 * valid after the reply. */
tdm_status tdm__incoming_take_document(struct tdm__incoming_call *incoming,
                                       tdm_document **document_out);
/* Moves descriptor `index` of the call to the caller, which closes it; returns -1 if the call
 * carries no such descriptor. Descriptors that are not taken are closed with the call. */
int tdm__incoming_take_fd(struct tdm__incoming_call *incoming, uint32_t index);
/* Returns the call's deadline in milliseconds on this process's CLOCK_MONOTONIC; TDM__NEVER if it
 * has none. */
int64_t tdm__incoming_deadline(const struct tdm__incoming_call *incoming);
/* Returns approximately when the call arrived, in milliseconds on CLOCK_MONOTONIC. */
int64_t tdm__incoming_arrived(const struct tdm__incoming_call *incoming);
/* Returns the connection that brought the call (borrowed), or NULL if that connection has closed.
 */
struct tdm__conn *tdm__incoming_conn(const struct tdm__incoming_call *incoming);
/* Returns whether the call came over an older connection than `other`, whose connection has not
 * ended. A caller that sends a call again has left the older connection. */
bool tdm__incoming_is_older(const struct tdm__incoming_call *incoming,
                            const struct tdm__incoming_call *other);
/* Returns the identity of the process that sent the call. Valid until the reply. */
const struct tdm__peer_identity *tdm__incoming_peer(const struct tdm__incoming_call *incoming);

/* Returns the call's sequence number within its client session, as in runtime/wire/frame.h; 0 if it
 * has none. */
uint64_t tdm__incoming_sequence(const struct tdm__incoming_call *incoming);
/* Returns the sequence number up to which the peer has received all replies, as in
 * runtime/wire/frame.h. */
uint64_t tdm__incoming_acknowledged(const struct tdm__incoming_call *incoming);
/* Returns whether the peer accepts stream items as results of the call, that is, whether it has set
 * `on_item`. */
bool tdm__incoming_wants_items(const struct tdm__incoming_call *incoming);
/* Returns the index of the call's concurrency group, as in runtime/wire/frame.h. */
uint32_t tdm__incoming_concurrency_group(const struct tdm__incoming_call *incoming);

/* Sets the function that receives the notices (cancel, credit, closed) of this call; NULL receives
 * none. */
void tdm__incoming_on_notice(struct tdm__incoming_call *incoming, tdm__call_notice_fn *fn,
                             void *arg);
/* Sends item `index` of the call's stream. The first index is 1, and each is higher than the one
 * before. The descriptors are duplicated. Returns TDM_E_CLOSED if the connection has ended. */
tdm_status tdm__incoming_send_item(struct tdm__incoming_call *incoming, uint64_t index,
                                   struct tdm_bytes packed, const int *fds, uint32_t fds_count);

/* Replies to the call with a packed value and frees `incoming`. The descriptors `fds` are
 * duplicated; the caller keeps its own. */
void tdm__incoming_reply(struct tdm__incoming_call *incoming, struct tdm_bytes packed,
                         const int *fds, uint32_t fds_count);
/* Replies to the call with a value that is packed by a format as tdm_pack() does, and frees
 * `incoming`. */
void tdm__incoming_reply_pack(struct tdm__incoming_call *incoming, const char *format, ...);
/* Replies to the call with a message (runtime/messages) that is encoded from its structure, and
 * frees `incoming`. */
void tdm__incoming_reply_message(struct tdm__incoming_call *incoming,
                                 const struct tdm__message *message, const void *structure);
/* Replies to the call with a failure, and frees `incoming`. `status` and the text `detail` travel
 * to the peer. */
void tdm__incoming_fail(struct tdm__incoming_call *incoming, tdm_status status, const char *detail);
/* Does the same as tdm__incoming_fail() with a packed value that travels behind the text. The peer
 * finds it in `packed` of its reply. */
void tdm__incoming_fail_with(struct tdm__incoming_call *incoming, tdm_status status,
                             const char *detail, struct tdm_bytes packed);
/* A tdm__rpc_reply_fn for a call that this process forwards: replies to `incoming`, a struct
 * tdm__incoming_call, with the value or the failure of `reply`, and frees `incoming`. */
void tdm__incoming_pass_reply(void *incoming, struct tdm__rpc_reply *reply);

/* ---- for the files of this folder ------------------------------------------------------- */

/* Passes a call that arrived to the endpoint's handler. Returns TDM_E_PROTOCOL if the call's ID is
 * in use. */
tdm_status tdm__conn_serve(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Passes a CANCEL or CREDIT frame that arrived to the call that it is about. Returns TDM_E_PROTOCOL
 * for impossible credit. */
tdm_status tdm__conn_notice(struct tdm__conn *conn, struct tdm__incoming_call *incoming);
/* Notifies every call of the peer that has no reply yet that the connection has ended. */
void tdm__incoming_notify_closed(struct tdm__conn *conn);

#endif
