/* objects.c - rounds that put and get values of 100 MiB and of one integer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "side.h"

#include <stdlib.h>
#include <string.h>

/* Size of a large value in bytes, and number of small values between two checks. */
enum { LARGE_BYTES = 100 * SIDE_MIB, SMALL_CHUNK = 100 };

/* Method "hash": replies the hash of the array that its reference refers to. */
static tdm_status hash(tdm_call *call, void *self)
{
    struct tdm_ndarray array;
    tdm_ref *ref;
    uint64_t hashed = 0;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "R", &ref));
    status = tdm_get(ref, SIDE_TIMEOUT_MS, "a", &array);
    if (status == TDM_OK) {
        hashed = side_hash(array.data, tdm_ndarray_bytes(&array));
    }
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "u", hashed);
}

/* Method "same": replies the integer that its reference refers to. */
static tdm_status same(tdm_call *call, void *self)
{
    int64_t number = 0;
    tdm_ref *ref;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "R", &ref));
    status = tdm_get(ref, SIDE_TIMEOUT_MS, "i", &number);
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", number);
}

TDM_ACTOR_CLASS(reader, .methods = {{"hash", hash}, {"same", same}});

/* Returns what an actor in another process replies about the referenced value. */
static uint64_t ask_reader(tdm_runtime *runtime, const char *method, tdm_ref *put)
{
    uint64_t reply;
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(side_actor(runtime, "reader"), method, &ref, "R", put));
    TDM_CHECK(tdm_get(ref, SIDE_TIMEOUT_MS, "u", &reply));
    tdm_ref_release(ref);
    return reply;
}

/* Measures puts of 100 MiB. Only the puts are timed; each value is then read in another process. */
void side_put_large_objects(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    static uint64_t *words;
    static uint64_t stamp;
    struct tdm_ndarray array = {TDM_I64, 1, {LARGE_BYTES / sizeof(uint64_t)}, NULL};
    double spent = 0;
    uint32_t puts_count = 0;

    if (words == NULL) {
        words = malloc(LARGE_BYTES);
        if (words == NULL) {
            bench_die("malloc");
        }
        for (size_t i = 0; i < LARGE_BYTES / sizeof(words[0]); i++) {
            words[i] = i * 0x9e3779b97f4a7c15u;
        }
    }
    array.data = words;
    do {
        double begun;
        tdm_ref *ref;

        words[0] = ++stamp;
        begun = bench_clock_seconds();
        TDM_CHECK(tdm_put(runtime, &ref, "a", &array));
        spent += bench_clock_seconds() - begun;
        puts_count++;
        side_expect_equal(side_hash(words, LARGE_BYTES), ask_reader(runtime, "hash", ref),
                          "the hash of 100 MiB");
        tdm_ref_release(ref);
    } while (spent < seconds);
    side_numbers_add(numbers, puts_count * (double)LARGE_BYTES / (1u << 30) / spent);
}

/* Measures puts of one integer. Every hundredth reference is passed to another process. */
void side_put_small(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    double spent = 0;
    int64_t puts_count = 0;

    do {
        double begun = bench_clock_seconds();
        tdm_ref *ref = NULL;

        for (int i = 0; i < SMALL_CHUNK; i++) {
            tdm_ref_release(ref);
            TDM_CHECK(tdm_put(runtime, &ref, "i", ++puts_count));
        }
        spent += bench_clock_seconds() - begun;
        side_expect_equal((uint64_t)puts_count, ask_reader(runtime, "same", ref), "a small put");
        tdm_ref_release(ref);
    } while (spent < seconds);
    side_numbers_add(numbers, (double)puts_count / spent);
}

void side_get_small(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    double begun = bench_clock_seconds();
    uint32_t gets_count = 0;
    tdm_ref *ref;

    TDM_CHECK(tdm_put(runtime, &ref, "i", (int64_t)7));
    do {
        for (int i = 0; i < SMALL_CHUNK; i++) {
            int64_t number;

            TDM_CHECK(tdm_get(ref, SIDE_TIMEOUT_MS, "i", &number));
            side_expect_equal(7, (uint64_t)number, "a small get");
        }
        gets_count += SMALL_CHUNK;
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, gets_count / (bench_clock_seconds() - begun));
    tdm_ref_release(ref);
}
