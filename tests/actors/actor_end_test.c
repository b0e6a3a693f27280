/* actor_end_test.c - the end of an actor's worker: what ends with it, and what follows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/worker_bootstrap.h"
#include "actors/daemon/actor_actions.h"
#include "actors/daemon/actor_end.h"
#include "actors/objects/owned_refs.h"
#include "runtime/messages/messages.h"
#include "tests/support/node_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- one with a process ----------------------------------------------------------------- */

static struct actor_entry *start_one(struct node_fixture *scene)
{
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);

    node_fixture_start(entry);
    return entry;
}

/* As an accident would. */
static void shoot(const struct actor_entry *entry)
{
    assert_int_equal(kill(entry->worker->pid, SIGKILL), 0);
}

static bool has_no_process(void *arg)
{
    return ((const struct actor_entry *)arg)->worker == NULL;
}

static void expect_end(struct node_fixture *scene, const struct tdm__id *actor, const char *words)
{
    const struct actor_tombstone *actor_tombstone;

    node_fixture_run_out(scene);
    actor_tombstone = tdm__tombstone_find(&scene->node, actor);
    assert_non_null(actor_tombstone);
    assert_int_equal(actor_tombstone->status, TDM_E_ACTOR_DIED);
    assert_non_null(strstr(actor_tombstone->text, words));
}

static bool says(struct tdm__incoming_call *incoming, const char *method)
{
    assert_string_equal(tdm__incoming_method(incoming), method);
    return true;
}

/* What it was asked over its line: does it come to the calls that it has been sent? */
static bool is_drained(struct remote_peer *worker)
{
    struct tdm__incoming_call *incoming;
    struct tdm__worker_exit_message message;

    remote_peer_hold(worker, 1);
    incoming = remote_peer_take(worker);
    assert_true(says(incoming, "worker.exit"));
    assert_int_equal(tdm__incoming_decode(incoming, tdm__worker_exit_table(), &message), TDM_OK);
    tdm__incoming_reply_pack(incoming, "");
    return message.drain;
}

/* ---- again ------------------------------------------------------------------------------ */

/* Crashes soon after the start make the next one wait; one that lived for long is forgiven. */
static void quick_ends_are_counted_until_one_was_not(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);

    entry->spec->max_restarts = -1;
    entry->lifecycle.quick_end_count = 7;
    entry->pid = entry->worker->pid;
    shoot(entry);
    node_fixture_run(scene, has_no_process, entry);
    assert_int_equal(entry->lifecycle.state, ACTOR_RESTARTING); /* for seconds */
    assert_int_equal(entry->lifecycle.quick_end_count, 8);
    assert_int_equal(entry->lifecycle.incarnation, 1);
    assert_int_equal(entry->pid, 0);
    node_fixture_start(entry);
    entry->started_ms -= 60 * 1000;
    shoot(entry);
    node_fixture_run(scene, has_no_process, entry);
    assert_int_equal(entry->lifecycle.quick_end_count, 0);
    assert_int_equal(entry->lifecycle.incarnation, 2);
}

static void timer_of_the_last_incarnation_does_not_affect_the_next(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);
    struct tdm__id id = entry->spec->id;

    entry->spec->max_restarts = -1;
    entry->lifecycle.quick_end_count = 20;
    shoot(entry);
    node_fixture_run(scene, has_no_process, entry);
    assert_non_null(entry->timer); /* The timer fires in ten seconds. */
    tdm__actor_entry_end(entry, true);
    expect_end(scene, &id, "ended while it was restarted");
}

static bool has_started_anew(void *arg)
{
    const struct actor_entry *entry = arg;

    return entry->lifecycle.state == ACTOR_STARTING && entry->lifecycle.incarnation == 1 &&
           entry->worker != NULL;
}

/* Others may have taken its place by now: it looks for one as if it were new. */
static void lost_placement_is_released_before_the_restart(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);

    entry->spec->max_restarts = 1;
    tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_LEASE_ENDING});
    assert_int_equal(entry->lifecycle.kill, ACTOR_KILLED_WITHOUT_LEASE);
    node_fixture_run(scene, has_no_process, entry);
    assert_int_equal(entry->lifecycle.state, ACTOR_WAITING);
    assert_int_equal(entry->lifecycle.reservation, ACTOR_RESERVES_NOTHING);
    assert_non_null(scene->node.actors->pending_releases);
    node_fixture_run(scene, has_started_anew, entry);
    assert_null(scene->node.actors->pending_releases);
    assert_true(tdm__id_equal(&entry->record.node, &scene->node.record.id));
}

static void actor_is_not_restarted_while_the_node_stops(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);
    struct tdm__id id = entry->spec->id;

    entry->spec->max_restarts = -1;
    scene->node.stopping = true;
    shoot(entry);
    expect_end(scene, &id, "signal 9");
}

/* ---- what goes with it ------------------------------------------------------------------ */

static struct actor_entry *add_child(struct node_fixture *scene, const struct actor_entry *of)
{
    struct actor_entry *child = node_fixture_add(scene, ACTOR_WAITING);

    child->spec->creator = of->spec->id;
    return child;
}

static void children_of_an_ended_actor_end_except_detached_ones(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);
    struct tdm__id child = add_child(scene, entry)->spec->id;
    struct actor_entry *detached = add_child(scene, entry);
    struct actor_entry *owed = add_child(scene, entry);
    struct tdm__id owed_id = owed->spec->id;

    detached->spec->detached = owed->spec->detached = true;
    detached->spec->awaits_creator_arguments = false;
    owed->spec->awaits_creator_arguments = true; /* Its creator is gone and cannot send them. */
    entry->spec->max_restarts = 1;               /* Children end even if the actor is restarted. */
    shoot(entry);
    node_fixture_run(scene, has_no_process, entry);
    assert_non_null(tdm__tombstone_find(&scene->node, &child));
    assert_non_null(tdm__tombstone_find(&scene->node, &owed_id));
    assert_ptr_equal(tdm__actor_entry_find(&scene->node, &detached->spec->id), detached);
}

static void make_socket(const struct node_fixture *scene, const char *format,
                        const struct tdm__id *id, char path[128])
{
    char text[TDM__ID_TEXT_BYTES];
    int fd;

    (void)tdm__id_text(id, text);
    (void)snprintf(path, 128, "%s/%c-%.16s", scene->directory, format[0], text);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
}

static void end_of_a_process_is_reported_to_services_once(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);
    struct tdm__id id = entry->spec->id;
    char calls[128];
    char objects[128];

    make_socket(scene, TDM__WORKER_SOCKET, &id, calls);
    make_socket(scene, TDM__OWNER_SOCKET, &id, objects);
    shoot(entry);
    node_fixture_run_out(scene);
    assert_int_equal(access(calls, F_OK), -1);
    assert_int_equal(access(objects, F_OK), -1);
    assert_int_equal(scene->gone_count, 1);
    assert_true(tdm__id_equal(&scene->gone_ids[0], &id));
}

/* ---- wanted ends ------------------------------------------------------------------------ */

static void exit_is_requested_once_and_a_forced_end_kills(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);
    struct tdm__id id = entry->spec->id;
    struct remote_peer worker;

    node_fixture_play(scene, entry, &worker);
    node_fixture_construct(entry);
    tdm__actor_entry_end(entry, false);
    tdm__actor_entry_end(entry, false);
    assert_false(is_drained(&worker));
    node_fixture_settle(scene);
    assert_int_equal(worker.asked_count, 1);
    assert_int_equal(entry->lifecycle.state, ACTOR_ENDING);
    entry->spec->max_restarts = -1;
    /* This has no effect on an actor that is not alive. */
    tdm__actor_entry_kill_process(entry);
    assert_int_equal(entry->lifecycle.kill, ACTOR_NOT_KILLED);
    tdm__actor_entry_end(entry, true);
    expect_end(scene, &id, "signal 9");
    remote_peer_close(&worker);
}

/* Its line has closed: it cannot be asked. */
static void worker_without_a_connection_is_killed(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);
    struct tdm__id id = entry->spec->id;
    struct remote_peer worker;

    node_fixture_play(scene, entry, &worker);
    remote_peer_cut(&worker);
    node_fixture_settle(scene);
    assert_null(entry->worker->conn);
    tdm__actor_entry_end(entry, false);
    expect_end(scene, &id, "signal 9");
    remote_peer_close(&worker);
}

static void worker_that_does_not_exit_in_time_is_killed(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);
    struct tdm__id id = entry->spec->id;

    entry->lifecycle.state = ACTOR_ENDING;
    tdm__actor_entry_expect_exit(entry, 1);
    expect_end(scene, &id, "signal 9");
}

static void actor_released_early_ends_after_its_construction(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = start_one(scene);
    struct tdm__id id = entry->spec->id;
    struct remote_peer worker;

    node_fixture_play(scene, entry, &worker);
    tdm__actor_entry_release(entry);
    node_fixture_settle(scene);
    assert_int_equal(entry->lifecycle.state, ACTOR_STARTING);
    assert_int_equal(worker.asked_count, 0);
    node_fixture_construct(entry);
    assert_true(is_drained(&worker));
    tdm__actor_entry_end(entry, true);
    expect_end(scene, &id, "its last handle is gone");
    remote_peer_close(&worker);
}

static void actor_released_before_its_placement_is_never_placed(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);
    struct tdm__id id = entry->spec->id;

    tdm__actor_entry_release(entry);
    expect_end(scene, &id, "its last handle was gone before it had a place");
}

static void exit_request_is_accepted_only_while_the_actor_is_alive(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *waiting = node_fixture_add(scene, ACTOR_WAITING);
    struct actor_entry *entry = start_one(scene);
    struct tdm__id id = entry->spec->id;

    tdm__actor_entry_exit_requested(waiting);
    assert_int_equal(waiting->lifecycle.state, ACTOR_WAITING);
    tdm__actor_entry_exit_requested(entry);
    assert_int_equal(entry->lifecycle.state, ACTOR_ENDING);
    tdm__actor_entry_end(waiting, true);
    entry->spec->max_restarts = -1; /* A restart would be allowed, but the end was requested. */
    shoot(entry);
    expect_end(scene, &id, "its own method asked for that");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(quick_ends_are_counted_until_one_was_not),
        NODE_FIXTURE_TEST(timer_of_the_last_incarnation_does_not_affect_the_next),
        NODE_FIXTURE_TEST(lost_placement_is_released_before_the_restart),
        NODE_FIXTURE_TEST(actor_is_not_restarted_while_the_node_stops),
        NODE_FIXTURE_TEST(children_of_an_ended_actor_end_except_detached_ones),
        NODE_FIXTURE_TEST(end_of_a_process_is_reported_to_services_once),
        NODE_FIXTURE_TEST(exit_is_requested_once_and_a_forced_end_kills),
        NODE_FIXTURE_TEST(worker_without_a_connection_is_killed),
        NODE_FIXTURE_TEST(worker_that_does_not_exit_in_time_is_killed),
        NODE_FIXTURE_TEST(actor_released_early_ends_after_its_construction),
        NODE_FIXTURE_TEST(actor_released_before_its_placement_is_never_placed),
        NODE_FIXTURE_TEST(exit_request_is_accepted_only_while_the_actor_is_alive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
