/* actor_placement_test.c - reservations of actors that end early are given back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_service.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/node.h"
#include "actors/daemon/placement_group_service.h"
#include "runtime/clock.h"
#include "tests/support/failing_store.h"
#include "tests/support/reserve_fixture.h"

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

struct scene {
    struct reserve_fixture world;
    struct failing_store deaf;
    struct tdm__services services;
    struct tdm__node node;
};

static int open_scene(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    assert_int_equal(reserve_fixture_open(&scene->world), 0);
    failing_store_open(&scene->deaf, scene->world.store);
    scene->node = (struct tdm__node){.loop = scene->world.loop,
                                     .store = &scene->deaf.store,
                                     .services = &scene->services,
                                     .events = &tdm__node_events};
    scene->node.record.id = reserve_fixture_join(&scene->world, "this", 1);
    TRY(tdm__node_actors_create(&scene->node));
    TRY(tdm__placement_groups_create(&scene->node));
    *state = scene;
    return 0;
}

static int close_scene(void **state)
{
    struct scene *scene = *state;

    scene->node.stopping = true;
    tdm__node_actors_destroy(&scene->node);
    tdm__placement_groups_destroy(&scene->node);
    reserve_fixture_close(&scene->world);
    free(scene);
    return 0;
}

/* Named, with the only GPU. */
static struct actor_entry *place_actor(struct scene *scene)
{
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    struct actor_entry *entry;

    TRY(tdm__id_generate(&spec->id));
    (void)snprintf(spec->class_name, sizeof(spec->class_name), "tester");
    (void)snprintf(spec->name, sizeof(spec->name), "only");
    (void)snprintf(spec->name_space, sizeof(spec->name_space), "mine");
    TRY(tdm__resources_add(&spec->wish.wanted, "GPU", 1));
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
    const struct scene *scene = arg;

    return scene->node.actors->all == NULL && scene->node.actors->pending_releases == NULL;
}

static void expect_all_free(struct scene *scene)
{
    struct tdm__actor_request request = {.class_name = "tester", .name_key = "name/mine/only"};

    TRY(tdm__loop_run(scene->world.loop, is_gone, scene, tdm__deadline_after(WAIT_MS)));
    TRY(tdm__id_generate(&request.actor));
    TRY(tdm__resources_add(&request.wish.wanted, "GPU", 1));
    TRY(reserve_fixture_take(&scene->world, &request));
}

static void one_that_waits_since_an_answer_was_lost(void **state)
{
    struct scene *scene = *state;
    struct actor_entry *entry;

    scene->deaf.lost_replies = 1;
    entry = place_actor(scene);
    TRY(tdm__loop_run(scene->world.loop, is_waiting, entry, tdm__deadline_after(WAIT_MS)));
    tdm__actor_entry_end(entry, true);
    expect_all_free(scene);
}

static void one_that_was_unwanted_when_the_answer_was_lost(void **state)
{
    struct scene *scene = *state;

    scene->deaf.lost_replies = 1;
    tdm__actor_entry_end(place_actor(scene), true);
    expect_all_free(scene);
}

static void one_that_was_unwanted_when_the_answer_came(void **state)
{
    struct scene *scene = *state;

    tdm__actor_entry_end(place_actor(scene), true);
    expect_all_free(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_waits_since_an_answer_was_lost, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(one_that_was_unwanted_when_the_answer_was_lost, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(one_that_was_unwanted_when_the_answer_came, open_scene,
                                        close_scene),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
