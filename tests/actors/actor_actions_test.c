/* actor_actions_test.c - what users and other modules see of an actor's actions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_actions.h"
#include "actors/daemon/ended_actors.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void handle(struct actor_entry *entry, enum actor_event_kind kind, const char *detail)
{
    tdm__actor_entry_handle(entry, (struct actor_event){.kind = kind, .detail = detail});
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

static void test_wait_for_arguments_is_explained(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_NEW);

    entry->spec->awaits_creator_arguments = true;
    handle(entry, ACTOR_ON_CREATE, NULL);
    assert_int_equal(entry->lifecycle.state, ACTOR_WAITING);
    assert_non_null(strstr(entry->waits_for, "it waits: a reference among its constructor's"));
}

static void test_refusal_names_actor_and_cause(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);
    struct tdm__id id = entry->spec->id;

    handle(entry, ACTOR_ON_ARGUMENTS_FAILED, "the value is lost");
    expect_end(scene, &id, "cannot be made: the value is lost");
    assert_non_null(strstr(tdm__tombstone_find(&scene->node, &id)->text, "actor tester "));
    assert_int_equal(scene->node.ended_actors->count, 1); /* Lists show the actor. */
}

static void test_reason_of_kill_is_reported_with_end(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    struct tdm__id id = entry->spec->id;

    node_fixture_start(entry);
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
        NODE_FIXTURE_TEST(test_wait_for_arguments_is_explained),
        NODE_FIXTURE_TEST(test_refusal_names_actor_and_cause),
        NODE_FIXTURE_TEST(test_reason_of_kill_is_reported_with_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
