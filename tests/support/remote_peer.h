/* remote_peer.h - another process, played by a test: it asks, and is asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_REMOTE_PEER_H
#define TDM_TESTS_SUPPORT_REMOTE_PEER_H

#include "runtime/rpc/rpc.h"

enum { REMOTE_PEER_WAIT_MS = 20000, REMOTE_PEER_HELD_MAX = 32 };

/* An endpoint on the loop of what is tested, with the token of tests/support/rpc_pair.h. */
struct remote_peer {
    struct tdm__rpc *rpc;
    struct tdm__peer_identity self;
    struct tdm__conn *conn; /* the one that it made; NULL while there is none */
    struct tdm__incoming_call
        *held[REMOTE_PEER_HELD_MAX]; /* calls that came, unanswered, in order */
    uint32_t held_count;
    uint32_t asked_count;    /* calls that came, ever */
    uint32_t accepted_count; /* connections */
};

/* What came of a call; cleared by remote_peer_ask(). */
struct remote_reply {
    uint32_t count; /* 1, or it came twice */
    uint32_t order; /* among all answers of the program */
    tdm_status status;
    char detail[512];
    tdm_document *document; /* owned; NULL for a failure */
};

/* With a new id and no node. */
void remote_peer_open(struct remote_peer *end, struct tdm__loop *loop, enum tdm__peer_kind kind,
                      const char *name);
/* As when the process ends: what is held is not answered. */
void remote_peer_close(struct remote_peer *end);
void remote_peer_listen(struct remote_peer *end, const char *address, char *bound_out,
                        size_t bound_bytes);
void remote_peer_connect(struct remote_peer *end, const char *address);
void remote_peer_adopt(struct remote_peer *end, int fd); /* a line that the other side serves */
/* Ends every connection, either side's. */
void remote_peer_cut(struct remote_peer *end);

void remote_peer_ask(struct remote_peer *end, struct remote_reply *answer, const char *method,
                     const char *format, ...);
/* Waits for it: returns its status. */
tdm_status remote_peer_wait(struct remote_peer *end, struct remote_reply *answer);
/* Both; what was answered is thrown away. */
tdm_status remote_peer_call(struct remote_peer *end, const char *method, const char *format, ...);
/* The answer's values, borrowed from it. */
const tdm_value *remote_reply_value(const struct remote_reply *answer);
void remote_reply_free(struct remote_reply *answer);

/* Runs the loop until so many calls are held; takes the first of them out. */
void remote_peer_hold(struct remote_peer *end, uint32_t count);
struct tdm__incoming_call *remote_peer_take(struct remote_peer *end);

void remote_peer_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg);
/* For as long as anything happens. */
void remote_peer_settle(struct tdm__loop *loop);

#endif
