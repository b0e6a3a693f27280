/* actor_placement_test.c - reservations of actors that end early are given back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_placement.h"
#include "actors/daemon/actor_table.h"
#include "runtime/clock.h"
#include "tests/support/store_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 10000 };

/* ---- a node, and one of its actors ------------------------------------------------------ */

static int open_scene(void **state)
{
    struct store_node *scene = calloc(1, sizeof(*scene));

    assert_non_null(scene);
    store_node_open(scene, 1);
    *state = scene;
    return 0;
}

static int close_scene(void **state)
{
    store_node_close(*state);
    free(*state);
    return 0;
}

/* Named, with the only GPU. */
static struct actor_entry *place_actor(struct store_node *scene)
{
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    struct actor_entry *entry;

    TRY(tdm__id_generate(&spec->id));
    (void)snprintf(spec->class_name, sizeof(spec->class_name), "tester");
    (void)snprintf(spec->name, sizeof(spec->name), "only");
    (void)snprintf(spec->name_space, sizeof(spec->name_space), "mine");
    TRY(tdm__resources_add(&spec->placement.wanted, "GPU", 1));
    entry = tdm__actor_entry_add(&scene->node, spec);
    assert_non_null(entry);
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_CREATE});
    return entry;
}

static bool is_waiting(void *arg)
{
    return ((const struct actor_entry *)arg)->lifecycle.state == ACTOR_WAITING;
}

static bool is_gone(void *arg)
{
    const struct store_node *scene = arg;

    return scene->node.actors->all == NULL && scene->node.actors->pending_releases == NULL;
}

static void expect_all_free(struct store_node *scene)
{
    struct tdm__actor_request request = {.class_name = "tester", .name_key = "name/mine/only"};

    TRY(tdm__loop_run(scene->world.loop, is_gone, scene, tdm__deadline_after(WAIT_MS)));
    TRY(tdm__id_generate(&request.actor));
    TRY(tdm__resources_add(&request.placement.wanted, "GPU", 1));
    TRY(reserve_fixture_take(&scene->world, &request));
}

static void waiting_actor_with_a_lost_reply_gives_its_placement_back(void **state)
{
    struct store_node *scene = *state;
    struct actor_entry *entry;

    scene->deaf.lost_replies = 1;
    entry = place_actor(scene);
    TRY(tdm__loop_run(scene->world.loop, is_waiting, entry, tdm__deadline_after(WAIT_MS)));
    tdm__actor_entry_end(entry, true);
    expect_all_free(scene);
}

static void unwanted_actor_with_a_lost_reply_gives_its_placement_back(void **state)
{
    struct store_node *scene = *state;

    scene->deaf.lost_replies = 1;
    tdm__actor_entry_end(place_actor(scene), true);
    expect_all_free(scene);
}

static void unwanted_actor_with_a_late_reply_gives_its_placement_back(void **state)
{
    struct store_node *scene = *state;

    tdm__actor_entry_end(place_actor(scene), true);
    expect_all_free(scene);
}

static bool is_placed_or_waits(void *arg)
{
    const struct actor_entry *entry = arg;

    return entry->lifecycle.state != ACTOR_PLACING;
}

/* What the table of actors lacked when the node began to write its records is removed from the
 * store, the actor's name included. */
static void actor_does_not_start_while_its_node_writes_its_records(void **state)
{
    struct store_node *scene = *state;
    struct actor_entry *entry;

    assert_true(tdm__node_releases_pause(&scene->node));
    entry = place_actor(scene);
    TRY(tdm__loop_run(scene->world.loop, is_placed_or_waits, entry, tdm__deadline_after(WAIT_MS)));
    assert_int_equal(entry->lifecycle.state, ACTOR_WAITING);
    assert_non_null(strstr(entry->waits_for, "is writing its records"));
    tdm__node_releases_resume(&scene->node);
    tdm__actor_entry_end(entry, true);
    expect_all_free(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(waiting_actor_with_a_lost_reply_gives_its_placement_back,
                                        open_scene, close_scene),
        cmocka_unit_test_setup_teardown(unwanted_actor_with_a_lost_reply_gives_its_placement_back,
                                        open_scene, close_scene),
        cmocka_unit_test_setup_teardown(unwanted_actor_with_a_late_reply_gives_its_placement_back,
                                        open_scene, close_scene),
        cmocka_unit_test_setup_teardown(actor_does_not_start_while_its_node_writes_its_records,
                                        open_scene, close_scene),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
