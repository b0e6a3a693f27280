/* model.c - what must have happened: every call, where it ran, and how it ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/model.h"

#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model model;
static uint64_t seed;

_Noreturn void model_fail(const char *format, ...)
{
    va_list args;

    (void)printf("seed %llu, step %llu: ", (unsigned long long)seed,
                 (unsigned long long)sim_steps_count());
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\nits history: TANDEM_SEED=%llu TANDEM_TRACE=1 sim_test\n",
                 (unsigned long long)seed);
    (void)fflush(stdout);
    abort();
}

void model_begin(uint64_t begun)
{
    seed = begun;
    model = (struct model){0};
}

uint32_t model_actor_add(enum model_class actor_class, bool may_restart)
{
    model.actors[model.actors_count] =
        (struct model_actor){.actor_class = actor_class, .may_restart = may_restart};
    return model.actors_count++;
}

bool model_is_full(void)
{
    return model.calls_count + 32 > MODEL_CALLS_MAX;
}

int64_t model_reply(uint32_t number, int64_t value)
{
    return (int64_t)(((uint64_t)value * 7 + number) & 0x7fffffff);
}

uint32_t model_call_add(uint32_t actor, const char *method)
{
    static uint64_t order;
    uint32_t number = model.calls_count++;

    if (number == MODEL_CALLS_MAX) {
        model_fail("the model has room for %d calls", (int)MODEL_CALLS_MAX);
    }
    model.calls[number] = (struct model_call){.actor = actor,
                                              .caller = sim_self(),
                                              .order = ++order,
                                              .method = method,
                                              .expected = model_reply(number, 0),
                                              .handle_from = -1,
                                              .source = -1};
    return number;
}

/* ---- runs ------------------------------------------------------------------------------- */

static bool is_later(const struct model_call *call, const struct model_call *other)
{
    return other->caller == call->caller && other->actor == call->actor &&
           other->order > call->order && other->runs_count > 0 &&
           other->last_incarnation == call->last_incarnation;
}

static void check_order(uint32_t number)
{
    const struct model_call *call = &model.calls[number];

    if (model.actors[call->actor].actor_class == MODEL_THREADED) {
        return;
    }
    for (uint32_t i = 0; i < model.calls_count; i++) {
        if (is_later(call, &model.calls[i])) {
            model_fail("call %u (%s) of actor %u ran after call %u of the same caller, which "
                       "was made later",
                       number, call->method, call->actor, i);
        }
    }
}

void model_ran(uint32_t number, const char *actor_id, uint32_t incarnation)
{
    struct model_call *call = &model.calls[number];

    if (sim_is_dying()) {
        return; /* No process receives it. */
    }
    sim_trace("runs call %u, %s", number, call->method);
    if (number >= model.calls_count || strcmp(actor_id, model.actors[call->actor].id) != 0) {
        model_fail("actor %s got call %u, which is another's", actor_id, number);
    }
    if (call->runs_count > 0 && call->last_incarnation >= incarnation) {
        model_fail("call %u (%s) ran twice in incarnation %u", number, call->method, incarnation);
    }
    if (call->max_retries >= 0 && call->runs_count > (uint32_t)call->max_retries) {
        model_fail("call %u (%s) ran %u times, its retries are %d", number, call->method,
                   call->runs_count + 1, call->max_retries);
    }
    call->runs_count++;
    call->last_incarnation = incarnation;
    check_order(number);
}

/* ---- results ---------------------------------------------------------------------------- */

bool model_may_lose(void)
{
    for (uint32_t i = 0; i < model.actors_count; i++) {
        if (model.actors[i].dropped) {
            return true; /* The actor may have owned the value and ended. */
        }
    }
    return model.cuts_count + model.owner_cuts_count + model.ends_count > 0;
}

/* What it waits for in its method has a model of its own. */
static bool is_of_another(tdm_status status)
{
    return status == TDM_E_TIMEOUT || status == TDM_E_ACTOR_RESTARTING ||
           status == TDM_E_ACTOR_DIED || status == TDM_E_METHOD || status == TDM_E_CANCELED;
}

/* True if a call with a deadline gave the actor a reference to keep. From the deadline on the
 * caller no longer holds the reference, and the actor may have been too late to pin it. The driver
 * need not have looked at the result of that call. */
static bool may_keep_a_released_reference(uint32_t actor)
{
    for (uint32_t i = 0; i < model.calls_count; i++) {
        const struct model_call *call = &model.calls[i];

        if (call->actor == actor && strcmp(call->method, "keep") == 0 && call->has_deadline) {
            return true;
        }
    }
    return false;
}

/* Returns true if the call's handle does not keep its actor alive. A handle that is an argument of
 * a method does so until the method's caller drops the arguments: at the call's deadline, or when
 * the connection of a canceled call has closed. */
static bool has_handle_without_hold(const struct model_call *call)
{
    const struct model_call *from;

    if (call->has_uncounted_handle || call->handle_from < 0) {
        return call->has_uncounted_handle;
    }
    from = &model.calls[call->handle_from];
    return from->has_deadline || (from->canceled && model.cuts_count > 0);
}

static bool may_end_so(const struct model_call *call, tdm_status status)
{
    const struct model_actor *actor = &model.actors[call->actor];

    if (call->source >= 0 && status == model.calls[call->source].result &&
        model.calls[call->source].had_result) {
        return true; /* The failure of its argument is the call's failure. */
    }
    if (call->source >= 0 && may_end_so(&model.calls[call->source], status)) {
        return true;
    }
    if (call->reads_another && is_of_another(status)) {
        return true;
    }
    switch ((int)status) {
    case TDM_E_CANCELED:
        return call->canceled;
    case TDM_E_TIMEOUT:
        return call->has_deadline;
    case TDM_E_ACTOR_RESTARTING:
        return actor->ends_wanted > 0 && actor->may_restart && call->max_retries >= 0;
    case TDM_E_ACTOR_DIED:
        return actor->ends_wanted > 0 || (has_handle_without_hold(call) && actor->dropped) ||
               model.owner_cuts_count > 0;
    case TDM_E_OWNER_DIED:
    case TDM_E_VALUE_LOST:
        return model_may_lose() ||
               (call->reads_another && may_keep_a_released_reference(call->actor));
    case TDM_E_METHOD:
        return call->fails;
    case TDM_E_CLOSED:
        return model.cuts_count > 0 && (call->may_be_large || strcmp(call->method, "count") == 0);
    default:
        return false;
    }
}

void model_result(uint32_t number, tdm_status status, int64_t value)
{
    struct model_call *call = &model.calls[number];

    sim_trace("call %u, %s, ended: %s%s%s", number, call->method, tdm_strerror(status),
              status == TDM_OK ? "" : ": ", status == TDM_OK ? "" : tdm_error_detail());
    if (call->had_result && call->result != status) {
        model_fail("call %u (%s) ended twice: %s, then %s", number, call->method,
                   tdm_strerror(call->result), tdm_strerror(status));
    }
    call->had_result = true;
    call->result = status;
    if (status != TDM_OK) {
        model.failures_count++;
        if (!may_end_so(call, status)) {
            model_fail("call %u (%s) of actor %u ended so: %s: %s", number, call->method,
                       call->actor, tdm_strerror(status), tdm_error_detail());
        }
        return;
    }
    model.oks_count++;
    if (call->runs_count == 0) {
        model_fail("call %u (%s) has a result and never ran", number, call->method);
    }
    if (value != call->expected) {
        model_fail("call %u (%s) gave %lld, not %lld", number, call->method, (long long)value,
                   (long long)call->expected);
    }
}

void model_done(uint32_t number)
{
    model.calls[number].results_count++;
    if (model.calls[number].results_count > 1) {
        model_fail("call %u (%s) was done twice", number, model.calls[number].method);
    }
}

void model_check_all(void)
{
    for (uint32_t i = 0; i < model.calls_count; i++) {
        if (model.calls[i].results_count == 0 && model.calls[i].is_watched) {
            model_fail("nobody was told of the end of call %u", i);
        }
    }
}
