/* rpc_test.c - every call completes exactly once, in order, or fails with the reason. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/rpc.h"

#include "runtime/clock.h"
#include "tests/support/rpc_pair.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct rpc_pair pair;
/* They outlive the test, because the last ones end in tear_down(). */
static struct pair_reply answers[8];

static int set_up(void **state)
{
    (void)state;
    memset(answers, 0, sizeof(answers));
    pair_create(&pair);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pair_destroy(&pair);
    return 0;
}

static void call_is_replied_to(void **state)
{
    struct pair_reply *answer = &answers[0];

    (void)state;
    pair_join(&pair);
    pair_call(pair.conns[0], "echo", answer);
    pair_run_until(&pair, &answer->count, 1);
    assert_int_equal(answer->status, TDM_OK);
    assert_true(answer->hash == pair_hash(pair_text("text")));
    assert_string_equal(tdm__conn_peer(pair.conns[0])->name, "right");
    assert_string_equal(tdm__conn_peer(pair.conns[1])->name, "left");
}

static void failure_carries_its_text(void **state)
{
    struct tdm__rpc_request request = pair_request("fail", "");

    (void)state;
    pair_join(&pair);
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_METHOD);
    assert_string_equal(tdm_error_detail(), "on purpose");
}

static void call_made_before_the_handshake_leaves_after_it(void **state)
{
    struct pair_reply *answer = &answers[0];
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    pair_adopt(&pair, fds[0], fds[1]);
    assert_false(tdm__conn_is_open(pair.conns[0]));
    assert_int_equal(tdm__conn_peer(pair.conns[0])->kind, 0);
    pair_call(pair.conns[0], "echo", answer);
    pair_run_until(&pair, &answer->count, 1);
    assert_int_equal(answer->status, TDM_OK);
}

static void both_ends_may_call_at_the_same_time(void **state)
{

    (void)state;
    pair_join(&pair);
    pair_call(pair.conns[0], "echo", &answers[0]);
    pair_call(pair.conns[1], "fail", &answers[1]);
    pair_run_until(&pair, &answers[0].count, 1);
    pair_run_until(&pair, &answers[1].count, 1);
    assert_int_equal(answers[0].status, TDM_OK);
    assert_int_equal(answers[1].status, TDM_E_METHOD);
}

static void many_calls_are_replied_to_in_order(void **state)
{
    enum { CALLS = 2000 };
    static struct pair_reply many[CALLS];

    (void)state;
    memset(many, 0, sizeof(many));
    pair_join(&pair);
    for (int i = 0; i < CALLS; i++) {
        pair_call(pair.conns[0], "echo", &many[i]);
    }
    pair_run_until(&pair, &many[CALLS - 1].count, 1);
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_int_equal(many[i].count, 1);
        assert_int_equal(many[i].order, i);
    }
}

static void method_may_call_its_caller_and_wait(void **state)
{

    (void)state;
    pair_join(&pair);
    /* The second and third frame are in the same buffer while the first callback waits. */
    for (int i = 0; i < 3; i++) {
        pair_call(pair.conns[0], i == 0 ? "back" : "echo", &answers[i]);
    }
    pair_run_until(&pair, &answers[0].count, 1);
    pair_run_until(&pair, &answers[2].count, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(answers[i].status, TDM_OK);
    }
    assert_int_equal(pair.served, 4);
}

/* Sends several times the capacity of a socket's buffer in both directions. */
static void large_payloads_arrive_completely(void **state)
{
    enum { SIZE = 8 << 20, CALLS = 4 };
    struct tdm__rpc_request request = {.method = "echo", .deadline_ms = TDM__NEVER};
    tdm_writer *writer;
    uint8_t *data = malloc(SIZE);

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < SIZE; i++) {
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    pair_join(&pair);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_bytes(writer, data, SIZE);
    request.packed = tdm_writer_bytes(writer);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, &answers[i], NULL),
                         TDM_OK);
    }
    pair_run_until(&pair, &answers[CALLS - 1].count, 1);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(answers[i].status, TDM_OK);
        assert_int_equal(answers[i].size_bytes, request.packed.size_bytes);
        assert_true(answers[i].hash == pair_hash(request.packed));
    }
    tdm_writer_destroy(writer);
    free(data);
}

/* ---- limits ----------------------------------------------------------------------------- */

static void read_value(void *arg, struct tdm__incoming_call *incoming)
{
    const tdm_value *value;
    tdm_status status = tdm__incoming_value(incoming, &value);

    (void)arg;
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        return;
    }
    tdm__incoming_reply_pack(incoming, "u", (uint64_t)tdm_value_count(value));
}

static void call_with_more_values_than_its_endpoint_reads_is_refused(void **state)
{
    static char nils[5 + 1000] = "\xdd\0\0\3\xe8";
    struct tdm__rpc_request request = {
        .method = "count", .packed = {nils, sizeof(nils)}, .deadline_ms = TDM__NEVER};

    (void)state;
    memset(nils + 5, 0xc0, 1000);
    pair_join(&pair);
    tdm__rpc_set_call_handler(pair.rpcs[1], read_value, NULL);
    tdm__rpc_set_values_max(pair.rpcs[1], 1000);
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "more than 1000 values"));
    tdm__rpc_set_values_max(pair.rpcs[1], 1001);
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL), TDM_OK);
}

static void call_over_a_limit_is_refused_here(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");
    const int fds[TDM__RPC_FDS_MAX + 1] = {0};
    char method[TDM__RPC_NAME_BYTES_MAX + 2];

    (void)state;
    pair_join(&pair);
    request.packed.size_bytes = TDM__RPC_FRAME_BYTES_MAX;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_LIMIT);
    request = pair_request("echo", "x");
    request.fds = fds;
    request.fds_count = TDM__RPC_FDS_MAX + 1;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_LIMIT);
    request.fds_count = 0;
    memset(method, 'm', sizeof(method));
    method[sizeof(method) - 1] = '\0';
    request.method = method;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_INVAL);
    request.method = "";
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_INVAL);
}

static void reply_over_the_limit_becomes_a_failure(void **state)
{
    struct pair_reply *answer = &answers[0];
    struct tdm_bytes huge = {"", TDM__RPC_FRAME_BYTES_MAX};

    (void)state;
    pair_join(&pair);
    pair_call(pair.conns[0], "hold", answer);
    pair_run_until(&pair, &pair.held_count, 1);
    tdm__incoming_reply(pair.held[--pair.held_count], huge, NULL, 0);
    pair_run_until(&pair, &answer->count, 1);
    assert_int_equal(answer->status, TDM_E_LIMIT);
}

static void keep_document(void *arg, struct tdm__rpc_reply *reply)
{
    assert_int_equal(reply->status, TDM_OK);
    assert_int_equal(tdm__rpc_reply_document(reply, arg), TDM_OK);
    /* The bytes are borrowed, not copied. */
    assert_ptr_equal(
        tdm_value_bytes(tdm_value_at(tdm_document_root(*(tdm_document **)arg), 0)).data,
        (const char *)reply->packed.data + 6);
}

static bool document_came(void *arg)
{
    return *(tdm_document **)arg != NULL;
}

/* The values of the call and the reply are read where they arrived, after both have been freed. */
static void documents_outlive_the_call_and_the_reply_without_a_copy(void **state)
{
    enum { PIECE = 1 << 20 };
    char *data = calloc(1, PIECE);
    struct tdm__rpc_request request = {.method = "hold", .deadline_ms = TDM__NEVER};
    tdm_document *documents[2] = {NULL, NULL};
    tdm_writer *writer = NULL;
    struct tdm__incoming_call *held;

    (void)state;
    assert_non_null(data);
    memset(data, 'x', PIECE);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm_pack(writer, "b", data, (size_t)PIECE), TDM_OK);
    request.packed = tdm_writer_bytes(writer);
    pair_join(&pair);
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, keep_document, &documents[0], NULL),
                     TDM_OK);
    pair_run_until(&pair, &pair.held_count, 1);
    held = pair.held[--pair.held_count];
    assert_int_equal(tdm__incoming_take_document(held, &documents[1]), TDM_OK);
    tdm__incoming_reply(held, request.packed, NULL, 0);
    assert_int_equal(tdm__loop_run(pair.loop, document_came, &documents[0], TDM__NEVER), TDM_OK);
    for (int i = 0; i < 2; i++) {
        struct tdm_bytes bytes = tdm_value_bytes(tdm_value_at(tdm_document_root(documents[i]), 0));

        assert_int_equal(bytes.size_bytes, PIECE);
        assert_memory_equal(bytes.data, data, PIECE);
        assert_int_equal(((uintptr_t)bytes.data - 6) % 64, 0);
        tdm_document_destroy(documents[i]);
    }
    tdm_writer_destroy(writer);
    free(data);
}

static void slow_reader_fills_the_output_and_calls_fail(void **state)
{
    enum { PIECE = 200 << 20 };
    char *data = calloc(1, PIECE);
    struct tdm__rpc_request request = {.method = "echo", .deadline_ms = TDM__NEVER};
    tdm_status status = TDM_OK;
    int sent = 0;

    (void)state;
    assert_non_null(data);
    pair_join(&pair);
    request.packed = (struct tdm_bytes){data, PIECE};
    /* The loop does not run, so no process reads. */
    for (; status == TDM_OK && sent < 100; sent++) {
        status = tdm__conn_call(pair.conns[0], &request, NULL, NULL, NULL);
    }
    assert_int_equal(status, TDM_E_AGAIN);
    assert_non_null(strstr(tdm_error_detail(), "reads too slowly"));
    assert_in_range(sent, 5, 7);
    free(data);
}

/* ---- deadlines, forgetting, ends -------------------------------------------------------- */

static void deadline_ends_the_wait_with_names(void **state)
{
    struct tdm__rpc_request request = pair_request("hold", "x");
    int64_t start_ms = tdm__clock_ms();
    char expected[128];

    (void)state;
    pair_join(&pair);
    request.deadline_ms = start_ms + 30;
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL), TDM_E_TIMEOUT);
    assert_true(tdm__clock_ms() >= start_ms + 30);
    (void)snprintf(expected, sizeof(expected), "no reply to hold from right (pid %d) within",
                   (int)getpid());
    assert_non_null(strstr(tdm_error_detail(), expected));
    assert_true(tdm__incoming_deadline(pair.held[0]) <= tdm__clock_ms() + 30);
    assert_true(tdm__conn_is_open(pair.conns[0]));
}

static void each_call_has_its_own_deadline(void **state)
{
    static const int64_t after_ms[] = {60, 20, 40, 20, 100000};
    static const int in_order[] = {1, 3, 2, 0};
    int64_t now_ms = tdm__clock_ms();

    (void)state;
    pair_join(&pair);
    for (int i = 0; i < 5; i++) {
        struct tdm__rpc_request request = pair_request("hold", "x");

        request.deadline_ms = now_ms + after_ms[i];
        assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, &answers[i], NULL),
                         TDM_OK);
    }
    for (int i = 0; i < 4; i++) {
        pair_run_until(&pair, &answers[in_order[i]].count, 1);
        /* Several calls may end together on a busy machine, but none early. */
        for (int k = 0; k < 5; k++) {
            assert_true(answers[k].count == 0 || tdm__clock_ms() >= now_ms + after_ms[k]);
        }
    }
    assert_int_equal(answers[4].count, 0);
}

static void the_reply_to_a_forgotten_call_is_late(void **state)
{
    struct tdm__rpc_request request = pair_request("hold", "x");
    struct pair_reply *answer = &answers[0];
    uint64_t call_id = 0;

    (void)state;
    pair_join(&pair);
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, answer, &call_id),
                     TDM_OK);
    assert_true(call_id != 0);
    pair_run_until(&pair, &pair.held_count, 1);
    tdm__conn_forget_call(pair.conns[0], call_id);
    tdm__conn_forget_call(pair.conns[0], 12345);
    tdm__incoming_reply(pair.held[--pair.held_count], pair_text("late"), NULL, 0);
    request.method = "echo";
    assert_int_equal(tdm__conn_call_wait(pair.conns[0], &request, NULL, NULL, NULL), TDM_OK);
    assert_int_equal(answer->count, 0);
}

struct lent {
    struct tdm__rpc_call call;
    char method[8];
    uint32_t *ended;
    tdm_status status;
};

static void free_lent(void *arg, struct tdm__rpc_reply *reply)
{
    struct lent *lent = arg;

    assert_int_equal(reply->status, lent->status);
    (*lent->ended)++;
    free(lent);
}

static void call_lent(const char *method, tdm_status status, uint32_t *ended)
{
    struct tdm__rpc_request request = pair_request(method, "x");
    struct lent *lent = malloc(sizeof(*lent));

    assert_non_null(lent);
    (void)snprintf(lent->method, sizeof(lent->method), "%s", method);
    lent->ended = ended;
    lent->status = status;
    request.method = lent->method;
    request.call = &lent->call;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, free_lent, lent, NULL), TDM_OK);
}

static void borrowed_call_memory_may_be_freed_after_the_reply(void **state)
{
    struct tdm__rpc_request request = pair_request("hold", "x");
    struct tdm__rpc_call memory;
    uint64_t call_id;
    uint32_t ended = 0;

    (void)state;
    pair_join(&pair);
    call_lent("echo", TDM_OK, &ended);
    pair_run_until(&pair, &ended, 1);
    request.call = &memory;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, &answers[0], &call_id),
                     TDM_OK);
    tdm__conn_forget_call(pair.conns[0], call_id);
    memset(&memory, 0xff, sizeof(memory)); /* The memory belongs to the caller again. */
    call_lent("hold", TDM_E_CLOSED, &ended);
    pair_run_until(&pair, &pair.held_count, 2);
    tdm__conn_close(pair.conns[0]);
    pair_run_until(&pair, &ended, 2);
    assert_int_equal(answers[0].count, 0);
}

static void closing_ends_the_calls_in_flight_on_both_sides(void **state)
{

    (void)state;
    pair_join(&pair);
    pair_call(pair.conns[0], "hold", &answers[0]);
    pair_call(pair.conns[1], "hold", &answers[1]);
    pair_run_until(&pair, &pair.held_count, 2);
    tdm__conn_close(pair.conns[0]);
    /* Both happen later, in the loop. */
    assert_int_equal(answers[0].count + pair.closed, 0);
    pair_run_until(&pair, &pair.closed, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(answers[i].count, 1);
        assert_int_equal(answers[i].status, TDM_E_CLOSED);
        assert_non_null(strstr(answers[i].detail, "hold"));
        assert_non_null(strstr(answers[i].detail, i == 0 ? "right" : "left"));
        assert_int_equal(pair.reasons[i], TDM_E_CLOSED);
        assert_null(tdm__incoming_conn(pair.held[i]));
        assert_string_not_equal(tdm__incoming_peer(pair.held[i])->name, "");
    }
    /* The function tear_down() replies to the held calls; these replies are discarded. */
}

static void reply_before_the_end_still_arrives(void **state)
{
    struct pair_reply *answer = &answers[0];

    (void)state;
    pair_join(&pair);
    pair_call(pair.conns[0], "hold", answer);
    pair_run_until(&pair, &pair.held_count, 1);
    tdm__incoming_reply(pair.held[--pair.held_count], pair_text("late"), NULL, 0);
    tdm__conn_close(pair.conns[1]);
    pair_run_until(&pair, &pair.closed, 2);
    assert_int_equal(answer->status, TDM_OK);
}

static void destroy_left(void *arg, struct tdm__rpc_reply *reply)
{
    pair_on_reply(arg, reply);
    tdm__rpc_destroy(pair.rpcs[0]);
    pair.rpcs[0] = NULL;
}

static void endpoint_may_be_destroyed_in_its_own_callback(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");

    (void)state;
    pair_join(&pair);
    pair_call(pair.conns[0], "hold", &answers[0]);
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, destroy_left, &answers[1], NULL),
                     TDM_OK);
    pair_call(pair.conns[0], "echo", &answers[2]);
    pair_run_until(&pair, &pair.closed, 2);
    assert_int_equal(answers[0].status, TDM_E_CLOSED);
    assert_int_equal(answers[1].status, TDM_OK);
    assert_int_equal(answers[2].status, TDM_E_CLOSED);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(answers[i].count, 1);
    }
}

static void close_conn(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    tdm__conn_close(tdm__incoming_conn(incoming));
    tdm__incoming_reply_pack(incoming, "");
}

static void method_may_close_the_connection_it_came_on(void **state)
{
    struct pair_reply *answer = &answers[0];

    (void)state;
    pair_join(&pair);
    tdm__rpc_set_call_handler(pair.rpcs[1], close_conn, NULL);
    pair_call(pair.conns[0], "bye", answer);
    pair_run_until(&pair, &pair.closed, 2);
    assert_int_equal(answer->status, TDM_E_CLOSED);
}

static void closed_connection_refuses_calls(void **state)
{
    struct tdm__rpc_request request = pair_request("echo", "x");

    (void)state;
    pair_join(&pair);
    tdm__conn_close(pair.conns[0]);
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, NULL, NULL),
                     TDM_E_CLOSED);
    pair_run_until(&pair, &pair.closed, 2);
}

static void never_reply(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    (void)incoming;
    (void)pause();
}

static void be_a_silent_peer(int fd)
{
    struct tdm__peer_identity identity = pair_identity("child");
    struct tdm__loop *loop;
    struct tdm__rpc *rpc;
    struct tdm__conn *conn;

    if (tdm__loop_create(&loop) == TDM_OK &&
        tdm__rpc_create(loop, &identity, pair_token, &rpc) == TDM_OK &&
        tdm__rpc_adopt(rpc, fd, true, &conn) == TDM_OK) {
        tdm__rpc_set_call_handler(rpc, never_reply, NULL);
        (void)tdm__loop_run(loop, NULL, NULL, tdm__deadline_after(PAIR_WAIT_MS));
    }
    _exit(1);
}

static void the_death_of_the_peer_ends_the_calls(void **state)
{
    struct tdm__rpc_request request = pair_request("hold", "x");
    struct pair_reply *answer = &answers[0];
    char name[32];
    pid_t child;
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(fds[0]);
        be_a_silent_peer(fds[1]);
    }
    (void)close(fds[1]);
    pair_adopt(&pair, fds[0], -1);
    while (!tdm__conn_is_open(pair.conns[0])) {
        pair_run_for(&pair, 1);
    }
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, answer, NULL), TDM_OK);
    assert_int_equal(kill(child, SIGKILL), 0);
    pair_run_until(&pair, &pair.closed, 1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(answer->status, TDM_E_CLOSED);
    (void)snprintf(name, sizeof(name), "child (pid %d)", (int)child);
    assert_non_null(strstr(answer->detail, name));
}

/* ---- how the bytes come ----------------------------------------------------------------- */

/* Forwards bytes from one socket to another, one at a time. */
struct relay {
    struct tdm__fd_watch *watch;
    int to;
};

static void relay_byte(void *arg, int fd, unsigned ready)
{
    struct relay *relay = arg;
    char byte;

    (void)ready;
    if (read(fd, &byte, 1) == 1) {
        assert_int_equal(write(relay->to, &byte, 1), 1);
    }
}

static void bytes_may_come_one_by_one(void **state)
{
    struct relay relays[2];
    int left[2];
    int right[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, left), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, right), 0);
    relays[0].to = right[0];
    relays[1].to = left[1];
    assert_int_equal(tdm__fd_watch_create(pair.loop, left[1], TDM__READABLE, relay_byte, &relays[0],
                                          &relays[0].watch),
                     TDM_OK);
    assert_int_equal(tdm__fd_watch_create(pair.loop, right[0], TDM__READABLE, relay_byte,
                                          &relays[1], &relays[1].watch),
                     TDM_OK);
    pair_adopt(&pair, left[0], right[1]);
    for (int i = 0; i < 3; i++) {
        pair_call(pair.conns[0], i == 1 ? "fail" : "echo", &answers[i]);
    }
    pair_run_until(&pair, &answers[2].count, 1);
    assert_int_equal(answers[0].status, TDM_OK);
    assert_string_equal(answers[1].detail, "on purpose");
    assert_true(answers[2].hash == pair_hash(pair_text("text")));
    for (int i = 0; i < 2; i++) {
        tdm__fd_watch_destroy(relays[i].watch);
    }
    (void)close(left[1]);
    (void)close(right[0]);
}

static void payload_that_is_no_value_fails_only_its_call(void **state)
{
    struct tdm__rpc_request request = pair_request("hold", "x");
    const tdm_value *value;
    struct pair_reply *answer = &answers[0];

    (void)state;
    pair_join(&pair);
    request.packed = (struct tdm_bytes){"\xc1", 1};
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, answer, NULL), TDM_OK);
    pair_run_until(&pair, &pair.held_count, 1);
    assert_int_equal(tdm__incoming_value(pair.held[0], &value), TDM_E_PROTOCOL);
    tdm__incoming_reply_pack(pair.held[--pair.held_count], "nonsense");
    pair_run_until(&pair, &answer->count, 1);
    assert_int_equal(answer->status, TDM_E_INVAL);
    assert_true(tdm__conn_is_open(pair.conns[0]));
}

#define RPC_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPC_TEST(call_is_replied_to),
        RPC_TEST(failure_carries_its_text),
        RPC_TEST(call_made_before_the_handshake_leaves_after_it),
        RPC_TEST(both_ends_may_call_at_the_same_time),
        RPC_TEST(many_calls_are_replied_to_in_order),
        RPC_TEST(method_may_call_its_caller_and_wait),
        RPC_TEST(large_payloads_arrive_completely),
        RPC_TEST(call_with_more_values_than_its_endpoint_reads_is_refused),
        RPC_TEST(call_over_a_limit_is_refused_here),
        RPC_TEST(reply_over_the_limit_becomes_a_failure),
        RPC_TEST(documents_outlive_the_call_and_the_reply_without_a_copy),
        RPC_TEST(slow_reader_fills_the_output_and_calls_fail),
        RPC_TEST(deadline_ends_the_wait_with_names),
        RPC_TEST(each_call_has_its_own_deadline),
        RPC_TEST(the_reply_to_a_forgotten_call_is_late),
        RPC_TEST(borrowed_call_memory_may_be_freed_after_the_reply),
        RPC_TEST(closing_ends_the_calls_in_flight_on_both_sides),
        RPC_TEST(reply_before_the_end_still_arrives),
        RPC_TEST(endpoint_may_be_destroyed_in_its_own_callback),
        RPC_TEST(method_may_close_the_connection_it_came_on),
        RPC_TEST(closed_connection_refuses_calls),
        RPC_TEST(the_death_of_the_peer_ends_the_calls),
        RPC_TEST(bytes_may_come_one_by_one),
        RPC_TEST(payload_that_is_no_value_fails_only_its_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
