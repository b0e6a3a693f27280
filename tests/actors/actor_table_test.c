/* actor_table_test.c - the table of a node's actors, the calls that wait for them, and tombstones.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_placement.h"
#include "actors/daemon/actor_service.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- how they ended --------------------------------------------------------------------- */

static struct tdm__id end_one(struct node_fixture *scene, const char *how)
{
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);
    struct tdm__id id = entry->spec->id;

    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, how);
    return id;
}

static void tombstone_is_kept_until_many_actors_have_ended(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__id first = end_one(scene, "the first");
    struct tdm__id second = end_one(scene, "the second");

    for (int i = 2; i < ACTOR_TOMBSTONES_MAX; i++) {
        (void)end_one(scene, "one of many");
    }
    assert_null(tdm__actor_entry_find(&scene->node, &first));
    assert_string_equal(tdm__tombstone_find(&scene->node, &first)->text, "the first");
    (void)end_one(scene, "one too many");
    assert_null(tdm__tombstone_find(&scene->node, &first));
    assert_string_equal(tdm__tombstone_find(&scene->node, &second)->text, "the second");
}

/* The places of a table that has not filled up yet are no ends of anybody. */
static void unknown_actor_has_no_tombstone(void **state)
{
    struct node_fixture *scene = *state;

    (void)end_one(scene, "somebody");
    assert_null(tdm__tombstone_find(&scene->node, &(struct tdm__id){{0}}));
}

/* ---- who waits for one ------------------------------------------------------------------ */

static void end_of_an_actor_answers_each_kind_of_waiting_call(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);
    struct remote_reply life;
    struct remote_reply end;
    struct remote_reply more;

    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &life));
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_END, node_fixture_incoming(scene, &end));
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &more));
    tdm__actor_entry_remove(entry, TDM_E_NODE_LOST, "the way it went");
    assert_int_equal(remote_peer_wait(&scene->driver, &life), TDM_E_NODE_LOST);
    assert_string_equal(life.detail, "the way it went");
    assert_int_equal(remote_peer_wait(&scene->driver, &end), TDM_OK);
    assert_int_equal(remote_peer_wait(&scene->driver, &more), TDM_E_NODE_LOST);
    remote_reply_free(&end);
}

static void reply_six(void *arg, struct tdm__incoming_call *incoming)
{
    ++*(uint32_t *)arg;
    tdm__incoming_reply_pack(incoming, "i", (int64_t)6);
}

static void start_of_an_actor_does_not_answer_calls_that_wait_for_its_end(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    struct remote_reply replies[4];
    uint32_t count = 0;

    for (int i = 0; i < 4; i++) {
        tdm__actor_entry_add_waiter(entry, i % 2 == 0 ? WAITER_FOR_END : WAITER_FOR_START,
                                    node_fixture_incoming(scene, &replies[i]));
    }
    tdm__actor_entry_reply_waiters(entry, WAITER_FOR_START, reply_six, &count);
    assert_int_equal(count, 2);
    tdm__actor_entry_reply_waiters(entry, WAITER_FOR_START, reply_six, &count);
    assert_int_equal(count, 2);
    assert_int_equal(remote_peer_wait(&scene->driver, &replies[1]), TDM_OK);
    assert_int_equal(remote_peer_wait(&scene->driver, &replies[3]), TDM_OK);
    node_fixture_settle(scene);
    assert_int_equal(replies[0].count + replies[2].count, 0);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "over");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(remote_peer_wait(&scene->driver, &replies[i]), TDM_OK);
        assert_int_equal(replies[i].count, 1);
        remote_reply_free(&replies[i]);
    }
}

static void reply_to_a_closed_connection_is_dropped(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    struct remote_reply reply;

    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &reply));
    remote_peer_cut(&scene->driver);
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_E_CLOSED);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "over");
}

/* ---- who waits for the end of many ------------------------------------------------------ */

struct ending {
    uint32_t told;
    struct actor_entry *ends; /* Entry that the callback removes. */
};

static bool is_of_class(const struct tdm__actor_spec *spec, const void *key)
{
    return spec->class_name[0] == *(const char *)key;
}

static void on_ended(void *arg)
{
    struct ending *ending = arg;

    ending->told++;
    if (ending->ends != NULL) {
        tdm__actor_entry_remove(ending->ends, TDM_E_ACTOR_DIED, "with another");
    }
}

static struct actor_entry *add_class(struct node_fixture *scene, const char *class_name)
{
    struct actor_entry *entry =
        tdm__actor_entry_add(&scene->node, node_fixture_spec(scene, class_name));

    assert_non_null(entry);
    entry->lifecycle.state = ACTOR_PLACING;
    return entry;
}

static void end_class(struct node_fixture *scene, char first, struct ending *ending)
{
    struct tdm__id key = {{(uint8_t)first}};

    tdm__node_actors_end(&scene->node, is_of_class, &key, false, on_ended, ending);
}

static void ending_no_actor_calls_back_at_once(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *other = add_class(scene, "other");
    struct ending ending = {.told = 0};

    end_class(scene, 'm', &ending);
    assert_int_equal(ending.told, 1);
    assert_int_equal(other->lifecycle.demand, ACTOR_WANTED);
    tdm__actor_entry_remove(other, TDM_E_ACTOR_DIED, "over");
    assert_int_equal(ending.told, 1);
}

static void ending_several_actors_calls_back_once_after_the_last(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *one = add_class(scene, "mine");
    struct actor_entry *two = add_class(scene, "more");
    struct ending ending = {.told = 0};

    end_class(scene, 'm', &ending);
    assert_int_equal(one->lifecycle.demand, ACTOR_UNWANTED);
    assert_int_equal(two->lifecycle.demand, ACTOR_UNWANTED);
    tdm__actor_entry_remove(two, TDM_E_ACTOR_DIED, "over");
    assert_int_equal(ending.told, 0);
    tdm__actor_entry_remove(one, TDM_E_ACTOR_DIED, "over");
    assert_int_equal(ending.told, 1);
}

/* A callback may end other actors and so cause further callbacks. */
static void callback_may_end_other_actors(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *first = add_class(scene, "first");
    struct ending of_first = {.ends = add_class(scene, "second")};
    struct ending of_second = {.ends = add_class(scene, "third")};
    struct ending of_third = {.told = 0};

    end_class(scene, 'f', &of_first);
    end_class(scene, 's', &of_second);
    end_class(scene, 't', &of_third);
    tdm__actor_entry_remove(first, TDM_E_ACTOR_DIED, "over");
    assert_int_equal(of_first.told, 1);
    assert_int_equal(of_second.told, 1);
    assert_int_equal(of_third.told, 1);
    assert_null(scene->node.actors->actors_end_waits);
}

static bool is_told(void *arg)
{
    return ((const struct ending *)arg)->told > 0;
}

/* An end is no end before what was held is free again. */
static void callback_waits_for_the_release_of_the_placement(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = add_class(scene, "mine");
    struct ending ending = {.told = 0};

    entry->record.actor = entry->spec->id;
    entry->record.node = scene->node.record.id;
    end_class(scene, 'm', &ending);
    tdm__actor_entry_release_placement(entry, ACTOR_RESERVES);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "over");
    assert_non_null(scene->node.actors->pending_releases);
    assert_int_equal(ending.told, 0);
    node_fixture_run(scene, is_told, &ending);
    assert_null(scene->node.actors->pending_releases);
}

/* ---- the whole table -------------------------------------------------------------------- */

static void end_of_the_node_answers_all_waiting_calls(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    struct remote_reply replies[3];
    static const struct tdm__id no_node;
    struct tdm__id unknown;

    assert_int_equal(tdm__id_generate(&unknown), TDM_OK);
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, &replies[0]));
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_END, node_fixture_incoming(scene, &replies[1]));
    remote_peer_ask(&scene->driver, &replies[2], "actor.await", "b?b", (const void *)unknown.bytes,
                    sizeof(unknown.bytes), 0, (const void *)no_node.bytes, sizeof(no_node.bytes));
    node_fixture_settle(scene);
    assert_non_null(scene->node.actors->early_queries);
    tdm__node_actors_destroy(&scene->node);
    assert_int_equal(remote_peer_wait(&scene->driver, &replies[0]), TDM_E_ACTOR_DIED);
    assert_string_equal(replies[0].detail, "its node has stopped");
    assert_int_equal(remote_peer_wait(&scene->driver, &replies[1]), TDM_OK);
    assert_int_equal(remote_peer_wait(&scene->driver, &replies[2]), TDM_E_ACTOR_DIED);
    remote_reply_free(&replies[1]);
}

/* What a node that joins again says that it holds. */
static void only_own_placements_are_listed_as_grants(void **state)
{
    static const enum actor_state states[] = {ACTOR_PLACING, ACTOR_WAITING,    ACTOR_STARTING,
                                              ACTOR_ALIVE,   ACTOR_RESTARTING, ACTOR_REMOTE};
    struct node_fixture *scene = *state;
    struct tdm__grant *grants;
    uint32_t count;

    for (uint32_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        node_fixture_add(scene, states[i])->record.grant.cpu = 100 + i;
    }
    node_fixture_add(scene, ACTOR_ALIVE)->record.group = scene->driver.self.id;
    grants = tdm__node_actor_grants(&scene->node, &count);
    assert_int_equal(count, 3); /* Entries are listed in reverse order of creation. */
    assert_int_equal(grants[0].cpu, 104);
    assert_int_equal(grants[1].cpu, 103);
    assert_int_equal(grants[2].cpu, 102);
    free(grants);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(tombstone_is_kept_until_many_actors_have_ended),
        NODE_FIXTURE_TEST(unknown_actor_has_no_tombstone),
        NODE_FIXTURE_TEST(end_of_an_actor_answers_each_kind_of_waiting_call),
        NODE_FIXTURE_TEST(start_of_an_actor_does_not_answer_calls_that_wait_for_its_end),
        NODE_FIXTURE_TEST(reply_to_a_closed_connection_is_dropped),
        NODE_FIXTURE_TEST(ending_no_actor_calls_back_at_once),
        NODE_FIXTURE_TEST(ending_several_actors_calls_back_once_after_the_last),
        NODE_FIXTURE_TEST(callback_may_end_other_actors),
        NODE_FIXTURE_TEST(callback_waits_for_the_release_of_the_placement),
        NODE_FIXTURE_TEST(end_of_the_node_answers_all_waiting_calls),
        NODE_FIXTURE_TEST(only_own_placements_are_listed_as_grants),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
