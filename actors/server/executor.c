/* executor.c - decides in which order and on which threads the calls of an actor run. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The executor owns all received calls. A call goes through the states of received_call.h: HELD
 * (fetching arguments, or behind a held call of the same caller), WAITING (in a concurrency queue),
 * RUNNING, RETURNED. It is freed by call_settle() when its reply has been sent, its method has
 * returned and no hold is left.
 *
 * Modes: in order (default), asynchronous, threaded; executor.h describes them. Invariants: unless
 * the executor is threaded or the actor allows another order, the calls of one caller and group
 * start in the order of arrival; a call replies exactly
 * once; a repeated call never runs twice (client_session.c); waiting_count is the number of calls
 * in HELD or WAITING.
 *
 * The loop's lock guards everything. Arrivals come from the thread that drives the loop; methods
 * run on the main thread or on queue threads without the lock. The end has phases: running,
 * draining, stopping, stopped. */

#include "actors/server/executor.h"

#include "actors/client/child_calls.h"
#include "actors/common/actor_class.h"
#include "actors/common/worker_metrics.h"
#include "actors/objects/large_message.h"
#include "actors/server/client_session.h"
#include "actors/server/concurrency_queue.h"
#include "actors/server/reply_buffer.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/loop/loop.h"

#include <stdlib.h>
#include <string.h>

/* Most calls of all callers that wait in an actor; further ones are refused. It is several times
 * what one caller sends before it waits for replies (actors/client/send_queue.c). */
enum { CALLS_WAITING_MAX = 300000 };
/* Default max_concurrency of an asynchronous class. */
enum { ASYNCHRONOUS_CONCURRENCY = 1000 };
/* Capacity of the list of method names in an error message. */
enum { METHODS_TEXT_BYTES = 512 };

/* Progress of the executor towards its end; it only moves forward. */
enum executor_phase {
    EXECUTOR_RUNNING,  /* The executor runs calls. */
    EXECUTOR_DRAINING, /* The actor ends when all received calls are done; new ones are accepted. */
    EXECUTOR_STOPPING, /* No method is started; the actor ends when the running ones return. */
    EXECUTOR_STOPPED   /* tdm__executor_run() has ended the actor; remaining calls fail. */
};

/* The executor of one actor, guarded by the loop's lock. */
struct tdm__executor {
    struct tdm__loop *loop;                    /* Event loop of the process, borrowed. */
    const struct tdm_actor_class *actor_class; /* Class of the actor, borrowed. */
    void *self;                       /* State of the actor, borrowed; passed to its methods. */
    struct tdm__method_index methods; /* Index of the class's methods by name. */
    /* True if queue threads run the methods; false if the main thread does. */
    bool is_threaded;
    /* True if a held call delays the later calls of its caller in the same concurrency group. */
    bool is_ordered;
    enum executor_phase phase; /* Progress of the executor towards the end of the actor. */
    uint32_t waiting_count;    /* Number of calls that are held or in a queue. */
    struct tdm__method_metrics method_metrics; /* Counts of calls by method. */
    /* Calls that have arrived so far, refused ones included; numbers the calls. */
    uint64_t arrivals_count;
    uint32_t running_count; /* Number of methods that run now, on all threads. */
    /* Sessions of the callers, with cached replies. */
    struct tdm__client_sessions client_sessions;
    struct tdm__calls calls;    /* All calls that are not freed yet, owned, in order of arrival. */
    uint32_t call_queues_count; /* Number of entries in `call_queues`. */
    /* One queue for each concurrency group; entry 0 is the default group. */
    struct tdm__concurrency_queue call_queues[TDM_CONCURRENCY_GROUPS_MAX + 1];
    /* Queue of each method, by its index in the class. */
    struct tdm__concurrency_queue *call_queue_of_method[TDM_METHODS_MAX];
    tdm__arrival_hook_fn *arrival_hook; /* Hook for arriving calls; NULL if none is set. */
    void *arrival_hook_arg;             /* First argument of `arrival_hook`, borrowed. */
    tdm__reply_hook_fn *reply_hook;     /* Hook for replies; NULL if none is set. */
    void *reply_hook_arg;               /* First argument of `reply_hook`, borrowed. */
};

/* ---- replies ---------------------------------------------------------------------------- */

/* Frees a call if its reply has been sent, its method has returned and no hold is left. */
static void call_settle(tdm_call *call)
{
    if (call->incoming != NULL || call->state != TDM__CALL_RETURNED || call->start_holds > 0 ||
        call->reply_holds > 0 || call->freed_with_executor) {
        return;
    }
    TAILQ_REMOVE(&call->executor->calls, call, all_link);
    tdm__call_free(call);
}

/* Sends the reply to a call and caches the reply in the session until it is acknowledged. */
static void executor_send_reply(tdm_call *call, const struct tdm__method_reply *reply)
{
    struct tdm__incoming_call *incoming = call->incoming;
    struct tdm__client_session *session = call->client_session;

    session->calls_count--;
    if (session->resumed_call == call) {
        session->resumed_call = NULL;
    }
    if (call->document == NULL && call->pull == NULL) {
        /* The call never ran, so its arguments were not read. */
        tdm__incoming_discard(call->incoming);
    }
    if (call->sequence != 0) {
        tdm__client_session_cache_reply(
            &call->executor->client_sessions, session, call->sequence,
            tdm__method_reply_for_cache(reply, call->wants_items, &session->node));
    }
    call->incoming = NULL;
    call->client_session = NULL; /* The session may be removed before the method returns. */
    tdm__method_reply_send(reply, incoming);
}

void tdm__executor_reply(tdm_call *call, const struct tdm__method_reply *reply)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__method_reply altered = *reply;

    TDM_ASSERT(!call->is_replied);
    call->is_replied = true;
    if (executor->reply_hook != NULL) {
        executor->reply_hook(executor->reply_hook_arg, call, &altered);
    }
    tdm__method_metrics_finished(&executor->method_metrics, call->method, call->name,
                                 call->has_begun, altered.status == TDM_OK);
    if (call->reply_holds == 0) {
        executor_send_reply(call, &altered);
    } else if (tdm__cached_reply_create(&altered, &call->held_reply) != TDM_OK) {
        executor_send_reply(
            call, &(struct tdm__method_reply){.status = TDM_E_NOMEM, .detail = tdm_error_detail()});
    }
    if (call->is_kept && call->state == TDM__CALL_RETURNED) {
        tdm__concurrency_queue_call_ended(call->call_queue);
        if (executor->phase != EXECUTOR_RUNNING) {
            tdm__loop_wake(executor->loop);
        }
        call_settle(call);
    }
}

/* Replies to a call of the actor with a failure. */
static void executor_reply_failure(tdm_call *call, tdm_status status, const char *detail)
{
    tdm__executor_reply(call, &(struct tdm__method_reply){.status = status, .detail = detail});
}

void tdm__executor_hold_reply(tdm_call *call)
{
    call->reply_holds++;
}

void tdm__executor_release_reply(tdm_call *call)
{
    TDM_ASSERT(call->reply_holds > 0);
    call->reply_holds--;
    if (call->reply_holds == 0 && call->held_reply != NULL) {
        executor_send_reply(call, &call->held_reply->reply);
        tdm__cached_reply_destroy(call->held_reply);
        call->held_reply = NULL;
    }
    call_settle(call);
}

void tdm__executor_set_reply_hook(struct tdm__executor *executor, tdm__reply_hook_fn *fn, void *arg)
{
    executor->reply_hook = fn;
    executor->reply_hook_arg = arg;
}

/* ---- running one call ------------------------------------------------------------------- */

/* Checks the deadline of a call that is about to run and parses its arguments. */
static tdm_status call_begin(tdm_call *call)
{
    if (call->deadline_ms != TDM__NEVER && tdm__clock_ms() >= call->deadline_ms) {
        return tdm__fail(TDM_E_TIMEOUT, "its deadline passed before it began");
    }
    return tdm__call_parse(call);
}

/* Runs the method of the call without the lock and returns its status. Records the span for the
 * timeline and makes calls of the method children of this call. */
static tdm_status executor_run_method(tdm_call *call)
{
    struct tdm__loop *loop = call->loop;
    struct tdm__call_span span;
    uint64_t outer;
    uint32_t depth;
    tdm_status status;

    TDM_TRY(call_begin(call));
    tdm__error_clear(); /* A method that fails without a message must not report an old one. */
    tdm__call_span_begin(&span, call->incoming);
    depth = tdm__loop_leave_all(loop);
    outer = tdm__child_calls_set_parent(call->call_number);
    status = call->method->run(call, call->executor->self);
    (void)tdm__child_calls_set_parent(outer);
    tdm__call_span_end(&span, status);
    tdm__loop_reenter(loop, depth);
    return status;
}

/* Runs one call from a concurrency queue and replies, unless the method has replied or kept the
 * call. */
static void executor_run_call(tdm_call *call)
{
    struct tdm__executor *executor = call->executor;
    tdm_status status;

    executor->waiting_count--;
    executor->running_count++;
    call->has_begun = true;
    tdm__method_metrics_began(&executor->method_metrics, call->method, call->name);
    status = executor_run_method(call);
    executor->running_count--;
    if (!call->is_replied && !call->is_kept) {
        /* An empty array stands for nil; a failure carries nothing. */
        struct tdm__method_reply reply = {.status = status,
                                          .detail = tdm_error_detail(),
                                          .packed = {"\x90", status == TDM_OK ? 1 : 0}};

        tdm__executor_reply(call, &reply);
    }
    call->state = TDM__CALL_RETURNED;
    if (call->is_replied) {
        tdm__concurrency_queue_call_ended(call->call_queue);
        call_settle(call);
    }
    if (executor->phase != EXECUTOR_RUNNING) {
        tdm__loop_wake(executor->loop);
    }
}

/* ---- holding ---------------------------------------------------------------------------- */

/* Gives an arriving call its place: in its concurrency queue, or among the held calls of its
 * caller. */
static void call_enqueue(tdm_call *call)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__client_session *session = call->client_session;

    call->arrival_is_over = true;
    if (call->start_holds == 0 && !(executor->is_ordered && tdm__client_session_holds_queue(
                                                                session, call->call_queue, NULL))) {
        tdm__concurrency_queue_push(call->call_queue, call);
        return;
    }
    call->state = TDM__CALL_HELD;
    if (executor->is_ordered) {
        TAILQ_INSERT_TAIL(&session->held_calls, call, link);
    }
}

/* Moves the held calls of the session that may start to their queues, in order. */
static void executor_start_ready(struct tdm__client_session *session)
{
    tdm_call *call;

    while ((call = tdm__client_session_take_ready(session)) != NULL) {
        tdm__concurrency_queue_push(call->call_queue, call);
    }
}

/* Removes a call that has not begun from the list in which it waits. It will never run. */
static void call_leave_queue(tdm_call *call)
{
    call->executor->waiting_count--;
    if (call->state == TDM__CALL_WAITING) {
        tdm__concurrency_queue_remove(call->call_queue, call);
        return;
    }
    call->state = TDM__CALL_RETURNED;
    if (call->arrival_is_over && call->executor->is_ordered) {
        TAILQ_REMOVE(&call->client_session->held_calls, call, link);
        executor_start_ready(call->client_session);
    }
}

/* Makes a call whose method has not begun fail. */
static void call_drop(tdm_call *call, tdm_status status, const char *detail)
{
    call_leave_queue(call);
    executor_reply_failure(call, status, detail);
    call_settle(call);
}

void tdm__executor_hold(tdm_call *call)
{
    TDM_ASSERT(call->state == TDM__CALL_HELD);
    call->start_holds++;
}

void tdm__executor_release(tdm_call *call)
{
    TDM_ASSERT(call->start_holds > 0);
    call->start_holds--;
    if (call->start_holds > 0) {
        return;
    }
    if (call->state != TDM__CALL_HELD) {
        call_settle(call); /* The call was replied to while it was held. */
    } else if (!call->arrival_is_over) {
        return; /* The arrival hook runs; call_enqueue() follows. */
    } else if (call->executor->is_ordered) {
        executor_start_ready(call->client_session);
    } else {
        tdm__concurrency_queue_push(call->call_queue, call);
    }
}

void tdm__executor_release_failed(tdm_call *call, tdm_status status, const char *detail)
{
    if (call->state == TDM__CALL_HELD) {
        call_drop(call, status, detail); /* The hold keeps the call in memory. */
    }
    tdm__executor_release(call);
}

/* Drops a call as if it had not arrived, so that the caller may send it again. Sequence 0 prevents
 * a cached reply. */
static void call_drop_disconnected(tdm_call *call, const char *detail)
{
    call->sequence = 0;
    call_drop(call, TDM_E_CLOSED, detail);
}

void tdm__executor_release_disconnected(tdm_call *call, const char *detail)
{
    bool keeps_others =
        call->state == TDM__CALL_HELD && call->arrival_is_over && call->executor->is_ordered;
    tdm_call *next;

    for (tdm_call *later = keeps_others ? TAILQ_NEXT(call, link) : NULL; later != NULL;
         later = next) {
        next = TAILQ_NEXT(later, link);
        if (tdm__incoming_conn(later->incoming) == tdm__incoming_conn(call->incoming)) {
            call_drop_disconnected(later, detail);
        }
    }
    if (call->state == TDM__CALL_HELD) {
        call_drop_disconnected(call, detail);
    }
    tdm__executor_release(call);
}

void tdm__executor_set_arrival_hook(struct tdm__executor *executor, tdm__arrival_hook_fn *fn,
                                    void *arg)
{
    executor->arrival_hook = fn;
    executor->arrival_hook_arg = arg;
}

/* ---- notices ---------------------------------------------------------------------------- */

/* Handles a notice of the RPC layer about a call: cancellation, consumed stream items, or a closed
 * connection. */
static void call_on_notice(void *arg, enum tdm__call_notice notice, uint64_t items_taken)
{
    tdm_call *call = arg;

    switch (notice) {
    case TDM__NOTICE_CANCEL_CHILDREN:
        tdm__child_calls_cancel(tdm_runtime_current(), call->call_number);
        /* fall through */
    case TDM__NOTICE_CANCEL:
        if (!tdm__call_mark_canceled(call)) {
            call_drop(call, TDM_E_CANCELED, "it was canceled before it began");
        }
        break;
    case TDM__NOTICE_CREDIT:
        call->items_taken = items_taken;
        break;
    case TDM__NOTICE_CLOSED:
        atomic_store_explicit(&call->is_disconnected, true, memory_order_relaxed);
        break;
    }
}

/* Connects the call with the RPC call through which its reply is sent. */
static void call_attach_incoming(tdm_call *call, struct tdm__incoming_call *incoming)
{
    call->incoming = incoming;
    tdm__incoming_on_notice(incoming, call_on_notice, call);
}

/* ---- arriving --------------------------------------------------------------------------- */

/* Attaches a repeated call to the one that is here already, so that the reply goes to the newest
 * connection. A stream cannot be taken over, because its items may have been lost. */
static void call_take_over(tdm_call *call, struct tdm__incoming_call *incoming)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__incoming_call *before = call->incoming;

    if (call->wants_items) {
        tdm__incoming_refuse(incoming, TDM_E_CLOSED, TDM__STREAM_BROKEN);
        return;
    }
    if (tdm__incoming_is_older(incoming, before)) {
        tdm__incoming_refuse(incoming, TDM_E_CLOSED, "it was sent again");
        return;
    }
    if (call->document != NULL) {
        tdm__incoming_discard(incoming); /* The arguments have been read before. */
    } else if (call->pull == NULL) {
        tdm__incoming_discard(before);
    }
    call_attach_incoming(call, incoming);
    atomic_store_explicit(&call->is_disconnected, false, memory_order_relaxed);
    tdm__incoming_fail(before, TDM_E_CLOSED, "it was sent again");
    if (call->pull != NULL) {
        /* The hook fetches the arguments over the new connection. */
        executor->arrival_hook(executor->arrival_hook_arg, call);
    }
}

/* Handles a repeated call: resends the cached reply, or attaches it to the call that is still open.
 * Returns false if neither exists, and leaves `incoming` alone. */
static bool executor_resend_reply(struct tdm__executor *executor,
                                  struct tdm__client_session *session,
                                  struct tdm__incoming_call *incoming)
{
    uint64_t sequence = tdm__incoming_sequence(incoming);
    const struct tdm__method_reply *reply = tdm__client_session_cached_reply(session, sequence);
    tdm_call *call;

    if (reply != NULL) {
        tdm__incoming_discard(incoming);
        tdm__method_reply_send(reply, incoming);
        return true;
    }
    call = tdm__client_session_find_call(session, TAILQ_FIRST(&executor->calls), sequence);
    if (call != NULL) {
        call_take_over(call, incoming);
        return true;
    }
    return false;
}

/* Returns TDM_OK if one more call may be queued, else why not. */
static tdm_status executor_check_may_queue(const struct tdm__executor *executor)
{
    if (executor->phase >= EXECUTOR_STOPPING) {
        return tdm__fail(TDM_E_ACTOR_DIED, "the actor ended before it came to this call");
    }
    if (executor->waiting_count >= CALLS_WAITING_MAX) {
        return tdm__fail(TDM_E_AGAIN, "the mailbox is full: %u calls wait",
                         executor->waiting_count);
    }
    return TDM_OK;
}

/* Finds the queue for a call: that of the concurrency group `group`, or the method's own if it is
 * 0. */
static tdm_status executor_queue_for_call(struct tdm__executor *executor,
                                          const struct tdm_method_entry *method, uint32_t group,
                                          struct tdm__concurrency_queue **call_queue_out)
{
    *call_queue_out = group == 0
                          ? executor->call_queue_of_method[method - executor->actor_class->methods]
                          : tdm__concurrency_queue_by_number(executor->call_queues,
                                                             executor->call_queues_count, group);
    return *call_queue_out != NULL ? TDM_OK
                                   : tdm__class_refuse_group(executor->actor_class, method->name);
}

/* Creates a call for `incoming`. TDM_E_NOT_FOUND if the class does not have the method or the
 * group. */
static tdm_status call_create(struct tdm__executor *executor, struct tdm__client_session *session,
                              struct tdm__incoming_call *incoming, tdm_call **call_out)
{
    const char *name = tdm__incoming_method(incoming);
    const struct tdm_method_entry *method = tdm__method_find(&executor->methods, name);
    char methods[METHODS_TEXT_BYTES];
    struct tdm__concurrency_queue *call_queue;
    tdm_call *call;

    if (method != NULL) {
        TDM_TRY(executor_queue_for_call(executor, method, tdm__incoming_concurrency_group(incoming),
                                        &call_queue));
    } else {
        return tdm__fail(TDM_E_NOT_FOUND, "class %s has no method \"%s\"; it has: %s",
                         executor->actor_class->name, name,
                         tdm__class_methods_text(executor->actor_class, methods, sizeof(methods)));
    }
    call = tdm__free_list_alloc_zeroed(sizeof(*call));
    if (call == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a call of %s", name);
    }
    if (method == executor->methods.any) {
        call->name = strdup(name);
        if (call->name == NULL) {
            tdm__call_free(call);
            return tdm__fail(TDM_E_NOMEM, "a call of %s", name);
        }
    }
    call->loop = executor->loop;
    call->executor = executor;
    call->client_session = session;
    call->method = method;
    call->call_number = executor->arrivals_count;
    call->call_queue = call_queue;
    call->sequence = tdm__incoming_sequence(incoming);
    call->deadline_ms = tdm__incoming_deadline(incoming);
    call->arrived_ms = tdm__incoming_arrived(incoming);
    call->wants_items = tdm__incoming_wants_items(incoming);
    *call_out = call;
    return TDM_OK;
}

/* Accepts an arriving call: handles a repetition, or creates and queues a new call. Takes
 * `incoming` only if it returns TDM_OK. */
static tdm_status executor_accept_call(struct tdm__executor *executor,
                                       struct tdm__incoming_call *incoming)
{
    uint64_t sequence = tdm__incoming_sequence(incoming);
    struct tdm__client_session *session;
    tdm_call *call;

    TDM_TRY(tdm__client_session_get(&executor->client_sessions, tdm__incoming_peer(incoming),
                                    &session));
    if (sequence != 0) {
        tdm__client_session_acknowledge(&executor->client_sessions, session,
                                        tdm__incoming_acknowledged(incoming));
        if (sequence <= session->highest_sequence &&
            executor_resend_reply(executor, session, incoming)) {
            return TDM_OK;
        }
        TDM_TRY(tdm__client_session_check_may_run(session, sequence));
    }
    TDM_TRY(executor_check_may_queue(executor));
    TDM_TRY(call_create(executor, session, incoming, &call));
    session->highest_sequence =
        sequence > session->highest_sequence ? sequence : session->highest_sequence;
    session->calls_count++;
    executor->waiting_count++;
    tdm__method_metrics_arrived(&executor->method_metrics, call->method, call->name);
    TAILQ_INSERT_TAIL(&executor->calls, call, all_link);
    call_attach_incoming(call, incoming);
    if (executor->arrival_hook != NULL) {
        executor->arrival_hook(executor->arrival_hook_arg, call);
    }
    if (call->state == TDM__CALL_HELD) {
        call_enqueue(call);
    } else {
        call_settle(call);
    }
    return TDM_OK;
}

void tdm__executor_enqueue(struct tdm__executor *executor, struct tdm__incoming_call *incoming)
{
    tdm_status status;

    executor->arrivals_count++;
    status = executor_accept_call(executor, incoming);
    if (status != TDM_OK) {
        tdm__incoming_refuse(incoming, status, tdm_error_detail());
    }
}

/* ---- the main thread -------------------------------------------------------------------- */

/* True if no call waits, runs or is kept, and nothing is posted. */
static bool executor_is_empty(const struct tdm__executor *executor)
{
    if (executor->waiting_count > 0) {
        return false;
    }
    for (uint32_t i = 0; i < executor->call_queues_count; i++) {
        if (!tdm__concurrency_queue_is_empty(&executor->call_queues[i])) {
            return false;
        }
    }
    return true;
}

/* True if the requested end of the actor may happen now. */
static bool executor_may_end(const struct tdm__executor *executor)
{
    return executor->phase == EXECUTOR_STOPPING
               ? executor->running_count == 0
               : executor->phase == EXECUTOR_DRAINING && executor_is_empty(executor);
}

/* True if the main thread has a call to run or may end. Condition for tdm__loop_run(). */
static bool executor_has_work(void *arg)
{
    const struct tdm__executor *executor = arg;

    if (!executor->is_threaded && executor->phase != EXECUTOR_STOPPING) {
        for (uint32_t i = 0; i < executor->call_queues_count; i++) {
            if (tdm__concurrency_queue_has_work(&executor->call_queues[i])) {
                return true;
            }
        }
    }
    return executor->phase != EXECUTOR_RUNNING && executor_may_end(executor);
}

/* Runs one piece of work of each queue on the main thread. */
static void executor_work(struct tdm__executor *executor)
{
    for (uint32_t i = 0; i < executor->call_queues_count && executor->phase != EXECUTOR_STOPPING;
         i++) {
        if (tdm__concurrency_queue_has_work(&executor->call_queues[i])) {
            tdm__concurrency_queue_run_one(&executor->call_queues[i]);
        }
    }
}

/* Counts rounds of the loop, which any thread may drive. */
struct drain_poll {
    struct tdm__loop *loop; /* Event loop whose rounds are counted, borrowed. */
    int rounds_left;        /* Number of rounds that must still be completed. */
    /* True if the waiting function has returned; the next round frees the struct. */
    bool is_abandoned;
};

/* Posted function that counts one round of the loop for the poll `arg`. */
static void drain_poll_round(void *arg)
{
    struct drain_poll *drain_poll = arg;

    if (drain_poll->is_abandoned) {
        free(drain_poll);
        return;
    }
    drain_poll->rounds_left--;
    if (drain_poll->rounds_left > 0 &&
        tdm__loop_post(drain_poll->loop, drain_poll_round, drain_poll) != TDM_OK) {
        drain_poll->rounds_left = 0;
    }
}

/* True if all rounds of the poll `arg` are completed. Condition for tdm__loop_run(). */
static bool drain_poll_is_over(void *arg)
{
    const struct drain_poll *drain_poll = arg;

    return drain_poll->rounds_left == 0;
}

/* True if no call is left, not even in a socket. Calls sent before the end was requested may still
 * lie in a socket or be in the hands of another polling thread. The first post runs after a poll
 * that starts now or later; the second one runs after everything found by that poll. */
static bool executor_has_drained(struct tdm__executor *executor)
{
    struct drain_poll *drain_poll = calloc(1, sizeof(*drain_poll));
    uint64_t before = executor->arrivals_count;

    if (drain_poll == NULL) {
        return executor_is_empty(executor);
    }
    *drain_poll = (struct drain_poll){executor->loop, 2, false};
    if (tdm__loop_post(executor->loop, drain_poll_round, drain_poll) != TDM_OK ||
        tdm__loop_run(executor->loop, drain_poll_is_over, drain_poll, TDM__NEVER) == TDM_OK) {
        free(drain_poll);
    } else {
        drain_poll->is_abandoned = true;
    }
    return executor->arrivals_count == before && executor_is_empty(executor);
}

/* True if the end of the actor was requested and has been reached. */
static bool executor_has_ended(struct tdm__executor *executor)
{
    return executor->phase != EXECUTOR_RUNNING && executor_may_end(executor) &&
           (executor->phase == EXECUTOR_STOPPING || executor_has_drained(executor));
}

/* Fails all calls without a reply when no method runs any more. A method may have kept a call and
 * use it until the class's destruct function has returned, so the calls stay in memory. */
static void executor_fail_all_calls(struct tdm__executor *executor)
{
    tdm_call *call;

    TAILQ_FOREACH(call, &executor->calls, all_link)
    {
        call->freed_with_executor = true;
        if (tdm__call_is_queued(call)) {
            call_leave_queue(call);
            executor_reply_failure(call, TDM_E_ACTOR_DIED,
                                   "the actor ended before it came to this call");
        } else if (!call->is_replied) {
            executor_reply_failure(call, TDM_E_ACTOR_DIED, "the actor ended before it replied");
        }
    }
}

void tdm__executor_run(struct tdm__executor *executor)
{
    TDM__LOOP_ENTER(executor->loop);

    tdm__reply_buffer_thread_init();
    for (uint32_t i = 0; i < executor->call_queues_count && executor->phase != EXECUTOR_STOPPING;
         i++) {
        tdm__concurrency_queue_open(&executor->call_queues[i]);
    }
    while (!executor_has_ended(executor)) {
        if (!executor_has_work(executor)) {
            (void)tdm__loop_run(executor->loop, executor_has_work, executor, TDM__NEVER);
        }
        if (!executor->is_threaded) {
            executor_work(executor);
        }
    }
    executor->phase = EXECUTOR_STOPPED;
    executor_fail_all_calls(executor);
    for (uint32_t i = 0; i < executor->call_queues_count; i++) {
        tdm__concurrency_queue_stop(&executor->call_queues[i]);
    }
    tdm__reply_buffer_thread_fini();
}

void tdm__executor_request_end(struct tdm__executor *executor, bool drain)
{
    TDM__LOOP_ENTER(executor->loop);

    if (executor->phase < EXECUTOR_STOPPING) {
        executor->phase = drain ? EXECUTOR_DRAINING : EXECUTOR_STOPPING;
        tdm__loop_wake(executor->loop);
    }
}

tdm_status tdm__executor_post(struct tdm__executor *executor, void (*fn)(void *arg), void *arg)
{
    return tdm__concurrency_queue_post(&executor->call_queues[0], fn, arg);
}

uint32_t tdm__executor_waiting_count(const struct tdm__executor *executor)
{
    return executor->waiting_count;
}

const struct tdm__calls *tdm__executor_calls(const struct tdm__executor *executor)
{
    return &executor->calls;
}

const struct tdm__method_metrics *tdm__executor_method_metrics(const struct tdm__executor *executor)
{
    return &executor->method_metrics;
}

bool tdm__executor_is_asynchronous(const struct tdm__executor *executor)
{
    return executor->actor_class->asynchronous != 0;
}

/* ---- life ------------------------------------------------------------------------------- */

/* Returns the max_concurrency of the actor's default concurrency group. */
static uint32_t executor_default_limit(const struct tdm__executor_options *options)
{
    if (options->max_concurrency > 0) {
        return options->max_concurrency;
    }
    return options->actor_class->asynchronous != 0 ? ASYNCHRONOUS_CONCURRENCY : 1;
}

/* Adds a queue for the actor's concurrency group `name`, with at most `limit` calls under way. */
static tdm_status executor_add_queue(struct tdm__executor *executor, const char *name,
                                     uint32_t limit)
{
    if (limit == 0) {
        return tdm__fail(TDM_E_INVAL, "class %s: group \"%s\" has a max_concurrency of 0",
                         executor->actor_class->name, name);
    }
    tdm__concurrency_queue_init(&executor->call_queues[executor->call_queues_count], executor->loop,
                                name, limit, executor->is_threaded, executor_run_call);
    executor->call_queues_count++;
    return TDM_OK;
}

/* Adds a queue for each concurrency group that the actor's class declares. */
static tdm_status executor_add_groups(struct tdm__executor *executor)
{
    const struct tdm_concurrency_group *groups = executor->actor_class->concurrency_groups;

    for (uint32_t i = 0; i < TDM_CONCURRENCY_GROUPS_MAX && groups[i].name != NULL; i++) {
        TDM_TRY(executor_add_queue(executor, groups[i].name, groups[i].max_concurrency));
    }
    return TDM_OK;
}

/* Finds the queue of the method's concurrency group; TDM_E_INVAL if the class does not declare it.
 */
static tdm_status executor_find_queue(struct tdm__executor *executor,
                                      const struct tdm_method_entry *method,
                                      struct tdm__concurrency_queue **call_queue_out)
{
    const char *group = method->concurrency_group;

    *call_queue_out =
        group == NULL
            ? &executor->call_queues[0]
            : tdm__concurrency_queue_by_number(executor->call_queues, executor->call_queues_count,
                                               tdm__concurrency_group_id(group));
    return *call_queue_out != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL,
                           "class %s: method \"%s\" names the undeclared concurrency group \"%s\"",
                           executor->actor_class->name, method->name, group);
}

/* Chooses the mode of the executor, creates its queues and maps methods to them. */
static tdm_status executor_create_queues(struct tdm__executor *executor,
                                         const struct tdm__executor_options *options)
{
    const struct tdm_actor_class *actor_class = options->actor_class;
    bool has_groups = actor_class->concurrency_groups[0].name != NULL;

    executor->is_threaded =
        actor_class->asynchronous == 0 && (has_groups || executor_default_limit(options) > 1);
    executor->is_ordered = !executor->is_threaded && !options->out_of_order;
    TDM_TRY(executor_add_queue(executor, TDM__DEFAULT_CONCURRENCY_GROUP,
                               executor_default_limit(options)));
    TDM_TRY(executor_add_groups(executor));
    for (uint32_t i = 0; i < TDM_METHODS_MAX && actor_class->methods[i].name != NULL; i++) {
        TDM_TRY(executor_find_queue(executor, &actor_class->methods[i],
                                    &executor->call_queue_of_method[i]));
    }
    return TDM_OK;
}

tdm_status tdm__executor_create(const struct tdm__executor_options *options,
                                struct tdm__executor **executor_out)
{
    struct tdm__executor *executor = calloc(1, sizeof(*executor));
    tdm_status status;

    if (executor == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the executor of an actor");
    }
    executor->loop = options->loop;
    executor->actor_class = options->actor_class;
    executor->self = options->self;
    tdm__method_index_init(&executor->methods, options->actor_class);
    tdm__method_metrics_init(&executor->method_metrics, options->actor_class);
    tdm__client_sessions_init(&executor->client_sessions);
    TAILQ_INIT(&executor->calls);
    status = executor_create_queues(executor, options);
    if (status != TDM_OK) {
        free(executor);
        return status;
    }
    *executor_out = executor;
    return TDM_OK;
}

void tdm__executor_destroy(struct tdm__executor *executor)
{
    tdm_call *next;

    if (executor == NULL) {
        return;
    }
    TDM__LOOP_ENTER(executor->loop);
    for (tdm_call *call = TAILQ_FIRST(&executor->calls); call != NULL; call = next) {
        next = TAILQ_NEXT(call, all_link);
        TDM_ASSERT(call->is_replied);
        if (call->held_reply != NULL) {
            executor_send_reply(
                call, &call->held_reply->reply); /* No module will release this hold any more. */
            tdm__cached_reply_destroy(call->held_reply);
        }
        tdm__call_free(call);
    }
    tdm__client_sessions_fini(&executor->client_sessions);
    free(executor);
}
