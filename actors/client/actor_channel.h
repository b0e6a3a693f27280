/* actor_channel.h - this process's way to one actor: found, lost, found again, or dead. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_ACTOR_CHANNEL_H
#define TDM_ACTORS_CLIENT_ACTOR_CHANNEL_H

#include "actors/client/pending_call.h"
#include "actors/runtime.h"

#include <tandem/actor.h>

/* There is one channel for each actor that this process knows, shared by its handles.
 *
 *   CREATING   the daemon has been asked for the actor, or for its address: calls wait here
 *   OPEN       connected (or connecting): calls leave in the order they were made
 *   ASKING     the connection ended: the daemon is asked what became of the actor.  It may have
 *              been restarted, or live on behind a cut cable: then the channel opens again, and
 *              what had no answer is sent once more (send_queue.h); meanwhile calls wait here
 *   DEAD       it ended; every call fails at once with `death`
 *
 * A call leaves only when the references among its arguments are done; those made after it wait
 * behind it, so that the order of calls is the order of the caller, unless the actor was made
 * without one. */
enum tdm__actor_channel_state {
    TDM__CHANNEL_CREATING,
    TDM__CHANNEL_OPEN,
    TDM__CHANNEL_RECONNECTING,
    TDM__CHANNEL_DEAD
};

/* The call, without a sequence, that only acknowledges: its answer interests nobody. */
#define TDM__ACKNOWLEDGE_METHOD "tandem.acknowledge"
/* In max_retries, where 0 means the actor's default. */
enum { TDM__NO_RETRIES = -2 };

struct tdm__actor_channel {
    tdm_runtime *runtime; /* borrowed */
    struct tdm__actor_channel *next;
    uint32_t holders_count; /* handles, streams, and one while the daemon has been asked */
    enum tdm__actor_channel_state state;
    struct tdm_actor_info info;
    struct tdm__id id;
    char label[80];            /* for messages */
    uint64_t incarnation;      /* how often the actor had been restarted */
    struct tdm__conn *conn;    /* NULL while there is none */
    struct tdm_actor *handles; /* of this process */
    bool may_find_existing;    /* CREATING: the daemon may know one that has the name already */
    uint32_t counted_handles;  /* handles that keep the actor alive */
    tdm_ref *hold;             /* with which they do; NULL without any (actor_handle.h) */
    tdm_status death_status;
    char *death_detail; /* owned; NULL until DEAD */

    int64_t lost_since_ms;       /* the connection ended and no answer has come since; 0: no */
    uint32_t reconnect_attempts; /* since then */
    struct tdm__timer *reconnect_timer; /* owned; asks once more; NULL until it is needed */

    /* In the process that made the actor: what the constructor's arguments refer to stays while
     * it may run, which is until the actor has ended for one that may return. */
    struct tdm__call_arguments *arguments; /* owned; or NULL */
    bool owes_constructor_arguments;       /* the daemon waits for them:
                                              tdm__actor_channel_send_arguments() */
    bool may_be_restarted;                 /* after its process died */

    /* The options that callers of the creator's process share; others have none. */
    int32_t max_task_retries;
    uint32_t max_pending_calls;
    bool out_of_order;

    /* send_queue.c */
    struct tdm__pending_calls waiting;   /* made, to be sent in this order */
    struct tdm__pending_calls in_flight; /* sent, in this order, and not answered */
    struct tdm__pending_calls
        retry_paused;               /* answered with a failure, to be made again: call_retry.h */
    struct tdm__timer *retry_timer; /* owned; for the first of those; NULL until it is needed */
    uint64_t last_sequence;
    uint64_t acknowledged;             /* what the actor has been told */
    uint32_t pending_count;            /* calls without a result */
    struct tdm__timer *deadline_timer; /* owned; NULL until it is needed */
    int64_t deadline_timer_at_ms;
};

/* A tdm_actor handle is a hold on a channel. */
struct tdm_actor {
    tdm_runtime *runtime;               /* borrowed; the rest only with its lock */
    struct tdm__actor_channel *channel; /* may become another one: tdm__actor_channel_redirect() */
    struct tdm_actor *next;             /* of the same channel */
    bool is_counted;                    /* it keeps the actor alive */
};

/* A channel in state CREATING for an actor to be; one holder. */
tdm_status tdm__actor_channel_create(tdm_runtime *runtime, const struct tdm__id *id,
                                     const char *name, const char *class_name,
                                     struct tdm__actor_channel **link_out);
/* The one of that actor, with one more holder; NULL if this process does not know it. */
struct tdm__actor_channel *tdm__actor_channel_retain_by_id(tdm_runtime *runtime,
                                                           const struct tdm__id *id);
void tdm__actor_channel_release(struct tdm__actor_channel *channel);
/* Nobody holds it, no call is under way, and what its actor was constructed with is not needed
 * again. */
bool tdm__actor_channel_is_unused(const struct tdm__actor_channel *channel);
/* For the end of the runtime: fails all its calls and frees it, whoever holds it. */
void tdm__actor_channel_destroy(struct tdm__actor_channel *channel);

/* Asks the daemon for the actor: the answer is a description, for tdm__actor_channel_connect(). */
tdm_status tdm__actor_channel_request(struct tdm__actor_channel *channel, struct tdm__conn *daemon,
                                      const struct tdm__rpc_request *request);
/* Sends the daemon the constructor's arguments that it waits for, if they are there by now, or
 * why they never will be. */
void tdm__actor_channel_send_arguments(struct tdm__actor_channel *channel);
/* What the daemon says of a living actor: pid, node, GPUs, addresses, incarnation.  Connects
 * and sends what waits; a description that cannot be read is the actor's death, and of one that
 * cannot be reached the daemon is asked what became of it. */
void tdm__actor_channel_connect(struct tdm__actor_channel *channel, const tdm_value *description);
/* The name that was asked for belongs to this actor: handles and calls are meant for it.  The
 * channel may be another one afterwards; the caller holds the one that was asked with. */
void tdm__actor_channel_redirect(struct tdm__actor_channel *channel, const struct tdm__id *id,
                                 const char *class_name, const tdm_value *description);
/* The actor will not come, or has ended. */
void tdm__actor_channel_fail(struct tdm__actor_channel *channel, tdm_status status,
                             const char *detail);

/* Queues a call, or fails it at once if the actor is dead or too many are pending. */
tdm_status tdm__actor_channel_submit(struct tdm__actor_channel *channel,
                                     struct tdm__pending_call *pending_call);

/* Sends, on every channel, what waited for a reference that is done now (send_queue.c). */
void tdm__actor_channels_flush(tdm_runtime *runtime);

/* The daemon of this process's node has gone, and with it every actor of that node: also one
 * whose connection stays open, in a process that the actor forked. */
void tdm__actor_channels_fail_all(tdm_runtime *runtime, const char *detail);

#endif
