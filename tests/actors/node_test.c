/* node_test.c - how a node describes itself, and what ends with a process of the node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/node.h"
#include "actors/objects/owned_refs.h"
#include "runtime/clock.h"
#include "tests/support/node_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a process that has left ------------------------------------------------------------ */

/* Its actor, which waits for a place, and its socket. */
struct left {
    struct tdm__id actor;
    char socket[128];
};

static struct left leave_behind(struct node_fixture *scene)
{
    struct left left = {.actor = node_fixture_add(scene, ACTOR_WAITING)->spec->id};
    char id[TDM__ID_TEXT_BYTES];
    int fd;

    (void)snprintf(left.socket, sizeof(left.socket), "%s/" TDM__OWNER_SOCKET, scene->directory,
                   tdm__id_text(&scene->driver.self.id, id));
    fd = open(left.socket, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    return left;
}

static void expect_left(struct node_fixture *scene, const struct left *left, bool is_there)
{
    assert_int_equal(tdm__actor_entry_find(&scene->node, &left->actor) != NULL, is_there);
    assert_int_equal(access(left->socket, F_OK) == 0, is_there);
    assert_int_equal(scene->gone_count, is_there ? 0 : 1);
}

static void driver_takes_along_what_it_made(void **state)
{
    struct node_fixture *scene = *state;
    struct left left = leave_behind(scene);
    struct actor_entry *of_another = node_fixture_add(scene, ACTOR_WAITING);

    of_another->spec->creator = scene->node.record.id;
    tdm__node_peer_closed(&scene->node, &scene->driver.self);
    expect_left(scene, &left, false);
    assert_true(tdm__id_equal(&scene->gone_ids[0], &scene->driver.self.id));
    assert_int_equal(of_another->lifecycle.state, ACTOR_WAITING);
}

/* Closing the connection of a daemon ends no actors, and the end of a worker is reported
 * by its process. A node that stops ends all actors gracefully. */
static void others_take_nothing_along(void **state)
{
    static const enum tdm__peer_kind kinds[] = {TDM__PEER_WORKER, TDM__PEER_DAEMON};
    struct node_fixture *scene = *state;
    struct left left = leave_behind(scene);
    struct tdm__peer_identity peer = scene->driver.self;

    for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        peer.kind = kinds[i];
        tdm__node_peer_closed(&scene->node, &peer);
        expect_left(scene, &left, true);
    }
    scene->node.stopping = true;
    tdm__node_peer_closed(&scene->node, &scene->driver.self);
    expect_left(scene, &left, true);
    (void)unlink(left.socket);
}

/* ---- the end of all actors -------------------------------------------------------------- */

static void count_end(void *arg)
{
    ++*(uint32_t *)arg;
}

static bool is_counted(void *arg)
{
    return *(const uint32_t *)arg > 0;
}

static void node_ends_its_actors_and_calls_back_once(void **state)
{
    struct node_fixture *scene = *state;
    struct actor_entry *placing = node_fixture_add(scene, ACTOR_PLACING);
    uint32_t ends = 0;

    (void)node_fixture_add(scene, ACTOR_WAITING);
    node_fixture_add(scene, ACTOR_RESTARTING)->spec->detached = true;
    tdm__node_end_actors(&scene->node, count_end, &ends);
    assert_true(scene->node.stopping);
    node_fixture_settle(scene);
    assert_int_equal(ends, 0);
    /* Resources for this actor are still being reserved. */
    assert_ptr_equal(scene->node.actors->all, placing);
    tdm__actor_entry_remove(placing, TDM_E_ACTOR_DIED, "over");
    node_fixture_run(scene, is_counted, &ends);
    assert_int_equal(ends, 1);
}

/* ---- what it tells ---------------------------------------------------------------------- */

static void node_describes_itself(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;

    scene->node.unreachable_ms = 700;
    remote_peer_ask(&scene->driver, &reply, "node.describe", "");
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_OK);
    assert_int_equal(tdm_value_int(tdm_value_at(remote_reply_value(&reply), 5), 0), 700);
    assert_string_equal(tdm_value_string(tdm_value_at(remote_reply_value(&reply), 2), ""),
                        scene->directory);
    remote_reply_free(&reply);
    assert_int_equal(remote_peer_call(&scene->driver, "node.nothing", ""), TDM_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(driver_takes_along_what_it_made),
        NODE_FIXTURE_TEST(others_take_nothing_along),
        NODE_FIXTURE_TEST(node_ends_its_actors_and_calls_back_once),
        NODE_FIXTURE_TEST(node_describes_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
