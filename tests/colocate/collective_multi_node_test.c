/* collective_multi_node_test.c - actors on two nodes join a group, exchange data, and learn which
 * member died. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/collective.h"
#include "runtime/clock.h"
#include "tests/support/one_node.h"
#include "tests/support/two_nodes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { MEMBERS = 4, CALL_MS = 20000, BYTES = 3000000 };

/* ---- the actor: one member of one group ------------------------------------------------- */

struct member {
    tdm_collective_group *group;
};

/* (name, rank, number of ranks, node of the meeting point, timeout) returns the name of the
 * communicator. */
static tdm_status member_join(tdm_call *call, void *self)
{
    struct member *member = self;
    struct tdm_collective_options options = {.slot_bytes = 65536};
    uint64_t rank;
    uint64_t ranks_count;

    TDM_TRY(tdm_call_unpack(call, "suusi", &options.name, &rank, &ranks_count, &options.node_id,
                            &options.timeout_ms));
    options.rank = (uint32_t)rank;
    options.ranks_count = (uint32_t)ranks_count;
    tdm_collective_leave(member->group);
    member->group = NULL;
    TDM_TRY(tdm_collective_join(tdm_runtime_current(), &options, &member->group));
    return tdm_call_reply(call, "s", tdm__collective_comm(member->group)->ops->name);
}

/* The data is larger than a chunk and than what a socket takes at once. */
static tdm_status member_exchange(tdm_call *call, void *self)
{
    struct member *member = self;
    uint32_t ranks_count = tdm_collective_ranks_count(member->group);
    uint32_t rank = tdm_collective_rank(member->group);
    unsigned char *all = malloc((size_t)ranks_count * BYTES);
    float sum = (float)rank;
    tdm_status status;

    (void)call;
    memset(all + (size_t)rank * BYTES, (int)rank + 1, BYTES);
    status = tdm_collective_all_gather(member->group, all + (size_t)rank * BYTES, BYTES, all);
    for (size_t i = 0; i < (size_t)ranks_count * BYTES && status == TDM_OK; i += 997) {
        status = all[i] == i / BYTES + 1 ? TDM_OK : tdm_fail(TDM_E_METHOD, "byte %zu", i);
    }
    free(all);
    TDM_TRY(status);
    TDM_TRY(tdm_collective_all_reduce(member->group, &sum, 1, TDM_SUM));
    return 2 * sum == (float)(ranks_count * (ranks_count - 1))
               ? TDM_OK
               : tdm_fail(TDM_E_METHOD, "a sum of %g", (double)sum);
}

static tdm_status member_barrier(tdm_call *call, void *self)
{
    struct member *member = self;

    (void)call;
    return tdm_collective_barrier(member->group);
}

static void member_end(void *self)
{
    struct member *member = self;

    tdm_collective_leave(member->group);
}

TDM_ACTOR_CLASS(far_member, .state_bytes = sizeof(struct member), .destruct = member_end,
                .methods = {{"join", member_join},
                            {"exchange", member_exchange},
                            {"barrier", member_barrier}});

/* ---- the driver ------------------------------------------------------------------------- */

static struct two_nodes cluster;
static struct test_node third; /* Node that one test at a time uses. */
static tdm_runtime *runtime;   /* Runtime of a driver on the first node. */

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *member_on(const char *label)
{
    const struct tdm_actor_options options = {.labels = {label}};
    tdm_actor *actor;

    TRY(tdm_actor_create(runtime, "far_member", &options, &actor, ""));
    TRY(tdm_actor_wait_ready(actor, CALL_MS));
    return actor;
}

static void dismiss(tdm_actor **members, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        TRY(tdm_actor_kill(members[i], CALL_MS));
        tdm_actor_destroy(members[i]);
    }
}

static void join_all(tdm_actor **members, uint32_t count, const char *node_id, const char *wanted)
{
    tdm_ref *refs[MEMBERS];

    for (uint32_t i = 0; i < count; i++) {
        TRY(tdm_actor_call(members[i], "join", &refs[i], "suusi", "far", (uint64_t)i,
                           (uint64_t)count, node_id, (int64_t)CALL_MS));
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *name;

        TRY(tdm_get(refs[i], CALL_MS, "s", &name));
        assert_string_equal(name, wanted);
        tdm_ref_release(refs[i]);
    }
}

static void exchange_all(tdm_actor **members, uint32_t count)
{
    tdm_ref *refs[MEMBERS];
    const tdm_value *value;

    for (uint32_t i = 0; i < count; i++) {
        TRY(tdm_actor_call(members[i], "exchange", &refs[i], ""));
    }
    for (uint32_t i = 0; i < count; i++) {
        TRY(tdm_get_value(refs[i], CALL_MS, &value));
        tdm_ref_release(refs[i]);
    }
}

static void node_of(tdm_actor *actor, char node_id[33])
{
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    (void)snprintf(node_id, 33, "%s", info.node_id);
}

static void actors_on_two_nodes_meet_on_either(void **state)
{
    tdm_actor *members[MEMBERS];
    char node_id[33];

    (void)state;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        members[i] = member_on(i % 2 == 0 ? "side=first" : "side=second");
    }
    for (uint32_t i = 0; i < 2; i++) {
        node_of(members[i], node_id);
        join_all(members, MEMBERS, node_id, "tcp");
        exchange_all(members, MEMBERS);
    }
    dismiss(members, MEMBERS);
}

static void ranks_of_one_node_share_memory_wherever_they_met(void **state)
{
    tdm_actor *members[3];
    char node_id[33];

    (void)state;
    members[0] = member_on("side=second");
    members[1] = member_on("side=second");
    members[2] = member_on("side=first");
    node_of(members[2], node_id);
    join_all(members, 2, node_id, "host");
    exchange_all(members, 2);
    dismiss(members, 3);
}

static void death_of_one_rank_aborts_the_others_on_all_nodes(void **state)
{
    tdm_actor *members[3];
    tdm_ref *refs[2];
    char node_id[33];

    (void)state;
    members[0] = member_on("side=first");
    members[1] = member_on("side=second");
    members[2] = member_on("side=second");
    node_of(members[0], node_id);
    join_all(members, 3, node_id, "tcp");
    for (uint32_t i = 0; i < 2; i++) {
        TRY(tdm_actor_call(members[i], "barrier", &refs[i], ""));
    }
    one_node_kill_actor(members[2]);
    for (uint32_t i = 0; i < 2; i++) {
        const tdm_value *value;

        assert_int_equal(tdm_get_value(refs[i], CALL_MS, &value), TDM_E_ABORTED);
        assert_non_null(strstr(tdm_error_detail(), "rank 2 of 3"));
        tdm_ref_release(refs[i]);
    }
    dismiss(members, 3);
}

static void wait_alone(tdm_actor *member, const char *node_id)
{
    const tdm_value *value;
    tdm_ref *ref;

    TRY(tdm_actor_call(member, "join", &ref, "suusi", "lonely", (uint64_t)0, (uint64_t)2, node_id,
                       (int64_t)300));
    assert_int_equal(tdm_get_value(ref, CALL_MS, &value), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "did not come in time: rank 1"));
    tdm_ref_release(ref);
}

static void rank_that_dies_while_waiting_leaves_the_rendezvous_of_the_other_node(void **state)
{
    tdm_actor *members[2];
    tdm_actor *lost = member_on("side=second");
    const tdm_value *value;
    char node_id[33];
    tdm_ref *ref;

    (void)state;
    members[0] = member_on("side=second");
    members[1] = member_on("side=first");
    node_of(members[1], node_id);
    TRY(tdm_actor_call(lost, "join", &ref, "suusi", "far", (uint64_t)0, (uint64_t)2, node_id,
                       (int64_t)CALL_MS));
    wait_alone(members[0], node_id); /* who went the same way before is there by then */
    one_node_kill_actor(lost);
    assert_int_equal(tdm_get_value(ref, CALL_MS, &value), TDM_E_ACTOR_DIED);
    tdm_ref_release(ref);
    join_all(members, 2, node_id, "tcp");
    exchange_all(members, 2);
    dismiss(members, 2);
    tdm_actor_destroy(lost);
}

static void missing_rank_is_named_on_the_other_node(void **state)
{
    tdm_actor *here = member_on("side=first");
    tdm_actor *there = member_on("side=second");
    const tdm_value *value;
    char node_id[33];
    tdm_ref *ref;

    (void)state;
    node_of(here, node_id);
    wait_alone(there, node_id);
    TRY(tdm_actor_call(there, "join", &ref, "suusi", "lonely", (uint64_t)0, (uint64_t)2,
                       "00000000000000000000000000000001", (int64_t)5000));
    assert_int_equal(tdm_get_value(ref, CALL_MS, &value), TDM_E_NODE_LOST);
    tdm_ref_release(ref);
    dismiss(&here, 1);
    dismiss(&there, 1);
}

/* The first of three members joins from a node that is then lost, and the second waits. */
static void lose_node_with_a_member(int signal_number)
{
    tdm_actor *lost;
    tdm_actor *scout;
    tdm_actor *left = member_on("side=first");
    int64_t begun_ms;
    char node_id[33];
    tdm_ref *refs[2];
    const tdm_value *value;
    char said[1024];

    assert_int_equal(test_node_start(&cluster, "third", &third, said), 0);
    lost = member_on("side=third");
    scout = member_on("side=third");
    node_of(left, node_id);
    TRY(tdm_actor_call(lost, "join", &refs[0], "suusi", "trio", (uint64_t)0, (uint64_t)3, node_id,
                       (int64_t)60000));
    wait_alone(scout, node_id); /* who went the same way before is there by then */
    TRY(tdm_actor_call(left, "join", &refs[1], "suusi", "trio", (uint64_t)1, (uint64_t)3, node_id,
                       (int64_t)60000));
    wait_alone(scout, node_id);
    begun_ms = tdm__clock_ms();
    assert_int_equal(kill(third.daemon, signal_number), 0);
    assert_int_equal(tdm_get_value(refs[1], CALL_MS, &value), TDM_E_NODE_LOST);
    assert_non_null(strstr(tdm_error_detail(), "tandemd on third is lost, and with it rank 0"));
    assert_true(tdm__clock_ms() - begun_ms < 15000);
    if (signal_number != SIGKILL) {
        assert_int_equal(kill(third.daemon, SIGKILL), 0);
    }
    (void)waitpid(third.supervisor, NULL, 0);
    third.supervisor = 0;
    tdm_ref_release(refs[0]);
    tdm_ref_release(refs[1]);
    dismiss(&left, 1);
    tdm_actor_destroy(scout);
    tdm_actor_destroy(lost);
}

static void members_learn_at_once_that_the_node_of_another_was_killed(void **state)
{
    (void)state;
    lose_node_with_a_member(SIGKILL);
}

static void and_when_its_lease_ends_that_it_was_stopped(void **state)
{
    (void)state;
    lose_node_with_a_member(SIGSTOP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actors_on_two_nodes_meet_on_either),
        cmocka_unit_test(ranks_of_one_node_share_memory_wherever_they_met),
        cmocka_unit_test(death_of_one_rank_aborts_the_others_on_all_nodes),
        cmocka_unit_test(rank_that_dies_while_waiting_leaves_the_rendezvous_of_the_other_node),
        cmocka_unit_test(missing_rank_is_named_on_the_other_node),
        cmocka_unit_test(members_learn_at_once_that_the_node_of_another_was_killed),
        cmocka_unit_test(and_when_its_lease_ends_that_it_was_stopped),
    };
    int failed;

    runtime = two_nodes_join(&cluster);
    if (runtime == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_node_stop(&third);
    return failed + two_nodes_leave(&cluster, runtime);
}
