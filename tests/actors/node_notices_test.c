/* node_notices_test.c - what the processes of a node are told of nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/node_notices.h"

#include "actors/common/node_change.h"
#include "actors/daemon/actor_end.h"
#include "runtime/messages/messages.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm__id far_id = {.bytes = {7}};

/* Takes the next change that the process was told, and checks it. */
static void expect_change(struct remote_peer *process, enum tdm__node_change kind,
                          const struct tdm__id *id, uint64_t epoch)
{
    struct tdm__incoming_call *incoming;
    struct tdm__node_change_message change;

    remote_peer_hold(process, 1);
    incoming = remote_peer_take(process);
    assert_string_equal(tdm__incoming_method(incoming), TDM__NODE_CHANGE_METHOD);
    assert_int_equal(tdm__incoming_decode(incoming, tdm__node_change_table(), &change), TDM_OK);
    assert_int_equal(change.kind, kind);
    assert_true(tdm__id_equal(&change.node, id));
    assert_int_equal(change.epoch, epoch);
    assert_string_equal(change.text, kind == TDM__NODE_UNREACHABLE ? "far is silent" : "");
    tdm__incoming_reply_pack(incoming, "");
}

static void expect_nothing(struct node_fixture *scene, const struct remote_peer *process)
{
    node_fixture_settle(scene);
    assert_int_equal(process->held_count, 0);
}

static void driver_is_told_of_each_change_once(void **state)
{
    struct node_fixture *scene = *state;
    const struct tdm__node_record lost = {.id = far_id, .name = "far", .epoch = 4};

    node_fixture_settle(scene); /* The driver is connected. */
    tdm__node_notices_unreachable(&scene->node, &far_id, "far is silent");
    expect_change(&scene->driver, TDM__NODE_UNREACHABLE, &far_id, 0);
    tdm__node_notices_reachable(&scene->node, &far_id);
    expect_change(&scene->driver, TDM__NODE_REACHABLE, &far_id, 0);
    tdm__node_notices_reachable(&scene->node, &far_id);
    expect_nothing(scene, &scene->driver);
    tdm__node_lost(&scene->node, &lost);
    expect_change(&scene->driver, TDM__NODE_LOST, &far_id, 4);
}

static void new_process_is_told_what_was_before(void **state)
{
    struct node_fixture *scene = *state;
    const struct tdm__node_record lost = {.id = {.bytes = {3}}, .name = "gone", .epoch = 8};
    struct remote_peer late;
    struct tdm__conn *conn = NULL;

    node_fixture_settle(scene);
    tdm__node_set_epoch(&scene->node, 20);
    tdm__node_lost(&scene->node, &lost);
    tdm__node_notices_unreachable(&scene->node, &far_id, "far is silent");
    remote_peer_open(&late, scene->world.loop, TDM__PEER_DRIVER, "late");
    remote_peer_listen(&late, "unix:/tmp/node_notices_test.late", NULL, 0);
    assert_int_equal(tdm__rpc_connect(scene->node.rpc, "unix:/tmp/node_notices_test.late", &conn),
                     TDM_OK);
    tdm__node_notices_greet(&scene->node, conn); /* The handshake has not begun. */
    expect_change(&late, TDM__NODE_EPOCH, &scene->node.record.id, 20);
    expect_change(&late, TDM__NODE_LOST, &lost.id, 8);
    expect_change(&late, TDM__NODE_UNREACHABLE, &far_id, 0);
    expect_nothing(scene, &late);
    remote_peer_close(&late);
    remote_peer_hold(&scene->driver, 3);
    while (scene->driver.held_count > 0) {
        tdm__incoming_reply_pack(remote_peer_take(&scene->driver), "");
    }
}

/* The daemon of a lost node cannot call this one before it has joined again. */
static void lost_node_is_refused_until_its_epoch_is_higher(void **state)
{
    struct node_fixture *scene = *state;
    struct tdm__node_record lost = {.name = "other", .epoch = 4};
    struct remote_peer other;

    node_fixture_settle(scene);
    remote_peer_open(&other, scene->world.loop, TDM__PEER_DAEMON, "other");
    other.self.node_epoch = 4;
    tdm__rpc_set_identity(other.rpc, &other.self);
    lost.id = other.self.id;
    remote_peer_connect(&other, scene->address);
    assert_int_equal(remote_peer_call(&other, "node.ping", ""), TDM_OK);
    tdm__node_lost(&scene->node, &lost);
    expect_change(&scene->driver, TDM__NODE_LOST, &lost.id, 4);
    assert_int_equal(remote_peer_call(&other, "node.ping", ""), TDM_E_CLOSED);
    remote_peer_connect(&other, scene->address);
    assert_int_equal(remote_peer_call(&other, "node.ping", ""), TDM_E_CLOSED);
    tdm__rpc_set_node_epoch(other.rpc, 5);
    remote_peer_connect(&other, scene->address);
    assert_int_equal(remote_peer_call(&other, "node.ping", ""), TDM_OK);
    remote_peer_close(&other);
}

/* The node of a guest's creator may have started the actor again elsewhere. */
static void guest_stays_in_the_old_epoch_until_its_creators_node_confirms_it(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *guest = node_fixture_add(scene, ACTOR_RESTARTING);
    struct actor_entry *local = node_fixture_add(scene, ACTOR_RESTARTING);
    struct remote_peer guest_worker;
    struct remote_peer local_worker;

    node_fixture_start(guest);
    node_fixture_start(local);
    node_fixture_play(scene, guest, &guest_worker);
    node_fixture_play(scene, local, &local_worker);
    guest->owner_node = far_id;
    tdm__node_set_epoch(&scene->node, 30);
    expect_change(&local_worker, TDM__NODE_EPOCH, &scene->node.record.id, 30);
    expect_change(&scene->driver, TDM__NODE_EPOCH, &scene->node.record.id, 30);
    expect_nothing(scene, &guest_worker);
    tdm__node_notices_confirm(guest);
    expect_change(&guest_worker, TDM__NODE_EPOCH, &scene->node.record.id, 30);
    tdm__node_set_epoch(&scene->node, 30);
    expect_nothing(scene, &local_worker);
    remote_peer_close(&guest_worker);
    remote_peer_close(&local_worker);
    tdm__actor_entry_end(guest, true);
    tdm__actor_entry_end(local, true);
    node_fixture_run_out(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(driver_is_told_of_each_change_once),
        NODE_FIXTURE_TEST(new_process_is_told_what_was_before),
        NODE_FIXTURE_TEST(lost_node_is_refused_until_its_epoch_is_higher),
        NODE_FIXTURE_TEST(guest_stays_in_the_old_epoch_until_its_creators_node_confirms_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
