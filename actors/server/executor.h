/* executor.h - runs the calls that arrive at an actor: in which order, on which threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_EXECUTOR_H
#define TDM_ACTORS_SERVER_EXECUTOR_H

#include "actors/common/method_metrics.h"
#include "actors/server/method_reply.h"

#include <tandem/actor.h>

/* A worker has one.  Calls are queued where they are read (on whatever thread drives the loop)
 * and run
 *
 *   in order       one at a time, on the main thread: the ordinary actor
 *   asynchronous   one at a time, on the main thread; up to max_concurrency kept ones are under
 *                  way besides
 *   threaded       each concurrency group on threads of its own, made when they are needed; the
 *                  main thread only drives the loop
 *
 * A method runs without the loop's lock; everything here is called with it, unless it says
 * otherwise. */
struct tdm__executor;
struct tdm__calls;

struct tdm__executor_options {
    struct tdm__loop *loop; /* borrowed, as all of these */
    const struct tdm_actor_class *actor_class;
    void *self;
    bool out_of_order;        /* also where methods run one at a time */
    uint32_t max_concurrency; /* of the default group; 0: 1, or 1,000 where asynchronous */
};

tdm_status tdm__executor_create(const struct tdm__executor_options *options,
                                struct tdm__executor **executor_out);
/* After tdm__executor_run().  NULL is allowed. */
void tdm__executor_destroy(struct tdm__executor *executor);

/* A call for the actor; takes it.  Answers at once what cannot be queued.  Nothing runs before
 * tdm__executor_run(). */
void tdm__executor_enqueue(struct tdm__executor *executor, struct tdm__incoming_call *incoming);

/* On the main thread: runs calls, or drives the loop for the threads that do, until the actor
 * is to end and has come to its end: methods have returned, what waits has been answered,
 * threads are joined. */
void tdm__executor_run(struct tdm__executor *executor);

/* Calls that wait. */
uint32_t tdm__executor_waiting_count(const struct tdm__executor *executor);
/* And all, by method. */
const struct tdm__method_metrics *
tdm__executor_method_metrics(const struct tdm__executor *executor);

/* Each by itself (call.h), in the order in which they came; some may have been answered. */
const struct tdm__calls *tdm__executor_calls(const struct tdm__executor *executor);

/* The actor is to end.  `drain`: when all that has arrived is done, kept calls included; else
 * when the methods that run have returned, and the other calls fail with TDM_E_ACTOR_DIED. */
void tdm__executor_request_end(struct tdm__executor *executor, bool drain);

/* fn(arg) runs once, without the lock, between methods on the thread that runs them (of the
 * default group, if they are several), before calls that wait.  What has not begun when the
 * actor ends never runs. */
tdm_status tdm__executor_post(struct tdm__executor *executor, void (*fn)(void *arg), void *arg);

/* ---- calls that are not ready, answers that must wait ----------------------------------- */

/* Told of each call that arrives, before it is queued: to hold it while its arguments are
 * fetched, into call->pull; told once more if the call comes again meanwhile.  It must not run
 * the loop. */
typedef void tdm__arrival_hook_fn(void *arg, tdm_call *call);
void tdm__executor_set_arrival_hook(struct tdm__executor *executor, tdm__arrival_hook_fn *fn,
                                    void *arg);

/* The method does not begin before as many releases.  Later calls of the same caller keep their
 * place behind it where methods run in order; calls of others go on.  A call that is held, or
 * whose answer is, stays in memory until it is released, also when it has been answered
 * meanwhile (canceled, the actor's end): release it all the same. */
void tdm__executor_hold(tdm_call *call);
void tdm__executor_release(tdm_call *call);
/* The same; the call fails instead of running, unless it has been answered. */
void tdm__executor_release_failed(tdm_call *call, tdm_status status, const char *detail);

/* The same for one whose connection has ended before all of it was here: it and those of its
 * caller that came over that connection and keep their place behind it count as not come, for
 * the caller sends them again, in order. */
void tdm__executor_release_disconnected(tdm_call *call, const char *detail);

/* Told of each answer before it leaves; may change it (what it points to then must stay until
 * the next answer), and may hold it: it is then copied, descriptors too, and leaves with the
 * last release. */
typedef void tdm__reply_hook_fn(void *arg, tdm_call *call, struct tdm__method_reply *reply);
void tdm__executor_set_reply_hook(struct tdm__executor *executor, tdm__reply_hook_fn *fn,
                                  void *arg);
void tdm__executor_hold_reply(tdm_call *call); /* in a tdm__reply_hook_fn only */
void tdm__executor_release_reply(tdm_call *call);

/* ---- for call.c ------------------------------------------------------------------------- */

bool tdm__executor_is_asynchronous(const struct tdm__executor *executor);
/* Of a call not answered yet.  A kept call whose method has returned is gone then. */
void tdm__executor_reply(tdm_call *call, const struct tdm__method_reply *reply);

#endif
