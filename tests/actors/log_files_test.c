/* log_files_test.c - log files: names, size limits, reading the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/log_files.h"
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
#include <unistd.h>

#include <cmocka.h>

enum { LINE_BYTES = 64 };

static char directory[64];

static const char *in_directory(const char *name)
{
    static char path[160];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static void append_lines(const char *name, int first, int count)
{
    int fd;

    assert_int_equal(tdm__log_file_open(in_directory(name), &fd), TDM_OK);
    for (int i = first; i < first + count; i++) {
        char line[LINE_BYTES + 1];

        (void)snprintf(line, sizeof(line), "line %058d\n", i);
        assert_int_equal(write(fd, line, LINE_BYTES), LINE_BYTES);
    }
    (void)close(fd);
}

static void names_hold_no_odd_characters(void **state)
{
    char name[TDM__LOG_NAME_BYTES];

    (void)state;
    tdm__log_file_name("trainer/2", "3f20a1b2c3d4e5f60718293a4b5c6d7e", 4182, ".out", name);
    assert_string_equal(name, "trainer_2-3f20a1b2c3d4e5f6-4182.out");
    tdm__log_file_name("../a b", "3f20a1b2c3d4e5f60718293a4b5c6d7e", 7, ".err", name);
    assert_string_equal(name, "_._a_b-3f20a1b2c3d4e5f6-7.err");
}

static void last_lines_are_complete(void **state)
{
    char text[LINE_BYTES * 3 + 10];

    (void)state;
    append_lines("lines", 0, 100);
    assert_int_equal(tdm__log_file_last_lines(in_directory("lines"), 2, text, sizeof(text)),
                     LINE_BYTES * 2 - 1);
    assert_memory_equal(text + 61, "98\nline", 7);
    /* Room for three and a bit: the bit is left out. */
    assert_int_equal(tdm__log_file_last_lines(in_directory("lines"), 20, text, sizeof(text)),
                     LINE_BYTES * 3 - 1);
    assert_memory_equal(text, "line 0", 6);
    assert_int_equal(tdm__log_file_last_lines(in_directory("none"), 20, text, sizeof(text)), 0);
}

static void line_that_does_not_fit_shows_its_end(void **state)
{
    char text[20];

    (void)state;
    append_lines("long", 7, 1);
    assert_int_equal(tdm__log_file_last_lines(in_directory("long"), 5, text, sizeof(text)), 18);
    assert_string_equal(text, "000000000000000007");
}

static void bounded_file_keeps_its_end_and_its_offsets(void **state)
{
    struct tdm__log_file_range piece;
    char line[LINE_BYTES];
    struct stat about;

    (void)state;
    append_lines("bounded", 0, 10000); /* 640,000 bytes */
    tdm__log_file_bound(in_directory("bounded"), 64 * 1024);
    assert_int_equal(stat(in_directory("bounded"), &about), 0);
    assert_true(about.st_blocks * 512 <= 64 * 1024 + 2 * 4096);
    append_lines("bounded", 10000, 1);
    if (about.st_size == 0) {
        return; /* The filesystem cannot make holes, so the file was emptied. */
    }
    assert_int_equal(
        tdm__log_file_read(in_directory("bounded"), 10000 * LINE_BYTES, line, sizeof(line), &piece),
        TDM_OK);
    assert_int_equal(piece.bytes_count, LINE_BYTES);
    assert_memory_equal(line + LINE_BYTES - 6, "10000\n", 6);
    assert_int_equal(tdm__log_file_read(in_directory("bounded"), 0, line, sizeof(line), &piece),
                     TDM_OK);
    assert_true(piece.offset > 0 && piece.offset <= 640000 - 64 * 1024);
    assert_memory_equal(line, "line ", 5);
}

static bool is_kept(const void *arg, const char *name)
{
    return strcmp(arg, name) == 0;
}

static void the_oldest_files_go_first_and_live_ones_stay(void **state)
{
    static const char *const names[] = {"live", "old", "new"};

    (void)state;
    (void)mkdir(in_directory("total"), 0700);
    for (int i = 0; i < 3; i++) {
        char name[32];
        const struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};

        (void)snprintf(name, sizeof(name), "total/%s", names[i]);
        append_lines(name, 0, 1024);
        assert_int_equal(utimensat(AT_FDCWD, in_directory(name), times, 0), 0);
    }
    tdm__log_files_prune(in_directory("total"), UINT64_C(140000), is_kept, "live");
    assert_int_equal(access(in_directory("total/live"), F_OK), 0);
    assert_int_equal(access(in_directory("total/old"), F_OK), -1);
    assert_int_equal(access(in_directory("total/new"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_hold_no_odd_characters),
        cmocka_unit_test(last_lines_are_complete),
        cmocka_unit_test(line_that_does_not_fit_shows_its_end),
        cmocka_unit_test(bounded_file_keeps_its_end_and_its_offsets),
        cmocka_unit_test(the_oldest_files_go_first_and_live_ones_stay),
    };
    int failed;

    (void)snprintf(directory, sizeof(directory), "/tmp/tdt-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_tree(directory);
    return failed;
}
