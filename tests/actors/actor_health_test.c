/* actor_health_test.c - pings of workers: a caller hears of a living worker or of the actor's end.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_health.h"
#include "actors/daemon/actor_service.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A process, played by the test, and one question about it that has arrived there. */
struct patient {
    struct node_fixture *scene;
    struct actor_entry *entry;
    struct remote_peer worker;
    struct remote_reply answer;
};

static void live(struct patient *patient, struct node_fixture *scene)
{
    *patient = (struct patient){.scene = scene, .entry = node_fixture_add(scene, ACTOR_STARTING)};
    node_fixture_start(patient->entry);
    node_fixture_play(scene, patient->entry, &patient->worker);
    node_fixture_construct(patient->entry);
}

static void ask(struct patient *patient)
{
    tdm__actor_entry_ping(patient->entry, node_fixture_incoming(patient->scene, &patient->answer));
}

static void ask_and_hold(struct patient *patient, struct node_fixture *scene)
{
    live(patient, scene);
    ask(patient);
    remote_peer_hold(&patient->worker, 1);
    assert_string_equal(tdm__incoming_method(patient->worker.held[0]), "worker.ping");
}

/* The answer's last value is which life it is. */
static void expect_life(struct patient *patient, uint64_t incarnation)
{
    assert_int_equal(remote_peer_wait(&patient->scene->driver, &patient->answer), TDM_OK);
    assert_int_equal(
        tdm_value_uint(tdm_value_at(remote_reply_value(&patient->answer), 5), UINT64_MAX),
        incarnation);
    remote_reply_free(&patient->answer);
}

static void any_answer_at_all_is_a_sign_of_life(void **state)
{
    struct patient patient;

    ask_and_hold(&patient, *state);
    tdm__incoming_fail(remote_peer_take(&patient.worker), TDM_E_METHOD, "what is that?");
    expect_life(&patient, 0);
    remote_peer_close(&patient.worker);
}

static void without_a_line_the_next_life_answers(void **state)
{
    struct patient patient;

    live(&patient, *state);
    remote_peer_cut(&patient.worker);
    node_fixture_settle(patient.scene);
    assert_null(patient.entry->worker->conn);
    ask(&patient);
    node_fixture_settle(patient.scene);
    assert_int_equal(patient.answer.count, 0);
    patient.entry->lifecycle.incarnation = 1;
    patient.entry->lifecycle.state = ACTOR_STARTING;
    node_fixture_construct(patient.entry);
    expect_life(&patient, 1);
    remote_peer_close(&patient.worker);
}

static void who_asked_the_life_before_hears_of_the_next(void **state)
{
    struct patient patient;

    ask_and_hold(&patient, *state);
    patient.entry->lifecycle.incarnation = 1;
    patient.entry->lifecycle.state = ACTOR_STARTING;
    remote_peer_cut(&patient.worker);
    node_fixture_settle(patient.scene);
    assert_int_equal(patient.answer.count, 0);
    node_fixture_construct(patient.entry);
    expect_life(&patient, 1);
    remote_peer_close(&patient.worker);
}

/* There is no other one to wait for. */
static void so_does_who_hears_of_the_end_after_that(void **state)
{
    struct patient patient;

    ask_and_hold(&patient, *state);
    patient.entry->lifecycle.incarnation = 1;
    remote_peer_cut(&patient.worker);
    expect_life(&patient, 1);
    remote_peer_close(&patient.worker);
}

static void one_that_ends_has_no_life_left(void **state)
{
    struct patient patient;

    ask_and_hold(&patient, *state);
    tdm__actor_entry_end(patient.entry, true);
    tdm__incoming_reply_pack(remote_peer_take(&patient.worker), "");
    node_fixture_settle(patient.scene);
    assert_int_equal(remote_peer_wait(&patient.scene->driver, &patient.answer), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(patient.answer.detail, "signal 9"));
    remote_peer_close(&patient.worker);
}

/* The node's end: nothing is remembered any more. */
static void without_a_table_it_has_ended(void **state)
{
    struct patient patient;
    struct node_fixture *scene = *state;

    ask_and_hold(&patient, scene);
    scene->node.stopping = true;
    scene->node.store = NULL;
    tdm__workers_destroy(scene->node.workers);
    scene->node.workers = NULL;
    tdm__node_actors_destroy(&scene->node);
    assert_int_equal(remote_peer_wait(&scene->driver, &patient.answer), TDM_E_ACTOR_DIED);
    assert_string_equal(patient.answer.detail, "the actor has ended");
    remote_peer_close(&patient.worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(any_answer_at_all_is_a_sign_of_life),
        NODE_FIXTURE_TEST(without_a_line_the_next_life_answers),
        NODE_FIXTURE_TEST(who_asked_the_life_before_hears_of_the_next),
        NODE_FIXTURE_TEST(so_does_who_hears_of_the_end_after_that),
        NODE_FIXTURE_TEST(one_that_ends_has_no_life_left),
        NODE_FIXTURE_TEST(without_a_table_it_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
