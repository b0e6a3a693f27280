/* methods.c - what simulated actors can do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/methods.h"

#include "runtime/assert.h"
#include "tests/sim/model.h"
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <tandem/actor.h>

enum { READ_MS = 200, KEEP_MS_MAX = 20 };

struct state {
    char actor_id[33];
    uint32_t incarnation;
    tdm_ref *shelf;
    int64_t shelf_value;
};

void methods_set_actor(void *self, const char *actor_id, uint32_t incarnation)
{
    struct state *state = self;

    (void)snprintf(state->actor_id, sizeof(state->actor_id), "%s", actor_id);
    state->incarnation = incarnation;
}

static void begins(const struct state *state, int64_t number)
{
    model_ran((uint32_t)number, state->actor_id, state->incarnation);
}

/* ---- kept calls ------------------------------------------------------------------------- */

struct kept {
    tdm_call *call;
    int64_t answer;
};

static void reply_later(void *arg)
{
    struct kept *kept = arg;

    sim_sleep(sim_below(KEEP_MS_MAX));
    (void)tdm_call_reply(kept->call, "i", kept->answer);
    free(kept);
}

static tdm_status keep_call(tdm_call *call, int64_t answer)
{
    struct kept *kept;

    TDM_TRY(tdm_call_keep(call));
    kept = calloc(1, sizeof(*kept));
    TDM_ASSERT(kept != NULL);
    kept->call = call;
    kept->answer = answer;
    sim_fiber_start(reply_later, kept);
    return TDM_OK;
}

/* ---- methods ---------------------------------------------------------------------------- */

/* Large values are (number, bytes). */
static int64_t number_in(const tdm_value *value)
{
    const tdm_value *first = tdm_value_kind_of(value) == TDM_ARRAY ? tdm_value_at(value, 0) : value;

    return tdm_value_int(first, -1);
}

static tdm_status note(tdm_call *call, void *self)
{
    const tdm_value *value;
    int64_t number;

    TDM_TRY(tdm_call_unpack(call, "iv", &number, &value));
    begins(self, number);
    return tdm_call_reply(call, "i", model_reply((uint32_t)number, number_in(value)));
}

static tdm_status note_later(tdm_call *call, void *self)
{
    const tdm_value *value;
    int64_t number;

    TDM_TRY(tdm_call_unpack(call, "iv", &number, &value));
    begins(self, number);
    return keep_call(call, model_reply((uint32_t)number, number_in(value)));
}

static tdm_status fail(tdm_call *call, void *self)
{
    int64_t number;

    TDM_TRY(tdm_call_unpack(call, "i", &number));
    begins(self, number);
    return tdm_fail(TDM_E_METHOD, "on purpose");
}

static tdm_status slow(tdm_call *call, void *self)
{
    int64_t milliseconds;
    int64_t number;

    TDM_TRY(tdm_call_unpack(call, "ii", &number, &milliseconds));
    begins(self, number);
    for (int64_t i = 0; i < milliseconds && tdm_call_is_canceled(call) == 0; i += 5) {
        sim_sleep(5);
    }
    return tdm_call_reply(call, "i", model_reply((uint32_t)number, 0));
}

static tdm_status keep(tdm_call *call, void *self)
{
    struct state *state = self;
    tdm_ref *before = state->shelf;
    tdm_ref *ref;
    int64_t number;
    int64_t value;

    TDM_TRY(tdm_call_unpack(call, "iRi", &number, &ref, &value));
    begins(state, number);
    state->shelf = ref;
    state->shelf_value = value;
    tdm_ref_release(before);
    return tdm_call_reply(call, "i", model_reply((uint32_t)number, 0));
}

static tdm_status read_shelf(tdm_call *call, void *self)
{
    struct state *state = self;
    const tdm_value *value;
    int64_t number;
    int64_t wanted;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "i", &number));
    begins(state, number);
    if (state->shelf == NULL) {
        return tdm_call_reply(call, "i", model_reply((uint32_t)number, 0));
    }
    TDM_TRY(tdm_ref_copy(state->shelf, &ref));
    wanted = state->shelf_value;
    status = tdm_get_value(ref, READ_MS, &value);
    if (status == TDM_OK && wanted >= 0 && number_in(tdm_value_at(value, 0)) != wanted) {
        model_fail("a shelf's value is %lld, not %lld",
                   (long long)number_in(tdm_value_at(value, 0)), (long long)wanted);
    }
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", model_reply((uint32_t)number, 0));
}

static tdm_status give(tdm_call *call, void *self)
{
    struct state *state = self;
    int64_t value = state->shelf_value;
    int64_t number;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "i", &number));
    begins(state, number);
    if (state->shelf == NULL || sim_below(2) == 0) {
        value = model_reply((uint32_t)number, 1);
        TDM_TRY(tdm_put(tdm_runtime_current(), &ref, "i", value));
    } else {
        TDM_TRY(tdm_ref_copy(state->shelf, &ref));
    }
    status = tdm_call_reply(call, "iRi", model_reply((uint32_t)number, 0), ref, value);
    tdm_ref_release(ref);
    return status;
}

/* Calls another actor, number `index` of the model, by the handle that is an argument of the call
 * `from`. */
static tdm_status call_note(tdm_actor *actor, uint32_t index, bool counted, uint32_t from)
{
    uint32_t number = model_call_add(index, "note");
    struct model_call *made = &model.calls[number];
    int64_t answer = 0;
    tdm_ref *ref;
    tdm_status status = tdm_actor_call(actor, "note", &ref, "ii", (int64_t)number, (int64_t)3);

    made->expected = model_reply(number, 3);
    made->has_uncounted_handle = !counted;
    made->handle_from = (int32_t)from;
    if (status == TDM_OK) {
        status = tdm_get(ref, TDM_FOREVER, "i", &answer);
        tdm_ref_release(ref);
    }
    if (!sim_is_dying()) {
        model_result(number, status, answer);
    }
    return status;
}

static tdm_status relay(tdm_call *call, void *self)
{
    tdm_actor *actor;
    int64_t number;
    int64_t index;
    int64_t counted;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "ihii", &number, &actor, &index, &counted));
    begins(self, number);
    status = sim_is_dying() || model_is_full()
                 ? TDM_OK
                 : call_note(actor, (uint32_t)index, counted != 0, (uint32_t)number);
    tdm_actor_destroy(actor);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", model_reply((uint32_t)number, 0));
}

static tdm_status count(tdm_call *call, void *self)
{
    int64_t number;
    int64_t items;

    TDM_TRY(tdm_call_unpack(call, "ii", &number, &items));
    begins(self, number);
    for (int64_t i = 1; i <= items; i++) {
        TDM_TRY(tdm_call_yield(call, "i", number + i));
    }
    return TDM_OK;
}

static void destruct(void *self)
{
    struct state *state = self;

    tdm_ref_release(state->shelf);
}

TDM_ACTOR_CLASS(plain, .state_bytes = sizeof(struct state), .destruct = destruct,
                .methods = {
                    {"note", note, NULL},
                    {"fail", fail, NULL},
                    {"slow", slow, NULL},
                    {"keep", keep, NULL},
                    {"read", read_shelf, NULL},
                    {"give", give, NULL},
                    {"relay", relay, NULL},
                    {"count", count, NULL},
                });

TDM_ACTOR_CLASS(asynchronous, .state_bytes = sizeof(struct state), .destruct = destruct,
                .asynchronous = 1,
                .methods = {
                    {"note", note_later, NULL},
                    {"fail", fail, NULL},
                    {"slow", slow, NULL},
                    {"keep", keep, NULL},
                    {"read", read_shelf, NULL},
                    {"give", give, NULL},
                    {"relay", relay, NULL},
                    {"count", count, NULL},
                });

TDM_ACTOR_CLASS(threaded, .state_bytes = sizeof(struct state), .destruct = destruct,
                .concurrency_groups = {{"quick", 2}, {"long", 1}},
                .methods = {
                    {"note", note, "quick"},
                    {"fail", fail, NULL},
                    {"slow", slow, "long"},
                    {"keep", keep, NULL},
                    {"read", read_shelf, NULL},
                    {"give", give, NULL},
                    {"relay", relay, "long"},
                    {"count", count, "quick"},
                });
