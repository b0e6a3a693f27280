/* soak_calls.c - operations of the soak: calls of every kind to the thread's actors. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation chooses the actor on this node or the one on the other node at random, makes
 * its calls, and checks every reply and every expected error. All references are released, also
 * after a failure. The operations run concurrently on all threads of a driver, each with actors
 * of its own. */
#include "soak.h"

#include <stddef.h>

/* Number of calls in the operations one by one, pipelined and at once. */
enum { ONE_BY_ONE = 20, PIPELINED = 200, AT_ONCE = 32 };

/* Returns the thread's actor on this node or on the other node, at random. */
static tdm_actor *choose_actor(struct soak_thread *driver_thread)
{
    return driver_thread->actors[soak_random(driver_thread, 2) == 0 ? SOAK_LOCAL : SOAK_REMOTE];
}

tdm_status soak_call_one_by_one(struct soak_thread *driver_thread)
{
    tdm_actor *actor = choose_actor(driver_thread);

    for (int i = 0; i < ONE_BY_ONE; i++) {
        uint64_t number = soak_random(driver_thread, UINT64_MAX);
        tdm_ref *ref;

        TDM_TRY(tdm_actor_call(actor, "same", &ref, "u", number));
        TDM_TRY(soak_get_number(driver_thread, ref, number, "a call"));
    }
    return TDM_OK;
}

/* Waits for all replies and releases the references in any case. Reply i must be wanted[i], or i
 * if `wanted` is NULL. */
static tdm_status get_all_replies(struct soak_thread *driver_thread, tdm_ref **refs, uint32_t count,
                                  const uint64_t *wanted, const char *what)
{
    tdm_status status = TDM_OK;

    for (uint32_t i = 0; i < count; i++) {
        if (status == TDM_OK) {
            status = soak_get_number(driver_thread, refs[i], wanted == NULL ? i : wanted[i], what);
        } else {
            tdm_ref_release(refs[i]);
        }
    }
    return status;
}

tdm_status soak_call_pipelined(struct soak_thread *driver_thread)
{
    tdm_actor *actor = choose_actor(driver_thread);
    tdm_ref *refs[PIPELINED];
    uint32_t count = 0;
    tdm_status status = TDM_OK;
    tdm_status gotten;

    while (status == TDM_OK && count < PIPELINED) {
        status = tdm_actor_call(actor, "next", &refs[count], "?", count == 0);
        count += status == TDM_OK;
    }
    gotten = get_all_replies(driver_thread, refs, count, NULL, "calls in order");
    return status == TDM_OK ? gotten : status;
}

tdm_status soak_call_large_argument(struct soak_thread *driver_thread)
{
    struct tdm_ndarray array = soak_array(driver_thread);
    tdm_ref *ref;

    driver_thread->counts->bytes += SOAK_MIB;
    TDM_TRY(tdm_actor_call(choose_actor(driver_thread), "hash", &ref, "a", &array));
    return soak_get_number(driver_thread, ref, soak_hash(driver_thread->words, SOAK_MIB),
                           "1 MiB given");
}

tdm_status soak_call_large_reply(struct soak_thread *driver_thread)
{
    uint64_t seed = soak_random(driver_thread, UINT64_MAX / 2);
    struct tdm_ndarray array;
    tdm_ref *ref;
    tdm_status status;

    driver_thread->counts->bytes += SOAK_MIB;
    TDM_TRY(tdm_actor_call(choose_actor(driver_thread), "make", &ref, "u", seed));
    status = tdm_get(ref, SOAK_TIMEOUT_MS, "a", &array);
    if (status == TDM_OK) {
        const uint64_t *words = array.data;

        driver_thread->counts->calls++;
        status = soak_expect_equal(SOAK_MIB, tdm_ndarray_bytes(&array), "1 MiB replied");
        for (uint64_t i = 0; status == TDM_OK && i < SOAK_MIB / sizeof(uint64_t); i++) {
            status = soak_expect_equal(seed + i, words[i], "a word of 1 MiB");
        }
    }
    tdm_ref_release(ref);
    return status;
}

/* Starts a stream of `items_count` items and reads `taken` of them. If these are all, checks
 * that the stream ends. */
static tdm_status read_items(struct soak_thread *driver_thread, uint64_t items_count,
                             uint64_t taken)
{
    tdm_stream *stream;
    tdm_ref *ref;
    tdm_status status =
        tdm_actor_stream(choose_actor(driver_thread), "items", NULL, &stream, "u", items_count);

    TDM_TRY(status);
    for (uint64_t i = 0; status == TDM_OK && i < taken; i++) {
        status = tdm_stream_next(stream, SOAK_TIMEOUT_MS, &ref);
        if (status == TDM_OK) {
            status = soak_get_number(driver_thread, ref, i, "an item");
        }
    }
    if (status == TDM_OK && taken == items_count) {
        status = soak_expect_status(TDM_E_END, tdm_stream_next(stream, SOAK_TIMEOUT_MS, &ref),
                                    "a stream's end");
    }
    tdm_stream_destroy(stream);
    return status;
}

tdm_status soak_call_stream(struct soak_thread *driver_thread)
{
    uint64_t items_count = soak_random(driver_thread, 100);

    return read_items(driver_thread, items_count, items_count);
}

/* Reads the first items of a stream and abandons the rest. */
tdm_status soak_call_stream_abandoned(struct soak_thread *driver_thread)
{
    return read_items(driver_thread, 1000, soak_random(driver_thread, 50));
}

/* Cancels two calls: the first one runs, the second one waits behind it. */
tdm_status soak_call_canceled(struct soak_thread *driver_thread)
{
    tdm_actor *actor = choose_actor(driver_thread);
    tdm_ref *refs[2] = {NULL, NULL};
    tdm_status status = TDM_OK;

    for (int i = 0; status == TDM_OK && i < 2; i++) {
        status = tdm_actor_call(actor, "linger", &refs[i], "i", (int64_t)SOAK_TIMEOUT_MS);
    }
    if (status == TDM_OK && soak_random(driver_thread, 2) == 0) {
        (void)tdm_get(refs[0], 2, ""); /* The wait gives the first call time to begin. */
    }
    for (int i = 1; status == TDM_OK && i >= 0; i--) {
        status = tdm_cancel(refs[i], 0);
        if (status == TDM_OK) {
            status = soak_expect_status(TDM_E_CANCELED, tdm_get(refs[i], SOAK_TIMEOUT_MS, ""),
                                        "a canceled call");
        }
    }
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
    return status;
}

tdm_status soak_call_past_deadline(struct soak_thread *driver_thread)
{
    const struct tdm_call_options options = {.timeout_ms = 5};
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call_with(choose_actor(driver_thread), "linger", &options, &ref, "i",
                                (int64_t)SOAK_MIB));
    status =
        soak_expect_status(TDM_E_TIMEOUT, tdm_get(ref, SOAK_TIMEOUT_MS, ""), "a call with 5 ms");
    tdm_ref_release(ref);
    return status;
}

/* Calls a method AT_ONCE times with random numbers, which the replies must repeat. If `release`
 * is not NULL, that method makes the actor send the replies. */
static tdm_status call_at_once(struct soak_thread *driver_thread, enum soak_actor_role kept,
                               const char *method, const char *release)
{
    tdm_ref *refs[AT_ONCE];
    uint64_t numbers[AT_ONCE];
    uint32_t count = 0;
    tdm_status status = TDM_OK;
    tdm_status gotten;
    tdm_ref *ref;

    while (status == TDM_OK && count < AT_ONCE) {
        numbers[count] = soak_random(driver_thread, UINT64_MAX);
        status =
            tdm_actor_call(driver_thread->actors[kept], method, &refs[count], "u", numbers[count]);
        count += status == TDM_OK;
    }
    if (status == TDM_OK && release != NULL) {
        status = tdm_actor_call(driver_thread->actors[kept], release, &ref, "");
        if (status == TDM_OK) {
            status = soak_get_number(driver_thread, ref, AT_ONCE, "held calls");
        }
    }
    gotten = get_all_replies(driver_thread, refs, count, numbers, method);
    return status == TDM_OK ? gotten : status;
}

tdm_status soak_call_asynchronous(struct soak_thread *driver_thread)
{
    return call_at_once(driver_thread, SOAK_ASYNCHRONOUS, "hold", "answer");
}

tdm_status soak_call_threaded(struct soak_thread *driver_thread)
{
    struct tdm_ndarray array = soak_array(driver_thread);
    tdm_ref *ref;

    driver_thread->counts->bytes += SOAK_MIB;
    TDM_TRY(tdm_actor_call(driver_thread->actors[SOAK_THREADED], "hash", &ref, "a", &array));
    TDM_TRY(soak_get_number(driver_thread, ref, soak_hash(driver_thread->words, SOAK_MIB),
                            "a heavy call"));
    return call_at_once(driver_thread, SOAK_THREADED, "same", NULL);
}

tdm_status soak_call_failing(struct soak_thread *driver_thread)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(choose_actor(driver_thread), "fail", &ref, ""));
    status =
        soak_expect_status(TDM_E_METHOD, tdm_get(ref, SOAK_TIMEOUT_MS, ""), "a method that fails");
    tdm_ref_release(ref);
    return status;
}
