/* remote_peer.h - another process, played by a test, that calls and is called. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_REMOTE_PEER_H
#define TDM_TESTS_SUPPORT_REMOTE_PEER_H

#include "runtime/rpc/rpc.h"

enum { REMOTE_PEER_WAIT_MS = 20000, REMOTE_PEER_HELD_MAX = 32 };

/* An endpoint on the loop of the tested process, with the token of tests/support/rpc_pair.h. */
struct remote_peer {
    struct tdm__rpc *rpc;
    struct tdm__peer_identity self;
    struct tdm__conn *conn; /* The connection that it opened; NULL while there is none. */
    struct tdm__incoming_call
        *held[REMOTE_PEER_HELD_MAX]; /* Calls to it without a reply, in order of arrival. */
    uint32_t held_count;
    uint32_t asked_count;    /* Number of calls that have come so far. */
    uint32_t accepted_count; /* Number of accepted connections so far. */
};

/* The result of a call; remote_peer_ask() clears it. */
struct remote_reply {
    uint32_t count; /* Number of replies; more than 1 is an error. */
    uint32_t order; /* Position of the reply among all replies of the program. */
    tdm_status status;
    char detail[512];
    tdm_document *document; /* The reply (owned); NULL for a failure. */
};

/* Opens the endpoint with a new ID and without a node. */
void remote_peer_open(struct remote_peer *end, struct tdm__loop *loop, enum tdm__peer_kind kind,
                      const char *name);
/* Closes the endpoint as if the process ended; held calls get no reply. */
void remote_peer_close(struct remote_peer *end);
void remote_peer_listen(struct remote_peer *end, const char *address, char *bound_out,
                        size_t bound_bytes);
void remote_peer_connect(struct remote_peer *end, const char *address);
/* Uses the other end of a connection that the other side serves. */
void remote_peer_adopt(struct remote_peer *end, int fd);
/* Ends every connection that either side opened. */
void remote_peer_cut(struct remote_peer *end);

void remote_peer_ask(struct remote_peer *end, struct remote_reply *answer, const char *method,
                     const char *format, ...);
/* Waits for the reply and returns its status. */
tdm_status remote_peer_wait(struct remote_peer *end, struct remote_reply *answer);
/* Calls and waits; the reply is discarded. */
tdm_status remote_peer_call(struct remote_peer *end, const char *method, const char *format, ...);
/* Returns the values of the reply, borrowed from it. */
const tdm_value *remote_reply_value(const struct remote_reply *answer);
void remote_reply_free(struct remote_reply *answer);

/* The function remote_peer_hold() runs the loop until `count` calls are held. remote_peer_take()
 * removes the first of them. */
void remote_peer_hold(struct remote_peer *end, uint32_t count);
struct tdm__incoming_call *remote_peer_take(struct remote_peer *end);

void remote_peer_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg);
/* Runs the loop until nothing happens. */
void remote_peer_settle(struct tdm__loop *loop);

#endif
