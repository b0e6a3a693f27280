/* daemon_options_test.c - the options of tandemd are parsed, or refused with the remedy. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static bool read_words(const char *const *args, struct cli_daemon_options *options)
{
    char *argv[16] = {(char *)(uintptr_t) "tandemd"};
    int argc = 1;

    for (; args[argc - 1] != NULL; argc++) {
        argv[argc] = (char *)(uintptr_t)args[argc - 1];
    }
    return cli_daemon_options_read(argc, argv, options);
}

#define READ(options, ...) read_words((const char *const[]){__VA_ARGS__, NULL}, (options))

static void arguments_become_options(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_true(READ(&options, "--private", "--cpus", "3", "--gpus=2", "--gpu-bytes", "4194304",
                     "--name", "gpu-03", "--directory", "/x", "--resource", "disk=1.5"));
    assert_true(options.is_private);
    assert_int_equal(options.cpus, 3);
    assert_int_equal(options.gpus, 2);
    assert_int_equal(options.gpu_bytes, 4194304);
    assert_string_equal(options.name, "gpu-03");
    assert_string_equal(options.directory, "/x");
    assert_string_equal(options.cluster, "tandem");
    assert_null(options.redis_url);
    assert_string_equal(options.resources.custom[0].name, "disk");
    assert_int_equal(options.resources.custom[0].amount, 15000);
}

/* Returns what parsing these arguments prints to stderr. */
static const char *complaint_of(const char *const *args)
{
    static char said[512];
    struct cli_daemon_options options;
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);

    assert_non_null(file);
    assert_true(before >= 0);
    (void)fflush(stderr);
    (void)dup2(fileno(file), STDERR_FILENO);
    assert_false(read_words(args, &options));
    (void)fflush(stderr);
    (void)dup2(before, STDERR_FILENO);
    (void)close(before);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    (void)fclose(file);
    return said;
}

#define COMPLAINT(...) complaint_of((const char *const[]){__VA_ARGS__, NULL})

static void complaint_names_what_was_said(void **state)
{
    static const char *const variables[] = {"TANDEM_GPUS",
                                            "TANDEM_GPU_BYTES",
                                            "TANDEM_OBJECT_STORE_BYTES",
                                            "TANDEM_HEALTH_TIMEOUT_MS",
                                            "TANDEM_STORE_FAULTS",
                                            "TANDEM_UNREACHABLE_MS",
                                            "TANDEM_LEASE_MS",
                                            "TANDEM_REDIS_WAIT_REPLICAS",
                                            "TANDEM_RESOURCES"};

    (void)state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        assert_int_equal(setenv(variables[i], "many", 1), 0);
        assert_non_null(strstr(COMPLAINT("--cpus", "1"), variables[i]));
        assert_int_equal(unsetenv(variables[i]), 0);
    }
    assert_non_null(strstr(COMPLAINT("--gpus", "many"), "tandemd: --gpus wants"));
    assert_memory_equal(COMPLAINT("--nonsense"), "tandemd: ", 9);
    assert_non_null(strstr(COMPLAINT("--nonsense"), "see: tandemd --help"));
    assert_non_null(strstr(COMPLAINT("--gpu-byte", "4194304"), "did you mean --gpu-bytes?"));
    assert_non_null(strstr(COMPLAINT("--nonsense"), "--nonsense"));
    assert_memory_equal(COMPLAINT("--gpus"), "tandemd: ", 9);
    /* Other nodes would refuse the hello of a node with such a name. */
    assert_non_null(strstr(COMPLAINT("--name", "größe"), "printable ASCII"));
    assert_non_null(strstr(COMPLAINT("--name", "two\nlines"), "printable ASCII"));
    assert_non_null(strstr(COMPLAINT("--name", "0123456789012345678901234567890123456789"
                                               "0123456789012345678901234567890123456789"),
                           "63 bytes"));
    /* A port without a host would be ignored. */
    assert_non_null(strstr(COMPLAINT("--port", "7000"), "--listen"));
}

static void the_environment_stands_in(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_int_equal(setenv("TANDEM_GPUS", "7", 1), 0);
    assert_int_equal(setenv("TANDEM_RESOURCES", "disk=2,licence=1", 1), 0);
    assert_true(READ(&options, "--cpus", "1"));
    assert_int_equal(options.gpus, 7);
    assert_string_equal(options.resources.custom[1].name, "licence");
    assert_true(READ(&options, "--gpus", "1"));
    assert_int_equal(options.gpus, 1);
    assert_int_equal(setenv("TANDEM_GPUS", "many", 1), 0);
    assert_false(READ(&options, "--cpus", "1"));
    assert_int_equal(unsetenv("TANDEM_GPUS"), 0);
    assert_int_equal(unsetenv("TANDEM_RESOURCES"), 0);
}

static void time_until_a_silent_node_is_unreachable_can_be_chosen(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_true(READ(&options, "--cpus", "1"));
    assert_int_equal(options.unreachable_ms, 10000);
    assert_true(READ(&options, "--unreachable-ms", "500"));
    assert_int_equal(options.unreachable_ms, 500);
    assert_true(READ(&options, "--unreachable-ms", "0")); /* never */
    assert_non_null(strstr(COMPLAINT("--unreachable-ms", "499"), "499 is less than 500"));
}

/* From five seconds to an hour. */
static void lease_can_be_chosen_within_its_limits(void **state)
{
    static const char *const wrong[] = {"0", "4999", "3600001"};
    struct cli_daemon_options options;

    (void)state;
    assert_int_equal(unsetenv("TANDEM_LEASE_MS"), 0);
    assert_true(READ(&options, "--cpus", "1"));
    assert_int_equal(options.lease_ms, 30000);
    assert_true(READ(&options, "--lease-ms", "5000"));
    assert_int_equal(options.lease_ms, 5000);
    assert_true(READ(&options, "--lease-ms", "3600000"));
    assert_int_equal(options.lease_ms, 3600000);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_non_null(strstr(COMPLAINT("--lease-ms", wrong[i]), "tandemd: --lease-ms wants"));
        assert_int_equal(setenv("TANDEM_LEASE_MS", wrong[i], 1), 0);
        assert_non_null(strstr(COMPLAINT("--cpus", "1"), "tandemd: TANDEM_LEASE_MS wants"));
        assert_int_equal(unsetenv("TANDEM_LEASE_MS"), 0);
    }
    assert_int_equal(setenv("TANDEM_LEASE_MS", "7000", 1), 0);
    assert_true(READ(&options, "--cpus", "1"));
    assert_int_equal(options.lease_ms, 7000);
    assert_true(READ(&options, "--lease-ms", "8000"));
    assert_int_equal(options.lease_ms, 8000);
    assert_int_equal(unsetenv("TANDEM_LEASE_MS"), 0);
}

static void replicas_that_confirm_can_be_chosen(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_true(READ(&options, "--cpus", "1"));
    assert_int_equal(options.wait_replicas, 0);
    assert_true(READ(&options, "--redis-wait-replicas", "2"));
    assert_int_equal(options.wait_replicas, 2);
    assert_int_equal(setenv("TANDEM_REDIS_WAIT_REPLICAS", "1", 1), 0);
    assert_true(READ(&options, "--cpus", "1"));
    assert_int_equal(options.wait_replicas, 1);
    assert_int_equal(unsetenv("TANDEM_REDIS_WAIT_REPLICAS"), 0);
    assert_non_null(strstr(COMPLAINT("--redis-wait-replicas", "-1"), "--redis-wait-replicas"));
}

static void wrong_arguments_are_refused(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_false(READ(&options, "--cpus", "-1"));
    assert_false(READ(&options, "--cpus", "1x"));
    assert_false(READ(&options, "--gpus", "100000"));
    assert_false(READ(&options, "--gpu-bytes", "1000"));
    assert_false(READ(&options, "--port", "65536"));
    assert_false(READ(&options, "--name", ""));
    assert_false(READ(&options, "--nonsense"));
    assert_false(READ(&options, "stray"));
    assert_false(READ(&options, "--resource", "disk"));
    assert_false(READ(&options, "--resource", "disk=much"));
    assert_false(READ(&options, "--resource", "GPU=1"));
    assert_false(READ(&options, "--resource", "disk=1", "--resource", "disk=1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_become_options),
        cmocka_unit_test(complaint_names_what_was_said),
        cmocka_unit_test(the_environment_stands_in),
        cmocka_unit_test(time_until_a_silent_node_is_unreachable_can_be_chosen),
        cmocka_unit_test(lease_can_be_chosen_within_its_limits),
        cmocka_unit_test(replicas_that_confirm_can_be_chosen),
        cmocka_unit_test(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
