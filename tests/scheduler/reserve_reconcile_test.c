/* reserve_reconcile_test.c - nodes write what they hold into a store that went back in time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reserve_reconcile.h"

#include "runtime/clock.h"
#include "tests/support/memory_store.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static struct reserve_fixture world;
static struct tdm__node_resources totals; /* Two GPUs and eight CPUs, as the nodes have. */

static int open_world(void **state)
{
    struct tdm__resources resources = {.cpu = 0};

    (void)state;
    (void)snprintf(totals.name, sizeof(totals.name), "one");
    TRY(tdm__resources_add(&resources, "GPU", 2));
    TRY(tdm__resources_add(&resources, "CPU", 8));
    TRY(tdm__pool_init(&totals.pool, &resources));
    return reserve_fixture_open(&world);
}

static int close_world(void **state)
{
    (void)state;
    reserve_fixture_close(&world);
    return 0;
}

static struct tdm__id join(const char *name)
{
    return reserve_fixture_join(&world, name, 2);
}

static struct tdm__actor_request wish(double gpus, const char *name)
{
    struct tdm__actor_request request = reserve_fixture_wish(gpus, name);

    request.placements = 1;
    return request;
}

/* Places an actor and returns its record as its daemon keeps it. */
static struct tdm__actor_record place(const struct tdm__actor_request *request)
{
    struct tdm__actor_record record = {.actor = request->actor,
                                       .group = request->group,
                                       .bundle = request->bundle,
                                       .placements = request->placements,
                                       .granted = request->granted};

    TRY(reserve_fixture_take(&world, request));
    record.node = world.reserved.node.id;
    record.grant = world.reserved.grant;
    memcpy(record.name_key, request->name_key, sizeof(record.name_key));
    return record;
}

static struct tdm__node_holdings holdings_of(const struct tdm__id *node,
                                             const struct tdm__actor_record *actors, uint32_t count)
{
    totals.id = *node;
    return (struct tdm__node_holdings){
        .node = *node, .totals = &totals, .actors = actors, .actors_count = count};
}

static void reconcile(const struct tdm__id *node, const struct tdm__actor_record *actors,
                      uint32_t count, const struct tdm__store_view *view)
{
    struct tdm__node_holdings holdings = holdings_of(node, actors, count);

    TRY(reserve_fixture_reconcile(&world, &holdings, view));
}

static void expect_free_gpus(uint32_t expected)
{
    uint32_t count = 0;
    struct tdm__actor_request request = wish(1, "");

    while (reserve_fixture_take(&world, &request) == TDM_OK) {
        request = wish(1, "");
        count++;
    }
    assert_int_equal(count, expected);
}

static void expect_name(const char *name, tdm_status status)
{
    struct tdm__actor_request request = wish(0, name);

    assert_int_equal(reserve_fixture_take(&world, &request), status);
}

/* The snapshot is older than the placement. */
static void no_gpu_is_booked_twice(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(1, "name/lab/trainer");
    struct tdm__actor_record running = place(&request);
    struct tdm__store_view view = {0};
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    reserve_fixture_empty(&world, &node);
    reserve_fixture_forget(&world, tdm__store_key("actor", &running.actor, key));
    reserve_fixture_forget(&world, running.name_key);
    view.generation = reserve_fixture_new_generation(&world);
    view.names_wait = true;
    reconcile(&node, &running, 1, &view);
    reconcile(&node, &running, 1, &view);
    TRY(reserve_fixture_again_in(&world, &running, &view));
    expect_name("name/lab/trainer", TDM_E_EXISTS);
    expect_free_gpus(1);
}

/* The snapshot is older than the actor's end. */
static void name_and_resources_of_a_dead_actor_become_free(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(2, "name/lab/trainer");
    struct tdm__store_view view = {0};

    (void)state;
    (void)place(&request);
    expect_name("name/lab/trainer", TDM_E_EXISTS);
    view.generation = reserve_fixture_new_generation(&world);
    reconcile(&node, NULL, 0, &view);
    expect_name("name/lab/trainer", TDM_OK);
    expect_free_gpus(2);
}

/* The snapshot is older than the actor's move from the first node to the second. */
static void actor_that_has_moved_stays_where_it_runs(void **state)
{
    (void)state;
    for (int second_is_first = 0; second_is_first < 2; second_is_first++) {
        struct tdm__id nodes[2] = {join("one"), join("two")};
        struct tdm__actor_request request = wish(2, "name/lab/trainer");
        struct tdm__actor_record stored = place(&request);
        struct tdm__actor_record running = stored;
        struct tdm__id *from = &nodes[tdm__id_equal(&stored.node, &nodes[0]) ? 0 : 1];
        struct tdm__id *to = from == &nodes[0] ? &nodes[1] : &nodes[0];
        struct tdm__store_view view = {.generation = reserve_fixture_new_generation(&world)};

        running.node = *to;
        running.placements = 2;
        if (second_is_first != 0) {
            reconcile(to, &running, 1, &view);
            reconcile(from, NULL, 0, &view);
        } else {
            reconcile(from, NULL, 0, &view);
            reconcile(to, &running, 1, &view);
        }
        TRY(reserve_fixture_again_in(&world, &running, &view));
        expect_name("name/lab/trainer", TDM_E_EXISTS);
        expect_free_gpus(2);
        TRY(reserve_fixture_give_back(&world, &running));
        reserve_fixture_lose(&world, &nodes[0]);
        reserve_fixture_lose(&world, &nodes[1]);
    }
}

/* Both run, since the first node could not be told to end its process. */
static void later_placement_stays_and_the_earlier_one_ends(void **state)
{
    (void)state;
    for (int later_is_first = 0; later_is_first < 2; later_is_first++) {
        struct tdm__id nodes[2] = {join("one"), join("two")};
        struct tdm__actor_request request = wish(2, "name/lab/trainer");
        struct tdm__actor_record earlier = place(&request);
        struct tdm__actor_record later = earlier;
        struct tdm__store_view view = {.generation = reserve_fixture_new_generation(&world)};

        later.node = tdm__id_equal(&earlier.node, &nodes[0]) ? nodes[1] : nodes[0];
        later.placements = 2;
        reconcile(later_is_first != 0 ? &later.node : &earlier.node,
                  later_is_first != 0 ? &later : &earlier, 1, &view);
        reconcile(later_is_first != 0 ? &earlier.node : &later.node,
                  later_is_first != 0 ? &earlier : &later, 1, &view);
        TRY(reserve_fixture_again_in(&world, &later, &view));
        assert_int_equal(reserve_fixture_again_in(&world, &earlier, &view), TDM_E_EXISTS);
        /* A node that finds the later placement does not count its own, which ends. */
        expect_free_gpus(later_is_first != 0 ? 2 : 0);
        /* Its process has ended. */
        assert_int_equal(reserve_fixture_give_back(&world, &earlier), TDM_E_EXISTS);
        expect_free_gpus(0);
        reconcile(&earlier.node, NULL, 0, &view);
        expect_free_gpus(later_is_first != 0 ? 0 : 2);
        expect_name("name/lab/trainer", TDM_E_EXISTS);
        reserve_fixture_lose(&world, &nodes[0]);
        reserve_fixture_lose(&world, &nodes[1]);
    }
}

/* Another daemon placed actors here after the store went back, one of them where a GPU is taken. */
static void actor_placed_since_is_expected_if_it_fits(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request first = wish(1, "");
    struct tdm__actor_request request = wish(1, "name/lab/wrong");
    struct tdm__actor_record running = place(&first);
    struct tdm__actor_record wrong;
    struct tdm__actor_record right;
    struct tdm__store_view view = {0};

    (void)state;
    reserve_fixture_empty(&world, &node);
    view.generation = reserve_fixture_new_generation(&world);
    wrong = place(&request);
    assert_int_equal(wrong.grant.gpu_indices[0], running.grant.gpu_indices[0]);
    request = wish(1, "name/lab/right");
    right = place(&request);
    reconcile(&node, &running, 1, &view);
    expect_name("name/lab/right", TDM_E_EXISTS);
    expect_name("name/lab/wrong", TDM_OK);
    expect_free_gpus(0);
    TRY(reserve_fixture_give_back(&world, &wrong)); /* It was refused; nothing comes free. */
    expect_free_gpus(0);
    TRY(reserve_fixture_give_back(&world, &right));
    expect_free_gpus(1);
}

/* The node of an actor's creator was lost between its reservation and its request to start it. */
static void actor_that_nobody_will_start_is_removed(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__id owner = reserve_fixture_join(&world, "owner", 0);
    struct tdm__actor_request request = wish(2, "name/lab/orphan");
    struct tdm__store_view view = {0};
    struct tdm__node_holdings holdings = holdings_of(&node, NULL, 0);

    (void)state;
    request.placement.owner_node = owner;
    (void)place(&request);
    holdings.removes_orphans = true;
    TRY(reserve_fixture_reconcile(&world, &holdings, &view));
    assert_int_equal(world.removed_count, 0); /* The request may still come. */
    reserve_fixture_lose(&world, &owner);
    reconcile(&node, NULL, 0, &view);
    assert_int_equal(world.removed_count, 0); /* Nobody says that lost nodes count as lost. */
    TRY(reserve_fixture_reconcile(&world, &holdings, &view));
    assert_int_equal(world.removed_count, 1);
    expect_name("name/lab/orphan", TDM_OK);
    expect_free_gpus(2);
}

/* Its node has reported the end, and was lost before it could give anything back. */
static void actor_that_its_owner_does_not_know_any_more_is_removed(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__id owner = reserve_fixture_join(&world, "owner", 0);
    struct tdm__actor_request request = wish(2, "name/lab/ended");
    struct tdm__store_view view = {0};
    struct tdm__node_holdings holdings = holdings_of(&owner, NULL, 0);

    (void)state;
    request.placement.owner_node = owner;
    request.recreate_on_node_loss = true;
    (void)place(&request);
    holdings.removes_orphans = true;
    holdings.known = &request.actor;
    TRY(reserve_fixture_reconcile(&world, &holdings, &view));
    assert_int_equal(world.removed_count, 0); /* Its node is there. */
    reserve_fixture_lose(&world, &node);
    holdings.known_count = 1;
    TRY(reserve_fixture_reconcile(&world, &holdings, &view));
    assert_int_equal(world.removed_count, 0); /* The owner's node places it again. */
    holdings.known_count = 0;
    TRY(reserve_fixture_reconcile(&world, &holdings, &view));
    assert_int_equal(world.removed_count, 1);
    expect_name("name/lab/ended", TDM_OK);
}

/* The group was removed after the snapshot, and an actor has got one of its GPUs. */
static void stale_group_loses_the_bundle_whose_gpu_is_taken(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(1, "");
    struct tdm__actor_record running = place(&request);
    struct tdm__store_view view = {0};
    struct tdm__id group;

    (void)state;
    TRY(tdm__id_generate(&group));
    reserve_fixture_empty(&world, &node);
    TRY(reserve_fixture_group(&world, &group, 1, 2, TDM_PACK));
    view.generation = reserve_fixture_new_generation(&world);
    reconcile(&node, &running, 1, &view);
    expect_free_gpus(0);
    TRY(reserve_fixture_ungroup(&world, &group));
    expect_free_gpus(1);
}

static void groups_that_their_node_does_not_know_are_reported(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__id groups[2];
    struct tdm__resources bundle = {.cpu = 0};
    struct tdm__store_view view = {0};
    struct tdm__node_holdings holdings = holdings_of(&node, NULL, 0);

    (void)state;
    TRY(tdm__resources_add(&bundle, "GPU", 1));
    for (uint32_t i = 0; i < 2; i++) {
        TRY(tdm__id_generate(&groups[i]));
        TRY(reserve_fixture_group_by(
            &world,
            &(struct tdm__placement_group_request){
                .id = groups[i], .bundles = &bundle, .bundles_count = 1, .owner_node = node}));
    }
    holdings.groups = groups;
    holdings.groups_count = 1;
    view.generation = reserve_fixture_new_generation(&world);
    TRY(reserve_fixture_reconcile(&world, &holdings, &view));
    assert_int_equal(world.stale_count, 1);
    assert_true(tdm__id_equal(&world.stale[0], &groups[1]));
}

/* The snapshot knows an actor in the bundle that has ended, and lacks one that runs. */
static void bundle_has_the_resources_that_its_actors_leave(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(1, "");
    struct tdm__actor_record running;
    struct tdm__store_view view = {0};
    struct tdm__id group;

    (void)state;
    TRY(tdm__id_generate(&group));
    TRY(reserve_fixture_group(&world, &group, 2, 1, TDM_PACK));
    request.group = group;
    running = place(&request);
    TRY(tdm__id_generate(&running.actor));
    view.generation = reserve_fixture_new_generation(&world);
    reconcile(&node, &running, 1, &view);
    TRY(reserve_fixture_again_in(&world, &running, &view));
    request = wish(1, "");
    request.group = group;
    TRY(reserve_fixture_take(&world, &request));
    request = wish(1, "");
    request.group = group;
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_AGAIN);
    TRY(reserve_fixture_give_back(&world, &running));
    TRY(reserve_fixture_take(&world, &request));
}

/* The store lost the group too, and its creator's node writes it again later. */
/* In the snapshot the group is smaller than it is. */
static void wrong_record_of_a_group_is_replaced(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__store_view view = {0};
    struct tdm__id group;
    struct tdm__placement_group_record right;
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    TRY(tdm__id_generate(&group));
    TRY(reserve_fixture_group(&world, &group, 1, 2, TDM_PACK));
    TRY(tdm__placement_group_record_copy(&world.group, &right));
    reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
    reserve_fixture_empty(&world, &node);
    TRY(reserve_fixture_group(&world, &group, 1, 1, TDM_PACK));
    view.generation = reserve_fixture_new_generation(&world);
    reconcile(&node, NULL, 0, &view);
    tdm__placement_group_record_fini(&world.group);
    world.group = right;
    for (int i = 0; i < 2; i++) {
        TRY(reserve_fixture_group_again_in(&world, false, &view));
    }
    expect_free_gpus(0);
    TRY(reserve_fixture_ungroup(&world, &group));
    expect_free_gpus(2);
}

static void new_group_gets_no_name_while_names_wait(void **state)
{
    struct tdm__resources bundle = {.cpu = 0};
    struct tdm__store_view view = {.names_wait = true};
    struct tdm__placement_group_request request = {
        .bundles = &bundle, .bundles_count = 1, .name = "team", .view = &view};

    (void)state;
    (void)join("one");
    TRY(tdm__id_generate(&request.id));
    TRY(tdm__resources_add(&bundle, "GPU", 1));
    view.generation = reserve_fixture_new_generation(&world);
    assert_int_equal(reserve_fixture_group_by(&world, &request), TDM_E_AGAIN);
    view.names_wait = false;
    TRY(reserve_fixture_group_by(&world, &request));
}

static void actor_waits_for_the_record_of_its_group(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(1, "");
    struct tdm__actor_record running;
    struct tdm__store_view view = {0};
    struct tdm__id group;
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    TRY(tdm__id_generate(&group));
    TRY(reserve_fixture_group(&world, &group, 2, 1, TDM_PACK));
    request.group = group;
    running = place(&request);
    reserve_fixture_forget(&world, tdm__store_key("group", &group, key));
    reserve_fixture_forget(&world, tdm__store_key("actor", &running.actor, key));
    view.generation = reserve_fixture_new_generation(&world);
    reconcile(&node, &running, 1, &view);
    assert_int_equal(reserve_fixture_again_in(&world, &running, &view), TDM_E_NOT_FOUND);
    TRY(reserve_fixture_group_again(&world, false));
    TRY(reserve_fixture_again_in(&world, &running, &view));
    request = wish(2, "");
    request.group = group;
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_AGAIN);
}

/* The snapshot says that an actor of the first node has the name; it has ended since, and an actor
 * of the second node got the name. */
static void name_waits_until_the_node_of_its_old_holder_has_written_its_records(void **state)
{
    struct tdm__id nodes[2] = {join("one"), join("two")};
    struct tdm__actor_request request = wish(0, "name/lab/trainer");
    struct tdm__actor_record old = place(&request);
    struct tdm__actor_record running = old;
    struct tdm__store_view view = {.names_wait = true, .holders_wait = true};

    (void)state;
    TRY(tdm__id_generate(&running.actor));
    running.node = tdm__id_equal(&old.node, &nodes[0]) ? nodes[1] : nodes[0];
    view.generation = reserve_fixture_new_generation(&world);
    reconcile(&running.node, &running, 1, &view);
    assert_int_equal(reserve_fixture_again_in(&world, &running, &view), TDM_E_AGAIN);
    assert_non_null(strstr(world.detail, "name"));
    reconcile(&old.node, NULL, 0, &view);
    TRY(reserve_fixture_again_in(&world, &running, &view));
    /* The old holder would be told that the name is taken. */
    old.granted = running.granted + 1;
    assert_int_equal(reserve_fixture_again_in(&world, &old, &view), TDM_E_EXISTS);
    assert_non_null(strstr(world.detail, "the name \"trainer\" is taken by actor "));
}

static void older_grant_of_a_name_stays(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(0, "name/lab/trainer");
    struct tdm__actor_record older;
    struct tdm__actor_record younger;
    struct tdm__store_view view = {0};

    (void)state;
    older = place(&request);
    reserve_fixture_forget(&world, older.name_key);
    view.generation = reserve_fixture_new_generation(&world);
    request = wish(0, "name/lab/trainer");
    request.granted = view.generation;
    request.view = &view;
    younger = place(&request); /* A daemon that does not know the first node. */
    reconcile(&node, (struct tdm__actor_record[]){older, younger}, 2, &view);
    TRY(reserve_fixture_again_in(&world, &older, &view));
    assert_int_equal(reserve_fixture_again_in(&world, &younger, &view), TDM_E_EXISTS);
    assert_non_null(strstr(world.detail, "the name \"trainer\" is taken by actor "));
}

static void new_actor_gets_no_name_while_names_wait(void **state)
{
    struct tdm__actor_request request = wish(0, "name/lab/trainer");
    struct tdm__store_view view = {.names_wait = true};

    (void)state;
    (void)join("one");
    view.generation = reserve_fixture_new_generation(&world);
    request.view = &view;
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_AGAIN);
    assert_non_null(strstr(world.detail, "\"trainer\""));
    view.names_wait = false;
    TRY(reserve_fixture_take(&world, &request));
}

/* The next renewal of the daemon's lease, which tells it of the new generation, has not ended. */
static void new_actor_gets_no_name_in_a_generation_that_is_not_known(void **state)
{
    struct tdm__actor_request request = wish(0, "name/lab/trainer");
    struct tdm__actor_request nameless = wish(0, "");
    struct tdm__store_view view = {0};

    (void)state;
    (void)join("one");
    view.generation = reserve_fixture_new_generation(&world);
    request.view = &view;
    nameless.view = &view;
    memory_store_replace(world.store);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_AGAIN);
    assert_non_null(strstr(world.detail, "name/lab/trainer"));
    (void)reserve_fixture_new_generation(&world);
    assert_int_equal(reserve_fixture_take(&world, &request), TDM_E_AGAIN);
    TRY(reserve_fixture_take(&world, &nameless));
    view.generation = reserve_fixture_new_generation(&world);
    TRY(reserve_fixture_take(&world, &request));
}

/* The record of the first placement came back with the snapshot. */
static void later_placement_does_not_take_the_record_of_an_earlier_one(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(2, "");
    struct tdm__store_view view = {0};

    (void)state;
    (void)place(&request);
    request.placements = 2;
    view.generation = reserve_fixture_new_generation(&world);
    request.view = &view;
    TRY(reserve_fixture_take(&world, &request));
    assert_int_equal(world.reserved.generation, view.generation);
    reconcile(&node, NULL, 0, &view);
    TRY(reserve_fixture_take(&world, &request)); /* The same placement. */
    expect_free_gpus(0);
}

/* One commit may only have so many writes. */
static void many_stale_records_are_deleted_in_several_commits(void **state)
{
    enum { ACTORS = 1600 };
    struct tdm__id node = join("one");
    struct tdm__store_view view = {0};
    struct tdm__node_holdings holdings = holdings_of(&node, NULL, 0);

    (void)state;
    for (uint32_t i = 0; i < ACTORS; i++) {
        char name[TDM__STORE_KEY_BYTES];
        struct tdm__actor_request request;

        (void)snprintf(name, sizeof(name), "name/lab/%u", i);
        request = wish(0, name);
        (void)place(&request);
    }
    view.generation = reserve_fixture_new_generation(&world);
    assert_int_equal(reserve_fixture_reconcile(&world, &holdings, &view), TDM_E_AGAIN);
    TRY(reserve_fixture_reconcile(&world, &holdings, &view));
    expect_name("name/lab/0", TDM_OK);
    expect_name("name/lab/1599", TDM_OK);
}

static void lost_node_joins_before_it_writes_its_records(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__node_holdings holdings = holdings_of(&node, NULL, 0);
    struct tdm__store_view view = {.generation = 1};

    (void)state;
    reserve_fixture_lose(&world, &node);
    assert_int_equal(reserve_fixture_reconcile(&world, &holdings, &view), TDM_E_AGAIN);
    assert_int_equal(reserve_fixture_settle(&world, &node, 1, false), TDM_E_AGAIN);
    reserve_fixture_join_again(&world, &node, "one", 2, NULL, 0);
    TRY(reserve_fixture_settle(&world, &node, 1, false));
    TRY(reserve_fixture_settle(&world, &node, 1, false));
}

/* ---- releases at the same time ---------------------------------------------------------- */

/* The outcome of a reconciliation that the test has started. */
struct started {
    bool has_ended;
    tdm_status status;
};

static void on_started_ended(void *arg, tdm_status status, const char *detail,
                             const struct tdm__reconciled *reconciled)
{
    (void)detail;
    (void)reconciled;
    *(struct started *)arg = (struct started){true, status};
}

static bool started_has_ended(void *arg)
{
    return ((const struct started *)arg)->has_ended;
}

/* Starts a reconciliation, and releases the actor between its read and its commit. */
static void reconcile_around_release(const struct tdm__id *node,
                                     const struct tdm__actor_record *actors, uint32_t count,
                                     const struct tdm__actor_record *released)
{
    struct tdm__node_holdings holdings = holdings_of(node, actors, count);
    static const struct tdm__store_view nothing;
    struct started started = {.has_ended = false};

    TRY(tdm__reserve_reconcile(world.store, &holdings, &nothing, tdm__deadline_after(10000),
                               on_started_ended, &started));
    TRY(reserve_fixture_give_back(&world, released));
    TRY(tdm__loop_run(world.loop, started_has_ended, &started, tdm__deadline_after(10000)));
    TRY(started.status);
}

/* The node has joined again and does not count an actor of another node. That node releases the
 * actor when it ends, and this node does so, too. */
static void actor_that_is_released_before_its_node_counts_it_is_given_back(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(1, "");
    struct tdm__actor_record actors[2] = {place(&request)};

    (void)state;
    reserve_fixture_empty(&world, &node);
    request = wish(0, "");
    actors[1] = place(&request); /* Now the cache has all records, so that a release is at once. */
    reconcile_around_release(&node, actors, 2, &actors[0]);
    TRY(reserve_fixture_give_back(&world, &actors[0]));
    expect_free_gpus(2);
}

/* The same in the bundle of a group whose creator has written the group again. */
static void actor_that_is_released_before_its_bundle_counts_it_is_given_back(void **state)
{
    struct tdm__id node = join("one");
    struct tdm__actor_request request = wish(2, "");
    struct tdm__actor_record running;
    char key[TDM__STORE_KEY_BYTES];

    (void)state;
    TRY(tdm__id_generate(&request.group));
    TRY(reserve_fixture_group(&world, &request.group, 2, 1, TDM_PACK));
    running = place(&request);
    reserve_fixture_forget(&world, tdm__store_key("group", &request.group, key));
    reserve_fixture_empty(&world, &node);
    TRY(reserve_fixture_group_again(&world, false));
    reconcile_around_release(&node, &running, 1, &running);
    TRY(reserve_fixture_give_back(&world, &running));
    TRY(tdm__id_generate(&request.actor));
    TRY(reserve_fixture_take(&world, &request));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
        CASE(no_gpu_is_booked_twice),
        CASE(name_and_resources_of_a_dead_actor_become_free),
        CASE(actor_that_has_moved_stays_where_it_runs),
        CASE(later_placement_stays_and_the_earlier_one_ends),
        CASE(actor_placed_since_is_expected_if_it_fits),
        CASE(actor_that_nobody_will_start_is_removed),
        CASE(actor_that_its_owner_does_not_know_any_more_is_removed),
        CASE(stale_group_loses_the_bundle_whose_gpu_is_taken),
        CASE(groups_that_their_node_does_not_know_are_reported),
        CASE(bundle_has_the_resources_that_its_actors_leave),
        CASE(wrong_record_of_a_group_is_replaced),
        CASE(new_group_gets_no_name_while_names_wait),
        CASE(actor_waits_for_the_record_of_its_group),
        CASE(name_waits_until_the_node_of_its_old_holder_has_written_its_records),
        CASE(older_grant_of_a_name_stays),
        CASE(new_actor_gets_no_name_while_names_wait),
        CASE(new_actor_gets_no_name_in_a_generation_that_is_not_known),
        CASE(later_placement_does_not_take_the_record_of_an_earlier_one),
        CASE(many_stale_records_are_deleted_in_several_commits),
        CASE(actor_that_is_released_before_its_node_counts_it_is_given_back),
        CASE(actor_that_is_released_before_its_bundle_counts_it_is_given_back),
        CASE(lost_node_joins_before_it_writes_its_records),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
