/* actor_pool.c - a pool of actors that share the work. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>

#include "runtime/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <tandem/util.h>
#include <time.h>

enum { FIRST_ROOM = 8, NANOSECONDS_PER_MS = 1000000 };

/* A call of a method, for those who submit one. */
struct method_call {
    tdm_writer *arguments; /* owned */
    char method[64];
};

/* Waits for an actor, runs, and is ready when its result is there, or it could not be called.
 */
struct task {
    TAILQ_ENTRY(task) link;       /* in `wanted` */
    TAILQ_ENTRY(task) state_link; /* in `waiting`, `running` or `ready` */
    tdm_pool_call *call;
    const void *value;         /* borrowed, or `method` */
    struct method_call method; /* of tdm_actor_pool_submit() */
    tdm_actor *actor;          /* borrowed; while it runs */
    tdm_ref *ref;              /* owned; once it was called */
    tdm_status status;         /* of the attempt to call */
    char *detail;              /* owned; of that; NULL */
    uint32_t index;            /* in a map */
    int is_ready;
    int is_wanted;
};

TAILQ_HEAD(tasks, task);

struct tdm_actor_pool {
    struct tasks wanted; /* in the order in which they were submitted */
    struct tasks waiting;
    struct tasks running; /* also what nobody wants any more */
    struct tasks ready;
    tdm_actor **actors; /* owned, what they point at borrowed; the idle ones first */
    tdm_ref **refs;     /* owned; room for one of each actor, to wait for them */
    uint8_t *refs_done; /* owned; likewise */
    uint32_t idle_count;
    uint32_t actors_count;
    uint32_t actors_room;
};

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NANOSECONDS_PER_MS;
}

/* ---- actors ----------------------------------------------------------------------------- */

static tdm_status pool_grow(tdm_actor_pool *pool)
{
    uint32_t room = pool->actors_room == 0 ? FIRST_ROOM : 2 * pool->actors_room;
    tdm_actor **actors = realloc(pool->actors, room * sizeof(tdm_actor *));
    tdm_ref **refs = realloc(pool->refs, room * sizeof(tdm_ref *));
    uint8_t *refs_done = realloc(pool->refs_done, room);

    pool->actors = actors == NULL ? pool->actors : actors;
    pool->refs = refs == NULL ? pool->refs : refs;
    pool->refs_done = refs_done == NULL ? pool->refs_done : refs_done;
    if (actors == NULL || refs == NULL || refs_done == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a pool of %u actors", room);
    }
    pool->actors_room = room;
    return TDM_OK;
}

static uint32_t pool_index_of_actor(const tdm_actor_pool *pool, const tdm_actor *actor)
{
    uint32_t place = 0;

    while (place < pool->actors_count && pool->actors[place] != actor) {
        place++;
    }
    return place;
}

static void pool_exchange_result(tdm_actor_pool *pool, uint32_t one, uint32_t other)
{
    tdm_actor *actor = pool->actors[one];

    pool->actors[one] = pool->actors[other];
    pool->actors[other] = actor;
}

static void make_idle(tdm_actor_pool *pool, const tdm_actor *actor)
{
    pool_exchange_result(pool, pool_index_of_actor(pool, actor), pool->idle_count);
    pool->idle_count++;
}

/* ---- tasks ------------------------------------------------------------------------------ */

static void task_free(struct task *task)
{
    tdm_ref_release(task->ref);
    tdm_writer_destroy(task->method.arguments);
    free(task->detail);
    free(task);
}

static void become_ready(tdm_actor_pool *pool, struct task *task)
{
    task->is_ready = 1;
    TAILQ_INSERT_TAIL(&pool->ready, task, state_link);
}

/* What cannot be called is ready, too: its result tells why. */
static void pool_call_begin(tdm_actor_pool *pool, struct task *task, tdm_actor *actor)
{
    task->status = task->call(actor, task->value, &task->ref);
    if (task->status == TDM_OK) {
        task->actor = actor;
        pool->idle_count--;
        TAILQ_INSERT_TAIL(&pool->running, task, state_link);
    } else {
        task->detail = strdup(tdm_error_detail());
        become_ready(pool, task);
    }
}

/* The free actors get what waits. */
static void pool_dispatch_tasks(tdm_actor_pool *pool)
{
    struct task *task;

    while (pool->idle_count > 0 && (task = TAILQ_FIRST(&pool->waiting)) != NULL) {
        TAILQ_REMOVE(&pool->waiting, task, state_link);
        pool_call_begin(pool, task, pool->actors[pool->idle_count - 1]);
    }
}

static void pool_call_end(tdm_actor_pool *pool, struct task *task)
{
    TAILQ_REMOVE(&pool->running, task, state_link);
    make_idle(pool, task->actor);
    task->actor = NULL;
    if (task->is_wanted) {
        become_ready(pool, task);
    } else {
        task_free(task);
    }
}

/* Waits until one of the running calls is done, then takes back the actors of all that are,
 * and hands out again. */
static tdm_status pool_collect_results(tdm_actor_pool *pool, int64_t timeout_ms)
{
    tdm_status status = TDM_OK;
    uint32_t count = 0;
    struct task *task;
    struct task *next;

    TAILQ_FOREACH(task, &pool->running, state_link)
    {
        pool->refs[count++] = task->ref;
    }
    if (count > 0) {
        memset(pool->refs_done, 0, count);
        status = tdm_wait(pool->refs, count, 1, timeout_ms, pool->refs_done);
    }
    count = 0;
    for (task = TAILQ_FIRST(&pool->running); task != NULL; task = next) {
        next = TAILQ_NEXT(task, state_link);
        if (pool->refs_done[count++]) {
            pool_call_end(pool, task);
        }
    }
    pool_dispatch_tasks(pool);
    return status;
}

/* ---- submitting ------------------------------------------------------------------------- */

static tdm_status task_create(tdm_pool_call *call, const void *value, struct task **task_out)
{
    struct task *task = calloc(1, sizeof(*task));

    if (task == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a task of an actor pool");
    }
    task->call = call;
    task->value = value;
    task->is_wanted = 1;
    *task_out = task;
    return TDM_OK;
}

static void pool_submit(tdm_actor_pool *pool, struct task *task)
{
    TAILQ_INSERT_TAIL(&pool->wanted, task, link);
    TAILQ_INSERT_TAIL(&pool->waiting, task, state_link);
    (void)pool_collect_results(pool, 0);
}

tdm_status tdm_actor_pool_submit_with(tdm_actor_pool *pool, tdm_pool_call *call, const void *value)
{
    TDM__REQUIRE(pool);
    TDM__REQUIRE(call);

    struct task *task;

    TDM_TRY(task_create(call, value, &task));
    pool_submit(pool, task);
    return TDM_OK;
}

static tdm_status call_method(tdm_actor *actor, const void *value, tdm_ref **ref_out)
{
    const struct method_call *method = value;

    return tdm_actor_call_packed(actor, method->method, tdm_writer_bytes(method->arguments),
                                 ref_out);
}

static tdm_status method_call_init(struct method_call *call, const char *method, const char *format,
                                   va_list args)
{
    if (strlen(method) >= sizeof(call->method)) {
        return tdm_fail(TDM_E_INVAL, "a method's name has at most %zu bytes, not %zu",
                        sizeof(call->method) - 1, strlen(method));
    }
    (void)snprintf(call->method, sizeof(call->method), "%s", method);
    TDM_TRY(tdm_writer_create(&call->arguments));
    return tdm_pack_va(call->arguments, format, args);
}

tdm_status tdm_actor_pool_submit(tdm_actor_pool *pool, const char *method, const char *format, ...)
{
    TDM__REQUIRE(pool);
    TDM__REQUIRE(method);
    TDM__REQUIRE(format);

    struct task *task;
    tdm_status status;
    va_list args;

    TDM_TRY(task_create(call_method, NULL, &task));
    task->value = &task->method;
    va_start(args, format);
    status = method_call_init(&task->method, method, format, args);
    va_end(args);
    if (status != TDM_OK) {
        tdm_writer_destroy(task->method.arguments);
        free(task);
        return status;
    }
    pool_submit(pool, task);
    return TDM_OK;
}

/* ---- results ---------------------------------------------------------------------------- */

/* Waits for the result of the first one, or for any. */
static tdm_status wait_for(tdm_actor_pool *pool, int any, int64_t timeout_ms,
                           struct task **task_out)
{
    int64_t deadline_ms = now_ms() + (timeout_ms < INT64_MAX / 2 ? timeout_ms : INT64_MAX / 2);
    struct task *task;

    (void)pool_collect_results(pool, 0);
    while ((task = TAILQ_FIRST(any ? &pool->ready : &pool->wanted)) == NULL || !task->is_ready) {
        int64_t remaining_ms = deadline_ms - now_ms();

        if (TAILQ_EMPTY(&pool->wanted)) {
            return tdm_fail(TDM_E_END, "all results of the pool have been taken");
        }
        if (pool->actors_count == 0) {
            return tdm_fail(TDM_E_STATE, "the pool has no actors: push one");
        }
        TDM_TRY(pool_collect_results(pool, timeout_ms < 0 ? TDM_FOREVER
                                                          : (remaining_ms < 0 ? 0 : remaining_ms)));
    }
    *task_out = task;
    return TDM_OK;
}

static tdm_status take_result(tdm_actor_pool *pool, struct task *task, tdm_ref **ref_out)
{
    tdm_status status = task->status;

    if (status != TDM_OK) {
        (void)tdm_fail(status, "%s", task->detail == NULL ? "" : task->detail);
    } else {
        *ref_out = task->ref;
        task->ref = NULL;
    }
    TAILQ_REMOVE(&pool->wanted, task, link);
    TAILQ_REMOVE(&pool->ready, task, state_link);
    task_free(task);
    return status;
}

static tdm_status get_next(tdm_actor_pool *pool, int any, int64_t timeout_ms, tdm_ref **ref_out)
{
    struct task *task;

    TDM_TRY(wait_for(pool, any, timeout_ms, &task));
    return take_result(pool, task, ref_out);
}

tdm_status tdm_actor_pool_get_next(tdm_actor_pool *pool, int64_t timeout_ms, tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(pool);

    return get_next(pool, 0, timeout_ms, ref_out);
}

tdm_status tdm_actor_pool_get_next_unordered(tdm_actor_pool *pool, int64_t timeout_ms,
                                             tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(pool);

    return get_next(pool, 1, timeout_ms, ref_out);
}

int tdm_actor_pool_has_next(const tdm_actor_pool *pool)
{
    TDM__REQUIRE_OR(pool, 0);

    return !TAILQ_EMPTY(&pool->wanted);
}

/* ---- maps ------------------------------------------------------------------------------- */

/* Nobody wants any result any more. */
static void forget_all(tdm_actor_pool *pool)
{
    struct task *task;

    while ((task = TAILQ_FIRST(&pool->wanted)) != NULL) {
        TAILQ_REMOVE(&pool->wanted, task, link);
        task->is_wanted = 0;
        if (task->actor != NULL) {
            (void)tdm_cancel(task->ref, 0);
        } else {
            TAILQ_REMOVE(task->is_ready ? &pool->ready : &pool->waiting, task, state_link);
            task_free(task);
        }
    }
}

static tdm_status submit_all(tdm_actor_pool *pool, const struct tdm_pool_map *map)
{
    const char *values = map->values;

    for (uint32_t i = 0; i < map->values_count; i++) {
        struct task *task;

        TDM_TRY(task_create(map->call, values + (size_t)i * map->value_bytes, &task));
        task->index = i;
        pool_submit(pool, task);
    }
    return TDM_OK;
}

static tdm_status pool_report_one(tdm_actor_pool *pool, const struct tdm_pool_map *map, int any,
                                  int64_t timeout_ms)
{
    struct task *task;
    uint32_t index;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(wait_for(pool, any, timeout_ms, &task));
    index = task->index;
    TDM_TRY(take_result(pool, task, &ref));
    status = map->result(map->arg, index, ref);
    tdm_ref_release(ref);
    return status;
}

static tdm_status run_map(tdm_actor_pool *pool, const struct tdm_pool_map *map, int any,
                          int64_t timeout_ms)
{
    int64_t deadline_ms = now_ms() + (timeout_ms < INT64_MAX / 2 ? timeout_ms : INT64_MAX / 2);
    tdm_status status;

    if (tdm_actor_pool_has_next(pool)) {
        return tdm_fail(TDM_E_STATE, "the pool has results that were not taken");
    }
    status = submit_all(pool, map);
    for (uint32_t i = 0; status == TDM_OK && i < map->values_count; i++) {
        int64_t remaining_ms = deadline_ms - now_ms();

        status = pool_report_one(
            pool, map, any, timeout_ms < 0 ? TDM_FOREVER : (remaining_ms < 0 ? 0 : remaining_ms));
    }
    forget_all(pool); /* nothing is left when all went well */
    return status;
}

tdm_status tdm_actor_pool_map(tdm_actor_pool *pool, const struct tdm_pool_map *map,
                              int64_t timeout_ms)
{
    TDM__REQUIRE(pool);
    TDM__REQUIRE(map);

    return run_map(pool, map, 0, timeout_ms);
}

tdm_status tdm_actor_pool_map_unordered(tdm_actor_pool *pool, const struct tdm_pool_map *map,
                                        int64_t timeout_ms)
{
    TDM__REQUIRE(pool);
    TDM__REQUIRE(map);

    return run_map(pool, map, 1, timeout_ms);
}

/* ---- the pool --------------------------------------------------------------------------- */

int tdm_actor_pool_has_free(tdm_actor_pool *pool)
{
    TDM__REQUIRE_OR(pool, 0);

    (void)pool_collect_results(pool, 0);
    return pool->idle_count > 0;
}

tdm_actor *tdm_actor_pool_pop_idle(tdm_actor_pool *pool)
{
    TDM__REQUIRE_OR(pool, NULL);

    tdm_actor *actor;

    (void)pool_collect_results(pool, 0);
    if (pool->idle_count == 0) {
        return NULL;
    }
    pool_exchange_result(pool, pool->idle_count - 1, pool->actors_count - 1);
    actor = pool->actors[--pool->actors_count];
    pool->idle_count--;
    return actor;
}

tdm_status tdm_actor_pool_push(tdm_actor_pool *pool, tdm_actor *actor)
{
    TDM__REQUIRE(pool);
    TDM__REQUIRE(actor);

    if (pool_index_of_actor(pool, actor) < pool->actors_count) {
        return tdm_fail(TDM_E_EXISTS, "the actor is in the pool already");
    }
    if (pool->actors_count == pool->actors_room) {
        TDM_TRY(pool_grow(pool));
    }
    pool->actors[pool->actors_count++] = actor;
    make_idle(pool, actor);
    (void)pool_collect_results(pool, 0);
    return TDM_OK;
}

static tdm_status push_all(tdm_actor_pool *pool, tdm_actor *const *actors, uint32_t actors_count)
{
    for (uint32_t i = 0; i < actors_count; i++) {
        TDM_TRY(tdm_actor_pool_push(pool, actors[i]));
    }
    return TDM_OK;
}

tdm_status tdm_actor_pool_create(tdm_actor *const *actors, uint32_t actors_count,
                                 tdm_actor_pool **pool_out)
{
    TDM__REQUIRE(pool_out);
    *pool_out = NULL;
    TDM__REQUIRE_ARRAY(actors, actors_count);

    tdm_actor_pool *pool = calloc(1, sizeof(*pool));
    tdm_status status;

    if (pool == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a pool of actors");
    }
    TAILQ_INIT(&pool->wanted);
    TAILQ_INIT(&pool->waiting);
    TAILQ_INIT(&pool->running);
    TAILQ_INIT(&pool->ready);
    status = push_all(pool, actors, actors_count);
    if (status != TDM_OK) {
        tdm_actor_pool_destroy(pool);
        return status;
    }
    *pool_out = pool;
    return TDM_OK;
}

void tdm_actor_pool_destroy(tdm_actor_pool *pool)
{
    struct task *task;

    if (pool == NULL) {
        return;
    }
    forget_all(pool);
    while ((task = TAILQ_FIRST(&pool->running)) != NULL) {
        TAILQ_REMOVE(&pool->running, task, state_link);
        task_free(task);
    }
    free(pool->actors);
    free(pool->refs);
    free(pool->refs_done);
    free(pool);
}
