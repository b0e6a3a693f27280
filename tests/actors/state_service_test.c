/* state_service_test.c - a list of the cluster says what is missing: nodes, processes, records. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- two more nodes --------------------------------------------------------------------- */

struct cluster {
    struct node_fixture *scene;
    struct remote_peer others[2];
    struct remote_reply answer;
};

static void ask(struct cluster *cluster, struct node_fixture *scene, const char *kind)
{
    cluster->scene = scene;
    node_fixture_other(scene, &cluster->others[0], "one");
    node_fixture_other(scene, &cluster->others[1], "two");
    remote_peer_ask(&scene->driver, &cluster->answer, "state.list", "s", kind);
    for (int i = 0; i < 2; i++) {
        remote_peer_hold(&cluster->others[i], 1);
        assert_string_equal(tdm__incoming_method(cluster->others[i].held[0]), "state.here");
    }
}

static struct tdm__incoming_call *question(struct cluster *cluster, int index)
{
    assert_int_equal(cluster->answer.count, 0); /* The list waits for the last node. */
    return remote_peer_take(&cluster->others[index]);
}

static void expect(struct cluster *cluster, uint32_t records, uint64_t nodes, uint64_t processes,
                   uint64_t left_out)
{
    const tdm_value *value;

    assert_int_equal(remote_peer_wait(&cluster->scene->driver, &cluster->answer), TDM_OK);
    value = remote_reply_value(&cluster->answer);
    assert_int_equal(tdm_value_count(tdm_value_at(value, 0)), records);
    assert_int_equal(tdm_value_uint(tdm_value_at(value, 1), 99), nodes);
    assert_int_equal(tdm_value_uint(tdm_value_at(value, 2), 99), processes);
    assert_int_equal(tdm_value_uint(tdm_value_at(value, 3), 99), left_out);
    remote_reply_free(&cluster->answer);
    remote_peer_close(&cluster->others[0]);
    remote_peer_close(&cluster->others[1]);
}

static void records_and_missing_counts_add_up(void **state)
{
    struct cluster cluster;

    (void)node_fixture_add(*state, ACTOR_WAITING);
    ask(&cluster, *state, "actors");
    tdm__incoming_reply_pack(question(&cluster, 1), "({si}{si})uu", "a", (int64_t)1, "a",
                             (int64_t)2, (uint64_t)3, (uint64_t)40);
    tdm__incoming_reply_pack(question(&cluster, 0), "({si})uu", "a", (int64_t)3, (uint64_t)4,
                             (uint64_t)2);
    expect(&cluster, 4, 0, 7, 42);
}

static void node_that_does_not_answer_well_is_missing(void **state)
{
    struct cluster cluster;

    ask(&cluster, *state, "actors");
    tdm__incoming_fail(question(&cluster, 0), TDM_E_NOMEM, "a list");
    tdm__incoming_reply(question(&cluster, 1), (struct tdm_bytes){"\x93\x91", 2}, NULL, 0);
    expect(&cluster, 0, 2, 0, 0);
}

/* Another version's, say: it is no part of a list. */
static void node_whose_reply_is_no_list_is_missing(void **state)
{
    struct cluster cluster;

    ask(&cluster, *state, "actors");
    tdm__incoming_reply_pack(question(&cluster, 0), "{si}uu", "a", (int64_t)1, (uint64_t)0,
                             (uint64_t)0);
    tdm__incoming_reply(question(&cluster, 1), (struct tdm_bytes){"\x07", 1}, NULL, 0);
    expect(&cluster, 0, 2, 0, 0);
}

static void node_that_is_lost_meanwhile_is_missing(void **state)
{
    struct cluster cluster;

    ask(&cluster, *state, "actors");
    tdm__incoming_reply_pack(question(&cluster, 0), "()uu", (uint64_t)0, (uint64_t)0);
    remote_peer_cut(&cluster.others[1]);
    expect(&cluster, 0, 1, 0, 0);
}

/* This node has no group; the store has none either. */
static void groups_that_wait_at_other_nodes_are_listed(void **state)
{
    struct cluster cluster;

    ask(&cluster, *state, "groups");
    tdm__incoming_reply_pack(question(&cluster, 1), "({ss})uu", "id", "a", (uint64_t)0,
                             (uint64_t)0);
    tdm__incoming_fail(question(&cluster, 0), TDM_E_NOMEM, "a list");
    expect(&cluster, 1, 1, 0, 0);
}

/* ---- what can be asked ------------------------------------------------------------------ */

static void unknown_list_is_refused(void **state)
{
    struct node_fixture *scene = *state;
    struct remote_peer *driver = &scene->driver;

    assert_int_equal(remote_peer_call(driver, "state.list", "s", "sorrows"), TDM_E_INVAL);
    assert_int_equal(remote_peer_call(driver, "state.list", "s", NULL), TDM_E_PROTOCOL);
    assert_int_equal(remote_peer_call(driver, "state.here", ""), TDM_E_PROTOCOL);
    assert_int_equal(remote_peer_call(driver, "state.there", "s", "actors"), TDM_E_NOT_FOUND);
}

static void without_the_store_there_is_no_list(void **state)
{
    struct node_fixture *scene = *state;

    scene->deaf.fail_pattern = "node/*";
    scene->deaf.fail_reads_count = 1;
    assert_int_equal(remote_peer_call(&scene->driver, "state.list", "s", "actors"), TDM_E_TIMEOUT);
    assert_int_equal(remote_peer_call(&scene->driver, "state.list", "s", "nodes"), TDM_OK);
    scene->deaf.fail_pattern = "group/*";
    scene->deaf.fail_reads_count = 1;
    assert_int_equal(remote_peer_call(&scene->driver, "state.list", "s", "groups"), TDM_E_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_FIXTURE_TEST(records_and_missing_counts_add_up),
        NODE_FIXTURE_TEST(node_that_does_not_answer_well_is_missing),
        NODE_FIXTURE_TEST(node_whose_reply_is_no_list_is_missing),
        NODE_FIXTURE_TEST(node_that_is_lost_meanwhile_is_missing),
        NODE_FIXTURE_TEST(groups_that_wait_at_other_nodes_are_listed),
        NODE_FIXTURE_TEST(unknown_list_is_refused),
        NODE_FIXTURE_TEST(without_the_store_there_is_no_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
