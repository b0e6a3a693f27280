/* traffic.c - the calls of a link: their order, what is sent again, when they are given up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/traffic.h"

#include "actors/arguments.h"
#include "actors/handle.h"
#include "actors/link.h"
#include "actors/objects/large.h"
#include "actors/objects/pull.h"
#include "actors/retry.h"
#include "actors/stream.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWERS_UNACKNOWLEDGED_MAX = 64 };

void tdm__traffic_init(struct tdm__link *link)
{
    TAILQ_INIT(&link->waiting);
    TAILQ_INIT(&link->flying);
    TAILQ_INIT(&link->pausing);
    link->expiry_ms = TDM__NEVER;
    link->last_sequence = link->runtime->last_sequence;
    link->acknowledged = link->last_sequence;
}

void tdm__traffic_fini(struct tdm__link *link)
{
    tdm_runtime *runtime = link->runtime;

    TDM_ASSERT(tdm__traffic_is_idle(link));
    if (link->last_sequence > runtime->last_sequence) {
        runtime->last_sequence = link->last_sequence;
    }
    tdm__timer_destroy(link->expiry);
    tdm__timer_destroy(link->resume);
}

bool tdm__traffic_is_idle(const struct tdm__link *link)
{
    return TAILQ_EMPTY(&link->waiting) && TAILQ_EMPTY(&link->flying) &&
           TAILQ_EMPTY(&link->pausing);
}

static void take_out(struct tdm__outgoing *outgoing)
{
    struct tdm__link *link = outgoing->link;
    struct tdm__outgoings *list = outgoing->flying    ? &link->flying
                                  : outgoing->pausing ? &link->pausing
                                                      : &link->waiting;

    TAILQ_REMOVE(list, outgoing, entry);
    outgoing->flying = false;
    outgoing->pausing = false;
}

/* No reply is awaited any more. */
static void forget(struct tdm__outgoing *outgoing)
{
    if (outgoing->call_id != 0) {
        tdm__conn_forget(outgoing->link->conn, outgoing->call_id);
        outgoing->call_id = 0;
    }
}

static void finish(struct tdm__outgoing *outgoing, tdm_status status, const char *detail,
                   tdm_document *document)
{
    take_out(outgoing);
    tdm__outgoing_settle(outgoing, status, detail, document);
    tdm__outgoing_destroy(outgoing);
}

static void fail_expired(struct tdm__outgoing *outgoing)
{
    const struct tdm__link *link = outgoing->link;
    char reason[160];

    (void)snprintf(reason, sizeof(reason), "no answer from actor %s%s", link->label,
                   outgoing->flying                ? ""
                   : outgoing->pausing             ? ": it failed, and was to be made again"
                   : link->state == TDM__LINK_OPEN ? ": an argument is not there yet"
                                                   : ": it is not there yet");
    tdm__outgoing_fail(outgoing, TDM_E_TIMEOUT, reason);
    take_out(outgoing);
    tdm__outgoing_destroy(outgoing);
}

/* ---- answers ---------------------------------------------------------------------------- */

/* Calls acknowledge the answers that came before; a caller that falls silent says it once. */
static void acknowledge(struct tdm__link *link)
{
    struct tdm__request request = {.target = link->id,
                                   .method = TDM__ACKNOWLEDGE_METHOD,
                                   .packed = {"\x90", 1},
                                   .deadline_ms = TDM__NEVER,
                                   .acknowledged = link->last_sequence};

    if (link->state == TDM__LINK_OPEN && tdm__traffic_is_idle(link) &&
        link->last_sequence - link->acknowledged >= ANSWERS_UNACKNOWLEDGED_MAX) {
        link->acknowledged = link->last_sequence;
        if (tdm__conn_call(link->conn, &request, NULL, NULL, NULL) != TDM_OK) {
            tdm__log(TDM__DEBUG, "link", "acknowledging answers of %s: %s", link->label,
                     tdm_error_detail());
        }
    }
}

/* The call has been answered: with `document`, or not so well. */
static void take_answer(struct tdm__outgoing *outgoing, uint64_t call_id, tdm_status status,
                        const char *detail, tdm_document *document)
{
    struct tdm__link *link = outgoing->link;

    if (status == TDM_OK) {
        tdm__reply_arrived(link->runtime, link->conn, call_id, 0, document);
    }
    link->holders_count++;
    if (status == TDM_E_TIMEOUT && tdm__clock_ms() >= outgoing->deadline_ms) {
        fail_expired(outgoing); /* decided on this side */
    } else {
        finish(outgoing, status, detail, document);
    }
    tdm__links_pump(link->runtime);
    acknowledge(link);
    tdm__link_release(link);
}

/* Until it is here the call is not answered: where the connection ends midway, it is sent again
 * and its result offered once more. */
static void on_pulled(void *arg, tdm_status status, const char *detail,
                      struct tdm__large *large)
{
    struct tdm__outgoing *outgoing = arg;
    tdm_document *document = NULL;

    outgoing->pull = NULL;
    if (status == TDM_E_CLOSED && !tdm__conn_is_open(outgoing->link->conn)) {
        return; /* what became of the actor decides */
    }
    if (status == TDM_OK) {
        status = tdm__large_document(large, &document);
        detail = tdm_error_detail();
        tdm__large_release(large);
    }
    take_answer(outgoing, outgoing->pulled_id, status, detail, document);
}

static void on_reply(void *arg, struct tdm__reply *reply)
{
    struct tdm__outgoing *outgoing = arg;
    struct tdm__link *link = outgoing->link;
    tdm_document *document = NULL;
    tdm_status status = reply->status;
    const char *detail = reply->detail;
    uint64_t call_id = outgoing->call_id;

    outgoing->call_id = 0;
    if (status == TDM_E_CLOSED && !tdm__conn_is_open(link->conn)) {
        return; /* what became of the actor decides */
    }
    link->lost_since_ms = 0;
    if (tdm__retry_wants(outgoing, status)) {
        take_out(outgoing);
        tdm__retry_pause(outgoing);
        tdm__traffic_pump(link);
        return;
    }
    if (status == TDM_OK && tdm__is_offer(reply->packed)) {
        outgoing->pulled_id = call_id;
        status = tdm__pull_start(link->runtime, link->conn, reply->packed, on_pulled, outgoing,
                                 &outgoing->pull);
        if (status == TDM_OK) {
            return;
        }
        detail = tdm_error_detail();
    } else if (status == TDM_OK) {
        status = tdm__result_document(link->runtime, link->conn, reply, &document);
        detail = status == TDM_OK ? "" : tdm_error_detail();
    }
    take_answer(outgoing, call_id, status, detail, document);
}

/* Credit is for what came on this connection: after a resend the actor counts anew, and there
 * is none for what the one before it sent. */
void tdm__traffic_credit(struct tdm__outgoing *outgoing, uint64_t items_taken)
{
    uint64_t credit = items_taken < outgoing->items_count ? items_taken : outgoing->items_count;

    if (credit > 0 && outgoing->call_id != 0 && outgoing->link->conn != NULL) {
        tdm__conn_credit(outgoing->link->conn, outgoing->call_id, credit);
    }
}

/* An item that has been offered keeps its place while it is fetched. */
struct coming_item {
    struct tdm__link *link; /* held */
    uint64_t call_id;
    uint64_t index;
    tdm_ref *ref; /* held */
};

static void on_item_pulled(void *arg, tdm_status status, const char *detail,
                           struct tdm__large *large)
{
    struct coming_item *coming = arg;
    struct tdm__link *link = coming->link;
    tdm_runtime *runtime = link->runtime;
    tdm_document *document = NULL;

    if (status == TDM_OK) {
        status = tdm__large_document(large, &document);
        detail = tdm_error_detail();
        tdm__large_release(large);
    }
    if (status == TDM_OK) {
        tdm__reply_arrived(runtime, link->conn, coming->call_id, coming->index, document);
    }
    tdm__ref_complete(coming->ref, status == TDM_E_CLOSED ? TDM_E_VALUE_LOST : status, detail,
                      document);
    runtime->results_arrived = true;
    tdm_ref_release(coming->ref);
    free(coming);
    tdm__links_pump(runtime);
    tdm__link_release(link);
}

static tdm_status fetch_item(struct tdm__outgoing *outgoing, uint64_t index,
                             struct tdm_bytes offer)
{
    struct tdm__link *link = outgoing->link;
    struct coming_item *coming = calloc(1, sizeof(*coming));
    struct tdm__pull *pull;
    tdm_status status;

    if (coming == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an item of a stream");
    }
    *coming = (struct coming_item){.link = link, .call_id = outgoing->call_id, .index = index};
    status = tdm__pull_start(link->runtime, link->conn, offer, on_item_pulled, coming, &pull);
    if (status != TDM_OK) {
        free(coming);
        return status;
    }
    link->holders_count++;
    status = tdm__stream_item_to_come(outgoing->stream, index, &coming->ref);
    if (status != TDM_OK) {
        tdm__pull_abandon(pull);
        link->holders_count--;
        free(coming);
    }
    return status;
}

static void on_item(void *arg, uint64_t index, struct tdm__reply *item)
{
    struct tdm__outgoing *outgoing = arg;
    struct tdm__link *link = outgoing->link;
    tdm_document *document = NULL;
    tdm_status status;

    outgoing->items_count = index;
    if (tdm__is_offer(item->packed)) {
        status = outgoing->settled ? tdm__pull_decline(link->conn, item->packed)
                                   : fetch_item(outgoing, index, item->packed);
        if (status != TDM_OK) {
            tdm__outgoing_settle(outgoing, status, tdm_error_detail(), NULL);
        }
        return;
    }
    status = tdm__result_document(link->runtime, link->conn, item, &document);
    if (status == TDM_OK) {
        tdm__reply_arrived(link->runtime, link->conn, outgoing->call_id, index, document);
    }
    if (outgoing->settled) {
        tdm_document_destroy(document); /* nobody takes it: what it lent is given back */
        return;
    }
    tdm__stream_item(outgoing->stream, index, status, tdm_error_detail(), document);
}

/* ---- sending ---------------------------------------------------------------------------- */

/* Answers up to the first that is missing. */
static uint64_t acknowledged_with(const struct tdm__outgoing *outgoing)
{
    const struct tdm__outgoing *first = TAILQ_FIRST(&outgoing->link->flying);

    return (first == NULL ? outgoing : first)->sequence - 1;
}

/* On this node: what is large need not travel. */
static bool is_near(const struct tdm__link *link)
{
    return strcmp(link->info.node_id, link->runtime->node_id) == 0;
}

static bool is_ready(const struct tdm__outgoing *outgoing)
{
    return outgoing->arguments == NULL || tdm__arguments_ready(outgoing->arguments);
}

static tdm_status put_arguments(struct tdm__outgoing *outgoing, struct tdm__request *request)
{
    const struct tdm__link *link = outgoing->link;

    request->packed = outgoing->packed;
    return outgoing->arguments == NULL
               ? TDM_OK
               : tdm__arguments_pack(outgoing->arguments, link->conn, is_near(link), request);
}

static tdm_status send_call(struct tdm__outgoing *outgoing)
{
    struct tdm__link *link = outgoing->link;
    struct tdm__request request = {.target = link->id,
                                   .method = outgoing->method,
                                   .deadline_ms = outgoing->deadline_ms,
                                   .group = outgoing->group,
                                   .on_item = outgoing->stream == NULL ? NULL : on_item,
                                   .call = &outgoing->call};

    TDM_TRY(put_arguments(outgoing, &request));
    if (outgoing->sequence == 0) {
        outgoing->sequence = ++link->last_sequence;
    }
    outgoing->items_count = 0;
    request.sequence = outgoing->sequence;
    request.acknowledged = acknowledged_with(outgoing);
    link->acknowledged = request.acknowledged;
    return tdm__conn_call(link->conn, &request, on_reply, outgoing, &outgoing->call_id);
}

/* The next that may leave; NULL if it, or each of them, waits for an argument. */
static struct tdm__outgoing *first_ready(const struct tdm__link *link)
{
    struct tdm__outgoing *outgoing = TAILQ_FIRST(&link->waiting);

    while (outgoing != NULL && !is_ready(outgoing)) {
        link->runtime->calls_blocked = true;
        outgoing = link->out_of_order ? TAILQ_NEXT(outgoing, entry) : NULL;
    }
    return outgoing;
}

static void send_ready(struct tdm__link *link)
{
    struct tdm__outgoing *outgoing;

    while (link->state == TDM__LINK_OPEN && (outgoing = first_ready(link)) != NULL) {
        tdm_status status = send_call(outgoing);

        if (status != TDM_OK) {
            finish(outgoing, status, tdm_error_detail(), NULL);
            continue;
        }
        take_out(outgoing);
        outgoing->flying = true;
        TAILQ_INSERT_TAIL(&link->flying, outgoing, entry);
    }
}

/* What has to be sent again under its old number goes first. */
void tdm__traffic_pump(struct tdm__link *link)
{
    send_ready(link);
    if (!TAILQ_EMPTY(&link->pausing) && link->state == TDM__LINK_OPEN &&
        tdm__retry_resume(link)) {
        send_ready(link);
    }
}

/* A call whose argument failed has ended by itself: it may have been its link's last, and
 * nobody holds that. */
static void let_go_of_idle(tdm_runtime *runtime)
{
    struct tdm__link *link = runtime->links;

    while (link != NULL) {
        struct tdm__link *next = link->next;

        tdm__handle_settle(link);
        if (tdm__link_is_unused(link)) {
            tdm__link_destroy(link);
            next = runtime->links; /* others may have gone with it */
        }
        link = next;
    }
}

void tdm__links_pump(tdm_runtime *runtime)
{
    bool pumped = false;

    while (runtime->calls_blocked && runtime->results_arrived) {
        pumped = true;
        runtime->calls_blocked = false;
        runtime->results_arrived = false;
        for (struct tdm__link *link = runtime->links; link != NULL; link = link->next) {
            tdm__link_supply(link);
            tdm__traffic_pump(link);
        }
    }
    if (pumped) {
        let_go_of_idle(runtime);
    }
}

/* ---- deadlines -------------------------------------------------------------------------- */

static void expire(struct tdm__outgoing *outgoing)
{
    forget(outgoing);
    fail_expired(outgoing);
}

/* Ends those whose time is over; the deadline of the next. */
static int64_t expire_in(struct tdm__outgoings *list, int64_t now_ms, int64_t next_ms)
{
    struct tdm__outgoing *next;

    for (struct tdm__outgoing *outgoing = TAILQ_FIRST(list); outgoing != NULL;
         outgoing = next) {
        next = TAILQ_NEXT(outgoing, entry);
        if (outgoing->deadline_ms <= now_ms) {
            expire(outgoing);
        } else if (outgoing->deadline_ms < next_ms) {
            next_ms = outgoing->deadline_ms;
        }
    }
    return next_ms;
}

static void on_expiry(void *arg)
{
    struct tdm__link *link = arg;
    int64_t now_ms = tdm__clock_ms();
    int64_t next_ms = expire_in(&link->waiting, now_ms, TDM__NEVER);

    next_ms = expire_in(&link->pausing, now_ms, next_ms);
    link->expiry_ms = expire_in(&link->flying, now_ms, next_ms);
    (void)tdm__timer_set(link->expiry, link->expiry_ms); /* memory: it had some a moment ago */
    link->holders_count++;
    tdm__traffic_pump(link);
    tdm__links_pump(link->runtime);
    tdm__link_release(link);
}

static tdm_status expect_expiry(struct tdm__link *link, int64_t deadline_ms)
{
    if (deadline_ms >= link->expiry_ms) {
        return TDM_OK;
    }
    if (link->expiry == NULL) {
        TDM_TRY(tdm__timer_create(link->runtime->loop, on_expiry, link, &link->expiry));
    }
    TDM_TRY(tdm__timer_set(link->expiry, deadline_ms));
    link->expiry_ms = deadline_ms;
    return TDM_OK;
}

void tdm__traffic_push(struct tdm__link *link, struct tdm__outgoing *outgoing)
{
    tdm_status status;

    outgoing->is_pending = true;
    link->pending_count++;
    TAILQ_INSERT_TAIL(&link->waiting, outgoing, entry);
    status = expect_expiry(link, outgoing->deadline_ms);
    if (status != TDM_OK) {
        finish(outgoing, status, tdm_error_detail(), NULL);
    }
    tdm__traffic_pump(link);
    tdm__links_pump(link->runtime); /* a call that could not leave has a result, too */
}

void tdm__traffic_move(struct tdm__link *from, struct tdm__link *to)
{
    struct tdm__outgoing *outgoing;

    TDM_ASSERT(TAILQ_EMPTY(&from->flying) && TAILQ_EMPTY(&from->pausing));
    while ((outgoing = TAILQ_FIRST(&from->waiting)) != NULL) {
        TAILQ_REMOVE(&from->waiting, outgoing, entry);
        from->pending_count -= outgoing->is_pending ? 1 : 0;
        outgoing->link = to;
        tdm__traffic_push(to, outgoing);
        if (to->state == TDM__LINK_DEAD) {
            tdm__traffic_fail_all(to, to->death_status, to->death);
        }
    }
}

void tdm__traffic_cancel(struct tdm__outgoing *outgoing, bool children)
{
    struct tdm__link *link = outgoing->link;
    char detail[160];

    (void)snprintf(detail, sizeof(detail), "method %s of actor %s: the call was canceled",
                   outgoing->method, link->label);
    link->holders_count++;
    if (outgoing->flying && outgoing->call_id != 0) {
        tdm__conn_cancel(link->conn, outgoing->call_id, children);
        tdm__outgoing_settle(outgoing, TDM_E_CANCELED, detail, NULL); /* the answer frees it */
    } else {
        finish(outgoing, TDM_E_CANCELED, detail, NULL);
    }
    tdm__traffic_pump(link);
    tdm__links_pump(link->runtime);
    tdm__link_release(link);
}

/* ---- when the connection has ended ------------------------------------------------------ */

void tdm__traffic_recall(struct tdm__link *link)
{
    struct tdm__outgoing *outgoing;

    while ((outgoing = TAILQ_LAST(&link->flying, tdm__outgoings)) != NULL) {
        take_out(outgoing);
        outgoing->call_id = 0;
        tdm__pull_abandon(outgoing->pull);
        outgoing->pull = NULL;
        if (outgoing->settled) {
            tdm__outgoing_destroy(outgoing); /* canceled */
        } else {
            TAILQ_INSERT_HEAD(&link->waiting, outgoing, entry);
        }
    }
}

void tdm__traffic_fail_unrepeatable(struct tdm__link *link, const char *reason)
{
    struct tdm__outgoing *outgoing = TAILQ_FIRST(&link->waiting);

    while (outgoing != NULL && outgoing->sequence != 0) {
        struct tdm__outgoing *next = TAILQ_NEXT(outgoing, entry);

        if (outgoing->retries_left == 0) {
            tdm__outgoing_fail(outgoing, TDM_E_ACTOR_RESTARTING, reason);
            take_out(outgoing);
            tdm__outgoing_destroy(outgoing);
        }
        outgoing = next;
    }
    tdm__links_pump(link->runtime);
}

void tdm__traffic_renumber(struct tdm__link *link)
{
    struct tdm__outgoing *outgoing;

    TAILQ_FOREACH(outgoing, &link->waiting, entry)
    {
        if (outgoing->sequence != 0) {
            outgoing->sequence = 0;
            outgoing->retries_left -= outgoing->retries_left > 0 ? 1 : 0;
        }
    }
    link->last_sequence = 0;
    link->acknowledged = 0;
}

void tdm__traffic_fail_all(struct tdm__link *link, tdm_status status, const char *reason)
{
    struct tdm__outgoing *outgoing;

    while ((outgoing = TAILQ_FIRST(&link->flying)) != NULL) {
        forget(outgoing);
        tdm__outgoing_fail(outgoing, status, reason);
        take_out(outgoing);
        tdm__outgoing_destroy(outgoing);
    }
    while ((outgoing = TAILQ_FIRST(&link->pausing)) != NULL) {
        finish(outgoing, status, reason, NULL);
    }
    while ((outgoing = TAILQ_FIRST(&link->waiting)) != NULL) {
        if (outgoing->sequence != 0) {
            tdm__outgoing_fail(outgoing, status, reason);
        }
        finish(outgoing, status, reason, NULL);
    }
    tdm__links_pump(link->runtime); /* others may have waited for these results */
}
