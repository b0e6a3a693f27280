/* embedded_test.c - the embedded redis-server: its directory, its restarts, its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clock.h"
#include "runtime/redis/store.h"
#include "tests/support/redis_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct tdm__loop *loop;
static char directory[64];

static int make_directory(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-test-XXXXXX");
    return mkdtemp(directory) == NULL || tdm__loop_create(&loop) != TDM_OK;
}

static int remove_directory(void **state)
{
    (void)state;
    tdm__loop_destroy(loop);
    remove_tree(directory);
    return 0;
}

static struct tdm__redis_embedded *start(void)
{
    struct tdm__redis_embedded *server;

    if (tdm__redis_embedded_start(loop, directory, &server) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    return server;
}

static mode_t mode_of(const char *name)
{
    struct stat status;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    assert_int_equal(stat(path, &status), 0);
    return status.st_mode & 07777;
}

static void other_users_cannot_connect(void **state)
{
    struct tdm__redis_embedded *server = start();

    (void)state;
    assert_int_equal(mode_of("redis"), 0700);
    assert_int_equal(mode_of("redis/socket"), 0600);
    tdm__redis_embedded_stop(server);
}

static void embedded_redis_runs_under_our_name(void **state)
{
    struct tdm__redis_embedded *server = start();
    char text[128] = "";
    FILE *file;

    (void)state;
    (void)snprintf(text, sizeof(text), "/proc/%d/cmdline", tdm__redis_embedded_pid(server));
    file = fopen(text, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    assert_memory_equal(text, "tandem-store", strlen("tandem-store"));
    tdm__redis_embedded_stop(server);
}

struct rebirth {
    struct tdm__redis_embedded *server;
    pid_t old_pid;
};

static bool is_reborn(void *arg)
{
    const struct rebirth *rebirth = arg;
    pid_t pid = tdm__redis_embedded_pid(rebirth->server);

    return pid != 0 && pid != rebirth->old_pid;
}

static void embedded_redis_is_restarted_when_it_dies(void **state)
{
    struct rebirth rebirth = {.server = start()};

    (void)state;
    for (int i = 0; i < 3; i++) {
        rebirth.old_pid = tdm__redis_embedded_pid(rebirth.server);
        assert_int_equal(kill(rebirth.old_pid, SIGKILL), 0);
        assert_int_equal(tdm__loop_run(loop, is_reborn, &rebirth, tdm__clock_ms() + 10000), TDM_OK);
    }
    tdm__redis_embedded_stop(rebirth.server);
}

static void embedded_redis_that_does_not_reply_is_killed_and_started_again(void **state)
{
    struct rebirth rebirth = {.server = start()};

    (void)state;
    rebirth.old_pid = tdm__redis_embedded_pid(rebirth.server);
    assert_int_equal(kill(rebirth.old_pid, SIGSTOP), 0);
    assert_int_equal(tdm__loop_run(loop, is_reborn, &rebirth, tdm__clock_ms() + 10000), TDM_OK);
    tdm__redis_embedded_stop(rebirth.server);
}

static void stopping_ends_it_even_if_it_stands_still(void **state)
{
    struct tdm__redis_embedded *server = start();
    pid_t pid = tdm__redis_embedded_pid(server);

    (void)state;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    tdm__redis_embedded_stop(server);
    assert_int_equal(kill(pid, 0), -1);
}

static void its_data_outlive_a_stop(void **state)
{
    struct store_fixture world = {.loop = loop};
    struct tdm__redis_embedded *server;

    (void)state;
    for (int life = 0; life < 2; life++) {
        server = start();
        assert_int_equal(tdm__store_redis_open(loop, tdm__redis_embedded_url(server), "test", 10000,
                                               &world.store),
                         TDM_OK);
        assert_int_equal(store_put(&world, "key", "", TDM__VERSION_NONE, 0),
                         life == 0 ? TDM_OK : TDM_E_CONFLICT);
        world.store->ops->close(world.store);
        tdm__redis_embedded_stop(server);
    }
}

static void directory_open_to_others_is_refused(void **state)
{
    struct tdm__redis_embedded *server;
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/redis", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(tdm__redis_embedded_start(loop, directory, &server), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), "0700"));
}

static void machine_without_redis_gets_the_remedy(void **state)
{
    struct tdm__redis_embedded *server;
    char *path = strdup(getenv("PATH"));

    (void)state;
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    assert_int_equal(tdm__redis_embedded_start(loop, directory, &server), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "apt install redis-server"));
    assert_int_equal(setenv("PATH", path, 1), 0);
    free(path);
}

/* Writes an executable shell script to `name` in the test's directory and its path to `path`. */
static void write_script(const char *name, const char *text, char path[128])
{
    FILE *file;

    (void)snprintf(path, 128, "%s/%s", directory, name);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fprintf(file, "#!/bin/sh\n%s\n", text) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

static void server_without_functions_fails_with_the_remedy(void **state)
{
    struct store_fixture world = {.loop = loop};
    struct tdm__redis_embedded *server;
    char path[128];

    (void)state;
    write_script("old-redis",
                 "exec redis-server \"$@\" --rename-command FUNCTION '' --rename-command FCALL '' "
                 "--rename-command FCALL_RO ''",
                 path);
    assert_int_equal(setenv("TANDEM_REDIS_SERVER", path, 1), 0);
    server = start();
    assert_int_equal(unsetenv("TANDEM_REDIS_SERVER"), 0);
    assert_int_equal(
        tdm__store_redis_open(loop, tdm__redis_embedded_url(server), "test", 10000, &world.store),
        TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "Redis 7 or later, or Valkey"));
    tdm__redis_embedded_stop(server);
}

static void server_too_old_for_the_options_fails_with_the_remedy(void **state)
{
    struct tdm__redis_embedded *server;
    char path[128];

    (void)state;
    write_script("older-redis", "exit 1", path);
    assert_int_equal(setenv("TANDEM_REDIS_SERVER", path, 1), 0);
    assert_int_equal(tdm__redis_embedded_start(loop, directory, &server), TDM_E_STORE);
    assert_int_equal(unsetenv("TANDEM_REDIS_SERVER"), 0);
    assert_non_null(strstr(tdm_error_detail(), "older-redis) ended 3 times: exit code 1"));
    assert_non_null(strstr(tdm_error_detail(), "Redis 7 or later, or Valkey"));
}

static void server_that_cannot_start_fails_with_its_last_warning(void **state)
{
    struct tdm__redis_embedded *server;
    char path[128];
    FILE *file;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/redis", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/redis/appendonlydir", directory);
    /* The file is where redis-server wants to create a directory. */
    file = fopen(path, "we");
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(tdm__redis_embedded_start(loop, directory, &server), TDM_E_STORE);
    assert_non_null(strstr(tdm_error_detail(), "exit code 1: Can't open or create append-only"));
}

#define EMBEDDED_TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMBEDDED_TEST(other_users_cannot_connect),
        EMBEDDED_TEST(embedded_redis_runs_under_our_name),
        EMBEDDED_TEST(embedded_redis_is_restarted_when_it_dies),
        EMBEDDED_TEST(embedded_redis_that_does_not_reply_is_killed_and_started_again),
        EMBEDDED_TEST(stopping_ends_it_even_if_it_stands_still),
        EMBEDDED_TEST(its_data_outlive_a_stop),
        EMBEDDED_TEST(directory_open_to_others_is_refused),
        EMBEDDED_TEST(machine_without_redis_gets_the_remedy),
        EMBEDDED_TEST(server_without_functions_fails_with_the_remedy),
        EMBEDDED_TEST(server_too_old_for_the_options_fails_with_the_remedy),
        EMBEDDED_TEST(server_that_cannot_start_fails_with_its_last_warning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
