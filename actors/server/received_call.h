/* received_call.h - a call that an actor has received, from its arrival to its reply. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_RECEIVED_CALL_H
#define TDM_ACTORS_SERVER_RECEIVED_CALL_H

#include "actors/objects/ref.h"
#include "actors/server/method_reply.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <tandem/actor.h>

struct tdm__client_session;
struct tdm__executor;
struct tdm__concurrency_queue;
struct tdm__pull;

/* Where a received call is on its way to its method. */
enum tdm__call_state {
    TDM__CALL_HELD,    /* Waits until its start holds are released; not in a concurrency queue. */
    TDM__CALL_WAITING, /* The call waits in its concurrency queue for a thread. */
    TDM__CALL_RUNNING, /* The call's method is running. */
    TDM__CALL_RETURNED /* The call's method has returned, or will never run. */
};

/* A call that this actor has received. The executor frees it when it has been replied to, its
 * method has returned, and all holds are released. The loop's lock guards it, except for the fields
 * that only the method's thread uses. */
struct tdm_call {
    /* Entry in the list of the call's concurrency queue, or of its client session's held calls. */
    TAILQ_ENTRY(tdm_call) link;
    TAILQ_ENTRY(tdm_call) all_link; /* Entry in the executor's list of all calls. */
    struct tdm__loop *loop;         /* Event loop of this process, borrowed. */
    /* Executor of the actor, borrowed; NULL for the call of a constructor. */
    struct tdm__executor *executor;
    /* Session of the caller, borrowed; NULL for a constructor and once the reply has been sent. */
    struct tdm__client_session *client_session;
    /* Queue of the call's concurrency group, borrowed; NULL for a constructor. */
    struct tdm__concurrency_queue *call_queue;
    /* Method to run, borrowed from the class; NULL for a constructor. */
    const struct tdm_method_entry *method;
    char *name; /* Method name as called, owned; NULL unless the method accepts any name. */
    /* RPC side of the call, owned; NULL once the reply has been sent. Replaced when the caller
     * sends the call again, even while the method runs. */
    struct tdm__incoming_call *incoming;
    /* Number that the caller gave to this call; 0 if the call may not be sent again. */
    uint64_t sequence;
    /* Number of this call within this actor, unique; identifies the parent in child_calls.h. */
    uint64_t call_number;
    /* Deadline in milliseconds on CLOCK_MONOTONIC; TDM__NEVER if the caller set none. */
    int64_t deadline_ms;
    int64_t arrived_ms; /* Approximate time of arrival in milliseconds on CLOCK_MONOTONIC. */
    /* Transfer that fetches large arguments, borrowed; NULL if none is under way. */
    struct tdm__pull *pull;
    /* Parsed arguments, owned; NULL until tdm__call_parse() or a transfer sets it. */
    tdm_document *document;
    /* True if the method owns `document`, and may have destroyed it. */
    bool document_is_taken;
    const tdm_value *arguments; /* Array of the arguments, borrowed from `document`. */
    struct tdm__pins pins;      /* Pins of the references among the call's arguments. */
    /* Pins of the references in the call's reply while the reply is being built. */
    struct tdm__pins reply_pins;
    /* References in the finished reply, reference counted; NULL if it has none or is not finished.
     */
    struct tdm__passed_refs *passed;
    enum tdm__call_state state; /* Where the call is on its way to its method. */
    /* True once the arrival hook has returned and the call has its place in a list. */
    bool arrival_is_over;
    bool has_begun; /* True once the executor has started to run the call. */
    /* True if the method kept the call to reply after it returns (asynchronous classes). */
    bool is_kept;
    bool is_replied;     /* True once the reply is decided, even if it is still held back. */
    bool method_replied; /* True once the method itself has replied. */
    bool wants_items;    /* True if the caller asked for a stream of items. */
    /* True if the call stays in memory until the executor is destroyed, because a method that kept
     * it may still use it. */
    bool freed_with_executor;
    /* True once the caller has canceled the call; read without the lock. */
    atomic_bool canceled;
    /* Callback that the method has installed for the cancellation; NULL without one, and once it
     * has run. */
    tdm_cancel_fn *cancel_fn;
    void *cancel_arg; /* First argument of `cancel_fn`, borrowed. */
    /* True while the caller's connection is closed; the caller may send the call again. Read
     * without the lock. */
    atomic_bool is_disconnected;
    uint64_t items_sent;  /* Number of stream items sent to the caller. */
    uint64_t items_taken; /* Number of stream items that the caller has consumed. */
    /* Largest number of items that were sent and not consumed; 0 for TDM_STREAM_ITEMS_AHEAD. */
    uint32_t items_ahead;
    /* Number of reasons that delay the start of the call; see tdm__executor_hold(). */
    uint32_t start_holds;
    /* Number of reasons that delay the reply to the call; see tdm__executor_hold_reply(). */
    uint32_t reply_holds;
    /* Copy of the reply that is held back, owned; NULL if absent. */
    struct tdm__cached_reply *held_reply;
};

/* List head type of received calls. */
TAILQ_HEAD(tdm__calls, tdm_call);

/* True if the method of a received call has not begun and may still run. */
static inline bool tdm__call_is_queued(const tdm_call *call)
{
    return call->state == TDM__CALL_HELD || call->state == TDM__CALL_WAITING;
}

/* Parses the arguments into call->document and call->arguments, unless that has been done. A module
 * that holds the call may have set them already. */
tdm_status tdm__call_parse(tdm_call *call);

/* Marks the call as canceled. Returns false if its method has not begun, so that it must not begin
 * any more. Otherwise runs the call's callback, which may free the call, and returns true. The
 * caller holds the loop's lock. */
bool tdm__call_mark_canceled(tdm_call *call);
/* Runs the call's callback for its cancellation if one is installed and the call may still be
 * replied to. The callback may reply, which may free the call. The caller holds the loop's lock. */
void tdm__call_run_cancel_callback(tdm_call *call);

/* Frees a received call that no list and no hold refers to any more. */
void tdm__call_free(tdm_call *call);

#endif
