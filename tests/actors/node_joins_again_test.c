/* node_joins_again_test.c - what follows when a node joins again, or should. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_placement.h"
#include "actors/daemon/node_lease.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/node_reconcile.h"
#include "actors/daemon/peer_daemons.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "scheduler/reserve_epoch.h"
#include "tests/support/memory_store.h"
#include "tests/support/node_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 10000 };

/* A node and another one in a store that judges leases. */
struct scene {
    struct node_fixture *fixture;
    struct tdm__store *store; /* owned */
    struct tdm__id other;
    uint64_t epoch;       /* The other node's epoch at the start. */
    uint64_t first_epoch; /* What the node knew as its own epoch when it had joined. */
};

static void on_done(void *arg, tdm_status status, const char *detail)
{
    (void)detail;
    TRY(status);
    *(bool *)arg = true;
}

static bool is_true(void *arg)
{
    return *(bool *)arg;
}

static const struct tdm__node_record *other_in_list(const struct scene *scene)
{
    const struct tdm__live_node *known = tdm__node_peers_find(&scene->fixture->node, &scene->other);

    return known == NULL ? NULL : &known->record;
}

static bool other_is_listed(void *arg)
{
    return other_in_list(arg) != NULL;
}

static bool other_has_new_epoch(void *arg)
{
    const struct scene *scene = arg;

    return other_in_list(arg) != NULL && other_in_list(arg)->epoch > scene->epoch;
}

static void join_other(struct scene *scene)
{
    struct tdm__node_record record = {.id = scene->other, .pid = getpid(), .name = "other"};
    struct tdm__node_resources totals = {.id = scene->other, .name = "other"};
    struct tdm__resources resources = {.cpu = 0};
    bool is_done = false;

    TRY(tdm__resources_add(&resources, "CPU", 8));
    TRY(tdm__pool_init(&totals.pool, &resources));
    TRY(tdm__reserve_node(scene->store, &record, &totals, NULL, 0, tdm__deadline_after(WAIT_MS),
                          on_done, &is_done));
    node_fixture_run(scene->fixture, is_true, &is_done);
}

static int open_scene(void **state)
{
    static struct scene scene;
    void *fixture;
    struct tdm__node *node;
    bool is_done = false;

    (void)node_fixture_open(&fixture);
    scene = (struct scene){.fixture = fixture};
    node = &scene.fixture->node;
    TRY(tdm__store_memory_open(node->loop, &scene.store));
    node->store = scene.store;
    TRY(tdm__id_generate(&scene.other));
    join_other(&scene);
    node->totals.id = node->record.id;
    (void)snprintf(node->totals.name, sizeof(node->totals.name), "%s", node->record.name);
    TRY(tdm__node_reconcile_create(node));
    TRY(tdm__node_lease_start(node, on_done, &is_done));
    node_fixture_run(scene.fixture, is_true, &is_done);
    scene.first_epoch = node->record.epoch;
    tdm__node_lease_check(node);
    node_fixture_run(scene.fixture, other_is_listed, &scene);
    scene.epoch = other_in_list(&scene)->epoch;
    *state = &scene;
    return 0;
}

static int close_scene(void **state)
{
    struct scene *scene = *state;
    struct tdm__node *node = &scene->fixture->node;
    void *fixture = scene->fixture;

    node->stopping = true;
    scene->store->ops->close(scene->store);
    tdm__node_lease_destroy(node);
    tdm__node_reconcile_destroy(node);
    node->store = NULL;
    return node_fixture_close(&fixture);
}

/* Otherwise its processes would connect to other nodes without an epoch, and these could not tell
 * that the node was lost if they have never seen it in a list. */
static void node_that_has_joined_knows_its_epoch(void **state)
{
    const struct scene *scene = *state;

    assert_int_not_equal(scene->first_epoch, 0);
    assert_int_equal(scene->first_epoch, scene->fixture->node.record.epoch);
}

/* As after a partition with two Redis masters: this node has seen the loss of the other one in a
 * store that is gone, and the other one has lived on in this store. */
static void lost_node_in_the_list_gets_a_new_epoch(void **state)
{
    struct scene *scene = *state;
    struct tdm__node *node = &scene->fixture->node;
    const struct tdm__node_record *other;

    tdm__node_lost(node, other_in_list(scene));
    assert_true(tdm__node_was_lost(node, &scene->other, scene->epoch));
    tdm__node_lease_check(node);
    node_fixture_run(scene->fixture, other_has_new_epoch, scene);
    other = other_in_list(scene);
    assert_int_equal(other->lives_since, scene->epoch);
    assert_false(tdm__node_was_lost(node, &scene->other, other->epoch));
}

/* As for a third node, which has never missed the other one. */
static void node_with_a_new_epoch_was_not_lost(void **state)
{
    struct scene *scene = *state;
    struct tdm__node *node = &scene->fixture->node;
    bool is_done = false;

    TRY(tdm__reserve_new_epoch(node->store, &scene->other, scene->epoch,
                               tdm__deadline_after(WAIT_MS), on_done, &is_done));
    node_fixture_run(scene->fixture, is_true, &is_done);
    tdm__node_lease_check(node);
    node_fixture_run(scene->fixture, other_has_new_epoch, scene);
    assert_false(tdm__node_was_lost(node, &scene->other, scene->epoch));
}

/* As for the node itself: its processes state the new epoch, and the workers of other nodes' actors
 * do when these nodes have confirmed the actors, which are asked while the lease counts as new. */
static void node_learns_its_new_epoch(void **state)
{
    struct scene *scene = *state;
    struct tdm__node *node = &scene->fixture->node;
    uint64_t epoch = node->record.epoch;
    bool is_done = false;

    assert_int_not_equal(epoch, 0);
    assert_int_equal(node->lease_status.lost_ms, 0);
    TRY(tdm__reserve_new_epoch(node->store, &node->record.id, epoch, tdm__deadline_after(WAIT_MS),
                               on_done, &is_done));
    node_fixture_run(scene->fixture, is_true, &is_done);
    tdm__node_lease_check(node);
    node_fixture_settle(scene->fixture);
    assert_true(node->record.epoch > epoch);
    assert_true(tdm__lease_status_was_lost(&node->lease_status));
}

static bool is_renewed(void *arg)
{
    const struct scene *scene = arg;
    const struct tdm__node *node = &scene->fixture->node;

    return !node->lease_status.is_joining && node->record.epoch > scene->epoch;
}

/* The node was taken over, for example because it could not reach the store. Its new record has no
 * renewals yet, which does not mean that the store has lost any. */
static void node_that_joins_again_begins_no_generation(void **state)
{
    struct scene *scene = *state;
    struct tdm__node *node = &scene->fixture->node;
    uint64_t generation = node->store_view.generation;
    bool is_done = false;

    for (int i = 0; i < 3; i++) {
        tdm__node_lease_check(node);
        node_fixture_settle(scene->fixture);
    }
    scene->epoch = node->record.epoch;
    TRY(tdm__reserve_leave(node->store, &node->record.id, tdm__deadline_after(WAIT_MS), on_done,
                           &is_done));
    node_fixture_run(scene->fixture, is_true, &is_done);
    tdm__node_lease_check(node); /* It is refused, and joins. */
    for (int i = 0; i < 3; i++) {
        node_fixture_settle(scene->fixture);
        tdm__node_lease_check(node);
    }
    node_fixture_run(scene->fixture, is_renewed, scene);
    assert_int_equal(node->store_view.generation, generation);
}

/* Removes the node's record, and lets the node join again. */
static void lose_record(struct scene *scene)
{
    struct tdm__node *node = &scene->fixture->node;
    bool is_done = false;

    scene->epoch = node->record.epoch;
    TRY(tdm__reserve_leave(node->store, &node->record.id, tdm__deadline_after(WAIT_MS), on_done,
                           &is_done));
    node_fixture_run(scene->fixture, is_true, &is_done);
    tdm__node_lease_check(node); /* It is refused, and joins. */
    node_fixture_settle(scene->fixture);
    node_fixture_run(scene->fixture, is_renewed, scene);
}

/* No other node has taken it over before the end of its lease: the store has lost the record. A
 * node that learns of the new record later, when missing nodes count as lost, sees that, too. */
static void node_that_joins_within_its_lease_was_not_lost(void **state)
{
    struct scene *scene = *state;
    struct tdm__node *node = &scene->fixture->node;
    uint64_t first_epoch = node->record.epoch;

    lose_record(scene);
    assert_int_equal(node->record.lives_since, first_epoch);
    lose_record(scene);
    assert_int_equal(node->record.lives_since, first_epoch);
    node->lease_status.fence_ms = 1; /* The lease has ended long ago. */
    lose_record(scene);
    assert_int_equal(node->record.lives_since, 0);
}

/* ---- actors on the other node ----------------------------------------------------------- */

static const struct tdm__store_ops *memory_ops;
static struct tdm__store_ops changed_ops; /* The same, but renewals are changed. */
static tdm__store_renewed_fn *renewed_fn;

static void on_renewed_without_hold(void *arg, tdm_status status,
                                    const struct tdm__store_renewed *renewed,
                                    const struct tdm__store_record *members, uint32_t members_count)
{
    struct tdm__store_renewed changed =
        status == TDM_OK ? *renewed : (struct tdm__store_renewed){0};

    changed.held_ms = 0;
    renewed_fn(arg, status, &changed, members, members_count);
}

static void renew_without_hold(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                               int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    renewed_fn = fn;
    memory_ops->renew(store, renewal, deadline_ms, on_renewed_without_hold, arg);
}

/* From now on the store has been there for so long that missing nodes count as lost. */
static void end_hold(const struct scene *scene)
{
    memory_ops = scene->store->ops;
    changed_ops = *memory_ops;
    changed_ops.renew = renew_without_hold;
    scene->store->ops = &changed_ops;
    node_fixture_settle(scene->fixture);
}

/* The other node is lost and joins again, before this node gets another list. */
static void lose_other_for_a_moment(struct scene *scene)
{
    bool is_done = false;

    TRY(tdm__reserve_leave(scene->store, &scene->other, tdm__deadline_after(WAIT_MS), on_done,
                           &is_done));
    node_fixture_run(scene->fixture, is_true, &is_done);
    join_other(scene);
}

static bool is_placed(void *arg)
{
    const struct actor_entry *entry = arg;

    return entry->lifecycle.state != ACTOR_PLACING;
}

/* Places an actor, for which only the other node has room, and which that one starts. */
static struct actor_entry *place_on_other(struct scene *scene)
{
    struct actor_entry *entry = node_fixture_add(scene->fixture, ACTOR_PLACING);

    TRY(tdm__resources_add(&entry->spec->placement.wanted, "CPU", 1));
    tdm__actor_entry_reserve(entry);
    node_fixture_run(scene->fixture, is_placed, entry);
    node_fixture_settle(scene->fixture);
    assert_true(tdm__id_equal(&entry->record.node, &scene->other));
    entry->lifecycle.state = ACTOR_REMOTE;
    return entry;
}

/* The actor runs in the epoch in which the node has joined again. */
static void loss_before_the_placement_does_not_concern_the_actor(void **state)
{
    struct scene *scene = *state;
    struct tdm__id actor;

    end_hold(scene);
    lose_other_for_a_moment(scene);
    actor = place_on_other(scene)->spec->id;
    tdm__node_lease_check(&scene->fixture->node);
    node_fixture_run(scene->fixture, other_has_new_epoch, scene);
    assert_non_null(tdm__actor_entry_find(&scene->fixture->node, &actor));
    assert_true(tdm__node_was_lost(&scene->fixture->node, &scene->other, scene->epoch));
}

static bool has_no_actor(void *arg)
{
    return ((const struct scene *)arg)->fixture->node.actors->all == NULL;
}

/* The reply of the store comes after the list that shows the loss. */
static void loss_that_is_known_before_the_placement_ends_the_actor(void **state)
{
    struct scene *scene = *state;
    struct actor_entry *entry = place_on_other(scene);

    end_hold(scene);
    entry->lifecycle.state = ACTOR_PLACING;
    lose_other_for_a_moment(scene);
    tdm__node_lease_check(&scene->fixture->node);
    node_fixture_run(scene->fixture, other_has_new_epoch, scene);
    entry->lifecycle.state = ACTOR_REMOTE;
    tdm__node_lease_check(&scene->fixture->node);
    node_fixture_run(scene->fixture, has_no_actor, scene);
}

static void on_renewed_earlier(void *arg, tdm_status status,
                               const struct tdm__store_renewed *renewed,
                               const struct tdm__store_record *members, uint32_t members_count)
{
    struct tdm__store_renewed earlier = *renewed;

    earlier.clock_ms = 0;
    renewed_fn(arg, status, &earlier, members, members_count);
}

static void renew_earlier(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                          int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    renewed_fn = fn;
    memory_ops->renew(store, renewal, deadline_ms, on_renewed_earlier, arg);
}

/* The node has joined again since the time to which the store went back, so that no count of
 * renewals shows that the store lost changes. */
static void store_whose_clock_went_back_has_lost_changes(void **state)
{
    struct scene *scene = *state;
    struct tdm__node *node = &scene->fixture->node;
    uint64_t generation = node->store_view.generation;

    for (int i = 0; i < 3; i++) { /* The clock advances. */
        (void)poll(NULL, 0, 5);
        tdm__node_lease_check(node);
        node_fixture_settle(scene->fixture);
    }
    assert_int_equal(node->store_view.generation, generation);
    memory_ops = scene->store->ops;
    changed_ops = *memory_ops;
    changed_ops.renew = renew_earlier;
    scene->store->ops = &changed_ops;
    for (int i = 0; i < 3; i++) {
        tdm__node_lease_check(node);
        node_fixture_settle(scene->fixture);
    }
    assert_true(node->store_view.generation > generation);
}

static void *renewed_arg;

/* Keeps the renewal, for the test to reply to. */
static void hold_renewal(struct tdm__store *store, const struct tdm__store_renewal *renewal,
                         int64_t deadline_ms, tdm__store_renewed_fn *fn, void *arg)
{
    (void)store;
    (void)renewal;
    (void)deadline_ms;
    renewed_fn = fn;
    renewed_arg = arg;
}

/* A renewal is under way meanwhile. It finds no record of the node any more, or the connection to
 * the store ends. */
static void node_that_leaves_warns_of_nothing(void **state)
{
    static const tdm_status outcomes[] = {TDM_E_CONFLICT, TDM_E_STORE};
    struct scene *scene = *state;
    struct tdm__node *node = &scene->fixture->node;
    bool is_done = false;
    char said[1024] = "";
    int log = memfd_create("log", MFD_CLOEXEC);

    memory_ops = scene->store->ops;
    changed_ops = *memory_ops;
    changed_ops.renew = hold_renewal;
    scene->store->ops = &changed_ops;
    node_fixture_settle(scene->fixture);
    tdm__node_lease_check(node);
    assert_non_null(renewed_arg);
    tdm__log_add_output(log);
    node->stopping = true;
    TRY(tdm__node_leave(node, on_done, &is_done));
    node_fixture_run(scene->fixture, is_true, &is_done);
    for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
        renewed_fn(renewed_arg, outcomes[i], NULL, NULL, 0);
        node_fixture_settle(scene->fixture);
    }
    if (pread(log, said, sizeof(said) - 1, 0) != 0) {
        fail_msg("%s", said);
    }
    scene->store->ops = memory_ops;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
        CASE(node_that_has_joined_knows_its_epoch),
        CASE(lost_node_in_the_list_gets_a_new_epoch),
        CASE(node_with_a_new_epoch_was_not_lost),
        CASE(node_learns_its_new_epoch),
        CASE(node_that_joins_again_begins_no_generation),
        CASE(node_that_joins_within_its_lease_was_not_lost),
        CASE(loss_before_the_placement_does_not_concern_the_actor),
        CASE(loss_that_is_known_before_the_placement_ends_the_actor),
        CASE(store_whose_clock_went_back_has_lost_changes),
        CASE(node_that_leaves_warns_of_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
