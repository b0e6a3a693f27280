/* server_watch_test.c - a redis-server that does not reply is noticed, and only such a one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/server_watch.h"

#include "runtime/clock.h"
#include "tests/support/redis_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum { SILENT_MS = 500, LONG_MS = 10000 };

static struct redis_fixture world;
static struct tdm__redis_server_watch *watch;
static int reports_count; /* How often the server was reported as silent. */

static void on_silent(void *arg)
{
    (void)arg;
    reports_count++;
}

static bool is_reported(void *arg)
{
    (void)arg;
    return reports_count > 0;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void run_loop(int64_t time_ms)
{
    assert_int_equal(tdm__loop_run(world.base.loop, never, NULL, tdm__deadline_after(time_ms)),
                     TDM_E_TIMEOUT);
}

static void sleep_ms(int64_t time_ms)
{
    const struct timespec time = {.tv_sec = time_ms / 1000, .tv_nsec = time_ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

static void signal_server(int number)
{
    assert_int_equal(kill(tdm__redis_embedded_pid(world.server), number), 0);
}

static int set_up(void **state)
{
    struct tdm__redis_address address;

    (void)state;
    reports_count = 0;
    return redis_fixture_open(&world) != 0 ||
           tdm__redis_address_parse(tdm__redis_embedded_url(world.server), &address) != TDM_OK ||
           tdm__redis_server_watch_create(world.base.loop, &address, SILENT_MS, on_silent, NULL,
                                          &watch) != TDM_OK;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__redis_server_watch_destroy(watch);
    redis_fixture_close(&world);
    return 0;
}

static void server_that_stands_still_is_reported(void **state)
{
    (void)state;
    run_loop(SILENT_MS / 4);
    signal_server(SIGSTOP);
    assert_int_equal(
        tdm__loop_run(world.base.loop, is_reported, NULL, tdm__deadline_after(LONG_MS)), TDM_OK);
    signal_server(SIGCONT);
}

static void server_that_replies_is_not_reported(void **state)
{
    (void)state;
    run_loop(2 * SILENT_MS);
    assert_int_equal(reports_count, 0);
}

/* The replies could not be read meanwhile, so nothing is known of the server. */
static void time_in_which_the_loop_stands_still_does_not_count(void **state)
{
    (void)state;
    run_loop(SILENT_MS / 4);
    sleep_ms(2 * SILENT_MS);
    run_loop(SILENT_MS / 4);
    assert_int_equal(reports_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(server_that_stands_still_is_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(server_that_replies_is_not_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(time_in_which_the_loop_stands_still_does_not_count, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
