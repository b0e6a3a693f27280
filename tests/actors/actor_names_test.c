/* actor_names_test.c - each query for the holder of a name gets one reply. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_names.h"
#include "runtime/clock.h"
#include "runtime/messages/messages.h"
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

/* Writes into the store that the actor runs on the node and has the name "judge". */
static void put_record(struct node_fixture *scene, const struct tdm__id *actor,
                       const struct tdm__id *node)
{
    const struct tdm__actor_record record = {.actor = *actor,
                                             .node = *node,
                                             .owner_node = scene->node.record.id,
                                             .recreate_on_node_loss = true,
                                             .name_key = "name/mine/judge",
                                             .class_name = "tester"};

    node_fixture_put(scene, &record);
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
    struct tdm__id holder = new_id();

    node_fixture_other(scene, &other, "other");
    put_record(scene, &holder, &other.self.id);
    find(scene, &reply, "judge");
    remote_peer_hold(&other, 1);
    assert_string_equal(tdm__incoming_method(other.held[0]), "actor.identify");
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
    struct tdm__id holder = new_id();

    node_fixture_other(scene, &other, "other");
    put_record(scene, &holder, &other.self.id);
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
    tdm__incoming_reply_pack(remote_peer_take(&other), "ss?nb", "its id", "tester", 1,
                             (const void *)"", (size_t)0);
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

/* ---- before the constructor returns ------------------------------------------------------- */

/* Checks the reply actor_found about an actor that is not constructed yet, and frees the reply. */
static void expect_found(struct node_fixture *scene, struct remote_reply *reply,
                         const struct tdm__id *actor, bool holds_name)
{
    struct tdm__actor_found_message found;
    char id[TDM__ID_TEXT_BYTES];

    assert_int_equal(remote_peer_wait(&scene->driver, reply), TDM_OK);
    assert_int_equal(tdm__actor_found_decode(remote_reply_value(reply), &found), TDM_OK);
    assert_string_equal(found.id, tdm__id_text(actor, id));
    assert_string_equal(found.class_name, "tester");
    assert_int_equal(found.holds_name, holds_name);
    assert_int_equal(tdm_value_kind_of(found.description.value), TDM_NIL);
    remote_reply_free(reply);
}

/* Writes the address of the node into the store, so that the node reaches itself as in a cluster.
 */
static void make_reachable(struct node_fixture *scene)
{
    struct tdm__node_resources totals = {.id = scene->node.record.id, .name = "this"};
    struct tdm__resources resources = {.cpu = 0};

    assert_int_equal(tdm__resources_add(&resources, "CPU", 8), TDM_OK);
    assert_int_equal(tdm__pool_init(&totals.pool, &resources), TDM_OK);
    reserve_fixture_join_as(&scene->world, &scene->node.record, &totals);
}

static void starting_actor_is_found_at_once(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply waiting;
    struct remote_reply reply;
    struct actor_entry *entry = add_named(scene, &waiting);
    struct tdm__actor_found_message found;

    make_reachable(scene);
    node_fixture_start(entry);
    put_record(scene, &entry->spec->id, &scene->node.record.id);
    find(scene, &reply, "judge");
    expect_found(scene, &reply, &entry->spec->id, true);
    assert_int_equal(waiting.count, 0);
    node_fixture_construct(entry);
    find(scene, &reply, "judge");
    assert_int_equal(remote_peer_wait(&scene->driver, &reply), TDM_OK);
    assert_int_equal(tdm__actor_found_decode(remote_reply_value(&reply), &found), TDM_OK);
    assert_int_equal(tdm_value_kind_of(found.description.value), TDM_ARRAY);
    remote_reply_free(&reply);
    assert_int_equal(remote_peer_wait(&scene->driver, &waiting), TDM_OK);
    remote_reply_free(&waiting);
}

static bool has_two_waiters(void *arg)
{
    const struct actor_entry *entry = arg;

    return entry->waiters != NULL && entry->waiters->next != NULL;
}

/* The query waits until it is known whether the actor gets the name, but not until it has a place.
 */
static void actor_without_a_place_is_found(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply waiting;
    struct remote_reply reply;
    struct actor_entry *entry = add_named(scene, &waiting);

    make_reachable(scene);
    find(scene, &reply, "judge");
    node_fixture_run(scene, has_two_waiters, entry);
    assert_int_equal(reply.count, 0);
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_NOT_RESERVED,
                                                        .status = TDM_E_AGAIN,
                                                        .detail = "no GPU is free"});
    expect_found(scene, &reply, &entry->spec->id, false);
    find(scene, &reply, "judge");
    expect_found(scene, &reply, &entry->spec->id, false);
    tdm__actor_entry_end(entry, true);
    expect_failure(scene, &waiting, TDM_E_ACTOR_DIED, "before it had a place");
}

/* The actor of this node does not get the name; the query gets the actor that was faster. */
static void store_is_asked_again_when_another_actor_was_faster(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply waiting;
    struct remote_reply reply;
    struct actor_entry *entry = add_named(scene, &waiting);
    struct remote_peer other;
    struct tdm__id holder = new_id();
    char id[TDM__ID_TEXT_BYTES];

    make_reachable(scene);
    node_fixture_other(scene, &other, "other");
    entry->spec->get_if_exists = false;
    find(scene, &reply, "judge");
    node_fixture_run(scene, has_two_waiters, entry);
    put_record(scene, &holder, &other.self.id);
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_NOT_RESERVED,
                                                        .status = TDM_E_EXISTS,
                                                        .detail = "another was faster"});
    expect_failure(scene, &waiting, TDM_E_EXISTS, "another was faster");
    remote_peer_hold(&other, 1);
    assert_string_equal(tdm__incoming_method(other.held[0]), "actor.identify");
    tdm__incoming_reply_pack(remote_peer_take(&other), "ss?nb", tdm__id_text(&holder, id), "tester",
                             1, (const void *)"", (size_t)0);
    expect_found(scene, &reply, &holder, true);
    remote_peer_close(&other);
}

/* The name of an actor that ends is about to be free, so the query waits for that. */
static void ending_actor_is_not_found(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_reply waiting;
    struct remote_reply reply;
    struct actor_entry *entry = add_named(scene, &waiting);

    make_reachable(scene);
    node_fixture_start(entry);
    put_record(scene, &entry->spec->id, &scene->node.record.id);
    entry->lifecycle.state = ACTOR_ENDING;
    find(scene, &reply, "judge");
    node_fixture_run(scene, has_two_waiters, entry);
    node_fixture_construct(entry); /* Too late: it must end all the same. */
    assert_int_equal(reply.count, 0);
    tdm__actor_entry_end(entry, true);
    expect_failure(scene, &reply, TDM_E_NOT_FOUND, "no actor is called judge");
    assert_int_equal(remote_peer_wait(&scene->driver, &waiting), TDM_OK);
    remote_reply_free(&waiting);
    node_fixture_run_out(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(invalid_actor_name_is_refused),
        NODE_FIXTURE_TEST(name_of_an_actor_that_ends_meanwhile_is_free),
        NODE_FIXTURE_TEST(get_if_exists_waits_for_the_name_if_its_holder_ends),
        NODE_FIXTURE_TEST(unwanted_actor_does_not_get_the_holder_of_the_name),
        NODE_FIXTURE_TEST(starting_actor_is_found_at_once),
        NODE_FIXTURE_TEST(actor_without_a_place_is_found),
        NODE_FIXTURE_TEST(store_is_asked_again_when_another_actor_was_faster),
        NODE_FIXTURE_TEST(ending_actor_is_not_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
