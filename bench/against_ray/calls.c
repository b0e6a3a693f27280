/* calls.c - rounds of actor calls: one at a time, many in flight, two callers and two actors,
 * with 1 MiB. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "side.h"

#include <stdio.h>

/* ---- the actors ---------------------------------------------------------------------------
 */

/* Method "echo": replies the number in its arguments. */
static tdm_status echo(tdm_call *call, void *self)
{
    int64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &number));
    return tdm_call_reply(call, "i", number);
}

/* Method "take_array": reads the first and the last word of the array, to check that it is the
 * right one. */
static tdm_status take_array(tdm_call *call, void *self)
{
    struct tdm_ndarray array;
    const uint64_t *words;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "a", &array));
    words = array.data;
    return tdm_call_reply(call, "u", words[0] + words[array.shape[0] - 1]);
}

TDM_ACTOR_CLASS(echo, .methods = {{"echo", echo}, {"take_array", take_array}});

/* Returns a number so large that it has 9 bytes on the wire. */
static int64_t number_of(uint64_t i)
{
    return INT64_MAX - (int64_t)i;
}

/* Sends SIDE_CALLS_IN_FLIGHT calls to the actors in turn, then waits for and checks every reply. */
static void run_call_batch(tdm_actor *const *actors, uint32_t actors_count)
{
    static tdm_ref *refs[SIDE_CALLS_IN_FLIGHT];

    for (uint32_t i = 0; i < SIDE_CALLS_IN_FLIGHT; i++) {
        TDM_CHECK(tdm_actor_call(actors[i % actors_count], "echo", &refs[i], "i", number_of(i)));
    }
    for (uint32_t i = 0; i < SIDE_CALLS_IN_FLIGHT; i++) {
        int64_t reply;

        TDM_CHECK(tdm_get(refs[i], SIDE_TIMEOUT_MS, "i", &reply));
        side_expect_equal((uint64_t)number_of(i), (uint64_t)reply, "a pipelined call");
        tdm_ref_release(refs[i]);
    }
}

/* State of an actor that calls two others. */
struct caller {
    /* Owned handles of the actors that it calls. */
    tdm_actor *callees[2];
};

/* Constructor: finds both actors by name. */
static tdm_status caller_construct(tdm_call *call, void *self)
{
    struct caller *caller = self;

    (void)call;
    for (int i = 0; i < 2; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "callee%d", i);
        TDM_TRY(tdm_actor_find(tdm_runtime_current(), name, SIDE_TIMEOUT_MS, &caller->callees[i]));
    }
    return TDM_OK;
}

/* Method "windows": runs the given number of batches of calls. */
static tdm_status caller_call_batches(tdm_call *call, void *self)
{
    struct caller *caller = self;
    int64_t count;

    TDM_TRY(tdm_call_unpack(call, "i", &count));
    for (int64_t i = 0; i < count; i++) {
        run_call_batch(caller->callees, 2);
    }
    return tdm_call_reply(call, "i", count);
}

TDM_ACTOR_CLASS(caller, .state_bytes = sizeof(struct caller), .construct = caller_construct,
                .methods = {{"windows", caller_call_batches}});

/* ---- one at a time ------------------------------------------------------------------------
 */

/* Measures synchronous calls to an actor that is pinned to `core`; the caller is on core 0. */
static void sync_calls(tdm_runtime *runtime, int core, double seconds, struct side_numbers *numbers)
{
    static struct side_latencies latencies;
    tdm_actor *actor = side_actor(runtime, "echo");
    double begun;
    double now;

    bench_pin_to_core(0, 0);
    bench_pin_to_core(side_actor_pid(actor), core);
    latencies.count = 0;
    begun = now = bench_clock_seconds();
    while (now - begun < seconds && latencies.count < SIDE_LATENCIES_MAX) {
        double sent = now;
        int64_t reply;
        tdm_ref *ref;

        TDM_CHECK(tdm_actor_call(actor, "echo", &ref, "i", number_of(latencies.count)));
        TDM_CHECK(tdm_get(ref, SIDE_TIMEOUT_MS, "i", &reply));
        tdm_ref_release(ref);
        side_expect_equal((uint64_t)number_of(latencies.count), (uint64_t)reply, "a call");
        now = bench_clock_seconds();
        latencies.values[latencies.count++] = now - sent;
    }
    side_numbers_add_rate(numbers, &latencies, now - begun);
    bench_unpin(side_actor_pid(actor));
    bench_unpin(0);
}

void side_call_same_core(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    sync_calls(runtime, 0, seconds, numbers);
}

void side_call_own_cores(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    sync_calls(runtime, 1, seconds, numbers);
}

/* ---- many in flight -------------------------------------------------------------------- */

void side_pipelined(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    tdm_actor *actor = side_actor(runtime, "echo");
    double begun = bench_clock_seconds();
    uint32_t calls_count = 0;

    do {
        run_call_batch(&actor, 1);
        calls_count += SIDE_CALLS_IN_FLIGHT;
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, calls_count / (bench_clock_seconds() - begun));
}

/* Creates two actors and two callers of both. */
static void start_two_by_two(tdm_runtime *runtime, tdm_actor *callers[2])
{
    for (int i = 0; i < 2; i++) {
        struct tdm_actor_options options = {.name = i == 0 ? "callee0" : "callee1"};
        tdm_actor *callee; /* The actor lives as long as the program. */

        TDM_CHECK(tdm_actor_create(runtime, "echo", &options, &callee, ""));
        TDM_CHECK(tdm_actor_wait_ready(callee, SIDE_TIMEOUT_MS));
    }
    for (int i = 0; i < 2; i++) {
        TDM_CHECK(tdm_actor_create(runtime, "caller", NULL, &callers[i], ""));
        TDM_CHECK(tdm_actor_wait_ready(callers[i], SIDE_TIMEOUT_MS));
    }
}

void side_two_by_two(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    enum { WINDOWS = 10 };
    static tdm_actor *callers[2];
    uint32_t calls_count = 0;
    double begun;

    if (callers[0] == NULL) {
        start_two_by_two(runtime, callers);
    }
    begun = bench_clock_seconds();
    do {
        tdm_ref *refs[2];

        for (int i = 0; i < 2; i++) {
            TDM_CHECK(tdm_actor_call(callers[i], "windows", &refs[i], "i", (int64_t)WINDOWS));
        }
        for (int i = 0; i < 2; i++) {
            TDM_CHECK(tdm_get(refs[i], SIDE_TIMEOUT_MS, "i", &(int64_t){0}));
            tdm_ref_release(refs[i]);
            calls_count += WINDOWS * SIDE_CALLS_IN_FLIGHT;
        }
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, calls_count / (bench_clock_seconds() - begun));
}

/* ---- 1 MiB ---------------------------------------------------------------------------------
 */

void side_call_mib(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    static uint64_t words[SIDE_MIB / sizeof(uint64_t)];
    tdm_actor *actor = side_actor(runtime, "echo");
    const size_t last = sizeof(words) / sizeof(words[0]) - 1;
    const struct tdm_ndarray array = {TDM_I64, 1, {last + 1}, words};
    double begun = bench_clock_seconds();
    uint64_t calls_count = 0;

    do {
        uint64_t reply;
        tdm_ref *ref;

        words[0] = ++calls_count;
        words[last] = calls_count << 32;
        TDM_CHECK(tdm_actor_call(actor, "take_array", &ref, "a", &array));
        TDM_CHECK(tdm_get(ref, SIDE_TIMEOUT_MS, "u", &reply));
        tdm_ref_release(ref);
        side_expect_equal(words[0] + words[last], reply, "a call with 1 MiB");
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, (double)calls_count / 1024 / (bench_clock_seconds() - begun));
}
