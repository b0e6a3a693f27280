/* scheme_membership_test.c - reports of members, and members that have died. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/membership.h"

#include "colocate/scheme/mailbox.h"
#include "colocate/weights/commit_record.h"
#include "runtime/clock.h"
#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { SHORT_MS = 300, SOON_MS = 10000, MEMBERS = 2 };

static tdm_runtime *runtime;

/* A sender that never connects; the test writes the receivers' messages. */
struct fixture {
    struct scheme_model model;
    tdm_weights_sender *sender;
    tdm_actor *actors[MEMBERS];
    struct tdm__member members[MEMBERS];
};

static void put_presence(struct fixture *f, uint32_t index, int present)
{
    const struct tdm__member *member = &f->members[index];
    const struct tdm__scheme_join_message message = {.receiver = tdm__member_to_message(member),
                                                     .is_present = present != 0};
    char key[TDM__UPDATE_KEY_BYTES];

    TRY(tdm__mailbox_put_and_wait(f->sender->mailbox, tdm__update_join_key(member, key),
                                  tdm__scheme_join_table(), &message,
                                  tdm__deadline_after(SOON_MS)));
}

static void put_vote(struct fixture *f, uint32_t index, tdm_status status, const char *text)
{
    const struct tdm__scheme_report_message message = {
        .receiver = tdm__member_to_message(&f->members[index]),
        .status = (int64_t)status,
        .text = text};
    char key[TDM__UPDATE_KEY_BYTES];

    (void)snprintf(key, sizeof(key), "update/5/vote/%u", index);
    TRY(tdm__mailbox_put_and_wait(f->sender->mailbox, key, tdm__scheme_report_table(), &message,
                                  tdm__deadline_after(SOON_MS)));
}

static tdm_status await_votes(struct fixture *f, int64_t timeout_ms)
{
    return tdm__membership_await(f->sender, "vote/", "voted in", tdm__deadline_after(timeout_ms));
}

static int set_up(void **state)
{
    static uint32_t count;
    struct fixture *f = calloc(1, sizeof(*f));
    char name[32];

    assert_non_null(f);
    (void)snprintf(name, sizeof(name), "membership.%u", count++);
    scheme_model_init(&f->model);
    f->sender = scheme_sender(runtime, name, TDM_WEIGHTS_SHARED, &f->model, MEMBERS);
    TRY(tdm__mailbox_create(runtime, name, SOON_MS, &f->sender->mailbox));
    f->sender->epoch = 5;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct tdm_actor_info info;

        f->actors[i] = scheme_pupil(runtime, name, 0);
        tdm_actor_describe(f->actors[i], &info);
        TRY(tdm__id_parse(info.id, &f->members[i].actor));
        f->members[i].incarnation = 1;
        put_presence(f, i, 1);
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    tdm_weights_sender_shutdown(f->sender);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        tdm_actor_destroy(f->actors[i]);
    }
    scheme_model_fini(&f->model);
    free(f);
    return 0;
}

static void present_receivers_are_members_and_lost_ones_are_dead(void **state)
{
    struct fixture *f = *state;

    TRY(tdm__membership_collect(f->sender, tdm__deadline_after(SOON_MS)));
    assert_int_equal(f->sender->membership.members_count, MEMBERS);
    assert_int_equal(f->sender->membership.dead_count, 0);
    put_presence(f, 1, 0);
    TRY(tdm__membership_collect(f->sender, tdm__deadline_after(SOON_MS)));
    assert_int_equal(f->sender->membership.members_count, 1);
    assert_int_equal(f->sender->membership.dead_count, 1);
    tdm__membership_forget_dead(f->sender);
    put_presence(f, 0, 0);
    assert_int_equal(tdm__membership_collect(f->sender, tdm__deadline_after(SOON_MS)),
                     TDM_E_NOT_FOUND);
    /* Only the receiver that is not forgotten yet counts. */
    assert_int_equal(f->sender->membership.dead_count, 1);
}

static void all_must_report(void **state)
{
    struct fixture *f = *state;
    char id[TDM__ID_TEXT_BYTES];

    TRY(tdm__membership_collect(f->sender, tdm__deadline_after(SOON_MS)));
    put_vote(f, 0, TDM_OK, "");
    assert_int_equal(await_votes(f, SHORT_MS), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), tdm__id_text(&f->members[1].actor, id)));
    assert_non_null(strstr(tdm_error_detail(), "1 of 2"));
    put_vote(f, 1, TDM_OK, "");
    TRY(await_votes(f, SOON_MS));
}

static void one_failure_is_the_failure_of_all(void **state)
{
    struct fixture *f = *state;

    TRY(tdm__membership_collect(f->sender, tdm__deadline_after(SOON_MS)));
    put_vote(f, 1, TDM_E_CHECKSUM, "tensor x is wrong");
    assert_int_equal(await_votes(f, SOON_MS), TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), "tensor x is wrong"));
}

static void receiver_that_dies_while_others_wait_is_named(void **state)
{
    struct fixture *f = *state;
    char id[TDM__ID_TEXT_BYTES];

    TRY(tdm__membership_collect(f->sender, tdm__deadline_after(SOON_MS)));
    put_vote(f, 0, TDM_OK, "");
    one_node_kill_actor(f->actors[1]);
    assert_int_equal(await_votes(f, SOON_MS), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), tdm__id_text(&f->members[1].actor, id)));
    assert_int_equal(f->sender->membership.dead_count, 1);
    assert_true(tdm__id_equal(&f->sender->membership.dead[0].actor, &f->members[1].actor));
    tdm__membership_drop_dead(f->sender);
    assert_int_equal(f->sender->membership.members_count, 1);
    TRY(await_votes(f, SOON_MS)); /* The remaining members have all reported. */
}

static void dead_receiver_is_named_although_another_is_silent(void **state)
{
    struct fixture *f = *state;
    struct tdm_actor_info silent;
    char id[TDM__ID_TEXT_BYTES];

    TRY(tdm__membership_collect(f->sender, tdm__deadline_after(SOON_MS)));
    tdm_actor_describe(f->actors[1], &silent);
    assert_int_equal(kill((pid_t)silent.pid, SIGSTOP), 0);
    one_node_kill_actor(f->actors[0]);
    assert_int_equal(await_votes(f, SOON_MS), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), tdm__id_text(&f->members[0].actor, id)));
    assert_int_equal(f->sender->membership.dead_count, 1);
    assert_int_equal(kill((pid_t)silent.pid, SIGCONT), 0);
}

static void report_of_an_unknown_receiver_is_ignored(void **state)
{
    struct fixture *f = *state;
    struct tdm__member second = f->members[1];

    TRY(tdm__membership_collect(f->sender, tdm__deadline_after(SOON_MS)));
    put_vote(f, 0, TDM_OK, "");
    /* The message is of an older or a newer receiver of the same actor. */
    f->members[1].incarnation = 99;
    put_vote(f, 1, TDM_OK, "");
    f->members[1] = second;
    assert_int_equal(await_votes(f, SHORT_MS), TDM_E_TIMEOUT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(present_receivers_are_members_and_lost_ones_are_dead),
        TEST(all_must_report),
        TEST(one_failure_is_the_failure_of_all),
        TEST(receiver_that_dies_while_others_wait_is_named),
        TEST(dead_receiver_is_named_although_another_is_silent),
        TEST(report_of_an_unknown_receiver_is_ignored),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
