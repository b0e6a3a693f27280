/* actor_actions_test.c - what users and other modules see of an actor's actions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/node_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void handle(struct actor_entry *entry, enum actor_event_kind kind, const char *detail)
{
    tdm__actor_entry_handle(entry, (struct actor_event){.kind = kind, .detail = detail});
}

static void expect_end(struct node_scene *scene, const struct tdm__id *actor, const char *words)
{
    const struct tombstone *tombstone;

    node_scene_run_out(scene);
    tombstone = tdm__tombstone_find(&scene->node, actor);
    assert_non_null(tombstone);
    assert_int_equal(tombstone->status, TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tombstone->text, words));
}

static void test_wait_for_arguments_is_explained(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_NEW);

    entry->spec->awaits_arguments = true;
    handle(entry, ACTOR_ON_CREATE, NULL);
    assert_int_equal(entry->lifecycle.state, ACTOR_WAITING);
    assert_non_null(strstr(entry->waits_for, "it waits: a reference among its constructor's"));
}

static void test_refusal_names_actor_and_cause(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_WAITING);
    struct tdm__id id = entry->spec->id;

    handle(entry, ACTOR_ON_ARGUMENTS_FAILED, "the value is lost");
    expect_end(scene, &id, "cannot be made: the value is lost");
    assert_non_null(strstr(tdm__tombstone_find(&scene->node, &id)->text, "actor tester "));
}

static void test_reason_of_kill_is_reported_with_end(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_STARTING);
    struct tdm__id id = entry->spec->id;

    node_scene_start(entry);
    entry->spec->group = scene->driver.self.id;
    entry->record.grant.gpus_count = 1; /* Other nodes may claim a GPU. */
    handle(entry, ACTOR_ON_LEASE_ENDING, "its node lost its lease");
    assert_int_equal(entry->lifecycle.state, ACTOR_ENDING);
    entry->record.grant.gpus_count = 0;
    entry->spec->group = (struct tdm__id){{0}};
    expect_end(scene, &id, "its node lost its lease");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_SCENE_TEST(test_wait_for_arguments_is_explained),
        NODE_SCENE_TEST(test_refusal_names_actor_and_cause),
        NODE_SCENE_TEST(test_reason_of_kill_is_reported_with_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
