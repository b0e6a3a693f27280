/* actor_table_test.c - who is in a node's table, who waits for them, and what is remembered. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/node_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- how they ended --------------------------------------------------------------------- */

static struct tdm__id end_one(struct node_scene *scene, const char *how)
{
    struct actor_entry *entry = node_scene_add(scene, ACTOR_WAITING);
    struct tdm__id id = entry->spec->id;

    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, how);
    return id;
}

static void an_end_is_remembered_until_many_have_followed(void **state)
{
    struct node_scene *scene = *state;
    struct tdm__id first = end_one(scene, "the first");
    struct tdm__id second = end_one(scene, "the second");

    for (int i = 2; i < TOMBSTONES_MAX; i++) {
        (void)end_one(scene, "one of many");
    }
    assert_null(tdm__actor_entry_find(&scene->node, &first));
    assert_string_equal(tdm__tombstone_find(&scene->node, &first)->text, "the first");
    (void)end_one(scene, "one too many");
    assert_null(tdm__tombstone_find(&scene->node, &first));
    assert_string_equal(tdm__tombstone_find(&scene->node, &second)->text, "the second");
}

/* The places of a table that has not filled up yet are no ends of anybody. */
static void no_actor_has_no_end(void **state)
{
    struct node_scene *scene = *state;

    (void)end_one(scene, "somebody");
    assert_null(tdm__tombstone_find(&scene->node, &(struct tdm__id){{0}}));
}

/* ---- who waits for one ------------------------------------------------------------------ */

static void its_end_answers_each_as_they_asked(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_WAITING);
    struct far_answer life;
    struct far_answer end;
    struct far_answer more;

    tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, node_scene_incoming(scene, &life));
    tdm__actor_entry_wait(entry, WAITS_FOR_END, node_scene_incoming(scene, &end));
    tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, node_scene_incoming(scene, &more));
    tdm__actor_entry_remove(entry, TDM_E_NODE_LOST, "the way it went");
    assert_int_equal(far_end_wait(&scene->driver, &life), TDM_E_NODE_LOST);
    assert_string_equal(life.detail, "the way it went");
    assert_int_equal(far_end_wait(&scene->driver, &end), TDM_OK);
    assert_int_equal(far_end_wait(&scene->driver, &more), TDM_E_NODE_LOST);
    far_answer_free(&end);
}

static void answer_six(void *arg, struct tdm__incoming *incoming)
{
    ++*(uint32_t *)arg;
    tdm__incoming_reply_pack(incoming, "i", (int64_t)6);
}

static void its_life_leaves_those_who_wait_for_the_end(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_STARTING);
    struct far_answer answers[4];
    uint32_t count = 0;

    for (int i = 0; i < 4; i++) {
        tdm__actor_entry_wait(entry, i % 2 == 0 ? WAITS_FOR_END : WAITS_FOR_LIFE,
                              node_scene_incoming(scene, &answers[i]));
    }
    tdm__actor_entry_answer_life(entry, answer_six, &count);
    assert_int_equal(count, 2);
    tdm__actor_entry_answer_life(entry, answer_six, &count);
    assert_int_equal(count, 2);
    assert_int_equal(far_end_wait(&scene->driver, &answers[1]), TDM_OK);
    assert_int_equal(far_end_wait(&scene->driver, &answers[3]), TDM_OK);
    node_scene_settle(scene);
    assert_int_equal(answers[0].count + answers[2].count, 0);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "over");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(far_end_wait(&scene->driver, &answers[i]), TDM_OK);
        assert_int_equal(answers[i].count, 1);
        far_answer_free(&answers[i]);
    }
}

static void one_who_left_is_answered_to_nobody(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_STARTING);
    struct far_answer answer;

    tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, node_scene_incoming(scene, &answer));
    far_end_cut(&scene->driver);
    assert_int_equal(far_end_wait(&scene->driver, &answer), TDM_E_CLOSED);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "over");
}

/* ---- who waits for the end of many ------------------------------------------------------ */

struct ending {
    uint32_t told;
    struct actor_entry *ends; /* which it ends when it is told */
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

static struct actor_entry *add_class(struct node_scene *scene, const char *class_name)
{
    struct actor_entry *entry =
        tdm__actor_entry_add(&scene->node, node_scene_spec(scene, class_name));

    assert_non_null(entry);
    entry->lifecycle.state = ACTOR_PLACING;
    return entry;
}

static void end_class(struct node_scene *scene, char first, struct ending *ending)
{
    struct tdm__id key = {{(uint8_t)first}};

    tdm__node_actors_end(&scene->node, is_of_class, &key, false, on_ended, ending);
}

static void who_ends_nobody_is_told_at_once(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *other = add_class(scene, "other");
    struct ending ending = {.told = 0};

    end_class(scene, 'm', &ending);
    assert_int_equal(ending.told, 1);
    assert_int_equal(other->lifecycle.demand, ACTOR_WANTED);
    tdm__actor_entry_remove(other, TDM_E_ACTOR_DIED, "over");
    assert_int_equal(ending.told, 1);
}

static void who_ends_several_is_told_once_with_the_last(void **state)
{
    struct node_scene *scene = *state;
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

/* Who is told may end others, and so have more told, of which it knows nothing. */
static void who_is_told_may_have_others_told(void **state)
{
    struct node_scene *scene = *state;
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
    assert_null(scene->node.actors->enders);
}

static bool is_told(void *arg)
{
    return ((const struct ending *)arg)->told > 0;
}

/* An end is no end before what was held is free again. */
static void nobody_is_told_while_a_place_is_on_its_way_back(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = add_class(scene, "mine");
    struct ending ending = {.told = 0};

    entry->record.actor = entry->spec->id;
    entry->record.node = scene->node.record.id;
    end_class(scene, 'm', &ending);
    tdm__actor_entry_give_place_back(entry, ACTOR_RESERVES);
    tdm__actor_entry_remove(entry, TDM_E_ACTOR_DIED, "over");
    assert_non_null(scene->node.actors->releases);
    assert_int_equal(ending.told, 0);
    node_scene_run(scene, is_told, &ending);
    assert_null(scene->node.actors->releases);
}

/* ---- the whole table -------------------------------------------------------------------- */

static void the_nodes_end_answers_all_who_wait(void **state)
{
    struct node_scene *scene = *state;
    struct actor_entry *entry = node_scene_add(scene, ACTOR_STARTING);
    struct far_answer answers[3];
    struct tdm__id unknown;

    assert_int_equal(tdm__id_make(&unknown), TDM_OK);
    tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, node_scene_incoming(scene, &answers[0]));
    tdm__actor_entry_wait(entry, WAITS_FOR_END, node_scene_incoming(scene, &answers[1]));
    far_end_ask(&scene->driver, &answers[2], "actor.await", "b?", (const void *)unknown.bytes,
                sizeof(unknown.bytes), 0);
    node_scene_settle(scene);
    assert_non_null(scene->node.actors->early);
    tdm__node_actors_destroy(&scene->node);
    assert_int_equal(far_end_wait(&scene->driver, &answers[0]), TDM_E_ACTOR_DIED);
    assert_string_equal(answers[0].detail, "its node has stopped");
    assert_int_equal(far_end_wait(&scene->driver, &answers[1]), TDM_OK);
    assert_int_equal(far_end_wait(&scene->driver, &answers[2]), TDM_E_ACTOR_DIED);
    far_answer_free(&answers[1]);
}

/* What a node that joins again says that it holds. */
static void only_places_of_its_own_are_grants(void **state)
{
    static const enum actor_state states[] = {ACTOR_PLACING, ACTOR_WAITING,    ACTOR_STARTING,
                                              ACTOR_ALIVE,   ACTOR_RESTARTING, ACTOR_REMOTE};
    struct node_scene *scene = *state;
    struct tdm__grant *grants;
    uint32_t count;

    for (uint32_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        node_scene_add(scene, states[i])->record.grant.cpu = 100 + i;
    }
    node_scene_add(scene, ACTOR_ALIVE)->record.group = scene->driver.self.id;
    grants = tdm__node_actor_grants(&scene->node, &count);
    assert_int_equal(count, 3); /* the last one added is the first */
    assert_int_equal(grants[0].cpu, 104);
    assert_int_equal(grants[1].cpu, 103);
    assert_int_equal(grants[2].cpu, 102);
    free(grants);
}

static void the_list_has_all_in_their_states(void **state)
{
    static const char *const texts[] = {"placing",  "placing", "waiting",    "starting",
                                        "starting", "alive",   "restarting", "ending",
                                        "remote",   "remote",  "remote",     "remote"};
    enum { COUNT = sizeof(texts) / sizeof(texts[0]) };
    struct node_scene *scene = *state;
    struct far_answer answer;
    const tdm_value *rows;

    for (int i = ACTOR_PLACING; i <= ACTOR_REMOTE_REFUSED; i++) {
        (void)node_scene_add(scene, (enum actor_state)i);
    }
    far_end_ask(&scene->driver, &answer, "actor.list", "");
    assert_int_equal(far_end_wait(&scene->driver, &answer), TDM_OK);
    rows = far_answer_value(&answer);
    assert_int_equal(tdm_value_count(rows), COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        const tdm_value *row = tdm_value_at(rows, COUNT - 1 - i);

        assert_string_equal(tdm_value_string(tdm_value_at(row, 2), ""), "tester");
        assert_string_equal(tdm_value_string(tdm_value_at(row, 3), ""), texts[i]);
        assert_int_equal(tdm_value_int(tdm_value_at(row, 4), -1), 0); /* no process */
    }
    far_answer_free(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_SCENE_TEST(an_end_is_remembered_until_many_have_followed),
        NODE_SCENE_TEST(no_actor_has_no_end),
        NODE_SCENE_TEST(its_end_answers_each_as_they_asked),
        NODE_SCENE_TEST(its_life_leaves_those_who_wait_for_the_end),
        NODE_SCENE_TEST(one_who_left_is_answered_to_nobody),
        NODE_SCENE_TEST(who_ends_nobody_is_told_at_once),
        NODE_SCENE_TEST(who_ends_several_is_told_once_with_the_last),
        NODE_SCENE_TEST(who_is_told_may_have_others_told),
        NODE_SCENE_TEST(nobody_is_told_while_a_place_is_on_its_way_back),
        NODE_SCENE_TEST(the_nodes_end_answers_all_who_wait),
        NODE_SCENE_TEST(only_places_of_its_own_are_grants),
        NODE_SCENE_TEST(the_list_has_all_in_their_states),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
