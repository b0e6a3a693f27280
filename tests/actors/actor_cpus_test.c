/* actor_cpus_test.c - which process may lend an actor's CPUs, and what the daemon remembers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_cpus.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Says as the process `id` that it lends CPUs, or takes them back. */
static tdm_status lend_as(struct node_fixture *scene, enum tdm__peer_kind kind,
                          const struct tdm__id *id, int is_lent)
{
    struct remote_peer process;
    tdm_status reply;

    remote_peer_open(&process, scene->world.loop, kind, "process");
    process.self.id = *id;
    tdm__rpc_set_identity(process.rpc, &process.self);
    remote_peer_connect(&process, scene->address);
    reply = remote_peer_call(&process, "actor.cpus", "?", is_lent);
    remote_peer_close(&process);
    return reply;
}

static void only_the_actors_process_lends_its_cpus(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);

    node_fixture_start(entry);
    assert_int_equal(lend_as(scene, TDM__PEER_WORKER, &scene->driver.self.id, 1), TDM_E_NOT_FOUND);
    assert_int_equal(lend_as(scene, TDM__PEER_DRIVER, &entry->spec->id, 1), TDM_E_NOT_FOUND);
    assert_false(entry->lends_cpus);
    assert_int_equal(lend_as(scene, TDM__PEER_WORKER, &entry->spec->id, 1), TDM_OK);
    assert_true(entry->lends_cpus);
    assert_int_equal(lend_as(scene, TDM__PEER_WORKER, &entry->spec->id, 0), TDM_OK);
    assert_false(entry->lends_cpus);
}

static void record_follows_what_the_actor_lends(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);
    int64_t two = (int64_t)2 * TDM__RESOURCE_ONE;

    entry->spec->placement.wanted.cpu = two;
    entry->record.grant.cpu = two;
    node_fixture_start(entry);
    assert_int_equal(lend_as(scene, TDM__PEER_WORKER, &entry->spec->id, 1), TDM_OK);
    node_fixture_settle(scene);
    assert_int_equal(entry->record.grant.cpu, 0);
    assert_false(entry->cpus_are_changing);
    tdm__actor_entry_take_cpus_back(entry);
    assert_int_equal(entry->record.grant.cpu, two);
    node_fixture_settle(scene);
    assert_false(entry->cpus_are_changing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(only_the_actors_process_lends_its_cpus),
        NODE_FIXTURE_TEST(record_follows_what_the_actor_lends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
