/* internal.h - what the loop, the fibers and the scheduler of the simulation share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_INTERNAL_H
#define TDM_TESTS_SIM_INTERNAL_H

#include "runtime/loop/loop.h"
#include "runtime/loop/loop_lock.h"
#include "tests/sim/sim.h"

#include <sys/queue.h>

/* A watched descriptor, which replaces that of runtime/loop. */
struct tdm__fd_watch {
    TAILQ_ENTRY(tdm__fd_watch) link;
    struct tdm__loop *loop;
    int fd;
    unsigned wanted;
    unsigned ready; /* Events that were ready at the last poll. */
    bool again;     /* 1 if the function wants to be called again without a new event. */
    tdm__fd_watch_fn *fn;
    void *arg;
};

/* A timer, which replaces that of runtime/loop. */
struct tdm__timer {
    TAILQ_ENTRY(tdm__timer) link;
    struct tdm__loop *loop;
    int64_t deadline_ms;
    tdm__timer_fn *fn;
    void *arg;
};

/* A function that was posted to a loop. */
struct sim_post {
    STAILQ_ENTRY(sim_post) link;
    void (*fn)(void *arg);
    void *arg;
};

/* A simulated event loop, which replaces that of runtime/loop. */
struct tdm__loop {
    /* Must be the first field, since tdm__loop_lock_of() returns it. */
    struct tdm__loop_lock loop_lock;
    TAILQ_ENTRY(tdm__loop) link;
    struct sim_process *process;
    TAILQ_HEAD(, tdm__fd_watch) watches;
    TAILQ_HEAD(, tdm__timer) timers;
    STAILQ_HEAD(, sim_post) posts;
    TAILQ_HEAD(, tdm__poll_hook) hooks;
    bool dirty; /* True: something has happened since the hooks ran. */
};
TAILQ_HEAD(sim_loops, tdm__loop);

struct fiber;
/* A fiber, which simulates one thread of a process. */
struct sim_fiber {
    TAILQ_ENTRY(sim_fiber) link;
    struct sim_process *process;
    struct fiber *fiber; /* owned */
    /* The condition that it waits for; NULL if it waits for its deadline only. */
    bool (*done)(void *arg);
    void *done_arg;
    int64_t deadline_ms;
    bool waits;     /* True while it waits; otherwise it can continue. */
    uint32_t depth; /* How often it holds the lock of its loop. */
    bool joined;    /* True if no thread will join it, so that it is freed when it has ended. */
    void *(*thread_main)(void *arg);
    void (*fn)(void *arg);
    void *arg;
};

/* A simulated process with its loop and fibers. */
struct sim_process {
    TAILQ_ENTRY(sim_process) link;
    char name[32];
    tdm_runtime *runtime;
    struct tdm__loop *loop;
    void (*on_kill)(void *arg); /* Is called when the process is killed. */
    void *arg;
    bool kill_wanted;        /* True from sim_process_kill() until the kill happens. */
    bool dying;              /* True from the kill on: every wait fails. */
    bool stopped;            /* True while the process is stopped, as by SIGSTOP. */
    uint32_t machine;        /* Number of its machine in the simulated network; 0 for none. */
    uint32_t skips_of_eight; /* Of eight opportunities to act the process skips this many. */
    TAILQ_HEAD(, sim_fiber) fibers;
};

/* The state of the simulation. */
struct sim {
    struct sim_loops loops;
    TAILQ_HEAD(, sim_process) processes;
    struct sim_process *current;
    struct sim_fiber *fiber; /* The running fiber; NULL in the scheduler or a callback. */
    uint32_t callback_depth; /* How often a running callback holds the lock of its loop. */
    int64_t now_ms;
    uint64_t steps_count;
    uint32_t steps_to_poll; /* Steps until the next poll of all sockets. */
    bool tracing;           /* True: sim_trace() prints. */
    /* Says what the network has not delivered, see sim_set_network(); may be NULL. */
    bool (*hides)(uint32_t machine, int fd);
};
extern struct sim sim;

/* Lets the running fiber wait. Returns TDM_OK, TDM_E_TIMEOUT, or TDM_E_CANCELED if its process is
 * killed. */
tdm_status sim_wait(bool (*done)(void *arg), void *arg, int64_t deadline_ms);
/* Is called when a lock was released. Another fiber may continue. */
void sim_may_interrupt(void);
/* Handles the ready events of this loop once. */
void sim_loop_round(struct tdm__loop *loop);
void sim_loop_flush(struct tdm__loop *loop);
void sim_poll(void);
struct sim_fiber *sim_fiber_create(struct sim_process *process);

#endif
