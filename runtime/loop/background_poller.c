/* background_poller.c - a thread that drives the loop while no other thread does. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/background_poller.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/loop/loop_lock.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum {
    CHECK_INTERVAL_MS = 1, /* Time between two checks of the loop by the poller, in milliseconds. */
    /* Largest number of checks by which the poller is delayed by a thread that keeps acquiring
     * the loop lock without driving the loop. */
    UNDRIVEN_CHECKS_MAX = 10,
    STACK_BYTES = 256 * 1024 /* Size of the stack of the poller's thread in bytes. */
};

/* The poller of one loop; owned by the code that started it.  The loop lock guards the members
 * that change. */
struct tdm__background_poller {
    struct tdm__loop *loop; /* Loop that the thread drives; borrowed. */
    pthread_t thread;       /* Thread of the poller, joined by tdm__background_poller_stop(). */
    /* Ends a sleep of the thread: signaled when the thread must stop, or when the last driver has
     * stopped while the poller sleeps. */
    struct tdm__loop_condition wake_condition;
    bool stopping; /* True once the poller's thread must end. */
    /* Number of checks in a row that found the loop undriven but its lock in use. */
    uint32_t undriven_checks_count;
};

/* Condition that ends the poller's driving of the loop: returns true once the poller's thread must
 * end. */
static bool background_poller_is_stopping(void *arg)
{
    const struct tdm__background_poller *background_poller = arg;

    return background_poller->stopping;
}

/* Sleeps until the current driver stops driving, or until the poller must end.  The caller holds
 * the loop lock, which is free meanwhile. */
static void background_poller_sleep(struct tdm__background_poller *background_poller)
{
    struct tdm__loop_lock *loop_lock = tdm__loop_lock_of(background_poller->loop);

    loop_lock->undriven_condition = &background_poller->wake_condition;
    (void)tdm__loop_condition_wait(loop_lock, &background_poller->wake_condition, TDM__NEVER);
    loop_lock->undriven_condition = NULL;
}

/* Waits for one interval and then looks what has happened to the loop:
 * - A thread has started to drive, and may have stopped since: the poller does nothing.  So
 *   threads that drive for some microseconds at a time need not notify the poller when they stop.
 * - The same thread has driven all the time, as in an idle process: the poller sleeps until it
 *   stops.
 * - No thread drives or uses the lock: the poller drives the loop.
 * - No thread drives, but some thread used the lock: that thread makes calls and probably is
 *   about to wait for them and drive.  The poller waits, for at most UNDRIVEN_CHECKS_MAX checks.
 */
static void background_poller_check_loop(struct tdm__background_poller *background_poller)
{
    struct tdm__loop_lock *loop_lock = tdm__loop_lock_of(background_poller->loop);
    uint64_t driver_starts_count = loop_lock->driver_starts_count;
    uint64_t acquisitions_count = loop_lock->acquisitions_count;

    (void)tdm__loop_condition_wait(loop_lock, &background_poller->wake_condition,
                                   tdm__deadline_after(CHECK_INTERVAL_MS));
    if (background_poller->stopping || loop_lock->driver_starts_count != driver_starts_count) {
        background_poller->undriven_checks_count = 0;
    } else if (loop_lock->driver != 0) {
        background_poller->undriven_checks_count = 0;
        background_poller_sleep(background_poller);
    } else if (loop_lock->acquisitions_count == acquisitions_count ||
               ++background_poller->undriven_checks_count == UNDRIVEN_CHECKS_MAX) {
        background_poller->undriven_checks_count = 0;
        (void)tdm__loop_run_background(background_poller->loop, background_poller_is_stopping,
                                       background_poller);
    }
}

/* Main function of the poller's thread, which holds the loop lock except while it waits and
 * polls. */
static void *background_poller_main(void *arg)
{
    struct tdm__background_poller *background_poller = arg;
    TDM__LOOP_ENTER(background_poller->loop);

    (void)prctl(PR_SET_NAME, "loop-poller");
    while (!background_poller->stopping) {
        background_poller_check_loop(background_poller);
    }
    return NULL;
}

/* Creates the poller's thread with all signals blocked, so that signals go to the threads of the
 * user. Returns the error number of pthread_create(3), 0 for success. */
static int background_poller_start_thread(struct tdm__background_poller *background_poller)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    int rc;

    (void)sigfillset(&all);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&background_poller->thread, &attributes, background_poller_main,
                        background_poller);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return rc;
}

tdm_status tdm__background_poller_start(struct tdm__loop *loop,
                                        struct tdm__background_poller **poller_out)
{
    struct tdm__background_poller *background_poller = calloc(1, sizeof(*background_poller));
    int rc;

    if (background_poller == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocation of a background poller failed");
    }
    background_poller->loop = loop;
    tdm__loop_condition_init(&background_poller->wake_condition);
    rc = background_poller_start_thread(background_poller);
    if (rc != 0) {
        tdm__loop_condition_fini(&background_poller->wake_condition);
        free(background_poller);
        return tdm__fail_errno(rc, "pthread_create of the background poller");
    }
    *poller_out = background_poller;
    return TDM_OK;
}

void tdm__background_poller_stop(struct tdm__background_poller *background_poller)
{
    if (background_poller == NULL) {
        return;
    }
    (void)tdm__loop_enter(background_poller->loop);
    background_poller->stopping = true;
    tdm__loop_condition_signal(tdm__loop_lock_of(background_poller->loop),
                               &background_poller->wake_condition);
    tdm__loop_wake(background_poller->loop);
    tdm__loop_leave(background_poller->loop);
    (void)pthread_join(background_poller->thread, NULL);
    tdm__loop_condition_fini(&background_poller->wake_condition);
    free(background_poller);
}
