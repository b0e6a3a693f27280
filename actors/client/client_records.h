/* client_records.h - the records of the side that calls actors: channels, handles, and calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLIENT_CLIENT_RECORDS_H
#define TDM_ACTORS_CLIENT_CLIENT_RECORDS_H

#include "actors/process/runtime.h"
#include "runtime/rpc/rpc.h"

#include <stdbool.h>
#include <sys/queue.h>
#include <tandem/actor.h>

struct tdm__actor_channel;
struct tdm__call_arguments;
struct tdm__pull;
struct tdm__timer;

/* ---- one call -------------------------------------------------------------------------------- */

/* A call of this process that has no result. All that a usual call needs is in one allocation:
 * with a thousand pending calls, each further allocation would be one more cache miss when the
 * reply arrives.
 *
 * A call is in the list `waiting` of its channel until it is sent, then in `in_flight` until the
 * reply arrives. A call that must be sent again after a lost connection returns to the front of
 * `waiting`; one that failed and is retried pauses in `retry_paused` first. The list owns the
 * call. */
struct tdm__pending_call {
    TAILQ_ENTRY(tdm__pending_call) entry; /* Link in one list of the channel. */
    struct tdm__actor_channel *channel;   /* Channel to the actor, borrowed. */
    const char *method; /* Name of the method, stored at the end of this allocation. */
    /* Owned; NULL if the arguments are small and stored in `packed`. */
    struct tdm__call_arguments *arguments;
    /* Small arguments, stored at the end of this allocation; otherwise {NULL, 0}. */
    struct tdm_bytes packed;
    tdm_stream *stream;        /* Held; NULL if the call is not a streaming one. */
    struct tdm__rpc_call call; /* Used by the connection while `call_id` is not 0. */
    /* Number of the call among those of its channel to one incarnation of the actor; 0 if it has
     * not been sent. */
    uint64_t sequence;
    /* Number of the call on the channel's connection; 0 if no reply is expected on it. */
    uint64_t call_id;
    uint64_t items_received; /* Number of stream items that have arrived on this connection. */
    /* Transfer of a large result that was offered; NULL if absent. */
    struct tdm__pull *pull;
    uint64_t pulled_call_id; /* Call id of the reply that offered the result in `pull`. */
    int64_t created_ms; /* Milliseconds on CLOCK_MONOTONIC, coarse, at which the call was made. */
    /* Milliseconds on CLOCK_MONOTONIC after which the call fails; TDM__NEVER for no deadline. */
    int64_t deadline_ms;
    int32_t retries_left; /* How often the call may be sent again; -1 for no limit. */
    /* Failures after which it is sent again, from the options of the call; TDM_OK ends the list. */
    tdm_status retry_failures[TDM_RETRY_FAILURES_MAX];
    uint32_t retry_pauses; /* Number of pauses so far (call_retry.h). */
    int64_t retry_at_ms;   /* Milliseconds on CLOCK_MONOTONIC at which the current pause ends. */
    uint64_t parent; /* Number of the method that made the call; 0 for none (child_calls.h). */
    uint32_t concurrency_group; /* Number of the concurrency group; 0 for that of the method. */
    /* True once the channel's `pending_count` has counted the call; stays true until its end. */
    bool is_pending;
    bool in_flight;      /* True while it is in the list `in_flight`. */
    uint32_t sent_bytes; /* Number of argument bytes in the message that was sent last. */
    bool retry_paused;   /* True while it is in the list `retry_paused`. */
    bool settled;        /* True after the results were set, or the call was canceled. */
    size_t size_bytes;   /* Size of this allocation. */
    uint32_t refs_count; /* Number of entries in `refs`; 0 if the results are not needed. */
    /* Result references, held until the call is complete; each points back to this call
     * meanwhile. */
    tdm_ref *refs[];
};
/* List head type of pending calls. */
TAILQ_HEAD(tdm__pending_calls, tdm__pending_call);

/* ---- one actor ------------------------------------------------------------------------------- */

/* Method of a call without a sequence number that only acknowledges replies. Its own reply is
 * ignored. */
#define TDM__ACKNOWLEDGE_METHOD "tandem.acknowledge"
/* Value of max_retries in the options of a call that must not be retried; 0 means the actor's
 * default. */
enum { TDM__NO_RETRIES = -2 };

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
    void *metadata;         /* What the creator tells all callers, owned; NULL until it is known. */
    size_t metadata_bytes;  /* Number of bytes in `metadata`. */
    uint64_t incarnation;   /* Number of restarts of the actor when it was last described. */
    struct tdm__conn *conn; /* Connection to the actor's process; NULL while absent. */
    struct tdm_actor *handles; /* All handles of this process to the actor. */
    /* True while the state is CREATING and the daemon may return an existing actor with the same
     * name. */
    bool may_find_existing;
    uint32_t counted_handles; /* Number of handles that keep the actor alive. */
    /* Reference that keeps the actor alive while `counted_handles` is not 0; NULL if none of the
     * handles does (actor_handle.h). */
    tdm_ref *keep_alive;
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
    uint32_t in_flight_count; /* Number of calls in `in_flight`. */
    uint32_t in_flight_max;   /* Most calls in `in_flight`; others wait until those have replies. */
    uint64_t in_flight_bytes; /* Sum of the argument bytes of the calls in `in_flight`. */
    uint64_t in_flight_bytes_max; /* Most bytes in `in_flight_bytes`, unless one call has more. */
    /* Calls that failed and pause before they are sent again, in the order of their times
     * (call_retry.h). */
    struct tdm__pending_calls retry_paused;
    /* Owned timer for the first call in `retry_paused`; NULL until it is needed. */
    struct tdm__timer *retry_timer;
    uint64_t last_sequence; /* Sequence number of the newest call that was sent. */
    /* Sequence number up to which the actor knows that replies have arrived. */
    uint64_t acknowledged_sequence;
    uint32_t pending_count; /* Number of calls without a result. */
    /* True while calls wait because `in_flight` is full. */
    bool in_flight_is_full;
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

/* ---- one process ----------------------------------------------------------------------------- */

/* What the send queue of a channel tells the files above it. Both are called with the loop's lock.
 */
struct tdm__send_queue_callbacks {
    /* Removes a holder of the channel; see tdm__actor_channel_release(). */
    void (*release_channel)(struct tdm__actor_channel *channel);
    /* Sends, on every channel, the calls whose arguments have become ready. */
    void (*send_ready_calls)(tdm_runtime *runtime);
};

/* A node that does not answer, as the daemon of this node has told. The client side owns it. */
struct tdm__unreachable_node {
    struct tdm__unreachable_node *next; /* Next such node. */
    char node_id[TDM__ID_TEXT_BYTES];   /* ID of the node, as text. */
    char *text; /* Why calls to its actors fail, and when it will count as lost; owned. */
};

/* The state of the side that calls actors, one for each runtime. Guarded by the loop's lock. */
struct tdm__client {
    /* What send queues call, constant (client.c). */
    const struct tdm__send_queue_callbacks *callbacks;
    /* List of channels, one for each actor that this process knows; owned. */
    struct tdm__actor_channel *actor_channels;
    struct tdm__unreachable_node *unreachable_nodes; /* Nodes that do not answer, owned. */
    /* Buffer kept for the arguments of the next call, owned; NULL if absent. */
    struct tdm__call_arguments *cached_arguments;
    /* Highest call sequence number of all destroyed channels. A later channel to the same actor
     * continues above it, because the actor sees the same caller. */
    uint64_t last_sequence;
    /* True while an outgoing call or creation waits for a reference among its arguments. */
    bool calls_blocked;
    /* True if a result arrived since the blocked calls were last checked. */
    bool results_arrived;
};

#endif
