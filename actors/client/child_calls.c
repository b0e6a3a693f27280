/* child_calls.c - which running method made a call, so that child calls can be canceled with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/child_calls.h"

#include "actors/client/client_records.h"
#include "actors/client/send_queue.h"

/* Number of the method that runs on this thread; 0 for none. */
static _Thread_local uint64_t current_method;

uint64_t tdm__child_calls_set_parent(uint64_t parent)
{
    uint64_t before = current_method;

    current_method = parent;
    return before;
}

uint64_t tdm__child_calls_parent(void)
{
    return current_method;
}

/* Returns a call of the method `parent` in the list that has no result, or NULL. */
static struct tdm__pending_call *child_call_find_in(const struct tdm__pending_calls *list,
                                                    uint64_t parent)
{
    struct tdm__pending_call *pending_call = TAILQ_FIRST(list);

    while (pending_call != NULL && (pending_call->parent != parent || pending_call->settled)) {
        pending_call = TAILQ_NEXT(pending_call, entry);
    }
    return pending_call;
}

/* Returns a call of the method `parent` on any channel that has no result, or NULL. */
static struct tdm__pending_call *child_call_find(const tdm_runtime *runtime, uint64_t parent)
{
    struct tdm__pending_call *found = NULL;

    for (struct tdm__actor_channel *channel = runtime->client->actor_channels;
         channel != NULL && found == NULL; channel = channel->next) {
        found = child_call_find_in(&channel->waiting, parent);
        found = found != NULL ? found : child_call_find_in(&channel->retry_paused, parent);
        found = found != NULL ? found : child_call_find_in(&channel->in_flight, parent);
    }
    return found;
}

/* Canceling a call may free other calls and channels, so the search starts again after each. */
void tdm__child_calls_cancel(tdm_runtime *runtime, uint64_t parent)
{
    struct tdm__pending_call *child;

    while (runtime != NULL && (child = child_call_find(runtime, parent)) != NULL) {
        tdm__send_queue_cancel(child, true);
    }
}
