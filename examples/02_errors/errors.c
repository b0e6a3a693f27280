/* errors.c - what a caller reads when a method fails, a constructor fails, an actor is killed.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <tandem/tandem.h>

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

/* Takes its whole process with it, as a bug would. */
static tdm_status engine_crash(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    (void)raise(SIGKILL);
    return TDM_OK;
}

TDM_ACTOR_CLASS(engine, .construct = engine_construct,
                .methods = {{"generate", engine_generate}, {"crash", engine_crash}});

/* Prints how a call ended: its status, and the words of whoever decided it. */
static void show(tdm_ref *ref)
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

    /* A method that fails: the actor lives on. */
    TDM_CHECK(tdm_actor_create(runtime, "engine", &(struct tdm_actor_options){.name = "engine/0"},
                               &engine, "s", "petrol"));
    TDM_CHECK(tdm_actor_call(engine, "generate", &ref, "i", (int64_t)700));
    show(ref);
    TDM_CHECK(tdm_actor_call(engine, "degenerate", &ref, ""));
    show(ref);

    /* A constructor that fails: the first call tells. */
    TDM_CHECK(tdm_actor_create(runtime, "engine", &(struct tdm_actor_options){.name = "engine/1"},
                               &wrong, "s", "water"));
    TDM_CHECK(tdm_actor_call(wrong, "generate", &ref, "i", (int64_t)7));
    show(ref);

    /* An actor that dies: who, where, how, and what it was doing. */
    TDM_CHECK(tdm_actor_call(engine, "crash", &ref, ""));
    show(ref);

    tdm_actor_destroy(engine);
    tdm_actor_destroy(wrong);
    tdm_runtime_stop(runtime);
    return 0;
}
