/* background.c - runs a function that may block in a library on a thread of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/nccl/background.h"

#include "runtime/assert.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A function that runs in the background. The thread and the caller share it; the last one that
 * lets it go frees it. */
struct background {
    void (*fn)(void *arg); /* What to run. */
    /* Copy of the argument of `fn`. */
    _Alignas(max_align_t) char arg[TDM__BACKGROUND_ARGUMENT_BYTES];
    pthread_mutex_t lock; /* Protects the fields below. */
    pthread_cond_t ended; /* Signalled when `done` becomes true. */
    bool done;            /* True once `fn` has returned. */
    unsigned users_count; /* Number of threads that still use this: 2, 1, or 0 before the end. */
};

/* Lets go of a background function and frees it if nobody else uses it. The lock must be held; it
 * is released. */
static void background_release(struct background *background)
{
    bool is_last = --background->users_count == 0;

    (void)pthread_mutex_unlock(&background->lock);
    if (is_last) {
        (void)pthread_cond_destroy(&background->ended);
        (void)pthread_mutex_destroy(&background->lock);
        free(background);
    }
}

/* The main function of the thread. */
static void *background_main(void *arg)
{
    struct background *background = arg;

    background->fn(background->arg);
    (void)pthread_mutex_lock(&background->lock);
    background->done = true;
    (void)pthread_cond_signal(&background->ended);
    background_release(background);
    return NULL;
}

/* Waits until the function has returned, until `limit_ms` milliseconds have passed. The lock must
 * be held. */
static void background_await(struct background *background, int64_t limit_ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += limit_ms / 1000;
    until.tv_nsec += limit_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (!background->done &&
           pthread_cond_timedwait(&background->ended, &background->lock, &until) != ETIMEDOUT) {
    }
}

/* Allocates a background function that two threads use; NULL if there is no memory. */
static struct background *background_create(void (*fn)(void *arg), const void *arg,
                                            size_t arg_bytes)
{
    struct background *background = calloc(1, sizeof(*background));
    pthread_condattr_t monotonic;

    TDM_ASSERT(arg_bytes <= sizeof(background->arg));
    if (background == NULL) {
        return NULL;
    }
    background->fn = fn;
    memcpy(background->arg, arg, arg_bytes);
    background->users_count = 2;
    (void)pthread_mutex_init(&background->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&background->ended, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return background;
}

bool tdm__background_run(void (*fn)(void *arg), const void *arg, size_t arg_bytes, int64_t limit_ms)
{
    struct background *background = background_create(fn, arg, arg_bytes);
    bool is_thread = true;
    pthread_t thread;
    bool done;

    if (background == NULL) {
        _Alignas(max_align_t) char copy[TDM__BACKGROUND_ARGUMENT_BYTES];

        memcpy(copy, arg, arg_bytes);
        fn(copy);
        return true;
    }
    if (pthread_create(&thread, NULL, background_main, background) != 0) {
        (void)background_main(background);
        is_thread = false;
    }
    (void)pthread_mutex_lock(&background->lock);
    background_await(background, limit_ms);
    done = background->done;
    background_release(background);
    if (is_thread) {
        (void)(done ? pthread_join(thread, NULL) : pthread_detach(thread));
    }
    return done;
}
