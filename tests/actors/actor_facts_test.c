/* actor_facts_test.c - the facts of plain actors, of actors that others may claim, and of guests.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_facts.h"
#include "actors/daemon/actor_placement.h"
#include "runtime/clock.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_plain_actor_has_no_special_facts(void **state)
{
    struct actor_facts facts = tdm__actor_entry_facts(node_fixture_add(*state, ACTOR_WAITING));

    assert_memory_equal(&facts, &(struct actor_facts){.max_restarts = 0}, sizeof(facts));
}

static void test_name_gpu_and_restarts_make_actor_claimable(void **state)
{
    struct actor_entry *named = node_fixture_add(*state, ACTOR_WAITING);
    struct actor_entry *with_gpu = node_fixture_add(*state, ACTOR_WAITING);
    struct actor_entry *restartable = node_fixture_add(*state, ACTOR_WAITING);

    named->spec->name[0] = 'n';
    with_gpu->record.grant.gpus_count = 1;
    restartable->spec->max_restarts = -1;
    assert_true(tdm__actor_entry_facts(named).is_claimable);
    assert_true(tdm__actor_entry_facts(with_gpu).is_claimable);
    assert_true(tdm__actor_entry_facts(restartable).is_claimable);
}

static void test_actor_of_another_owner_is_guest(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);

    entry->owner_node = scene->driver.self.id;
    assert_true(tdm__actor_entry_facts(entry).is_guest);
}

static void test_lost_lease_and_stop_of_node_are_facts(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_WAITING);

    scene->node.lease_status.lost_ms = tdm__clock_ms();
    scene->node.stopping = true;
    assert_true(tdm__actor_entry_facts(entry).lease_was_lost_recently);
    assert_true(tdm__actor_entry_facts(entry).node_is_stopping);
}

/* Only an actor without resources asks for them, so only for such an actor it matters that a
 * release of the same resources is not finished. */
static void test_pending_release_is_fact_of_actor_without_resources(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_ALIVE);

    tdm__actor_entry_release_placement(entry, ACTOR_RESERVES);
    assert_non_null(scene->node.actors->pending_releases);
    assert_false(tdm__actor_entry_facts(entry).is_releasing);
    entry->lifecycle.state = ACTOR_WAITING;
    assert_true(tdm__actor_entry_facts(entry).is_releasing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(test_plain_actor_has_no_special_facts),
        NODE_FIXTURE_TEST(test_name_gpu_and_restarts_make_actor_claimable),
        NODE_FIXTURE_TEST(test_actor_of_another_owner_is_guest),
        NODE_FIXTURE_TEST(test_lost_lease_and_stop_of_node_are_facts),
        NODE_FIXTURE_TEST(test_pending_release_is_fact_of_actor_without_resources),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
