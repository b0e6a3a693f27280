/* soak_actors.c - the actor classes of the soak: plain, asynchronous, and with concurrent
 * methods. */
/* SPDX-License-Identifier: Apache-2.0 */
/* "soak_worker" runs one method at a time; "soak_later" is asynchronous and replies to calls in
 * reverse order; "soak_many" runs methods of two concurrency groups at the same time. The
 * methods return values from which the driver can check arguments, order and identity. Each
 * actor has its state in a struct that the class allocates. */
#include "soak.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>

/* ---- methods of a plain actor ----------------------------------------------------------- */

/* State of a "soak_worker" or "soak_many" actor. */
struct worker {
    /* Number of calls of the method "next" since the last reset. */
    uint64_t calls_count;
    /* Owned reference to a borrowed object; NULL if none is kept. */
    tdm_ref *kept;
};

/* Constructor: fails if its argument is not 0. */
static tdm_status worker_construct(tdm_call *call, void *self)
{
    int64_t broken = 0;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &broken));
    return broken != 0 ? tdm_fail(TDM_E_METHOD, "broken on purpose") : TDM_OK;
}

/* Destructor: releases the kept reference. */
static void worker_destruct(void *self)
{
    struct worker *worker = self;

    tdm_ref_release(worker->kept);
}

/* Method "same": replies the number in its arguments. */
static tdm_status worker_same(tdm_call *call, void *self)
{
    uint64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &number));
    return tdm_call_reply(call, "u", number);
}

/* Method "next": replies how many calls of this method came before, so that the driver can check
 * their order. A true argument resets the count. */
static tdm_status worker_next(tdm_call *call, void *self)
{
    struct worker *worker = self;
    int restart = 0;

    TDM_TRY(tdm_call_unpack(call, "?", &restart));
    if (restart) {
        worker->calls_count = 0;
    }
    return tdm_call_reply(call, "u", worker->calls_count++);
}

/* Method "hash": replies the hash of an array. */
static tdm_status worker_hash(tdm_call *call, void *self)
{
    struct tdm_ndarray array;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "a", &array));
    return tdm_call_reply(call, "u", soak_hash(array.data, tdm_ndarray_bytes(&array)));
}

/* Method "make": replies an array of 1 MiB with seed, seed + 1, … */
static tdm_status worker_make(tdm_call *call, void *self)
{
    uint64_t seed;
    uint64_t *words;
    struct tdm_ndarray array = {TDM_I64, 1, {SOAK_MIB / sizeof(uint64_t)}, NULL};
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &seed));
    words = malloc(SOAK_MIB);
    if (words == NULL) {
        return tdm_fail(TDM_E_NOMEM, "1 MiB");
    }
    for (uint64_t i = 0; i < SOAK_MIB / sizeof(uint64_t); i++) {
        words[i] = seed + i;
    }
    array.data = words;
    status = tdm_call_reply(call, "a", &array);
    free(words);
    return status;
}

/* Method "items": streams the numbers below its argument. */
static tdm_status worker_items(tdm_call *call, void *self)
{
    uint64_t count;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &count));
    for (uint64_t i = 0; i < count; i++) {
        TDM_TRY(tdm_call_yield(call, "u", i));
    }
    return TDM_OK;
}

/* Method "linger": runs until the call is canceled or its deadline passes, at most the given
 * milliseconds. */
static tdm_status worker_linger(tdm_call *call, void *self)
{
    int64_t ms;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &ms));
    while (ms-- > 0 && tdm_call_is_canceled(call) == 0 && tdm_call_remaining_ms(call) != 0) {
        (void)poll(NULL, 0, 1);
    }
    return tdm_fail(TDM_E_TIMEOUT, "nobody canceled it");
}

/* Method "fail": always fails. */
static tdm_status worker_fail(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    return tdm_fail(TDM_E_METHOD, "on purpose");
}

/* Method "end": kills the actor's process. */
static tdm_status worker_end(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    (void)raise(SIGKILL);
    return TDM_OK;
}

/* Method "keep": keeps a reference to the object in its arguments. */
static tdm_status worker_keep(tdm_call *call, void *self)
{
    struct worker *worker = self;
    tdm_ref *ref;

    TDM_TRY(tdm_call_unpack(call, "R", &ref));
    tdm_ref_release(worker->kept);
    worker->kept = ref;
    return TDM_OK;
}

/* Method "read_kept": replies the hash of the kept object and releases the reference. */
static tdm_status worker_read_kept(tdm_call *call, void *self)
{
    struct worker *worker = self;
    struct tdm_ndarray array;
    uint64_t hash;

    TDM_TRY(tdm_get(worker->kept, SOAK_TIMEOUT_MS, "a", &array));
    hash = soak_hash(array.data, tdm_ndarray_bytes(&array));
    tdm_ref_release(worker->kept);
    worker->kept = NULL;
    return tdm_call_reply(call, "u", hash);
}

/* Calls the method "same" of another actor and waits for the reply. */
static tdm_status call_same(tdm_actor *actor, uint64_t number, uint64_t *answer_out)
{
    tdm_ref *ref = NULL;
    tdm_status status = tdm_actor_call(actor, "same", &ref, "u", number);

    if (status == TDM_OK) {
        status = tdm_get(ref, SOAK_TIMEOUT_MS, "u", answer_out);
    }
    tdm_ref_release(ref);
    return status;
}

/* Method "ask": calls the actor whose handle is in the arguments and replies what it replies. */
static tdm_status worker_ask(tdm_call *call, void *self)
{
    tdm_actor *actor;
    uint64_t number;
    uint64_t answer = 0;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "hu", &actor, &number));
    status = call_same(actor, number, &answer);
    tdm_actor_destroy(actor);
    return status == TDM_OK ? tdm_call_reply(call, "u", answer) : status;
}

/* Method "child": creates an actor, calls it once and releases it. */
static tdm_status worker_child(tdm_call *call, void *self)
{
    tdm_actor *actor;
    uint64_t number;
    uint64_t answer = 0;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &number));
    TDM_TRY(tdm_actor_create(tdm_runtime_current(), "soak_worker", NULL, &actor, "i", INT64_C(0)));
    status = call_same(actor, number, &answer);
    tdm_actor_destroy(actor);
    return status == TDM_OK ? tdm_call_reply(call, "u", answer) : status;
}

TDM_ACTOR_CLASS(soak_worker, .state_bytes = sizeof(struct worker), .construct = worker_construct,
                .destruct = worker_destruct,
                .methods = {{"same", worker_same},
                            {"next", worker_next},
                            {"hash", worker_hash},
                            {"make", worker_make},
                            {"items", worker_items},
                            {"linger", worker_linger},
                            {"fail", worker_fail},
                            {"end", worker_end},
                            {"keep", worker_keep},
                            {"read_kept", worker_read_kept},
                            {"ask", worker_ask},
                            {"child", worker_child}});

/* ---- asynchronous: calls wait for one another ------------------------------------------- */

/* Most calls that an asynchronous actor holds. */
enum { LATER_MAX = 64 };

/* State of a "soak_later" actor: calls that it has not replied to yet. */
struct later {
    /* Number of held calls. */
    uint32_t count;
    /* Owned calls (tdm_call_keep()). */
    tdm_call *calls[LATER_MAX];
    /* Number in the arguments of each call, which its reply repeats. */
    uint64_t numbers[LATER_MAX];
};

/* Method "hold": keeps the call without a reply. */
static tdm_status later_hold(tdm_call *call, void *self)
{
    struct later *later = self;
    uint64_t number;

    TDM_TRY(tdm_call_unpack(call, "u", &number));
    if (later->count == LATER_MAX) {
        return tdm_fail(TDM_E_LIMIT, "%d calls are held", LATER_MAX);
    }
    TDM_TRY(tdm_call_keep(call));
    later->calls[later->count] = call;
    later->numbers[later->count++] = number;
    return TDM_OK;
}

/* Method "answer": replies to all held calls, the last one first. */
static tdm_status later_answer(tdm_call *call, void *self)
{
    struct later *later = self;
    uint64_t count = later->count;

    while (later->count > 0) {
        later->count--;
        (void)tdm_call_reply(later->calls[later->count], "u", later->numbers[later->count]);
    }
    return tdm_call_reply(call, "u", count);
}

/* Constructor: ignores its arguments. */
static tdm_status later_construct(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    return TDM_OK;
}

TDM_ACTOR_CLASS(soak_later, .state_bytes = sizeof(struct later), .construct = later_construct,
                .asynchronous = 1, .methods = {{"hold", later_hold}, {"answer", later_answer}});

/* ---- with threads: methods of two groups at once ---------------------------------------- */

TDM_ACTOR_CLASS(soak_many, .state_bytes = sizeof(struct worker), .construct = worker_construct,
                .methods = {{"same", worker_same},
                            {"hash", worker_hash, "heavy"},
                            {"linger", worker_linger}},
                .concurrency_groups = {{"heavy", 2}});
