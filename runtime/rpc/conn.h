/* conn.h - what users of a connection can do with it, whatever its state is. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_CONN_H
#define TDM_RUNTIME_RPC_CONN_H

#include "runtime/rpc/types.h"

#include <sys/queue.h>

struct tdm__loop;
struct tdm__tls;

/* Sets the function that reports the end of this connection. */
void tdm__conn_on_closed(struct tdm__conn *conn, tdm__closed_fn *fn, void *arg);
/* An additional observer of a connection's end, notified after the tdm__closed_fn whichever side
 * ended the connection. The memory is the caller's, and must stay until `fn` has run or the watcher
 * has been removed. */
struct tdm__close_watcher {
    LIST_ENTRY(tdm__close_watcher) link; /* Links the watcher into its connection's list. */
    /* Callback that runs once when the connection has ended. */
    void (*fn)(struct tdm__close_watcher *watcher);
};
/* Adds an observer of the connection's end. Returns TDM_E_CLOSED if the connection has already
 * ended; the observer is not notified then. */
tdm_status tdm__conn_watch_close(struct tdm__conn *conn, struct tdm__close_watcher *watcher);
/* Removes an observer of a connection's end that has not been notified yet. */
void tdm__conn_unwatch_close(struct tdm__close_watcher *watcher);
/* Closes a connection without blocking. One more attempt is made to send the queued output. The
 * connection ends in the next round of the loop, and its tdm__closed_fn still runs. */
void tdm__conn_close(struct tdm__conn *conn);
/* Takes the socket out of an open connection, for bytes that are no frames, and closes the
 * connection. The peer must do the same and must not have sent anything since the last frame that
 * arrived. Stores a descriptor in `fd_out` that the caller closes, and in `tls_out` the TLS state
 * through which its bytes go, which the caller destroys; NULL if they are plain. Returns
 * TDM_E_STATE, and only closes the connection, if it is not open or if bytes of frames still wait
 * in this process. */
tdm_status tdm__conn_detach(struct tdm__conn *conn, int *fd_out, struct tdm__tls **tls_out);
/* Returns whether the peer is authenticated and the connection is not closing. */
bool tdm__conn_is_open(const struct tdm__conn *conn);
/* Makes the handshake fail with TDM_E_NODE_LOST unless the peer states the ID `id`: another process
 * may listen at the address of one that has ended. To be called right after tdm__rpc_connect(). */
void tdm__conn_expect_peer(struct tdm__conn *conn, const struct tdm__id *id);
/* Returns whether this process could not connect because no process listens at the peer's address,
 * as the machine of that address has said, or because another than the expected process does. */
bool tdm__conn_was_refused(const struct tdm__conn *conn);
/* Returns the identity of the peer (borrowed from the connection). Its kind is 0 until the
 * handshake has succeeded. */
const struct tdm__peer_identity *tdm__conn_peer(const struct tdm__conn *conn);
/* Returns a new pidfd, which the caller closes, of the process at the other end of a Unix socket.
 * Unlike the connection, a pidfd shows the end of a process whose forked child keeps the socket
 * open. Returns -1 if no pidfd is available (TCP, another PID namespace). */
int tdm__conn_peer_pidfd(const struct tdm__conn *conn);
/* Returns the event loop on which the connection runs (borrowed). */
struct tdm__loop *tdm__conn_loop(const struct tdm__conn *conn);
/* Attaches a pointer of the user to the connection. This folder never dereferences the pointer. */
void tdm__conn_set_user_data(struct tdm__conn *conn, void *user_data);
/* Returns the pointer that tdm__conn_set_user_data() attached to the connection, or NULL. */
void *tdm__conn_user_data(const struct tdm__conn *conn);
/* Sets the buffer that receives the tail of the next call if that tail has exactly `size_bytes`
 * bytes. A call that is already arriving does not use it. The buffer is borrowed until the next
 * call has arrived or the connection has ended. `buffer` NULL withdraws an unused buffer. */
void tdm__conn_set_tail_buffer(struct tdm__conn *conn, void *buffer, size_t size_bytes);

/* ---- for the files of this folder ------------------------------------------------------- */

/* Adds a reference to the connection, which keeps its memory. */
void tdm__conn_retain(struct tdm__conn *conn);
/* Releases one reference to the connection. The last release frees the memory; the state must then
 * be CONN_ENDED. */
void tdm__conn_release(struct tdm__conn *conn);
/* Ensures that the connection's timer fires at `deadline_ms` on CLOCK_MONOTONIC or before. Never
 * postpones the timer. */
tdm_status tdm__conn_set_timer(struct tdm__conn *conn, int64_t deadline_ms);

#endif
