/* actor_pool.c - tdm_actor_pool: distributes tasks to a pool of actors. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A pool lives in the calling process and has no thread; its functions collect finished calls and
 * start waiting ones whenever they are called. One thread at a time may use a pool. A task is
 * waiting (no actor is idle), running, or ready (its result is there, or its call failed); it is in
 * one list for each state. Tasks whose result is still wanted are also in `wanted`, in the order in
 * which they were submitted.
 *
 * Invariants: actors[0..idle_count) are idle, the others are running one task each; a running task
 * that is not wanted any more keeps its actor busy until its call ends. The actors belong to the
 * caller. */
#include <stdarg.h>

#include "runtime/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <tandem/util.h>
#include <time.h>

enum {
    FIRST_CAPACITY = 8,          /* Capacity of a new pool's arrays. */
    NANOSECONDS_PER_MS = 1000000 /* Nanoseconds in a millisecond. */
};

/* A call of a method with packed arguments, made by tdm_actor_pool_submit(). */
struct method_call {
    tdm_writer *arguments; /* Packed arguments, owned. */
    char method[64];       /* Name of the method. */
};

/* A submitted task. The pool owns it until its result is taken. */
struct task {
    TAILQ_ENTRY(task) link;       /* Entry in `wanted`, while `is_wanted`. */
    TAILQ_ENTRY(task) state_link; /* Entry in `waiting`, `running` or `ready`. */
    tdm_pool_call *call;          /* Function that calls the actor. */
    /* Second argument of `call`: the caller's value, borrowed, or `method`. */
    const void *value;
    struct method_call method; /* The call of a task from tdm_actor_pool_submit(). */
    tdm_actor *actor;          /* Actor that runs the task, borrowed; NULL unless it runs. */
    tdm_ref *ref;              /* Result of the call, owned; NULL until the actor was called. */
    tdm_status status;         /* Result of calling the actor. */
    char *detail;              /* Error detail if calling the actor failed, owned; else NULL. */
    uint32_t index;            /* Index of the value in a map. */
    int is_ready;              /* True if the result is there, or calling the actor failed. */
    int is_wanted;             /* True until the result is taken or a map gives up. */
};

TAILQ_HEAD(tasks, task);

/* A pool of actors. */
struct tdm_actor_pool {
    /* Tasks whose results have not been taken, in order of submission, owned. */
    struct tasks wanted;
    struct tasks waiting; /* Tasks that wait for an idle actor. */
    struct tasks running; /* Tasks that run, also those that are not wanted any more, owned. */
    /* Tasks with a result, in the order in which they were found to be ready. */
    struct tasks ready;
    /* The actors of the pool, idle ones first; the array is owned, the actors are borrowed. */
    tdm_actor **actors;
    tdm_ref **refs;           /* Work array for tdm_wait() with one entry for each actor, owned. */
    uint8_t *refs_done;       /* Work array for the result of tdm_wait(), owned. */
    uint32_t idle_count;      /* Number of idle actors. */
    uint32_t actors_count;    /* Number of actors. */
    uint32_t actors_capacity; /* Number of allocated entries of the arrays. */
};

/* Returns the time on CLOCK_MONOTONIC in milliseconds. */
static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NANOSECONDS_PER_MS;
}

/* ---- actors ----------------------------------------------------------------------------- */

/* Doubles the capacity of the arrays. */
static tdm_status pool_grow(tdm_actor_pool *pool)
{
    uint32_t capacity = pool->actors_capacity == 0 ? FIRST_CAPACITY : 2 * pool->actors_capacity;
    tdm_actor **actors = realloc(pool->actors, capacity * sizeof(tdm_actor *));
    tdm_ref **refs = realloc(pool->refs, capacity * sizeof(tdm_ref *));
    uint8_t *refs_done = realloc(pool->refs_done, capacity);

    pool->actors = actors == NULL ? pool->actors : actors;
    pool->refs = refs == NULL ? pool->refs : refs;
    pool->refs_done = refs_done == NULL ? pool->refs_done : refs_done;
    if (actors == NULL || refs == NULL || refs_done == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a pool of %u actors", capacity);
    }
    pool->actors_capacity = capacity;
    return TDM_OK;
}

/* Returns the index of the actor; actors_count if it is not in the pool. */
static uint32_t pool_index_of_actor(const tdm_actor_pool *pool, const tdm_actor *actor)
{
    uint32_t place = 0;

    while (place < pool->actors_count && pool->actors[place] != actor) {
        place++;
    }
    return place;
}

/* Exchanges two actors of the array. */
static void pool_exchange_actors(tdm_actor_pool *pool, uint32_t one, uint32_t other)
{
    tdm_actor *actor = pool->actors[one];

    pool->actors[one] = pool->actors[other];
    pool->actors[other] = actor;
}

/* Moves a busy actor to the idle ones. */
static void pool_make_idle(tdm_actor_pool *pool, const tdm_actor *actor)
{
    pool_exchange_actors(pool, pool_index_of_actor(pool, actor), pool->idle_count);
    pool->idle_count++;
}

/* ---- tasks ------------------------------------------------------------------------------ */

/* Frees a task that is in no list. */
static void task_free(struct task *task)
{
    tdm_ref_release(task->ref);
    tdm_writer_destroy(task->method.arguments);
    free(task->detail);
    free(task);
}

/* Moves a task, which is in no state's list, to the ready ones. */
static void pool_make_ready(tdm_actor_pool *pool, struct task *task)
{
    task->is_ready = 1;
    TAILQ_INSERT_TAIL(&pool->ready, task, state_link);
}

/* Calls the actor for a waiting task. A task whose call fails becomes ready at once, and its result
 * is the failure. */
static void pool_call_begin(tdm_actor_pool *pool, struct task *task, tdm_actor *actor)
{
    task->status = task->call(actor, task->value, &task->ref);
    if (task->status == TDM_OK) {
        task->actor = actor;
        pool->idle_count--;
        TAILQ_INSERT_TAIL(&pool->running, task, state_link);
    } else {
        task->detail = strdup(tdm_error_detail());
        pool_make_ready(pool, task);
    }
}

/* Starts waiting tasks on the idle actors. */
static void pool_dispatch_tasks(tdm_actor_pool *pool)
{
    struct task *task;

    while (pool->idle_count > 0 && (task = TAILQ_FIRST(&pool->waiting)) != NULL) {
        TAILQ_REMOVE(&pool->waiting, task, state_link);
        pool_call_begin(pool, task, pool->actors[pool->idle_count - 1]);
    }
}

/* Handles the end of a running task: its actor becomes idle. */
static void pool_call_end(tdm_actor_pool *pool, struct task *task)
{
    TAILQ_REMOVE(&pool->running, task, state_link);
    pool_make_idle(pool, task->actor);
    task->actor = NULL;
    if (task->is_wanted) {
        pool_make_ready(pool, task);
    } else {
        task_free(task);
    }
}

/* Waits at most `timeout_ms` until a running call is done, handles all that are done, and starts
 * waiting tasks. */
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

/* Creates a task that is in no list. */
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

/* Adds a task to the pool and starts it if an actor is idle. */
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

/* Function of tasks from tdm_actor_pool_submit(): calls the method in `value`. */
static tdm_status task_call_method(tdm_actor *actor, const void *value, tdm_ref **ref_out)
{
    const struct method_call *method = value;

    return tdm_actor_call_packed(actor, method->method, tdm_writer_bytes(method->arguments),
                                 ref_out);
}

/* Packs the name and the arguments of a method call. */
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

    TDM_TRY(task_create(task_call_method, NULL, &task));
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

/* Waits for the first task in order of submission, or with `any` for the first that is ready.
 * TDM_E_END if no task is left, TDM_E_STATE if the pool has no actors. */
static tdm_status pool_wait_for_task(tdm_actor_pool *pool, int any, int64_t timeout_ms,
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

/* Removes a ready task from the pool and returns its result, which the caller owns, or the failure
 * of its call. */
static tdm_status pool_take_result(tdm_actor_pool *pool, struct task *task, tdm_ref **ref_out)
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

/* Waits for the next task and takes its result. */
static tdm_status pool_get_next(tdm_actor_pool *pool, int any, int64_t timeout_ms,
                                tdm_ref **ref_out)
{
    struct task *task;

    TDM_TRY(pool_wait_for_task(pool, any, timeout_ms, &task));
    return pool_take_result(pool, task, ref_out);
}

tdm_status tdm_actor_pool_get_next(tdm_actor_pool *pool, int64_t timeout_ms, tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(pool);

    return pool_get_next(pool, 0, timeout_ms, ref_out);
}

tdm_status tdm_actor_pool_get_next_unordered(tdm_actor_pool *pool, int64_t timeout_ms,
                                             tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(pool);

    return pool_get_next(pool, 1, timeout_ms, ref_out);
}

int tdm_actor_pool_has_next(const tdm_actor_pool *pool)
{
    TDM__REQUIRE_OR(pool, 0);

    return !TAILQ_EMPTY(&pool->wanted);
}

/* ---- maps ------------------------------------------------------------------------------- */

/* Gives up all tasks: cancels running calls and frees the other tasks. */
static void pool_forget_all(tdm_actor_pool *pool)
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

/* Submits a task for each value of the map. */
static tdm_status pool_submit_map(tdm_actor_pool *pool, const struct tdm_pool_map *map)
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

/* Waits for one task of the map and passes its result to the map's callback. */
static tdm_status pool_report_one(tdm_actor_pool *pool, const struct tdm_pool_map *map, int any,
                                  int64_t timeout_ms)
{
    struct task *task;
    uint32_t index;
    tdm_status status;
    tdm_ref *ref;

    TDM_TRY(pool_wait_for_task(pool, any, timeout_ms, &task));
    index = task->index;
    TDM_TRY(pool_take_result(pool, task, &ref));
    status = map->result(map->arg, index, ref);
    tdm_ref_release(ref);
    return status;
}

/* Runs a map on an otherwise empty pool. */
static tdm_status pool_run_map(tdm_actor_pool *pool, const struct tdm_pool_map *map, int any,
                               int64_t timeout_ms)
{
    int64_t deadline_ms = now_ms() + (timeout_ms < INT64_MAX / 2 ? timeout_ms : INT64_MAX / 2);
    tdm_status status;

    if (tdm_actor_pool_has_next(pool)) {
        return tdm_fail(TDM_E_STATE, "the pool has results that were not taken");
    }
    status = pool_submit_map(pool, map);
    for (uint32_t i = 0; status == TDM_OK && i < map->values_count; i++) {
        int64_t remaining_ms = deadline_ms - now_ms();

        status = pool_report_one(
            pool, map, any, timeout_ms < 0 ? TDM_FOREVER : (remaining_ms < 0 ? 0 : remaining_ms));
    }
    pool_forget_all(pool); /* No task is left if the map has succeeded. */
    return status;
}

tdm_status tdm_actor_pool_map(tdm_actor_pool *pool, const struct tdm_pool_map *map,
                              int64_t timeout_ms)
{
    TDM__REQUIRE(pool);
    TDM__REQUIRE(map);

    return pool_run_map(pool, map, 0, timeout_ms);
}

tdm_status tdm_actor_pool_map_unordered(tdm_actor_pool *pool, const struct tdm_pool_map *map,
                                        int64_t timeout_ms)
{
    TDM__REQUIRE(pool);
    TDM__REQUIRE(map);

    return pool_run_map(pool, map, 1, timeout_ms);
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
    pool_exchange_actors(pool, pool->idle_count - 1, pool->actors_count - 1);
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
    if (pool->actors_count == pool->actors_capacity) {
        TDM_TRY(pool_grow(pool));
    }
    pool->actors[pool->actors_count++] = actor;
    pool_make_idle(pool, actor);
    (void)pool_collect_results(pool, 0);
    return TDM_OK;
}

/* Adds all actors to the pool. */
static tdm_status pool_push_all(tdm_actor_pool *pool, tdm_actor *const *actors,
                                uint32_t actors_count)
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
    status = pool_push_all(pool, actors, actors_count);
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
    pool_forget_all(pool);
    while ((task = TAILQ_FIRST(&pool->running)) != NULL) {
        TAILQ_REMOVE(&pool->running, task, state_link);
        task_free(task);
    }
    free(pool->actors);
    free(pool->refs);
    free(pool->refs_done);
    free(pool);
}
