/* lost_node_test.c - the effects of a lost node, and actors created again on another node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/runtime.h"
#include "runtime/messages/messages.h"
#include "tests/support/actor_fixture.h"
#include "tests/support/two_nodes.h"

#include <tandem/state.h>

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct two_nodes cluster;
static struct test_node third; /* A third node, used by one test. */
static tdm_runtime *runtime;

/* Holds a GPU on each of three nodes for as long as it lives. */
static tdm_status grouper_hold(tdm_call *call, void *self)
{
    static const struct tdm_bundle bundles[3] = {{.num_gpus = 1}, {.num_gpus = 1}, {.num_gpus = 1}};
    static const struct tdm_placement_group_options options = {.strategy = TDM_STRICT_SPREAD,
                                                               .name = "orphan"};
    tdm_placement_group *group;

    (void)self;
    TDM_TRY(tdm_placement_group_create_with(tdm_runtime_current(), bundles, 3, &options,
                                            TEST_TIMEOUT_MS, &group));
    tdm_placement_group_release(group);
    return tdm_call_reply(call, "");
}

TDM_ACTOR_CLASS(grouper, .methods = {{"hold", grouper_hold}});

static tdm_status ask(const char *method, const tdm_actor *actor, tdm_document **document_out)
{
    struct tdm_actor_info info;
    struct tdm__actor_query_message query = {.may_restart = false};
    tdm_writer *writer;
    tdm_status status;

    tdm_actor_describe((tdm_actor *)actor, &info);
    assert_int_equal(tdm__id_parse(info.id, &query.actor), TDM_OK);
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__actor_query_encode(&query, writer), TDM_OK);
    status = tdm__runtime_call_daemon(runtime, method, tdm_writer_bytes(writer), TEST_TIMEOUT_MS,
                                      document_out);
    tdm_writer_destroy(writer);
    return status;
}

/* Where it is now, and how often it was restarted. */
static tdm_status fate(const tdm_actor *actor, char node_id[33], uint64_t *incarnation)
{
    tdm_document *document;

    TDM_TRY(ask("actor.fate", actor, &document));
    (void)snprintf(node_id, 33, "%s",
                   tdm_value_string(tdm_value_at(tdm_document_root(document), 1), ""));
    *incarnation = tdm_value_uint(tdm_value_at(tdm_document_root(document), 5), 0);
    tdm_document_destroy(document);
    return TDM_OK;
}

/* On the second node if that lives. */
static tdm_actor *make_there(const struct tdm_actor_options *wanted)
{
    struct tdm_actor_options options = *wanted;

    options.labels[0] = "side=second";
    return actor_fixture_create(runtime, &options);
}

static void labels_lead_to_the_node(void **state)
{
    tdm_actor *actor = make_there(&(struct tdm_actor_options){0});
    struct tdm_actor_info there;
    struct tdm_runtime_info here;
    tdm_actor *none;

    (void)state;
    tdm_actor_describe(actor, &there);
    tdm_runtime_describe(runtime, &here);
    assert_string_not_equal(there.node_id, here.node_id);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
    assert_int_equal(tdm_actor_create(runtime, "tester",
                                      &(struct tdm_actor_options){.labels = {"side=third"}}, &none,
                                      ""),
                     TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(none, TEST_TIMEOUT_MS), TDM_E_NO_RESOURCES);
    tdm_actor_destroy(none);
}

static void name_is_free_when_the_kill_was_answered(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct tdm_actor_options options = {.name = "again"};
        tdm_actor *actor =
            i % 2 == 0 ? make_there(&options) : actor_fixture_create(runtime, &options);

        assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
        tdm_actor_destroy(actor);
    }
}

static void remote_actor_is_restarted_by_its_node_and_owner_learns_of_deaths(void **state)
{
    tdm_actor *actor = make_there(&(struct tdm_actor_options){.max_restarts = 1});
    struct tdm_actor_info info;
    char node_id[33];
    uint64_t incarnation;

    (void)state;
    tdm_actor_describe(actor, &info);
    assert_int_equal(kill((pid_t)info.pid, SIGKILL), 0);
    assert_int_equal(fate(actor, node_id, &incarnation), TDM_OK);
    assert_int_equal(incarnation, 1);
    assert_string_equal(node_id, info.node_id);
    assert_int_equal(ask("actor.release", actor, NULL), TDM_OK);
    assert_int_equal(fate(actor, node_id, &incarnation), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "its last handle is gone"));
    tdm_actor_destroy(actor);
}

/* Its daemon is stopped for longer than its lease lasts, while its workers go on. */
static void returning_node_ends_actors_that_were_restarted_elsewhere(void **state)
{
    struct tdm_actor_options options = {.name = "wanderer", .max_restarts = -1};
    struct tdm_runtime_info here;
    struct tdm_actor_info there;
    /* The actor could stay, but its owner's node has given it up. */
    struct tdm_actor_info given_up;
    tdm_actor *scout = make_there(&(struct tdm_actor_options){0});
    tdm_actor *actor;
    tdm_actor *found;
    char node_id[33];
    uint64_t incarnation;

    (void)state;
    tdm_runtime_describe(runtime, &here);
    tdm_actor_describe(scout, &there);
    given_up = there;
    options.scheduling = TDM_SCHEDULE_NODE_SOFT;
    options.node_id = there.node_id;
    actor = actor_fixture_create(runtime, &options);
    tdm_actor_describe(actor, &there);
    assert_string_not_equal(there.node_id, here.node_id);
    assert_int_equal(kill(cluster.second.daemon, SIGSTOP), 0);
    /* The query is answered although no connection was closed. */
    assert_int_equal(fate(actor, node_id, &incarnation), TDM_OK);
    assert_string_equal(node_id, here.node_id);
    assert_int_equal(incarnation, 1);
    assert_int_equal(kill(cluster.second.daemon, SIGCONT), 0);
    assert_true(wait_process_exit(there.pid, TEST_TIMEOUT_MS));
    assert_true(wait_process_exit(given_up.pid, TEST_TIMEOUT_MS));
    assert_int_equal(tdm_actor_find(runtime, "wanderer", TEST_TIMEOUT_MS, &found), TDM_OK);
    assert_int_not_equal(actor_fixture_call_int(found, "pid"), there.pid);
    tdm_actor_destroy(found);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
    tdm_actor_destroy(scout);
    for (int i = 0; i < 200; i++) { /* The node has joined again. */
        actor = NULL;
        assert_int_equal(tdm_actor_create(runtime, "tester",
                                          &(struct tdm_actor_options){.labels = {"side=second"}},
                                          &actor, ""),
                         TDM_OK);
        if (tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS) == TDM_OK) {
            i = 200;
        }
        tdm_actor_destroy(actor);
        (void)poll(NULL, 0, i < 200 ? 50 : 0);
    }
}

/* A node that stops in good order is not waited for. */
static void stopped_node_leaves_at_once(void **state)
{
    const struct tdm_node_state *nodes = NULL;
    uint32_t nodes_count;
    char said[1024];

    (void)state;
    assert_int_equal(test_node_start(&cluster, "passing", &third, said), 0);
    assert_int_equal(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &nodes_count), TDM_OK);
    assert_int_equal(nodes_count, 3);
    tdm_list_free(nodes);
    test_node_stop(&third);
    assert_int_equal(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &nodes_count), TDM_OK);
    assert_int_equal(nodes_count, 2);
    tdm_list_free(nodes);
}

static tdm_actor *make_grouper(const char *label)
{
    struct tdm_actor_options options = {.labels = {label}};
    tdm_actor *grouper;

    assert_int_equal(tdm_actor_create(runtime, "grouper", &options, &grouper, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(grouper, TEST_TIMEOUT_MS), TDM_OK);
    return grouper;
}

/* Which bundle lies on the driver's node. */
static uint32_t bundle_here(const tdm_placement_group *group)
{
    struct tdm_runtime_info here;
    struct tdm_bundle_placement place;
    uint32_t bundle = 0;

    tdm_runtime_describe(runtime, &here);
    assert_int_equal(tdm_placement_group_locate_bundle(group, bundle, &place), TDM_OK);
    while (strcmp(place.node_id, here.node_id) != 0) {
        bundle++;
        assert_int_equal(tdm_placement_group_locate_bundle(group, bundle, &place), TDM_OK);
    }
    return bundle;
}

static void lost_nodes_group_ends_and_gives_its_places_back(void **state)
{
    static const struct tdm_bundle both_gpus[2] = {{.num_gpus = 2}, {.num_gpus = 2}};
    struct tdm_actor_options options = {.num_gpus = 1};
    tdm_placement_group *group;
    tdm_actor *grouper;
    tdm_actor *guest; /* The actor is in the group and not owned by the lost node. */
    struct tdm_actor_info info;
    char said[1024];
    tdm_status status;

    (void)state;
    assert_int_equal(test_node_start(&cluster, "third", &third, said), 0);
    grouper = make_grouper("side=third");
    assert_int_equal(actor_fixture_call(grouper, "hold", NULL), TDM_OK);
    assert_int_equal(tdm_placement_group_find(runtime, NULL, "orphan", TEST_TIMEOUT_MS, &group),
                     TDM_OK);
    options.group = group;
    options.bundle = bundle_here(group);
    guest = actor_fixture_create(runtime, &options);
    tdm_actor_describe(guest, &info);
    assert_int_equal(kill(third.daemon, SIGKILL), 0);
    (void)waitpid(third.supervisor, NULL, 0);
    third.supervisor = 0;
    tdm_placement_group_release(group);
    status = tdm_placement_group_create(runtime, both_gpus, 2, TDM_STRICT_SPREAD, TEST_TIMEOUT_MS,
                                        &group);
    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
    assert_true(wait_process_exit(info.pid, TEST_TIMEOUT_MS));
    assert_int_equal(tdm_placement_group_remove(group, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(tdm_placement_group_find(runtime, NULL, "orphan", TEST_TIMEOUT_MS, &group),
                     TDM_E_NOT_FOUND);
    tdm_actor_destroy(guest);
    tdm_actor_destroy(grouper);
}

/* The last test: the second node is gone afterwards. */
static void lost_nodes_actors_return_on_another(void **state)
{
    struct tdm_actor_options options = {.name = "soft", .max_restarts = -1};
    struct tdm_runtime_info here;
    tdm_actor *hard = make_there(&(struct tdm_actor_options){.name = "hard", .max_restarts = -1});
    tdm_actor *mortal = make_there(&(struct tdm_actor_options){.name = "mortal"});
    tdm_actor *soft;
    tdm_actor *heir;
    struct tdm_actor_info there;
    char node_id[33];
    uint64_t incarnation;

    (void)state;
    tdm_actor_describe(hard, &there);
    tdm_runtime_describe(runtime, &here);
    options.scheduling = TDM_SCHEDULE_NODE_SOFT;
    options.node_id = there.node_id;
    soft = actor_fixture_create(runtime, &options);
    assert_int_equal(kill(cluster.second.daemon, SIGKILL), 0);
    (void)waitpid(cluster.second.supervisor, NULL, 0);
    cluster.second.supervisor = 0;
    assert_int_equal(fate(soft, node_id, &incarnation), TDM_OK);
    assert_string_equal(node_id, here.node_id);
    assert_int_equal(incarnation, 1);
    assert_int_equal(fate(mortal, node_id, &incarnation), TDM_E_NODE_LOST);
    assert_int_equal(actor_fixture_call(soft, "pid", NULL), TDM_OK);
    heir = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "mortal"});
    /* The actor waits for a node with its label. */
    assert_int_equal(tdm_actor_kill(hard, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(heir);
    tdm_actor_destroy(soft);
    tdm_actor_destroy(hard);
    tdm_actor_destroy(mortal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_lead_to_the_node),
        cmocka_unit_test(name_is_free_when_the_kill_was_answered),
        cmocka_unit_test(remote_actor_is_restarted_by_its_node_and_owner_learns_of_deaths),
        cmocka_unit_test(returning_node_ends_actors_that_were_restarted_elsewhere),
        cmocka_unit_test(stopped_node_leaves_at_once),
        cmocka_unit_test(lost_nodes_group_ends_and_gives_its_places_back),
        cmocka_unit_test(lost_nodes_actors_return_on_another),
    };
    int failed = 1;

    runtime = two_nodes_join(&cluster);
    if (runtime != NULL) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    test_node_stop(&third);
    return failed + two_nodes_leave(&cluster, runtime);
}
