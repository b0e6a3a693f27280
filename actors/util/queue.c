/* queue.c - tdm_queue: a bounded queue between actors, and the functions that call it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The queue is an asynchronous actor of the class "tandem.queue". A get of an empty queue and a put
 * to a full one keep their calls (tdm_call_keep) as waiters. Each put or get serves the waiters
 * that it makes ready, in order of arrival. Never do putters and getters wait at the same time.
 *
 * Methods run on the actor's thread. A second thread, the timeout thread, ends waits whose deadline
 * has passed or whose caller has is_canceled. The mutex guards what both touch; it may be held
 * while Tandem is called, and is never acquired by a function that Tandem calls. The second half of
 * the file runs in the processes that use a queue. */
#include <pthread.h>

#include "runtime/error.h"
#include <stdarg.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <tandem/util.h>
#include <time.h>

/* ---- the actor -------------------------------------------------------------------------- */

enum {
    /* Milliseconds between checks whether the callers of waiting calls are connected. */
    CHECK_INTERVAL_MS = 1000,
    NANOSECONDS_PER_MS = 1000000 /* Nanoseconds in a millisecond. */
};

/* A value in the queue, or one that waits for space. Guarded by the queue's mutex. */
struct item {
    TAILQ_ENTRY(item) link; /* Entry in the queue's list of items. */
    tdm_ref *ref;           /* Reference that keeps the value and what it refers to alive, owned. */
    const tdm_value *value; /* The value, an array, borrowed from `ref`. */
};

/* A kept call of put or get that waits for space or for an item. The queue owns it. */
struct waiter {
    TAILQ_ENTRY(waiter) link; /* Entry in the list of putters or getters. */
    tdm_call *call;           /* The kept call, to be replied to. */
    int64_t started_ms; /* Time at which the wait began, in milliseconds on CLOCK_MONOTONIC. */
    /* Milliseconds on CLOCK_MONOTONIC; TDM_FOREVER if the caller set no limit. */
    int64_t deadline_ms;
    struct item *item; /* Item to be put, owned; NULL for a get. */
    int was_canceled;  /* True if the caller was gone at the last check. */
};

TAILQ_HEAD(items, item);
TAILQ_HEAD(waiters, waiter);

/* State of the queue actor. */
struct queue {
    pthread_mutex_t mutex; /* Guards all fields below. */
    /* Wakes the timeout thread: a waiter was added, or the queue stops. */
    pthread_cond_t changed;
    pthread_t timeout_thread; /* Thread that ends overdue waits. */
    int is_stopping;          /* True once the timeout thread has been asked to end. */
    uint32_t items_max;       /* Most items in the queue; 0 for no limit. */
    uint32_t items_count;     /* Number of entries in `items`. */
    struct items items;       /* Items in order of arrival, owned. */
    struct waiters putters;   /* Waiting puts in order of arrival, owned. */
    struct waiters getters;   /* Waiting gets in order of arrival, owned. */
};

/* Returns the time on CLOCK_MONOTONIC in milliseconds. */
static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NANOSECONDS_PER_MS;
}

/* ---- items ------------------------------------------------------------------------------ */

/* Creates an item with a copy of the value. */
static tdm_status item_create(const tdm_value *value, struct item **item_out)
{
    struct item *item = malloc(sizeof(*item));
    tdm_status status;

    if (item == NULL) {
        return tdm_fail(TDM_E_NOMEM, "an item of a queue");
    }
    status = tdm_put(tdm_runtime_current(), &item->ref, "v", value);
    if (status == TDM_OK) {
        status = tdm_get(item->ref, 0, "v", &item->value);
        if (status != TDM_OK) {
            tdm_ref_release(item->ref);
        }
    }
    if (status != TDM_OK) {
        free(item);
        return status;
    }
    *item_out = item;
    return TDM_OK;
}

/* Frees an item; NULL is allowed. */
static void item_destroy(struct item *item)
{
    if (item != NULL) {
        tdm_ref_release(item->ref);
        free(item);
    }
}

/* Frees all items of a list. */
static void items_destroy(struct items *items)
{
    struct item *item;

    while ((item = TAILQ_FIRST(items)) != NULL) {
        TAILQ_REMOVE(items, item, link);
        item_destroy(item);
    }
}

/* Appends an item and takes ownership of it. */
static void queue_append(struct queue *queue, struct item *item)
{
    TAILQ_INSERT_TAIL(&queue->items, item, link);
    queue->items_count++;
}

/* Removes and returns the first item, which the caller owns. The queue must not be empty. */
static struct item *queue_remove_first(struct queue *queue)
{
    struct item *item = TAILQ_FIRST(&queue->items);

    TAILQ_REMOVE(&queue->items, item, link);
    queue->items_count--;
    return item;
}

/* True if the queue has space for that many more items. */
static int queue_has_space(const struct queue *queue, uint32_t more_count)
{
    return queue->items_max == 0 || (queue->items_count <= queue->items_max &&
                                     more_count <= queue->items_max - queue->items_count);
}

/* Replies to a get with the item. If the reply cannot be sent, the item is not lost: the call
 * fails, and the item stays in the queue. */
static tdm_status reply_item(tdm_call *call, const struct item *item)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_value(writer, item->value);
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- waiting calls ---------------------------------------------------------------------- */

/* Removes a waiter, whose call has been replied to, and frees it. */
static void waiter_end(struct waiters *waiters, struct waiter *waiter)
{
    TAILQ_REMOVE(waiters, waiter, link);
    item_destroy(waiter->item);
    free(waiter);
}

/* Keeps the call beyond its method (tdm_call_keep()) and adds it to the waiters until `timeout_ms`
 * milliseconds have passed; a negative number means no limit. Takes ownership of `item`, NULL for a
 * get, on success. */
static tdm_status queue_add_waiter(struct queue *queue, struct waiters *waiters, tdm_call *call,
                                   int64_t timeout_ms, struct item *item)
{
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    tdm_status status;

    if (waiter == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a waiting call of a queue");
    }
    status = tdm_call_keep(call);
    if (status != TDM_OK) {
        free(waiter);
        return status;
    }
    waiter->call = call;
    waiter->started_ms = now_ms();
    waiter->deadline_ms =
        timeout_ms < 0 ? TDM_FOREVER
                       : waiter->started_ms + (timeout_ms < INT32_MAX ? timeout_ms : INT32_MAX);
    waiter->item = item;
    TAILQ_INSERT_TAIL(waiters, waiter, link);
    (void)pthread_cond_signal(&queue->changed);
    return TDM_OK;
}

/* Returns the first waiter whose caller is still connected and has not canceled, or NULL. */
static struct waiter *waiters_first_connected(struct waiters *waiters)
{
    struct waiter *waiter;

    TAILQ_FOREACH(waiter, waiters, link)
    {
        if (tdm_call_is_canceled(waiter->call) == 0) {
            return waiter;
        }
    }
    return NULL;
}

/* Hands items to waiting gets, and free space to waiting puts. */
static void queue_serve_waiters(struct queue *queue)
{
    struct waiter *waiter;

    while (queue->items_count > 0 && (waiter = waiters_first_connected(&queue->getters)) != NULL) {
        tdm_status status = reply_item(waiter->call, TAILQ_FIRST(&queue->items));

        if (status == TDM_OK) {
            item_destroy(queue_remove_first(queue));
        } else {
            tdm_call_fail(waiter->call, status, "%s", tdm_error_detail());
        }
        waiter_end(&queue->getters, waiter);
    }
    while (queue_has_space(queue, 1) &&
           (waiter = waiters_first_connected(&queue->putters)) != NULL) {
        queue_append(queue, waiter->item);
        waiter->item = NULL;
        (void)tdm_call_reply(waiter->call, "");
        waiter_end(&queue->putters, waiter);
    }
}

/* ---- methods ---------------------------------------------------------------------------- */

/* Puts the item, or lets the call wait for space. TDM_E_AGAIN if the queue is full and `timeout_ms`
 * is 0. */
static tdm_status queue_put_or_wait(struct queue *queue, tdm_call *call, int64_t timeout_ms,
                                    struct item *item)
{
    if (queue_has_space(queue, 1)) { /* If there is space, no connected caller waits for it. */
        queue_append(queue, item);
        queue_serve_waiters(queue);
        return TDM_OK;
    }
    if (timeout_ms == 0) {
        return tdm_fail(TDM_E_AGAIN, "the queue is full: %u of %u items", queue->items_count,
                        queue->items_max);
    }
    return queue_add_waiter(queue, &queue->putters, call, timeout_ms, item);
}

/* Method "put" (timeout in ms, item). */
static tdm_status queue_put(tdm_call *call, void *self)
{
    struct queue *queue = self;
    const tdm_value *value;
    struct item *item;
    int64_t timeout_ms;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "iv", &timeout_ms, &value));
    if (tdm_value_kind_of(value) != TDM_ARRAY) {
        return tdm_fail(TDM_E_TYPE, "an item is an array of values: put takes i(...)");
    }
    TDM_TRY(item_create(value, &item));
    (void)pthread_mutex_lock(&queue->mutex);
    status = queue_put_or_wait(queue, call, timeout_ms, item);
    (void)pthread_mutex_unlock(&queue->mutex);
    if (status != TDM_OK) {
        item_destroy(item);
    }
    return status;
}

/* Replies with the first item, or lets the call wait for one. TDM_E_AGAIN if the queue is empty and
 * `timeout_ms` is 0. */
static tdm_status queue_get_or_wait(struct queue *queue, tdm_call *call, int64_t timeout_ms)
{
    if (queue->items_count > 0) {
        TDM_TRY(reply_item(call, TAILQ_FIRST(&queue->items)));
        item_destroy(queue_remove_first(queue));
        queue_serve_waiters(queue);
        return TDM_OK;
    }
    if (timeout_ms == 0) {
        return tdm_fail(TDM_E_AGAIN, "the queue is empty");
    }
    return queue_add_waiter(queue, &queue->getters, call, timeout_ms, NULL);
}

/* Method "get" (timeout in ms). */
static tdm_status queue_get(tdm_call *call, void *self)
{
    struct queue *queue = self;
    int64_t timeout_ms;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "i", &timeout_ms));
    (void)pthread_mutex_lock(&queue->mutex);
    status = queue_get_or_wait(queue, call, timeout_ms);
    (void)pthread_mutex_unlock(&queue->mutex);
    return status;
}

/* Appends an item for each value of an array. */
static tdm_status items_create(const tdm_value *values, struct items *items)
{
    for (uint32_t i = 0; i < tdm_value_count(values); i++) {
        const tdm_value *value = tdm_value_at(values, i);
        struct item *item;

        if (tdm_value_kind_of(value) != TDM_ARRAY) {
            return tdm_fail(TDM_E_TYPE, "item %u is not an array of values", i + 1);
        }
        TDM_TRY(item_create(value, &item));
        TAILQ_INSERT_TAIL(items, item, link);
    }
    return TDM_OK;
}

/* Method "put_many" (items): puts all of them or none, without waiting. */
static tdm_status queue_put_many(tdm_call *call, void *self)
{
    struct queue *queue = self;
    struct items items = TAILQ_HEAD_INITIALIZER(items);
    const tdm_value *values;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "v", &values));
    status = items_create(values, &items);
    (void)pthread_mutex_lock(&queue->mutex);
    if (status == TDM_OK && !queue_has_space(queue, tdm_value_count(values))) {
        status = tdm_fail(TDM_E_AGAIN, "the queue has %u of at most %u items: no space for %u",
                          queue->items_count, queue->items_max, tdm_value_count(values));
    }
    if (status == TDM_OK) {
        queue->items_count += tdm_value_count(values);
        TAILQ_CONCAT(&queue->items, &items, link);
        queue_serve_waiters(queue);
    }
    (void)pthread_mutex_unlock(&queue->mutex);
    items_destroy(&items);
    return status;
}

/* Replies with the first `count` items. */
static tdm_status reply_items(struct queue *queue, tdm_call *call, uint32_t count)
{
    const struct item *item = TAILQ_FIRST(&queue->items);
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, count);
    for (uint32_t i = 0; i < count; i++, item = TAILQ_NEXT(item, link)) {
        tdm_write_value(writer, item->value);
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Method "get_many" (count): gets that many items or none, without waiting. */
static tdm_status queue_get_many(tdm_call *call, void *self)
{
    struct queue *queue = self;
    uint64_t count;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "u", &count));
    (void)pthread_mutex_lock(&queue->mutex);
    if (count > queue->items_count) {
        status = tdm_fail(TDM_E_AGAIN, "the queue has %u items, %llu are wanted",
                          queue->items_count, (unsigned long long)count);
    } else {
        status = reply_items(queue, call, (uint32_t)count);
    }
    for (; status == TDM_OK && count > 0; count--) {
        item_destroy(queue_remove_first(queue));
    }
    queue_serve_waiters(queue);
    (void)pthread_mutex_unlock(&queue->mutex);
    return status;
}

/* Method "size": the number of items. */
static tdm_status queue_size(tdm_call *call, void *self)
{
    struct queue *queue = self;
    uint32_t count;

    (void)pthread_mutex_lock(&queue->mutex);
    count = queue->items_count;
    (void)pthread_mutex_unlock(&queue->mutex);
    return tdm_call_reply(call, "u", (uint64_t)count);
}

/* Method "limit": the most items; 0 for no limit. */
static tdm_status queue_limit(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "u", (uint64_t)((struct queue *)self)->items_max);
}

/* ---- the timeout thread -------------------------------------------------------------------- */

/* True if the wait must end: its deadline has passed, or, with `checks_callers`, its caller was
 * gone at two checks in a row. A caller gone only once may have lost its connection for a moment.
 */
static int waiter_is_over(struct waiter *waiter, int64_t now, int checks_callers)
{
    if (checks_callers) {
        int is_canceled = tdm_call_is_canceled(waiter->call);

        if (is_canceled && waiter->was_canceled) {
            return 1;
        }
        waiter->was_canceled = is_canceled;
    }
    return waiter->deadline_ms != TDM_FOREVER && now >= waiter->deadline_ms;
}

/* Ends the waits that are over. Returns the deadline of the next one, at most `next_ms`. */
static int64_t waiters_end_overdue(struct waiters *waiters, const char *what, int checks_callers,
                                   int64_t next_ms)
{
    int64_t now = now_ms();
    struct waiter *next;

    for (struct waiter *waiter = TAILQ_FIRST(waiters); waiter != NULL; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (waiter_is_over(waiter, now, checks_callers)) {
            tdm_call_fail(waiter->call, TDM_E_AGAIN, "the queue is %s, after %lld ms", what,
                          (long long)(now - waiter->started_ms));
            waiter_end(waiters, waiter);
        } else if (waiter->deadline_ms != TDM_FOREVER && waiter->deadline_ms < next_ms) {
            next_ms = waiter->deadline_ms;
        }
    }
    return next_ms;
}

/* Releases the mutex and sleeps until a change or that time. */
static void queue_sleep_until(struct queue *queue, int64_t until_ms)
{
    struct timespec until = {.tv_sec = until_ms / 1000,
                             .tv_nsec = until_ms % 1000 * NANOSECONDS_PER_MS};

    (void)pthread_cond_timedwait(&queue->changed, &queue->mutex, &until);
}

/* Main function of the timeout thread. */
static void *timeout_thread_main(void *arg)
{
    struct queue *queue = arg;
    int64_t next_check_ms = 0;

    (void)pthread_mutex_lock(&queue->mutex);
    while (!queue->is_stopping) {
        if (TAILQ_EMPTY(&queue->putters) && TAILQ_EMPTY(&queue->getters)) {
            (void)pthread_cond_wait(&queue->changed, &queue->mutex);
        } else {
            int checks_callers = now_ms() >= next_check_ms;
            int64_t next_ms;

            if (checks_callers) {
                next_check_ms = now_ms() + CHECK_INTERVAL_MS;
                queue_serve_waiters(queue); /* A caller may have connected again. */
            }
            next_ms = waiters_end_overdue(&queue->putters, "full", checks_callers, next_check_ms);
            next_ms = waiters_end_overdue(&queue->getters, "empty", checks_callers, next_ms);
            queue_sleep_until(queue, next_ms);
        }
    }
    (void)pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

/* ---- construction and destruction -------------------------------------------------------- */

/* Initialises the mutex, and the condition on CLOCK_MONOTONIC. */
static void queue_init_locks(struct queue *queue)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&queue->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&queue->mutex, NULL);
}

/* Constructor of the class (most items). */
static tdm_status queue_construct(tdm_call *call, void *self)
{
    struct queue *queue = self;
    uint64_t items_max;

    TDM_TRY(tdm_call_unpack(call, "u", &items_max));
    if (items_max > UINT32_MAX) {
        return tdm_fail(TDM_E_LIMIT, "a queue of %llu items, at most %u",
                        (unsigned long long)items_max, UINT32_MAX);
    }
    queue->items_max = (uint32_t)items_max;
    TAILQ_INIT(&queue->items);
    TAILQ_INIT(&queue->putters);
    TAILQ_INIT(&queue->getters);
    queue_init_locks(queue);
    if (pthread_create(&queue->timeout_thread, NULL, timeout_thread_main, queue) != 0) {
        return tdm_fail(TDM_E_IO, "pthread_create: the thread that ends a queue's waits");
    }
    return TDM_OK;
}

/* Destructor of the class: stops the timeout thread and frees everything. */
static void queue_destruct(void *self)
{
    struct queue *queue = self;

    (void)pthread_mutex_lock(&queue->mutex);
    queue->is_stopping = 1;
    (void)pthread_cond_signal(&queue->changed);
    (void)pthread_mutex_unlock(&queue->mutex);
    (void)pthread_join(queue->timeout_thread, NULL);
    items_destroy(&queue->items);
    /* The calls were replied to when the actor was asked to end. */
    while (!TAILQ_EMPTY(&queue->putters)) {
        waiter_end(&queue->putters, TAILQ_FIRST(&queue->putters));
    }
    while (!TAILQ_EMPTY(&queue->getters)) {
        waiter_end(&queue->getters, TAILQ_FIRST(&queue->getters));
    }
    (void)pthread_cond_destroy(&queue->changed);
    (void)pthread_mutex_destroy(&queue->mutex);
}

static const struct tdm_actor_class queue_class = {
    .name = "tandem.queue",
    .state_bytes = sizeof(struct queue),
    .construct = queue_construct,
    .destruct = queue_destruct,
    .methods = {{"put", queue_put},
                {"get", queue_get},
                {"put_many", queue_put_many},
                {"get_many", queue_get_many},
                {"size", queue_size},
                {"limit", queue_limit}},
    .asynchronous = 1,
};

/* Registers the class when the library is loaded. */
__attribute__((constructor)) static void register_queue(void)
{
    tdm_class_register(&queue_class);
}

/* ---- functions for callers --------------------------------------------------------------- */

/* Default concurrency of the actor: waiting calls must not keep out the calls that would end their
 * wait. */
enum { CALLS_UNDERWAY_MAX = 100000 };

tdm_status tdm_queue_create(tdm_runtime *runtime, uint32_t items_max,
                            const struct tdm_actor_options *options, tdm_actor **queue_out)
{
    TDM__REQUIRE(queue_out);
    *queue_out = NULL;
    TDM__REQUIRE(runtime);

    struct tdm_actor_options chosen = options == NULL ? (struct tdm_actor_options){0} : *options;

    if (chosen.max_concurrency == 0) {
        chosen.max_concurrency = CALLS_UNDERWAY_MAX;
    }
    return tdm_actor_create(runtime, queue_class.name, &chosen, queue_out, "u",
                            (uint64_t)items_max);
}

/* Returns how long a caller waits for the queue's reply: the time limit of the queue plus a margin.
 */
static int64_t queue_timeout_ms(int64_t timeout_ms)
{
    return timeout_ms < 0 || timeout_ms > INT64_MAX / 2 ? TDM_FOREVER
                                                        : timeout_ms + TDM_QUEUE_ANSWER_MS;
}

/* Waits for the reply of a call that the queue replies to within `timeout_ms`. */
static tdm_status queue_call_wait(tdm_ref *ref, int64_t timeout_ms)
{
    const tdm_value *result;

    return tdm_get_value(ref, queue_timeout_ms(timeout_ms), &result);
}

/* Puts one packed item. */
static tdm_status queue_put_packed_item(tdm_actor *queue, int64_t timeout_ms, struct tdm_bytes item)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(queue, "put", &ref, "ip", timeout_ms, &item));
    status = queue_call_wait(ref, timeout_ms);
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm_queue_put(tdm_actor *queue, int64_t timeout_ms, const char *format, ...)
{
    TDM__REQUIRE(queue);
    TDM__REQUIRE(format);

    tdm_writer *writer;
    tdm_status status;
    va_list args;

    TDM_TRY(tdm_writer_create(&writer));
    va_start(args, format);
    status = tdm_pack_va(writer, format, args);
    va_end(args);
    if (status == TDM_OK) {
        status = queue_put_packed_item(queue, timeout_ms, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Waits for the result of a call and stores it in `*result_out`; cancels the call on failure. */
static tdm_status queue_call_result(tdm_ref *ref, int64_t timeout_ms, tdm_ref **result_out)
{
    tdm_status status = queue_call_wait(ref, timeout_ms);

    if (status != TDM_OK) {
        (void)tdm_cancel(ref, 0);
        tdm_ref_release(ref);
        return status;
    }
    *result_out = ref;
    return TDM_OK;
}

tdm_status tdm_queue_get(tdm_actor *queue, int64_t timeout_ms, tdm_ref **item_out)
{
    TDM__REQUIRE(item_out);
    *item_out = NULL;
    TDM__REQUIRE(queue);

    tdm_ref *ref;

    TDM_TRY(tdm_actor_call(queue, "get", &ref, "i", timeout_ms));
    return queue_call_result(ref, timeout_ms, item_out);
}

/* Puts all items of a packed array or none. */
static tdm_status queue_put_packed_items(tdm_actor *queue, struct tdm_bytes items)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(queue, "put_many", &ref, "p", &items));
    status = queue_call_wait(ref, 0);
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm_queue_put_many(tdm_actor *queue, const struct tdm_bytes *items, uint32_t items_count)
{
    TDM__REQUIRE(queue);
    TDM__REQUIRE_ARRAY(items, items_count);

    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, items_count);
    for (uint32_t i = 0; i < items_count; i++) {
        tdm_write_packed(writer, items[i]);
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = queue_put_packed_items(queue, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm_queue_get_many(tdm_actor *queue, uint32_t items_count, tdm_ref **items_out)
{
    TDM__REQUIRE(items_out);
    *items_out = NULL;
    TDM__REQUIRE(queue);

    tdm_ref *ref;

    TDM_TRY(tdm_actor_call(queue, "get_many", &ref, "u", (uint64_t)items_count));
    return queue_call_result(ref, 0, items_out);
}

/* Calls a method without arguments that returns one number. */
static tdm_status queue_call_actor(tdm_actor *queue, const char *method, uint64_t *number_out)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(queue, method, &ref, ""));
    status = tdm_get(ref, TDM_QUEUE_ANSWER_MS, "u", number_out);
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm_queue_size(tdm_actor *queue, uint32_t *items_count_out)
{
    TDM__REQUIRE(queue);
    TDM__REQUIRE(items_count_out);

    uint64_t count;

    TDM_TRY(queue_call_actor(queue, "size", &count));
    *items_count_out = (uint32_t)count;
    return TDM_OK;
}

tdm_status tdm_queue_is_empty(tdm_actor *queue, int *empty_out)
{
    TDM__REQUIRE(queue);
    TDM__REQUIRE(empty_out);

    uint64_t count;

    TDM_TRY(queue_call_actor(queue, "size", &count));
    *empty_out = count == 0;
    return TDM_OK;
}

tdm_status tdm_queue_is_full(tdm_actor *queue, int *full_out)
{
    TDM__REQUIRE(queue);
    TDM__REQUIRE(full_out);

    uint64_t items_max;
    uint64_t count;

    TDM_TRY(queue_call_actor(queue, "limit", &items_max));
    TDM_TRY(queue_call_actor(queue, "size", &count));
    *full_out = items_max > 0 && count >= items_max;
    return TDM_OK;
}
