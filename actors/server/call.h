/* call.h - one call inside the actor that runs it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_CALL_H
#define TDM_ACTORS_SERVER_CALL_H

#include "actors/objects/pins.h"
#include "actors/server/method_reply.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <tandem/actor.h>

struct tdm__client_session;
struct tdm__executor;
struct tdm__concurrency_queue;
struct tdm__pull;

enum tdm__call_state {
    TDM__CALL_HELD,    /* in its caller's list, or alone */
    TDM__CALL_WAITING, /* in its call_queue */
    TDM__CALL_RUNNING,
    TDM__CALL_RETURNED /* from its method, or never to run */
};

/* Freed when it has been answered, its method has returned, and nobody holds it.  Guarded by
 * the loop's lock, but for what only the thread of its method uses. */
struct tdm_call {
    TAILQ_ENTRY(tdm_call) link;     /* in its call_queue's list or its caller's */
    TAILQ_ENTRY(tdm_call) all_link; /* in the executor's */
    struct tdm__loop *loop;         /* borrowed */
    struct tdm__executor *executor; /* borrowed; NULL for a constructor, like what follows */
    struct tdm__client_session *client_session; /* NULL once the answer has left */
    struct tdm__concurrency_queue *call_queue;
    const struct tdm_method_entry *method;
    char *name;                          /* owned; only where the method takes every name */
    struct tdm__incoming_call *incoming; /* NULL once the answer has left; another one when the call
                                       is sent again, also while its method runs */
    uint64_t sequence;
    uint64_t call_number; /* no other call of this actor has it: child_calls.h */
    int64_t deadline_ms;
    int64_t arrived_ms;     /* about */
    struct tdm__pull *pull; /* borrowed: fetches the arguments; or NULL */
    tdm_document *document; /* owned */
    const tdm_value *arguments;
    struct tdm__pins pins;           /* the references among them */
    struct tdm__pins reply_pins;     /* those in the reply, until it is made … */
    struct tdm__passed_refs *passed; /* … and then; counted */
    enum tdm__call_state state;
    bool arrival_is_over; /* its arrival is over */
    bool has_begun;
    bool is_kept;
    bool is_replied;
    bool wants_items;
    bool freed_with_executor;    /* stays until the executor goes: somebody may have it still */
    atomic_bool canceled;        /* by its caller */
    atomic_bool is_disconnected; /* its connection has ended; it may be sent again */
    uint64_t items_sent;
    uint64_t items_taken;
    uint32_t start_holds;
    uint32_t reply_holds;
    struct tdm__cached_reply *held_reply; /* owned */
};

TAILQ_HEAD(tdm__calls, tdm_call);

static inline bool tdm__call_is_queued(const tdm_call *call)
{
    return call->state == TDM__CALL_HELD || call->state == TDM__CALL_WAITING;
}

/* Parses the arguments, if that has not been done: call->document, which the holder of a call
 * may replace, with call->arguments. */
tdm_status tdm__call_parse(tdm_call *call);

/* Nobody has it any more; taken from tdm__free_list_alloc_zeroed(). */
void tdm__call_free(tdm_call *call);

/* Runs the constructor, if there is one. */
tdm_status tdm__call_construct(struct tdm__loop *loop, const struct tdm_actor_class *actor_class,
                               void *self, const tdm_value *arguments);

/* For tdm__executor_set_arrival_hook(): large arguments of another node are fetched before the call
 * takes its turn. */
void tdm__call_fetch_arguments(void *arg, tdm_call *call);

/* For tdm__executor_set_reply_hook(): the references among the arguments are this process's own by
 * then, and those in the reply the caller's. */
void tdm__call_pin_reply_refs(void *arg, tdm_call *call, struct tdm__method_reply *said);

/* A thread that runs methods keeps memory for their replies; without it they are only slower.
 */
void tdm__call_thread_init(void);
void tdm__call_thread_fini(void);

#endif
