/* retry.c - calls that are made again because the actor answered with a failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/retry.h"

#include "actors/link.h"
#include "actors/traffic.h"
#include "runtime/clock.h"
#include "runtime/error.h"

enum { PAUSE_MS_MAX = 1000, DOUBLINGS_MAX = 10 };

tdm_status tdm__retry_check(const struct tdm_call_options *options)
{
    for (int i = 0; options != NULL && i < TDM_RETRY_FAILURES_MAX; i++) {
        tdm_status status = options->retry_failures[i];

        if (status > TDM_OK && status != TDM_ANY_FAILURE) {
            return tdm__fail(TDM_E_INVAL,
                             "retry_failures[%d] is %d: a failure, or TDM_ANY_FAILURE", i,
                             (int)status);
        }
    }
    return TDM_OK;
}

/* It would fail again: the call was taken back, its time is over, the actor or the method is
 * not there. */
static bool is_final(tdm_status status)
{
    return status == TDM_E_CANCELED || status == TDM_E_TIMEOUT || status == TDM_E_ACTOR_DIED ||
           status == TDM_E_NOT_FOUND;
}

static bool is_reason(const struct tdm__outgoing *outgoing, tdm_status status)
{
    for (int i = 0; status != TDM_OK && i < TDM_RETRY_FAILURES_MAX; i++) {
        tdm_status wanted = outgoing->retry_failures[i];

        if (wanted == TDM_OK) {
            return false;
        }
        if (wanted == status || (wanted == TDM_ANY_FAILURE && !is_final(status))) {
            return true;
        }
    }
    return false;
}

static int64_t next_pause_ms(const struct tdm__outgoing *outgoing)
{
    return outgoing->pauses_count < DOUBLINGS_MAX ? (int64_t)1 << outgoing->pauses_count
                                                  : PAUSE_MS_MAX;
}

static void on_time(void *arg)
{
    struct tdm__link *link = arg;

    link->holders_count++;
    tdm__traffic_pump(link);
    tdm__links_pump(link->runtime);
    tdm__link_release(link);
}

/* For the first of them. */
static tdm_status expect(struct tdm__link *link, int64_t resume_ms)
{
    if (link->resume == NULL) {
        TDM_TRY(tdm__timer_create(link->runtime->loop, on_time, link, &link->resume));
    }
    return tdm__timer_set(link->resume, resume_ms);
}

/* The list is in the order of their times. */
static void insert(struct tdm__link *link, struct tdm__outgoing *outgoing)
{
    struct tdm__outgoing *before = TAILQ_LAST(&link->pausing, tdm__outgoings);

    while (before != NULL && before->resume_ms > outgoing->resume_ms) {
        before = TAILQ_PREV(before, tdm__outgoings, entry);
    }
    if (before == NULL) {
        TAILQ_INSERT_HEAD(&link->pausing, outgoing, entry);
    } else {
        TAILQ_INSERT_AFTER(&link->pausing, before, outgoing, entry);
    }
}

bool tdm__retry_wants(const struct tdm__outgoing *outgoing, tdm_status status)
{
    return is_reason(outgoing, status) && outgoing->retries_left != 0 && !outgoing->settled &&
           outgoing->stream == NULL &&
           tdm__deadline_in(next_pause_ms(outgoing)) < outgoing->deadline_ms;
}

void tdm__retry_pause(struct tdm__outgoing *outgoing)
{
    struct tdm__link *link = outgoing->link;
    const struct tdm__outgoing *first = TAILQ_FIRST(&link->pausing);

    outgoing->sequence = 0; /* under its old number the actor would give its old answer */
    outgoing->retries_left -= outgoing->retries_left > 0 ? 1 : 0;
    outgoing->resume_ms = tdm__deadline_in(next_pause_ms(outgoing));
    outgoing->pauses_count++;
    outgoing->pausing = true;
    if ((first == NULL || outgoing->resume_ms < first->resume_ms) &&
        expect(link, outgoing->resume_ms) != TDM_OK) {
        outgoing->resume_ms = 0; /* at once rather than never */
    }
    insert(link, outgoing);
}

bool tdm__retry_resume(struct tdm__link *link)
{
    struct tdm__outgoings due = TAILQ_HEAD_INITIALIZER(due);
    struct tdm__outgoing *first = TAILQ_FIRST(&link->pausing);
    int64_t now_ms;
    bool any;

    if (first == NULL) {
        return false;
    }
    now_ms = tdm__clock_ms();
    for (; first != NULL && first->resume_ms <= now_ms; first = TAILQ_FIRST(&link->pausing)) {
        TAILQ_REMOVE(&link->pausing, first, entry);
        TAILQ_INSERT_TAIL(&due, first, entry);
        first->pausing = false;
    }
    if (first != NULL) {
        (void)expect(link, first->resume_ms); /* memory: it had some a moment ago */
    }
    any = !TAILQ_EMPTY(&due);
    TAILQ_CONCAT(&due, &link->waiting, entry);
    TAILQ_CONCAT(&link->waiting, &due, entry);
    return any;
}
