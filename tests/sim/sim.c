/* sim.c - simulated processes in one thread, with a random order of events and a simulated
 * clock. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sim.h"

#include "actors/process/runtime.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "tests/sim/fiber.h"
#include "tests/sim/internal.h"
#include "tests/support/test_random.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { THINGS_MAX = 1024, POLLED_MAX = 512, STEPS_MAX = 400000, SETTLING_ROUNDS_MAX = 100000 };

struct sim sim;
static struct test_random chance;
/* IDs have a generator of their own, since they do not affect the history. */
static struct test_random id_chance;

uint32_t sim_below(uint32_t bound)
{
    return test_random_below(&chance, bound);
}

/* ---- the history ------------------------------------------------------------------------ */

void sim_trace_on(bool on)
{
    sim.tracing = on;
}

void sim_log_begin(void)
{
    (void)setenv("TANDEM_LOG", "error", 0); /* NOLINT(concurrency-mt-unsafe) one thread */
    tdm__log_init("sim");
}

void sim_trace(const char *format, ...)
{
    va_list args;

    if (!sim.tracing) {
        return;
    }
    (void)printf("%6llu %5lld ms  %-9s ", (unsigned long long)sim.steps_count,
                 (long long)sim.now_ms, sim.current == NULL ? "" : sim.current->name);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n");
}

int64_t sim_now_ms(void)
{
    return sim.now_ms;
}

uint64_t sim_steps_count(void)
{
    return sim.steps_count;
}

/* ---- ids that repeat, threads that are fibers (the linker leads these calls here) ---------- */

tdm_status repeatable_id_make(struct tdm__id *id_out) __asm__("__wrap_tdm__id_generate");
int fiber_thread_create(pthread_t *thread_out, const pthread_attr_t *attributes,
                        void *(*main)(void *arg), void *arg) __asm__("__wrap_pthread_create");
int fiber_thread_join(pthread_t thread, void **result_out) __asm__("__wrap_pthread_join");

tdm_status repeatable_id_make(struct tdm__id *id_out)
{
    uint64_t parts[2] = {test_random_next(&id_chance), test_random_next(&id_chance)};

    memcpy(id_out->bytes, parts, sizeof(id_out->bytes));
    return TDM_OK;
}

static void run_thread(void *arg)
{
    struct sim_fiber *self = arg;

    (void)self->thread_main(self->arg);
}

int fiber_thread_create(pthread_t *thread_out, const pthread_attr_t *attributes,
                        void *(*main)(void *arg), void *arg)
{
    struct sim_fiber *fiber = sim_fiber_create(sim.current);

    (void)attributes;
    fiber->thread_main = main;
    fiber->arg = arg;
    fiber->fiber = fiber_create(run_thread, fiber);
    *thread_out = (pthread_t)fiber;
    return 0;
}

static bool fiber_is_over(void *arg)
{
    return fiber_has_ended(((const struct sim_fiber *)arg)->fiber);
}

static void sim_fiber_destroy(struct sim_fiber *fiber)
{
    TAILQ_REMOVE(&fiber->process->fibers, fiber, link);
    fiber_destroy(fiber->fiber);
    free(fiber);
}

int fiber_thread_join(pthread_t thread, void **result_out)
{
    struct sim_fiber *fiber = (struct sim_fiber *)thread;

    (void)result_out;
    while (!fiber_is_over(fiber)) {
        (void)sim_wait(fiber_is_over, fiber, TDM__NEVER);
    }
    sim_fiber_destroy(fiber);
    return 0;
}

/* ---- processes and fibers --------------------------------------------------------------- */

static void become(struct sim_process *process)
{
    sim.current = process;
    tdm__runtime_set_current(process == NULL ? NULL : process->runtime);
}

struct sim_process *sim_self(void)
{
    return sim.current;
}

bool sim_is_dying(void)
{
    return sim.current->dying;
}

void sim_set_runtime(tdm_runtime *runtime)
{
    sim.current->runtime = runtime;
    tdm__runtime_set_current(runtime);
}

struct sim_fiber *sim_fiber_create(struct sim_process *process)
{
    struct sim_fiber *fiber = calloc(1, sizeof(*fiber));

    TDM_ASSERT(fiber != NULL);
    fiber->process = process;
    TAILQ_INSERT_TAIL(&process->fibers, fiber, link);
    return fiber;
}

void sim_fiber_start(void (*fn)(void *arg), void *arg)
{
    struct sim_fiber *fiber = sim_fiber_create(sim.current);

    fiber->joined = true; /* No fiber will join it. */
    fiber->fiber = fiber_create(fn, arg);
}

struct sim_process *sim_process_create(const char *name, void (*main)(void *arg),
                                       void (*on_kill)(void *arg), void *arg)
{
    struct sim_process *process = calloc(1, sizeof(*process));
    struct sim_fiber *fiber;

    TDM_ASSERT(process != NULL);
    (void)snprintf(process->name, sizeof(process->name), "%s", name);
    process->on_kill = on_kill;
    process->arg = arg;
    process->skips_of_eight = sim_below(3) == 0 ? 1 + sim_below(7) : 0;
    TAILQ_INIT(&process->fibers);
    TAILQ_INSERT_TAIL(&sim.processes, process, link);
    fiber = sim_fiber_create(process);
    fiber->joined = true;
    fiber->fiber = fiber_create(main, arg);
    return process;
}

bool sim_process_has_ended(const struct sim_process *process)
{
    return TAILQ_EMPTY(&process->fibers);
}

void sim_process_kill(struct sim_process *process)
{
    process->kill_wanted = true;
}

void sim_process_stop(struct sim_process *process, bool stopped)
{
    process->stopped = stopped;
}

void sim_process_set_machine(struct sim_process *process, uint32_t machine)
{
    process->machine = machine;
}

uint32_t sim_process_machine(const struct sim_process *process)
{
    return process->machine;
}

void sim_set_network(bool (*hides)(uint32_t machine, int fd))
{
    sim.hides = hides;
}

static void resume(struct sim_fiber *fiber)
{
    struct sim_process *process = fiber->process;

    become(process);
    sim.fiber = fiber;
    fiber->waits = false;
    fiber_resume(fiber->fiber);
    sim.fiber = NULL;
    if (process->loop != NULL) {
        process->loop->dirty = true;
    }
    if (fiber_is_over(fiber) && fiber->joined) {
        sim_fiber_destroy(fiber);
    }
    become(NULL);
}

tdm_status sim_wait(bool (*done)(void *arg), void *arg, int64_t deadline_ms)
{
    struct sim_fiber *self = sim.fiber;
    uint32_t depth = self->depth;

    self->waits = true;
    self->done = done;
    self->done_arg = arg;
    self->deadline_ms = deadline_ms;
    self->depth = 0;
    fiber_yield();
    self->depth = depth;
    if (done != NULL && done(arg)) {
        return TDM_OK;
    }
    return self->process->dying ? tdm__fail(TDM_E_CANCELED, "this process was killed")
                                : TDM_E_TIMEOUT;
}

void sim_may_interrupt(void)
{
    if (sim.fiber != NULL && !sim.current->dying && sim_below(6) == 0) {
        fiber_yield();
    }
}

void sim_sleep(int64_t milliseconds)
{
    (void)sim_wait(NULL, NULL, sim.now_ms + milliseconds);
}

static bool is_alone(void *arg)
{
    const struct sim_process *process = arg;

    return TAILQ_NEXT(TAILQ_FIRST(&process->fibers), link) == NULL;
}

void sim_join_others(void)
{
    while (!is_alone(sim.current)) {
        (void)sim_wait(is_alone, sim.current, TDM__NEVER);
    }
}

/* ---- things that could happen next --------------------------------------------------------- */

enum thing_kind { SERVE_WATCH, FIRE_TIMER, RUN_POST, FLUSH, RESUME, KILL };
struct thing {
    enum thing_kind kind;
    struct sim_process *process;
    void *what;
};
static struct thing things[THINGS_MAX];
static uint32_t things_count;

static void add_thing(enum thing_kind kind, struct sim_process *process, void *what)
{
    TDM_ASSERT(things_count < THINGS_MAX);
    things[things_count++] = (struct thing){kind, process, what};
}

/* Sockets: what the kernel says. */
void sim_poll(void)
{
    struct pollfd fds[POLLED_MAX];
    struct tdm__fd_watch *polled[POLLED_MAX];
    nfds_t count = 0;
    struct tdm__loop *loop;
    struct tdm__fd_watch *watch;

    TAILQ_FOREACH(loop, &sim.loops, link)
    {
        TAILQ_FOREACH(watch, &loop->watches, link)
        {
            watch->ready = 0;
            if (watch->wanted == 0 || loop->process->stopped) {
                continue;
            }
            TDM_ASSERT(count < POLLED_MAX);
            polled[count] = watch;
            fds[count].fd = watch->fd;
            fds[count].events = (short)(((watch->wanted & TDM__READABLE) != 0 ? POLLIN : 0) |
                                        ((watch->wanted & TDM__WRITABLE) != 0 ? POLLOUT : 0));
            count++;
        }
    }
    while (poll(fds, count, 0) < 0) {
        TDM_ASSERT(errno == EINTR);
    }
    for (nfds_t i = 0; i < count; i++) {
        unsigned ended =
            (fds[i].revents & (POLLERR | POLLHUP)) != 0 ? TDM__READABLE | TDM__WRITABLE : 0;

        polled[i]->ready = (((fds[i].revents & POLLIN) != 0 ? TDM__READABLE : 0) |
                            ((fds[i].revents & POLLOUT) != 0 ? TDM__WRITABLE : 0) | ended) &
                           polled[i]->wanted;
        if (polled[i]->ready != 0 && sim.hides != NULL &&
            sim.hides(polled[i]->loop->process->machine, polled[i]->fd)) {
            polled[i]->ready = 0;
        }
    }
}

static void add_loop(struct tdm__loop *loop)
{
    struct tdm__fd_watch *watch;
    struct tdm__timer *timer;

    TAILQ_FOREACH(watch, &loop->watches, link)
    {
        if (watch->ready != 0 || watch->again) {
            add_thing(SERVE_WATCH, loop->process, watch);
        }
    }
    TAILQ_FOREACH(timer, &loop->timers, link)
    {
        if (timer->deadline_ms <= sim.now_ms) {
            add_thing(FIRE_TIMER, loop->process, timer);
        }
    }
    if (!STAILQ_EMPTY(&loop->posts)) {
        add_thing(RUN_POST, loop->process, loop);
    }
    if (loop->dirty) {
        add_thing(FLUSH, loop->process, loop);
    }
}

static bool can_go_on(struct sim_fiber *fiber)
{
    if (fiber_has_ended(fiber->fiber)) {
        return false;
    }
    return !fiber->waits || fiber->deadline_ms <= sim.now_ms ||
           (fiber->done != NULL && fiber->done(fiber->done_arg));
}

static void list_things(void)
{
    struct sim_process *process;
    struct sim_fiber *fiber;
    struct tdm__loop *loop;

    things_count = 0;
    TAILQ_FOREACH(loop, &sim.loops, link)
    {
        if (!loop->process->stopped) {
            add_loop(loop);
        }
    }
    TAILQ_FOREACH(process, &sim.processes, link)
    {
        become(process);
        if (process->kill_wanted && !TAILQ_EMPTY(&process->fibers)) {
            add_thing(KILL, process, process);
        }
        TAILQ_FOREACH(fiber, &process->fibers, link)
        {
            if (!process->stopped && can_go_on(fiber)) {
                add_thing(RESUME, process, fiber);
            }
        }
    }
    become(NULL);
}

/* ---- doing one -------------------------------------------------------------------------- */

static void serve_watch(struct tdm__fd_watch *watch)
{
    unsigned ready = watch->ready;

    watch->ready = 0;
    watch->again = false;
    watch->fn(watch->arg, watch->fd, ready);
}

static void fire_timer(struct tdm__timer *timer)
{
    timer->deadline_ms = TDM__NEVER;
    timer->fn(timer->arg);
}

static void run_post(struct tdm__loop *loop)
{
    struct sim_post *post = STAILQ_FIRST(&loop->posts);

    STAILQ_REMOVE_HEAD(&loop->posts, link);
    post->fn(post->arg);
    free(post);
}

/* Calls a callback with the lock, as a thread that drives a loop does. */
static void call_back(const struct thing *thing)
{
    sim.callback_depth = 1;
    switch (thing->kind) {
    case SERVE_WATCH:
        serve_watch(thing->what);
        break;
    case FIRE_TIMER:
        fire_timer(thing->what);
        break;
    case RUN_POST:
        run_post(thing->what);
        break;
    case FLUSH:
        sim_loop_flush(thing->what);
        break;
    case RESUME:
    case KILL:
        break;
    }
    TDM_ASSERT(sim.callback_depth == 1);
    sim.callback_depth = 0;
    if (thing->kind != FLUSH && thing->process->loop != NULL) {
        thing->process->loop->dirty = true;
    }
}

static void cut_off(struct tdm__loop *loop)
{
    const struct tdm__fd_watch *watch;

    TAILQ_FOREACH(watch, &loop->watches, link)
    {
        (void)shutdown(watch->fd, SHUT_RDWR);
    }
}

/* Kills the process; for all others this is one event. */
static void kill_process(struct sim_process *process)
{
    sim_trace("%s is killed", process->name);
    process->kill_wanted = false;
    process->dying = true;
    become(process);
    sim.callback_depth = 1;
    if (process->loop != NULL) {
        cut_off(process->loop);
    }
    process->on_kill(process->arg);
    sim.callback_depth = 0;
    for (int round = 0; !TAILQ_EMPTY(&process->fibers); round++) {
        struct sim_fiber *fiber = TAILQ_FIRST(&process->fibers);

        TDM_ASSERT(round < SETTLING_ROUNDS_MAX);
        TAILQ_REMOVE(&process->fibers, fiber, link);
        TAILQ_INSERT_TAIL(&process->fibers, fiber, link);
        if (!fiber_is_over(fiber)) {
            resume(fiber);
        } else if (fiber->joined) {
            sim_fiber_destroy(fiber);
        }
    }
    become(NULL);
}

static void do_thing(const struct thing *thing)
{
    if (thing->kind == RESUME) {
        resume(thing->what);
    } else if (thing->kind == KILL) {
        kill_process(thing->what);
    } else {
        become(thing->process);
        call_back(thing);
        become(NULL);
    }
}

/* Inside a fiber that takes one look at its sockets. */
void sim_loop_round(struct tdm__loop *loop)
{
    struct sim_fiber *self = sim.fiber;
    struct tdm__fd_watch *ready[POLLED_MAX];
    uint32_t count = 0;
    struct tdm__fd_watch *watch;

    if (self->process->dying) {
        return;
    }
    sim.fiber = NULL;
    sim_loop_flush(loop);
    sim_poll();
    TAILQ_FOREACH(watch, &loop->watches, link)
    {
        if (watch->ready != 0 || watch->again) {
            ready[count++] = watch;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        TAILQ_FOREACH(watch, &loop->watches, link)
        {
            if (watch == ready[i]) { /* The watch still exists. */
                struct thing thing = {SERVE_WATCH, loop->process, watch};

                call_back(&thing);
                break;
            }
        }
    }
    sim.fiber = self;
}

/* ---- running ---------------------------------------------------------------------------- */

static const struct thing *choose(void)
{
    const struct thing *thing = &things[sim_below(things_count)];

    for (int i = 0; i < 4 && sim_below(8) < thing->process->skips_of_eight; i++) {
        thing = &things[sim_below(things_count)];
    }
    return thing;
}

static int64_t next_deadline(void)
{
    struct sim_process *process;
    struct sim_fiber *fiber;
    struct tdm__loop *loop;
    struct tdm__timer *timer;
    int64_t next_ms = TDM__NEVER;

    TAILQ_FOREACH(loop, &sim.loops, link)
    {
        TAILQ_FOREACH(timer, &loop->timers, link)
        {
            if (loop->process->stopped) {
                continue;
            }
            next_ms = timer->deadline_ms < next_ms ? timer->deadline_ms : next_ms;
        }
    }
    TAILQ_FOREACH(process, &sim.processes, link)
    {
        TAILQ_FOREACH(fiber, &process->fibers, link)
        {
            if (fiber->waits && !process->stopped && fiber->deadline_ms < next_ms) {
                next_ms = fiber->deadline_ms;
            }
        }
    }
    return next_ms;
}

/* Executes one event. Returns false if none is possible. */
static bool step(void)
{
    if (sim_below(24) == 0) {
        sim.now_ms += 1 + sim_below(3);
    }
    if (sim.steps_to_poll-- == 0) {
        sim_poll();
        sim.steps_to_poll = sim_below(4);
    }
    list_things();
    if (things_count == 0) {
        sim_poll();
        list_things();
    }
    if (things_count == 0) {
        int64_t next_ms = next_deadline();

        if (next_ms == TDM__NEVER) {
            return false;
        }
        sim.now_ms = next_ms;
        return true;
    }
    sim.steps_count++;
    do_thing(choose());
    return true;
}

static enum sim_end run(bool (*done)(void *arg), void *arg)
{
    uint64_t end = sim.steps_count + STEPS_MAX;

    while (done == NULL || !done(arg)) {
        if (!step()) {
            return SIM_STUCK;
        }
        if (sim.steps_count >= end) {
            return SIM_ENDLESS;
        }
    }
    return SIM_DONE;
}

enum sim_end sim_run(bool (*done)(void *arg), void *arg)
{
    return run(done, arg);
}

enum sim_end sim_run_dry(void)
{
    enum sim_end end = run(NULL, NULL);

    return end == SIM_STUCK ? SIM_DONE : end;
}

void sim_begin(uint64_t seed)
{
    bool tracing = sim.tracing;

    chance.state = seed;
    id_chance.state = ~seed;
    sim = (struct sim){.now_ms = 1000000, .tracing = tracing};
    TAILQ_INIT(&sim.loops);
    TAILQ_INIT(&sim.processes);
}

void sim_end(void)
{
    struct sim_process *process;

    TDM_ASSERT(TAILQ_EMPTY(&sim.loops));
    while ((process = TAILQ_FIRST(&sim.processes)) != NULL) {
        TDM_ASSERT(sim_process_has_ended(process));
        TAILQ_REMOVE(&sim.processes, process, link);
        free(process);
    }
}
