/* kills_test.c - processes killed at random moments: survivors report the death, and no process is
 * left over. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "tests/support/driver_run.h"
#include "tests/support/test_random.h"

#include <dirent.h>
#include <poll.h>
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWDOWN = 5 };
#else
enum { SLOWDOWN = 1 };
#endif
enum {
    MOMENTS = 5, /* Kills of each kind; TANDEM_TEST_MOMENTS overrides the number. */
    MOMENT_MS_MAX = 60,
    NEWS_MS = 2000 * SLOWDOWN,
    END_MS = 12000,
    GONE_MS = 5000 * SLOWDOWN
};

static struct test_random chance;
static int moments;
static struct driver_run run;
static struct driver_run next; /* A second run in the same $TMPDIR. */

static void wait_for_the_moment(void)
{
    (void)poll(NULL, 0, (int)test_random_below(&chance, MOMENT_MS_MAX));
}

static int count_shared_memory(void)
{
    DIR *entries = opendir("/dev/shm");
    const struct dirent *entry;
    int count = 0;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        count += strstr(entry->d_name, "tandem") != NULL || strstr(entry->d_name, "tdm") != NULL;
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return count;
}

/* The driver's next words are its error. */
static void expect_news(int status, const char *words)
{
    char line[2048] = "";
    int told = 0;

    if (!driver_line(&run, line, sizeof(line), NEWS_MS)) {
        fail_msg("the driver said nothing within %d ms", (int)NEWS_MS);
    }
    if (sscanf(line, "failed %d", &told) != 1 || told != status || strstr(line, words) == NULL) {
        fail_msg("wanted status %d and \"%s\", the driver said: %s", status, words, line);
    }
}

static void killed_worker_is_named(void **state)
{
    int shared = count_shared_memory();

    (void)state;
    for (int i = 0; i < moments; i++) {
        pid_t victim;
        char words[64];

        driver_start(&run, NULL);
        victim = run.actors[test_random_below(&chance, DRIVER_ACTORS)];
        (void)snprintf(words, sizeof(words), "pid %d, signal 9 (killed)", (int)victim);
        wait_for_the_moment();
        assert_int_equal(kill(victim, SIGKILL), 0);
        expect_news(-40, words);
        assert_int_equal(driver_end(&run, END_MS), 0);
        assert_int_equal(driver_leftovers(&run, GONE_MS), 0);
    }
    assert_int_equal(count_shared_memory(), shared);
}

static void killed_daemon_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < moments; i++) {
        char words[64];

        driver_start(&run, NULL);
        (void)snprintf(words, sizeof(words), "the daemon (pid %d) ended by signal 9 (killed)",
                       (int)run.daemon);
        wait_for_the_moment();
        assert_int_equal(kill(run.daemon, SIGKILL), 0);
        expect_news(-60, words);
        assert_int_equal(driver_end(&run, END_MS), 0);
        assert_int_equal(driver_leftovers(&run, GONE_MS), 0);
    }
}

static void everything_ends_with_its_driver(void **state)
{
    (void)state;
    for (int i = 0; i < moments; i++) {
        /* With --fork a child of the driver keeps its sockets open. */
        driver_start(&run, i % 2 == 0 ? NULL : "--fork");
        wait_for_the_moment();
        assert_int_equal(kill(run.driver, SIGKILL), 0);
        assert_int_equal(driver_end(&run, END_MS), SIGKILL);
        if (i % 2 == 0) {
            assert_int_equal(driver_leftovers(&run, GONE_MS), 0);
        } else {
            /* Only the driver's own child is left. */
            assert_int_equal(driver_leftovers(&run, 1000), 1);
        }
    }
}

static void nothing_is_left_of_daemon_and_driver_killed_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < moments; i++) {
        driver_start(&run, NULL);
        wait_for_the_moment();
        (void)kill(i % 2 == 0 ? run.driver : run.daemon, SIGKILL);
        (void)kill(i % 2 == 0 ? run.daemon : run.driver, SIGKILL);
        assert_int_equal(driver_end(&run, END_MS), SIGKILL);
        assert_int_equal(driver_leftovers(&run, GONE_MS), 0);
    }
}

static void calls_go_on_when_redis_is_killed(void **state)
{
    (void)state;
    for (int i = 0; i < moments; i++) {
        char line[2048];
        pid_t redis = 0;

        driver_start(&run, NULL);
        wait_for_the_moment();
        assert_int_equal(kill(run.redis, SIGKILL), 0);
        for (int64_t end_ms = tdm__deadline_after(GONE_MS);
             (redis == 0 || redis == run.redis) && tdm__deadline_remaining_ms(end_ms) > 0;) {
            (void)poll(NULL, 0, 5);
            redis = driver_find_child(run.daemon, "tandem-store");
        }
        assert_true(redis != 0 && redis != run.redis);
        if (driver_line(&run, line, sizeof(line), 50)) {
            fail_msg("the driver noticed: %s", line);
        }
        /* The driver waits for this death. */
        assert_int_equal(kill(run.actors[0], SIGKILL), 0);
        expect_news(-40, "signal 9");
        assert_int_equal(driver_end(&run, END_MS), 0);
        assert_int_equal(driver_leftovers(&run, GONE_MS), 0);
    }
}

/* The supervisor cleans up after all others; after the supervisor itself, the next start does. */
static void the_next_daemon_sweeps_what_two_kills_left(void **state)
{
    (void)state;
    driver_start(&run, NULL);
    assert_int_equal(kill(run.supervisor, SIGSTOP), 0);
    assert_int_equal(kill(run.daemon, SIGKILL), 0);
    assert_int_equal(kill(run.supervisor, SIGKILL), 0);
    expect_news(-60, "its daemon has gone");
    (void)driver_end(&run, END_MS);
    driver_start_in(&next, run.temporary, NULL);
    assert_int_equal(kill(next.driver, SIGKILL), 0);
    assert_int_equal(driver_end(&next, END_MS), SIGKILL);
    assert_int_equal(driver_leftovers(&next, GONE_MS), 0);
    (void)close(run.output);
    run.is_open = 0;
}

/* After a test that failed in the middle. */
static int tidy(void **state)
{
    struct driver_run *both[] = {&run, &next};

    (void)state;
    for (int i = 0; i < 2; i++) {
        if (both[i]->is_open) {
            (void)driver_end(both[i], 0);
            (void)driver_leftovers(both[i], 0);
        }
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(killed_worker_is_named, tidy),
        cmocka_unit_test_teardown(killed_daemon_is_named, tidy),
        cmocka_unit_test_teardown(everything_ends_with_its_driver, tidy),
        cmocka_unit_test_teardown(nothing_is_left_of_daemon_and_driver_killed_at_once, tidy),
        cmocka_unit_test_teardown(calls_go_on_when_redis_is_killed, tidy),
        cmocka_unit_test_teardown(the_next_daemon_sweeps_what_two_kills_left, tidy),
    };
    const char *wanted = getenv("TANDEM_TEST_MOMENTS");

    moments = wanted == NULL ? MOMENTS : (int)strtol(wanted, NULL, 10);
    chance = test_random_init("kills", 20261121);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
