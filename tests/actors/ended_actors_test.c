/* ended_actors_test.c - which ended actors a node remembers, and in which order it lists them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/ended_actors.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Ends an actor of the state `state`, as its actions do. */
static void end_actor(struct node_fixture *scene, enum actor_state state, const char *text)
{
    struct actor_entry *entry = node_fixture_add(scene, state);

    tdm__ended_actors_add(&scene->node, entry, text);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, text);
}

/* Returns the list of the node's actors; the caller destroys the document. */
static tdm_document *list_actors(struct node_fixture *scene)
{
    tdm_document *document;
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    tdm__state_write_actors(writer, &scene->node);
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm_writer_destroy(writer);
    return document;
}

static void expect_text(const tdm_value *record, const char *key, const char *text)
{
    assert_string_equal(tdm_value_string(tdm_value_find(record, key), "?"), text);
}

static void test_newest_ended_actors_are_listed_before_present_ones(void **state)
{
    struct node_fixture *scene = *state;
    tdm_document *document;
    const tdm_value *records;

    (void)node_fixture_add(scene, ACTOR_WAITING);
    (void)node_fixture_add(scene, ACTOR_REMOTE); /* The other node lists this actor. */
    for (int i = 0; i < TDM__ENDED_ACTORS_MAX + 2; i++) {
        char text[16];

        (void)snprintf(text, sizeof(text), "end %d", i);
        end_actor(scene, ACTOR_WAITING, text);
    }
    end_actor(scene, ACTOR_REMOTE, "there");
    document = list_actors(scene);
    records = tdm_value_at(tdm_document_root(document), 0);
    assert_int_equal(tdm_value_count(records), TDM__ENDED_ACTORS_MAX + 1);
    expect_text(tdm_value_at(records, 0), "death_cause", "end 2");
    expect_text(tdm_value_at(records, 511), "death_cause", "end 513");
    expect_text(tdm_value_at(records, 512), "state", "PENDING");
    assert_int_equal(scene->node.ended_actors->count, TDM__ENDED_ACTORS_MAX + 2);
    tdm_document_destroy(document);
}

/* Only this node can list it, and does so until nobody can ask why it is gone. */
static void test_actor_lost_with_its_node_is_listed_until_its_creator_leaves(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_REMOTE);
    struct tdm__peer_identity creator = {.kind = TDM__PEER_DRIVER, .id = entry->spec->creator};
    struct tdm__id stranger;
    tdm_document *document;
    const tdm_value *records;

    entry->is_lost_with_node = true;
    (void)snprintf(entry->placement_node_name, sizeof(entry->placement_node_name), "far");
    tdm__ended_actors_add(&scene->node, entry, "lost with far");
    tdm__actor_entry_remove(entry, TDM_E_NODE_LOST, "lost with far");
    for (int i = 0; i < TDM__ENDED_ACTORS_MAX + 1; i++) { /* They do not displace it. */
        end_actor(scene, ACTOR_WAITING, "end");
    }
    TRY(tdm__id_generate(&stranger));
    tdm__ended_actors_creator_left(&scene->node, &stranger);
    document = list_actors(scene);
    records = tdm_value_at(tdm_document_root(document), 0);
    assert_int_equal(tdm_value_count(records), TDM__ENDED_ACTORS_MAX + 1);
    expect_text(tdm_value_at(records, 0), "state", "DEAD");
    expect_text(tdm_value_at(records, 0), "node_name", "far");
    expect_text(tdm_value_at(records, 0), "death_cause", "lost with far");
    tdm_document_destroy(document);
    scene->node.events->process_ended(&scene->node, &creator, true);
    document = list_actors(scene);
    records = tdm_value_at(tdm_document_root(document), 0);
    assert_int_equal(tdm_value_count(records), TDM__ENDED_ACTORS_MAX);
    tdm_document_destroy(document);
}

static void test_actor_that_was_given_up_is_not_listed(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);

    entry->is_disowned = true; /* The node of its creator lists it. */
    tdm__ended_actors_add(&scene->node, entry, "given up");
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "given up");
    assert_int_equal(scene->node.ended_actors->count, 0);
}

static void test_stopping_node_remembers_no_ended_actor(void **state)
{
    struct node_fixture *scene = *state;

    scene->node.stopping = true;
    end_actor(scene, ACTOR_WAITING, "its node has stopped");
    assert_int_equal(scene->node.ended_actors->count, 0);
    assert_null(scene->node.ended_actors->records[0].bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(test_newest_ended_actors_are_listed_before_present_ones),
        NODE_FIXTURE_TEST(test_actor_lost_with_its_node_is_listed_until_its_creator_leaves),
        NODE_FIXTURE_TEST(test_actor_that_was_given_up_is_not_listed),
        NODE_FIXTURE_TEST(test_stopping_node_remembers_no_ended_actor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
