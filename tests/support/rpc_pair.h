/* rpc_pair.h - two endpoints on one loop, with a record of what they received. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_RPC_PAIR_H
#define TDM_TESTS_SUPPORT_RPC_PAIR_H

#include "runtime/rpc/rpc.h"

#include <sys/types.h>

enum { PAIR_WAIT_MS = 40000, PAIR_HELD_MAX = 8 };

/* Two endpoints and a connection between them. */
struct rpc_pair {
    struct tdm__loop *loop;
    struct tdm__rpc *rpcs[2];
    /* Each end of the connection; NULL once closed, or when the test has only one end. */
    struct tdm__conn *conns[2];
    tdm_status reasons[2]; /* Why each end was closed; the details are next. */
    char details[2][256];
    uint32_t closed;
    struct tdm__incoming_call *held[PAIR_HELD_MAX]; /* Calls of "hold" without a reply. */
    uint32_t held_count;
    uint32_t served;
};

/* Makes both endpoints.  Their methods: "echo" answers its payload, "hold" keeps the call,
 * "fail" fails with TDM_E_METHOD and "on purpose", "back" calls "echo" at the caller and waits
 * before it answers, "fd" sends the caller's descriptors back. */
void pair_create(struct rpc_pair *pair);
void pair_destroy(struct rpc_pair *pair);
struct tdm__peer_identity pair_identity(const char *name);
extern const uint8_t pair_token[TDM__TOKEN_BYTES];

/* Connects the endpoints with a socket pair and waits until both ends are open. */
void pair_join(struct rpc_pair *pair);
/* Connects them over two given sockets without waiting. */
void pair_adopt(struct rpc_pair *pair, int fd0, int fd1);
/* Runs the loop until *value >= goal; fails the test after PAIR_WAIT_MS. */
void pair_run_until(struct rpc_pair *pair, const uint32_t *value, uint32_t goal);
/* Runs the loop for a time in which the test expects no event. */
void pair_run_for(struct rpc_pair *pair, int64_t ms);

/* Returns a packed array of one string, in a static buffer that is reused by the eighth call
 * after. */
struct tdm_bytes pair_text(const char *text);
struct tdm__rpc_request pair_request(const char *method, const char *text);

/* The result of one call. */
struct pair_reply {
    uint32_t count;
    tdm_status status;
    char detail[256];
    size_t size_bytes;
    uint64_t hash; /* Hash of the packed reply. */
    uint32_t order;
};
/* Total number of replies; gives each reply its order. */
extern uint32_t pair_replies_total;
tdm__rpc_reply_fn pair_on_reply;
/* Calls a method with a short text; the result goes to `answer`. */
void pair_call(struct tdm__conn *conn, const char *method, struct pair_reply *answer);
uint64_t pair_hash(struct tdm_bytes bytes);

#endif
