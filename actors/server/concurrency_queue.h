/* concurrency_queue.h - the waiting calls of one concurrency group and the threads that run them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_CONCURRENCY_QUEUE_H
#define TDM_ACTORS_SERVER_CONCURRENCY_QUEUE_H

#include "actors/server/received_call.h"

/* The calls of one concurrency group of an actor, and the threads that run them. The executor owns
 * it. All fields are guarded by the loop's lock, and all functions are called with it held. */
struct tdm__concurrency_queue {
    struct tdm__loop *loop; /* Event loop whose lock guards the queue, borrowed. */
    const char *name;       /* Name of the concurrency group and of its threads, borrowed. */
    /* Callback that runs the method of one call; see tdm__concurrency_queue_init(). */
    void (*run)(tdm_call *call);
    uint32_t concurrency_max; /* Most calls of the group under way at the same time. */
    uint32_t underway_count;  /* Number of calls that run, or that their method has kept. */
    /* True if threads of the queue run its calls; false if the main thread does. */
    bool has_threads;
    bool is_open;                   /* False until the executor runs; calls wait until then. */
    bool is_stopping;               /* True once the threads have been asked to end. */
    uint32_t threads_count;         /* Number of entries in `owned_threads`. */
    TAILQ_HEAD(, tdm_call) waiting; /* Calls that wait for a thread, in order. */
    /* Posted functions that wait for a thread, owned; they run before calls. */
    STAILQ_HEAD(, queue_post) posts;
    SLIST_HEAD(, queue_thread) owned_threads; /* All threads that run the queue's calls, owned. */
    SLIST_HEAD(, queue_thread) idle_threads;  /* The threads that sleep until there is work. */
};

/* Initialises a closed queue of the group `name`. `run` runs the method of one call and releases
 * the lock meanwhile. When the call is no longer under way, tdm__concurrency_queue_call_ended()
 * must be called. */
void tdm__concurrency_queue_init(struct tdm__concurrency_queue *call_queue, struct tdm__loop *loop,
                                 const char *name, uint32_t concurrency_max, bool has_threads,
                                 void (*run)(tdm_call *call));

/* Returns the queue among `count` whose group name has that id (see tdm__concurrency_group_id() in
 * actor_class.h), or NULL. */
struct tdm__concurrency_queue *
tdm__concurrency_queue_by_number(struct tdm__concurrency_queue *call_queues, uint32_t count,
                                 uint32_t number);

/* Lets the queue's calls run from now on and wakes or starts threads for those that wait. */
void tdm__concurrency_queue_open(struct tdm__concurrency_queue *call_queue);

/* Appends a call to the queue and wakes or starts a thread for it, or wakes the main thread. */
void tdm__concurrency_queue_push(struct tdm__concurrency_queue *call_queue, tdm_call *call);
/* Removes a waiting call from the queue. The call will never run. */
void tdm__concurrency_queue_remove(struct tdm__concurrency_queue *call_queue, tdm_call *call);
/* Queues fn(arg) to run once before the waiting calls, without the lock, on a thread of the queue.
 * Returns TDM_E_NOMEM if that fails. */
tdm_status tdm__concurrency_queue_post(struct tdm__concurrency_queue *call_queue,
                                       void (*fn)(void *arg), void *arg);
/* Reports that a call of the queue is no longer under way, so that the next one may start. */
void tdm__concurrency_queue_call_ended(struct tdm__concurrency_queue *call_queue);

/* True if a posted function or a call of the queue could run now. */
bool tdm__concurrency_queue_has_work(const struct tdm__concurrency_queue *call_queue);
/* True if nothing waits in the queue and no call of the queue is under way. */
bool tdm__concurrency_queue_is_empty(const struct tdm__concurrency_queue *call_queue);
/* Runs one post, or else one call, on this thread. The queue must have work. */
void tdm__concurrency_queue_run_one(struct tdm__concurrency_queue *call_queue);

/* Ends and joins the threads after the methods that they run, and drops posts that have not run.
 * Releases the lock while it waits. */
void tdm__concurrency_queue_stop(struct tdm__concurrency_queue *call_queue);

#endif
