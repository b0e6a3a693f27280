/* queue.c - a queue between actors: an asynchronous actor that keeps the calls of those who
 * wait.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "runtime/error.h"
#include <stdarg.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <tandem/util.h>
#include <time.h>

/* ---- the actor -------------------------------------------------------------------------- */

enum { LOOK_MS = 1000, NANOSECONDS_PER_MS = 1000000 };

struct item {
    TAILQ_ENTRY(item) link;
    tdm_ref *ref; /* owned: a put, so that what the item refers to stays */
    const tdm_value *value;
};

/* A call of put or get that is kept. */
struct waiter {
    TAILQ_ENTRY(waiter) link;
    tdm_call *call;
    int64_t begin_ms;
    int64_t deadline_ms; /* TDM_FOREVER: none */
    struct item *item;   /* owned: what is to be put; NULL for a get */
    int was_gone;        /* at the last look */
};

TAILQ_HEAD(items, item);
TAILQ_HEAD(waiters, waiter);

/* Methods run on the actor's thread, `clerk` ends the waits whose time is over; the mutex
 * guards what both touch.  It may be held when Tandem is called, never taken by what Tandem
 * calls.  Not both wait at once: putters only at a full queue, getters at an empty one. */
struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* for the clerk */
    pthread_t clerk;
    int stopping;
    uint32_t items_max; /* 0: without end */
    uint32_t items_count;
    struct items items;
    struct waiters putters; /* each in the order of arrival */
    struct waiters getters;
};

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NANOSECONDS_PER_MS;
}

/* ---- items ------------------------------------------------------------------------------ */

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

static void item_destroy(struct item *item)
{
    if (item != NULL) {
        tdm_ref_release(item->ref);
        free(item);
    }
}

static void items_destroy(struct items *items)
{
    struct item *item;

    while ((item = TAILQ_FIRST(items)) != NULL) {
        TAILQ_REMOVE(items, item, link);
        item_destroy(item);
    }
}

static void queue_append(struct queue *queue, struct item *item)
{
    TAILQ_INSERT_TAIL(&queue->items, item, link);
    queue->items_count++;
}

static struct item *take_first(struct queue *queue)
{
    struct item *item = TAILQ_FIRST(&queue->items);

    TAILQ_REMOVE(&queue->items, item, link);
    queue->items_count--;
    return item;
}

static int has_room(const struct queue *queue, uint32_t more_count)
{
    return queue->items_max == 0 || (queue->items_count <= queue->items_max &&
                                     more_count <= queue->items_max - queue->items_count);
}

/* Answers a get.  An item that cannot be sent is not lost: the call fails, and it stays. */
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

/* ---- those who wait --------------------------------------------------------------------- */

static void waiter_end(struct waiters *waiters, struct waiter *waiter)
{
    TAILQ_REMOVE(waiters, waiter, link);
    item_destroy(waiter->item);
    free(waiter);
}

static tdm_status wait_in(struct queue *queue, struct waiters *waiters, tdm_call *call,
                          int64_t timeout_ms, struct item *item)
{
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    tdm_status status;

    if (waiter == NULL) {
        return tdm_fail(TDM_E_NOMEM, "one who waits at a queue");
    }
    status = tdm_call_keep(call);
    if (status != TDM_OK) {
        free(waiter);
        return status;
    }
    waiter->call = call;
    waiter->begin_ms = now_ms();
    waiter->deadline_ms =
        timeout_ms < 0 ? TDM_FOREVER
                       : waiter->begin_ms + (timeout_ms < INT32_MAX ? timeout_ms : INT32_MAX);
    waiter->item = item;
    TAILQ_INSERT_TAIL(waiters, waiter, link);
    (void)pthread_cond_signal(&queue->changed);
    return TDM_OK;
}

static struct waiter *first_present(struct waiters *waiters)
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

/* Items to those who wait for them, and room to those who wait for that. */
static void serve_waiters(struct queue *queue)
{
    struct waiter *waiter;

    while (queue->items_count > 0 && (waiter = first_present(&queue->getters)) != NULL) {
        tdm_status status = reply_item(waiter->call, TAILQ_FIRST(&queue->items));

        if (status == TDM_OK) {
            item_destroy(take_first(queue));
        } else {
            tdm_call_fail(waiter->call, status, "%s", tdm_error_detail());
        }
        waiter_end(&queue->getters, waiter);
    }
    while (has_room(queue, 1) && (waiter = first_present(&queue->putters)) != NULL) {
        queue_append(queue, waiter->item);
        waiter->item = NULL;
        (void)tdm_call_reply(waiter->call, "");
        waiter_end(&queue->putters, waiter);
    }
}

/* ---- methods ---------------------------------------------------------------------------- */

static tdm_status put_now_or_wait(struct queue *queue, tdm_call *call, int64_t timeout_ms,
                                  struct item *item)
{
    if (has_room(queue, 1)) { /* then nobody waits for it, or nobody who is still there */
        queue_append(queue, item);
        serve_waiters(queue);
        return TDM_OK;
    }
    if (timeout_ms == 0) {
        return tdm_fail(TDM_E_AGAIN, "the queue is full: %u of %u items", queue->items_count,
                        queue->items_max);
    }
    return wait_in(queue, &queue->putters, call, timeout_ms, item);
}

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
    status = put_now_or_wait(queue, call, timeout_ms, item);
    (void)pthread_mutex_unlock(&queue->mutex);
    if (status != TDM_OK) {
        item_destroy(item);
    }
    return status;
}

static tdm_status get_now_or_wait(struct queue *queue, tdm_call *call, int64_t timeout_ms)
{
    if (queue->items_count > 0) {
        TDM_TRY(reply_item(call, TAILQ_FIRST(&queue->items)));
        item_destroy(take_first(queue));
        serve_waiters(queue);
        return TDM_OK;
    }
    if (timeout_ms == 0) {
        return tdm_fail(TDM_E_AGAIN, "the queue is empty");
    }
    return wait_in(queue, &queue->getters, call, timeout_ms, NULL);
}

static tdm_status queue_get(tdm_call *call, void *self)
{
    struct queue *queue = self;
    int64_t timeout_ms;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "i", &timeout_ms));
    (void)pthread_mutex_lock(&queue->mutex);
    status = get_now_or_wait(queue, call, timeout_ms);
    (void)pthread_mutex_unlock(&queue->mutex);
    return status;
}

static tdm_status items_of(const tdm_value *values, struct items *items)
{
    for (uint32_t i = 0; i < tdm_value_count(values); i++) {
        const tdm_value *value = tdm_value_at(values, i);
        struct item *item;

        if (tdm_value_kind_of(value) != TDM_ARRAY) {
            return tdm_fail(TDM_E_TYPE, "item %u is no array of values", i + 1);
        }
        TDM_TRY(item_create(value, &item));
        TAILQ_INSERT_TAIL(items, item, link);
    }
    return TDM_OK;
}

static tdm_status put_many(tdm_call *call, void *self)
{
    struct queue *queue = self;
    struct items items = TAILQ_HEAD_INITIALIZER(items);
    const tdm_value *values;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "v", &values));
    status = items_of(values, &items);
    (void)pthread_mutex_lock(&queue->mutex);
    if (status == TDM_OK && !has_room(queue, tdm_value_count(values))) {
        status = tdm_fail(TDM_E_AGAIN, "the queue has %u items, at most %u: no room for %u",
                          queue->items_count, queue->items_max, tdm_value_count(values));
    }
    if (status == TDM_OK) {
        queue->items_count += tdm_value_count(values);
        TAILQ_CONCAT(&queue->items, &items, link);
        serve_waiters(queue);
    }
    (void)pthread_mutex_unlock(&queue->mutex);
    items_destroy(&items);
    return status;
}

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

static tdm_status get_many(tdm_call *call, void *self)
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
        item_destroy(take_first(queue));
    }
    serve_waiters(queue);
    (void)pthread_mutex_unlock(&queue->mutex);
    return status;
}

static tdm_status queue_size(tdm_call *call, void *self)
{
    struct queue *queue = self;
    uint32_t count;

    (void)pthread_mutex_lock(&queue->mutex);
    count = queue->items_count;
    (void)pthread_mutex_unlock(&queue->mutex);
    return tdm_call_reply(call, "u", (uint64_t)count);
}

static tdm_status queue_limit(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "u", (uint64_t)((struct queue *)self)->items_max);
}

/* ---- the clerk -------------------------------------------------------------------------- */

/* One who is gone at two looks in a row has not merely lost a connection for a moment. */
static int is_over(struct waiter *waiter, int64_t now, int looks)
{
    if (looks) {
        int gone = tdm_call_is_canceled(waiter->call);

        if (gone && waiter->was_gone) {
            return 1;
        }
        waiter->was_gone = gone;
    }
    return waiter->deadline_ms != TDM_FOREVER && now >= waiter->deadline_ms;
}

/* Ends those whose time is over; gives the time when the next one's is, at most `next_ms`. */
static int64_t end_waits(struct waiters *waiters, const char *what, int looks, int64_t next_ms)
{
    int64_t now = now_ms();
    struct waiter *next;

    for (struct waiter *waiter = TAILQ_FIRST(waiters); waiter != NULL; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (is_over(waiter, now, looks)) {
            tdm_call_fail(waiter->call, TDM_E_AGAIN, "the queue is %s, after %lld ms", what,
                          (long long)(now - waiter->begin_ms));
            waiter_end(waiters, waiter);
        } else if (waiter->deadline_ms != TDM_FOREVER && waiter->deadline_ms < next_ms) {
            next_ms = waiter->deadline_ms;
        }
    }
    return next_ms;
}

static void sleep_until(struct queue *queue, int64_t until_ms)
{
    struct timespec until = {.tv_sec = until_ms / 1000,
                             .tv_nsec = until_ms % 1000 * NANOSECONDS_PER_MS};

    (void)pthread_cond_timedwait(&queue->changed, &queue->mutex, &until);
}

static void *clerk_main(void *arg)
{
    struct queue *queue = arg;
    int64_t look_ms = 0;

    (void)pthread_mutex_lock(&queue->mutex);
    while (!queue->stopping) {
        if (TAILQ_EMPTY(&queue->putters) && TAILQ_EMPTY(&queue->getters)) {
            (void)pthread_cond_wait(&queue->changed, &queue->mutex);
        } else {
            int looks = now_ms() >= look_ms;
            int64_t next_ms;

            if (looks) {
                look_ms = now_ms() + LOOK_MS;
                serve_waiters(queue); /* one may have come back */
            }
            next_ms = end_waits(&queue->putters, "full", looks, look_ms);
            next_ms = end_waits(&queue->getters, "empty", looks, next_ms);
            sleep_until(queue, next_ms);
        }
    }
    (void)pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

/* ---- its life --------------------------------------------------------------------------- */

static void init_locks(struct queue *queue)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&queue->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&queue->mutex, NULL);
}

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
    init_locks(queue);
    if (pthread_create(&queue->clerk, NULL, clerk_main, queue) != 0) {
        return tdm_fail(TDM_E_IO, "pthread_create: the thread that ends a queue's waits");
    }
    return TDM_OK;
}

static void queue_destruct(void *self)
{
    struct queue *queue = self;

    (void)pthread_mutex_lock(&queue->mutex);
    queue->stopping = 1;
    (void)pthread_cond_signal(&queue->changed);
    (void)pthread_mutex_unlock(&queue->mutex);
    (void)pthread_join(queue->clerk, NULL);
    items_destroy(&queue->items);
    while (!TAILQ_EMPTY(&queue->putters)) { /* answered, when the actor was asked to end */
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
                {"put_many", put_many},
                {"get_many", get_many},
                {"size", queue_size},
                {"limit", queue_limit}},
    .asynchronous = 1,
};

__attribute__((constructor)) static void register_queue(void)
{
    tdm_class_register(&queue_class);
}

/* ---- those who use it ------------------------------------------------------------------- */

/* Those who wait must not keep out those who would end the wait. */
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

static int64_t queue_timeout_ms(int64_t timeout_ms)
{
    return timeout_ms < 0 || timeout_ms > INT64_MAX / 2 ? TDM_FOREVER
                                                        : timeout_ms + TDM_QUEUE_ANSWER_MS;
}

/* Waits for a call that the queue answers within `timeout_ms`. */
static tdm_status wait_for(tdm_ref *ref, int64_t timeout_ms)
{
    const tdm_value *result;

    return tdm_get_value(ref, queue_timeout_ms(timeout_ms), &result);
}

static tdm_status put_packed(tdm_actor *queue, int64_t timeout_ms, struct tdm_bytes item)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(queue, "put", &ref, "ip", timeout_ms, &item));
    status = wait_for(ref, timeout_ms);
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
        status = put_packed(queue, timeout_ms, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* The result of a call, once it is there. */
static tdm_status take_result(tdm_ref *ref, int64_t timeout_ms, tdm_ref **result_out)
{
    tdm_status status = wait_for(ref, timeout_ms);

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
    return take_result(ref, timeout_ms, item_out);
}

static tdm_status put_many_packed(tdm_actor *queue, struct tdm_bytes items)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(queue, "put_many", &ref, "p", &items));
    status = wait_for(ref, 0);
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
        status = put_many_packed(queue, tdm_writer_bytes(writer));
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
    return take_result(ref, 0, items_out);
}

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
