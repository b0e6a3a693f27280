/* asynchronous.c - an actor that collects calls and replies to them in batches. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

enum { BATCH = 4 };

struct batcher {
    tdm_call *waiting[BATCH]; /* Calls without a reply so far (owned). */
    uint32_t waiting_count;
    int64_t batches_count; /* Number of batches so far. */
};

/* Replies to all waiting calls. */
static void answer_all(struct batcher *batcher)
{
    batcher->batches_count++;
    for (uint32_t i = 0; i < batcher->waiting_count; i++) {
        tdm_call *call = batcher->waiting[i];
        int64_t number;

        if (tdm_call_unpack(call, "i", &number) == TDM_OK) {
            (void)tdm_call_reply(call, "ii", number * number, batcher->batches_count);
        } else {
            tdm_call_fail(call, TDM_E_TYPE, "%s", tdm_error_detail());
        }
    }
    batcher->waiting_count = 0;
}

/* Method square(i): returns at once. Its call gets a reply when the batch is full. All methods of
 * an asynchronous class run on one thread, so that `self` needs no lock. */
static tdm_status batcher_square(tdm_call *call, void *self)
{
    struct batcher *batcher = self;

    TDM_TRY(tdm_call_keep(call));
    batcher->waiting[batcher->waiting_count++] = call;
    if (batcher->waiting_count == BATCH) {
        answer_all(batcher);
    }
    return TDM_OK;
}

/* Method flush(): replies to all waiting calls without waiting for a full batch. */
static tdm_status batcher_flush(tdm_call *call, void *self)
{
    (void)call;
    answer_all(self);
    return TDM_OK; /* The runtime replies with nil. */
}

TDM_ACTOR_CLASS(batcher, .state_bytes = sizeof(struct batcher), .asynchronous = 1,
                .methods = {{"square", batcher_square}, {"flush", batcher_flush}});

int main(void)
{
    enum { CALLS = BATCH + 2 };
    tdm_runtime *runtime;
    tdm_actor *batcher;
    tdm_ref *refs[CALLS];

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "batcher", NULL, &batcher, ""));
    for (int64_t i = 0; i < CALLS; i++) {
        TDM_CHECK(tdm_actor_call(batcher, "square", &refs[i], "i", i));
    }
    TDM_CHECK(tdm_actor_call(batcher, "flush", NULL, ""));
    for (int i = 0; i < CALLS; i++) {
        int64_t square;
        int64_t batch;

        TDM_CHECK(tdm_get(refs[i], 10000, "ii", &square, &batch));
        (void)printf("%d squared is %lld, from batch %lld\n", i, (long long)square,
                     (long long)batch);
        tdm_ref_release(refs[i]);
    }
    tdm_actor_destroy(batcher);
    tdm_runtime_stop(runtime);
    return 0;
}
