/* signals_test.c - a broken pipe does not end the process, and the program's handler stays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/signals.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static volatile sig_atomic_t heard;

static void on_signal(int number)
{
    heard = number;
}

static void write_to_nobody(void)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    (void)close(ends[0]);
    assert_int_equal(write(ends[1], "x", 1), -1);
    assert_int_equal(errno, EPIPE);
    (void)close(ends[1]);
}

static void broken_pipe_is_only_an_error(void **state)
{
    (void)state;
    assert_int_equal(sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_DFL}, NULL), 0);
    tdm__ignore_sigpipe();
    write_to_nobody();
}

static void handler_of_the_programs_stays(void **state)
{
    (void)state;
    assert_int_equal(sigaction(SIGPIPE, &(struct sigaction){.sa_handler = on_signal}, NULL), 0);
    tdm__ignore_sigpipe();
    write_to_nobody();
    assert_int_equal(heard, SIGPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_pipe_is_only_an_error),
        cmocka_unit_test(handler_of_the_programs_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
