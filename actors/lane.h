/* lane.h - the calls of one concurrency group, in line, and the threads that run them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_LANE_H
#define TDM_ACTORS_LANE_H

#include "actors/call.h"

/* Everything with the loop's lock held. */
struct tdm__lane {
    struct tdm__loop *loop; /* borrowed */
    const char *name;       /* borrowed; of the group, for its threads' names */
    void (*run)(tdm_call *call);
    uint32_t limit;          /* of calls under way at once */
    uint32_t underway_count; /* calls that run, or were kept */
    bool has_threads;        /* else the main thread works */
    bool is_open;            /* else what comes waits */
    bool stopping;
    uint32_t threads_count;
    TAILQ_HEAD(, tdm_call) waiting;
    STAILQ_HEAD(, post) posts;
    SLIST_HEAD(, runner) runners; /* owned */
    SLIST_HEAD(, runner) idle;    /* of these, those that sleep */
};

/* `run` runs one call's method, lets go of the lock meanwhile, and leads to
 * tdm__lane_ended() when the call is no longer under way. */
void tdm__lane_init(struct tdm__lane *lane, struct tdm__loop *loop, const char *name,
                    uint32_t limit, bool has_threads, void (*run)(tdm_call *call));

/* The one of `count` whose name has that number (class.h); or NULL. */
struct tdm__lane *tdm__lane_numbered(struct tdm__lane *lanes, uint32_t count, uint32_t number);

/* From now on calls run. */
void tdm__lane_open(struct tdm__lane *lane);

/* Puts a call in line; where the lane has threads, one of them will come. */
void tdm__lane_push(struct tdm__lane *lane, tdm_call *call);
void tdm__lane_remove(struct tdm__lane *lane, tdm_call *call);
tdm_status tdm__lane_post(struct tdm__lane *lane, void (*fn)(void *arg), void *arg);
void tdm__lane_ended(struct tdm__lane *lane);

/* Something could run now. */
bool tdm__lane_has_work(const struct tdm__lane *lane);
/* Nothing waits and nothing is under way. */
bool tdm__lane_is_empty(const struct tdm__lane *lane);
/* Runs one post, or one call, on this thread. */
void tdm__lane_work(struct tdm__lane *lane);

/* Ends the threads, which run nothing any more, and forgets posts. */
void tdm__lane_stop(struct tdm__lane *lane);

#endif
