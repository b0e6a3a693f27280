/* internal.h - what the loop, the fibers and the scheduler of the simulation share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_INTERNAL_H
#define TDM_TESTS_SIM_INTERNAL_H

#include "runtime/loop/loop.h"
#include "runtime/loop/loop_lock.h"
#include "tests/sim/sim.h"

#include <sys/queue.h>

struct tdm__fd_watch {
    TAILQ_ENTRY(tdm__fd_watch) link;
    struct tdm__loop *loop;
    int fd;
    unsigned wanted;
    unsigned ready; /* at the last look */
    bool again;
    tdm__fd_watch_fn *fn;
    void *arg;
};

struct tdm__timer {
    TAILQ_ENTRY(tdm__timer) link;
    struct tdm__loop *loop;
    int64_t deadline_ms;
    tdm__timer_fn *fn;
    void *arg;
};

struct sim_post {
    STAILQ_ENTRY(sim_post) link;
    void (*fn)(void *arg);
    void *arg;
};

struct tdm__loop {
    struct tdm__loop_lock loop_lock; /* first: tdm__loop_lock_of() gives it away */
    TAILQ_ENTRY(tdm__loop) link;
    struct sim_process *process;
    TAILQ_HEAD(, tdm__fd_watch) watches;
    TAILQ_HEAD(, tdm__timer) timers;
    STAILQ_HEAD(, sim_post) posts;
    TAILQ_HEAD(, tdm__poll_hook) hooks;
    bool dirty; /* something has happened since the hooks ran */
};
TAILQ_HEAD(sim_loops, tdm__loop);

struct fiber;
struct sim_fiber {
    TAILQ_ENTRY(sim_fiber) link;
    struct sim_process *process;
    struct fiber *fiber;     /* owned */
    bool (*done)(void *arg); /* what it waits for; NULL: only the deadline */
    void *done_arg;
    int64_t deadline_ms;
    bool waits;     /* else it can go on */
    uint32_t depth; /* how often it holds the lock of its loop */
    bool joined;    /* nobody will join it: it goes when it has ended */
    void *(*thread_main)(void *arg);
    void (*fn)(void *arg);
    void *arg;
};

struct sim_process {
    TAILQ_ENTRY(sim_process) link;
    char name[32];
    tdm_runtime *runtime;
    struct tdm__loop *loop;
    void (*on_kill)(void *arg);
    void *arg;
    bool kill_wanted;
    bool dying;
    uint32_t skips_of_eight; /* of 8 times that it could do something, it lets pass so many */
    TAILQ_HEAD(, sim_fiber) fibers;
};

struct sim {
    struct sim_loops loops;
    TAILQ_HEAD(, sim_process) processes;
    struct sim_process *current;
    struct sim_fiber *fiber; /* that runs; NULL: the scheduler, or a callback */
    uint32_t callback_depth; /* of the lock, in a callback */
    int64_t now_ms;
    uint64_t steps_count;
    uint32_t steps_to_poll;
    bool tracing;
};
extern struct sim sim;

/* The fiber that runs waits; TDM_OK, TDM_E_TIMEOUT, or TDM_E_CANCELED when its process is
 * killed. */
tdm_status sim_wait(bool (*done)(void *arg), void *arg, int64_t deadline_ms);
/* The lock is free now: maybe somebody else goes on. */
void sim_may_interrupt(void);
/* Serves once what is ready in this loop. */
void sim_loop_round(struct tdm__loop *loop);
void sim_loop_flush(struct tdm__loop *loop);
void sim_poll(void);
struct sim_fiber *sim_fiber_create(struct sim_process *process);

#endif
