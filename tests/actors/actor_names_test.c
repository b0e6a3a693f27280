/* actor_names_test.c - each query for the holder of a name gets one reply. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_names.h"
#include "runtime/clock.h"
#include "runtime/store/txn.h"
#include "scheduler/retrying_txn.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect_failure(struct node_fixture *scene, struct remote_reply *reply,
                           tdm_status status, const char *words)
{
    assert_int_equal(remote_peer_wait(&scene->driver, reply), status);
    assert_non_null(strstr(reply->detail, words));
}

static struct tdm__id new_id(void)
{
    struct tdm__id id;

    assert_int_equal(tdm__id_generate(&id), TDM_OK);
    return id;
}

struct put {
    struct tdm__actor_record record;
    bool done;
};

static tdm_status put_body(void *arg, struct tdm__txn *txn)
{
    return tdm__actor_record_put(txn, &((struct put *)arg)->record);
}

static void on_put(void *arg, tdm_status status, const char *detail)
{
    (void)detail;
    assert_int_equal(status, TDM_OK);
    ((struct put *)arg)->done = true;
}

static bool is_put(void *arg)
{
    return ((const struct put *)arg)->done;
}

/* What the store has of an actor that this node does not know. */
static struct tdm__id put_record(struct node_fixture *scene, const struct tdm__id *node,
                                 const struct tdm__id *owner_node, const char *name_key)
{
    struct put put = {.record = {.actor = new_id(),
                                 .node = *node,
                                 .owner_node = *owner_node,
                                 .recreate_on_node_loss = true,
                                 .class_name = "tester"}};
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("actor", &put.record.actor, key), name_key};

    (void)snprintf(put.record.name_key, sizeof(put.record.name_key), "%s", name_key);
    assert_int_equal(
        tdm__retrying_txn_run(scene->world.store, patterns, name_key[0] == '\0' ? 1 : 2,
                              tdm__deadline_after(REMOTE_PEER_WAIT_MS), put_body, on_put, &put),
        TDM_OK);
    node_fixture_run(scene, is_put, &put);
    return put.record.actor;
}

static void find(struct node_fixture *scene, struct remote_reply *reply, const char *name)
{
    remote_peer_ask(&scene->driver, reply, "actor.find", "ss", "mine", name);
}

static void invalid_actor_name_is_refused(void **state)
{
    struct node_fixture *scene = *state;
    char name[TDM__ACTOR_NAME_BYTES + 1];
    struct remote_reply reply;

    memset(name, 'n', sizeof(name));
    name[TDM__ACTOR_NAME_BYTES] = '\0';
    find(scene, &reply, name);
    expect_failure(scene, &reply, TDM_E_INVAL, "actor name of 256 bytes, at most 255");
    name[TDM__ACTOR_NAME_BYTES - 1] = '\0';
    find(scene, &reply, name);
    expect_failure(scene, &reply, TDM_E_NOT_FOUND, "no actor is called nnn");
    find(scene, &reply, NULL);
    expect_failure(scene, &reply, TDM_E_PROTOCOL, "actor_find.name");
}

/* The holder of the name ends while its node is asked, so the name counts as free. */
static void name_of_an_actor_that_ends_meanwhile_is_free(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    (void)put_record(scene, &other.self.id, &scene->node.record.id, "name/mine/judge");
    find(scene, &reply, "judge");
    remote_peer_hold(&other, 1);
    assert_string_equal(tdm__incoming_method(other.held[0]), "actor.await");
    tdm__incoming_fail(remote_peer_take(&other), TDM_E_ACTOR_DIED, "its last words");
    expect_failure(scene, &reply, TDM_E_NOT_FOUND,
                   "no actor is called judge in name space mine any more: its last words");
    remote_peer_close(&other);
}

static struct actor_entry *add_named(struct node_fixture *scene, struct remote_reply *reply)
{
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_PLACING);

    (void)snprintf(entry->spec->name, sizeof(entry->spec->name), "judge");
    entry->spec->get_if_exists = true;
    tdm__actor_entry_add_waiter(entry, WAITER_FOR_START, node_fixture_incoming(scene, reply));
    return entry;
}

/* An entry with get_if_exists waits for the holder of the name or for the name itself. */
static void get_if_exists_waits_for_the_name_if_its_holder_ends(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;
    struct actor_entry *entry;
    struct remote_peer other;

    node_fixture_other(scene, &other, "other");
    (void)put_record(scene, &other.self.id, &scene->node.record.id, "name/mine/judge");
    entry = add_named(scene, &reply);
    entry->lifecycle.state = ACTOR_FINDING_HOLDER;
    tdm__actor_entry_reply_name_holder(entry);
    remote_peer_hold(&other, 1);
    tdm__incoming_fail(remote_peer_take(&other), TDM_E_ACTOR_DIED, "its last words");
    node_fixture_settle(scene);
    assert_int_equal(entry->lifecycle.state, ACTOR_WAITING);
    assert_int_equal(reply.count, 0);
    entry->lifecycle.state = ACTOR_FINDING_HOLDER;
    tdm__actor_entry_reply_name_holder(entry);
    remote_peer_hold(&other, 1);
    tdm__incoming_reply_pack(remote_peer_take(&other), "");
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_OK);
    assert_string_equal(tdm_value_string(tdm_value_at(remote_reply_value(&reply), 1), ""),
                        "tester");
    assert_null(scene->node.actors->all);
    remote_reply_free(&reply);
    remote_peer_close(&other);
}

static void unwanted_actor_does_not_get_the_holder_of_the_name(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply reply;

    add_named(scene, &reply)->lifecycle.state = ACTOR_FINDING_HOLDER;
    tdm__actor_entry_reply_name_holder(scene->node.actors->all);
    tdm__actor_entry_end(scene->node.actors->all, true);
    expect_failure(scene, &reply, TDM_E_ACTOR_DIED, "no actor is called judge");
    assert_null(scene->node.actors->all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(invalid_actor_name_is_refused),
        NODE_FIXTURE_TEST(name_of_an_actor_that_ends_meanwhile_is_free),
        NODE_FIXTURE_TEST(get_if_exists_waits_for_the_name_if_its_holder_ends),
        NODE_FIXTURE_TEST(unwanted_actor_does_not_get_the_holder_of_the_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
