/* background_poller.c - a thread that drives the loop while nobody else does. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/background_poller.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/loop/loop_lock.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Who has the loop's lock now and then may not drive for so many naps. */
enum { NAP_MS = 1, NAPS_UNDRIVEN_MAX = 10, STACK_BYTES = 256 * 1024 };

struct tdm__background_poller {
    struct tdm__loop *loop; /* borrowed */
    pthread_t thread;
    struct tdm__loop_condition
        loop_condition;      /* signaled when this must end, or what it waits for is there */
    bool stopping;           /* guarded by the loop's lock, like what follows */
    uint32_t undriven_count; /* naps in a row in which nobody drove */
};

static bool is_stopping(void *arg)
{
    const struct tdm__background_poller *background_poller = arg;

    return background_poller->stopping;
}

static void background_poller_sleep(struct tdm__background_poller *background_poller)
{
    struct tdm__loop_lock *loop_lock = tdm__loop_lock_of(background_poller->loop);

    loop_lock->undriven_condition = &background_poller->loop_condition;
    (void)tdm__loop_condition_wait(loop_lock, &background_poller->loop_condition, TDM__NEVER);
    loop_lock->undriven_condition = NULL;
}

/* Naps and looks whether anything has happened: so those who drive for some microseconds, again
 * and again, need not tell anybody that they stop.  Only while one of them drives on and on,
 * which is all that an idle process does, it sleeps.
 *
 * Who takes the lock without driving makes calls, and is about to wait for them: he is left
 * alone for a while. */
static void background_poller_watch_loop(struct tdm__background_poller *background_poller)
{
    struct tdm__loop_lock *loop_lock = tdm__loop_lock_of(background_poller->loop);
    uint64_t driver_starts_count = loop_lock->driver_starts_count;
    uint64_t acquisitions_count = loop_lock->acquisitions_count;

    (void)tdm__loop_condition_wait(loop_lock, &background_poller->loop_condition,
                                   tdm__deadline_after(NAP_MS));
    if (background_poller->stopping || loop_lock->driver_starts_count != driver_starts_count) {
        background_poller->undriven_count = 0;
    } else if (loop_lock->driver != NULL) {
        background_poller->undriven_count = 0;
        background_poller_sleep(background_poller);
    } else if (loop_lock->acquisitions_count == acquisitions_count ||
               ++background_poller->undriven_count == NAPS_UNDRIVEN_MAX) {
        background_poller->undriven_count = 0;
        (void)tdm__loop_run_background(background_poller->loop, is_stopping, background_poller);
    }
}

static void *background_poller_main(void *arg)
{
    struct tdm__background_poller *background_poller = arg;
    TDM__LOOP_ENTER(background_poller->loop);

    (void)prctl(PR_SET_NAME, "loop-poller");
    while (!background_poller->stopping) {
        background_poller_watch_loop(background_poller);
    }
    return NULL;
}

/* Signals are for the user's threads. */
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
        return tdm__fail(TDM_E_NOMEM, "a background_poller thread");
    }
    background_poller->loop = loop;
    tdm__loop_condition_init(&background_poller->loop_condition);
    rc = background_poller_start_thread(background_poller);
    if (rc != 0) {
        tdm__loop_condition_fini(&background_poller->loop_condition);
        free(background_poller);
        return tdm__fail_errno(rc, "pthread_create: a background_poller thread");
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
                               &background_poller->loop_condition);
    tdm__loop_wake(background_poller->loop);
    tdm__loop_leave(background_poller->loop);
    (void)pthread_join(background_poller->thread, NULL);
    tdm__loop_condition_fini(&background_poller->loop_condition);
    free(background_poller);
}
