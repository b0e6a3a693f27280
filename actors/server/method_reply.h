/* method_reply.h - what a call is answered with, and copies of it that are kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_METHOD_REPLY_H
#define TDM_ACTORS_SERVER_METHOD_REPLY_H

#include "actors/objects/large_value.h"

#include <stdbool.h>
#include <sys/queue.h>

/* What the caller will read. */
struct tdm__method_reply {
    tdm_status status;
    const char *detail; /* of a failure */
    struct tdm_bytes packed;
    struct tdm__large *large;        /* borrowed; if there is one, it is the value instead */
    struct tdm__passed_refs *passed; /* borrowed; the references in the value; NULL: none */
    const int *fds;                  /* borrowed */
    uint32_t fds_count;
};

/* A copy of its own, with duplicates of the descriptors; a large value is counted, and so is
 * what it passes on: while the copy may be sent, its references lead somewhere. */
struct tdm__cached_reply {
    TAILQ_ENTRY(tdm__cached_reply) link;
    uint64_t sequence;
    size_t size_bytes; /* of memory */
    struct tdm__method_reply answer;
    int fds[]; /* owned; behind them the packed value, or the detail */
};

#define TDM__STREAM_BROKEN "a stream ends with its connection"

/* What a caller on that node gets who asks again, its connection having ended.  The items of a
 * stream may have been lost with it; and of this node it ends with one of its processes only: a
 * large value that went over it need not stay in memory. */
const struct tdm__method_reply *tdm__method_reply_for_cache(const struct tdm__method_reply *answer,
                                                            bool of_a_stream,
                                                            const struct tdm__id *node);
tdm_status tdm__cached_reply_create(const struct tdm__method_reply *answer,
                                    struct tdm__cached_reply **kept_out);
void tdm__cached_reply_destroy(struct tdm__cached_reply *kept); /* NULL is allowed */
/* Answers `incoming`, which is gone then; with a failure where the references in the answer
 * have been let go of. */
void tdm__method_reply_send(const struct tdm__method_reply *answer,
                            struct tdm__incoming_call *incoming);

#endif
