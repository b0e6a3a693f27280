/* caller.h - those who call this actor, and the answers they may not have got. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CALLER_H
#define TDM_ACTORS_CALLER_H

#include "actors/answer.h"

#include <tandem/actor.h>

/* At most once: a caller numbers its calls, tells with each up to where it has the answers, and
 * sends those it has no answer to again when its connection was cut.  Until it has told, its
 * answers are kept here; a call that comes again gets the same one. */
struct tdm__caller {
    struct tdm__caller *next; /* in its bucket */
    struct tdm__id id;        /* with the two that follow: one incarnation of a process */
    struct tdm__id node;
    int64_t pid;
    uint64_t highest;      /* sequence that has come */
    uint64_t acknowledged; /* answers up to here need not be kept */
    uint64_t lost;         /* of the highest answer that memory was lacking for; 0: none */
    TAILQ_HEAD(tdm__kept_answers, tdm__kept_answer) answers; /* owned; by sequence */
    uint32_t answers_count;
    uint32_t calls_count; /* not answered yet */
    /* Who sends again does so in order: the next one is looked for behind these. */
    struct tdm__kept_answer *answered_again; /* in `answers`; or NULL */
    tdm_call *taken_up;                      /* not answered yet; or NULL */
    TAILQ_HEAD(, tdm_call) held; /* calls in order, the first of them held: call.h */
    bool heard;                  /* since the last sweep */
    int64_t silent_since_ms;     /* at a sweep */
};

enum { TDM__CALLER_BUCKETS = 256, TDM__CALLER_ANSWERS_MAX = 100000 };
#define TDM__CALLERS_BYTES_MAX ((size_t)256 << 20)

struct tdm__callers {
    struct tdm__caller *buckets[TDM__CALLER_BUCKETS]; /* owned */
    struct tdm__caller *last;                         /* the one asked for last; or NULL */
    size_t answers_bytes;
    int64_t swept_ms;
};

void tdm__callers_init(struct tdm__callers *callers);
/* None has calls any more. */
void tdm__callers_fini(struct tdm__callers *callers);

/* The caller who is `peer`, a new one if it must be; TDM_E_NOMEM.  Those not heard of for
 * minutes, and without calls, are forgotten now and then. */
tdm_status tdm__caller_find(struct tdm__callers *callers, const struct tdm__identity *peer,
                            struct tdm__caller **caller_out);

/* The caller has all answers up to there. */
void tdm__caller_acknowledge(struct tdm__callers *callers, struct tdm__caller *caller,
                             uint64_t sequence);
/* TDM_E_AGAIN while too many answers, or bytes of them, wait for an acknowledgement. */
tdm_status tdm__caller_has_room(const struct tdm__callers *callers,
                                const struct tdm__caller *caller);
/* Its call of that sequence that is not answered yet, `first` and the executor's others looked
 * through; or NULL. */
tdm_call *tdm__caller_find_call(struct tdm__caller *caller, tdm_call *first, uint64_t sequence);
/* The answer kept under that sequence, or NULL. */
const struct tdm__answer *tdm__caller_answer(struct tdm__caller *caller, uint64_t sequence);
/* TDM_OK if a call that is neither known nor answered may run: it has not come before, or was
 * refused then.  Else why it may not. */
tdm_status tdm__caller_may_run(const struct tdm__caller *caller, uint64_t sequence);
void tdm__caller_keep(struct tdm__callers *callers, struct tdm__caller *caller,
                      uint64_t sequence, const struct tdm__answer *answer);

#endif
