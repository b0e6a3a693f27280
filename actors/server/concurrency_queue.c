/* concurrency_queue.c - the waiting calls of one concurrency group and the threads that run them.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* A queue either has its own threads (threaded actors) or is served by the main thread in
 * executor.c. Threads are created when work arrives and no thread is idle, up to the
 * limit of the group; they end only when the queue stops. Each thread drives no loop: it
 * sleeps on its own condition of the loop's lock and is woken for one piece of work.
 *
 * Invariants: underway_count never exceeds the limit while calls start; a call is in
 * `waiting` exactly while its state is TDM__CALL_WAITING. Every function is called with the loop's
 * lock held; methods and posts run without it. */

#include "actors/server/concurrency_queue.h"

#include "actors/common/actor_class.h"
#include "actors/server/reply_buffer.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/loop/loop.h"
#include "runtime/loop/loop_lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* A function that was posted to a concurrency queue and runs once. */
struct queue_post {
    STAILQ_ENTRY(queue_post) link; /* Entry in the queue's list of posted functions. */
    void (*fn)(void *arg);         /* Function to run without the loop's lock. */
    void *arg;                     /* Argument of `fn`, owned by the caller that posted it. */
};

/* A thread that runs calls of one queue. Guarded by the loop's lock. */
struct queue_thread {
    SLIST_ENTRY(queue_thread) link; /* Entry in the queue's list of all threads. */
    /* Entry in the queue's list of idle threads, while `is_idle`. */
    SLIST_ENTRY(queue_thread) idle_link;
    struct tdm__concurrency_queue *call_queue; /* Queue that owns this thread, borrowed. */
    pthread_t thread;                          /* Handle with which the thread is joined. */
    struct tdm__loop_condition sleeper;        /* Condition on which the idle thread sleeps. */
    bool is_idle; /* True while the thread sleeps; cleared by the thread that wakes it. */
};

void tdm__concurrency_queue_init(struct tdm__concurrency_queue *call_queue, struct tdm__loop *loop,
                                 const char *name, uint32_t concurrency_max, bool has_threads,
                                 void (*run)(tdm_call *call))
{
    *call_queue = (struct tdm__concurrency_queue){.loop = loop,
                                                  .name = name,
                                                  .run = run,
                                                  .concurrency_max = concurrency_max,
                                                  .has_threads = has_threads};
    TAILQ_INIT(&call_queue->waiting);
    STAILQ_INIT(&call_queue->posts);
    SLIST_INIT(&call_queue->owned_threads);
    SLIST_INIT(&call_queue->idle_threads);
}

bool tdm__concurrency_queue_has_work(const struct tdm__concurrency_queue *call_queue)
{
    return (!TAILQ_EMPTY(&call_queue->waiting) &&
            call_queue->underway_count < call_queue->concurrency_max) ||
           !STAILQ_EMPTY(&call_queue->posts);
}

bool tdm__concurrency_queue_is_empty(const struct tdm__concurrency_queue *call_queue)
{
    return TAILQ_EMPTY(&call_queue->waiting) && STAILQ_EMPTY(&call_queue->posts) &&
           call_queue->underway_count == 0;
}

/* Removes the queue's first posted function and runs that function without the lock. */
static void queue_run_post(struct tdm__concurrency_queue *call_queue)
{
    struct queue_post *post = STAILQ_FIRST(&call_queue->posts);
    uint32_t depth;

    STAILQ_REMOVE_HEAD(&call_queue->posts, link);
    depth = tdm__loop_leave_all(call_queue->loop);
    post->fn(post->arg);
    tdm__loop_reenter(call_queue->loop, depth);
    free(post);
}

void tdm__concurrency_queue_run_one(struct tdm__concurrency_queue *call_queue)
{
    if (!STAILQ_EMPTY(&call_queue->posts)) {
        queue_run_post(call_queue);
    } else {
        tdm_call *call = TAILQ_FIRST(&call_queue->waiting);

        TAILQ_REMOVE(&call_queue->waiting, call, link);
        call_queue->underway_count++;
        call->state = TDM__CALL_RUNNING;
        call_queue->run(call);
    }
}

/* ---- threads ---------------------------------------------------------------------------- */

/* Puts this thread to sleep until queue_wake_idle_thread() chooses it. */
static void queue_thread_sleep(struct queue_thread *queue_thread)
{
    struct tdm__concurrency_queue *call_queue = queue_thread->call_queue;

    queue_thread->is_idle = true;
    SLIST_INSERT_HEAD(&call_queue->idle_threads, queue_thread, idle_link);
    while (queue_thread->is_idle) {
        (void)tdm__loop_condition_wait(tdm__loop_lock_of(call_queue->loop), &queue_thread->sleeper,
                                       TDM__NEVER);
    }
}

/* Wakes one idle thread of the queue for one piece of work. There must be an idle thread. */
static void queue_wake_idle_thread(struct tdm__concurrency_queue *call_queue)
{
    struct queue_thread *queue_thread = SLIST_FIRST(&call_queue->idle_threads);

    SLIST_REMOVE_HEAD(&call_queue->idle_threads, idle_link);
    queue_thread->is_idle = false;
    tdm__loop_condition_signal(tdm__loop_lock_of(call_queue->loop), &queue_thread->sleeper);
}

/* Main function of a thread of the queue: runs calls and posts until the queue stops. */
static void *queue_thread_main(void *arg)
{
    struct queue_thread *queue_thread = arg;
    struct tdm__concurrency_queue *call_queue = queue_thread->call_queue;
    TDM__LOOP_ENTER(call_queue->loop);

    (void)prctl(PR_SET_NAME, call_queue->name);
    tdm__reply_buffer_thread_init();
    while (!call_queue->is_stopping) {
        if (tdm__concurrency_queue_has_work(call_queue)) {
            tdm__concurrency_queue_run_one(call_queue);
        } else {
            queue_thread_sleep(queue_thread);
        }
    }
    tdm__reply_buffer_thread_fini();
    return NULL;
}

/* Creates one more thread for the queue. */
static tdm_status queue_add_thread(struct tdm__concurrency_queue *call_queue)
{
    struct queue_thread *queue_thread = calloc(1, sizeof(*queue_thread));
    int rc;

    if (queue_thread == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a thread of an actor");
    }
    queue_thread->call_queue = call_queue;
    tdm__loop_condition_init(&queue_thread->sleeper);
    rc = pthread_create(&queue_thread->thread, NULL, queue_thread_main, queue_thread);
    if (rc != 0) {
        tdm__loop_condition_fini(&queue_thread->sleeper);
        free(queue_thread);
        return tdm__fail_errno(rc, "pthread_create: thread %u of the group \"%s\"",
                               call_queue->threads_count + 1, call_queue->name);
    }
    SLIST_INSERT_HEAD(&call_queue->owned_threads, queue_thread, link);
    call_queue->threads_count++;
    return TDM_OK;
}

/* Provides a thread for one new piece of work: wakes an idle one, or creates one if the limit
 * allows it. */
static void queue_provide_thread(struct tdm__concurrency_queue *call_queue)
{
    if (!SLIST_EMPTY(&call_queue->idle_threads)) {
        queue_wake_idle_thread(call_queue);
    } else if (call_queue->threads_count < call_queue->concurrency_max &&
               queue_add_thread(call_queue) != TDM_OK) {
        /* The existing threads will run the work. Without any thread it waits until one can be
         * created. */
        tdm__log(TDM__WARN, "actor", "%s", tdm_error_detail());
    }
}

void tdm__concurrency_queue_stop(struct tdm__concurrency_queue *call_queue)
{
    struct queue_thread *queue_thread;
    struct queue_post *post;
    uint32_t depth;

    call_queue->is_stopping = true;
    while (!SLIST_EMPTY(&call_queue->idle_threads)) {
        queue_wake_idle_thread(call_queue);
    }
    depth = tdm__loop_leave_all(call_queue->loop);
    while ((queue_thread = SLIST_FIRST(&call_queue->owned_threads)) != NULL) {
        SLIST_REMOVE_HEAD(&call_queue->owned_threads, link);
        (void)pthread_join(queue_thread->thread, NULL);
        tdm__loop_condition_fini(&queue_thread->sleeper);
        free(queue_thread);
    }
    tdm__loop_reenter(call_queue->loop, depth);
    while ((post = STAILQ_FIRST(&call_queue->posts)) != NULL) {
        STAILQ_REMOVE_HEAD(&call_queue->posts, link);
        free(post);
    }
}

/* ---- queueing ----------------------------------------------------------------------------- */

/* Makes sure that a thread will notice new work of the queue, if the queue is open. */
static void queue_signal_work(struct tdm__concurrency_queue *call_queue)
{
    if (!call_queue->is_open) {
        return;
    }
    if (call_queue->has_threads) {
        queue_provide_thread(call_queue);
    } else {
        tdm__loop_wake(call_queue->loop);
    }
}

struct tdm__concurrency_queue *
tdm__concurrency_queue_by_number(struct tdm__concurrency_queue *call_queues, uint32_t count,
                                 uint32_t number)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tdm__concurrency_group_id(call_queues[i].name) == number) {
            return &call_queues[i];
        }
    }
    return NULL;
}

void tdm__concurrency_queue_open(struct tdm__concurrency_queue *call_queue)
{
    tdm_call *call;

    call_queue->is_open = true;
    if (!STAILQ_EMPTY(&call_queue->posts)) {
        queue_signal_work(call_queue);
    }
    TAILQ_FOREACH(call, &call_queue->waiting, link)
    {
        queue_signal_work(call_queue);
    }
}

void tdm__concurrency_queue_push(struct tdm__concurrency_queue *call_queue, tdm_call *call)
{
    call->state = TDM__CALL_WAITING;
    TAILQ_INSERT_TAIL(&call_queue->waiting, call, link);
    queue_signal_work(call_queue);
}

void tdm__concurrency_queue_remove(struct tdm__concurrency_queue *call_queue, tdm_call *call)
{
    TAILQ_REMOVE(&call_queue->waiting, call, link);
    call->state = TDM__CALL_RETURNED;
}

tdm_status tdm__concurrency_queue_post(struct tdm__concurrency_queue *call_queue,
                                       void (*fn)(void *arg), void *arg)
{
    struct queue_post *post = malloc(sizeof(*post));

    if (post == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a post to an actor's thread");
    }
    post->fn = fn;
    post->arg = arg;
    STAILQ_INSERT_TAIL(&call_queue->posts, post, link);
    queue_signal_work(call_queue);
    return TDM_OK;
}

void tdm__concurrency_queue_call_ended(struct tdm__concurrency_queue *call_queue)
{
    TDM_ASSERT(call_queue->underway_count > 0);
    call_queue->underway_count--;
    if (!call_queue->has_threads && tdm__concurrency_queue_has_work(call_queue)) {
        tdm__loop_wake(call_queue->loop);
    }
}
