/* reply_pins.c - references in replies, pinned by the callee until the caller has settled. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm__passed_refs (the references in one reply or stream item) and struct
 * reply_pins (its registration with the connection on which it was last sent). Both sides are
 * here. The callee registers the references when the reply leaves, and releases them when the
 * caller sends "object.settled". If the connection closes first, they stay pinned while the
 * callee may have to send the reply again, at most RECONNECT_MS.
 *
 * The caller side (struct reply_refs_arrival) sends "object.settled" after it has settled all
 * references in the reply. Everything runs on the loop with its lock.
 * docs/protocols/references.md, "Answers that are kept", specifies the rules. */

#include "actors/objects/reply_pins.h"

#include "actors/objects/pins.h"
#include "actors/objects/settling.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>

/* Milliseconds that the references in a reply stay pinned after the connection closed. A caller
 * stops trying to reconnect earlier. */
enum { RECONNECT_MS = 90 * 1000 };

/* ---- the references of one reply ------------------------------------------------------------ */

/* The references in one reply or stream item. Reference counted; guarded by the loop's lock. */
struct tdm__passed_refs {
    uint32_t owners_count; /* The call, the reply cache, and `reply_pins` if set. */
    /* True after the references have been released, although the object still has owners. */
    bool dropped;
    /* Registration; NULL before the reply is sent first and after the references are released. */
    struct reply_pins *reply_pins;
    struct tdm__pins pins; /* The references. */
};

tdm_status tdm__passed_refs_create(struct tdm__pins *pins, struct tdm__passed_refs **passed_out)
{
    struct tdm__passed_refs *passed = NULL;

    if (pins->count > 0) {
        passed = calloc(1, sizeof(*passed));
        if (passed == NULL) {
            return tdm__fail(TDM_E_NOMEM, "the references in a reply");
        }
        passed->owners_count = 1;
        passed->pins = *pins;
        *pins = (struct tdm__pins){0};
    }
    *passed_out = passed;
    return TDM_OK;
}

void tdm__passed_refs_retain(struct tdm__passed_refs *passed)
{
    if (passed != NULL) {
        passed->owners_count++;
    }
}

/* ---- the callee's side ----------------------------------------------------------------------- */

/* Removes the registration and releases the references. The reply cannot be sent again after
 * that. */
static void reply_pins_end(struct reply_pins *reply_pins)
{
    struct tdm__passed_refs *passed = reply_pins->passed;

    TAILQ_REMOVE(&reply_pins->objects->reply_pins, reply_pins, link);
    free(reply_pins);
    passed->reply_pins = NULL;
    passed->dropped = true;
    tdm__pins_release(&passed->pins);
    tdm__passed_refs_release(passed);
}

void tdm__passed_refs_release(struct tdm__passed_refs *passed)
{
    if (passed == NULL) {
        return;
    }
    passed->owners_count--;
    if (passed->owners_count == 0) {
        tdm__pins_release(&passed->pins);
        free(passed);
    } else if (passed->owners_count == 1 && passed->reply_pins != NULL &&
               passed->reply_pins->conn == NULL) {
        /* The call has ended and the reply is no longer cached, so it cannot be sent again. */
        reply_pins_end(passed->reply_pins);
    }
}

/* Timer: releases the references of all callers that did not reconnect in time. */
static void on_resend_expired(void *arg)
{
    struct tdm__ref_table *objects = arg;
    int64_t now_ms = tdm__clock_ms();
    int64_t next_ms = TDM__NEVER;
    struct reply_pins *next;

    for (struct reply_pins *reply_pins = TAILQ_FIRST(&objects->reply_pins); reply_pins != NULL;
         reply_pins = next) {
        next = TAILQ_NEXT(reply_pins, link);
        if (reply_pins->conn != NULL) {
            continue;
        }
        if (reply_pins->expires_ms <= now_ms) {
            reply_pins_end(reply_pins);
        } else if (reply_pins->expires_ms < next_ms) {
            next_ms = reply_pins->expires_ms;
        }
    }
    objects->reply_pins_timer_is_set =
        next_ms != TDM__NEVER && tdm__timer_set(objects->reply_pins_timer, next_ms) == TDM_OK;
}

/* Starts the time in which the caller may reconnect. */
static tdm_status reply_pins_await_reconnect(struct reply_pins *reply_pins)
{
    struct tdm__ref_table *objects = reply_pins->objects;

    reply_pins->expires_ms = tdm__clock_ms() + RECONNECT_MS;
    if (objects->reply_pins_timer == NULL) {
        TDM_TRY(tdm__timer_create(objects->runtime->loop, on_resend_expired, objects,
                                  &objects->reply_pins_timer));
    }
    if (!objects->reply_pins_timer_is_set) { /* A running timer was set for an earlier time. */
        TDM_TRY(tdm__timer_set(objects->reply_pins_timer, reply_pins->expires_ms));
        objects->reply_pins_timer_is_set = true;
    }
    return TDM_OK;
}

/* Close watcher: the connection closed before the caller had settled. */
static void on_caller_closed(struct tdm__close_watcher *closer)
{
    struct reply_pins *reply_pins = (struct reply_pins *)closer;

    reply_pins->conn = NULL;
    if (reply_pins->passed->owners_count == 1 || reply_pins_await_reconnect(reply_pins) != TDM_OK) {
        reply_pins_end(reply_pins);
    }
}

/* Creates the registration of `passed`, without a connection. */
static tdm_status reply_pins_create(struct tdm__ref_table *objects, struct tdm__passed_refs *passed)
{
    struct reply_pins *reply_pins = calloc(1, sizeof(*reply_pins));

    if (reply_pins == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the references in a reply");
    }
    reply_pins->closer.fn = on_caller_closed;
    reply_pins->objects = objects;
    reply_pins->passed = passed;
    tdm__passed_refs_retain(passed);
    passed->reply_pins = reply_pins;
    TAILQ_INSERT_TAIL(&objects->reply_pins, reply_pins, link);
    return TDM_OK;
}

tdm_status tdm__reply_pins_create(tdm_runtime *runtime, const struct tdm__incoming_call *incoming,
                                  uint64_t item, struct tdm__passed_refs *passed)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct reply_pins *reply_pins;

    if (passed == NULL || conn == NULL) {
        return TDM_OK; /* There is nothing to pin, or no connected caller. */
    }
    if (passed->dropped) {
        return tdm__fail(TDM_E_VALUE_LOST,
                         "the references in the reply were released by its caller");
    }
    if (passed->reply_pins == NULL) {
        TDM_TRY(reply_pins_create(runtime->objects, passed));
    }
    reply_pins = passed->reply_pins;
    if (reply_pins->conn != NULL) {
        tdm__conn_unwatch_close(&reply_pins->closer); /* The reply leaves on a new connection. */
    }
    reply_pins->conn = conn;
    reply_pins->call_id = tdm__incoming_call_id(incoming);
    reply_pins->item = item;
    if (tdm__conn_watch_close(conn, &reply_pins->closer) != TDM_OK) {
        on_caller_closed(&reply_pins->closer);
    }
    return TDM_OK;
}

void tdm__reply_pins_serve_settled(struct tdm__ref_table *objects,
                                   struct tdm__incoming_call *incoming)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct tdm__reply_settled_message message;
    struct reply_pins *reply_pins;

    if (tdm__incoming_decode(incoming, tdm__reply_settled_table(), &message) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    TAILQ_FOREACH(reply_pins, &objects->reply_pins, link)
    {
        if (reply_pins->conn == conn && reply_pins->call_id == message.call_id &&
            reply_pins->item == message.item) {
            tdm__conn_unwatch_close(&reply_pins->closer);
            reply_pins_end(reply_pins);
            break;
        }
    }
    tdm__incoming_reply_pack(incoming, "");
}

void tdm__reply_pins_destroy(struct tdm__ref_table *objects)
{
    while (!TAILQ_EMPTY(&objects->reply_pins)) {
        struct reply_pins *reply_pins = TAILQ_FIRST(&objects->reply_pins);

        if (reply_pins->conn != NULL) {
            tdm__conn_unwatch_close(&reply_pins->closer);
        }
        reply_pins_end(reply_pins);
    }
    tdm__timer_destroy(objects->reply_pins_timer);
}

/* ---- the caller's side ----------------------------------------------------------------------- */

/* A reply or item that arrived here and whose references are not all settled. */
struct reply_refs_arrival {
    /* Called when the connection closes; must be the first field. */
    struct tdm__close_watcher closer;
    struct tdm__conn *conn; /* Connection to the callee; NULL after it has closed. */
    uint64_t call_id;       /* Call of the reply or item. */
    uint64_t item;          /* Number of the stream item; 0 for the reply. */
};

/* Close watcher: forgets the closed connection. */
static void on_callee_closed(struct tdm__close_watcher *closer)
{
    ((struct reply_refs_arrival *)closer)->conn = NULL;
}

/* Sends "object.settled" to the callee. */
static tdm_status arrival_notify_callee(const struct reply_refs_arrival *reply_refs_arrival)
{
    struct tdm__rpc_request request = {.method = "object.settled", .deadline_ms = TDM__NEVER};
    const struct tdm__reply_settled_message message = {reply_refs_arrival->call_id,
                                                       reply_refs_arrival->item};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__reply_settled_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(reply_refs_arrival->conn, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Called when all references in the reply are settled: tells the callee and frees `arg`. */
static void on_reply_settled(void *arg)
{
    struct reply_refs_arrival *reply_refs_arrival = arg;

    if (reply_refs_arrival->conn != NULL) {
        tdm__conn_unwatch_close(&reply_refs_arrival->closer);
        if (arrival_notify_callee(reply_refs_arrival) != TDM_OK) {
            tdm__log(TDM__WARN, "objects", "a reply's references stay pinned: %s",
                     tdm_error_detail());
        }
    }
    free(reply_refs_arrival);
}

/* Calls on_reply_settled() when the references in the document are settled. */
static void arrival_await_settled(tdm_runtime *runtime, const tdm_document *document,
                                  struct reply_refs_arrival *reply_refs_arrival)
{
    struct tdm__pins nested = {0};

    if (tdm__pins_from_document(runtime, document, &nested) != TDM_OK ||
        tdm__pins_on_settled(runtime, &nested, on_reply_settled, reply_refs_arrival) != TDM_OK) {
        on_reply_settled(reply_refs_arrival); /* The failure is reported when the result is read. */
    }
    tdm__pins_release(&nested);
}

void tdm__reply_pins_acknowledge(tdm_runtime *runtime, struct tdm__conn *conn, uint64_t call_id,
                                 uint64_t item, const tdm_document *document)
{
    struct reply_refs_arrival *reply_refs_arrival;
    uint32_t exts_count;

    (void)tdm__document_exts(document, &exts_count);
    if (exts_count == 0) {
        return;
    }
    reply_refs_arrival = calloc(1, sizeof(*reply_refs_arrival));
    if (reply_refs_arrival == NULL) {
        return; /* The callee then pins the references until the connection closes. */
    }
    reply_refs_arrival->closer.fn = on_callee_closed;
    reply_refs_arrival->conn = conn;
    reply_refs_arrival->call_id = call_id;
    reply_refs_arrival->item = item;
    if (tdm__conn_watch_close(conn, &reply_refs_arrival->closer) != TDM_OK) {
        free(reply_refs_arrival);
    } else {
        arrival_await_settled(runtime, document, reply_refs_arrival);
    }
}
