/* node_reconcile_test.c - a daemon writes its records into a store that went back in time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/node_reconcile.h"

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

/* A node with two GPUs, and another one that is only in the store. */
struct scene {
    struct store_node own;
    struct tdm__node_record other;
};

static int open_scene(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    assert_non_null(scene);
    store_node_open(&scene->own, 2);
    *state = scene;
    return 0;
}

static int close_scene(void **state)
{
    struct scene *scene = *state;

    store_node_close(&scene->own);
    free(scene);
    return 0;
}

/* Adds an actor with the name "only" and one GPU that runs on the node. */
static struct actor_entry *run_actor(struct scene *scene)
{
    struct tdm__actor_request request = {.class_name = "tester", .placements = 1};
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    struct actor_entry *entry;

    TRY(tdm__id_generate(&request.actor));
    TRY(tdm__resources_add(&request.placement.wanted, "GPU", 1));
    (void)snprintf(request.name_key, sizeof(request.name_key), "name/mine/only");
    TRY(reserve_fixture_take(&scene->own.world, &request));
    spec->id = request.actor;
    spec->max_restarts = 1;
    (void)snprintf(spec->name, sizeof(spec->name), "only");
    (void)snprintf(spec->name_space, sizeof(spec->name_space), "mine");
    entry = tdm__actor_entry_add(&scene->own.node, spec);
    assert_non_null(entry);
    entry->record = (struct tdm__actor_record){.actor = request.actor,
                                               .node = scene->own.node.record.id,
                                               .grant = scene->own.world.reserved.grant,
                                               .placements = 1};
    memcpy(entry->record.name_key, request.name_key, sizeof(entry->record.name_key));
    entry->lifecycle.state = ACTOR_RESTARTING; /* It has no worker, but holds its resources. */
    entry->lifecycle.reservation = ACTOR_RESERVES;
    return entry;
}

/* The store goes back to the time before the actor was placed. */
static uint64_t go_back(struct scene *scene, const struct actor_entry *entry)
{
    char key[TDM__STORE_KEY_BYTES];

    reserve_fixture_empty(&scene->own.world, &scene->own.node.record.id);
    reserve_fixture_forget(&scene->own.world, tdm__store_key("actor", &entry->spec->id, key));
    reserve_fixture_forget(&scene->own.world, "name/mine/only");
    return reserve_fixture_new_generation(&scene->own.world);
}

static struct tdm__actor_request wish(const struct scene *scene, double gpus, const char *name)
{
    struct tdm__actor_request request = {
        .class_name = "tester", .placements = 1, .view = &scene->own.node.store_view};

    TRY(tdm__id_generate(&request.actor));
    TRY(tdm__resources_add(&request.placement.wanted, "GPU", gpus));
    (void)snprintf(request.name_key, sizeof(request.name_key), "%s", name);
    return request;
}

static void run_for(const struct scene *scene, int64_t ms)
{
    assert_int_equal(tdm__loop_run(scene->own.world.loop, NULL, NULL, tdm__deadline_after(ms)),
                     TDM_E_TIMEOUT);
}

/* Waits until the node has noted that it has settled in the generation. */
static void wait_until_settled(struct scene *scene, uint64_t generation)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    for (;;) {
        struct tdm__actor_request request = wish(scene, 0, "");

        tdm__node_reconcile_continue(&scene->own.node);
        run_for(scene, 5);
        TRY(reserve_fixture_take(&scene->own.world, &request));
        if (reserve_fixture_generation(&scene->own.world, &scene->own.node.record.id) ==
            generation) {
            return;
        }
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
    }
}

static void wait_for_names(struct scene *scene)
{
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    while (scene->own.node.store_view.names_wait) {
        tdm__node_reconcile_continue(&scene->own.node);
        run_for(scene, 5);
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
    }
}

static void records_and_resources_are_written_again(void **state)
{
    struct scene *scene = *state;
    struct actor_entry *entry = run_actor(scene);
    uint64_t generation = go_back(scene, entry);
    struct tdm__actor_request request;

    tdm__node_reconcile_renewed(&scene->own.node, 1, false, NULL, 0); /* The generation before. */
    tdm__node_reconcile_renewed(&scene->own.node, generation, true, &scene->own.node.record, 1);
    assert_false(scene->own.node.store_view.holders_wait); /* No other node was known. */
    wait_until_settled(scene, generation);
    wait_for_names(scene);
    assert_int_equal(entry->lifecycle.reservation, ACTOR_RESERVES);
    request = wish(scene, 0, "name/mine/only");
    assert_int_equal(reserve_fixture_take(&scene->own.world, &request), TDM_E_EXISTS);
    request = wish(scene, 2, "");
    assert_int_equal(reserve_fixture_take(&scene->own.world, &request), TDM_E_AGAIN);
    request = wish(scene, 1, "");
    TRY(reserve_fixture_take(&scene->own.world, &request));
}

/* The release must not be lost, nor happen twice. */
static void actor_that_ends_meanwhile_releases_its_resources_once(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct scene *scene = *state;
        struct actor_entry *entry = run_actor(scene);
        uint64_t generation = go_back(scene, entry);
        struct tdm__actor_request request;

        if (i % 2 == 1) {
            scene->own.deaf.lost_replies = 1;
        }
        if (i / 2 == 1) {
            tdm__actor_entry_end(entry, true);
            tdm__node_reconcile_renewed(&scene->own.node, generation, true, NULL, 0);
        } else {
            tdm__node_reconcile_renewed(&scene->own.node, generation, true, NULL, 0);
            tdm__actor_entry_end(entry, true);
        }
        wait_until_settled(scene, generation);
        while (scene->own.node.actors->pending_releases != NULL) {
            run_for(scene, 5);
        }
        assert_null(scene->own.node.actors->all);
        wait_for_names(scene);
        request = wish(scene, 2, "name/mine/only");
        TRY(reserve_fixture_take(&scene->own.world, &request));
        (void)close_scene(state);
        (void)open_scene(state);
    }
}

/* The node was cut off, its actor was stopped, and another node gave the name to a new actor before
 * this node could give its resources back. */
static void name_of_an_actor_that_has_ended_stays_with_its_next_holder(void **state)
{
    struct scene *scene = *state;
    struct actor_entry *entry = run_actor(scene);
    struct tdm__actor_request next;
    struct tdm__actor_request late;
    struct tdm__id ended = entry->spec->id;
    char key[TDM__STORE_KEY_BYTES];

    assert_true(tdm__node_releases_pause(&scene->own.node));
    tdm__actor_entry_end(entry, true);
    assert_non_null(scene->own.node.actors->pending_releases);
    reserve_fixture_forget(&scene->own.world, tdm__store_key("actor", &ended, key));
    reserve_fixture_forget(&scene->own.world, "name/mine/only");
    next = wish(scene, 0, "name/mine/only");
    next.granted = 1; /* The actor that has ended got the name earlier. */
    TRY(reserve_fixture_take(&scene->own.world, &next));
    tdm__node_reconcile_start(&scene->own.node);
    while (scene->own.node.actors->pending_releases != NULL) {
        run_for(scene, 5);
    }
    late = wish(scene, 0, "name/mine/only");
    assert_int_equal(reserve_fixture_take(&scene->own.world, &late), TDM_E_EXISTS);
    assert_non_null(strstr(scene->own.world.detail, tdm__id_text(&next.actor, key)));
    late = wish(scene, 2, "");
    TRY(reserve_fixture_take(&scene->own.world, &late));
}

/* An ended actor whose release the store may have carried out, or not. */
static struct tdm__actor_record end_without_release(struct scene *scene)
{
    struct actor_entry *entry = run_actor(scene);
    struct tdm__actor_record record = entry->record;

    assert_true(tdm__node_releases_pause(&scene->own.node));
    tdm__actor_entry_end(entry, true);
    assert_non_null(scene->own.node.actors->pending_releases);
    return record;
}

/* The store has carried out the release, its reply was lost, and another actor has the GPU. */
static void release_that_the_store_has_carried_out_takes_nothing_from_others(void **state)
{
    struct scene *scene = *state;
    struct tdm__actor_record record = end_without_release(scene);
    struct tdm__actor_request request = wish(scene, 2, "");

    TRY(reserve_fixture_give_back(&scene->own.world, &record));
    TRY(reserve_fixture_take(&scene->own.world, &request));
    tdm__node_reconcile_start(&scene->own.node);
    while (scene->own.node.actors->pending_releases != NULL) {
        run_for(scene, 5);
    }
    request = wish(scene, 1, "");
    assert_int_equal(reserve_fixture_take(&scene->own.world, &request), TDM_E_AGAIN);
}

/* The node was lost in the meantime, and another of its actors has the GPU. */
static void node_joins_again_without_what_its_ended_actors_held(void **state)
{
    struct scene *scene = *state;
    struct tdm__actor_record record = end_without_release(scene);
    const struct tdm__id *id = &scene->own.node.record.id;
    struct tdm__grant *grants;
    uint32_t grants_count;
    struct tdm__actor_request request;

    TRY(reserve_fixture_give_back(&scene->own.world, &record));
    assert_int_equal(run_actor(scene)->record.grant.gpu_indices[0], record.grant.gpu_indices[0]);
    tdm__node_actors_records_lost(&scene->own.node);
    grants = tdm__node_actor_grants(&scene->own.node, &grants_count);
    assert_int_equal(grants_count, 1);
    reserve_fixture_lose(&scene->own.world, id);
    reserve_fixture_join_again(&scene->own.world, id, "own", 2, grants, grants_count);
    free(grants);
    request = wish(scene, 1, "");
    TRY(reserve_fixture_take(&scene->own.world, &request));
    request = wish(scene, 1, "");
    assert_int_equal(reserve_fixture_take(&scene->own.world, &request), TDM_E_AGAIN);
    tdm__node_reconcile_start(&scene->own.node); /* The late release takes nothing from others. */
    while (scene->own.node.actors->pending_releases != NULL) {
        run_for(scene, 5);
    }
    assert_int_equal(reserve_fixture_take(&scene->own.world, &request), TDM_E_AGAIN);
}

static void names_wait_until_the_other_node_has_settled(void **state)
{
    struct scene *scene = *state;
    uint64_t generation;
    struct tdm__actor_request request;

    scene->other.id = reserve_fixture_join(&scene->own.world, "other", 2);
    tdm__node_reconcile_renewed(&scene->own.node, 1, false, NULL, 0);
    generation = reserve_fixture_new_generation(&scene->own.world);
    tdm__node_reconcile_renewed(&scene->own.node, generation, true, &scene->other, 1);
    wait_until_settled(scene, generation);
    assert_true(scene->own.node.store_view.names_wait);
    request = wish(scene, 0, "name/mine/new");
    assert_int_equal(reserve_fixture_take(&scene->own.world, &request), TDM_E_AGAIN);
    TRY(reserve_fixture_settle(&scene->own.world, &scene->other.id, generation, false));
    tdm__node_reconcile_continue(&scene->own.node);
    run_for(scene, 20);
    assert_false(scene->own.node.store_view.holders_wait);
    assert_true(scene->own.node.store_view.names_wait);
    TRY(reserve_fixture_settle(&scene->own.world, &scene->other.id, generation, true));
    wait_for_names(scene);
}

static bool has_names(void *arg)
{
    return !((const struct scene *)arg)->own.node.store_view.names_wait;
}

/* A caller waits for several steps of each node, which do not each wait for a renewal. */
static void names_are_free_soon_after_the_other_node_has_settled(void **state)
{
    struct scene *scene = *state;
    uint64_t generation;

    (void)run_actor(scene);
    scene->other.id = reserve_fixture_join(&scene->own.world, "other", 2);
    tdm__node_reconcile_renewed(&scene->own.node, 1, false, NULL, 0);
    generation = reserve_fixture_new_generation(&scene->own.world);
    tdm__node_reconcile_renewed(&scene->own.node, generation, true, &scene->other, 1);
    TRY(reserve_fixture_settle(&scene->own.world, &scene->other.id, generation, true));
    TRY(tdm__loop_run(scene->own.world.loop, has_names, scene, tdm__deadline_after(WAIT_MS)));
}

static void names_wait_no_longer_than_missing_nodes_may_return(void **state)
{
    struct scene *scene = *state;
    uint64_t generation;

    scene->other.id = reserve_fixture_join(&scene->own.world, "other", 2);
    tdm__node_reconcile_renewed(&scene->own.node, 1, false, NULL, 0);
    generation = reserve_fixture_new_generation(&scene->own.world);
    tdm__node_reconcile_renewed(&scene->own.node, generation, true, &scene->other, 1);
    wait_until_settled(scene, generation);
    assert_true(scene->own.node.store_view.names_wait);
    tdm__node_reconcile_renewed(&scene->own.node, generation, false, &scene->other, 1);
    assert_false(scene->own.node.store_view.names_wait);
    wait_until_settled(scene, generation);
}

/* Another node, which confirmed its claim after this one, placed the actor later. */
static void claim_that_was_made_later_is_seen_by_the_second_check(void **state)
{
    struct scene *scene = *state;
    struct actor_entry *entry = run_actor(scene);
    struct tdm__actor_record later = entry->record;
    uint64_t generation = go_back(scene, entry);
    struct tdm__store_view view = {.generation = generation};
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    tdm__node_reconcile_renewed(&scene->own.node, 1, false, NULL, 0);
    tdm__node_reconcile_renewed(&scene->own.node, generation, true, NULL, 0);
    wait_until_settled(scene, generation);
    later.node = reserve_fixture_join(&scene->own.world, "other", 2);
    later.placements = 2;
    TRY(reserve_fixture_again_in(&scene->own.world, &later, &view));
    assert_non_null(scene->own.node.actors->all);
    tdm__node_reconcile_renewed(&scene->own.node, generation, false, NULL, 0);
    while (scene->own.node.actors->all != NULL) {
        tdm__node_reconcile_continue(&scene->own.node);
        run_for(scene, 5);
        assert_true(tdm__deadline_remaining_ms(deadline_ms) > 0);
    }
    /* What its process here had comes free, and what it has there is taken. */
    for (int i = 0; i < 4; i++) {
        struct tdm__actor_request request = wish(scene, 1, "");

        assert_int_equal(reserve_fixture_take(&scene->own.world, &request),
                         i < 3 ? TDM_OK : TDM_E_AGAIN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
        CASE(records_and_resources_are_written_again),
        CASE(actor_that_ends_meanwhile_releases_its_resources_once),
        CASE(name_of_an_actor_that_has_ended_stays_with_its_next_holder),
        CASE(release_that_the_store_has_carried_out_takes_nothing_from_others),
        CASE(node_joins_again_without_what_its_ended_actors_held),
        CASE(names_wait_until_the_other_node_has_settled),
        CASE(names_are_free_soon_after_the_other_node_has_settled),
        CASE(names_wait_no_longer_than_missing_nodes_may_return),
        CASE(claim_that_was_made_later_is_seen_by_the_second_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
