/* settling.c - waits until the owners of references have counted this process as a borrower. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A reference is settled when its owner has counted this process as a borrower; see
 * tdm__shared_ref_is_settled(). Callbacks that wait for this are in the list `pins_settling_list`
 * of the reference table. Each is called exactly once, at the latest when the runtime stops.
 * Everything runs with the loop's lock. */

#include "actors/objects/settling.h"

#include "actors/objects/shared_ref.h"
#include "runtime/error.h"

#include <stdlib.h>

/* A callback that waits until pinned references are settled. */
struct pins_settling {
    TAILQ_ENTRY(pins_settling) link;
    struct tdm__pins pins;    /* The references, retained until the callback has been called. */
    tdm__pins_settled_fn *fn; /* Function to call once. */
    void *arg;                /* Argument of `fn`. */
};

bool tdm__pins_are_settled(const struct tdm__pins *pins)
{
    for (uint32_t i = 0; i < pins->count; i++) {
        const tdm_ref *ref = pins->refs[i];

        if (ref->shared != NULL && !tdm__shared_ref_is_settled(ref->shared)) {
            return false;
        }
    }
    return true;
}

/* Loop condition: returns true if all references in `arg` are settled. */
static bool pins_settled_condition(void *arg)
{
    return tdm__pins_are_settled(arg);
}

tdm_status tdm__pins_wait_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                  int64_t timeout_ms)
{
    if (tdm__pins_are_settled(pins)) {
        return TDM_OK;
    }
    return tdm__runtime_wait(runtime, pins_settled_condition, (void *)pins, timeout_ms);
}

/* Calls the callback and frees the wait. It is no longer in the list. */
static void pins_settling_end(struct pins_settling *pins_settling)
{
    pins_settling->fn(pins_settling->arg);
    tdm__pins_release(&pins_settling->pins);
    free(pins_settling);
}

tdm_status tdm__pins_on_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                tdm__pins_settled_fn *fn, void *arg)
{
    struct pins_settling *pins_settling;

    if (tdm__pins_are_settled(pins)) {
        fn(arg);
        return TDM_OK;
    }
    pins_settling = calloc(1, sizeof(*pins_settling));
    if (pins_settling == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a wait for references to settle");
    }
    pins_settling->fn = fn;
    pins_settling->arg = arg;
    for (uint32_t i = 0; i < pins->count; i++) {
        if (tdm__pins_add(&pins_settling->pins, pins->refs[i]) != TDM_OK) {
            tdm__pins_release(&pins_settling->pins);
            free(pins_settling);
            return TDM_E_NOMEM;
        }
    }
    TAILQ_INSERT_TAIL(&runtime->objects->pins_settling_list, pins_settling, link);
    return TDM_OK;
}

void tdm__pins_abandon_settling(tdm_runtime *runtime)
{
    struct pins_settling *pins_settling;

    while ((pins_settling = TAILQ_FIRST(&runtime->objects->pins_settling_list)) != NULL) {
        TAILQ_REMOVE(&runtime->objects->pins_settling_list, pins_settling, link);
        pins_settling_end(pins_settling);
    }
}

/* A callback may release references and so call this function again. The list is therefore
 * searched from its start after each callback. */
void tdm__ref_table_check_settling(struct tdm__ref_table *objects)
{
    struct pins_settling *pins_settling = TAILQ_FIRST(&objects->pins_settling_list);

    while (pins_settling != NULL) {
        if (!tdm__pins_are_settled(&pins_settling->pins)) {
            pins_settling = TAILQ_NEXT(pins_settling, link);
            continue;
        }
        TAILQ_REMOVE(&objects->pins_settling_list, pins_settling, link);
        pins_settling_end(pins_settling);
        pins_settling = TAILQ_FIRST(&objects->pins_settling_list);
    }
}
