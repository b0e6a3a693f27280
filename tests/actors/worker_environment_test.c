/* worker_environment_test.c - which settings of a worker's environment take precedence. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Number of calls of strdup() until one fails; 0 if none fails. */
static uint32_t failing_strdup;

/* Replaces strdup() of the C library in this process, libtandem.so included. */
char *test_strdup(const char *text) __asm__("strdup")
    __attribute__((visibility("default"), noinline));

char *test_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = failing_strdup > 0 && --failing_strdup == 0 ? NULL : malloc(bytes);

    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

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

    spec.placement.wanted.cpu = cpus;
    assert_int_equal(tdm__worker_environment_create(&spec, devices, &environment), TDM_OK);
    return environment;
}

static void actor_setting_overrides_the_node_and_devices_are_left_out(void **state)
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

static void omp_num_threads_is_the_number_of_cpus_unless_set(void **state)
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

static void environment_has_space_for_one_more_setting(void **state)
{
    char role[] = "ROLE=worker";
    char **environment = environment_of(NULL, 0, NULL);

    (void)state;
    tdm__worker_environment_add(environment, role);
    assert_string_equal(setting(environment, "ROLE"), "worker");
    tdm__worker_environment_drop_last(environment);
    assert_null(setting(environment, "ROLE"));
    tdm__worker_environment_destroy(environment);
}

static void key_tells_directory_program_and_environment_apart(void **state)
{
    char program[] = "/bin/true";
    char setting_a[] = "A=1";
    char *argv[] = {program, NULL};
    char *environment[] = {setting_a, NULL};
    char *key = tdm__worker_environment_create_key("/tmp", argv, environment);

    (void)state;
    assert_string_equal(key, "/tmp\n/bin/true\nA=1");
    free(key);
}

static void arguments_begin_with_the_program(void **state)
{
    char preload[] = "LD_PRELOAD=x.so";
    char first[] = "-v";
    char *items[] = {first};
    char *settings[] = {preload};
    struct tdm__actor_spec spec = {.program_arguments = {.items = items, .count = 1}};
    char **argv;

    (void)state;
    assert_int_equal(tdm__worker_create_argv(&spec, "/bin/true", &argv), TDM_OK);
    assert_string_equal(argv[0], "/bin/true");
    assert_string_equal(argv[1], "-v");
    assert_null(argv[2]);
    tdm__worker_environment_destroy(argv);
    (void)snprintf(spec.program, sizeof(spec.program), "/bin/own");
    assert_int_equal(tdm__worker_create_argv(&spec, "/bin/true", &argv), TDM_OK);
    assert_string_equal(argv[0], "/bin/own");
    tdm__worker_environment_destroy(argv);
    assert_false(tdm__worker_requires_exec(&spec));
    spec.environment.items = settings;
    spec.environment.count = 1;
    assert_true(tdm__worker_requires_exec(&spec));
}

static void environment_is_created_completely_or_not_at_all(void **state)
{
    char own[] = "OWN=1";
    char *items[] = {own};
    struct tdm__actor_spec spec = {.environment = {.items = items, .count = 1}};
    uint32_t failures = 0;
    char **environment;

    (void)state;
    for (;;) {
        failing_strdup = failures + 1;
        if (tdm__worker_environment_create(&spec, "DEVICES=0", &environment) == TDM_OK) {
            break;
        }
        assert_string_equal(tdm_error_detail(), "a worker's environment");
        failures++;
    }
    assert_true(failing_strdup > 0); /* No copy failed in the run that succeeded. */
    failing_strdup = 0;
    assert_true(failures >= 3);
    assert_string_equal(setting(environment, "OWN"), "1");
    assert_null(setting(environment, "DEVICES")); /* It is added when the worker begins. */
    tdm__worker_environment_destroy(environment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actor_setting_overrides_the_node_and_devices_are_left_out),
        cmocka_unit_test(omp_num_threads_is_the_number_of_cpus_unless_set),
        cmocka_unit_test(environment_has_space_for_one_more_setting),
        cmocka_unit_test(arguments_begin_with_the_program),
        cmocka_unit_test(key_tells_directory_program_and_environment_apart),
        cmocka_unit_test(environment_is_created_completely_or_not_at_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
