/* replies.c - references in replies: kept by the callee until the caller has settled. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/internal.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>

/* ---- the callee's ----------------------------------------------------------------------- */

static void kept_end(struct kept *kept)
{
    TAILQ_REMOVE(&kept->objects->kept, kept, link);
    tdm__holds_release(&kept->holds);
    free(kept);
}

static void on_caller_closed(struct tdm__closer *closer)
{
    kept_end((struct kept *)closer);
}

void tdm__reply_keeps(tdm_runtime *runtime, struct tdm__incoming *incoming,
                      struct tdm__holds *holds)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct kept *kept = holds->count == 0 || conn == NULL ? NULL : calloc(1, sizeof(*kept));

    if (kept == NULL) { /* nothing to keep, or nobody to keep it for */
        tdm__holds_release(holds);
        return;
    }
    kept->closer.fn = on_caller_closed;
    kept->objects = runtime->objects;
    kept->conn = conn;
    kept->call_id = tdm__incoming_call_id(incoming);
    if (tdm__conn_watch_close(conn, &kept->closer) != TDM_OK) {
        free(kept);
        tdm__holds_release(holds);
        return;
    }
    kept->holds = *holds;
    *holds = (struct tdm__holds){0};
    TAILQ_INSERT_TAIL(&kept->objects->kept, kept, link);
}

void tdm__reply_settled(struct tdm__objects *objects, struct tdm__incoming *incoming)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct kept *kept;
    uint64_t call_id;

    if (tdm__incoming_unpack(incoming, "u", &call_id) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    TAILQ_FOREACH(kept, &objects->kept, link)
    {
        if (kept->conn == conn && kept->call_id == call_id) {
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

        tdm__conn_unwatch_close(&kept->closer);
        kept_end(kept);
    }
}

/* ---- the caller's ----------------------------------------------------------------------- */

struct arrival {
    struct tdm__closer closer;
    struct tdm__conn *conn; /* NULL once it has ended */
    uint64_t call_id;
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
    status = tdm_pack(writer, "u", arrival->call_id);
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
                        const tdm_document *document)
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
    if (tdm__conn_watch_close(conn, &arrival->closer) != TDM_OK) {
        free(arrival);
    } else {
        wait_for_holds(runtime, document, arrival);
    }
}
