/* hello.c - an actor that counts, called by the program that creates it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

struct counter {
    int64_t total; /* Sum of all numbers added so far. */
};

/* Method add(i): adds the argument to the total and replies with the new total. The letter i in the
 * formats stands for an int64_t (value.h lists the letters). TDM_TRY returns a failure to the
 * caller. */
static tdm_status counter_add(tdm_call *call, void *self)
{
    struct counter *counter = self;
    int64_t by;

    TDM_TRY(tdm_call_unpack(call, "i", &by));
    counter->total += by;
    return tdm_call_reply(call, "i", counter->total);
}

TDM_ACTOR_CLASS(counter, .state_bytes = sizeof(struct counter), .methods = {{"add", counter_add}});

int main(void)
{
    tdm_runtime *runtime;
    tdm_actor *counter;
    tdm_ref *ref;
    int64_t total;

    /* Starts a private node, which ends with this program. The process of an actor runs this
     * program too, and becomes the actor in this function. TDM_CHECK ends it on a failure. */
    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    /* The actor holds a quarter of a GPU, which is virtual here. There are no arguments (""). */
    TDM_CHECK(tdm_actor_create(runtime, "counter",
                               &(struct tdm_actor_options){.num_gpus = 0.25, .name = "hits"},
                               &counter, ""));
    for (int64_t i = 1; i <= 3; i++) {
        TDM_CHECK(tdm_actor_call(counter, "add", &ref, "i", i));
        TDM_CHECK(tdm_get(ref, 5000, "i", &total)); /* The timeout is in milliseconds. */
        tdm_ref_release(ref);
    }
    (void)printf("the counter stands at %lld\n", (long long)total);

    /* A wrong argument list fails the call. The error text has the expected and the given types. */
    TDM_CHECK(tdm_actor_call(counter, "add", &ref, "s", "three"));
    (void)printf("%s: ", tdm_strerror(tdm_get(ref, 5000, "i", &total)));
    (void)printf("%s\n", tdm_error_detail());
    tdm_ref_release(ref);

    tdm_actor_destroy(counter);
    tdm_runtime_stop(runtime);
    return 0;
}
