/* output_directory_test.c - a job does not write over what an earlier one has left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/output_directory.h"

#include "runtime/error.h"
#include "tests/support/redis_fixture.h"

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

#define TRY(x) assert_int_equal((x), TDM_OK)

static char top[64];  /* Directory of a test. */
static char out[128]; /* Output directory in it. */
static int lock = -1; /* Descriptor of the lock. */

static int set_up(void **state)
{
    (void)state;
    lock = -1;
    (void)snprintf(top, sizeof(top), "/tmp/tandem-output-XXXXXX");
    if (mkdtemp(top) == NULL) {
        return -1;
    }
    (void)snprintf(out, sizeof(out), "%s/a/b", top);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (lock >= 0) {
        (void)close(lock);
    }
    remove_tree(top);
    return 0;
}

/* Returns whether the output directory has this entry. */
static bool is_there(const char *name)
{
    char path[200];

    (void)snprintf(path, sizeof(path), "%s/%s", out, name);
    return access(path, F_OK) == 0;
}

/* Creates a file in the output directory. */
static void touch(const char *name)
{
    char path[200];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", out, name);
    file = fopen(path, "w");
    assert_non_null(file);
    (void)fclose(file);
}

/* Opens the directory, and closes it again. */
static void open_and_close(enum tdm__output_mode mode)
{
    TRY(tdm__output_directory_open(out, mode, &lock));
    assert_int_equal(close(lock), 0);
    lock = -1;
}

static void directory_is_made_with_its_parents(void **state)
{
    (void)state;
    open_and_close(TDM__OUTPUT_NEW);
    assert_true(is_there("."));
    open_and_close(TDM__OUTPUT_NEW); /* The hidden lock file does not count. */
}

static void files_of_an_earlier_job_are_refused(void **state)
{
    (void)state;
    open_and_close(TDM__OUTPUT_NEW);
    touch("version");
    assert_int_equal(tdm__output_directory_open(out, TDM__OUTPUT_NEW, &lock), TDM_E_EXISTS);
    assert_int_equal(lock, -1);
    assert_non_null(strstr(tdm_error_detail(), out));
    assert_non_null(strstr(tdm_error_detail(), "version"));
    assert_non_null(strstr(tdm_error_detail(), "--overwrite"));
    assert_null(strstr(tdm_error_detail(), "--resume")); /* There is no checkpoint. */
    touch("checkpoint.old");
    assert_int_equal(tdm__output_directory_open(out, TDM__OUTPUT_NEW, &lock), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), "with --resume"));
    open_and_close(TDM__OUTPUT_RESUME);
    assert_true(is_there("version"));
}

static void overwriting_removes_only_what_jobs_write(void **state)
{
    char path[200];

    (void)state;
    open_and_close(TDM__OUTPUT_NEW);
    (void)snprintf(path, sizeof(path), "%s/checkpoint", out);
    assert_int_equal(mkdir(path, 0777), 0);
    touch("checkpoint/rank-0");
    touch("version");
    touch("notes.txt");
    open_and_close(TDM__OUTPUT_OVERWRITE);
    assert_false(is_there("checkpoint"));
    assert_false(is_there("version"));
    assert_true(is_there("notes.txt"));
}

static void directory_is_for_one_job_at_a_time(void **state)
{
    int second = 7;

    (void)state;
    TRY(tdm__output_directory_open(out, TDM__OUTPUT_NEW, &lock));
    for (int mode = TDM__OUTPUT_NEW; mode <= TDM__OUTPUT_OVERWRITE; mode++) {
        assert_int_equal(tdm__output_directory_open(out, (enum tdm__output_mode)mode, &second),
                         TDM_E_AGAIN);
        assert_int_equal(second, -1);
        assert_non_null(strstr(tdm_error_detail(), out));
    }
    assert_int_equal(close(lock), 0);
    open_and_close(TDM__OUTPUT_RESUME);
}

static void directory_that_cannot_be_made_is_named(void **state)
{
    (void)state;
    assert_int_not_equal(tdm__output_directory_open("/proc/no/such", TDM__OUTPUT_NEW, &lock),
                         TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "/proc/no cannot be created"));
    assert_int_equal(lock, -1);
}

static void file_in_place_of_the_directory_is_named(void **state)
{
    char file[256];

    (void)state;
    open_and_close(TDM__OUTPUT_NEW);
    touch("file");
    (void)snprintf(file, sizeof(file), "%s/file", out);
    assert_int_equal(tdm__output_directory_open(file, TDM__OUTPUT_NEW, &lock), TDM_E_EXISTS);
    assert_non_null(strstr(tdm_error_detail(), "/file is a file"));
    assert_int_equal(lock, -1);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(directory_is_made_with_its_parents),
        EACH(files_of_an_earlier_job_are_refused),
        EACH(overwriting_removes_only_what_jobs_write),
        EACH(directory_is_for_one_job_at_a_time),
        EACH(directory_that_cannot_be_made_is_named),
        EACH(file_in_place_of_the_directory_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
