/* scheme_round_test.c - names of updates, members, and who of them still lives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/round.h"

#include "runtime/clock.h"
#include "tests/support/one_node.h"
#include "tests/support/scheme_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { SOON_MS = 10000 };

static tdm_runtime *runtime;

static struct tdm__member member_of(tdm_actor *actor)
{
    struct tdm__member member = {.incarnation = 1};
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    TRY(tdm__id_parse(info.id, &member.actor));
    return member;
}

static void an_id_of_a_model_has_few_characters(void **state)
{
    static const char *const bad[] = {"", "a b", "a/b", "a*", "a:b", "\xc3\xa4"};
    struct tdm__round round;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(tdm__round_init(&round, runtime, bad[i]), TDM_E_INVAL);
    }
    TRY(tdm__round_init(&round, runtime, "Qwen3-0.6B_policy"));
    assert_string_equal(round.record, "");
}

static void updates_of_one_record_have_ids_of_their_own(void **state)
{
    struct tdm__round round;
    struct tdm__id first;
    struct tdm__id other;

    (void)state;
    TRY(tdm__round_init(&round, runtime, "ids"));
    first = tdm__round_update(&round, 1);
    other = tdm__round_update(&round, 1);
    assert_true(tdm__id_equal(&first, &other));
    other = tdm__round_update(&round, 2);
    assert_false(tdm__id_equal(&first, &other));
    (void)snprintf(round.record, sizeof(round.record), "another");
    other = tdm__round_update(&round, 1);
    assert_false(tdm__id_equal(&first, &other));
}

static void keys_name_what_they_are_about(void **state)
{
    const struct tdm__member member = {.actor = {{1, 2}}, .incarnation = 7};
    char text[TDM__ROUND_MEMBER_TEXT_BYTES];
    char key[TDM__ROUND_KEY_BYTES];

    (void)state;
    assert_string_equal(tdm__round_key(12, "vote/", key), "update/12/vote/");
    assert_string_equal(tdm__round_join_key(&member, key),
                        "join/01020000000000000000000000000000/7");
    assert_non_null(strstr(tdm__round_member_text(&member, text),
                           "actor 01020000000000000000000000000000"));
}

static void a_driver_is_no_member(void **state)
{
    struct tdm__member member;
    struct tdm__round round;

    (void)state;
    TRY(tdm__round_init(&round, runtime, "driver"));
    assert_int_equal(tdm__round_self(&round, &member), TDM_E_STATE);
}

static void who_has_died_is_known_with_how(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "fate", 0);
    struct tdm__member member = member_of(pupil);
    const struct tdm__member nobody = {.actor = {{9, 9, 9}}, .incarnation = 1};
    struct tdm__round round;
    int64_t deadline_ms = tdm__deadline_in(SOON_MS);
    tdm_status status;

    (void)state;
    TRY(tdm__round_init(&round, runtime, "fate"));
    TRY(tdm__round_check_alive(&round, &member));
    assert_int_equal(tdm__round_check_alive(&round, &nobody), TDM_E_ACTOR_DIED);
    one_node_shoot(pupil);
    do {
        status = tdm__round_check_alive(&round, &member);
    } while (status == TDM_OK && tdm__clock_ms() < deadline_ms);
    assert_int_equal(status, TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "signal 9"));
    tdm_actor_destroy(pupil);
}

static void the_outcome_is_what_was_stored_first(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "outcome", 0);
    const struct tdm__member member = member_of(pupil);
    struct tdm__version_request request = {
        .kind = TDM__VERSION_BEGIN, .source = member, .members = &member, .members_count = 1};
    struct tdm__version_answer answer;
    struct tdm__round round;
    int64_t deadline_ms = tdm__deadline_in(SOON_MS);
    bool committed = true;

    (void)state;
    TRY(tdm__round_init(&round, runtime, "outcome"));
    tdm__round_open(&round, pupil); /* any actor's id makes a record of its own */
    request.update = tdm__round_update(&round, 1);
    TRY(tdm__round_ask(&round, &request, deadline_ms, &answer));
    assert_true(answer.epoch == 1 && answer.update_version == 1);
    request = (struct tdm__version_request){.proposal = TDM__UPDATE_ABORTED};
    TRY(tdm__round_decide(&round, 1, &request, deadline_ms, &committed));
    assert_false(committed);
    request.proposal = TDM__UPDATE_COMMITTED;
    TRY(tdm__round_decide(&round, 1, &request, deadline_ms, &committed));
    assert_false(committed);
    tdm_actor_destroy(pupil);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_of_a_model_has_few_characters),
        cmocka_unit_test(updates_of_one_record_have_ids_of_their_own),
        cmocka_unit_test(keys_name_what_they_are_about),
        cmocka_unit_test(a_driver_is_no_member),
        cmocka_unit_test(who_has_died_is_known_with_how),
        cmocka_unit_test(the_outcome_is_what_was_stored_first),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
