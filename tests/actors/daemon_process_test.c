/* daemon_process_test.c - what a starting daemon reports reaches the process that starts it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/daemon_process.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 10000 };

/* Starts a shell in place of the daemon, which runs `script`. Returns the outcome of waiting until
 * it is ready. */
static tdm_status start(const char *script, int64_t timeout_ms, struct tdm__daemon_process *process)
{
    char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)script,
                    NULL};
    tdm_status status;

    assert_int_equal(setenv("TANDEM_DAEMON", "/bin/sh", 1), 0);
    assert_int_equal(tdm__daemon_process_start(argv, -1, process), TDM_OK);
    status = tdm__daemon_process_wait_ready(process, timeout_ms);
    tdm__process_signal(&process->supervisor, SIGKILL);
    (void)waitpid(process->supervisor.pid, NULL, 0);
    tdm__process_forget(&process->supervisor);
    (void)close(process->supervisor_fd);
    return status;
}

static void ready_message_tells_process_and_address(void **state)
{
    struct tdm__daemon_process process;

    (void)state;
    assert_int_equal(start("printf 'ready 4711 unix:/a/b' >&3; exec sleep 10", WAIT_MS, &process),
                     TDM_OK);
    assert_int_equal(process.daemon_pid, 4711);
    assert_string_equal(process.address, "unix:/a/b");
}

static void failures_are_told(void **state)
{
    struct tdm__daemon_process process;

    (void)state;
    assert_int_equal(start("printf 'failed cause: a port' >&3; exec sleep 10", WAIT_MS, &process),
                     TDM_E_NODE_LOST);
    assert_non_null(strstr(tdm_error_detail(), "cause: a port"));
    assert_int_equal(start("exit 1", WAIT_MS, &process), TDM_E_NODE_LOST);
    assert_non_null(strstr(tdm_error_detail(), "ended while starting"));
    assert_int_equal(start("printf 'hello' >&3; exec sleep 10", WAIT_MS, &process), TDM_E_PROTOCOL);
    assert_int_equal(start("exec sleep 10", 50, &process), TDM_E_TIMEOUT);
}

static void missing_program_is_named(void **state)
{
    struct tdm__daemon_process process;
    char *argv[] = {(char *)(uintptr_t) "tandemd", NULL};

    (void)state;
    assert_int_equal(setenv("TANDEM_DAEMON", "/no/such/daemon", 1), 0);
    assert_int_equal(tdm__daemon_process_start(argv, -1, &process), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "/no/such/daemon"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready_message_tells_process_and_address),
        cmocka_unit_test(failures_are_told),
        cmocka_unit_test(missing_program_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
