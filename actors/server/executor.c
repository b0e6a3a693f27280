/* executor.c - runs the calls that arrive at an actor: in which order, on which threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/executor.h"

#include "actors/client/child_calls.h"
#include "actors/common/actor_class.h"
#include "actors/common/worker_metrics.h"
#include "actors/server/call.h"
#include "actors/server/client_session.h"
#include "actors/server/concurrency_queue.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/loop/loop.h"

#include <stdlib.h>
#include <string.h>

enum { WAITING_MAX = 100000, ASYNCHRONOUS_CONCURRENCY = 1000, METHODS_TEXT_BYTES = 512 };

enum ending { GOES_ON, DRAINS, ENDS, ENDED };

struct tdm__executor {
    struct tdm__loop *loop; /* borrowed, like the two that follow */
    const struct tdm_actor_class *actor_class;
    void *self;
    struct tdm__method_index methods;
    bool threaded;
    bool ordered; /* a held call holds up the later ones of its caller */
    enum ending ending;
    uint32_t waiting_count; /* calls held or in line */
    struct tdm__method_metrics method_metrics;
    uint64_t arrivals_count;
    uint32_t running_count; /* methods, on all threads */
    struct tdm__client_sessions client_sessions;
    struct tdm__calls calls; /* owned: not answered, or still somebody's */
    uint32_t call_queues_count;
    struct tdm__concurrency_queue
        call_queues[TDM_CONCURRENCY_GROUPS_MAX + 1]; /* the default one first */
    struct tdm__concurrency_queue *call_queue_of_method[TDM_METHODS_MAX];
    tdm__arrival_hook_fn *on_arrival; /* may be NULL */
    void *on_arrival_arg;
    tdm__reply_hook_fn *reply_hook; /* may be NULL */
    void *reply_hook_arg;
};

/* ---- answers ---------------------------------------------------------------------------- */

/* The last one to let go of the call frees it. */
static void call_settle(tdm_call *call)
{
    if (call->incoming != NULL || call->state != TDM__CALL_RETURNED || call->start_holds > 0 ||
        call->reply_holds > 0 || call->freed_with_executor) {
        return;
    }
    TAILQ_REMOVE(&call->executor->calls, call, all_link);
    tdm__call_free(call);
}

static void executor_send_reply(tdm_call *call, const struct tdm__method_reply *answer)
{
    struct tdm__incoming_call *incoming = call->incoming;
    struct tdm__client_session *caller = call->client_session;

    caller->calls_count--;
    if (caller->resumed_call == call) {
        caller->resumed_call = NULL;
    }
    if (call->document == NULL && call->pull == NULL) {
        tdm__incoming_discard(call->incoming); /* it never ran */
    }
    if (call->sequence != 0) {
        tdm__client_session_cache_reply(
            &call->executor->client_sessions, caller, call->sequence,
            tdm__method_reply_for_cache(answer, call->wants_items, &caller->node));
    }
    call->incoming = NULL;
    call->client_session = NULL; /* it may be forgotten before the method returns */
    tdm__method_reply_send(answer, incoming);
}

void tdm__executor_reply(tdm_call *call, const struct tdm__method_reply *answer)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__method_reply altered = *answer;

    TDM_ASSERT(!call->is_replied);
    call->is_replied = true;
    if (executor->reply_hook != NULL) {
        executor->reply_hook(executor->reply_hook_arg, call, &altered);
    }
    tdm__method_metrics_finished(&executor->method_metrics, call->method, call->has_begun,
                                 altered.status == TDM_OK);
    if (call->reply_holds == 0) {
        executor_send_reply(call, &altered);
    } else if (tdm__cached_reply_create(&altered, &call->held_reply) != TDM_OK) {
        executor_send_reply(
            call, &(struct tdm__method_reply){.status = TDM_E_NOMEM, .detail = tdm_error_detail()});
    }
    if (call->is_kept && call->state == TDM__CALL_RETURNED) {
        tdm__concurrency_queue_call_ended(call->call_queue);
        if (executor->ending != GOES_ON) {
            tdm__loop_wake(executor->loop);
        }
        call_settle(call);
    }
}

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
        executor_send_reply(call, &call->held_reply->answer);
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

static tdm_status call_begin(tdm_call *call)
{
    if (call->deadline_ms != TDM__NEVER && tdm__clock_ms() >= call->deadline_ms) {
        return tdm__fail(TDM_E_TIMEOUT, "its deadline passed before it began");
    }
    return tdm__call_parse(call);
}

static tdm_status executor_run_method(tdm_call *call)
{
    struct tdm__loop *loop = call->loop;
    struct tdm__call_span span;
    uint64_t outer;
    uint32_t depth;
    tdm_status status;

    TDM_TRY(call_begin(call));
    tdm__error_clear(); /* a method that fails silently has no detail */
    tdm__call_span_begin(&span, call->incoming);
    depth = tdm__loop_leave_all(loop);
    outer = tdm__child_calls_set_parent(call->call_number);
    status = call->method->run(call, call->executor->self);
    (void)tdm__child_calls_set_parent(outer);
    tdm__call_span_end(&span, status);
    tdm__loop_reenter(loop, depth);
    return status;
}

/* A call_queue's run(). */
static void executor_run_call(tdm_call *call)
{
    struct tdm__executor *executor = call->executor;
    tdm_status status;

    executor->waiting_count--;
    executor->running_count++;
    call->has_begun = true;
    tdm__method_metrics_began(&executor->method_metrics, call->method);
    status = executor_run_method(call);
    executor->running_count--;
    if (!call->is_replied && !call->is_kept) {
        struct tdm__method_reply answer = {
            .status = status, .detail = tdm_error_detail(), .packed = {"\x90", 1}};

        tdm__executor_reply(call, &answer);
    }
    call->state = TDM__CALL_RETURNED;
    if (call->is_replied) {
        tdm__concurrency_queue_call_ended(call->call_queue);
        call_settle(call);
    }
    if (executor->ending != GOES_ON) {
        tdm__loop_wake(executor->loop);
    }
}

/* ---- holding ---------------------------------------------------------------------------- */

static void call_enqueue(tdm_call *call)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__client_session *caller = call->client_session;

    call->arrival_is_over = true;
    if (call->start_holds == 0 && (!executor->ordered || TAILQ_EMPTY(&caller->held))) {
        tdm__concurrency_queue_push(call->call_queue, call);
        return;
    }
    call->state = TDM__CALL_HELD;
    if (executor->ordered) {
        TAILQ_INSERT_TAIL(&caller->held, call, link);
    }
}

/* Those behind the call that was held, up to the next one that is. */
static void executor_start_ready(struct tdm__client_session *caller)
{
    tdm_call *call;

    while ((call = TAILQ_FIRST(&caller->held)) != NULL && call->start_holds == 0) {
        TAILQ_REMOVE(&caller->held, call, link);
        tdm__concurrency_queue_push(call->call_queue, call);
    }
}

/* Out of whatever line it stands in: it never runs. */
static void call_leave_queue(tdm_call *call)
{
    call->executor->waiting_count--;
    if (call->state == TDM__CALL_WAITING) {
        tdm__concurrency_queue_remove(call->call_queue, call);
        return;
    }
    call->state = TDM__CALL_RETURNED;
    if (call->arrival_is_over && call->executor->ordered) {
        TAILQ_REMOVE(&call->client_session->held, call, link);
        executor_start_ready(call->client_session);
    }
}

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
        call_settle(call); /* answered meanwhile */
    } else if (!call->arrival_is_over) {
        return; /* it arrives just now */
    } else if (call->executor->ordered) {
        executor_start_ready(call->client_session);
    } else {
        tdm__concurrency_queue_push(call->call_queue, call);
    }
}

void tdm__executor_release_failed(tdm_call *call, tdm_status status, const char *detail)
{
    if (call->state == TDM__CALL_HELD) {
        call_drop(call, status, detail); /* stays in memory: it is held */
    }
    tdm__executor_release(call);
}

/* As if it had not come: one that is sent again may run. */
static void calls_drop_disconnected(tdm_call *call, const char *detail)
{
    call->sequence = 0;
    call_drop(call, TDM_E_CLOSED, detail);
}

void tdm__executor_release_disconnected(tdm_call *call, const char *detail)
{
    bool keeps_others =
        call->state == TDM__CALL_HELD && call->arrival_is_over && call->executor->ordered;
    tdm_call *next;

    for (tdm_call *later = keeps_others ? TAILQ_NEXT(call, link) : NULL; later != NULL;
         later = next) {
        next = TAILQ_NEXT(later, link);
        if (tdm__incoming_conn(later->incoming) == tdm__incoming_conn(call->incoming)) {
            calls_drop_disconnected(later, detail);
        }
    }
    if (call->state == TDM__CALL_HELD) {
        calls_drop_disconnected(call, detail);
    }
    tdm__executor_release(call);
}

void tdm__executor_set_arrival_hook(struct tdm__executor *executor, tdm__arrival_hook_fn *fn,
                                    void *arg)
{
    executor->on_arrival = fn;
    executor->on_arrival_arg = arg;
}

/* ---- notices ---------------------------------------------------------------------------- */

static void on_notice(void *arg, enum tdm__call_notice notice, uint64_t items_taken)
{
    tdm_call *call = arg;

    switch (notice) {
    case TDM__NOTICE_CANCEL_CHILDREN:
        tdm__child_calls_cancel(tdm_runtime_current(), call->call_number);
        /* fall through */
    case TDM__NOTICE_CANCEL:
        atomic_store_explicit(&call->canceled, true, memory_order_relaxed);
        if (tdm__call_is_queued(call)) {
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

static void call_attach_incoming(tdm_call *call, struct tdm__incoming_call *incoming)
{
    call->incoming = incoming;
    tdm__incoming_on_notice(incoming, on_notice, call);
}

/* ---- arriving --------------------------------------------------------------------------- */

/* A call that is here already: its answer goes to where it came from last.  A stream's items
 * have gone to where nobody takes them. */
static void call_take_over(tdm_call *call, struct tdm__incoming_call *incoming)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__incoming_call *before = call->incoming;

    if (call->wants_items) {
        tdm__incoming_refuse(incoming, TDM_E_CLOSED, TDM__STREAM_BROKEN);
        return;
    }
    if (call->document != NULL) {
        tdm__incoming_discard(incoming); /* the arguments are here */
    } else if (call->pull == NULL) {
        tdm__incoming_discard(before);
    }
    call_attach_incoming(call, incoming);
    atomic_store_explicit(&call->is_disconnected, false, memory_order_relaxed);
    tdm__incoming_fail(before, TDM_E_CLOSED, "it was sent again");
    if (call->pull != NULL) {
        executor->on_arrival(executor->on_arrival_arg, call); /* which fetches from there */
    }
}

/* A call that has come before, and not in vain. */
static bool executor_resend_reply(struct tdm__executor *executor,
                                  struct tdm__client_session *caller,
                                  struct tdm__incoming_call *incoming)
{
    uint64_t sequence = tdm__incoming_sequence(incoming);
    const struct tdm__method_reply *answer = tdm__client_session_cached_reply(caller, sequence);
    tdm_call *call;

    if (answer != NULL) {
        tdm__incoming_discard(incoming);
        tdm__method_reply_send(answer, incoming);
        return true;
    }
    call = tdm__client_session_find_call(caller, TAILQ_FIRST(&executor->calls), sequence);
    if (call != NULL) {
        call_take_over(call, incoming);
        return true;
    }
    return false;
}

static tdm_status may_queue(struct tdm__executor *executor,
                            const struct tdm__client_session *caller, uint64_t sequence)
{
    if (executor->ending >= ENDS) {
        return tdm__fail(TDM_E_ACTOR_DIED, "the actor ended before it came to this call");
    }
    if (executor->waiting_count >= WAITING_MAX) {
        return tdm__fail(TDM_E_AGAIN, "the mailbox is full: %u calls wait",
                         executor->waiting_count);
    }
    return sequence == 0 ? TDM_OK
                         : tdm__client_session_check_cache(&executor->client_sessions, caller);
}

/* The method's own, or the one that the call asks for. */
static tdm_status executor_queue_for_call(struct tdm__executor *executor,
                                          const struct tdm_method_entry *method, uint32_t group,
                                          struct tdm__concurrency_queue **call_queue_out)
{
    *call_queue_out = group == 0
                          ? executor->call_queue_of_method[method - executor->actor_class->methods]
                          : tdm__concurrency_queue_by_number(executor->call_queues,
                                                             executor->call_queues_count, group);
    return *call_queue_out != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_NOT_FOUND, "class %s has not the concurrency group of this call",
                           executor->actor_class->name);
}

static tdm_status call_create(struct tdm__executor *executor, struct tdm__client_session *caller,
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
    call->client_session = caller;
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

/* TDM_OK: `incoming` is taken. */
static tdm_status executor_accept_call(struct tdm__executor *executor,
                                       struct tdm__incoming_call *incoming)
{
    uint64_t sequence = tdm__incoming_sequence(incoming);
    struct tdm__client_session *caller;
    tdm_call *call;

    TDM_TRY(
        tdm__client_session_get(&executor->client_sessions, tdm__incoming_peer(incoming), &caller));
    if (sequence != 0) {
        tdm__client_session_acknowledge(&executor->client_sessions, caller,
                                        tdm__incoming_acknowledged(incoming));
        if (sequence <= caller->highest_sequence &&
            executor_resend_reply(executor, caller, incoming)) {
            return TDM_OK;
        }
        TDM_TRY(tdm__client_session_check_may_run(caller, sequence));
    }
    TDM_TRY(may_queue(executor, caller, sequence));
    TDM_TRY(call_create(executor, caller, incoming, &call));
    caller->highest_sequence =
        sequence > caller->highest_sequence ? sequence : caller->highest_sequence;
    caller->calls_count++;
    executor->waiting_count++;
    tdm__method_metrics_arrived(&executor->method_metrics, call->method);
    TAILQ_INSERT_TAIL(&executor->calls, call, all_link);
    call_attach_incoming(call, incoming);
    if (executor->on_arrival != NULL) {
        executor->on_arrival(executor->on_arrival_arg, call);
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

static bool may_end(const struct tdm__executor *executor)
{
    return executor->ending == ENDS ? executor->running_count == 0
                                    : executor->ending == DRAINS && executor_is_empty(executor);
}

static bool executor_has_work(void *arg)
{
    const struct tdm__executor *executor = arg;

    if (!executor->threaded && executor->ending != ENDS) {
        for (uint32_t i = 0; i < executor->call_queues_count; i++) {
            if (tdm__concurrency_queue_has_work(&executor->call_queues[i])) {
                return true;
            }
        }
    }
    return executor->ending != GOES_ON && may_end(executor);
}

static void executor_work(struct tdm__executor *executor)
{
    for (uint32_t i = 0; i < executor->call_queues_count && executor->ending != ENDS; i++) {
        if (tdm__concurrency_queue_has_work(&executor->call_queues[i])) {
            tdm__concurrency_queue_run_one(&executor->call_queues[i]);
        }
    }
}

/* Rounds of the loop that have to be over; whoever drives it makes them. */
struct look {
    struct tdm__loop *loop;
    int rounds_left;
    bool abandoned; /* nobody waits for it any more: it frees itself */
};

static void on_socket_poll(void *arg)
{
    struct look *look = arg;

    if (look->abandoned) {
        free(look);
        return;
    }
    look->rounds_left--;
    if (look->rounds_left > 0 && tdm__loop_post(look->loop, on_socket_poll, look) != TDM_OK) {
        look->rounds_left = 0;
    }
}

static bool socket_poll_is_over(void *arg)
{
    const struct look *look = arg;

    return look->rounds_left == 0;
}

/* What was sent before the end was asked for may still lie in a socket, or have been seen there
 * by another thread that drives.  The first post is found by a poll that begins now or later,
 * the second when all that this poll has found is done. */
static bool executor_has_drained(struct tdm__executor *executor)
{
    struct look *look = calloc(1, sizeof(*look));
    uint64_t before = executor->arrivals_count;

    if (look == NULL) {
        return executor_is_empty(executor);
    }
    *look = (struct look){executor->loop, 2, false};
    if (tdm__loop_post(executor->loop, on_socket_poll, look) != TDM_OK ||
        tdm__loop_run(executor->loop, socket_poll_is_over, look, TDM__NEVER) == TDM_OK) {
        free(look);
    } else {
        look->abandoned = true;
    }
    return executor->arrivals_count == before && executor_is_empty(executor);
}

static bool has_ended(struct tdm__executor *executor)
{
    return executor->ending != GOES_ON && may_end(executor) &&
           (executor->ending == ENDS || executor_has_drained(executor));
}

/* No method runs.  Kept calls have an owner somewhere who may still answer: they stay in memory
 * until he has had his last chance, in the class's destruct. */
static void fail_all(struct tdm__executor *executor)
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
            executor_reply_failure(call, TDM_E_ACTOR_DIED, "the actor ended before it answered");
        }
    }
}

void tdm__executor_run(struct tdm__executor *executor)
{
    TDM__LOOP_ENTER(executor->loop);

    tdm__call_thread_init();
    for (uint32_t i = 0; i < executor->call_queues_count && executor->ending != ENDS; i++) {
        tdm__concurrency_queue_open(&executor->call_queues[i]);
    }
    while (!has_ended(executor)) {
        if (!executor_has_work(executor)) {
            (void)tdm__loop_run(executor->loop, executor_has_work, executor, TDM__NEVER);
        }
        if (!executor->threaded) {
            executor_work(executor);
        }
    }
    executor->ending = ENDED;
    fail_all(executor);
    for (uint32_t i = 0; i < executor->call_queues_count; i++) {
        tdm__concurrency_queue_stop(&executor->call_queues[i]);
    }
    tdm__call_thread_fini();
}

void tdm__executor_request_end(struct tdm__executor *executor, bool drain)
{
    TDM__LOOP_ENTER(executor->loop);

    if (executor->ending < ENDS) {
        executor->ending = drain ? DRAINS : ENDS;
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

static uint32_t default_limit(const struct tdm__executor_options *options)
{
    if (options->max_concurrency > 0) {
        return options->max_concurrency;
    }
    return options->actor_class->asynchronous != 0 ? ASYNCHRONOUS_CONCURRENCY : 1;
}

static tdm_status executor_add_queue(struct tdm__executor *executor, const char *name,
                                     uint32_t limit)
{
    if (limit == 0) {
        return tdm__fail(TDM_E_INVAL, "class %s: group \"%s\" has a max_concurrency of 0",
                         executor->actor_class->name, name);
    }
    tdm__concurrency_queue_init(&executor->call_queues[executor->call_queues_count], executor->loop,
                                name, limit, executor->threaded, executor_run_call);
    executor->call_queues_count++;
    return TDM_OK;
}

static tdm_status add_groups(struct tdm__executor *executor)
{
    const struct tdm_concurrency_group *groups = executor->actor_class->concurrency_groups;

    for (uint32_t i = 0; i < TDM_CONCURRENCY_GROUPS_MAX && groups[i].name != NULL; i++) {
        TDM_TRY(executor_add_queue(executor, groups[i].name, groups[i].max_concurrency));
    }
    return TDM_OK;
}

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
               : tdm__fail(TDM_E_INVAL, "class %s: method \"%s\" is in a group \"%s\" it has not",
                           executor->actor_class->name, method->name, group);
}

static tdm_status executor_create_queues(struct tdm__executor *executor,
                                         const struct tdm__executor_options *options)
{
    const struct tdm_actor_class *actor_class = options->actor_class;
    bool has_groups = actor_class->concurrency_groups[0].name != NULL;

    executor->threaded =
        actor_class->asynchronous == 0 && (has_groups || default_limit(options) > 1);
    executor->ordered =
        actor_class->asynchronous == 0 && !executor->threaded && !options->out_of_order;
    TDM_TRY(executor_add_queue(executor, TDM__DEFAULT_CONCURRENCY_GROUP, default_limit(options)));
    TDM_TRY(add_groups(executor));
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
        return tdm__fail(TDM_E_NOMEM, "what runs an actor's calls");
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
            executor_send_reply(call,
                                &call->held_reply->answer); /* who held it will not release it */
            tdm__cached_reply_destroy(call->held_reply);
        }
        tdm__call_free(call);
    }
    tdm__client_sessions_fini(&executor->client_sessions);
    free(executor);
}
