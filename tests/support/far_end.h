/* far_end.h - another process, played by a test: it asks, and is asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_FAR_END_H
#define TDM_TESTS_SUPPORT_FAR_END_H

#include "runtime/rpc/rpc.h"

enum { FAR_END_WAIT_MS = 20000, FAR_END_HELD_MAX = 32 };

/* An endpoint on the loop of what is tested, with the token of tests/support/rpc_pair.h. */
struct far_end {
    struct tdm__rpc *rpc;
    struct tdm__identity self;
    struct tdm__conn *conn; /* the one that it made; NULL while there is none */
    struct tdm__incoming *held[FAR_END_HELD_MAX]; /* calls that came, unanswered, in order */
    uint32_t held_count;
    uint32_t asked_count;    /* calls that came, ever */
    uint32_t accepted_count; /* connections */
};

/* What came of a call; cleared by far_end_ask(). */
struct far_answer {
    uint32_t count; /* 1, or it came twice */
    uint32_t order; /* among all answers of the program */
    tdm_status status;
    char detail[512];
    tdm_document *document; /* owned; NULL for a failure */
};

/* With a new id and no node. */
void far_end_open(struct far_end *end, struct tdm__loop *loop, enum tdm__peer_kind kind,
                  const char *name);
/* As when the process ends: what is held is not answered. */
void far_end_close(struct far_end *end);
void far_end_listen(struct far_end *end, const char *address, char *bound_out,
                    size_t bound_bytes);
void far_end_connect(struct far_end *end, const char *address);
void far_end_adopt(struct far_end *end, int fd); /* a line that the other side serves */
/* Ends every connection, either side's. */
void far_end_cut(struct far_end *end);

void far_end_ask(struct far_end *end, struct far_answer *answer, const char *method,
                 const char *format, ...);
/* Waits for it: returns its status. */
tdm_status far_end_wait(struct far_end *end, struct far_answer *answer);
/* Both; what was answered is thrown away. */
tdm_status far_end_call(struct far_end *end, const char *method, const char *format, ...);
/* The answer's values, borrowed from it. */
const tdm_value *far_answer_value(const struct far_answer *answer);
void far_answer_free(struct far_answer *answer);

/* Runs the loop until so many calls are held; takes the first of them out. */
void far_end_hold(struct far_end *end, uint32_t count);
struct tdm__incoming *far_end_take(struct far_end *end);

void far_end_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg);
/* For as long as anything happens. */
void far_end_settle(struct tdm__loop *loop);

#endif
