/* lane.c - the calls of one concurrency group, in line, and the threads that run them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/lane.h"

#include "actors/class.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/loop/loop.h"
#include "runtime/loop/turns.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

struct post {
    STAILQ_ENTRY(post) link;
    void (*fn)(void *arg);
    void *arg;
};

/* A thread. */
struct runner {
    SLIST_ENTRY(runner) link;
    SLIST_ENTRY(runner) idle_link;
    struct tdm__lane *lane;
    pthread_t thread;
    struct tdm__sleeper sleeper;
    bool is_idle;
};

void tdm__lane_init(struct tdm__lane *lane, struct tdm__loop *loop, const char *name,
                    uint32_t limit, bool has_threads, void (*run)(tdm_call *call))
{
    *lane = (struct tdm__lane){
        .loop = loop, .name = name, .run = run, .limit = limit, .has_threads = has_threads};
    TAILQ_INIT(&lane->waiting);
    STAILQ_INIT(&lane->posts);
    SLIST_INIT(&lane->runners);
    SLIST_INIT(&lane->idle);
}

bool tdm__lane_has_work(const struct tdm__lane *lane)
{
    return (!TAILQ_EMPTY(&lane->waiting) && lane->underway_count < lane->limit) ||
           !STAILQ_EMPTY(&lane->posts);
}

bool tdm__lane_is_empty(const struct tdm__lane *lane)
{
    return TAILQ_EMPTY(&lane->waiting) && STAILQ_EMPTY(&lane->posts) &&
           lane->underway_count == 0;
}

static void run_post(struct tdm__lane *lane)
{
    struct post *post = STAILQ_FIRST(&lane->posts);
    uint32_t depth;

    STAILQ_REMOVE_HEAD(&lane->posts, link);
    depth = tdm__loop_let_go(lane->loop);
    post->fn(post->arg);
    tdm__loop_take_back(lane->loop, depth);
    free(post);
}

void tdm__lane_work(struct tdm__lane *lane)
{
    if (!STAILQ_EMPTY(&lane->posts)) {
        run_post(lane);
    } else {
        tdm_call *call = TAILQ_FIRST(&lane->waiting);

        TAILQ_REMOVE(&lane->waiting, call, link);
        lane->underway_count++;
        call->state = TDM__CALL_RUNNING;
        lane->run(call);
    }
}

/* ---- threads ---------------------------------------------------------------------------- */

static void sleep_idle(struct runner *runner)
{
    struct tdm__lane *lane = runner->lane;

    runner->is_idle = true;
    SLIST_INSERT_HEAD(&lane->idle, runner, idle_link);
    while (runner->is_idle) {
        (void)tdm__turns_sleep(tdm__loop_turns(lane->loop), &runner->sleeper, TDM__NEVER);
    }
}

/* Each is roused once, for one thing to do. */
static void rouse_first(struct tdm__lane *lane)
{
    struct runner *runner = SLIST_FIRST(&lane->idle);

    SLIST_REMOVE_HEAD(&lane->idle, idle_link);
    runner->is_idle = false;
    tdm__turns_rouse(tdm__loop_turns(lane->loop), &runner->sleeper);
}

static void *runner_main(void *arg)
{
    struct runner *runner = arg;
    struct tdm__lane *lane = runner->lane;
    TDM__ENTER(lane->loop);

    (void)prctl(PR_SET_NAME, lane->name);
    tdm__call_thread_begin();
    while (!lane->stopping) {
        if (tdm__lane_has_work(lane)) {
            tdm__lane_work(lane);
        } else {
            sleep_idle(runner);
        }
    }
    tdm__call_thread_end();
    return NULL;
}

static tdm_status add_runner(struct tdm__lane *lane)
{
    struct runner *runner = calloc(1, sizeof(*runner));
    int rc;

    if (runner == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a thread of an actor");
    }
    runner->lane = lane;
    tdm__sleeper_init(&runner->sleeper);
    rc = pthread_create(&runner->thread, NULL, runner_main, runner);
    if (rc != 0) {
        tdm__sleeper_fini(&runner->sleeper);
        free(runner);
        return tdm__fail_errno(rc, "pthread_create: thread %u of the group \"%s\"",
                               lane->threads_count + 1, lane->name);
    }
    SLIST_INSERT_HEAD(&lane->runners, runner, link);
    lane->threads_count++;
    return TDM_OK;
}

/* One more thread for what has come: one that sleeps, or a new one while there may be more. */
static void call_thread(struct tdm__lane *lane)
{
    if (!SLIST_EMPTY(&lane->idle)) {
        rouse_first(lane);
    } else if (lane->threads_count < lane->limit && add_runner(lane) != TDM_OK) {
        /* Those there are will come to it; without any it waits until there can be one. */
        tdm__log(TDM__WARN, "actor", "%s", tdm_error_detail());
    }
}

void tdm__lane_stop(struct tdm__lane *lane)
{
    struct runner *runner;
    struct post *post;
    uint32_t depth;

    lane->stopping = true;
    while (!SLIST_EMPTY(&lane->idle)) {
        rouse_first(lane);
    }
    depth = tdm__loop_let_go(lane->loop);
    while ((runner = SLIST_FIRST(&lane->runners)) != NULL) {
        SLIST_REMOVE_HEAD(&lane->runners, link);
        (void)pthread_join(runner->thread, NULL);
        tdm__sleeper_fini(&runner->sleeper);
        free(runner);
    }
    tdm__loop_take_back(lane->loop, depth);
    while ((post = STAILQ_FIRST(&lane->posts)) != NULL) {
        STAILQ_REMOVE_HEAD(&lane->posts, link);
        free(post);
    }
}

/* ---- the line --------------------------------------------------------------------------- */

static void work_came(struct tdm__lane *lane)
{
    if (!lane->is_open) {
        return;
    }
    if (lane->has_threads) {
        call_thread(lane);
    } else {
        tdm__loop_wake(lane->loop);
    }
}

struct tdm__lane *tdm__lane_numbered(struct tdm__lane *lanes, uint32_t count, uint32_t number)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tdm__concurrency_group_number(lanes[i].name) == number) {
            return &lanes[i];
        }
    }
    return NULL;
}

void tdm__lane_open(struct tdm__lane *lane)
{
    tdm_call *call;

    lane->is_open = true;
    if (!STAILQ_EMPTY(&lane->posts)) {
        work_came(lane);
    }
    TAILQ_FOREACH(call, &lane->waiting, link)
    {
        work_came(lane);
    }
}

void tdm__lane_push(struct tdm__lane *lane, tdm_call *call)
{
    call->state = TDM__CALL_WAITING;
    TAILQ_INSERT_TAIL(&lane->waiting, call, link);
    work_came(lane);
}

void tdm__lane_remove(struct tdm__lane *lane, tdm_call *call)
{
    TAILQ_REMOVE(&lane->waiting, call, link);
    call->state = TDM__CALL_RETURNED;
}

tdm_status tdm__lane_post(struct tdm__lane *lane, void (*fn)(void *arg), void *arg)
{
    struct post *post = malloc(sizeof(*post));

    if (post == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a post to an actor's thread");
    }
    post->fn = fn;
    post->arg = arg;
    STAILQ_INSERT_TAIL(&lane->posts, post, link);
    work_came(lane);
    return TDM_OK;
}

void tdm__lane_ended(struct tdm__lane *lane)
{
    TDM_ASSERT(lane->underway_count > 0);
    lane->underway_count--;
    if (!lane->has_threads && tdm__lane_has_work(lane)) {
        tdm__loop_wake(lane->loop);
    }
}
