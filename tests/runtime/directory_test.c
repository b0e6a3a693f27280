/* directory_test.c - a daemon's directory is private, locked, and removed when it is abandoned. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/directory.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char parent[] = "/tmp/tdd-XXXXXX"; /* Value of $TMPDIR during the test. */

static void new_directory_is_private_and_goes_with_its_content(void **state)
{
    struct stat about;
    char path[160];
    char inside[200];
    int fd;

    (void)state;
    assert_int_equal(tdm__directory_create(path, sizeof(path)), TDM_OK);
    assert_int_equal(strncmp(path, parent, strlen(parent)), 0);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
    (void)snprintf(inside, sizeof(inside), "%s/sub", path);
    assert_int_equal(mkdir(inside, 0700), 0);
    (void)snprintf(inside, sizeof(inside), "%s/sub/file", path);
    fd = open(inside, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    tdm__directory_remove(path);
    assert_int_equal(access(path, F_OK), -1);
}

static void directory_that_others_may_write_is_refused(void **state)
{
    char path[160];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/open", parent);
    assert_int_equal(tdm__directory_create_at(path), TDM_OK);
    assert_int_equal(tdm__directory_create_at(path), TDM_OK);
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(tdm__directory_create_at(path), TDM_E_AUTH);
    assert_int_equal(chmod(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/link", parent);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(tdm__directory_create_at(path), TDM_E_AUTH);
}

static void path_too_long_for_sockets_is_refused(void **state)
{
    char path[160];

    (void)state;
    memset(path, 'p', sizeof(path));
    path[0] = '/';
    path[100] = '\0';
    assert_int_equal(tdm__directory_create_at(path), TDM_E_LIMIT);
    /* The user named this path, so TMPDIR is no remedy. */
    assert_null(strstr(tdm_error_detail(), "TMPDIR"));
    assert_int_equal(setenv("TMPDIR", path, 1), 0);
    assert_int_equal(tdm__directory_create(path, sizeof(path)), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "TMPDIR"));
    assert_int_equal(setenv("TMPDIR", parent, 1), 0);
}

static void lock_is_held_once(void **state)
{
    char path[160];
    int first;
    int second;

    (void)state;
    assert_int_equal(tdm__directory_create(path, sizeof(path)), TDM_OK);
    assert_false(tdm__directory_is_locked(path));
    assert_int_equal(tdm__directory_lock(path, &first), TDM_OK);
    assert_true(tdm__directory_is_locked(path));
    assert_int_equal(tdm__directory_lock(path, &second), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), path));
    (void)close(first);
    assert_false(tdm__directory_is_locked(path));
    assert_int_equal(tdm__directory_lock(path, &second), TDM_OK);
    (void)close(second);
    tdm__directory_remove(path);
}

static void sockets_of_a_dead_owner_are_removed(void **state)
{
    char path[160];
    char socket_path[200];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_int_equal(tdm__directory_create(path, sizeof(path)), TDM_OK);
    (void)snprintf(socket_path, sizeof(socket_path), "%s/a-socket", path);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", socket_path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    (void)close(fd);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/file", path);
    fd = open(address.sun_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    (void)close(fd);
    tdm__directory_clear_leftovers(path);
    assert_int_equal(access(socket_path, F_OK), -1);
    assert_int_equal(access(address.sun_path, F_OK), 0);
    tdm__directory_remove(path);
}

/* Starts a process in a session of its own with the directory in its environment, like a process
 * that a dead daemon leaves. */
static pid_t start_leftover(const char *path)
{
    pid_t child = fork();

    if (child == 0) {
        (void)setsid();
        (void)setenv(TDM__DIRECTORY_VARIABLE, path, 1);
        (void)execl("/bin/sleep", "sleep", "1000", (char *)NULL);
        _exit(127);
    }
    return child;
}

static int has_execed(pid_t pid)
{
    char path[64];
    char name[32] = "";
    ssize_t got;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    got = read(fd, name, sizeof(name) - 1);
    (void)close(fd);
    return got > 0 && strcmp(name, "sleep\n") == 0;
}

static void only_abandoned_directories_are_removed(void **state)
{
    char living[160];
    char dead[160];
    char young[160];
    pid_t spared;
    pid_t leftover;
    int wait_status;
    int lock;
    int gone;

    (void)state;
    assert_int_equal(tdm__directory_create(living, sizeof(living)), TDM_OK);
    assert_int_equal(tdm__directory_lock(living, &lock), TDM_OK);
    assert_int_equal(tdm__directory_create(dead, sizeof(dead)), TDM_OK);
    assert_int_equal(tdm__directory_lock(dead, &gone), TDM_OK);
    (void)close(gone);
    /* It has no lock yet. */
    assert_int_equal(tdm__directory_create(young, sizeof(young)), TDM_OK);
    spared = start_leftover(living);
    leftover = start_leftover(dead);
    for (int i = 0; i < 2000 && (!has_execed(spared) || !has_execed(leftover)); i++) {
        (void)poll(NULL, 0, 5);
    }
    tdm__directory_remove_abandoned();
    assert_int_equal(waitpid(leftover, &wait_status, 0), leftover);
    assert_int_equal(wait_status, SIGKILL);
    assert_int_equal(waitpid(spared, &wait_status, WNOHANG), 0);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(living, F_OK), 0);
    assert_int_equal(access(young, F_OK), 0);
    tdm__directory_clear_leftovers(living);
    assert_int_equal(waitpid(spared, &wait_status, 0), spared);
    (void)close(lock);
    tdm__directory_remove_abandoned();
    assert_int_equal(access(living, F_OK), -1);
}

/* A daemon that starts removes abandoned directories. It must not remove the directory of another
 * daemon that is starting at the same time. */
static void new_directory_survives_a_concurrent_clean_up(void **state)
{
    pid_t cleaner = fork();
    int wait_status;

    (void)state;
    if (cleaner == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* It must not outlive a failed test. */
        for (;;) {
            tdm__directory_remove_abandoned();
        }
    }
    for (int i = 0; i < 2000; i++) {
        char path[160];
        int lock;

        assert_int_equal(tdm__directory_create_locked(path, sizeof(path), &lock), TDM_OK);
        assert_int_equal(access(path, F_OK), 0);
        tdm__directory_remove(path);
        (void)close(lock);
    }
    assert_int_equal(kill(cleaner, SIGKILL), 0);
    assert_int_equal(waitpid(cleaner, &wait_status, 0), cleaner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_directory_is_private_and_goes_with_its_content),
        cmocka_unit_test(directory_that_others_may_write_is_refused),
        cmocka_unit_test(path_too_long_for_sockets_is_refused),
        cmocka_unit_test(lock_is_held_once),
        cmocka_unit_test(only_abandoned_directories_are_removed),
        cmocka_unit_test(new_directory_survives_a_concurrent_clean_up),
        cmocka_unit_test(sockets_of_a_dead_owner_are_removed),
    };
    int failed;

    if (mkdtemp(parent) == NULL || setenv("TMPDIR", parent, 1) < 0) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm__directory_remove(parent);
    return failed;
}
