/* actor_place_test.c - an actor that ends before it is known where it is leaves nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
#include "actors/node/state.h"
#include "runtime/clock.h"
#include "tests/support/reserve_world.h"

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

/* ---- a store that loses an answer ------------------------------------------------------- */

struct forgetful_store {
    struct tdm__store store; /* first */
    struct tdm__store *inner;
    uint32_t lost_answers; /* to the commits that come next */
};

struct lost_commit {
    tdm__store_commit_fn *fn;
    void *arg;
};

static void on_lost(void *arg, tdm_status status, uint64_t version)
{
    struct lost_commit lost = *(struct lost_commit *)arg;

    (void)version;
    free(arg);
    TRY(status);
    lost.fn(lost.arg, TDM_E_TIMEOUT, TDM__VERSION_NONE);
}

static void forgetful_commit(struct tdm__store *store, const struct tdm__write *writes,
                             uint32_t writes_count, int64_t deadline_ms,
                             tdm__store_commit_fn *fn, void *arg)
{
    struct forgetful_store *forgetful = (struct forgetful_store *)store;
    struct lost_commit *lost;

    if (forgetful->lost_answers == 0) {
        forgetful->inner->ops->commit(forgetful->inner, writes, writes_count, deadline_ms, fn,
                                      arg);
        return;
    }
    forgetful->lost_answers--;
    lost = malloc(sizeof(*lost));
    *lost = (struct lost_commit){fn, arg};
    forgetful->inner->ops->commit(forgetful->inner, writes, writes_count, deadline_ms, on_lost,
                                  lost);
}

static void forgetful_read(struct tdm__store *store, const char *const *patterns,
                           uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                           void *arg)
{
    struct tdm__store *inner = ((struct forgetful_store *)store)->inner;

    inner->ops->read(inner, patterns, patterns_count, deadline_ms, fn, arg);
}

static const struct tdm__store_ops forgetful_ops = {
    .name = "forgetful", .read = forgetful_read, .commit = forgetful_commit};

/* ---- a node, and one of its actors ------------------------------------------------------ */

struct scene {
    struct reserve_world world;
    struct forgetful_store forgetful;
    struct tdm__services services;
    struct tdm__node node;
};

static int open_scene(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    assert_int_equal(reserve_world_open(&scene->world), 0);
    scene->forgetful =
        (struct forgetful_store){.store = {.ops = &forgetful_ops}, .inner = scene->world.store};
    scene->node = (struct tdm__node){.loop = scene->world.loop,
                                     .store = &scene->forgetful.store,
                                     .services = &scene->services};
    scene->node.record.id = reserve_world_join(&scene->world, "this", 1);
    TRY(tdm__node_state_create(&scene->node));
    TRY(tdm__node_actors_create(&scene->node));
    TRY(tdm__node_groups_create(&scene->node));
    *state = scene;
    return 0;
}

static int close_scene(void **state)
{
    struct scene *scene = *state;

    scene->node.stopping = true;
    tdm__node_actors_destroy(&scene->node);
    tdm__node_groups_destroy(&scene->node);
    tdm__node_state_destroy(&scene->node);
    reserve_world_close(&scene->world);
    free(scene);
    return 0;
}

/* Named, with the only GPU. */
static struct actor_entry *place_actor(struct scene *scene)
{
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    struct actor_entry *entry;

    TRY(tdm__id_make(&spec->id));
    (void)snprintf(spec->class_name, sizeof(spec->class_name), "tester");
    (void)snprintf(spec->name, sizeof(spec->name), "only");
    (void)snprintf(spec->name_space, sizeof(spec->name_space), "mine");
    TRY(tdm__resources_add(&spec->wish.wanted, "GPU", 1));
    entry = tdm__actor_entry_add(&scene->node, spec, ACTOR_PLACING);
    assert_non_null(entry);
    tdm__actor_entry_place(entry);
    return entry;
}

static bool is_waiting(void *arg)
{
    return ((const struct actor_entry *)arg)->state == ACTOR_WAITING;
}

static bool is_gone(void *arg)
{
    const struct scene *scene = arg;

    return scene->node.actors->all == NULL && scene->node.actors->releases == NULL;
}

static void expect_all_free(struct scene *scene)
{
    struct tdm__reserve_actor request = {.class_name = "tester", .name_key = "name/mine/only"};

    TRY(tdm__loop_run(scene->world.loop, is_gone, scene, tdm__deadline_in(WAIT_MS)));
    TRY(tdm__id_make(&request.actor));
    TRY(tdm__resources_add(&request.wish.wanted, "GPU", 1));
    TRY(reserve_world_take(&scene->world, &request));
}

static void one_that_waits_since_an_answer_was_lost(void **state)
{
    struct scene *scene = *state;
    struct actor_entry *entry;

    scene->forgetful.lost_answers = 1;
    entry = place_actor(scene);
    TRY(tdm__loop_run(scene->world.loop, is_waiting, entry, tdm__deadline_in(WAIT_MS)));
    tdm__actor_entry_end(entry, true);
    expect_all_free(scene);
}

static void one_that_was_unwanted_when_the_answer_was_lost(void **state)
{
    struct scene *scene = *state;

    scene->forgetful.lost_answers = 1;
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
        cmocka_unit_test_setup_teardown(one_that_was_unwanted_when_the_answer_was_lost,
                                        open_scene, close_scene),
        cmocka_unit_test_setup_teardown(one_that_was_unwanted_when_the_answer_came, open_scene,
                                        close_scene),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
