/* calls_with_options.c - several results, deadlines, retries, calls taken back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <tandem/tandem.h>

static tdm_status worker_divide(tdm_call *call, void *self)
{
    int64_t number;
    int64_t by;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "ii", &number, &by));
    return tdm_call_reply(call, "ii", number / by, number % by);
}

/* A long method looks now and then whether anybody still wants its result. */
static tdm_status worker_search(tdm_call *call, void *self)
{
    (void)self;
    while (!tdm_call_is_canceled(call)) {
        if (tdm_call_remaining_ms(call) == 0) {
            return tdm_fail(TDM_E_TIMEOUT, "nothing found in time");
        }
        (void)poll(NULL, 0, 1);
    }
    return TDM_OK;
}

/* Fails twice, as what depends on others may. */
static tdm_status worker_fetch(tdm_call *call, void *self)
{
    int64_t *attempts = self;

    (*attempts)++;
    if (*attempts < 3) {
        return tdm_fail(TDM_E_METHOD, "nobody there");
    }
    return tdm_call_reply(call, "i", *attempts);
}

/* Has another worker search, and waits for it. */
static tdm_status worker_delegate(tdm_call *call, void *self)
{
    tdm_actor *other;
    tdm_status status;
    tdm_ref *search;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "h", &other));
    TDM_TRY(tdm_actor_call(other, "search", &search, ""));
    status = tdm_get(search, 10000, "");
    tdm_ref_release(search);
    tdm_actor_destroy(other);
    return status;
}

TDM_ACTOR_CLASS(worker, .state_bytes = sizeof(int64_t),
                .methods = {{"divide", worker_divide},
                            {"search", worker_search},
                            {"fetch", worker_fetch},
                            {"delegate", worker_delegate}});

static void show(const char *what, tdm_ref *ref)
{
    const tdm_value *value;

    (void)printf("%s: %s\n", what, tdm_strerror(tdm_get_value(ref, 10000, &value)));
    tdm_ref_release(ref);
}

static void take_back_with_children(tdm_runtime *runtime, tdm_actor *worker)
{
    tdm_actor *boss;
    tdm_ref *search;
    tdm_ref *after;

    TDM_CHECK(tdm_actor_create(runtime, "worker", NULL, &boss, ""));
    TDM_CHECK(tdm_actor_call(boss, "delegate", &search, "h", worker));
    (void)tdm_get(search, 100, ""); /* by now the worker searches */
    TDM_CHECK(tdm_cancel(search, TDM_CANCEL_CHILDREN));
    show("a delegated search", search);
    TDM_CHECK(tdm_actor_call(worker, "divide", &after, "ii", (int64_t)1, (int64_t)1));
    show("the worker is free again", after);
    tdm_actor_destroy(boss);
}

int main(void)
{
    tdm_runtime *runtime;
    tdm_actor *worker;
    tdm_ref *parts[2];
    tdm_ref *search;
    tdm_ref *queued;
    tdm_ref *divided;
    int64_t quotient;
    int64_t rest;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "worker", NULL, &worker, ""));

    /* Two values, each a result of its own that can be passed on, waited for, released. */
    TDM_CHECK(tdm_actor_call_with(worker, "divide", &(struct tdm_call_options){.results_count = 2},
                                  parts, "ii", (int64_t)17, (int64_t)5));
    TDM_CHECK(tdm_get(parts[0], 10000, "i", &quotient));
    TDM_CHECK(tdm_get(parts[1], 10000, "i", &rest));
    (void)printf("17 = %lld × 5 + %lld\n", (long long)quotient, (long long)rest);
    tdm_ref_release(parts[0]);
    tdm_ref_release(parts[1]);

    /* The caller tries again by itself, where it says so. */
    TDM_CHECK(tdm_actor_call_with(
        worker, "fetch",
        &(struct tdm_call_options){.max_retries = 5, .retry_failures = {TDM_E_METHOD}}, &search,
        ""));
    TDM_CHECK(tdm_get(search, 10000, "i", &rest));
    (void)printf("fetched at attempt %lld\n", (long long)rest);
    tdm_ref_release(search);

    /* A deadline travels with the call: both sides know when it is over. */
    TDM_CHECK(tdm_actor_call_with(worker, "search", &(struct tdm_call_options){.timeout_ms = 50},
                                  &search, ""));
    show("a search of 50 ms", search);

    /* A call that runs hears that it was canceled; one that waits behind it never runs. */
    TDM_CHECK(tdm_actor_call(worker, "search", &search, ""));
    TDM_CHECK(tdm_actor_call(worker, "divide", &queued, "ii", (int64_t)1, (int64_t)0));
    TDM_CHECK(tdm_actor_call(worker, "divide", &divided, "ii", (int64_t)1, (int64_t)1));
    TDM_CHECK(tdm_cancel(queued, 0));
    TDM_CHECK(tdm_cancel(search, 0));
    show("the search", search);
    show("a division by zero behind it", queued);
    show("a division by one behind that", divided);

    take_back_with_children(runtime, worker);

    tdm_actor_destroy(worker);
    tdm_runtime_stop(runtime);
    return 0;
}
