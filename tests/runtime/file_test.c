/* file_test.c - files are read completely and replaced atomically. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/file.h"

#include "tests/support/disk_log.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/tandem-file-XXXXXX";
static char path[64];

static void write_text(const char *text)
{
    struct tdm__atomic_file file;

    assert_int_equal(tdm__atomic_file_open(&file, path), TDM_OK);
    assert_int_equal(tdm__atomic_file_write(&file, text, strlen(text)), TDM_OK);
    assert_int_equal(tdm__atomic_file_commit(&file), TDM_OK);
}

static void expect_text(const char *text)
{
    char *bytes;
    size_t size_bytes;

    assert_int_equal(tdm__file_read(path, 64, &bytes, &size_bytes), TDM_OK);
    assert_string_equal(bytes, text);
    assert_int_equal(size_bytes, strlen(text));
    free(bytes);
}

static void file_is_replaced_on_commit_only(void **state)
{
    struct tdm__atomic_file file;

    (void)state;
    write_text("old");
    assert_int_equal(tdm__atomic_file_open(&file, path), TDM_OK);
    assert_int_equal(tdm__atomic_file_write(&file, "new", 3), TDM_OK);
    expect_text("old");
    assert_int_equal(tdm__atomic_file_commit(&file), TDM_OK);
    expect_text("new");
}

static void abandoned_file_leaves_nothing(void **state)
{
    struct tdm__atomic_file file;

    (void)state;
    write_text("old");
    assert_int_equal(tdm__atomic_file_open(&file, path), TDM_OK);
    assert_int_equal(tdm__atomic_file_write(&file, "new", 3), TDM_OK);
    tdm__atomic_file_abandon(&file);
    expect_text("old");
    assert_int_equal(access(file.temporary, F_OK), -1);
}

static void failed_commit_removes_the_temporary_file(void **state)
{
    struct tdm__atomic_file file;
    char target[80];

    (void)state;
    (void)snprintf(target, sizeof(target), "%s/d", directory);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(tdm__atomic_file_open(&file, target), TDM_OK);
    assert_int_equal(tdm__atomic_file_commit(&file), TDM_E_IO);
    assert_int_equal(access(file.temporary, F_OK), -1);
    assert_int_equal(rmdir(target), 0);
}

static void too_large_missing_and_odd_files_are_refused(void **state)
{
    char fifo[80];
    char *bytes;
    size_t size_bytes;

    (void)state;
    write_text("four");
    assert_int_equal(tdm__file_read(path, 3, &bytes, &size_bytes), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "4 bytes, the limit is 3"));
    assert_int_equal(tdm__file_read("/nowhere/x", 9, &bytes, &size_bytes), TDM_E_NOT_FOUND);
    assert_int_equal(tdm__file_read(directory, 9, &bytes, &size_bytes), TDM_E_INVAL);
    (void)snprintf(fifo, sizeof(fifo), "%s/fifo", directory);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(tdm__file_read(fifo, 9, &bytes, &size_bytes), TDM_E_INVAL);
    assert_int_equal(unlink(fifo), 0);
}

static void paths_are_joined_or_refused(void **state)
{
    static char name[TDM__PATH_BYTES];
    char joined[TDM__PATH_BYTES];

    (void)state;
    assert_int_equal(tdm__path_join("/a/b", "c", joined), TDM_OK);
    assert_string_equal(joined, "/a/b/c");
    memset(name, 'n', sizeof(name) - 4);
    assert_int_equal(tdm__path_join("/d", name, joined), TDM_OK); /* It just fits. */
    name[sizeof(name) - 4] = 'n';
    assert_int_equal(tdm__path_join("/d", name, joined), TDM_E_LIMIT);
}

static void only_a_directory_is_synced(void **state)
{
    (void)state;
    assert_int_equal(tdm__directory_sync(directory), TDM_OK);
    assert_int_not_equal(tdm__directory_sync(path), TDM_OK); /* No file has this path. */
    assert_non_null(strstr(tdm_error_detail(), path));
}

/* After a power failure the path has the old or the new contents, whole. */
static void file_is_on_disk_before_it_gets_its_name(void **state)
{
    struct tdm__atomic_file file;
    char temporary[80];
    char renamed[80];
    char synced[80];

    (void)state;
    (void)snprintf(temporary, sizeof(temporary), "fsync %s.", path);
    (void)snprintf(renamed, sizeof(renamed), "rename %s\n", path);
    (void)snprintf(synced, sizeof(synced), "fsync %s\n", directory);
    assert_int_equal(tdm__atomic_file_open(&file, path), TDM_OK);
    assert_int_equal(tdm__atomic_file_write(&file, "new", 3), TDM_OK);
    disk_log_clear();
    assert_int_equal(tdm__atomic_file_commit(&file), TDM_OK);
    disk_log_expect(temporary, renamed);
    disk_log_expect(renamed, synced);
}

static int make_directory(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/file", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(directory); /* Fails if the test has left a file behind. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_is_replaced_on_commit_only),
        cmocka_unit_test(abandoned_file_leaves_nothing),
        cmocka_unit_test(failed_commit_removes_the_temporary_file),
        cmocka_unit_test(paths_are_joined_or_refused),
        cmocka_unit_test(only_a_directory_is_synced),
        cmocka_unit_test(file_is_on_disk_before_it_gets_its_name),
        cmocka_unit_test(too_large_missing_and_odd_files_are_refused),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
