/* worker_query_test.c - a query asks the right processes once, and ends after the last reply. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_query.h"

#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { REPLIES_MAX = 4, LONG_MS = REMOTE_PEER_WAIT_MS };

/* What the callbacks of a query were called with. */
struct outcome {
    struct tdm__queried_worker workers[REPLIES_MAX];
    char replies[REPLIES_MAX]; /* The first byte of each reply. */
    uint32_t replies_count;
    uint32_t done_count;
    uint32_t silent_count;
};

static void on_each(void *arg, const struct tdm__queried_worker *worker, struct tdm_bytes reply)
{
    struct outcome *outcome = arg;

    assert_true(outcome->replies_count < REPLIES_MAX);
    assert_int_equal(outcome->done_count, 0);
    assert_int_equal(reply.size_bytes, 1);
    outcome->workers[outcome->replies_count] = *worker;
    outcome->replies[outcome->replies_count++] = *(const char *)reply.data;
}

static void on_done(void *arg, uint32_t silent_count)
{
    struct outcome *outcome = arg;

    outcome->done_count++;
    outcome->silent_count = silent_count;
}

static bool is_done(void *arg)
{
    return ((const struct outcome *)arg)->done_count > 0;
}

/* Runs until the query has ended, and checks that it ends once. */
static void expect_end(struct node_fixture *scene, struct outcome *outcome, uint32_t replies_count,
                       uint32_t silent_count)
{
    node_fixture_run(scene, is_done, outcome);
    node_fixture_settle(scene);
    assert_int_equal(outcome->done_count, 1);
    assert_int_equal(outcome->replies_count, replies_count);
    assert_int_equal(outcome->silent_count, silent_count);
}

static void query_workers(struct node_fixture *scene, int64_t timeout_ms, struct outcome *outcome)
{
    *outcome = (struct outcome){.replies_count = 0};
    assert_int_equal(
        tdm__query_workers(&scene->node, "worker.test", timeout_ms, on_each, on_done, outcome),
        TDM_OK);
}

static void query_processes(struct node_fixture *scene, struct outcome *outcome)
{
    *outcome = (struct outcome){.replies_count = 0};
    assert_int_equal(
        tdm__query_processes(&scene->node, "object.test", LONG_MS, on_each, on_done, outcome),
        TDM_OK);
}

/* Waits for the request at the process and replies with one byte. */
static void reply(struct remote_peer *process, const char *byte)
{
    remote_peer_hold(process, 1);
    tdm__incoming_reply(remote_peer_take(process), (struct tdm_bytes){byte, 1}, NULL, 0);
}

/* ---- living actors ---------------------------------------------------------------------- */

static void reply_comes_with_the_actor_that_was_asked(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer workers[2];
    struct actor_entry *entries[2];
    struct outcome outcome;

    entries[0] = node_fixture_add_living(scene, "reader", "first", &workers[0]);
    entries[1] = node_fixture_add_living(scene, "writer", "", &workers[1]);
    query_workers(scene, LONG_MS, &outcome);
    remote_peer_hold(&workers[1], 1);
    assert_string_equal(tdm__incoming_method(workers[1].held[0]), "worker.test");
    assert_int_equal(tdm__incoming_packed(workers[1].held[0]).size_bytes, 1);
    assert_memory_equal(tdm__incoming_packed(workers[1].held[0]).data, "\x90", 1);
    reply(&workers[1], "\x01");
    node_fixture_settle(scene);
    assert_int_equal(outcome.replies_count, 1);
    assert_int_equal(outcome.done_count, 0); /* The other worker has not replied. */
    reply(&workers[0], "\x02");
    expect_end(scene, &outcome, 2, 0);
    for (uint32_t i = 0; i < 2; i++) {
        const struct actor_entry *entry = entries[1 - i];
        char id[TDM__ID_TEXT_BYTES];

        assert_int_equal(outcome.replies[i], i + 1);
        assert_string_equal(outcome.workers[i].actor, tdm__id_text(&entry->spec->id, id));
        assert_string_equal(outcome.workers[i].class_name, entry->spec->class_name);
        assert_string_equal(outcome.workers[i].name, entry->spec->name);
        assert_int_equal(outcome.workers[i].pid, entry->worker->pid);
        assert_int_equal(workers[i].asked_count, 1);
    }
    assert_int_equal(scene->driver.asked_count, 0);
    node_fixture_kill_all(scene);
    remote_peer_close(&workers[0]);
    remote_peer_close(&workers[1]);
}

static void actor_that_is_not_alive_is_not_asked(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *starting = node_fixture_add(scene, ACTOR_STARTING);
    struct remote_peer worker;
    struct outcome outcome;

    (void)node_fixture_add(scene, ACTOR_WAITING);
    node_fixture_start(starting);
    node_fixture_play(scene, starting, &worker);
    query_workers(scene, LONG_MS, &outcome);
    assert_int_equal(outcome.done_count, 1); /* It ends before the function returns. */
    expect_end(scene, &outcome, 0, 0);
    assert_int_equal(worker.asked_count, 0);
    node_fixture_kill_all(scene);
    remote_peer_close(&worker);
}

/* ---- missing replies -------------------------------------------------------------------- */

static void failed_reply_counts_as_silent(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer workers[2];
    struct outcome outcome;

    (void)node_fixture_add_living(scene, "tester", "", &workers[0]);
    (void)node_fixture_add_living(scene, "tester", "", &workers[1]);
    query_workers(scene, LONG_MS, &outcome);
    remote_peer_hold(&workers[0], 1);
    tdm__incoming_fail(remote_peer_take(&workers[0]), TDM_E_NOMEM, "a reply");
    reply(&workers[1], "\x01");
    expect_end(scene, &outcome, 1, 1);
    node_fixture_kill_all(scene);
    remote_peer_close(&workers[0]);
    remote_peer_close(&workers[1]);
}

static void worker_that_does_not_reply_in_time_is_silent(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer worker;
    struct outcome outcome;

    (void)node_fixture_add_living(scene, "tester", "", &worker);
    query_workers(scene, 50, &outcome);
    remote_peer_hold(&worker, 1);
    expect_end(scene, &outcome, 0, 1);
    reply(&worker, "\x01"); /* It is too late and changes nothing. */
    expect_end(scene, &outcome, 0, 1);
    node_fixture_kill_all(scene);
    remote_peer_close(&worker);
}

/* A process that has exited has no records any more, so that nothing is missing. */
static void worker_that_exits_meanwhile_is_not_missing(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer workers[2];
    struct outcome outcome;

    (void)node_fixture_add_living(scene, "tester", "", &workers[0]);
    (void)node_fixture_add_living(scene, "tester", "", &workers[1]);
    query_workers(scene, LONG_MS, &outcome);
    remote_peer_hold(&workers[0], 1);
    remote_peer_cut(&workers[0]);
    node_fixture_settle(scene);
    assert_int_equal(outcome.done_count, 0);
    reply(&workers[1], "\x01");
    expect_end(scene, &outcome, 1, 0);
    node_fixture_kill_all(scene);
    remote_peer_close(&workers[0]);
    remote_peer_close(&workers[1]);
}

/* The daemon learns of the end of a connection a round of the loop after it was closed. */
static void worker_whose_connection_is_closing_is_not_missing(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer worker;
    struct outcome outcome;
    struct actor_entry *entry = node_fixture_add_living(scene, "tester", "", &worker);

    tdm__conn_close(entry->worker->conn);
    assert_non_null(entry->worker->conn);
    query_workers(scene, LONG_MS, &outcome);
    expect_end(scene, &outcome, 0, 0);
    node_fixture_kill_all(scene);
    remote_peer_close(&worker);
}

/* A request that fails on each connection is a missing reply. */
static void request_that_cannot_be_sent_counts_as_silent(void **state)
{
    struct node_fixture *scene = *state;
    struct outcome outcome = {.replies_count = 0};

    node_fixture_settle(scene); /* The driver connects. */
    assert_int_equal(
        tdm__query_processes(&scene->node, "no\nmethod", LONG_MS, on_each, on_done, &outcome),
        TDM_OK);
    expect_end(scene, &outcome, 0, 1);
}

/* ---- all processes ---------------------------------------------------------------------- */

static void driver_and_every_worker_is_asked_but_no_daemon(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *starting = node_fixture_add(scene, ACTOR_STARTING);
    struct remote_peer daemon;
    struct remote_peer workers[2];
    struct outcome outcome;

    (void)node_fixture_add_living(scene, "tester", "living", &workers[0]);
    node_fixture_start(starting);
    node_fixture_play(scene, starting, &workers[1]);
    remote_peer_open(&daemon, scene->world.loop, TDM__PEER_DAEMON, "daemon");
    remote_peer_connect(&daemon, scene->address);
    node_fixture_settle(scene);
    query_processes(scene, &outcome);
    remote_peer_hold(&scene->driver, 1);
    assert_string_equal(tdm__incoming_method(scene->driver.held[0]), "object.test");
    reply(&scene->driver, "\x01");
    reply(&workers[0], "\x02");
    reply(&workers[1], "\x03");
    expect_end(scene, &outcome, 3, 0);
    assert_int_equal(daemon.asked_count, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(outcome.workers[i].pid, scene->driver.self.pid); /* That of the test. */
        assert_string_equal(outcome.workers[i].actor, "");
        assert_string_equal(outcome.workers[i].class_name, "");
        assert_string_equal(outcome.workers[i].name, "");
    }
    node_fixture_kill_all(scene);
    remote_peer_close(&workers[0]);
    remote_peer_close(&workers[1]);
    remote_peer_close(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(reply_comes_with_the_actor_that_was_asked),
        NODE_FIXTURE_TEST(actor_that_is_not_alive_is_not_asked),
        NODE_FIXTURE_TEST(failed_reply_counts_as_silent),
        NODE_FIXTURE_TEST(worker_that_does_not_reply_in_time_is_silent),
        NODE_FIXTURE_TEST(worker_that_exits_meanwhile_is_not_missing),
        NODE_FIXTURE_TEST(worker_whose_connection_is_closing_is_not_missing),
        NODE_FIXTURE_TEST(request_that_cannot_be_sent_counts_as_silent),
        NODE_FIXTURE_TEST(driver_and_every_worker_is_asked_but_no_daemon),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
