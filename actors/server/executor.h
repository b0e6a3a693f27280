/* executor.h - decides in which order and on which threads the calls of an actor run. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_EXECUTOR_H
#define TDM_ACTORS_SERVER_EXECUTOR_H

#include "actors/common/method_metrics.h"
#include "actors/server/method_reply.h"

#include <tandem/actor.h>

/* The executor of a worker's one actor. Calls are queued by whatever thread drives the loop. The
 * methods run in one of three modes:
 *
 *   in order       one at a time, on the main thread; this is the default
 *   asynchronous   one at a time, on the main thread; besides, up to max_concurrency calls that
 *                  their methods have kept are under way
 *   threaded       each concurrency group on its own threads, created when they are needed; the
 *                  main thread only drives the loop
 *
 * A method runs without the loop's lock. The functions below are called with it, unless they say
 * otherwise. */
struct tdm__executor;
struct tdm__calls;

/* What an executor is created with; all pointers are borrowed and must outlive it. */
struct tdm__executor_options {
    struct tdm__loop *loop;                    /* Event loop whose lock guards the executor. */
    const struct tdm_actor_class *actor_class; /* Class of the actor. */
    void *self;                                /* State of the actor, passed to the methods. */
    /* True if a held call does not delay later calls of the same caller, as in threaded mode. */
    bool out_of_order;
    /* Most calls under way in the default group; 0 means 1, or 1,000 for an asynchronous class. */
    uint32_t max_concurrency;
};

/* Creates the executor with one queue for each concurrency group of the class. TDM_E_INVAL if the
 * class names a group that it does not declare. The caller owns `*executor_out`. */
tdm_status tdm__executor_create(const struct tdm__executor_options *options,
                                struct tdm__executor **executor_out);
/* Frees the executor and its calls, after tdm__executor_run() has returned. NULL is allowed. */
void tdm__executor_destroy(struct tdm__executor *executor);

/* Takes over a call for the actor and queues it; a call that cannot be queued is refused with a
 * reply at once. No call runs before tdm__executor_run(). */
void tdm__executor_enqueue(struct tdm__executor *executor, struct tdm__incoming_call *incoming);

/* Runs calls on the main thread, or drives the loop for the threads that run them. Blocks until the
 * actor's end was requested and reached: methods have returned, waiting calls have been replied to,
 * and threads are joined. Called without the lock. */
void tdm__executor_run(struct tdm__executor *executor);

/* Returns the number of received calls whose method has not begun. */
uint32_t tdm__executor_waiting_count(const struct tdm__executor *executor);
/* Returns the counters of calls by method; the executor owns them. */
const struct tdm__method_metrics *
tdm__executor_method_metrics(const struct tdm__executor *executor);

/* Returns the list of all received calls (received_call.h) in order of arrival. Some of them may
 * have been replied to. */
const struct tdm__calls *tdm__executor_calls(const struct tdm__executor *executor);

/* Requests the end of the actor. With `drain` it ends when all received calls are done, kept ones
 * included. Without it, it ends when the running methods have returned, and the other calls fail
 * with TDM_E_ACTOR_DIED. Acquires the lock itself. */
void tdm__executor_request_end(struct tdm__executor *executor, bool drain);

/* Makes fn(arg) run once, without the loop lock, before the waiting calls on a thread that runs
 * methods of the default group. A function that has not begun when the actor ends never runs. */
tdm_status tdm__executor_post(struct tdm__executor *executor, void (*fn)(void *arg), void *arg);

/* ---- holding calls and replies ---------------------------------------------------------- */

/* Called for each arriving call before it is queued. The hook may hold the call, for instance while
 * its arguments are fetched, and is called again if the call is sent again meanwhile. It must not
 * run the loop. */
typedef void tdm__arrival_hook_fn(void *arg, tdm_call *call);
/* Sets the executor's only arrival hook; NULL removes the hook. `arg` is borrowed. */
void tdm__executor_set_arrival_hook(struct tdm__executor *executor, tdm__arrival_hook_fn *fn,
                                    void *arg);

/* Delays the start of a call until as many releases as holds. Later calls of the same caller and
 * group wait behind it, unless methods run on threads or the actor allows another order; calls of
 * other callers continue. A held call stays in
 * memory until it is released, even if it has been replied to meanwhile, so it must always be
 * released. */
void tdm__executor_hold(tdm_call *call);
/* Releases one hold of a call. The call starts or may be freed after the last release. */
void tdm__executor_release(tdm_call *call);
/* Releases one hold and makes the call fail instead of run, unless it has been replied to. */
void tdm__executor_release_failed(tdm_call *call, tdm_status status, const char *detail);

/* Releases one hold of a call whose connection closed before all its arguments were here. The call,
 * and the calls of the same caller and connection that wait behind it, count as never received. The
 * caller sends them again in order. */
void tdm__executor_release_disconnected(tdm_call *call, const char *detail);

/* Called for each reply before it is sent. The hook may change the reply; what the reply then
 * points to must stay valid until the next reply. The hook may hold the reply, which is then copied
 * with its descriptors and sent at the last release. */
typedef void tdm__reply_hook_fn(void *arg, tdm_call *call, struct tdm__method_reply *reply);
/* Sets the executor's only reply hook; NULL removes the hook. `arg` is borrowed. */
void tdm__executor_set_reply_hook(struct tdm__executor *executor, tdm__reply_hook_fn *fn,
                                  void *arg);
/* Delays sending the reply of `call`. Only a tdm__reply_hook_fn may call this. */
void tdm__executor_hold_reply(tdm_call *call);
/* Releases one hold of the reply to `call`; after the last one the reply is sent. */
void tdm__executor_release_reply(tdm_call *call);

/* ---- for call.c ------------------------------------------------------------------------- */

/* True if methods of the class may keep their calls and reply later. */
bool tdm__executor_is_asynchronous(const struct tdm__executor *executor);
/* Replies to a call that has no reply yet. A kept call whose method has returned may be freed by
 * this. */
void tdm__executor_reply(tdm_call *call, const struct tdm__method_reply *reply);

#endif
