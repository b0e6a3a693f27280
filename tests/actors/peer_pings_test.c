/* peer_pings_test.c - a node that stops answering, and answers again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/peer_pings.h"

#include "actors/common/node_change.h"
#include "actors/daemon/peer_daemons.h"
#include "runtime/messages/messages.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Makes `other` a known node. */
static void list_other(struct node_fixture *scene, const struct remote_peer *other)
{
    struct tdm__node_record record = {.id = other->self.id, .name = "other", .epoch = 1};

    (void)snprintf(record.unix_address, sizeof(record.unix_address), "unix:%s/other",
                   scene->directory);
    tdm__node_peers_note(&scene->node, &record, 1);
}

/* Returns the text of the change `kind`, which the driver is told next. */
static void expect_change(struct node_fixture *scene, enum tdm__node_change kind, char text[512])
{
    struct tdm__node_change_message change;
    struct tdm__incoming_call *incoming;

    remote_peer_hold(&scene->driver, 1);
    incoming = remote_peer_take(&scene->driver);
    assert_int_equal(tdm__incoming_decode(incoming, tdm__node_change_table(), &change), TDM_OK);
    assert_int_equal(change.kind, kind);
    (void)snprintf(text, 512, "%s", change.text);
    tdm__incoming_reply_pack(incoming, "");
}

static void node_that_does_not_answer_is_unreachable_until_it_answers(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer other;
    char text[512];
    char status_text[512];

    node_fixture_other(scene, &other, "other");
    list_other(scene, &other);
    node_fixture_settle(scene); /* The driver is connected. */
    scene->node.unreachable_ms = 300;
    assert_int_equal(tdm__node_pings_create(&scene->node), TDM_OK);
    expect_change(scene, TDM__NODE_UNREACHABLE, text);
    assert_non_null(strstr(text, "node other has not answered node this for 0.3 s"));
    assert_non_null(strstr(text, "it counts as lost when it has not renewed its lease for"));
    assert_int_equal(tdm__node_peer_explain(&scene->node, &other.self.id, "closed", status_text,
                                            sizeof(status_text)),
                     TDM_E_ACTOR_UNAVAILABLE);
    assert_non_null(strstr(status_text, "node other has not answered"));
    while (scene->driver.held_count == 0) { /* Replies to earlier pings come too late. */
        remote_peer_hold(&other, 1);
        assert_string_equal(tdm__incoming_method(other.held[0]), "node.ping");
        tdm__incoming_reply_pack(remote_peer_take(&other), "");
        node_fixture_settle(scene);
    }
    expect_change(scene, TDM__NODE_REACHABLE, text);
    tdm__node_pings_destroy(&scene->node);
    remote_peer_close(&other);
}

/* Its machine says so, which is more than silence. */
static void node_whose_daemon_has_ended_is_not_only_unreachable(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer other;
    char text[512];

    node_fixture_other(scene, &other, "other");
    list_other(scene, &other);
    node_fixture_settle(scene); /* The driver is connected. */
    assert_int_equal(
        tdm__node_peer_explain(&scene->node, &other.self.id, "closed", text, sizeof(text)),
        TDM_E_AGAIN);
    assert_string_equal(text, "closed");
    remote_peer_close(&other);
    scene->node.unreachable_ms = 200;
    assert_int_equal(tdm__node_pings_create(&scene->node), TDM_OK);
    expect_change(scene, TDM__NODE_UNREACHABLE, text);
    assert_int_equal(
        tdm__node_peer_explain(&scene->node, &other.self.id, "closed", text, sizeof(text)),
        TDM_E_NODE_LOST);
    tdm__node_pings_destroy(&scene->node);
}

static void pings_can_be_turned_off(void **state)
{
    struct node_fixture *scene = *state;

    assert_int_equal(tdm__node_pings_create(&scene->node), TDM_OK);
    assert_null(scene->node.pings);
    tdm__node_pings_destroy(&scene->node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(node_that_does_not_answer_is_unreachable_until_it_answers),
        NODE_FIXTURE_TEST(node_whose_daemon_has_ended_is_not_only_unreachable),
        NODE_FIXTURE_TEST(pings_can_be_turned_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
