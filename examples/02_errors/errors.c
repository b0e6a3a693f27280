/* errors.c - the errors that a caller gets when a method or constructor fails or an actor dies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <tandem/tandem.h>

/* Fails with a message of its own if the argument is "water". */
static tdm_status engine_construct(tdm_call *call, void *self)
{
    const char *fuel;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &fuel));
    if (strcmp(fuel, "water") == 0) {
        return tdm_fail(TDM_E_METHOD, "an engine does not run on %s", fuel);
    }
    return TDM_OK;
}

/* Method generate(i): fails if the number of tokens is above 512. */
static tdm_status engine_generate(tdm_call *call, void *self)
{
    int64_t tokens_count;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &tokens_count));
    if (tokens_count > 512) {
        return tdm_fail(TDM_E_METHOD, "a prompt of %lld tokens, at most 512",
                        (long long)tokens_count);
    }
    return tdm_call_reply(call, "i", tokens_count);
}

/* Kills its own process, as a crash would. */
static tdm_status engine_crash(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    (void)raise(SIGKILL);
    return TDM_OK;
}

TDM_ACTOR_CLASS(engine, .construct = engine_construct,
                .methods = {{"generate", engine_generate}, {"crash", engine_crash}});

/* Prints how a call ended: its status and the message of the process that failed. */
static void print_result(tdm_ref *ref)
{
    tdm_status status = tdm_get(ref, 10000, "");

    (void)printf("%s: %s\n", tdm_strerror(status), tdm_error_detail());
    tdm_ref_release(ref);
}

int main(void)
{
    tdm_runtime *runtime;
    tdm_actor *engine;
    tdm_actor *wrong;
    tdm_ref *ref;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));

    /* A method that fails does not end its actor. */
    TDM_CHECK(tdm_actor_create(runtime, "engine", &(struct tdm_actor_options){.name = "engine/0"},
                               &engine, "s", "petrol"));
    TDM_CHECK(tdm_actor_call(engine, "generate", &ref, "i", (int64_t)700));
    print_result(ref);
    TDM_CHECK(tdm_actor_call(engine, "degenerate", &ref, ""));
    print_result(ref);

    /* A constructor that fails makes every call of the actor fail, with its message. */
    TDM_CHECK(tdm_actor_create(runtime, "engine", &(struct tdm_actor_options){.name = "engine/1"},
                               &wrong, "s", "water"));
    TDM_CHECK(tdm_actor_call(wrong, "generate", &ref, "i", (int64_t)7));
    print_result(ref);

    /* When an actor dies, the error says which actor, on which node, how it died and what it ran.
     * After a SIGKILL that the node did not send, a second line says whether the kernel reports
     * that it killed the process for lack of memory. */
    TDM_CHECK(tdm_actor_call(engine, "crash", &ref, ""));
    print_result(ref);

    tdm_actor_destroy(engine);
    tdm_actor_destroy(wrong);
    tdm_runtime_stop(runtime);
    return 0;
}
