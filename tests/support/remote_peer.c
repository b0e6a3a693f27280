/* remote_peer.c - another process, played by a test: it asks, and is asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/remote_peer.h"

#include "runtime/clock.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- calls that come -------------------------------------------------------------------- */

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct remote_peer *end = arg;

    assert_true(end->held_count < REMOTE_PEER_HELD_MAX);
    end->held[end->held_count++] = incoming;
    end->asked_count++;
}

static void on_accepted(void *arg, struct tdm__conn *conn)
{
    (void)conn;
    ((struct remote_peer *)arg)->accepted_count++;
}

struct goal {
    const struct remote_peer *end;
    uint32_t count;
};

static bool holds_enough(void *arg)
{
    const struct goal *goal = arg;

    return goal->end->held_count >= goal->count;
}

void remote_peer_hold(struct remote_peer *end, uint32_t count)
{
    struct goal goal = {end, count};

    remote_peer_run(tdm__rpc_loop(end->rpc), holds_enough, &goal);
}

struct tdm__incoming_call *remote_peer_take(struct remote_peer *end)
{
    struct tdm__incoming_call *first = end->held[0];

    assert_true(end->held_count > 0);
    end->held_count--;
    memmove(end->held, end->held + 1, end->held_count * sizeof(end->held[0]));
    return first;
}

/* ---- the endpoint ----------------------------------------------------------------------- */

void remote_peer_open(struct remote_peer *end, struct tdm__loop *loop, enum tdm__peer_kind kind,
                      const char *name)
{
    *end = (struct remote_peer){.self = pair_identity(name)};
    end->self.kind = kind;
    assert_int_equal(tdm__id_generate(&end->self.id), TDM_OK);
    if (kind == TDM__PEER_DAEMON) {
        end->self.node = end->self.id;
    }
    assert_int_equal(tdm__rpc_create(loop, &end->self, pair_token, &end->rpc), TDM_OK);
    tdm__rpc_set_call_handler(end->rpc, serve, end);
    tdm__rpc_on_accepted(end->rpc, on_accepted, end);
}

void remote_peer_listen(struct remote_peer *end, const char *address, char *bound_out,
                        size_t bound_bytes)
{
    assert_int_equal(tdm__rpc_listen(end->rpc, address, bound_out, bound_bytes), TDM_OK);
}

static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    (void)conn;
    (void)reason;
    (void)detail;
    ((struct remote_peer *)arg)->conn = NULL;
}

void remote_peer_connect(struct remote_peer *end, const char *address)
{
    assert_int_equal(tdm__rpc_connect(end->rpc, address, &end->conn), TDM_OK);
    tdm__conn_on_closed(end->conn, on_closed, end);
}

void remote_peer_adopt(struct remote_peer *end, int fd)
{
    assert_int_equal(tdm__rpc_adopt(end->rpc, fd, false, &end->conn), TDM_OK);
    tdm__conn_on_closed(end->conn, on_closed, end);
}

static void find_any(void *arg, struct tdm__conn *conn)
{
    *(struct tdm__conn **)arg = conn;
}

void remote_peer_cut(struct remote_peer *end)
{
    struct tdm__conn *conn;

    do {
        conn = NULL;
        tdm__rpc_each_conn(end->rpc, find_any, &conn);
        if (conn != NULL) {
            tdm__conn_close(conn);
        }
    } while (conn != NULL);
}

void remote_peer_close(struct remote_peer *end)
{
    remote_peer_cut(end);
    while (end->held_count > 0) {
        tdm__incoming_fail(remote_peer_take(end), TDM_E_CANCELED, "goes nowhere");
    }
    tdm__rpc_destroy(end->rpc);
    end->rpc = NULL;
}

/* ---- calls that leave ------------------------------------------------------------------- */

static void on_answer(void *arg, struct tdm__rpc_reply *reply)
{
    static uint32_t total;
    struct remote_reply *answer = arg;

    answer->count++;
    answer->order = ++total;
    answer->status = reply->status;
    (void)snprintf(answer->detail, sizeof(answer->detail), "%s", reply->detail);
    if (reply->status == TDM_OK) {
        assert_int_equal(tdm__rpc_reply_document(reply, &answer->document), TDM_OK);
    }
}

static void ask(struct remote_peer *end, struct remote_reply *answer, const char *method,
                const char *format, va_list args)
{
    struct tdm__rpc_request request = {.method = method,
                                       .deadline_ms = tdm__deadline_after(REMOTE_PEER_WAIT_MS)};
    tdm_writer *writer;

    *answer = (struct remote_reply){.count = 0};
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm_pack_va(writer, format, args), TDM_OK);
    request.packed = tdm_writer_bytes(writer);
    assert_non_null(end->conn);
    assert_int_equal(tdm__conn_call(end->conn, &request, on_answer, answer, NULL), TDM_OK);
    tdm_writer_destroy(writer);
}

void remote_peer_ask(struct remote_peer *end, struct remote_reply *answer, const char *method,
                     const char *format, ...)
{
    va_list args;

    va_start(args, format);
    ask(end, answer, method, format, args);
    va_end(args);
}

static bool has_come(void *arg)
{
    return ((const struct remote_reply *)arg)->count > 0;
}

tdm_status remote_peer_wait(struct remote_peer *end, struct remote_reply *answer)
{
    remote_peer_run(tdm__rpc_loop(end->rpc), has_come, answer);
    return answer->status;
}

tdm_status remote_peer_call(struct remote_peer *end, const char *method, const char *format, ...)
{
    struct remote_reply answer;
    tdm_status status;
    va_list args;

    va_start(args, format);
    ask(end, &answer, method, format, args);
    va_end(args);
    status = remote_peer_wait(end, &answer);
    remote_reply_free(&answer);
    return status;
}

const tdm_value *remote_reply_value(const struct remote_reply *answer)
{
    assert_int_equal(answer->status, TDM_OK);
    assert_non_null(answer->document);
    return tdm_document_root(answer->document);
}

void remote_reply_free(struct remote_reply *answer)
{
    tdm_document_destroy(answer->document);
    answer->document = NULL;
}

/* ---- running ---------------------------------------------------------------------------- */

void remote_peer_run(struct tdm__loop *loop, bool (*done)(void *arg), void *arg)
{
    assert_int_equal(tdm__loop_run(loop, done, arg, tdm__deadline_after(REMOTE_PEER_WAIT_MS)),
                     TDM_OK);
}

void remote_peer_settle(struct tdm__loop *loop)
{
    for (int i = 0; i < 20; i++) {
        (void)tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(0));
    }
}
