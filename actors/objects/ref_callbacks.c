/* ref_callbacks.c - callbacks that run when a reference completes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref.h"
#include "actors/objects/ref_table.h"
#include "actors/runtime.h"
#include "runtime/error.h"

#include <stdlib.h>

/* A callback that waits for a reference to complete. Owned by the reference's list until it
 * runs. */
struct tdm__done {
    /* Next callback of the same reference, in the order of their registration. */
    struct tdm__done *next;
    tdm_ref *ref;    /* Retained until the callback has run. */
    tdm_done_fn *fn; /* The user's function. */
    void *arg;       /* Argument of `fn`. */
};

/* Calls the user's function without the loop's lock and frees the callback. */
static void done_callbacks_run(struct tdm__loop *loop, struct tdm__done *done)
{
    uint32_t depth = loop == NULL ? 0 : tdm__loop_leave_all(loop);

    done->fn(done->arg, done->ref);
    if (loop != NULL) {
        tdm__loop_reenter(loop, depth);
    }
    tdm_ref_release(done->ref);
    free(done);
}

/* Runs a posted callback; the loop calls it with the lock. */
static void on_callback_posted(void *arg)
{
    struct tdm__done *done = arg;

    done_callbacks_run(done->ref->runtime->loop, done);
}

/* The callbacks are posted so that they do not run inside the function that completed the
 * reference. While the runtime stops, posted functions no longer run, so they are called at
 * once. */
void tdm__ref_notify_done(tdm_ref *ref)
{
    struct tdm__done *done;

    while ((done = ref->done_callbacks) != NULL) {
        ref->done_callbacks = done->next;
        if (ref->runtime->is_stopping ||
            tdm__loop_post(ref->runtime->loop, on_callback_posted, done) != TDM_OK) {
            done_callbacks_run(ref->runtime->loop, done);
        }
    }
}

tdm_status tdm_ref_on_done(tdm_ref *ref, tdm_done_fn *fn, void *arg)
{
    TDM__REQUIRE(ref);
    TDM__REQUIRE(fn);

    struct tdm__done **tail = &ref->done_callbacks;
    struct tdm__done *done = calloc(1, sizeof(*done));
    TDM__LOCK(ref->runtime);

    if (done == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a callback of a reference");
    }
    done->ref = ref;
    done->fn = fn;
    done->arg = arg;
    tdm__ref_retain(ref);
    if (ref->done) {
        done_callbacks_run(ref->runtime->loop, done);
        return TDM_OK;
    }
    while (*tail != NULL) {
        tail = &(*tail)->next;
    }
    *tail = done;
    tdm__reference_fetch(ref); /* A borrowed reference gets its value only on request. */
    return TDM_OK;
}
