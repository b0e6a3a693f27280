/* queue.c - a bounded queue between producers and a consumer, each a process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

enum { PRODUCERS = 2, PROMPTS = 3, ROOM = 2 };

/* Method produce(hi): puts items into the queue whose handle is the first argument. It waits while
 * the queue is full, so that the consumer sets the pace. */
static tdm_status producer_produce(tdm_call *call, void *self)
{
    tdm_status status = TDM_OK;
    tdm_actor *queue;
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "hi", &queue, &number));
    for (int64_t i = 0; status == TDM_OK && i < PROMPTS; i++) {
        status = tdm_queue_put(queue, 10000, "ii", number, i);
    }
    tdm_actor_destroy(queue);
    return status;
}

TDM_ACTOR_CLASS(producer, .methods = {{"produce", producer_produce}});

int main(void)
{
    int64_t prompts[PRODUCERS] = {0};
    tdm_actor *producers[PRODUCERS];
    tdm_ref *produced[PRODUCERS];
    tdm_runtime *runtime;
    tdm_actor *queue;
    tdm_ref *item;
    tdm_status status;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    /* A queue is an actor. At most ROOM items are in it at once. */
    TDM_CHECK(tdm_queue_create(runtime, ROOM, NULL, &queue));
    for (int i = 0; i < PRODUCERS; i++) {
        TDM_CHECK(tdm_actor_create(runtime, "producer", NULL, &producers[i], ""));
        TDM_CHECK(tdm_actor_call(producers[i], "produce", &produced[i], "hi", queue, (int64_t)i));
    }
    for (int i = 0; i < PRODUCERS * PROMPTS; i++) {
        int64_t number;
        int64_t prompt;

        TDM_CHECK(tdm_queue_get(queue, 10000, &item));
        TDM_CHECK(tdm_get(item, 0, "ii", &number, &prompt));
        if (prompt != prompts[number]++) {
            (void)printf("producer %lld is out of order\n", (long long)number);
        }
        tdm_ref_release(item);
    }
    for (int i = 0; i < PRODUCERS; i++) {
        (void)printf("%lld prompts of producer %d\n", (long long)prompts[i], i);
        TDM_CHECK(tdm_get(produced[i], 10000, ""));
        tdm_ref_release(produced[i]);
        tdm_actor_destroy(producers[i]);
    }

    status = tdm_queue_get(queue, 0, &item); /* A timeout of 0 does not wait. */
    (void)printf("%s: %s\n", tdm_strerror(status), tdm_error_detail());
    tdm_actor_destroy(queue);
    tdm_runtime_stop(runtime);
    return 0;
}
