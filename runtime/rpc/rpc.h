/* rpc.h - authenticated connections that carry calls and their replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_H
#define TDM_RUNTIME_RPC_H

#include "runtime/loop/loop.h"
#include "runtime/rpc/calls.h"
#include "runtime/rpc/conn.h"
#include "runtime/rpc/incoming.h"
#include "runtime/rpc/tcp_settings.h"
#include "runtime/rpc/types.h"
#include "runtime/token.h"

/* A process has one endpoint (tdm__rpc). The endpoint listens for other processes and connects to
 * the processes it calls. Either end of a connection may call the other. A call names a target (an
 * actor or a service of the process) and a method. It carries one packed value and up to 8 file
 * descriptors (Unix sockets only). Each call completes exactly once: with the callee's reply, or
 * with the reason why no reply can arrive (deadline, closed connection).
 *
 * A TCP connection with another machine is encrypted by TLS 1.3 with a key that is derived from the
 * token (runtime/tls.h). The client decides about TLS, and a server refuses plain text where its
 * own mode forbids it, so nobody on the way can make the two speak plain text.
 *
 * Before anything else is read, both sides prove that they know the cluster's token, by HMAC-SHA256
 * over both nonces and both identities. A peer that does not do so within 5 s is dropped. At most
 * 64 accepted connections of an endpoint are in that state; for one more the oldest one is dropped.
 *
 * Calls on one connection arrive in the order of sending. All functions must be called on the
 * loop's thread.
 *
 * This header declares the endpoints. It includes the rest of the interface: connections (conn.h),
 * calls that this process sends (calls.h), and calls that arrive (incoming.h). */

/* Creates an RPC endpoint without listeners and connections. The identity `self` and the token are
 * copied; `loop` is borrowed and must outlive the endpoint. Returns TDM_E_INVAL if TANDEM_TLS has a
 * wrong value. */
tdm_status tdm__rpc_create(struct tdm__loop *loop, const struct tdm__peer_identity *self,
                           const uint8_t token[TDM__TOKEN_BYTES], struct tdm__rpc **rpc_out);
/* Creates another RPC endpoint with the identity, token and use of TCP of `like`, on the event loop
 * `loop`. All members of a group may connect at once, and then read only in operations of the
 * group: the kernel does not end a connection because bytes are not read. The endpoint refuses the
 * lost nodes that `like` refuses at the time of the call. */
tdm_status tdm__rpc_create_like(const struct tdm__rpc *like, struct tdm__loop *loop,
                                struct tdm__rpc **rpc_out);
/* Closes every listener and connection and frees the endpoint. Calls in flight complete first with
 * TDM_E_CLOSED. NULL is allowed. */
void tdm__rpc_destroy(struct tdm__rpc *rpc);
/* Sets how the endpoint uses TCP from now on. Before, TLS is used as TANDEM_TLS says. */
void tdm__rpc_set_tcp_settings(struct tdm__rpc *rpc, const struct tdm__tcp_settings *settings);
/* Returns how the endpoint uses TCP (borrowed). */
const struct tdm__tcp_settings *tdm__rpc_tcp_settings(const struct tdm__rpc *rpc);
/* Returns the event loop on which the endpoint runs (borrowed). */
struct tdm__loop *tdm__rpc_loop(struct tdm__rpc *rpc);
/* Replaces the identity of this process that later handshakes state. A driver learns its node only
 * after it has connected. */
void tdm__rpc_set_identity(struct tdm__rpc *rpc, const struct tdm__peer_identity *self);
/* Replaces only the epoch of this process's node in that identity. */
void tdm__rpc_set_node_epoch(struct tdm__rpc *rpc, uint64_t epoch);

/* Makes the endpoint listen at `address`: "unix:/path" (created with mode 0600; a stale socket file
 * is replaced) or "tcp:127.0.0.1:0". Port 0 is any free port, or one of those that the settings
 * allow. Writes the address that peers can use, with the port filled in and the host that the
 * settings advertise, to `bound_out` if that is not NULL. */
tdm_status tdm__rpc_listen(struct tdm__rpc *rpc, const char *address, char *bound_out,
                           size_t bound_bytes);

/* Sets the handler of all calls that arrive at the endpoint. NULL makes every call fail with
 * TDM_E_NOT_FOUND. */
void tdm__rpc_set_call_handler(struct tdm__rpc *rpc, tdm__call_handler_fn *fn, void *arg);
/* Limits the number of values in a call that arrives at the endpoint: more make it fail with
 * TDM_E_LIMIT when its value is read. Without this function only the limit of documents holds. */
void tdm__rpc_set_values_max(struct tdm__rpc *rpc, uint32_t values_max);
/* Sets the function that receives the endpoint's late replies: replies to calls that were
 * forgotten. NULL discards them. */
void tdm__rpc_on_late_reply(struct tdm__rpc *rpc, tdm__late_reply_fn *fn, void *arg);

/* Starts to connect to `address` and returns the new connection, which the endpoint owns. Calls may
 * be sent at once; they leave when the handshake has succeeded. Blocks only to look up a host name.
 */
tdm_status tdm__rpc_connect(struct tdm__rpc *rpc, const char *address, struct tdm__conn **conn_out);
/* Creates a connection over `fd`, a connected socket (of a socketpair), which the connection owns
 * after TDM_OK. `server` is true on the side that waits for the other side's hello. */
tdm_status tdm__rpc_adopt(struct tdm__rpc *rpc, int fd, bool server, struct tdm__conn **conn_out);

/* Refuses the processes of the node `node` in `epoch` and in lower epochs from now on: closes the
 * connections with them, whichever side opened them, and ends later handshakes with them with
 * TDM_E_NODE_LOST. No call and no reply of such a process is handled any more. Processes of the
 * node in a higher epoch are accepted. */
tdm_status tdm__rpc_lose_node(struct tdm__rpc *rpc, const struct tdm__id *node, uint64_t epoch);

/* Sets the function that is called for each connection that the endpoint has accepted. */
void tdm__rpc_on_accepted(struct tdm__rpc *rpc, tdm__accepted_fn *fn, void *arg);
/* Calls `fn` for each open connection of the endpoint, accepted or started by this process. `fn`
 * may send calls but must not end a connection. */
void tdm__rpc_each_conn(struct tdm__rpc *rpc, void (*fn)(void *arg, struct tdm__conn *conn),
                        void *arg);

#endif
