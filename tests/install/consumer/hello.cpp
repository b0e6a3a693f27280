/* hello.cpp - an actor and its driver in C++, built against an installed Tandem. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cstdio>
#include <tandem/tandem.h>

struct counter {
    int64_t total;
};

static tdm_status counter_add(tdm_call *call, void *self)
{
    counter *state = static_cast<counter *>(self);
    int64_t by;

    TDM_TRY(tdm_call_unpack(call, "i", &by));
    state->total += by;
    return tdm_call_reply(call, "i", state->total);
}

TDM_ACTOR_CLASS(counter, .state_bytes = sizeof(struct counter),
                .methods = {{"add", counter_add, nullptr}});

int main()
{
    tdm_actor_options options = {};
    tdm_runtime *runtime;
    tdm_actor *actor;
    tdm_ref *ref;
    int64_t total;

    TDM_CHECK(tdm_runtime_start(nullptr, &runtime));
    options.num_gpus = 0.25;
    TDM_CHECK(tdm_actor_create(runtime, "counter", &options, &actor, ""));
    TDM_CHECK(tdm_actor_call(actor, "add", &ref, "i", int64_t{6}));
    TDM_CHECK(tdm_get(ref, 20000, "i", &total));
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
    tdm_runtime_stop(runtime);
    return std::printf("the counter stands at %d\n", static_cast<int>(total)) < 0;
}
