/* rpc_conn_test.c - users of a connection observe and request its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/conn.h"

#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A close watcher that records when it has run. */
struct recorder {
    struct tdm__close_watcher watcher; /* Must be the first member. */
    uint32_t runs_count;               /* How often the watcher has run. */
    uint32_t closed_before;            /* Value of pair.closed at that time. */
};

static struct rpc_pair pair;

static int set_up(void **state)
{
    (void)state;
    pair_create(&pair);
    pair_join(&pair);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pair_destroy(&pair);
    return 0;
}

static void record(struct tdm__close_watcher *watcher)
{
    struct recorder *recorder = (struct recorder *)watcher;

    recorder->runs_count++;
    recorder->closed_before = pair.closed;
}

static void close_ends_connection_later_and_runs_its_watchers_last(void **state)
{
    struct recorder kept = {.watcher.fn = record};
    struct recorder removed = {.watcher.fn = record};

    (void)state;
    assert_int_equal(tdm__conn_watch_close(pair.conns[0], &kept.watcher), TDM_OK);
    assert_int_equal(tdm__conn_watch_close(pair.conns[0], &removed.watcher), TDM_OK);
    tdm__conn_unwatch_close(&removed.watcher);
    assert_true(tdm__conn_is_open(pair.conns[0]));

    tdm__conn_close(pair.conns[0]);
    assert_false(tdm__conn_is_open(pair.conns[0]));
    tdm__conn_close(pair.conns[0]); /* A second request changes nothing. */
    assert_int_equal(kept.runs_count, 0);

    pair_run_until(&pair, &kept.runs_count, 1);
    assert_in_range(kept.closed_before, 1, 2); /* The owner was told before the watcher. */
    assert_int_equal(pair.reasons[0], TDM_E_CLOSED);
    pair_run_until(&pair, &pair.closed, 2);
    assert_int_equal(kept.runs_count, 1);
    assert_int_equal(removed.runs_count, 0);
}

static void retained_connection_answers_after_its_end(void **state)
{
    struct tdm__conn *conn = pair.conns[0];
    struct recorder late = {.watcher.fn = record};
    int pidfd = tdm__conn_peer_pidfd(conn);

    (void)state;
    assert_true(pidfd >= 0); /* Both ends belong to this process. */
    (void)close(pidfd);
    tdm__conn_set_user_data(conn, &late);
    tdm__conn_retain(conn);
    tdm__conn_close(conn);
    pair_run_until(&pair, &pair.closed, 2);

    assert_false(tdm__conn_is_open(conn));
    assert_int_equal(tdm__conn_watch_close(conn, &late.watcher), TDM_E_CLOSED);
    assert_int_equal(tdm__conn_peer_pidfd(conn), -1);
    assert_ptr_equal(tdm__conn_user_data(conn), &late);
    assert_int_equal(tdm__conn_peer(conn)->kind, TDM__PEER_WORKER);
    tdm__conn_release(conn);
    assert_int_equal(late.runs_count, 0);
}

static void detached_sockets_carry_other_bytes_after_the_connection_has_ended(void **state)
{
    struct pair_reply reply = {.count = 0};
    struct tdm__rpc_request request = pair_request("echo", "x");
    char byte = 0;
    struct tdm__tls *tls = NULL;
    int fds[2] = {-1, -1};

    (void)state;
    assert_int_equal(tdm__conn_call(pair.conns[0], &request, pair_on_reply, &reply, NULL), TDM_OK);
    pair_run_until(&pair, &reply.count, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm__conn_detach(pair.conns[i], &fds[i], &tls), TDM_OK);
    }
    assert_int_equal(write(fds[0], "y", 1), 1);
    pair_run_until(&pair, &pair.closed, 2);
    assert_int_equal(read(fds[1], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void closed_connection_cannot_be_detached(void **state)
{
    struct tdm__tls *tls = NULL;
    int fd = 0;

    (void)state;
    tdm__conn_close(pair.conns[0]);
    assert_int_equal(tdm__conn_detach(pair.conns[0], &fd, &tls), TDM_E_STATE);
    assert_int_equal(fd, -1);
    pair_run_until(&pair, &pair.closed, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(close_ends_connection_later_and_runs_its_watchers_last,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(retained_connection_answers_after_its_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            detached_sockets_carry_other_bytes_after_the_connection_has_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closed_connection_cannot_be_detached, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
