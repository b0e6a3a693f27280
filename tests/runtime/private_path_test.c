/* private_path_test.c - a path is private if no directory on the way to it is open to others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/private_path.h"

#include "runtime/directory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Files of each test: a file in a folder in a folder, and a link to the file. */
static char top[] = "/tmp/tandem-private-path-XXXXXX";
static char folder[64];
static char file[64];
static char link_path[64];

static int create_files(void **state)
{
    int fd;

    (void)state;
    if (mkdtemp(top) == NULL) {
        return -1;
    }
    (void)snprintf(folder, sizeof(folder), "%s/folder", top);
    (void)snprintf(file, sizeof(file), "%s/file", folder);
    (void)snprintf(link_path, sizeof(link_path), "%s/link", top);
    fd = mkdir(folder, 0755) == 0 ? open(file, O_CREAT | O_WRONLY, 0644) : -1;
    if (fd < 0 || close(fd) != 0) {
        return -1;
    }
    return chmod(folder, 0755) == 0 && chmod(file, 0644) == 0 && symlink(file, link_path) == 0 ? 0
                                                                                               : -1;
}

static int remove_files(void **state)
{
    (void)state;
    tdm__directory_remove(top);
    (void)snprintf(top, sizeof(top), "/tmp/tandem-private-path-XXXXXX");
    return 0;
}

static void test_own_file_in_own_folders_is_private(void **state)
{
    (void)state;
    assert_true(tdm__path_is_private(file)); /* Also though /tmp is writable: it is sticky. */
    assert_true(tdm__path_is_private(folder));
    assert_true(tdm__path_is_private(link_path));
    assert_true(tdm__path_is_private("/"));
}

static void test_file_or_folder_that_others_may_write_is_not_private(void **state)
{
    (void)state;
    assert_int_equal(chmod(file, 0664), 0);
    assert_false(tdm__path_is_private(file));
    assert_false(tdm__path_is_private(link_path));
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_false(tdm__path_is_private(file));
    assert_int_equal(chmod(folder, 01777), 0);
    assert_true(tdm__path_is_private(file));
    assert_false(tdm__path_is_private(folder)); /* Others could add entries to it. */
}

static void test_path_that_leads_nowhere_is_not_private(void **state)
{
    (void)state;
    assert_int_equal(unlink(file), 0);
    assert_false(tdm__path_is_private(file));
    assert_false(tdm__path_is_private(link_path));
}

static void test_file_of_another_user_is_not_private(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        return; /* Only root can give files away. */
    }
    assert_int_equal(chown(file, 65534, (gid_t)-1), 0);
    assert_false(tdm__path_is_private(file));
    assert_int_equal(chown(file, 0, (gid_t)-1), 0);
    assert_int_equal(chown(folder, 65534, (gid_t)-1), 0);
    assert_false(tdm__path_is_private(file));
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, create_files, remove_files)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_own_file_in_own_folders_is_private),
        EACH(test_file_or_folder_that_others_may_write_is_not_private),
        EACH(test_path_that_leads_nowhere_is_not_private),
        EACH(test_file_of_another_user_is_not_private),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
