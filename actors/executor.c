/* executor.c - runs the calls that arrive at an actor: in which order, on which threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/executor.h"

#include "actors/call.h"
#include "actors/caller.h"
#include "actors/children.h"
#include "actors/class.h"
#include "actors/lane.h"
#include "actors/observe.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/loop/loop.h"
#include "runtime/spare.h"

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
    struct tdm__tally tally;
    uint64_t arrivals_count;
    uint32_t running_count; /* methods, on all threads */
    struct tdm__callers callers;
    struct tdm__calls calls; /* owned: not answered, or still somebody's */
    uint32_t lanes_count;
    struct tdm__lane lanes[TDM_CONCURRENCY_GROUPS_MAX + 1]; /* the default one first */
    struct tdm__lane *lane_of_method[TDM_METHODS_MAX];
    tdm__arrival_fn *on_arrival; /* may be NULL */
    void *on_arrival_arg;
    tdm__answer_fn *on_answer; /* may be NULL */
    void *on_answer_arg;
};

/* ---- answers ---------------------------------------------------------------------------- */

/* The last one to let go of the call frees it. */
static void call_settle(tdm_call *call)
{
    if (call->incoming != NULL || call->state != TDM__CALL_RETURNED || call->holds_count > 0 ||
        call->answer_holds_count > 0 || call->is_loose) {
        return;
    }
    TAILQ_REMOVE(&call->executor->calls, call, all_link);
    tdm__call_free(call);
}

static void send_answer(tdm_call *call, const struct tdm__answer *answer)
{
    struct tdm__incoming *incoming = call->incoming;
    struct tdm__caller *caller = call->caller;

    caller->calls_count--;
    if (caller->taken_up == call) {
        caller->taken_up = NULL;
    }
    if (call->document == NULL && call->pull == NULL) {
        tdm__incoming_give_back(call->incoming); /* it never ran */
    }
    if (call->sequence != 0) {
        tdm__caller_keep(&call->executor->callers, caller, call->sequence,
                         tdm__answer_to_keep(answer, call->wants_items, &caller->node));
    }
    call->incoming = NULL;
    call->caller = NULL; /* it may be forgotten before the method returns */
    tdm__answer_send(answer, incoming);
}

void tdm__executor_answer(tdm_call *call, const struct tdm__answer *answer)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__answer altered = *answer;

    TDM_ASSERT(!call->answered);
    call->answered = true;
    if (executor->on_answer != NULL) {
        executor->on_answer(executor->on_answer_arg, call, &altered);
    }
    tdm__tally_answered(&executor->tally, call->method, call->began, altered.status == TDM_OK);
    if (call->answer_holds_count == 0) {
        send_answer(call, &altered);
    } else if (tdm__answer_keep(&altered, &call->held_answer) != TDM_OK) {
        send_answer(call,
                    &(struct tdm__answer){.status = TDM_E_NOMEM, .detail = tdm_error_detail()});
    }
    if (call->kept && call->state == TDM__CALL_RETURNED) {
        tdm__lane_ended(call->lane);
        if (executor->ending != GOES_ON) {
            tdm__loop_wake(executor->loop);
        }
        call_settle(call);
    }
}

static void answer_failure(tdm_call *call, tdm_status status, const char *detail)
{
    tdm__executor_answer(call, &(struct tdm__answer){.status = status, .detail = detail});
}

void tdm__executor_hold_answer(tdm_call *call)
{
    call->answer_holds_count++;
}

void tdm__executor_release_answer(tdm_call *call)
{
    TDM_ASSERT(call->answer_holds_count > 0);
    call->answer_holds_count--;
    if (call->answer_holds_count == 0 && call->held_answer != NULL) {
        send_answer(call, &call->held_answer->answer);
        tdm__kept_answer_destroy(call->held_answer);
        call->held_answer = NULL;
    }
    call_settle(call);
}

void tdm__executor_on_answer(struct tdm__executor *executor, tdm__answer_fn *fn, void *arg)
{
    executor->on_answer = fn;
    executor->on_answer_arg = arg;
}

/* ---- running one call ------------------------------------------------------------------- */

static tdm_status begin(tdm_call *call)
{
    if (call->deadline_ms != TDM__NEVER && tdm__clock_ms() >= call->deadline_ms) {
        return tdm__fail(TDM_E_TIMEOUT, "its deadline passed before it began");
    }
    return tdm__call_parse(call);
}

static tdm_status run_method(tdm_call *call)
{
    struct tdm__loop *loop = call->loop;
    struct tdm__span span;
    uint64_t outer;
    uint32_t depth;
    tdm_status status;

    TDM_TRY(begin(call));
    tdm__error_clear(); /* a method that fails silently has no detail */
    tdm__span_begin(&span, call->incoming);
    depth = tdm__loop_let_go(loop);
    outer = tdm__children_of(call->number);
    status = call->method->run(call, call->executor->self);
    (void)tdm__children_of(outer);
    tdm__span_end(&span, status);
    tdm__loop_take_back(loop, depth);
    return status;
}

/* A lane's run(). */
static void run_call(tdm_call *call)
{
    struct tdm__executor *executor = call->executor;
    tdm_status status;

    executor->waiting_count--;
    executor->running_count++;
    call->began = true;
    tdm__tally_began(&executor->tally, call->method);
    status = run_method(call);
    executor->running_count--;
    if (!call->answered && !call->kept) {
        struct tdm__answer answer = {
            .status = status, .detail = tdm_error_detail(), .packed = {"\x90", 1}};

        tdm__executor_answer(call, &answer);
    }
    call->state = TDM__CALL_RETURNED;
    if (call->answered) {
        tdm__lane_ended(call->lane);
        call_settle(call);
    }
    if (executor->ending != GOES_ON) {
        tdm__loop_wake(executor->loop);
    }
}

/* ---- holding ---------------------------------------------------------------------------- */

static void put_in_line(tdm_call *call)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__caller *caller = call->caller;

    call->placed = true;
    if (call->holds_count == 0 && (!executor->ordered || TAILQ_EMPTY(&caller->held))) {
        tdm__lane_push(call->lane, call);
        return;
    }
    call->state = TDM__CALL_HELD;
    if (executor->ordered) {
        TAILQ_INSERT_TAIL(&caller->held, call, link);
    }
}

/* Those behind the call that was held, up to the next one that is. */
static void advance(struct tdm__caller *caller)
{
    tdm_call *call;

    while ((call = TAILQ_FIRST(&caller->held)) != NULL && call->holds_count == 0) {
        TAILQ_REMOVE(&caller->held, call, link);
        tdm__lane_push(call->lane, call);
    }
}

/* Out of whatever line it stands in: it never runs. */
static void leave_line(tdm_call *call)
{
    call->executor->waiting_count--;
    if (call->state == TDM__CALL_WAITING) {
        tdm__lane_remove(call->lane, call);
        return;
    }
    call->state = TDM__CALL_RETURNED;
    if (call->placed && call->executor->ordered) {
        TAILQ_REMOVE(&call->caller->held, call, link);
        advance(call->caller);
    }
}

static void drop(tdm_call *call, tdm_status status, const char *detail)
{
    leave_line(call);
    answer_failure(call, status, detail);
    call_settle(call);
}

void tdm__executor_hold(tdm_call *call)
{
    TDM_ASSERT(call->state == TDM__CALL_HELD);
    call->holds_count++;
}

void tdm__executor_release(tdm_call *call)
{
    TDM_ASSERT(call->holds_count > 0);
    call->holds_count--;
    if (call->holds_count > 0) {
        return;
    }
    if (call->state != TDM__CALL_HELD) {
        call_settle(call); /* answered meanwhile */
    } else if (!call->placed) {
        return; /* it arrives just now */
    } else if (call->executor->ordered) {
        advance(call->caller);
    } else {
        tdm__lane_push(call->lane, call);
    }
}

void tdm__executor_release_failed(tdm_call *call, tdm_status status, const char *detail)
{
    if (call->state == TDM__CALL_HELD) {
        drop(call, status, detail); /* stays in memory: it is held */
    }
    tdm__executor_release(call);
}

/* As if it had not come: one that is sent again may run. */
static void cut(tdm_call *call, const char *detail)
{
    call->sequence = 0;
    drop(call, TDM_E_CLOSED, detail);
}

void tdm__executor_release_cut(tdm_call *call, const char *detail)
{
    bool keeps_others =
        call->state == TDM__CALL_HELD && call->placed && call->executor->ordered;
    tdm_call *next;

    for (tdm_call *later = keeps_others ? TAILQ_NEXT(call, link) : NULL; later != NULL;
         later = next) {
        next = TAILQ_NEXT(later, link);
        if (tdm__incoming_conn(later->incoming) == tdm__incoming_conn(call->incoming)) {
            cut(later, detail);
        }
    }
    if (call->state == TDM__CALL_HELD) {
        cut(call, detail);
    }
    tdm__executor_release(call);
}

void tdm__executor_on_arrival(struct tdm__executor *executor, tdm__arrival_fn *fn, void *arg)
{
    executor->on_arrival = fn;
    executor->on_arrival_arg = arg;
}

/* ---- notices ---------------------------------------------------------------------------- */

static void on_notice(void *arg, enum tdm__notice notice, uint64_t items_taken)
{
    tdm_call *call = arg;

    switch (notice) {
    case TDM__NOTICE_CANCEL_CHILDREN:
        tdm__children_cancel(tdm_runtime_current(), call->number);
        /* fall through */
    case TDM__NOTICE_CANCEL:
        atomic_store_explicit(&call->canceled, true, memory_order_relaxed);
        if (tdm__call_is_in_line(call)) {
            drop(call, TDM_E_CANCELED, "it was canceled before it began");
        }
        break;
    case TDM__NOTICE_CREDIT:
        call->items_taken = items_taken;
        break;
    case TDM__NOTICE_CLOSED:
        atomic_store_explicit(&call->abandoned, true, memory_order_relaxed);
        break;
    }
}

static void attach(tdm_call *call, struct tdm__incoming *incoming)
{
    call->incoming = incoming;
    tdm__incoming_on_notice(incoming, on_notice, call);
}

/* ---- arriving --------------------------------------------------------------------------- */

/* A call that is here already: its answer goes to where it came from last.  A stream's items
 * have gone to where nobody takes them. */
static void take_up(tdm_call *call, struct tdm__incoming *incoming)
{
    struct tdm__executor *executor = call->executor;
    struct tdm__incoming *before = call->incoming;

    if (call->wants_items) {
        tdm__incoming_refuse(incoming, TDM_E_CLOSED, TDM__STREAM_BROKEN);
        return;
    }
    if (call->document != NULL) {
        tdm__incoming_give_back(incoming); /* the arguments are here */
    } else if (call->pull == NULL) {
        tdm__incoming_give_back(before);
    }
    attach(call, incoming);
    atomic_store_explicit(&call->abandoned, false, memory_order_relaxed);
    tdm__incoming_fail(before, TDM_E_CLOSED, "it was sent again");
    if (call->pull != NULL) {
        executor->on_arrival(executor->on_arrival_arg, call); /* which fetches from there */
    }
}

/* A call that has come before, and not in vain. */
static bool answer_again(struct tdm__executor *executor, struct tdm__caller *caller,
                         struct tdm__incoming *incoming)
{
    uint64_t sequence = tdm__incoming_sequence(incoming);
    const struct tdm__answer *answer = tdm__caller_answer(caller, sequence);
    tdm_call *call;

    if (answer != NULL) {
        tdm__incoming_give_back(incoming);
        tdm__answer_send(answer, incoming);
        return true;
    }
    call = tdm__caller_find_call(caller, TAILQ_FIRST(&executor->calls), sequence);
    if (call != NULL) {
        take_up(call, incoming);
        return true;
    }
    return false;
}

static tdm_status may_queue(struct tdm__executor *executor, const struct tdm__caller *caller,
                            uint64_t sequence)
{
    if (executor->ending >= ENDS) {
        return tdm__fail(TDM_E_ACTOR_DIED, "the actor ended before it came to this call");
    }
    if (executor->waiting_count >= WAITING_MAX) {
        return tdm__fail(TDM_E_AGAIN, "the mailbox is full: %u calls wait",
                         executor->waiting_count);
    }
    return sequence == 0 ? TDM_OK : tdm__caller_has_room(&executor->callers, caller);
}

/* The method's own, or the one that the call asks for. */
static tdm_status lane_for(struct tdm__executor *executor,
                           const struct tdm_method_entry *method, uint32_t group,
                           struct tdm__lane **lane_out)
{
    *lane_out = group == 0 ? executor->lane_of_method[method - executor->actor_class->methods]
                           : tdm__lane_numbered(executor->lanes, executor->lanes_count, group);
    return *lane_out != NULL ? TDM_OK
                             : tdm__fail(TDM_E_NOT_FOUND,
                                         "class %s has not the concurrency group of this call",
                                         executor->actor_class->name);
}

static tdm_status call_create(struct tdm__executor *executor, struct tdm__caller *caller,
                              struct tdm__incoming *incoming, tdm_call **call_out)
{
    const char *name = tdm__incoming_method(incoming);
    const struct tdm_method_entry *method = tdm__method_find(&executor->methods, name);
    char methods[METHODS_TEXT_BYTES];
    struct tdm__lane *lane;
    tdm_call *call;

    if (method != NULL) {
        TDM_TRY(lane_for(executor, method, tdm__incoming_group(incoming), &lane));
    } else {
        return tdm__fail(
            TDM_E_NOT_FOUND, "class %s has no method \"%s\"; it has: %s",
            executor->actor_class->name, name,
            tdm__class_methods_text(executor->actor_class, methods, sizeof(methods)));
    }
    call = tdm__spare_take_zeroed(sizeof(*call));
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
    call->caller = caller;
    call->method = method;
    call->number = executor->arrivals_count;
    call->lane = lane;
    call->sequence = tdm__incoming_sequence(incoming);
    call->deadline_ms = tdm__incoming_deadline(incoming);
    call->arrived_ms = tdm__incoming_arrived(incoming);
    call->wants_items = tdm__incoming_wants_items(incoming);
    *call_out = call;
    return TDM_OK;
}

/* TDM_OK: `incoming` is taken. */
static tdm_status arrive(struct tdm__executor *executor, struct tdm__incoming *incoming)
{
    uint64_t sequence = tdm__incoming_sequence(incoming);
    struct tdm__caller *caller;
    tdm_call *call;

    TDM_TRY(tdm__caller_find(&executor->callers, tdm__incoming_peer(incoming), &caller));
    if (sequence != 0) {
        tdm__caller_acknowledge(&executor->callers, caller,
                                tdm__incoming_acknowledged(incoming));
        if (sequence <= caller->highest && answer_again(executor, caller, incoming)) {
            return TDM_OK;
        }
        TDM_TRY(tdm__caller_may_run(caller, sequence));
    }
    TDM_TRY(may_queue(executor, caller, sequence));
    TDM_TRY(call_create(executor, caller, incoming, &call));
    caller->highest = sequence > caller->highest ? sequence : caller->highest;
    caller->calls_count++;
    executor->waiting_count++;
    tdm__tally_arrived(&executor->tally, call->method);
    TAILQ_INSERT_TAIL(&executor->calls, call, all_link);
    attach(call, incoming);
    if (executor->on_arrival != NULL) {
        executor->on_arrival(executor->on_arrival_arg, call);
    }
    if (call->state == TDM__CALL_HELD) {
        put_in_line(call);
    } else {
        call_settle(call);
    }
    return TDM_OK;
}

void tdm__executor_arrive(struct tdm__executor *executor, struct tdm__incoming *incoming)
{
    tdm_status status;

    executor->arrivals_count++;
    status = arrive(executor, incoming);
    if (status != TDM_OK) {
        tdm__incoming_refuse(incoming, status, tdm_error_detail());
    }
}

/* ---- the main thread -------------------------------------------------------------------- */

static bool is_empty(const struct tdm__executor *executor)
{
    if (executor->waiting_count > 0) {
        return false;
    }
    for (uint32_t i = 0; i < executor->lanes_count; i++) {
        if (!tdm__lane_is_empty(&executor->lanes[i])) {
            return false;
        }
    }
    return true;
}

static bool may_end(const struct tdm__executor *executor)
{
    return executor->ending == ENDS ? executor->running_count == 0
                                    : executor->ending == DRAINS && is_empty(executor);
}

static bool something_to_do(void *arg)
{
    const struct tdm__executor *executor = arg;

    if (!executor->threaded && executor->ending != ENDS) {
        for (uint32_t i = 0; i < executor->lanes_count; i++) {
            if (tdm__lane_has_work(&executor->lanes[i])) {
                return true;
            }
        }
    }
    return executor->ending != GOES_ON && may_end(executor);
}

static void work(struct tdm__executor *executor)
{
    for (uint32_t i = 0; i < executor->lanes_count && executor->ending != ENDS; i++) {
        if (tdm__lane_has_work(&executor->lanes[i])) {
            tdm__lane_work(&executor->lanes[i]);
        }
    }
}

/* Rounds of the loop that have to be over; whoever drives it makes them. */
struct look {
    struct tdm__loop *loop;
    int rounds_left;
    bool abandoned; /* nobody waits for it any more: it frees itself */
};

static void on_look(void *arg)
{
    struct look *look = arg;

    if (look->abandoned) {
        free(look);
        return;
    }
    look->rounds_left--;
    if (look->rounds_left > 0 && tdm__loop_post(look->loop, on_look, look) != TDM_OK) {
        look->rounds_left = 0;
    }
}

static bool look_is_over(void *arg)
{
    const struct look *look = arg;

    return look->rounds_left == 0;
}

/* What was sent before the end was asked for may still lie in a socket, or have been seen there
 * by another thread that drives.  The first post is found by a poll that begins now or later,
 * the second when all that this poll has found is done. */
static bool has_drained(struct tdm__executor *executor)
{
    struct look *look = calloc(1, sizeof(*look));
    uint64_t before = executor->arrivals_count;

    if (look == NULL) {
        return is_empty(executor);
    }
    *look = (struct look){executor->loop, 2, false};
    if (tdm__loop_post(executor->loop, on_look, look) != TDM_OK ||
        tdm__loop_run(executor->loop, look_is_over, look, TDM__NEVER) == TDM_OK) {
        free(look);
    } else {
        look->abandoned = true;
    }
    return executor->arrivals_count == before && is_empty(executor);
}

static bool has_ended(struct tdm__executor *executor)
{
    return executor->ending != GOES_ON && may_end(executor) &&
           (executor->ending == ENDS || has_drained(executor));
}

/* No method runs.  Kept calls have an owner somewhere who may still answer: they stay in memory
 * until he has had his last chance, in the class's destruct. */
static void fail_all(struct tdm__executor *executor)
{
    tdm_call *call;

    TAILQ_FOREACH(call, &executor->calls, all_link)
    {
        call->is_loose = true;
        if (tdm__call_is_in_line(call)) {
            leave_line(call);
            answer_failure(call, TDM_E_ACTOR_DIED,
                           "the actor ended before it came to this call");
        } else if (!call->answered) {
            answer_failure(call, TDM_E_ACTOR_DIED, "the actor ended before it answered");
        }
    }
}

void tdm__executor_run(struct tdm__executor *executor)
{
    TDM__ENTER(executor->loop);

    tdm__call_thread_begin();
    for (uint32_t i = 0; i < executor->lanes_count && executor->ending != ENDS; i++) {
        tdm__lane_open(&executor->lanes[i]);
    }
    while (!has_ended(executor)) {
        if (!something_to_do(executor)) {
            (void)tdm__loop_run(executor->loop, something_to_do, executor, TDM__NEVER);
        }
        if (!executor->threaded) {
            work(executor);
        }
    }
    executor->ending = ENDED;
    fail_all(executor);
    for (uint32_t i = 0; i < executor->lanes_count; i++) {
        tdm__lane_stop(&executor->lanes[i]);
    }
    tdm__call_thread_end();
}

void tdm__executor_end(struct tdm__executor *executor, bool drain)
{
    TDM__ENTER(executor->loop);

    if (executor->ending < ENDS) {
        executor->ending = drain ? DRAINS : ENDS;
        tdm__loop_wake(executor->loop);
    }
}

tdm_status tdm__executor_post(struct tdm__executor *executor, void (*fn)(void *arg), void *arg)
{
    return tdm__lane_post(&executor->lanes[0], fn, arg);
}

uint32_t tdm__executor_waiting_count(const struct tdm__executor *executor)
{
    return executor->waiting_count;
}

const struct tdm__calls *tdm__executor_calls(const struct tdm__executor *executor)
{
    return &executor->calls;
}

const struct tdm__tally *tdm__executor_tally(const struct tdm__executor *executor)
{
    return &executor->tally;
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

static tdm_status add_lane(struct tdm__executor *executor, const char *name, uint32_t limit)
{
    if (limit == 0) {
        return tdm__fail(TDM_E_INVAL, "class %s: group \"%s\" has a max_concurrency of 0",
                         executor->actor_class->name, name);
    }
    tdm__lane_init(&executor->lanes[executor->lanes_count], executor->loop, name, limit,
                   executor->threaded, run_call);
    executor->lanes_count++;
    return TDM_OK;
}

static tdm_status add_groups(struct tdm__executor *executor)
{
    const struct tdm_concurrency_group *groups = executor->actor_class->concurrency_groups;

    for (uint32_t i = 0; i < TDM_CONCURRENCY_GROUPS_MAX && groups[i].name != NULL; i++) {
        TDM_TRY(add_lane(executor, groups[i].name, groups[i].max_concurrency));
    }
    return TDM_OK;
}

static tdm_status find_lane(struct tdm__executor *executor,
                            const struct tdm_method_entry *method, struct tdm__lane **lane_out)
{
    const char *group = method->concurrency_group;

    *lane_out = group == NULL ? &executor->lanes[0]
                              : tdm__lane_numbered(executor->lanes, executor->lanes_count,
                                                   tdm__concurrency_group_number(group));
    return *lane_out != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL,
                           "class %s: method \"%s\" is in a group \"%s\" it has not",
                           executor->actor_class->name, method->name, group);
}

static tdm_status make_lanes(struct tdm__executor *executor,
                             const struct tdm__executor_options *options)
{
    const struct tdm_actor_class *actor_class = options->actor_class;
    bool has_groups = actor_class->concurrency_groups[0].name != NULL;

    executor->threaded =
        actor_class->asynchronous == 0 && (has_groups || default_limit(options) > 1);
    executor->ordered =
        actor_class->asynchronous == 0 && !executor->threaded && !options->out_of_order;
    TDM_TRY(add_lane(executor, TDM__DEFAULT_GROUP, default_limit(options)));
    TDM_TRY(add_groups(executor));
    for (uint32_t i = 0; i < TDM_METHODS_MAX && actor_class->methods[i].name != NULL; i++) {
        TDM_TRY(find_lane(executor, &actor_class->methods[i], &executor->lane_of_method[i]));
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
    tdm__tally_init(&executor->tally, options->actor_class);
    tdm__callers_init(&executor->callers);
    TAILQ_INIT(&executor->calls);
    status = make_lanes(executor, options);
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
    TDM__ENTER(executor->loop);
    for (tdm_call *call = TAILQ_FIRST(&executor->calls); call != NULL; call = next) {
        next = TAILQ_NEXT(call, all_link);
        TDM_ASSERT(call->answered);
        if (call->held_answer != NULL) {
            send_answer(call, &call->held_answer->answer); /* who held it will not release it */
            tdm__kept_answer_destroy(call->held_answer);
        }
        tdm__call_free(call);
    }
    tdm__callers_fini(&executor->callers);
    free(executor);
}
