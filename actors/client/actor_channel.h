/* actor_channel.h - the connection of this process to one actor, and its state. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_ACTOR_CHANNEL_H
#define TDM_ACTORS_CLIENT_ACTOR_CHANNEL_H

#include "actors/client/pending_call.h"
#include "actors/process/runtime.h"

#include <tandem/actor.h>

/* State of a channel. There is one channel for each actor that this process knows, shared by all
 * its handles.
 *
 * A call leaves the channel only when the references among its arguments are complete. Later
 * calls wait behind it, so that calls are executed in the order in which they were made, unless
 * the actor was created with allow_out_of_order. */
enum tdm__actor_channel_state {
    /* The daemon has been asked to create or to find the actor. Calls wait. */
    TDM__CHANNEL_CREATING,
    /* The channel is connected or connecting. Calls leave in the order in which they were made. */
    TDM__CHANNEL_OPEN,
    /* The connection has closed, and the daemon is asked how the actor is. If it was restarted
     * or still lives, the channel connects again and sends calls without a reply once more
     * (send_queue.h). Calls wait. */
    TDM__CHANNEL_RECONNECTING,
    TDM__CHANNEL_DEAD /* The actor has ended; every call fails at once with `death_status`. */
};

/* Method of a call without a sequence number that only acknowledges replies. Its own reply is
 * ignored. */
#define TDM__ACKNOWLEDGE_METHOD "tandem.acknowledge"
/* Value of max_retries in the options of a call that must not be retried; 0 means the actor's
 * default. */
enum { TDM__NO_RETRIES = -2 };

/* The channel of this process to one actor. Owned by the runtime's list; freed when nothing
 * holds it and no call is pending. Guarded by the loop's lock. */
struct tdm__actor_channel {
    tdm_runtime *runtime;            /* The runtime that it belongs to, borrowed. */
    struct tdm__actor_channel *next; /* Next channel of the runtime. */
    /* Number of handles and streams, and one for each request to the daemon in flight. */
    uint32_t holders_count;
    enum tdm__actor_channel_state state; /* Current state of the channel. */
    struct tdm_actor_info info;          /* Description of the actor for the user. */
    struct tdm__id id;                   /* Id of the actor. */
    char label[80];                      /* Name of the actor for messages. */
    uint64_t incarnation;      /* Number of restarts of the actor when it was last described. */
    struct tdm__conn *conn;    /* Connection to the actor's process; NULL while there is none. */
    struct tdm_actor *handles; /* All handles of this process to the actor. */
    /* True while the state is CREATING and the daemon may return an existing actor with the same
     * name. */
    bool may_find_existing;
    uint32_t counted_handles; /* Number of handles that keep the actor alive. */
    /* Reference that keeps the actor alive while `counted_handles` is not 0; NULL if none of the
     * handles does (actor_handle.h). */
    tdm_ref *hold;
    tdm_status death_status; /* Status of all calls after the actor has ended. */
    char *death_detail;      /* Text for `death_status`, owned; NULL until the state is DEAD. */

    /* Milliseconds on CLOCK_MONOTONIC at which the connection closed; 0 if a reply has arrived
     * since. */
    int64_t lost_since_ms;
    uint32_t reconnect_attempts; /* Number of questions to the daemon since `lost_since_ms`. */
    /* Owned timer that asks the daemon again; NULL until it is needed. */
    struct tdm__timer *reconnect_timer;

    /* Constructor arguments, owned, in the process that created the actor; NULL in others. They
     * are kept until the actor is constructed, or until it has ended if it may be restarted, so
     * that the references among them stay alive. */
    struct tdm__call_arguments *arguments;
    /* True while the daemon waits for the constructor arguments; see
     * tdm__actor_channel_send_arguments(). */
    bool owes_constructor_arguments;
    bool may_be_restarted; /* True if the daemon may restart the actor. */

    /* Options of the actor's creator that concern callers. Only channels in the creator's
     * process have them. */
    int32_t max_task_retries;   /* Default for the number of retries of a call; -1 for no limit. */
    uint32_t max_pending_calls; /* Most calls without a result; 0 for no limit. */
    bool out_of_order; /* True if a call may overtake calls that wait for their arguments. */

    /* Fields of send_queue.c. */
    struct tdm__pending_calls waiting; /* Calls that will be sent, in this order. */
    /* Calls that were sent, in this order, and have no reply. */
    struct tdm__pending_calls in_flight;
    /* Calls that failed and pause before they are sent again, in the order of their times
     * (call_retry.h). */
    struct tdm__pending_calls retry_paused;
    /* Owned timer for the first call in `retry_paused`; NULL until it is needed. */
    struct tdm__timer *retry_timer;
    uint64_t last_sequence; /* Sequence number of the newest call that was sent. */
    /* Sequence number up to which the actor knows that replies have arrived. */
    uint64_t acknowledged_sequence;
    uint32_t pending_count; /* Number of calls without a result. */
    /* Owned timer for the earliest deadline of all calls; NULL until it is needed. */
    struct tdm__timer *deadline_timer;
    /* Milliseconds on CLOCK_MONOTONIC at which `deadline_timer` fires; TDM__NEVER if it is not
     * set. */
    int64_t deadline_timer_at_ms;
};

/* A handle to an actor. It holds a channel. Owned by the user. */
struct tdm_actor {
    /* Borrowed; NULL after the runtime has stopped. All other fields need the runtime's lock. */
    tdm_runtime *runtime;
    /* Held; tdm__actor_channel_redirect() may replace it. NULL after the runtime has stopped. */
    struct tdm__actor_channel *channel;
    struct tdm_actor *next; /* Next handle of the same channel. */
    bool is_counted;        /* True if the handle keeps the actor alive. */
};

/* Creates a channel in state CREATING with one holder. */
tdm_status tdm__actor_channel_create(tdm_runtime *runtime, const struct tdm__id *id,
                                     const char *name, const char *class_name,
                                     struct tdm__actor_channel **channel_out);
/* Returns the channel to the actor `id` and adds a holder; NULL if this process has none. */
struct tdm__actor_channel *tdm__actor_channel_retain_by_id(tdm_runtime *runtime,
                                                           const struct tdm__id *id);
/* Removes a holder. Frees the channel if it is then unused, and releases the actor if no counted
 * handle is left. */
void tdm__actor_channel_release(struct tdm__actor_channel *channel);
/* Returns true if nothing holds the channel, no call is pending, and the constructor arguments
 * are not needed again. */
bool tdm__actor_channel_is_unused(const struct tdm__actor_channel *channel);
/* Fails all calls and frees the channel even if it still has holders. */
void tdm__actor_channel_destroy(struct tdm__actor_channel *channel);

/* Sends a request about the actor to the daemon. The reply is passed to
 * tdm__actor_channel_connect(), tdm__actor_channel_redirect() or tdm__actor_channel_fail(). */
tdm_status tdm__actor_channel_request(struct tdm__actor_channel *channel, struct tdm__conn *daemon,
                                      const struct tdm__rpc_request *request);
/* Sends the constructor arguments to the daemon if it waits for them and they are ready, or the
 * reason why they never will be. */
void tdm__actor_channel_send_arguments(struct tdm__actor_channel *channel);
/* Connects to a living actor and sends the waiting calls. The daemon's description contains pid,
 * node, GPUs, addresses and incarnation. A malformed description fails the channel. If the
 * connection fails, the daemon is asked how the actor is. */
void tdm__actor_channel_connect(struct tdm__actor_channel *channel, const tdm_value *description);
/* Uses the existing actor `id` with the requested name. If this process already has a channel to
 * it, all handles and calls move there. The caller must hold `channel`. */
void tdm__actor_channel_redirect(struct tdm__actor_channel *channel, const struct tdm__id *id,
                                 const char *class_name, const tdm_value *description);
/* Changes the state to DEAD and fails all calls, because the actor could not be created or has
 * ended. */
void tdm__actor_channel_fail(struct tdm__actor_channel *channel, tdm_status status,
                             const char *detail);

/* Queues a call. Returns the failure if the actor has ended, or TDM_E_AGAIN if too many calls
 * are pending; the caller then completes the call. */
tdm_status tdm__actor_channel_submit(struct tdm__actor_channel *channel,
                                     struct tdm__pending_call *pending_call);

/* Sends, on every channel, the calls whose arguments have become ready (send_queue.c). */
void tdm__actor_channels_flush(tdm_runtime *runtime);

/* Fails all channels to actors of this node, because its daemon has ended and its actors with
 * it. This includes an actor whose connection is kept open by a process that it forked. */
void tdm__actor_channels_fail_all(tdm_runtime *runtime, const char *detail);

#endif
