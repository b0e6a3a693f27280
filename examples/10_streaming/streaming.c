/* streaming.c - a method that yields tokens while its caller reads them, at the caller's pace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <tandem/tandem.h>

enum { TOKENS = 40 };

struct engine {
    atomic_int yielded_count; /* Number of tokens yielded so far. */
};

/* Method generate(): yields tokens and then fails on purpose. tdm_call_yield() blocks while
 * TDM_STREAM_ITEMS_AHEAD items (16) wait for the reader. */
static tdm_status engine_generate(tdm_call *call, void *self)
{
    struct engine *engine = self;
    char token[16];

    for (int i = 0; i < TOKENS; i++) {
        (void)snprintf(token, sizeof(token), "token %d", i);
        TDM_TRY(tdm_call_yield(call, "s", token));
        (void)atomic_fetch_add(&engine->yielded_count, 1);
    }
    return tdm_fail(TDM_E_METHOD, "out of tokens after %d", TOKENS);
}

/* Method yielded(): replies with the number of tokens yielded so far. */
static tdm_status engine_yielded(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "i", (int64_t)atomic_load(&((struct engine *)self)->yielded_count));
}

TDM_ACTOR_CLASS(engine, .state_bytes = sizeof(struct engine),
                .methods = {{"generate", engine_generate, "generating"},
                            {"yielded", engine_yielded}},
                .concurrency_groups = {{"generating", 1}});

/* Calls yielded() and returns its reply. */
static int64_t ask_yielded(tdm_actor *engine)
{
    int64_t count;
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(engine, "yielded", &ref, ""));
    TDM_CHECK(tdm_get(ref, 10000, "i", &count));
    tdm_ref_release(ref);
    return count;
}

int main(void)
{
    tdm_runtime *runtime;
    tdm_actor *engine;
    tdm_stream *stream;
    tdm_status status;
    tdm_ref *item;
    const char *token;
    int count = 0;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "engine", NULL, &engine, ""));
    TDM_CHECK(tdm_actor_stream(engine, "generate", NULL, &stream, ""));
    /* The program does not read the stream yet. The method stops after 16 items and waits. */
    while (ask_yielded(engine) < TDM_STREAM_ITEMS_AHEAD) {
    }
    (void)printf("the engine is %lld tokens ahead\n", (long long)ask_yielded(engine));

    while ((status = tdm_stream_next(stream, 10000, &item)) == TDM_OK) {
        TDM_CHECK(tdm_get(item, 0, "s", &token));
        if (count++ % 10 == 0) {
            (void)printf("%s\n", token);
        }
        tdm_ref_release(item);
    }
    /* The items before the failure have been read. If the method returned TDM_OK, tdm_stream_next()
     * would now return TDM_E_END. */
    (void)printf("after %d: %s: %s\n", count, tdm_strerror(status), tdm_error_detail());

    tdm_stream_destroy(stream);
    tdm_actor_destroy(engine);
    tdm_runtime_stop(runtime);
    return 0;
}
