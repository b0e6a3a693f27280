/* actors_driver_test.c - a driver joins a node by its address, and says why it cannot start. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Starts a runtime and fails the test if that is not possible. */
static tdm_runtime *start(const struct tdm_runtime_options *options)
{
    tdm_runtime *runtime = NULL;
    tdm_status status = tdm_runtime_start(options, &runtime);

    if (status != TDM_OK) {
        fail_msg("%s: %s", tdm_strerror(status), tdm_error_detail());
    }
    return runtime;
}

static void a_second_driver_joins_by_address(void **state)
{
    tdm_runtime *runtime = start(NULL);
    tdm_actor *actor = actor_fixture_create(runtime, &(struct tdm_actor_options){.name = "hers"});
    struct tdm_runtime_info info;
    int wait_status;
    pid_t child;

    (void)state;
    tdm_runtime_describe(runtime, &info);
    child = fork();
    if (child == 0) {
        struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
        tdm_runtime *own;
        tdm_actor *found;
        tdm_actor *made;
        tdm_ref *ref;
        int64_t total = 0;
        int good;

        options.address = info.address;
        good = tdm_runtime_start(&options, &own) == TDM_OK &&
               tdm_actor_find(own, "hers", TEST_TIMEOUT_MS, &found) == TDM_OK &&
               tdm_actor_call(found, "add", &ref, "i", (int64_t)4) == TDM_OK &&
               tdm_get(ref, TEST_TIMEOUT_MS, "i", &total) == TDM_OK && total == 4 &&
               tdm_actor_create(own, "tester", &(struct tdm_actor_options){.name = "his"}, &made,
                                "") == TDM_OK &&
               tdm_actor_wait_ready(made, TEST_TIMEOUT_MS) == TDM_OK;
        if (!good) {
            (void)fprintf(stderr, "%s\n", tdm_error_detail());
        }
        /* The process exits without stopping its runtime, so the daemon must end its actors. */
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(wait_status, 0);
    for (int i = 0;; i++) {
        tdm_actor *his;
        tdm_status status = tdm_actor_find(runtime, "his", TEST_TIMEOUT_MS, &his);

        if (status == TDM_E_NOT_FOUND) {
            break;
        }
        assert_int_equal(status, TDM_OK);
        assert_true(i < 1000);
        tdm_actor_destroy(his);
        (void)poll(NULL, 0, 5);
    }
    assert_true(actor_fixture_call_int(actor, "pid") > 1);
    tdm_actor_destroy(actor);
    tdm_runtime_stop(runtime);
}

static void another_token_is_refused_as_such(void **state)
{
    tdm_runtime *runtime = start(NULL);
    char path[] = "/tmp/driver_token_XXXXXX";
    char text[1024] = "";
    int fd = mkstemp(path);
    struct tdm_runtime_info info;
    int wait_status;
    int ends[2];
    pid_t child;

    (void)state;
    assert_int_equal(write(fd, "0123456789abcdef0123456789abcdef", 32), 32);
    assert_int_equal(close(fd), 0);
    assert_int_equal(pipe(ends), 0);
    tdm_runtime_describe(runtime, &info);
    child = fork();
    if (child == 0) {
        struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
        tdm_runtime *own;
        tdm_status status;

        options.address = info.address;
        (void)setenv("TANDEM_TOKEN_FILE", path, 1);
        status = tdm_runtime_start(&options, &own);
        (void)dprintf(ends[1], "%s", tdm_error_detail());
        _exit(status == TDM_E_AUTH ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)unlink(path);
    if (wait_status != 0 || strstr(text, "set TANDEM_TOKEN_FILE to the token file") == NULL) {
        fail_msg("status %d: %s", wait_status, text);
    }
    tdm_runtime_stop(runtime);
}

static void a_runtime_that_cannot_start_says_why(void **state)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *runtime;

    (void)state;
    options.size_bytes = 3;
    assert_int_equal(tdm_runtime_start(&options, &runtime), TDM_E_INVAL);
    options = (struct tdm_runtime_options)TDM_RUNTIME_OPTIONS_INIT;
    options.directory = "/proc/no/such/place";
    assert_int_equal(tdm_runtime_start(&options, &runtime), TDM_E_NODE_LOST);
    options.directory = NULL;
    options.address = "unix:/no/such/tandemd.sock";
    assert_int_not_equal(tdm_runtime_start(&options, &runtime), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "/no/such"));
    assert_null(tdm_runtime_current());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_driver_joins_by_address),
        cmocka_unit_test(another_token_is_refused_as_such),
        cmocka_unit_test(a_runtime_that_cannot_start_says_why),
    };
    int failed;

    if (getenv("TANDEM_WORKER") != NULL) {
        (void)start(NULL); /* never returns */
    }
    actor_fixture_prepare();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_clean_up();
}
