/* rpc_pair.c - two endpoints on one loop, and what they saw of each other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/rpc_pair.h"

#include "runtime/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

const uint8_t pair_token[TDM__TOKEN_BYTES] = "0123456789abcdef0123456789abcde";
uint32_t pair_replies_total;

/* ---- the methods ------------------------------------------------------------------------ */

static void echo(struct tdm__incoming_call *incoming)
{
    const tdm_value *value;
    tdm_writer *writer;

    assert_int_equal(tdm__incoming_value(incoming, &value), TDM_OK);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_value(writer, value);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

static void call_back(struct tdm__incoming_call *incoming)
{
    struct tdm__rpc_request request = pair_request("echo", "back");
    tdm_document *document = NULL;

    assert_int_equal(
        tdm__conn_call_wait(tdm__incoming_conn(incoming), &request, &document, NULL, NULL), TDM_OK);
    tdm_document_destroy(document);
    tdm__incoming_reply_pack(incoming, "s", "called back");
}

static void return_fds(struct tdm__incoming_call *incoming)
{
    int fds[TDM__RPC_FDS_MAX];
    uint32_t count = 0;

    while (count < TDM__RPC_FDS_MAX) {
        fds[count] = tdm__incoming_take_fd(incoming, count);
        if (fds[count] < 0) {
            break;
        }
        count++;
    }
    tdm__incoming_reply(incoming, pair_text("fds"), fds, count);
    for (uint32_t i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
}

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct rpc_pair *pair = arg;
    const char *method = tdm__incoming_method(incoming);

    pair->served++;
    if (strcmp(method, "echo") == 0) {
        echo(incoming);
    } else if (strcmp(method, "hold") == 0) {
        assert_true(pair->held_count < PAIR_HELD_MAX);
        pair->held[pair->held_count++] = incoming;
    } else if (strcmp(method, "back") == 0) {
        call_back(incoming);
    } else if (strcmp(method, "fd") == 0) {
        return_fds(incoming);
    } else {
        tdm__incoming_fail(incoming, TDM_E_METHOD, "on purpose");
    }
}

/* ---- the pair --------------------------------------------------------------------------- */

static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct rpc_pair *pair = arg;
    int index = conn == pair->conns[1];

    pair->conns[index] = NULL;
    pair->reasons[index] = reason;
    (void)snprintf(pair->details[index], sizeof(pair->details[index]), "%s", detail);
    pair->closed++;
}

static void on_accepted(void *arg, struct tdm__conn *conn)
{
    struct rpc_pair *pair = arg;

    pair->conns[1] = conn;
    tdm__conn_on_closed(conn, on_closed, pair);
}

struct tdm__peer_identity pair_identity(const char *name)
{
    struct tdm__peer_identity identity = {.kind = TDM__PEER_WORKER, .pid = getpid()};

    (void)snprintf(identity.name, sizeof(identity.name), "%s", name);
    return identity;
}

void pair_create(struct rpc_pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    pair_replies_total = 0;
    assert_int_equal(tdm__loop_create(&pair->loop), TDM_OK);
    for (int i = 0; i < 2; i++) {
        struct tdm__peer_identity identity = pair_identity(i == 0 ? "left" : "right");

        assert_int_equal(tdm__rpc_create(pair->loop, &identity, pair_token, &pair->rpcs[i]),
                         TDM_OK);
        tdm__rpc_set_call_handler(pair->rpcs[i], serve, pair);
        tdm__rpc_on_accepted(pair->rpcs[i], on_accepted, pair);
    }
}

void pair_destroy(struct rpc_pair *pair)
{
    for (uint32_t i = 0; i < pair->held_count; i++) {
        tdm__incoming_reply(pair->held[i], pair_text("late"), NULL, 0);
    }
    tdm__rpc_destroy(pair->rpcs[0]);
    tdm__rpc_destroy(pair->rpcs[1]);
    tdm__loop_destroy(pair->loop);
}

void pair_adopt(struct rpc_pair *pair, int fd0, int fd1)
{
    const int fds[2] = {fd0, fd1};

    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            assert_int_equal(tdm__rpc_adopt(pair->rpcs[i], fds[i], i == 1, &pair->conns[i]),
                             TDM_OK);
            tdm__conn_on_closed(pair->conns[i], on_closed, pair);
        }
    }
}

static bool both_open(void *arg)
{
    struct rpc_pair *pair = arg;

    return tdm__conn_is_open(pair->conns[0]) && tdm__conn_is_open(pair->conns[1]);
}

void pair_join(struct rpc_pair *pair)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pair_adopt(pair, fds[0], fds[1]);
    assert_int_equal(tdm__loop_run(pair->loop, both_open, pair, tdm__deadline_after(PAIR_WAIT_MS)),
                     TDM_OK);
}

struct goal {
    const uint32_t *value;
    uint32_t goal;
};

static bool goal_reached(void *arg)
{
    const struct goal *goal = arg;

    return *goal->value >= goal->goal;
}

void pair_run_until(struct rpc_pair *pair, const uint32_t *value, uint32_t goal)
{
    struct goal state = {value, goal};

    assert_int_equal(
        tdm__loop_run(pair->loop, goal_reached, &state, tdm__deadline_after(PAIR_WAIT_MS)), TDM_OK);
}

void pair_run_for(struct rpc_pair *pair, int64_t ms)
{
    assert_int_equal(tdm__loop_run(pair->loop, NULL, NULL, tdm__deadline_after(ms)), TDM_E_TIMEOUT);
}

/* ---- calls ------------------------------------------------------------------------------ */

struct tdm_bytes pair_text(const char *text)
{
    static char buffers[8][64];
    static unsigned next;
    char *packed = buffers[next++ % 8];
    size_t length = strlen(text);
    struct tdm_bytes bytes = {packed, length + 2};

    assert_true(length < 32);
    packed[0] = (char)0x91;
    packed[1] = (char)(0xa0 | length);
    memcpy(packed + 2, text, length);
    return bytes;
}

struct tdm__rpc_request pair_request(const char *method, const char *text)
{
    struct tdm__rpc_request request = {.method = method,
                                       .packed = pair_text(text),
                                       .deadline_ms = tdm__deadline_after(PAIR_WAIT_MS)};

    return request;
}

uint64_t pair_hash(struct tdm_bytes bytes)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < bytes.size_bytes; i++) {
        hash = (hash ^ ((const uint8_t *)bytes.data)[i]) * 1099511628211u;
    }
    return hash;
}

void pair_on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct pair_reply *answer = arg;

    answer->count++;
    answer->status = reply->status;
    (void)snprintf(answer->detail, sizeof(answer->detail), "%s", reply->detail);
    answer->size_bytes = reply->packed.size_bytes;
    answer->hash = pair_hash(reply->packed);
    answer->order = pair_replies_total++;
}

void pair_call(struct tdm__conn *conn, const char *method, struct pair_reply *answer)
{
    struct tdm__rpc_request request = pair_request(method, "text");

    assert_int_equal(tdm__conn_call(conn, &request, pair_on_reply, answer, NULL), TDM_OK);
    assert_int_equal(answer->count, 0); /* The callback never runs inside the call. */
}
