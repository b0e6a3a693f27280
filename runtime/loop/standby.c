/* standby.c - a thread that drives the loop while nobody else does. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/loop/standby.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/loop/turns.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Who has the loop's lock now and then may not drive for so many naps. */
enum { NAP_MS = 1, NAPS_UNDRIVEN_MAX = 10, STACK_BYTES = 256 * 1024 };

struct tdm__standby {
    struct tdm__loop *loop; /* borrowed */
    pthread_t thread;
    struct tdm__sleeper sleeper; /* roused when this must end, or what it waits for is there */
    bool stopping;               /* guarded by the loop's lock, like what follows */
    uint32_t undriven_count;     /* naps in a row in which nobody drove */
};

static bool is_stopping(void *arg)
{
    const struct tdm__standby *standby = arg;

    return standby->stopping;
}

static void sleep_while_driven(struct tdm__standby *standby)
{
    struct tdm__turns *turns = tdm__loop_turns(standby->loop);

    turns->when_free = &standby->sleeper;
    (void)tdm__turns_sleep(turns, &standby->sleeper, TDM__NEVER);
    turns->when_free = NULL;
}

/* Naps and looks whether anything has happened: so those who drive for some microseconds, again
 * and again, need not tell anybody that they stop.  Only while one of them drives on and on,
 * which is all that an idle process does, it sleeps.
 *
 * Who takes the lock without driving makes calls, and is about to wait for them: he is left
 * alone for a while. */
static void watch_loop(struct tdm__standby *standby)
{
    struct tdm__turns *turns = tdm__loop_turns(standby->loop);
    uint64_t drives_count = turns->drives_count;
    uint64_t locks_count = turns->locks_count;

    (void)tdm__turns_sleep(turns, &standby->sleeper, tdm__deadline_in(NAP_MS));
    if (standby->stopping || turns->drives_count != drives_count) {
        standby->undriven_count = 0;
    } else if (turns->driver != NULL) {
        standby->undriven_count = 0;
        sleep_while_driven(standby);
    } else if (turns->locks_count == locks_count ||
               ++standby->undriven_count == NAPS_UNDRIVEN_MAX) {
        standby->undriven_count = 0;
        (void)tdm__loop_stand_by(standby->loop, is_stopping, standby);
    }
}

static void *standby_main(void *arg)
{
    struct tdm__standby *standby = arg;
    TDM__ENTER(standby->loop);

    (void)prctl(PR_SET_NAME, "standby");
    while (!standby->stopping) {
        watch_loop(standby);
    }
    return NULL;
}

/* Signals are for the user's threads. */
static int start_thread(struct tdm__standby *standby)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    int rc;

    (void)sigfillset(&all);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&standby->thread, &attributes, standby_main, standby);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return rc;
}

tdm_status tdm__standby_start(struct tdm__loop *loop, struct tdm__standby **standby_out)
{
    struct tdm__standby *standby = calloc(1, sizeof(*standby));
    int rc;

    if (standby == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a standby thread");
    }
    standby->loop = loop;
    tdm__sleeper_init(&standby->sleeper);
    rc = start_thread(standby);
    if (rc != 0) {
        tdm__sleeper_fini(&standby->sleeper);
        free(standby);
        return tdm__fail_errno(rc, "pthread_create: a standby thread");
    }
    *standby_out = standby;
    return TDM_OK;
}

void tdm__standby_stop(struct tdm__standby *standby)
{
    if (standby == NULL) {
        return;
    }
    (void)tdm__loop_enter(standby->loop);
    standby->stopping = true;
    tdm__turns_rouse(tdm__loop_turns(standby->loop), &standby->sleeper);
    tdm__loop_wake(standby->loop);
    tdm__loop_leave(standby->loop);
    (void)pthread_join(standby->thread, NULL);
    tdm__sleeper_fini(&standby->sleeper);
    free(standby);
}
