/* restarts.c - an actor that crashes, is restarted with the same ID, and is called again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <sys/types.h>
#include <tandem/tandem.h>

/* State of the actor. A restarted actor gets the same constructor arguments; other state is
 * lost. */
struct sampler {
    int64_t seed;
    int64_t samples_count;
};

static tdm_status sampler_construct(tdm_call *call, void *self)
{
    return tdm_call_unpack(call, "i", &((struct sampler *)self)->seed);
}

static tdm_status sampler_sample(tdm_call *call, void *self)
{
    struct sampler *sampler = self;

    sampler->samples_count++;
    return tdm_call_reply(call, "ii", sampler->seed, sampler->samples_count);
}

/* Method crash(i): kills its process if the actor has been restarted fewer times than the argument
 * says. */
static tdm_status sampler_crash(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    int64_t lives;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &lives));
    tdm_runtime_describe(tdm_runtime_current(), &info);
    if (info.restarts_count < lives) {
        (void)raise(SIGKILL);
    }
    return tdm_call_reply(call, "u", (uint64_t)info.restarts_count);
}

TDM_ACTOR_CLASS(sampler, .state_bytes = sizeof(struct sampler), .construct = sampler_construct,
                .methods = {{"sample", sampler_sample}, {"crash", sampler_crash}});

static void print_sample(tdm_actor *sampler)
{
    int64_t seed;
    int64_t count;
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(sampler, "sample", &ref, ""));
    TDM_CHECK(tdm_get(ref, 10000, "ii", &seed, &count));
    (void)printf("sample %lld with seed %lld\n", (long long)count, (long long)seed);
    tdm_ref_release(ref);
}

int main(void)
{
    struct tdm_actor_options options = {
        .name = "sampler", .max_restarts = 2, .max_task_retries = 1};
    tdm_runtime *runtime;
    tdm_actor *sampler;
    tdm_ref *ref;
    uint64_t restarts;
    tdm_status status;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "sampler", &options, &sampler, "i", (int64_t)42));
    print_sample(sampler);
    print_sample(sampler);

    /* max_task_retries is 1, so that this call is sent again to the restarted actor. */
    TDM_CHECK(tdm_actor_call(sampler, "crash", &ref, "i", (int64_t)1));
    TDM_CHECK(tdm_get(ref, 20000, "u", &restarts));
    (void)printf("answered after %llu restart\n", (unsigned long long)restarts);
    tdm_ref_release(ref);
    print_sample(sampler); /* The restarted actor has lost its count. */

    /* This call crashes the actor twice. The second restart is used up, so the actor is dead. */
    TDM_CHECK(tdm_actor_call(sampler, "crash", &ref, "i", (int64_t)99));
    status = tdm_get(ref, 20000, "u", &restarts);
    (void)printf("%s: %s\n", tdm_strerror(status), tdm_error_detail());
    tdm_ref_release(ref);

    tdm_actor_destroy(sampler);
    tdm_runtime_stop(runtime);
    return 0;
}
