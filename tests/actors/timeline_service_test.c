/* timeline_service_test.c - the timeline of a node has every actor that replied, from any node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/timeline_service.h"

#include "runtime/messages/messages.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static bool has_arrived(void *arg)
{
    return ((const struct node_fixture *)arg)->last != NULL;
}

/* The driver's call `method` with the node ID has arrived at the service. */
static void ask(struct node_fixture *scene, struct remote_reply *reply, const char *method,
                const char *node_id)
{
    struct tdm__incoming_call *incoming;

    remote_peer_ask(&scene->driver, reply, method, "s", node_id);
    node_fixture_run(scene, has_arrived, scene);
    incoming = scene->last;
    scene->last = NULL;
    tdm__timeline_service.serve(&scene->node, incoming);
}

/* Waits for the reply, which must be a timeline. The message borrows from the reply. */
static void expect_timeline(struct node_fixture *scene, struct remote_reply *reply,
                            struct tdm__timeline_message *timeline_out)
{
    assert_int_equal(remote_peer_wait(&scene->driver, reply), TDM_OK);
    assert_int_equal(tdm__timeline_decode(remote_reply_value(reply), timeline_out), TDM_OK);
}

static void expect_failure(struct node_fixture *scene, struct remote_reply *reply,
                           tdm_status status)
{
    assert_int_equal(remote_peer_wait(&scene->driver, reply), status);
    assert_int_equal(reply->count, 1);
}

/* Waits for the request of this method at a process and returns the call. */
static struct tdm__incoming_call *request(struct remote_peer *process, const char *method)
{
    remote_peer_hold(process, 1);
    assert_string_equal(tdm__incoming_method(process->held[0]), method);
    return remote_peer_take(process);
}

/* ---- the actors of this node -------------------------------------------------------------- */

static void timeline_has_what_each_actor_replied(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__timeline_actor_message actor;
    struct tdm__timeline_message timeline;
    struct remote_peer workers[2];
    struct actor_entry *entries[2];
    struct remote_reply reply;
    char id[TDM__ID_TEXT_BYTES];

    entries[0] = node_fixture_add_living(scene, "reader", "first", &workers[0]);
    entries[1] = node_fixture_add_living(scene, "writer", "", &workers[1]);
    ask(scene, &reply, "timeline.read", "");
    tdm__incoming_reply_pack(request(&workers[0], "worker.spans"), "i", (int64_t)10);
    tdm__incoming_reply_pack(request(&workers[1], "worker.spans"), "(si)", "x", (int64_t)11);
    expect_timeline(scene, &reply, &timeline);
    assert_string_equal(timeline.node_name, "this");
    assert_int_equal(timeline.actors.count, 2);
    tdm__message_list_read(&timeline.actors, 0, &actor, sizeof(actor));
    assert_string_equal(actor.id, tdm__id_text(&entries[0]->spec->id, id));
    assert_string_equal(actor.class_name, "reader");
    assert_string_equal(actor.name, "first");
    assert_int_equal(actor.pid, entries[0]->worker->pid);
    assert_int_equal(tdm_value_int(tdm_value_at(actor.reply.value, 0), 0), 10);
    tdm__message_list_read(&timeline.actors, 1, &actor, sizeof(actor));
    assert_string_equal(actor.id, tdm__id_text(&entries[1]->spec->id, id));
    assert_string_equal(actor.class_name, "writer");
    assert_string_equal(actor.name, "");
    assert_int_equal(tdm_value_count(tdm_value_at(actor.reply.value, 0)), 2);
    remote_reply_free(&reply);
    node_fixture_kill_all(scene);
    remote_peer_close(&workers[0]);
    remote_peer_close(&workers[1]);
}

static void counts_are_the_metrics_of_the_workers(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__timeline_actor_message actor;
    struct tdm__timeline_message timeline;
    struct remote_peer worker;
    struct remote_reply reply;
    char id[TDM__ID_TEXT_BYTES];

    (void)node_fixture_add_living(scene, "reader", "", &worker);
    /* The node's own ID is as good as none. */
    ask(scene, &reply, "timeline.counts", tdm__id_text(&scene->node.record.id, id));
    tdm__incoming_reply_pack(request(&worker, "worker.metrics"), "i", (int64_t)5);
    expect_timeline(scene, &reply, &timeline);
    assert_int_equal(timeline.actors.count, 1);
    tdm__message_list_read(&timeline.actors, 0, &actor, sizeof(actor));
    assert_int_equal(tdm_value_int(tdm_value_at(actor.reply.value, 0), 0), 5);
    remote_reply_free(&reply);
    node_fixture_kill_all(scene);
    remote_peer_close(&worker);
}

static void worker_without_a_readable_reply_is_left_out(void **state)
{
    static const struct tdm_bytes unreadable[] = {
        {"", 0},         /* There is no value. */
        {"\x92\x01", 2}, /* The value ends too early. */
        {"\x01\x02", 2}, /* There are two values. */
        {"\xc1", 1},     /* It is not MessagePack. */
    };
    struct node_fixture *scene = *state;
    struct tdm__timeline_actor_message actor;
    struct tdm__timeline_message timeline;
    struct remote_peer workers[3];
    struct remote_reply reply;

    for (int i = 0; i < 3; i++) {
        (void)node_fixture_add_living(scene, "tester", i == 1 ? "good" : "", &workers[i]);
    }
    for (uint32_t i = 0; i < sizeof(unreadable) / sizeof(unreadable[0]); i++) {
        ask(scene, &reply, "timeline.read", "");
        tdm__incoming_reply(request(&workers[0], "worker.spans"), unreadable[i], NULL, 0);
        tdm__incoming_reply_pack(request(&workers[1], "worker.spans"), "");
        tdm__incoming_fail(request(&workers[2], "worker.spans"), TDM_E_NOMEM, "spans");
        expect_timeline(scene, &reply, &timeline);
        assert_int_equal(timeline.actors.count, 1);
        tdm__message_list_read(&timeline.actors, 0, &actor, sizeof(actor));
        assert_string_equal(actor.name, "good");
        remote_reply_free(&reply);
    }
    node_fixture_kill_all(scene);
    for (int i = 0; i < 3; i++) {
        remote_peer_close(&workers[i]);
    }
}

static int64_t clock_read_ns(clockid_t clock)
{
    struct timespec now = {0};

    assert_int_equal(clock_gettime(clock, &now), 0);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void offset_turns_monotonic_times_into_times_of_day(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__timeline_message timeline;
    struct remote_reply reply;
    int64_t earliest_ns = clock_read_ns(CLOCK_REALTIME);
    int64_t monotonic_ns = clock_read_ns(CLOCK_MONOTONIC);
    int64_t latest_ns = clock_read_ns(CLOCK_REALTIME);
    const int64_t second_ns = 1000000000;

    ask(scene, &reply, "timeline.read", "");
    expect_timeline(scene, &reply, &timeline);
    assert_int_equal(timeline.actors.count, 0);
    assert_true(monotonic_ns + timeline.time_of_day_offset_ns > earliest_ns - second_ns);
    assert_true(monotonic_ns + timeline.time_of_day_offset_ns < latest_ns + second_ns);
    remote_reply_free(&reply);
}

/* ---- other nodes ------------------------------------------------------------------------ */

static void other_node_is_asked_for_its_own_actors(void **state)
{
    static const char *const methods[] = {"timeline.read", "timeline.counts"};
    struct node_fixture *scene = *state;
    struct remote_peer other;
    char id[TDM__ID_TEXT_BYTES];

    node_fixture_other(scene, &other, "other");
    for (int i = 0; i < 2; i++) {
        struct tdm__timeline_read_message message;
        struct tdm__timeline_message timeline;
        struct tdm__incoming_call *incoming;
        struct remote_reply reply;

        ask(scene, &reply, methods[i], tdm__id_text(&other.self.id, id));
        incoming = request(&other, methods[i]);
        assert_int_equal(tdm__incoming_decode(incoming, tdm__timeline_read_table(), &message),
                         TDM_OK);
        assert_string_equal(message.node_id, "");
        tdm__incoming_reply_pack(incoming, "si()", "other", (int64_t)17);
        expect_timeline(scene, &reply, &timeline);
        assert_string_equal(timeline.node_name, "other");
        assert_int_equal(timeline.time_of_day_offset_ns, 17);
        remote_reply_free(&reply);
        ask(scene, &reply, methods[i], id);
        tdm__incoming_fail(request(&other, methods[i]), TDM_E_NOMEM, "too many spans");
        expect_failure(scene, &reply, TDM_E_NOMEM);
        assert_non_null(strstr(reply.detail, "too many spans"));
    }
    remote_peer_close(&other);
}

static void unknown_node_is_lost(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct tdm__id unknown;
    char id[TDM__ID_TEXT_BYTES];

    assert_int_equal(tdm__id_generate(&unknown), TDM_OK);
    ask(scene, &reply, "timeline.read", tdm__id_text(&unknown, id));
    expect_failure(scene, &reply, TDM_E_NODE_LOST);
}

/* ---- wrong calls ------------------------------------------------------------------------ */

static void wrong_calls_are_refused(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct remote_peer worker;

    (void)node_fixture_add_living(scene, "tester", "", &worker);
    ask(scene, &reply, "timeline.write", "");
    expect_failure(scene, &reply, TDM_E_NOT_FOUND);
    ask(scene, &reply, "timeline.read", NULL);
    expect_failure(scene, &reply, TDM_E_PROTOCOL);
    ask(scene, &reply, "timeline.read", "the other one");
    expect_failure(scene, &reply, TDM_E_INVAL);
    assert_int_equal(worker.asked_count, 0);
    node_fixture_kill_all(scene);
    remote_peer_close(&worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(timeline_has_what_each_actor_replied),
        NODE_FIXTURE_TEST(counts_are_the_metrics_of_the_workers),
        NODE_FIXTURE_TEST(worker_without_a_readable_reply_is_left_out),
        NODE_FIXTURE_TEST(offset_turns_monotonic_times_into_times_of_day),
        NODE_FIXTURE_TEST(other_node_is_asked_for_its_own_actors),
        NODE_FIXTURE_TEST(unknown_node_is_lost),
        NODE_FIXTURE_TEST(wrong_calls_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
