/* call_retry.c - calls that are sent again because the actor replied with a failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/call_retry.h"

#include "runtime/clock.h"
#include "runtime/error.h"

/* Milliseconds of the longest pause; number of pauses after which it is reached. */
enum { PAUSE_MS_MAX = 1000, DOUBLINGS_MAX = 10 };

tdm_status tdm__retry_check_options(const struct tdm_call_options *options)
{
    for (int i = 0; options != NULL && i < TDM_RETRY_FAILURES_MAX; i++) {
        tdm_status status = options->retry_failures[i];

        if (status > TDM_OK && status != TDM_ANY_FAILURE) {
            return tdm__fail(TDM_E_INVAL, "retry_failures[%d] is %d: a failure, or TDM_ANY_FAILURE",
                             i, (int)status);
        }
    }
    return TDM_OK;
}

/* Returns true if a repetition would fail in the same way, because the call was canceled, its
 * deadline has passed, or the actor or method does not exist. */
static bool status_is_final(tdm_status status)
{
    return status == TDM_E_CANCELED || status == TDM_E_TIMEOUT || status == TDM_E_ACTOR_DIED ||
           status == TDM_E_NOT_FOUND;
}

/* Returns true if the options of the call ask for a repetition after this failure. */
static bool retry_status_matches(const struct tdm__pending_call *pending_call, tdm_status status)
{
    for (int i = 0; status != TDM_OK && i < TDM_RETRY_FAILURES_MAX; i++) {
        tdm_status wanted = pending_call->retry_failures[i];

        if (wanted == TDM_OK) {
            return false;
        }
        if (wanted == status || (wanted == TDM_ANY_FAILURE && !status_is_final(status))) {
            return true;
        }
    }
    return false;
}

/* Returns the length of the next pause in milliseconds. */
static int64_t retry_next_pause_ms(const struct tdm__pending_call *pending_call)
{
    return pending_call->retry_pauses < DOUBLINGS_MAX ? (int64_t)1 << pending_call->retry_pauses
                                                      : PAUSE_MS_MAX;
}

/* Sets the timer for the first paused call, which then calls `on_time`. */
static tdm_status retry_arm_timer(struct tdm__actor_channel *channel,
                                  void (*on_time)(void *channel), int64_t retry_at_ms)
{
    if (channel->retry_timer == NULL) {
        TDM_TRY(tdm__timer_create(channel->runtime->loop, on_time, channel, &channel->retry_timer));
    }
    return tdm__timer_set(channel->retry_timer, retry_at_ms);
}

/* Inserts the call into the list, which is sorted by the end of the pause. */
static void retry_insert_paused(struct tdm__actor_channel *channel,
                                struct tdm__pending_call *pending_call)
{
    struct tdm__pending_call *before = TAILQ_LAST(&channel->retry_paused, tdm__pending_calls);

    while (before != NULL && before->retry_at_ms > pending_call->retry_at_ms) {
        before = TAILQ_PREV(before, tdm__pending_calls, entry);
    }
    if (before == NULL) {
        TAILQ_INSERT_HEAD(&channel->retry_paused, pending_call, entry);
    } else {
        TAILQ_INSERT_AFTER(&channel->retry_paused, before, pending_call, entry);
    }
}

bool tdm__retry_is_due(const struct tdm__pending_call *pending_call, tdm_status status)
{
    return retry_status_matches(pending_call, status) && pending_call->retries_left != 0 &&
           !pending_call->settled && pending_call->stream == NULL &&
           tdm__deadline_after(retry_next_pause_ms(pending_call)) < pending_call->deadline_ms;
}

void tdm__retry_pause(struct tdm__pending_call *pending_call, void (*on_time)(void *channel))
{
    struct tdm__actor_channel *channel = pending_call->channel;
    const struct tdm__pending_call *first = TAILQ_FIRST(&channel->retry_paused);

    pending_call->sequence = 0; /* The actor would repeat its cached reply under the old number. */
    pending_call->retries_left -= pending_call->retries_left > 0 ? 1 : 0;
    pending_call->retry_at_ms = tdm__deadline_after(retry_next_pause_ms(pending_call));
    pending_call->retry_pauses++;
    pending_call->retry_paused = true;
    if ((first == NULL || pending_call->retry_at_ms < first->retry_at_ms) &&
        retry_arm_timer(channel, on_time, pending_call->retry_at_ms) != TDM_OK) {
        pending_call->retry_at_ms = 0; /* Without a timer it is sent again at once. */
    }
    retry_insert_paused(channel, pending_call);
}

bool tdm__retry_resume(struct tdm__actor_channel *channel)
{
    struct tdm__pending_calls due = TAILQ_HEAD_INITIALIZER(due);
    struct tdm__pending_call *first = TAILQ_FIRST(&channel->retry_paused);
    int64_t now_ms;
    bool any;

    if (first == NULL) {
        return false;
    }
    now_ms = tdm__clock_ms();
    for (; first != NULL && first->retry_at_ms <= now_ms;
         first = TAILQ_FIRST(&channel->retry_paused)) {
        TAILQ_REMOVE(&channel->retry_paused, first, entry);
        TAILQ_INSERT_TAIL(&due, first, entry);
        first->retry_paused = false;
    }
    if (first != NULL) {
        /* Cannot fail, since the timer was set before. */
        (void)tdm__timer_set(channel->retry_timer, first->retry_at_ms);
    }
    any = !TAILQ_EMPTY(&due);
    TAILQ_CONCAT(&due, &channel->waiting, entry);
    TAILQ_CONCAT(&channel->waiting, &due, entry);
    return any;
}
