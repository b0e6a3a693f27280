/* ref_callbacks.c - who is told of a result. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref.h"
#include "actors/runtime.h"
#include "runtime/error.h"

#include <stdlib.h>

struct tdm__done {
    struct tdm__done *next;
    tdm_ref *ref; /* held */
    tdm_done_fn *fn;
    void *arg;
};

/* The user's function runs without the lock. */
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

static void on_post(void *arg)
{
    struct tdm__done *done = arg;

    done_callbacks_run(done->ref->runtime->loop, done);
}

/* Not inside whatever completed the result; but at the runtime's end there is no later. */
void tdm__ref_notify_done(tdm_ref *ref)
{
    struct tdm__done *done;

    while ((done = ref->done_callbacks) != NULL) {
        ref->done_callbacks = done->next;
        if (ref->runtime->is_stopping ||
            tdm__loop_post(ref->runtime->loop, on_post, done) != TDM_OK) {
            done_callbacks_run(ref->runtime->loop, done);
        }
    }
}

tdm_status tdm_ref_on_done(tdm_ref *ref, tdm_done_fn *fn, void *arg)
{
    TDM__REQUIRE(ref);
    TDM__REQUIRE(fn);

    struct tdm__done **place = &ref->done_callbacks;
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
    while (*place != NULL) {
        place = &(*place)->next;
    }
    *place = done;
    return TDM_OK;
}
