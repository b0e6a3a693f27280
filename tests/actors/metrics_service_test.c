/* metrics_service_test.c - the metrics of a node are correct and readable for Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static tdm_runtime *runtime;
static char text[1 << 18]; /* Text of the last scrape. */

/* Path of the socket at which the node serves its metrics. */
#define SOCKET_FORMAT "/tmp/tdw-metrics-%d"

/* Reads all that the node sends to the request "GET /metrics" into `text`. */
static void read_metrics(int fd)
{
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    size_t size_bytes = 0;
    ssize_t got;

    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    do {
        got = read(fd, text + size_bytes, sizeof(text) - 1 - size_bytes);
        assert_true(got >= 0);
        size_bytes += (size_t)got;
    } while (got > 0);
    text[size_bytes] = '\0';
}

/* Reads the metrics into `text`, without the header of the reply. */
static void scrape(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *body;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), SOCKET_FORMAT, (int)getpid());
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    read_metrics(fd);
    (void)close(fd);
    assert_non_null(strstr(text, " 200 "));
    body = strstr(text, "\r\n\r\n");
    assert_non_null(body);
    memmove(text, body + 4, strlen(body + 4) + 1);
}

/* The value of the first sample that begins so. */
static double value_of(const char *sample)
{
    char line[512];
    const char *found;

    (void)snprintf(line, sizeof(line), "\n%s", sample);
    found = strstr(text, line);
    if (found == NULL) {
        fail_msg("no sample %s", sample);
        return 0;
    }
    return strtod(strrchr(strndupa(found + 1, strcspn(found + 1, "\n")), ' '), NULL);
}

/* ---- a strict reader of the format ------------------------------------------------------ */

static const char *skip_name(const char *at)
{
    if (isalpha((unsigned char)*at) == 0 && *at != '_') {
        return NULL;
    }
    while (isalnum((unsigned char)*at) != 0 || *at == '_') {
        at++;
    }
    return at;
}

static const char *skip_quoted(const char *at)
{
    if (*at++ != '"') {
        return NULL;
    }
    for (; *at != '"'; at++) {
        if (*at == '\0' || (*at == '\\' && strchr("\\\"n", *++at) == NULL)) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *skip_labels(const char *at)
{
    if (*at != '{') {
        return at;
    }
    do {
        at = skip_name(at + 1);
        if (at == NULL || *at != '=' || (at = skip_quoted(at + 1)) == NULL) {
            return NULL;
        }
    } while (*at == ',');
    return *at == '}' ? at + 1 : NULL;
}

/* "name{labels} number", of the family whose TYPE was told last. */
static void check_sample(const char *line, const char *family)
{
    const char *end = skip_name(line);
    char *number_end;

    if (end == NULL || strncmp(line, family, strlen(family)) != 0) {
        fail_msg("%s: not of the family %s", line, family);
        return;
    }
    end = skip_labels(end);
    if (end == NULL || *end != ' ') {
        fail_msg("%s: labels", line);
        return;
    }
    (void)strtod(end + 1, &number_end);
    if (number_end == end + 1 || *number_end != '\0') {
        fail_msg("%s: the number", line);
    }
}

static void check_text(void)
{
    char family[128] = "?";
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            (void)snprintf(family, sizeof(family), "%.*s", (int)strcspn(line + 7, " "), line + 7);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(strncmp(line + 7, family, strlen(family)), 0);
        } else {
            check_sample(line, family);
        }
    }
}

/* ---- the tests -------------------------------------------------------------------------- */

static void calls_of_an_actor_are_counted(void **state)
{
    tdm_actor *actor = actor_fixture_create(
        runtime, &(struct tdm_actor_options){.name = "busy\"1\"", .num_gpus = 0.5});

    (void)state;
    for (int i = 0; i < 7; i++) {
        (void)actor_fixture_call_int(actor, "pid");
    }
    assert_int_equal(actor_fixture_call(actor, "fail", "on purpose"), TDM_E_METHOD);
    scrape();
    assert_true(value_of("tandem_actor_calls_total{class=\"tester\",name=\"busy\\\"1\\\"\"") == 8);
    assert_true(
        value_of("tandem_actor_calls_failed_total{class=\"tester\",name=\"busy\\\"1\\\"\"") == 1);
    assert_true(value_of("tandem_actor_call_seconds_count{class=\"tester\",name=\"busy") == 8);
    assert_true(value_of("tandem_actors{state=\"alive\"}") == 1);
    assert_true(value_of("tandem_resources{resource=\"GPU\"}") == 4);
    assert_true(value_of("tandem_resources_free{resource=\"GPU\"}") == 3.5);
    assert_true(value_of("tandem_daemon_call_seconds_count{method=\"actor.create\"}") == 1);
    assert_true(value_of("tandem_store_seconds_count{operation=\"commit\"}") > 0);
    assert_true(value_of("tandem_gpu_capacity_bytes{gpu=\"3\"}") > 0);
    assert_true(value_of("process_resident_memory_bytes") > 0);
    check_text();
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    scrape();
    assert_true(value_of("tandem_actors_ended_total") == 1);
    assert_true(value_of("tandem_object_store_limit_bytes") > 0);
    assert_true(value_of("tandem_object_store_used_bytes") == 0);
    tdm_actor_destroy(actor);
}

static void hanging_actor_does_not_block_metrics_of_others(void **state)
{
    tdm_actor *actor = actor_fixture_create(runtime, NULL);
    tdm_ref *ref = NULL;

    (void)state;
    assert_int_equal(tdm_actor_call(actor, "hang", &ref, ""), TDM_OK);
    assert_int_equal(tdm_get(ref, 1, ""), TDM_E_TIMEOUT);
    scrape();
    assert_true(value_of("tandem_actors{state=\"alive\"}") == 1);
    tdm_ref_release(ref);
    assert_int_equal(tdm_actor_kill(actor, TEST_TIMEOUT_MS), TDM_OK);
    tdm_actor_destroy(actor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_an_actor_are_counted),
        cmocka_unit_test(hanging_actor_does_not_block_metrics_of_others),
    };
    char address[64];
    int failed;

    (void)snprintf(address, sizeof(address), "unix:" SOCKET_FORMAT, (int)getpid());
    (void)setenv("TANDEM_METRICS_ADDRESS", address, 0); /* A worker has that of its driver. */
    runtime = actor_fixture_open(NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + actor_fixture_close(runtime);
}
