/* answer.h - what a call is answered with, and copies of it that are kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_ANSWER_H
#define TDM_ACTORS_ANSWER_H

#include "actors/objects/large.h"

#include <stdbool.h>
#include <sys/queue.h>

/* What the caller will read. */
struct tdm__answer {
    tdm_status status;
    const char *detail; /* of a failure */
    struct tdm_bytes packed;
    struct tdm__large *large;   /* borrowed; if there is one, it is the value instead */
    struct tdm__passed *passed; /* borrowed; the references in the value; NULL: none */
    const int *fds;             /* borrowed */
    uint32_t fds_count;
};

/* A copy of its own, with duplicates of the descriptors; a large value is counted, and so is
 * what it passes on: while the copy may be sent, its references lead somewhere. */
struct tdm__kept_answer {
    TAILQ_ENTRY(tdm__kept_answer) link;
    uint64_t sequence;
    size_t size_bytes; /* of memory */
    struct tdm__answer answer;
    int fds[]; /* owned; behind them the packed value, or the detail */
};

#define TDM__STREAM_BROKEN "a stream ends with its connection"

/* What a caller on that node gets who asks again, its connection having ended.  The items of a
 * stream may have been lost with it; and of this node it ends with one of its processes only: a
 * large value that went over it need not stay in memory. */
const struct tdm__answer *tdm__answer_to_keep(const struct tdm__answer *answer,
                                              bool of_a_stream, const struct tdm__id *node);
tdm_status tdm__answer_keep(const struct tdm__answer *answer,
                            struct tdm__kept_answer **kept_out);
void tdm__kept_answer_destroy(struct tdm__kept_answer *kept); /* NULL is allowed */
/* Answers `incoming`, which is gone then; with a failure where the references in the answer
 * have been let go of. */
void tdm__answer_send(const struct tdm__answer *answer, struct tdm__incoming *incoming);

#endif
