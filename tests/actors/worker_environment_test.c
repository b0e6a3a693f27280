/* worker_environment_test.c - which settings of a worker's environment take precedence. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_environment.h"

#include "actors/common/fork_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* NULL if it is not there; fails the test if it is there twice. */
static const char *setting(char **environment, const char *name)
{
    const char *value = NULL;
    size_t length = strlen(name);

    for (char **entry = environment; *entry != NULL; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
            assert_null(value);
            value = *entry + length + 1;
        }
    }
    return value;
}

static char **environment_of(char *own, int64_t cpus, const char *devices)
{
    struct tdm__actor_spec spec = {.environment = {&own, own == NULL ? 0 : 1}};
    char **environment;

    spec.wish.wanted.cpu = cpus;
    assert_int_equal(tdm__worker_environment_create(&spec, devices, &environment), TDM_OK);
    return environment;
}

static void the_actors_word_counts_over_the_nodes_and_devices_are_left_out(void **state)
{
    char own[] = "WHOSE=actor";
    char **environment;

    (void)state;
    assert_int_equal(setenv("WHOSE", "node", 1), 0);
    environment = environment_of(NULL, 0, NULL);
    assert_string_equal(setting(environment, "WHOSE"), "node");
    tdm__worker_environment_destroy(environment);
    environment = environment_of(own, 0, NULL);
    assert_string_equal(setting(environment, "WHOSE"), "actor");
    tdm__worker_environment_destroy(environment);
    environment = environment_of(own, 0, "WHOSE=device");
    assert_null(setting(environment, "WHOSE")); /* It is added when the worker begins. */
    tdm__worker_environment_destroy(environment);
}

static void threads_are_as_many_as_cpus_unless_somebody_says(void **state)
{
    static const struct {
        int64_t cpus;
        const char *threads;
    } cases[] = {{0, "1"}, {TDM__RESOURCE_ONE / 2, "1"}, {TDM__RESOURCE_ONE * 5 / 2, "2"}};
    char own[] = "OMP_NUM_THREADS=7";
    char **environment;

    (void)state;
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        environment = environment_of(NULL, cases[i].cpus, NULL);
        assert_string_equal(setting(environment, "OMP_NUM_THREADS"), cases[i].threads);
        tdm__worker_environment_destroy(environment);
    }
    assert_int_equal(setenv("OMP_NUM_THREADS", "5", 1), 0);
    environment = environment_of(NULL, TDM__RESOURCE_ONE, NULL);
    assert_string_equal(setting(environment, "OMP_NUM_THREADS"), "5");
    tdm__worker_environment_destroy(environment);
    environment = environment_of(own, TDM__RESOURCE_ONE, NULL);
    assert_string_equal(setting(environment, "OMP_NUM_THREADS"), "7");
    tdm__worker_environment_destroy(environment);
}

static void the_mark_and_one_more_setting_have_room(void **state)
{
    char role[] = "ROLE=worker";
    char mark[TDM__PROCESS_MARK_BYTES];
    char **environment = environment_of(NULL, 0, NULL);

    (void)state;
    memset(mark, '7', sizeof(mark) - 1);
    mark[sizeof(mark) - 1] = '\0';
    tdm__worker_environment_mark(environment, mark);
    assert_string_equal(setting(environment, TDM__PROCESS_MARK_VARIABLE), mark);
    tdm__worker_environment_add(environment, role);
    assert_string_equal(setting(environment, "ROLE"), "worker");
    tdm__worker_environment_drop_last(environment);
    assert_null(setting(environment, "ROLE"));
    tdm__worker_environment_destroy(environment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_actors_word_counts_over_the_nodes_and_devices_are_left_out),
        cmocka_unit_test(threads_are_as_many_as_cpus_unless_somebody_says),
        cmocka_unit_test(the_mark_and_one_more_setting_have_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
