/* actor_service_test.c - calls about actors that no well-behaved process makes, or makes twice.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/node_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- wrong calls ------------------------------------------------------------------------ */

static void each_wrong_call_is_answered(void **state)
{
    static const char *const methods[] = {
        "actor.create",  "actor.arguments", "actor.start", "actor.constructed", "actor.ended",
        "actor.exiting", "actor.await",     "actor.fate",  "actor.kill",        "actor.why",
        "actor.release", "actor.find",      "actor.known", "actor.nothing"};
    struct node_scene *scene = *state;
    struct far_end *driver = &scene->driver;

    for (uint32_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        assert_int_not_equal(far_end_call(driver, methods[i], ""), TDM_OK);
        assert_int_not_equal(
            far_end_call(driver, methods[i], "iii", (int64_t)1, (int64_t)-1, (int64_t)1 << 40),
            TDM_OK);
        assert_int_not_equal(
            far_end_call(driver, methods[i], "b?", (const void *)"short", (size_t)5, 1),
            TDM_OK);
        assert_int_not_equal(far_end_call(driver, methods[i], "(s)nn", "inside"), TDM_OK);
    }
    assert_null(scene->node.actors->all);
}

/* Of zeros: an id that no actor has. */
static void a_question_about_nobody_is_answered(void **state)
{
    static const char *const methods[] = {"actor.fate", "actor.why"};
    struct node_scene *scene = *state;
    const struct tdm__id none = {{0}};

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(far_end_call(&scene->driver, methods[i], "b?",
                                      (const void *)none.bytes, sizeof(none.bytes), 0),
                         TDM_E_ACTOR_DIED);
    }
    assert_int_equal(far_end_call(&scene->driver, "actor.kill", "b?", (const void *)none.bytes,
                                  sizeof(none.bytes), 0),
                     TDM_OK);
}

/* ---- constructed ------------------------------------------------------------------------ */

static tdm_status construct_as(struct node_scene *scene, enum tdm__peer_kind kind,
                               const struct tdm__id *id, tdm_status status)
{
    struct far_end process;
    tdm_status answer;

    far_end_open(&process, scene->world.loop, kind, "process");
    process.self.id = *id;
    tdm__rpc_set_identity(process.rpc, &process.self);
    far_end_connect(&process, scene->address);
    answer = far_end_call(&process, "actor.constructed", "isss", (int64_t)status, "why",
                          "unix:/nowhere", NULL);
    far_end_close(&process);
    return answer;
}

static void only_its_own_process_says_that_it_is_constructed(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_STARTING);
    const struct tdm__id *id = &entry->spec->id;

    node_scene_start(entry);
    assert_int_equal(construct_as(scene, TDM__PEER_WORKER, &scene->driver.self.id, TDM_OK),
                     TDM_E_NOT_FOUND);
    assert_int_equal(construct_as(scene, TDM__PEER_DRIVER, id, TDM_OK), TDM_E_NOT_FOUND);
    assert_int_equal(entry->lifecycle.state, ACTOR_STARTING);
    assert_int_equal(construct_as(scene, TDM__PEER_WORKER, id, TDM_OK), TDM_OK);
    assert_int_equal(entry->lifecycle.state, ACTOR_ALIVE);
}

/* A child of its last process that still has a connection, say. */
static void nobody_speaks_for_one_without_a_process(void **state)
{
    static const enum actor_state states[] = {ACTOR_WAITING, ACTOR_RESTARTING, ACTOR_REMOTE};
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_WAITING);
    struct far_answer answer;

    tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, node_scene_incoming(scene, &answer));
    for (uint32_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        entry->lifecycle.state = states[i];
        assert_int_equal(construct_as(scene, TDM__PEER_WORKER, &entry->spec->id, TDM_OK),
                         TDM_E_NOT_FOUND);
        assert_int_equal(construct_as(scene, TDM__PEER_WORKER, &entry->spec->id, TDM_E_INVAL),
                         TDM_E_NOT_FOUND);
    }
    assert_int_equal(answer.count, 0);
    entry->lifecycle.state = ACTOR_WAITING;
    tdm__actor_entry_end(entry, true);
    assert_int_equal(far_end_wait(&scene->driver, &answer), TDM_E_ACTOR_DIED);
}

/* ---- start ------------------------------------------------------------------------------ */

static void ask_to_start(struct far_end *home, struct far_answer *answer,
                         const struct tdm__actor_spec *spec)
{
    const struct tdm__grant grant = {.cpu = 0};
    struct tdm_bytes packed[2];
    tdm_writer *writers[2];

    for (int i = 0; i < 2; i++) {
        assert_int_equal(tdm_writer_create(&writers[i]), TDM_OK);
    }
    tdm__actor_spec_write(writers[0], spec);
    tdm__grant_write(writers[1], &grant);
    for (int i = 0; i < 2; i++) {
        packed[i] = tdm_writer_bytes(writers[i]);
    }
    far_end_ask(home, answer, "actor.start", "ppsu", &packed[0], &packed[1], "", (uint64_t)2);
    for (int i = 0; i < 2; i++) {
        tdm_writer_destroy(writers[i]);
    }
}

/* The answers may get lost: its home asks again. */
static void a_start_that_is_repeated_is_one_start(void **state)
{
    struct node_scene *scene = *state;
    struct tdm__actor_spec *spec = node_scene_spec(scene, "tester");
    struct actor_entry *entry;
    struct far_answer answers[4];
    struct far_end home;

    node_scene_other(scene, &home, "home");
    far_end_connect(&home, scene->address);
    ask_to_start(&home, &answers[0], spec);
    ask_to_start(&home, &answers[1], spec);
    node_scene_settle(scene);
    entry = scene->node.actors->all;
    assert_non_null(entry);
    assert_null(entry->next);
    assert_int_equal(entry->lifecycle.incarnation, 2);
    assert_true(tdm__id_equal(&entry->home, &home.self.id));
    node_scene_construct(entry);
    ask_to_start(&home, &answers[2], spec);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(far_end_wait(&home, &answers[i]), TDM_OK);
        far_answer_free(&answers[i]);
    }
    tdm__actor_entry_end(entry, true);
    far_end_hold(&home, 1);
    assert_string_equal(tdm__incoming_method(home.held[0]), "actor.ended");
    ask_to_start(&home, &answers[3], spec);
    assert_int_equal(far_end_wait(&home, &answers[3]), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(answers[3].detail, "signal 9"));
    node_scene_run_out(scene);
    tdm__actor_spec_destroy(spec);
    far_end_close(&home);
}

static void a_node_that_stops_starts_nothing(void **state)
{
    struct node_scene *scene = *state;
    struct tdm__actor_spec *spec = node_scene_spec(scene, "tester");
    struct far_answer answer;
    struct far_end home;

    node_scene_other(scene, &home, "home");
    far_end_connect(&home, scene->address);
    scene->node.stopping = true;
    ask_to_start(&home, &answer, spec);
    assert_int_equal(far_end_wait(&home, &answer), TDM_E_NODE_LOST); /* made anew elsewhere */
    assert_null(scene->node.actors->all);
    tdm__actor_spec_destroy(spec);
    far_end_close(&home);
}

/* ---- arguments -------------------------------------------------------------------------- */

static tdm_status send_arguments(struct node_scene *scene, const struct tdm__id *actor,
                                 const char *why)
{
    return far_end_call(&scene->driver, "actor.arguments", "bns", (const void *)actor->bytes,
                        sizeof(actor->bytes), why);
}

static void arguments_are_for_who_waits_for_them(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_WAITING);
    const struct tdm__id id = entry->spec->id;

    assert_int_equal(send_arguments(scene, &id, "lost"), TDM_E_PROTOCOL);
    entry->spec->awaits_arguments = true;
    entry->spec->creator = scene->node.record.id; /* another process's */
    assert_int_equal(send_arguments(scene, &id, "lost"), TDM_E_PROTOCOL);
    assert_non_null(tdm__actor_entry_find(&scene->node, &id));
    entry->spec->creator = scene->driver.self.id;
    assert_int_equal(send_arguments(scene, &id, "the value is lost"), TDM_OK);
    assert_non_null(strstr(tdm__tombstone_find(&scene->node, &id)->text, "the value is lost"));
    assert_int_equal(send_arguments(scene, &id, "again"), TDM_OK); /* nobody needs them */
}

/* ---- leave ------------------------------------------------------------------------------ */

static void who_leaves_waits_for_its_own(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_PLACING);
    struct actor_entry *detached = node_scene_add(scene, ACTOR_PLACING);
    struct actor_entry *other = node_scene_add(scene, ACTOR_PLACING);
    struct far_answer answer;

    detached->spec->detached = true;
    other->spec->creator = scene->node.record.id;
    far_end_ask(&scene->driver, &answer, "actor.leave", "");
    node_scene_settle(scene);
    assert_int_equal(entry->lifecycle.demand, ACTOR_UNWANTED);
    assert_int_equal(detached->lifecycle.demand, ACTOR_WANTED);
    assert_int_equal(other->lifecycle.demand, ACTOR_WANTED);
    assert_int_equal(answer.count, 0);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "over");
    assert_int_equal(far_end_wait(&scene->driver, &answer), TDM_OK);
    far_answer_free(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_SCENE_TEST(each_wrong_call_is_answered),
        NODE_SCENE_TEST(a_question_about_nobody_is_answered),
        NODE_SCENE_TEST(only_its_own_process_says_that_it_is_constructed),
        NODE_SCENE_TEST(nobody_speaks_for_one_without_a_process),
        NODE_SCENE_TEST(a_start_that_is_repeated_is_one_start),
        NODE_SCENE_TEST(a_node_that_stops_starts_nothing),
        NODE_SCENE_TEST(arguments_are_for_who_waits_for_them),
        NODE_SCENE_TEST(who_leaves_waits_for_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
