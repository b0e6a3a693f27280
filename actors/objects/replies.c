/* replies.c - references in replies: kept by the callee until the caller has settled. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/internal.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>

/* How long a caller whose connection was cut may ask for its answer again: it gives up earlier.
 */
enum { AGAIN_MS = 90 * 1000 };

/* ---- what was passed --------------------------------------------------------------------- */

struct tdm__passed {
    uint32_t owners_count; /* the call, its kept answer, and `kept` */
    bool dropped;
    struct kept *kept; /* NULL: it has not been sent, or was dropped */
    struct tdm__holds holds;
};

tdm_status tdm__passed_create(struct tdm__holds *holds, struct tdm__passed **passed_out)
{
    struct tdm__passed *passed = NULL;

    if (holds->count > 0) {
        passed = calloc(1, sizeof(*passed));
        if (passed == NULL) {
            return tdm__fail(TDM_E_NOMEM, "the references in an answer");
        }
        passed->owners_count = 1;
        passed->holds = *holds;
        *holds = (struct tdm__holds){0};
    }
    *passed_out = passed;
    return TDM_OK;
}

void tdm__passed_retain(struct tdm__passed *passed)
{
    if (passed != NULL) {
        passed->owners_count++;
    }
}

/* ---- the callee's ----------------------------------------------------------------------- */

/* Nobody gets them from here any more. */
static void kept_end(struct kept *kept)
{
    struct tdm__passed *passed = kept->passed;

    TAILQ_REMOVE(&kept->objects->kept, kept, link);
    free(kept);
    passed->kept = NULL;
    passed->dropped = true;
    tdm__holds_release(&passed->holds);
    tdm__passed_release(passed);
}

void tdm__passed_release(struct tdm__passed *passed)
{
    if (passed == NULL) {
        return;
    }
    passed->owners_count--;
    if (passed->owners_count == 0) {
        tdm__holds_release(&passed->holds);
        free(passed);
    } else if (passed->owners_count == 1 && passed->kept != NULL &&
               passed->kept->conn == NULL) {
        kept_end(passed->kept); /* there is no answer left to send again */
    }
}

static void on_again_over(void *arg)
{
    struct tdm__objects *objects = arg;
    int64_t now_ms = tdm__clock_ms();
    int64_t next_ms = TDM__NEVER;
    struct kept *next;

    for (struct kept *kept = TAILQ_FIRST(&objects->kept); kept != NULL; kept = next) {
        next = TAILQ_NEXT(kept, link);
        if (kept->conn != NULL) {
            continue;
        }
        if (kept->until_ms <= now_ms) {
            kept_end(kept);
        } else if (kept->until_ms < next_ms) {
            next_ms = kept->until_ms;
        }
    }
    objects->kept_timer_runs =
        next_ms != TDM__NEVER && tdm__timer_set(objects->kept_timer, next_ms) == TDM_OK;
}

static tdm_status wait_for_return(struct kept *kept)
{
    struct tdm__objects *objects = kept->objects;

    kept->until_ms = tdm__clock_ms() + AGAIN_MS;
    if (objects->kept_timer == NULL) {
        TDM_TRY(tdm__timer_create(objects->runtime->loop, on_again_over, objects,
                                  &objects->kept_timer));
    }
    if (!objects->kept_timer_runs) { /* else it runs for one that came earlier */
        TDM_TRY(tdm__timer_set(objects->kept_timer, kept->until_ms));
        objects->kept_timer_runs = true;
    }
    return TDM_OK;
}

static void on_caller_closed(struct tdm__closer *closer)
{
    struct kept *kept = (struct kept *)closer;

    kept->conn = NULL;
    if (kept->passed->owners_count == 1 || wait_for_return(kept) != TDM_OK) {
        kept_end(kept);
    }
}

static tdm_status kept_create(struct tdm__objects *objects, struct tdm__passed *passed)
{
    struct kept *kept = calloc(1, sizeof(*kept));

    if (kept == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the references in an answer");
    }
    kept->closer.fn = on_caller_closed;
    kept->objects = objects;
    kept->passed = passed;
    tdm__passed_retain(passed);
    passed->kept = kept;
    TAILQ_INSERT_TAIL(&objects->kept, kept, link);
    return TDM_OK;
}

tdm_status tdm__reply_keeps(tdm_runtime *runtime, const struct tdm__incoming *incoming,
                            uint64_t item, struct tdm__passed *passed)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct kept *kept;

    if (passed == NULL || conn == NULL) {
        return TDM_OK; /* nothing to keep, or nobody to keep it for yet */
    }
    if (passed->dropped) {
        return tdm__fail(TDM_E_VALUE_LOST,
                         "the answer has references that its caller has let go of");
    }
    if (passed->kept == NULL) {
        TDM_TRY(kept_create(runtime->objects, passed));
    }
    kept = passed->kept;
    if (kept->conn != NULL) {
        tdm__conn_unwatch_close(&kept->closer); /* it comes over another one now */
    }
    kept->conn = conn;
    kept->call_id = tdm__incoming_call_id(incoming);
    kept->item = item;
    if (tdm__conn_watch_close(conn, &kept->closer) != TDM_OK) {
        on_caller_closed(&kept->closer);
    }
    return TDM_OK;
}

void tdm__reply_settled(struct tdm__objects *objects, struct tdm__incoming *incoming)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct kept *kept;
    uint64_t call_id;
    uint64_t item;

    if (tdm__incoming_unpack(incoming, "uu", &call_id, &item) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    TAILQ_FOREACH(kept, &objects->kept, link)
    {
        if (kept->conn == conn && kept->call_id == call_id && kept->item == item) {
            tdm__conn_unwatch_close(&kept->closer);
            kept_end(kept);
            break;
        }
    }
    tdm__incoming_reply_pack(incoming, "");
}

void tdm__kept_destroy(struct tdm__objects *objects)
{
    while (!TAILQ_EMPTY(&objects->kept)) {
        struct kept *kept = TAILQ_FIRST(&objects->kept);

        if (kept->conn != NULL) {
            tdm__conn_unwatch_close(&kept->closer);
        }
        kept_end(kept);
    }
    tdm__timer_destroy(objects->kept_timer);
}

/* ---- the caller's ----------------------------------------------------------------------- */

struct arrival {
    struct tdm__closer closer;
    struct tdm__conn *conn; /* NULL once it has ended */
    uint64_t call_id;
    uint64_t item;
};

static void on_callee_closed(struct tdm__closer *closer)
{
    ((struct arrival *)closer)->conn = NULL;
}

static tdm_status tell_callee(const struct arrival *arrival)
{
    struct tdm__request request = {.method = "object.settled", .deadline_ms = TDM__NEVER};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "uu", arrival->call_id, arrival->item);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(arrival->conn, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

static void on_settled(void *arg)
{
    struct arrival *arrival = arg;

    if (arrival->conn != NULL) {
        tdm__conn_unwatch_close(&arrival->closer);
        if (tell_callee(arrival) != TDM_OK) {
            tdm__log(TDM__WARN, "objects", "a reply's references stay held: %s",
                     tdm_error_detail());
        }
    }
    free(arrival);
}

static void wait_for_holds(tdm_runtime *runtime, const tdm_document *document,
                           struct arrival *arrival)
{
    struct tdm__holds nested = {0};

    if (tdm__holds_of_document(runtime, document, &nested) != TDM_OK ||
        tdm__holds_when_settled(runtime, &nested, on_settled, arrival) != TDM_OK) {
        on_settled(arrival); /* who reads the result will be told */
    }
    tdm__holds_release(&nested);
}

void tdm__reply_arrived(tdm_runtime *runtime, struct tdm__conn *conn, uint64_t call_id,
                        uint64_t item, const tdm_document *document)
{
    struct arrival *arrival;
    uint32_t exts_count;

    (void)tdm__document_exts(document, &exts_count);
    if (exts_count == 0) {
        return;
    }
    arrival = calloc(1, sizeof(*arrival));
    if (arrival == NULL) {
        return; /* the callee keeps them until the connection ends */
    }
    arrival->closer.fn = on_callee_closed;
    arrival->conn = conn;
    arrival->call_id = call_id;
    arrival->item = item;
    if (tdm__conn_watch_close(conn, &arrival->closer) != TDM_OK) {
        free(arrival);
    } else {
        wait_for_holds(runtime, document, arrival);
    }
}
