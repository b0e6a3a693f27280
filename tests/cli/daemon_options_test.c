/* daemon_options_test.c - the options of tandemd are parsed, or refused with the remedy. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_options.h"
#include "cli/redis_url.h"

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

static void tls_is_left_out_only_if_that_is_asked_for(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_true(READ(&options, "--private"));
    assert_int_equal(options.tcp.tls_mode, TDM__TLS_AUTO);
    assert_true(READ(&options, "--tls", "off"));
    assert_int_equal(options.tcp.tls_mode, TDM__TLS_OFF);
    assert_int_equal(setenv("TANDEM_TLS", "on", 1), 0);
    assert_true(READ(&options, "--private"));
    assert_int_equal(options.tcp.tls_mode, TDM__TLS_ON);
    assert_int_equal(unsetenv("TANDEM_TLS"), 0);
    assert_false(READ(&options, "--tls", "no"));
}

static void redis_on_another_machine_is_refused_unless_that_is_asked_for(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_true(READ(&options, "--redis", "redis://127.0.0.1:1"));
    assert_true(READ(&options, "--redis", "redis://localhost"));
    assert_true(READ(&options, "--redis", "redis://[::1]:1"));
    assert_true(READ(&options, "--redis", "unix:///x"));
    assert_true(READ(&options, "--redis", "redis://10.0.0.9:1", "--insecure-redis"));
    assert_true(READ(&options, "--redis", "redis+sentinel://127.0.0.1,localhost/m"));
    assert_false(READ(&options, "--redis", "redis+sentinel://127.0.0.1,10.0.0.9/m"));
    assert_true(READ(&options, "--redis", "redis+sentinel://10.0.0.9/m", "--insecure-redis"));
    assert_false(READ(&options, "--redis", "redis://10.0.0.9:1"));
    assert_true(READ(&options, "--redis", "rediss://10.0.0.9:1"));
    assert_false(READ(&options, "--redis", "redis://[2001:db8::1]:1"));
    assert_int_equal(setenv("TANDEM_REDIS", "redis://me:secret@store.example", 1), 0);
    assert_false(READ(&options, "--cpus", "1"));
    assert_true(READ(&options, "--private")); /* A private node does not use it. */
    assert_int_equal(setenv("TANDEM_INSECURE_REDIS", "1", 1), 0);
    assert_true(READ(&options, "--cpus", "1"));
    free((char *)(uintptr_t)options.redis_url);
    assert_int_equal(unsetenv("TANDEM_INSECURE_REDIS"), 0);
    assert_int_equal(unsetenv("TANDEM_REDIS"), 0);
}

static void password_of_sentinels_is_refused_on_a_command_line(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_false(READ(&options, "--redis", "redis+sentinel://me:secret@127.0.0.1/m"));
    assert_false(READ(&options, "--redis", "redis+sentinel://127.0.0.1/m?sentinel_password=p"));
}

static void sentinels_without_replicas_that_confirm_are_a_risk(void **state)
{
    static const char url[] = "redis+sentinel://127.0.0.1/m";

    (void)state;
    assert_non_null(strstr(cli_redis_url_risk(url, 0), "--redis-wait-replicas 1"));
    assert_null(cli_redis_url_risk(url, 1));
    assert_null(cli_redis_url_risk("redis://127.0.0.1", 0));
    assert_null(cli_redis_url_risk("", 0));
}

static void ports_and_advertised_host_are_read(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_true(READ(&options, "--listen", "0.0.0.0", "--ports", "7000-7099", "--advertise", "n1"));
    assert_int_equal(options.tcp.first_port, 7000);
    assert_int_equal(options.tcp.last_port, 7099);
    assert_string_equal(options.tcp.advertised_host, "n1");
    assert_false(READ(&options, "--ports", "7000-7099")); /* Nothing listens. */
    assert_false(READ(&options, "--listen", "x", "--ports", "7099-7000"));
    assert_false(READ(&options, "--listen", "x", "--ports", "0-9"));
    assert_false(READ(&options, "--listen", "x", "--ports", "1-65536"));
    assert_false(READ(&options, "--listen", "x", "--advertise", "[::1]:1"));
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
    assert_non_null(
        strstr(COMPLAINT("--gpus", "many"), "tandemd: reading --gpus failed: expected"));
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
    assert_non_null(strstr(COMPLAINT("--unreachable-ms", "499"),
                           "expected 0 or at least 500 milliseconds, got 499"));
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
        assert_non_null(strstr(COMPLAINT("--lease-ms", wrong[i]),
                               "tandemd: reading --lease-ms failed: expected"));
        assert_int_equal(setenv("TANDEM_LEASE_MS", wrong[i], 1), 0);
        assert_non_null(
            strstr(COMPLAINT("--cpus", "1"), "tandemd: reading TANDEM_LEASE_MS failed: expected"));
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

/* Each option and variable that takes a number, with the largest one and one that is too large. */
static void numbers_have_limits(void **state)
{
    static const struct {
        const char *option;
        const char *largest;
        const char *wrong;
    } numbers[] = {
        {"--cpus", "100000", "100001"},
        {"--gpus", "0", "99999"},
        {"--gpu-bytes", "18446744073707454464", "18446744073709551616"},
        {"--gpu-reserve-bytes", "18446744073709551614", "18446744073709551615"},
        {"--memory-bytes", "17592186044415", "17592186044416"},
        {"--object-store-bytes", "9223372036854775807", "9223372036854775808"},
        {"--health-timeout-ms", "2147483647", "2147483648"},
        {"--unreachable-ms", "2147483647", "2147483648"},
        {"--redis-wait-replicas", "1", "99999999999"},
    };
    static const char *const no_numbers[] = {"-1", "1x", " ", "0x10"};
    struct cli_daemon_options options;

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const char *option = numbers[i].option;

        assert_true(READ(&options, option, numbers[i].largest));
        assert_non_null(strstr(COMPLAINT(option, numbers[i].wrong), option));
        assert_non_null(strstr(COMPLAINT(option, numbers[i].wrong), numbers[i].wrong));
        for (size_t k = 0; k < sizeof(no_numbers) / sizeof(no_numbers[0]); k++) {
            if (strstr(COMPLAINT(option, no_numbers[k]), "expected a number from 0 to") == NULL) {
                fail_msg("%s \"%s\": %s", option, no_numbers[k], COMPLAINT(option, no_numbers[k]));
            }
        }
    }
}

static void variables_are_read(void **state)
{
    static const struct {
        const char *variable;
        const char *value;
    } variables[] = {
        {"TANDEM_GPU_BYTES", "4194304"},        {"TANDEM_GPU_RESERVE_BYTES", "77"},
        {"TANDEM_OBJECT_STORE_BYTES", "88"},    {"TANDEM_HEALTH_TIMEOUT_MS", "99"},
        {"TANDEM_UNREACHABLE_MS", "1234"},      {"TANDEM_STORE_FAULTS", "5,60"},
        {"TANDEM_METRICS_ADDRESS", "tcp:a:1"},  {"TANDEM_DEVICE", "cuda"},
        {"TANDEM_LABELS", "zone=a,disk=ssd"},   {"TANDEM_RESOURCES", ""},
        {"TANDEM_REDIS", "unix:///run/server"},
    };
    struct cli_daemon_options options;

    (void)state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        assert_int_equal(setenv(variables[i].variable, variables[i].value, 1), 0);
    }
    assert_true(READ(&options, "--cpus", "1"));
    assert_int_equal(options.gpu_bytes, 4194304);
    assert_int_equal(options.gpu_reserve_bytes, 77);
    assert_int_equal(options.object_store_bytes, 88);
    assert_int_equal(options.health_timeout_ms, 99);
    assert_int_equal(options.unreachable_ms, 1234);
    assert_int_equal(options.fault_seed, 5);
    assert_int_equal(options.fault_one_in, 60);
    assert_string_equal(options.metrics_address, "tcp:a:1");
    assert_string_equal(options.device, "cuda");
    assert_string_equal(options.redis_url, "unix:///run/server");
    free((char *)(uintptr_t)options.redis_url);
    /* The node of one driver has a store of its own. */
    assert_true(READ(&options, "--private"));
    assert_null(options.redis_url);
    assert_true(READ(&options, "--redis", "unix:///run/other"));
    assert_string_equal(options.redis_url, "unix:///run/other");
    assert_int_equal(setenv("TANDEM_DEVICE", "", 1), 0);
    assert_int_equal(setenv("TANDEM_REDIS", "", 1), 0);
    assert_true(READ(&options, "--cpus", "1"));
    assert_string_equal(options.device, "host");
    assert_null(options.redis_url);
    assert_int_equal(setenv("TANDEM_GPU_RESERVE_BYTES", "some", 1), 0);
    assert_non_null(
        strstr(COMPLAINT("--cpus", "1"), "TANDEM_GPU_RESERVE_BYTES failed: expected a number"));
    assert_int_equal(setenv("TANDEM_GPU_RESERVE_BYTES", "1", 1), 0);
    assert_int_equal(setenv("TANDEM_LABELS", "zone", 1), 0);
    assert_non_null(strstr(COMPLAINT("--cpus", "1"), "reading --labels failed: "));
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        assert_int_equal(unsetenv(variables[i].variable), 0);
    }
}

/* What is wrong, and a part of what is said about it. */
static void each_complaint_says_what_is_wanted(void **state)
{
    static const struct {
        const char *words[4];
        const char *said;
    } complaints[] = {
        {{"--resource", "disk"},
         "--resource failed: expected NAME=N, such as disk=2, got \"disk\""},
        {{"--resource", "disk="}, "--resource failed: expected a number for disk, got \"\""},
        {{"--resource", "disk=1x"}, "--resource failed: expected a number for disk, got \"1x\""},
        {{"--resource", "CPU=1"}, "--resource failed: CPU has an option of its own. Give --cpus N"},
        {{"--resource", "GPU=1"}, "--resource failed: GPU has an option of its own. Give --gpus N"},
        {{"--resource", "disk=-1"}, "reading --resource failed: disk: "},
        {{"--labels", "zone"}, "reading --labels failed: "},
        {{"--labels", "=a"}, "reading --labels failed: "},
        {{"--store-faults", "5"},
         "--store-faults failed: expected SEED,N, such as 5,100, got \"5\""},
        {{"--store-faults", "x,2"}, "--store-faults failed: expected a number"},
        {{"--store-faults", "5,x"}, "--store-faults failed: expected a number from 0 to 1000000"},
        {{"--store-faults",
          "0000000000000000000000000000000000000000000000000000000000000000000000,1"},
         "--store-faults failed: expected SEED,N"},
        {{"--join", "tcp:head:1"}, "--join needs --listen HOST and excludes --redis"},
        {{"--gpu-bytes", "1000"}, "--gpu-bytes 1000 is not a multiple of 2097152 (2 MiB)"},
        {{"--port", "1"}, "--port 1 needs --listen HOST"},
        {{"--redis", "redis://:secret@server"}, "reading --redis failed: it contains a password"},
        {{"--redis-file", "/nowhere/redis"}, "/nowhere/redis"},
        {{"--name", "\x7f"}, "expected 1 to 63 bytes of printable ASCII, got 1 bytes"},
        {{"--name", ""}, "a value is missing after \"--name\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(complaints) / sizeof(complaints[0]); i++) {
        const char *said = complaint_of(complaints[i].words);

        if (strstr(said, complaints[i].said) == NULL) {
            fail_msg("%s %s: %s", complaints[i].words[0], complaints[i].words[1], said);
        }
    }
    assert_non_null(
        strstr(COMPLAINT("--join", "tcp:head:1", "--listen", "host", "--redis", "redis://a:1"),
               "excludes --redis"));
}

static void flags_and_texts_are_stored(void **state)
{
    struct cli_daemon_options options;

    (void)state;
    assert_true(READ(&options, "--started", "--print-logs", "--job-optional", "--listen", "host",
                     "--port", "7000", "--join", "tcp:head:1", "--cluster", "mine", "--labels",
                     "zone=a"));
    assert_true(options.print_logs);
    assert_string_equal(options.listen_host, "host");
    assert_int_equal(options.port, 7000);
    assert_string_equal(options.join_address, "tcp:head:1");
    assert_string_equal(options.cluster, "mine");
    assert_true(READ(&options, "--device", "cuda", "--job-address", "tcp:h:8265",
                     "--metrics-address", "tcp:h:9"));
    assert_string_equal(options.device, "cuda");
    assert_string_equal(options.job_address, "tcp:h:8265");
    assert_string_equal(options.metrics_address, "tcp:h:9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_limits),
        cmocka_unit_test(variables_are_read),
        cmocka_unit_test(each_complaint_says_what_is_wanted),
        cmocka_unit_test(flags_and_texts_are_stored),
        cmocka_unit_test(arguments_become_options),
        cmocka_unit_test(ports_and_advertised_host_are_read),
        cmocka_unit_test(tls_is_left_out_only_if_that_is_asked_for),
        cmocka_unit_test(redis_on_another_machine_is_refused_unless_that_is_asked_for),
        cmocka_unit_test(password_of_sentinels_is_refused_on_a_command_line),
        cmocka_unit_test(sentinels_without_replicas_that_confirm_are_a_risk),
        cmocka_unit_test(complaint_names_what_was_said),
        cmocka_unit_test(the_environment_stands_in),
        cmocka_unit_test(time_until_a_silent_node_is_unreachable_can_be_chosen),
        cmocka_unit_test(lease_can_be_chosen_within_its_limits),
        cmocka_unit_test(replicas_that_confirm_can_be_chosen),
        cmocka_unit_test(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
