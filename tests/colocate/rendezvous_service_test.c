/* rendezvous_service_test.c - the rendezvous service refuses joins that cannot become a group. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { LONG_MS = 10000, SLOT = 4096, ANSWERS_MAX = 4 };

static tdm_runtime *runtime;

/* The reply to a join that runs on another thread. */
struct answer {
    bool is_there;
    tdm_status status;
    char detail[256];
    uint32_t fds_count;
};

static void on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct answer *answer = arg;

    answer->is_there = true;
    answer->status = reply->status;
    answer->fds_count = reply->fds_count;
    (void)snprintf(answer->detail, sizeof(answer->detail), "%s", reply->detail);
}

static void start_join(const char *name, uint64_t rank, uint64_t ranks_count, int64_t timeout_ms,
                       struct answer *answer)
{
    struct tdm__rpc_request request = {.method = "rendezvous.join",
                                       .deadline_ms = tdm__deadline_after(LONG_MS)};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    TDM__LOCK(runtime);

    memset(answer, 0, sizeof(*answer));
    TRY(tdm__runtime_daemon(runtime, &daemon));
    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "suuui", name, rank, ranks_count, (uint64_t)SLOT, timeout_ms));
    request.packed = tdm_writer_bytes(writer);
    TRY(tdm__conn_call(daemon, &request, on_reply, answer, NULL));
    tdm_writer_destroy(writer);
}

static bool is_there(void *arg)
{
    const struct answer *answer = arg;

    return answer->is_there;
}

/* Replies come on another thread while this one does not wait for any. */
static bool has_come(struct answer *answer)
{
    TDM__LOCK(runtime);

    return answer->is_there;
}

static void await(struct answer *answer)
{
    TRY(tdm__loop_run(runtime->loop, is_there, answer, tdm__deadline_after(LONG_MS)));
}

static void assert_refused(const char *name, uint64_t rank, uint64_t ranks_count, tdm_status status,
                           const char *why)
{
    struct answer answer;

    start_join(name, rank, ranks_count, LONG_MS, &answer);
    await(&answer);
    assert_int_equal(answer.status, status);
    assert_non_null(strstr(answer.detail, why));
}

static void all_are_answered_when_the_last_has_come(void **state)
{
    struct answer answers[3];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        start_join("three", 2 - i, 3, LONG_MS, &answers[i]);
        assert_false(has_come(&answers[0]));
    }
    start_join("three", 0, 3, LONG_MS, &answers[2]);
    for (uint32_t i = 0; i < 3; i++) {
        await(&answers[i]);
        assert_int_equal(answers[i].status, TDM_OK);
        assert_int_equal(answers[i].fds_count, 1);
    }
}

static void group_of_the_largest_number_of_ranks_is_completed(void **state)
{
    static struct answer answers[TDM_COLLECTIVE_RANKS_MAX];

    (void)state;
    for (uint32_t i = 0; i < TDM_COLLECTIVE_RANKS_MAX; i++) {
        start_join("many", i, TDM_COLLECTIVE_RANKS_MAX, LONG_MS, &answers[i]);
    }
    for (uint32_t i = 0; i < TDM_COLLECTIVE_RANKS_MAX; i++) {
        await(&answers[i]);
        assert_int_equal(answers[i].status, TDM_OK);
        assert_int_equal(answers[i].fds_count, 1);
    }
    assert_refused("more", 0, TDM_COLLECTIVE_RANKS_MAX + 1, TDM_E_INVAL,
                   "a group has 1 to 256 ranks");
}

static tdm_status call_off(const char *name)
{
    return one_node_call(runtime, "rendezvous.cancel", NULL, "sb", name,
                         (const void *)runtime->self.node.bytes, sizeof(runtime->self.node.bytes));
}

static void waiting_and_late_members_learn_of_the_cancellation(void **state)
{
    struct answer waits;
    struct answer below;
    struct answer other;

    (void)state;
    start_join("line/7", 0, 2, LONG_MS, &waits);
    start_join("line/7/0", 0, 2, LONG_MS, &below);
    start_join("line/77", 0, 2, LONG_MS, &other);
    TRY(call_off("line/7"));
    await(&waits);
    await(&below);
    assert_int_equal(waits.status, TDM_E_ABORTED);
    assert_int_equal(below.status, TDM_E_ABORTED);
    assert_string_equal(below.detail, "group line/7/0 was called off");
    assert_false(has_come(&other));
    assert_refused("line/7/1", 1, 2, TDM_E_ABORTED, "was called off");
    start_join("line/77", 1, 2, LONG_MS, &waits);
    await(&other);
    await(&waits);
    assert_int_equal(other.status, TDM_OK);
}

static void cancel_with_an_invalid_name_or_node_is_refused(void **state)
{
    (void)state;
    assert_int_equal(call_off(""), TDM_E_INVAL);
    assert_int_equal(
        one_node_call(runtime, "rendezvous.cancel", NULL, "sb", "line", "node", (size_t)4),
        TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "rendezvous.cancel", NULL, "s", "line"),
                     TDM_E_PROTOCOL);
}

static void ranks_and_names_that_are_none_are_refused(void **state)
{
    char name[200];

    (void)state;
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_refused("group", 2, 2, TDM_E_INVAL, "rank 2 of 2");
    assert_refused("group", 0, 0, TDM_E_INVAL, "rank 0 of 0");
    assert_refused("group", 0, 1000, TDM_E_INVAL, "rank 0 of 1000");
    assert_refused("", 0, 1, TDM_E_INVAL, "1 to 127 bytes");
    assert_refused(NULL, 0, 1, TDM_E_INVAL, "1 to 127 bytes");
    assert_refused(name, 0, 1, TDM_E_INVAL, "1 to 127 bytes");
    assert_int_equal(one_node_call(runtime, "rendezvous.join", NULL, "s", "group"), TDM_E_PROTOCOL);
    assert_int_equal(one_node_call(runtime, "rendezvous.leave", NULL, ""), TDM_E_NOT_FOUND);
}

static void members_that_disagree_are_told_both_shapes(void **state)
{
    struct answer first;
    struct answer second;

    (void)state;
    start_join("pair", 0, 2, LONG_MS, &first);
    assert_refused("pair", 1, 3, TDM_E_INVAL,
                   "rank 1 joins group pair with 3 ranks and slots of 4096 bytes, the others "
                   "with 2 ranks");
    /* The rendezvous continues for the other members. */
    start_join("pair", 1, 2, LONG_MS, &second);
    await(&first);
    assert_int_equal(first.status, TDM_OK);
    await(&second);
    assert_int_equal(second.status, TDM_OK);
}

static void rank_that_joins_once_more_replaces_itself(void **state)
{
    struct answer lost;
    struct answer again;
    struct answer other;

    (void)state;
    start_join("again", 0, 2, LONG_MS, &lost);
    start_join("again", 0, 2, LONG_MS, &again);
    await(&lost);
    assert_int_equal(lost.status, TDM_E_CANCELED);
    start_join("again", 1, 2, LONG_MS, &other);
    await(&again);
    assert_int_equal(again.status, TDM_OK);
    await(&other);
}

static void the_least_patient_ends_the_meeting_for_all(void **state)
{
    struct answer patient;
    struct answer hasty;

    (void)state;
    start_join("late", 0, 3, LONG_MS, &patient);
    start_join("late", 1, 3, 50, &hasty);
    await(&patient);
    assert_int_equal(patient.status, TDM_E_TIMEOUT);
    assert_string_equal(patient.detail, "group late: did not come in time: rank 2");
    await(&hasty);
    assert_int_equal(hasty.status, TDM_E_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_answered_when_the_last_has_come),
        cmocka_unit_test(group_of_the_largest_number_of_ranks_is_completed),
        cmocka_unit_test(waiting_and_late_members_learn_of_the_cancellation),
        cmocka_unit_test(cancel_with_an_invalid_name_or_node_is_refused),
        cmocka_unit_test(ranks_and_names_that_are_none_are_refused),
        cmocka_unit_test(members_that_disagree_are_told_both_shapes),
        cmocka_unit_test(rank_that_joins_once_more_replaces_itself),
        cmocka_unit_test(the_least_patient_ends_the_meeting_for_all),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
