/* death_report_test.c - the text that a caller gets about the death of an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_runtime *runtime;

static tdm_status mortal_crash(tdm_call *call, void *self)
{
    int64_t lines;
    int64_t signal_number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "ii", &lines, &signal_number));
    for (int64_t i = 0; i < lines; i++) {
        (void)fprintf(stderr, "frame %lld\n", (long long)i);
    }
    (void)kill(getpid(), (int)signal_number);
    return TDM_OK;
}

static tdm_status mortal_leave(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    (void)fprintf(stderr, "\033[31mno fuel\033[0m");
    _exit(3);
}

TDM_ACTOR_CLASS(mortal, .state_bytes = 1,
                .methods = {{"crash", mortal_crash}, {"leave", mortal_leave}});

static tdm_actor *make_mortal(void)
{
    tdm_actor *actor = NULL;

    assert_int_equal(tdm_actor_create(runtime, "mortal", NULL, &actor, ""), TDM_OK);
    assert_int_equal(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), TDM_OK);
    return actor;
}

static const char *crash(int64_t lines, int signal_number)
{
    tdm_actor *actor = make_mortal();
    tdm_ref *ref = NULL;

    assert_int_equal(tdm_actor_call(actor, "crash", &ref, "ii", lines, (int64_t)signal_number),
                     TDM_OK);
    assert_int_equal(tdm_get(ref, TEST_TIMEOUT_MS, ""), TDM_E_ACTOR_DIED);
    tdm_ref_release(ref);
    tdm_actor_destroy(actor);
    return tdm_error_detail();
}

static void the_last_lines_of_stderr_follow_the_sentence(void **state)
{
    const char *detail = crash(30, SIGTERM);
    const char *first_end = strchr(detail, '\n');

    (void)state;
    assert_non_null(first_end);
    assert_non_null(strstr(detail, "signal 15 (terminated), in method crash, call "));
    assert_true(strstr(detail, "ms ago, probably started") < first_end);
    assert_null(strstr(detail, "frame 9\n"));
    assert_non_null(strstr(detail, "\n  | frame 10\n"));
    assert_non_null(strstr(detail, "\n  | frame 29"));
}

static void kill_from_elsewhere_comes_with_the_kernels_verdict(void **state)
{
    const char *detail = crash(0, SIGKILL);

    (void)state;
    assert_non_null(strstr(detail, "signal 9 (killed), in method crash"));
    assert_non_null(strstr(detail, "out of memory"));
    assert_null(strstr(detail, "  | "));
}

static void very_long_end_is_cut_to_its_last_lines(void **state)
{
    const char *detail = crash(1000000, SIGABRT);

    (void)state;
    assert_non_null(strstr(detail, "signal 6 (aborted)"));
    assert_non_null(strstr(detail, "\n  | frame 999980\n"));
    assert_non_null(strstr(detail, "\n  | frame 999999"));
}

static void exit_code_and_escapes_are_readable(void **state)
{
    tdm_actor *actor = make_mortal();

    (void)state;
    assert_int_equal(actor_fixture_call(actor, "leave", NULL), TDM_E_ACTOR_DIED);
    assert_non_null(strstr(tdm_error_detail(), "exit code 3, in method leave"));
    assert_non_null(strstr(tdm_error_detail(), "\n  | ?[31mno fuel?[0m"));
    tdm_actor_destroy(actor);
}

static void end_that_was_wanted_is_one_line(void **state)
{
    tdm_actor *actor = make_mortal();

    (void)state;
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    assert_int_equal(actor_fixture_call(actor, "leave", NULL), TDM_E_ACTOR_DIED);
    assert_null(strchr(tdm_error_detail(), '\n'));
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_lines_of_stderr_follow_the_sentence),
        cmocka_unit_test(kill_from_elsewhere_comes_with_the_kernels_verdict),
        cmocka_unit_test(very_long_end_is_cut_to_its_last_lines),
        cmocka_unit_test(exit_code_and_escapes_are_readable),
        cmocka_unit_test(end_that_was_wanted_is_one_line),
    };
    int failed;
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;

    options.log_to_driver = -1;
    runtime = actor_fixture_open(&options);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
