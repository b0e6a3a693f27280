/* many_actors_test.c - actors for which a node has no descriptors are refused with the possible
 * number.
 *
 * TANDEM_ACTORS sets the number of actors, which must be more than `ulimit -Hn` allows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "tests/support/actor_fixture.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { ACTORS = 120, DESCRIPTORS = 300 };

static tdm_runtime *runtime;
static uint32_t actors_count = ACTORS;
static tdm_actor **actors;

static tdm_actor *create(void)
{
    tdm_actor *actor = NULL;

    assert_int_equal(tdm_actor_create(runtime, "tester", NULL, &actor, ""), TDM_OK);
    return actor;
}

/* Waits for all actors and marks in `runs` those that run. The others were refused with the number
 * of those that ran then: a few more may run in the end, because starts take descriptors, too. */
static void find_running(bool *runs)
{
    uint32_t running = 0;
    uint32_t refused = 0;
    unsigned int least = UINT_MAX;
    unsigned int most = 0;

    for (uint32_t i = 0; i < actors_count; i++) {
        unsigned int possible;
        const char *text;

        runs[i] = tdm_actor_wait_ready(actors[i], 20 * TEST_TIMEOUT_MS) == TDM_OK;
        if (runs[i]) {
            running++;
            continue;
        }
        text = strstr(tdm_error_detail(), "the node can run ");
        if (text == NULL || sscanf(text, "the node can run %u actors", &possible) != 1) {
            fail_msg("actor %u: %s", i, tdm_error_detail());
        }
        refused++;
        least = possible < least ? possible : least;
        most = possible > most ? possible : most;
    }
    print_message("%u actors run, %u were refused\n", running, refused);
    assert_true(refused > 0);
    assert_in_range(least, running / 2, running);
    assert_in_range(most, running / 2, running);
}

/* Of 10,000 actors 309 died of various failures before the daemon counted its descriptors. */
static void actors_run_or_are_refused_with_the_number_that_is_possible(void **state)
{
    bool *runs = calloc(actors_count, sizeof(runs[0]));
    tdm_actor *later = NULL;
    tdm_actor *one = NULL;
    int64_t deadline_ms;

    (void)state;
    assert_non_null(runs);
    for (uint32_t i = 0; i < actors_count; i++) {
        actors[i] = create();
    }
    find_running(runs);
    for (uint32_t i = 0; i < actors_count; i++) {
        if (runs[i]) {
            assert_true(actor_fixture_call_int(actors[i], "pid") > 0);
            one = actors[i];
        }
    }
    free(runs);
    /* There is room for another one as soon as one has ended. */
    assert_int_equal(tdm_actor_kill(one, TEST_TIMEOUT_MS), TDM_OK);
    deadline_ms = tdm__clock_ms() + TEST_TIMEOUT_MS;
    for (;;) {
        later = create();
        if (tdm_actor_wait_ready(later, TEST_TIMEOUT_MS) == TDM_OK) {
            break;
        }
        tdm_actor_destroy(later);
        assert_true(tdm__clock_ms() < deadline_ms);
    }
    tdm_actor_destroy(later);
    for (uint32_t i = 0; i < actors_count; i++) {
        tdm_actor_destroy(actors[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actors_run_or_are_refused_with_the_number_that_is_possible),
    };
    const struct rlimit tight = {DESCRIPTORS, DESCRIPTORS};
    const char *wanted = getenv("TANDEM_ACTORS");
    int failed;

    if (getenv("TANDEM_WORKER") == NULL) {
        if (wanted != NULL) {
            actors_count = (uint32_t)strtoul(wanted, NULL, 10);
        } else if (setrlimit(RLIMIT_NOFILE, &tight) != 0) {
            return 1;
        }
    }
    actor_fixture_link_tester();
    runtime = actor_fixture_open(NULL);
    actors = calloc(actors_count, sizeof(actors[0]));
    if (actors == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(actors);
    return failed + actor_fixture_close(runtime);
}
