/* concurrency_queue.h - the calls of one concurrency group, in line, and the threads that run them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_CONCURRENCY_QUEUE_H
#define TDM_ACTORS_SERVER_CONCURRENCY_QUEUE_H

#include "actors/server/call.h"

/* Everything with the loop's lock held. */
struct tdm__concurrency_queue {
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
    SLIST_HEAD(, queue_thread) owned_threads; /* owned */
    SLIST_HEAD(, queue_thread) idle;          /* of these, those that sleep */
};

/* `run` runs one call's method, lets go of the lock meanwhile, and leads to
 * tdm__concurrency_queue_call_ended() when the call is no longer under way. */
void tdm__concurrency_queue_init(struct tdm__concurrency_queue *call_queue, struct tdm__loop *loop,
                                 const char *name, uint32_t limit, bool has_threads,
                                 void (*run)(tdm_call *call));

/* The one of `count` whose name has that number (actor_class.h); or NULL. */
struct tdm__concurrency_queue *
tdm__concurrency_queue_by_number(struct tdm__concurrency_queue *call_queues, uint32_t count,
                                 uint32_t number);

/* From now on calls run. */
void tdm__concurrency_queue_open(struct tdm__concurrency_queue *call_queue);

/* Puts a call in line; where the call_queue has threads, one of them will come. */
void tdm__concurrency_queue_push(struct tdm__concurrency_queue *call_queue, tdm_call *call);
void tdm__concurrency_queue_remove(struct tdm__concurrency_queue *call_queue, tdm_call *call);
tdm_status tdm__concurrency_queue_post(struct tdm__concurrency_queue *call_queue,
                                       void (*fn)(void *arg), void *arg);
void tdm__concurrency_queue_call_ended(struct tdm__concurrency_queue *call_queue);

/* Something could run now. */
bool tdm__concurrency_queue_has_work(const struct tdm__concurrency_queue *call_queue);
/* Nothing waits and nothing is under way. */
bool tdm__concurrency_queue_is_empty(const struct tdm__concurrency_queue *call_queue);
/* Runs one post, or one call, on this thread. */
void tdm__concurrency_queue_run_one(struct tdm__concurrency_queue *call_queue);

/* Ends the threads, which run nothing any more, and forgets posts. */
void tdm__concurrency_queue_stop(struct tdm__concurrency_queue *call_queue);

#endif
