/* scheme_update_session_test.c - IDs of updates, members, and which of them live. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/update_session.h"

#include "runtime/clock.h"
#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"

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

static void id_of_a_model_has_few_characters(void **state)
{
    static const char *const bad[] = {"", "a b", "a/b", "a*", "a:b", "\xc3\xa4"};
    struct tdm__update_session session;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(tdm__update_session_init(&session, runtime, bad[i]), TDM_E_INVAL);
    }
    TRY(tdm__update_session_init(&session, runtime, "Qwen3-0.6B_policy"));
    assert_string_equal(session.record, "");
}

static void updates_of_one_record_have_ids_of_their_own(void **state)
{
    struct tdm__update_session session;
    struct tdm__id first;
    struct tdm__id other;

    (void)state;
    TRY(tdm__update_session_init(&session, runtime, "ids"));
    first = tdm__update_session_update_id(&session, 1);
    other = tdm__update_session_update_id(&session, 1);
    assert_true(tdm__id_equal(&first, &other));
    other = tdm__update_session_update_id(&session, 2);
    assert_false(tdm__id_equal(&first, &other));
    (void)snprintf(session.record, sizeof(session.record), "another");
    other = tdm__update_session_update_id(&session, 1);
    assert_false(tdm__id_equal(&first, &other));
}

static void keys_name_what_they_are_about(void **state)
{
    const struct tdm__member member = {.actor = {{1, 2}}, .incarnation = 7};
    char text[TDM__UPDATE_MEMBER_TEXT_BYTES];
    char key[TDM__UPDATE_KEY_BYTES];

    (void)state;
    assert_string_equal(tdm__update_message_key(12, "vote/", key), "update/12/vote/");
    assert_string_equal(tdm__update_join_key(&member, key),
                        "join/01020000000000000000000000000000/7");
    assert_non_null(
        strstr(tdm__update_member_text(&member, text), "actor 01020000000000000000000000000000"));
}

static void driver_is_no_member(void **state)
{
    struct tdm__member member;
    struct tdm__update_session session;

    (void)state;
    TRY(tdm__update_session_init(&session, runtime, "driver"));
    assert_int_equal(tdm__update_session_self_member(&session, &member), TDM_E_STATE);
}

static void dead_member_is_known_with_its_cause(void **state)
{
    tdm_actor *pupil = scheme_pupil(runtime, "fate", 0);
    struct tdm__member member = member_of(pupil);
    const struct tdm__member nobody = {.actor = {{9, 9, 9}}, .incarnation = 1};
    struct tdm__update_session session;
    int64_t deadline_ms = tdm__deadline_after(SOON_MS);
    tdm_status status;

    (void)state;
    TRY(tdm__update_session_init(&session, runtime, "fate"));
    TRY(tdm__update_session_check_alive(&session, &member));
    assert_int_equal(tdm__update_session_check_alive(&session, &nobody), TDM_E_ACTOR_DIED);
    one_node_kill_actor(pupil);
    do {
        status = tdm__update_session_check_alive(&session, &member);
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
    struct tdm__version_reply answer;
    struct tdm__update_session session;
    int64_t deadline_ms = tdm__deadline_after(SOON_MS);
    bool committed = true;

    (void)state;
    TRY(tdm__update_session_init(&session, runtime, "outcome"));
    tdm__update_session_set_record(&session, pupil); /* The ID of any actor gives a record name. */
    request.update = tdm__update_session_update_id(&session, 1);
    TRY(tdm__update_session_request(&session, &request, deadline_ms, &answer));
    assert_true(answer.epoch == 1 && answer.update_version == 1);
    request = (struct tdm__version_request){.proposal = TDM__UPDATE_ABORTED};
    TRY(tdm__update_session_decide(&session, 1, &request, deadline_ms, &committed));
    assert_false(committed);
    request.proposal = TDM__UPDATE_COMMITTED;
    TRY(tdm__update_session_decide(&session, 1, &request, deadline_ms, &committed));
    assert_false(committed);
    tdm_actor_destroy(pupil);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(id_of_a_model_has_few_characters),
        cmocka_unit_test(updates_of_one_record_have_ids_of_their_own),
        cmocka_unit_test(keys_name_what_they_are_about),
        cmocka_unit_test(driver_is_no_member),
        cmocka_unit_test(dead_member_is_known_with_its_cause),
        cmocka_unit_test(the_outcome_is_what_was_stored_first),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
