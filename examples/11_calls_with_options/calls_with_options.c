/* calls_with_options.c - several results, deadlines, retries and cancellation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <tandem/tandem.h>

/* Method divide(ii): replies with two values, the quotient and the remainder. */
static tdm_status worker_divide(tdm_call *call, void *self)
{
    int64_t number;
    int64_t by;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "ii", &number, &by));
    return tdm_call_reply(call, "ii", number / by, number % by);
}

/* Method search(): runs until its call is canceled or the deadline of the call passes. A long
 * method checks both now and then. */
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

/* Method fetch(): fails in the first two calls and then succeeds, as a method that uses a network
 * may. */
static tdm_status worker_fetch(tdm_call *call, void *self)
{
    int64_t *attempts = self;

    (*attempts)++;
    if (*attempts < 3) {
        return tdm_fail(TDM_E_METHOD, "nobody there");
    }
    return tdm_call_reply(call, "i", *attempts);
}

/* Method delegate(h): calls search() of the worker whose handle it gets, and waits for the end. */
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

/* Prints how a call ended. */
static void print_result(const char *what, tdm_ref *ref)
{
    const tdm_value *value;

    (void)printf("%s: %s\n", what, tdm_strerror(tdm_get_value(ref, 10000, &value)));
    tdm_ref_release(ref);
}

/* Cancels a call together with the calls that its method has made. */
static void cancel_with_children(tdm_runtime *runtime, tdm_actor *worker)
{
    tdm_actor *boss;
    tdm_ref *search;
    tdm_ref *after;

    TDM_CHECK(tdm_actor_create(runtime, "worker", NULL, &boss, ""));
    TDM_CHECK(tdm_actor_call(boss, "delegate", &search, "h", worker));
    (void)tdm_get(search, 100, ""); /* After 100 ms the worker is searching. */
    TDM_CHECK(tdm_cancel(search, TDM_CANCEL_CHILDREN));
    print_result("a delegated search", search);
    TDM_CHECK(tdm_actor_call(worker, "divide", &after, "ii", (int64_t)1, (int64_t)1));
    print_result("the worker is free again", after);
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

    /* Each of the two values is a separate result that can be passed on, waited for and
     * released. */
    TDM_CHECK(tdm_actor_call_with(worker, "divide", &(struct tdm_call_options){.results_count = 2},
                                  parts, "ii", (int64_t)17, (int64_t)5));
    TDM_CHECK(tdm_get(parts[0], 10000, "i", &quotient));
    TDM_CHECK(tdm_get(parts[1], 10000, "i", &rest));
    (void)printf("17 = %lld × 5 + %lld\n", (long long)quotient, (long long)rest);
    tdm_ref_release(parts[0]);
    tdm_ref_release(parts[1]);

    /* The runtime retries the call if the caller allows it. */
    TDM_CHECK(tdm_actor_call_with(
        worker, "fetch",
        &(struct tdm_call_options){.max_retries = 5, .retry_failures = {TDM_E_METHOD}}, &search,
        ""));
    TDM_CHECK(tdm_get(search, 10000, "i", &rest));
    (void)printf("fetched at attempt %lld\n", (long long)rest);
    tdm_ref_release(search);

    /* The deadline is sent with the call, so that both sides know when it has passed. */
    TDM_CHECK(tdm_actor_call_with(worker, "search", &(struct tdm_call_options){.timeout_ms = 50},
                                  &search, ""));
    print_result("a search of 50 ms", search);

    /* A running method can see that its call was canceled. A call that waits behind it never
     * runs. */
    TDM_CHECK(tdm_actor_call(worker, "search", &search, ""));
    TDM_CHECK(tdm_actor_call(worker, "divide", &queued, "ii", (int64_t)1, (int64_t)0));
    TDM_CHECK(tdm_actor_call(worker, "divide", &divided, "ii", (int64_t)1, (int64_t)1));
    TDM_CHECK(tdm_cancel(queued, 0));
    TDM_CHECK(tdm_cancel(search, 0));
    print_result("the search", search);
    print_result("a division by zero behind it", queued);
    print_result("a division by one behind that", divided);

    cancel_with_children(runtime, worker);

    tdm_actor_destroy(worker);
    tdm_runtime_stop(runtime);
    return 0;
}
