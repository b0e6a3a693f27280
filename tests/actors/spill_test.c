/* spill_test.c - values in files without a name, and disks that are full. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/spill.h"
#include "tests/support/open_files.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { VALUE_BYTES = 1 << 20 };
static char directory[128];
static char *value;

static void spilled_value_is_readable_and_has_no_file_name(void **state)
{
    const struct tdm_bytes bytes = {value, VALUE_BYTES};
    char *read = malloc(VALUE_BYTES);
    struct stat stat;
    int fd = -1;

    (void)state;
    assert_non_null(read);
    assert_int_equal(tdm__spill_write(directory, bytes, &fd), TDM_OK);
    assert_int_equal(fstat(fd, &stat), 0);
    assert_int_equal(stat.st_nlink, 0);
    assert_int_equal(stat.st_mode & 0777, 0600);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC); /* No program that is started gets it. */
    assert_int_equal(tdm__spill_read(fd, read, VALUE_BYTES), TDM_OK);
    assert_memory_equal(read, value, VALUE_BYTES);
    free(read);
    (void)close(fd);
}

static void file_that_was_cut_is_not_read(void **state)
{
    const struct tdm_bytes bytes = {value, VALUE_BYTES};
    char *read = malloc(VALUE_BYTES);
    int fd = -1;

    (void)state;
    assert_int_equal(tdm__spill_write(directory, bytes, &fd), TDM_OK);
    assert_int_equal(ftruncate(fd, 1000), 0);
    assert_int_equal(tdm__spill_read(fd, read, VALUE_BYTES), TDM_E_IO);
    assert_non_null(strstr(tdm_error_detail(), "1000 bytes of 1048576"));
    free(read);
    (void)close(fd);
}

static void full_disk_failure_names_the_written_bytes(void **state)
{
    const struct tdm_bytes bytes = {value, VALUE_BYTES};
    struct rlimit before;
    struct rlimit small;
    uint32_t open_files = open_files_count("");
    tdm_status status;
    int fd = -1;

    (void)state;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = VALUE_BYTES / 2, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    status = tdm__spill_write(directory, bytes, &fd);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TDM_E_LIMIT);
    assert_int_equal(fd, -1);
    assert_int_equal(open_files_count(""), open_files); /* The incomplete file is closed. */
    assert_non_null(strstr(tdm_error_detail(), "524288 of 1048576 bytes"));
    assert_non_null(strstr(tdm_error_detail(), "--directory"));
    assert_int_equal(tdm__spill_write("/nonexistent", bytes, &fd), TDM_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spilled_value_is_readable_and_has_no_file_name),
        cmocka_unit_test(file_that_was_cut_is_not_read),
        cmocka_unit_test(full_disk_failure_names_the_written_bytes),
    };
    const char *base = getenv("TMPDIR");
    int failed;

    (void)snprintf(directory, sizeof(directory), "%s/spill-XXXXXX", base == NULL ? "/tmp" : base);
    value = malloc(VALUE_BYTES);
    if (value == NULL || mkdtemp(directory) == NULL) {
        return 1;
    }
    for (int i = 0; i < VALUE_BYTES; i++) {
        value[i] = (char)(i * 31);
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(value);
    return failed + (rmdir(directory) == 0 ? 0 : 1); /* The directory is empty afterwards. */
}
