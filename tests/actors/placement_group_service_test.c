/* placement_group_service_test.c - a group's removal reaches every node, though the store or a node
 * does not answer at first. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_service.h"
#include "actors/daemon/node.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/placement_group_service.h"
#include "runtime/clock.h"
#include "tests/support/failing_store.h"
#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 10000 };

static const uint8_t token[TDM__TOKEN_BYTES] = {1};
static char directory[] = "/tmp/tandem-test-XXXXXX";

/* ---- two nodes, of which one is looked at from inside ----------------------------------- */

struct other {
    struct tdm__rpc *rpc;
    struct tdm__id id;
    tdm_status answer; /* Status of the peer's first reply, if it is a failure. */
    uint32_t asked;    /* Number of requests to end the actors of a group. */
    uint32_t ended;    /* Number of replies that the actors have ended. */
};

struct scene {
    struct reserve_fixture world;
    struct failing_store deaf;
    struct tdm__node node;
    struct other other;
    struct tdm__id group;
};

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct other *other = arg;

    assert_string_equal(tdm__incoming_method(incoming), "placement_group.end");
    other->asked++;
    if (other->asked == 1 && other->answer != TDM_OK) {
        tdm__incoming_fail(incoming, other->answer, "on purpose");
        return;
    }
    other->ended++;
    tdm__incoming_reply_pack(incoming, "");
}

static struct tdm__rpc *make_endpoint(struct tdm__loop *loop, const struct tdm__id *id)
{
    const struct tdm__peer_identity self = {
        .kind = TDM__PEER_DAEMON, .id = *id, .node = *id, .pid = getpid(), .name = "node"};
    struct tdm__rpc *rpc;

    TRY(tdm__rpc_create(loop, &self, token, &rpc));
    return rpc;
}

/* The record of the node says where it listens. */
static void join_other(struct scene *scene)
{
    struct tdm__node_record record = {.name = "other", .pid = 1};
    struct tdm__node_resources totals = {.name = "other"};
    struct tdm__resources resources = {.cpu = 0};
    char address[TDM__ADDRESS_BYTES];

    TRY(tdm__id_generate(&record.id));
    scene->other.id = totals.id = record.id;
    scene->other.rpc = make_endpoint(scene->world.loop, &record.id);
    tdm__rpc_set_call_handler(scene->other.rpc, serve, &scene->other);
    (void)snprintf(address, sizeof(address), "unix:%s/other", directory);
    TRY(tdm__rpc_listen(scene->other.rpc, address, record.unix_address,
                        sizeof(record.unix_address)));
    TRY(tdm__resources_add(&resources, "GPU", 1));
    TRY(tdm__pool_init(&totals.pool, &resources));
    reserve_fixture_join_as(&scene->world, &record, &totals);
}

static int open_scene(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    assert_int_equal(reserve_fixture_open(&scene->world), 0);
    failing_store_open(&scene->deaf, scene->world.store);
    scene->node = (struct tdm__node){
        .loop = scene->world.loop, .store = &scene->deaf.store, .events = &tdm__node_events};
    scene->node.record.id = reserve_fixture_join(&scene->world, "this", 1);
    scene->node.rpc = make_endpoint(scene->world.loop, &scene->node.record.id);
    join_other(scene);
    TRY(tdm__node_actors_create(&scene->node));
    TRY(tdm__placement_groups_create(&scene->node));
    TRY(tdm__node_notices_create(&scene->node));
    TRY(tdm__node_peers_create(&scene->node));
    TRY(tdm__id_generate(&scene->group));
    TRY(reserve_fixture_group(&scene->world, &scene->group, 1, 2, TDM_STRICT_SPREAD));
    *state = scene;
    return 0;
}

static int close_scene(void **state)
{
    struct scene *scene = *state;

    scene->node.stopping = true;
    tdm__node_peers_destroy(&scene->node);
    tdm__node_notices_destroy(&scene->node);
    tdm__node_actors_destroy(&scene->node);
    tdm__placement_groups_destroy(&scene->node);
    tdm__rpc_destroy(scene->node.rpc);
    tdm__rpc_destroy(scene->other.rpc);
    reserve_fixture_close(&scene->world);
    free(scene);
    return 0;
}

static bool is_removed(void *arg)
{
    const struct scene *scene = arg;

    return !tdm__placement_groups_are_going(&scene->node);
}

static void remove_group(struct scene *scene)
{
    tdm__placement_group_orphaned(&scene->node, &scene->group);
    TRY(tdm__loop_run(scene->world.loop, is_removed, scene, tdm__deadline_after(WAIT_MS)));
    assert_int_equal(
        reserve_fixture_close_group(&scene->world, &scene->group, &scene->node.record.id),
        TDM_E_NOT_FOUND);
}

/* ---- the tests -------------------------------------------------------------------------- */

static void nodes_of_the_bundles_end_their_actors_of_a_removed_group(void **state)
{
    struct scene *scene = *state;

    remove_group(scene);
    assert_int_equal(scene->other.asked, 1);
}

/* Each of the two groups has its bundle on one of the nodes. */
static void node_without_members_is_not_asked(void **state)
{
    struct scene *scene = *state;
    struct tdm__id groups[2];
    bool is_on_other[2];

    remove_group(scene);
    for (int i = 0; i < 2; i++) {
        TRY(tdm__id_generate(&groups[i]));
        TRY(reserve_fixture_group(&scene->world, &groups[i], 1, 1, TDM_PACK));
        is_on_other[i] = tdm__id_equal(&scene->world.places[0], &scene->other.id);
    }
    assert_true(is_on_other[0] != is_on_other[1]);
    for (int i = 0; i < 2; i++) {
        scene->other.asked = 0;
        scene->group = groups[i];
        remove_group(scene);
        assert_int_equal(scene->other.asked, is_on_other[i] ? 1 : 0);
    }
}

static void group_is_removed_although_closing_it_failed_at_first(void **state)
{
    struct scene *scene = *state;

    scene->deaf.fail_pattern = "node/*";
    scene->deaf.fail_reads_count = 2;
    remove_group(scene);
    assert_int_equal(scene->deaf.fail_reads_count, 0);
    assert_int_equal(scene->other.ended, 1);
}

static void node_that_could_not_be_looked_up_is_asked_again(void **state)
{
    struct scene *scene = *state;
    char key[TDM__STORE_KEY_BYTES];

    scene->deaf.fail_pattern = tdm__store_key("node", &scene->other.id, key);
    scene->deaf.fail_reads_count = 1;
    remove_group(scene);
    assert_int_equal(scene->deaf.fail_reads_count, 0);
    assert_int_equal(scene->other.ended, 1);
}

static void node_that_did_not_reply_in_time_is_asked_again(void **state)
{
    struct scene *scene = *state;

    scene->other.answer = TDM_E_TIMEOUT;
    remove_group(scene);
    assert_int_equal(scene->other.asked, 2);
    assert_int_equal(scene->other.ended, 1);
}

/* Its members end with it, or when it is back. */
static void lost_node_is_not_waited_for(void **state)
{
    struct scene *scene = *state;

    tdm__rpc_destroy(scene->other.rpc);
    scene->other.rpc = make_endpoint(scene->world.loop, &scene->other.id);
    remove_group(scene);
    assert_int_equal(scene->other.asked, 0);
}

/* ---- one whose making nobody heard of --------------------------------------------------- */

struct made {
    bool is_answered;
    tdm_status status;
};

static void on_made(void *arg, struct tdm__rpc_reply *reply)
{
    *(struct made *)arg = (struct made){true, reply->status};
}

static bool is_answered(void *arg)
{
    return ((const struct made *)arg)->is_answered;
}

static void serve_groups(void *arg, struct tdm__incoming_call *incoming)
{
    tdm__placement_group_service.serve(&((struct scene *)arg)->node, incoming);
}

/* Connects the other endpoint with the node, for requests. */
static struct tdm__conn *connect_maker(struct scene *scene)
{
    char address[TDM__ADDRESS_BYTES];
    struct tdm__conn *conn;

    (void)snprintf(address, sizeof(address), "unix:%s/this", directory);
    tdm__rpc_set_call_handler(scene->node.rpc, serve_groups, scene);
    TRY(tdm__rpc_listen(scene->node.rpc, address, NULL, 0));
    TRY(tdm__rpc_connect(scene->other.rpc, address, &conn));
    return conn;
}

/* Asks over `conn` for a group with the name "unheard" and two bundles of `gpus` GPUs each. */
static void ask_for_group(struct tdm__conn *conn, double gpus, bool is_asynchronous,
                          struct made *made)
{
    struct tdm__rpc_request request = {.method = "placement_group.create",
                                       .deadline_ms = TDM__NEVER};
    struct tdm__resources bundle = {.cpu = 0};
    tdm_writer *writer;

    *made = (struct made){.is_answered = false};
    TRY(tdm__resources_add(&bundle, "GPU", gpus));
    TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 8);
    tdm_write_int(writer, TDM_SPREAD);
    tdm_write_array(writer, 2);
    tdm__resources_write(writer, &bundle);
    tdm__resources_write(writer, &bundle);
    tdm_write_string(writer, "mine");
    tdm_write_string(writer, "unheard");
    tdm_write_bool(writer, false);
    tdm_write_bool(writer, is_asynchronous);
    tdm_write_int(writer, 0);
    tdm_write_bool(writer, false);
    request.packed = tdm_writer_bytes(writer);
    TRY(tdm__conn_call(conn, &request, on_made, made, NULL));
    tdm_writer_destroy(writer);
}

static tdm_status wait_for_group(struct scene *scene, struct made *made)
{
    TRY(tdm__loop_run(scene->world.loop, is_answered, made, tdm__deadline_after(WAIT_MS)));
    return made->status;
}

static void group_is_not_held_when_its_reply_was_lost(void **state)
{
    struct scene *scene = *state;
    struct made made;

    remove_group(scene); /* Removes the group that the other tests use. */
    scene->deaf.lost_replies = 1;
    ask_for_group(connect_maker(scene), 1, false, &made); /* Both GPUs. */
    assert_int_equal(wait_for_group(scene, &made), TDM_E_TIMEOUT);
    TRY(tdm__loop_run(scene->world.loop, is_removed, scene, tdm__deadline_after(WAIT_MS)));
    assert_int_equal(reserve_fixture_find_group(&scene->world, "mine", "unheard"), TDM_E_NOT_FOUND);
    TRY(tdm__id_generate(&scene->group));
    /* All resources are free. */
    TRY(reserve_fixture_group(&scene->world, &scene->group, 1, 2, TDM_SPREAD));
}

/* Two actors of other nodes hold the GPUs of both nodes. Whenever one ends, the next one takes its
 * place, so that both GPUs are never free. */
static void group_is_placed_against_endless_actors(void **state)
{
    struct scene *scene = *state;
    struct tdm__actor_record held[2];
    bool is_held[2] = {false, false};
    struct made made = {.is_answered = false};
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);

    remove_group(scene);
    for (uint32_t i = 0; i < 2 || (!made.is_answered && tdm__clock_ms() < deadline_ms); i++) {
        struct tdm__actor_request request = reserve_fixture_wish(1, "");

        if (is_held[i % 2]) {
            TRY(reserve_fixture_give_back(&scene->world, &held[i % 2]));
        }
        is_held[i % 2] = reserve_fixture_take(&scene->world, &request) == TDM_OK;
        held[i % 2] = reserve_fixture_record(&scene->world, &request);
        if (i == 1) {
            ask_for_group(connect_maker(scene), 1, false, &made);
        }
        (void)tdm__loop_run(scene->world.loop, is_answered, &made, tdm__deadline_after(5));
        tdm__placement_groups_retry(&scene->node);
    }
    assert_true(made.is_answered);
    assert_int_equal(made.status, TDM_OK);
}

/* The creator gives up while nodes have the group's ticket. */
static void ticket_goes_with_the_creator_of_its_group(void **state)
{
    struct scene *scene = *state;
    struct tdm__actor_request request = reserve_fixture_wish(1, "");
    struct tdm__actor_record held;
    struct made made;
    int64_t deadline_ms = tdm__deadline_after(WAIT_MS);
    tdm_status status = TDM_OK;

    remove_group(scene);
    TRY(reserve_fixture_take(&scene->world, &request));
    held = reserve_fixture_record(&scene->world, &request);
    ask_for_group(connect_maker(scene), 1, false, &made);
    while (status == TDM_OK && tdm__clock_ms() < deadline_ms) { /* Until the ticket is there. */
        (void)tdm__loop_run(scene->world.loop, is_answered, &made, tdm__deadline_after(20));
        tdm__placement_groups_retry(&scene->node);
        request = reserve_fixture_wish(1, "");
        status = reserve_fixture_take(&scene->world, &request);
        if (status == TDM_OK) {
            struct tdm__actor_record other = reserve_fixture_record(&scene->world, &request);

            TRY(reserve_fixture_give_back(&scene->world, &other));
        }
    }
    assert_int_equal(status, TDM_E_AGAIN);
    tdm__placement_groups_creator_gone(&scene->node, &scene->other.id);
    assert_int_equal(wait_for_group(scene, &made), TDM_E_CANCELED);
    TRY(reserve_fixture_give_back(&scene->world, &held));
    while (status == TDM_E_AGAIN && tdm__clock_ms() < deadline_ms) {
        request = reserve_fixture_wish(1, "");
        status = reserve_fixture_take(&scene->world, &request);
    }
    assert_int_equal(status, TDM_OK);
}

/* The store has lost changes, so the name may belong to another group. The creator of a group that
 * need not be placed is told of it when it has its name, and no sooner. */
static void asynchronous_group_has_its_name_when_its_creator_hears_of_it(void **state)
{
    struct scene *scene = *state;
    struct tdm__conn *conn = connect_maker(scene);
    struct made first;
    struct made second;

    scene->node.store_view.generation = reserve_fixture_new_generation(&scene->world);
    scene->node.store_view.names_wait = true;
    ask_for_group(conn, 1, true, &first); /* The group of the other tests has both GPUs. */
    assert_int_equal(tdm__loop_run(scene->world.loop, is_answered, &first, tdm__deadline_after(50)),
                     TDM_E_TIMEOUT);
    scene->node.store_view.names_wait = false;
    tdm__placement_groups_retry(&scene->node);
    TRY(wait_for_group(scene, &first));
    TRY(reserve_fixture_find_group(&scene->world, "mine", "unheard"));
    ask_for_group(conn, 1, true, &second);
    assert_int_equal(wait_for_group(scene, &second), TDM_E_EXISTS);
    remove_group(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nodes_of_the_bundles_end_their_actors_of_a_removed_group,
                                        open_scene, close_scene),
        cmocka_unit_test_setup_teardown(node_without_members_is_not_asked, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(group_is_removed_although_closing_it_failed_at_first,
                                        open_scene, close_scene),
        cmocka_unit_test_setup_teardown(node_that_could_not_be_looked_up_is_asked_again, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(node_that_did_not_reply_in_time_is_asked_again, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(lost_node_is_not_waited_for, open_scene, close_scene),
        cmocka_unit_test_setup_teardown(group_is_not_held_when_its_reply_was_lost, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(group_is_placed_against_endless_actors, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(ticket_goes_with_the_creator_of_its_group, open_scene,
                                        close_scene),
        cmocka_unit_test_setup_teardown(
            asynchronous_group_has_its_name_when_its_creator_hears_of_it, open_scene, close_scene),
    };
    int failed;

    assert_non_null(mkdtemp(directory));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(directory);
    return failed;
}
