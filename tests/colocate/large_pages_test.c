/* large_pages_test.c - the machine's setting is parsed, and a request for large pages never
 * fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/broker/large_pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCK_BYTES = 6 << 20 };

static void assert_reads(const char *text, const char *word)
{
    char path[] = "/tmp/tandem-setting-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    assert_string_equal(tdm__large_pages_parse_setting(path), word);
    (void)unlink(path);
}

static void bracketed_setting_of_large_pages_is_used(void **state)
{
    (void)state;
    assert_reads("always within_size advise [never] deny force\n", "never");
    assert_reads("always within_size [advise] never deny force\n", "advise");
    assert_reads("[always] within_size advise never deny force\n", "always");
    assert_reads("always [inherit] within_size advise never\n", "inherit");
    assert_reads("always within_size advise never\n", "unknown");
    assert_reads("", "unknown");
    assert_string_equal(tdm__large_pages_parse_setting("/nowhere/at/all"), "unknown");
}

static void only_never_has_a_remedy(void **state)
{
    (void)state;
    assert_true((tdm__large_pages_advice() != NULL) ==
                (strcmp(tdm__large_pages_setting(), "never") == 0));
}

/* The test passes for every setting of the machine. */
static void memory_that_was_asked_for_is_there_and_empty(void **state)
{
    static const char zeros[4096];
    int fd = memfd_create("large", MFD_CLOEXEC);
    bool asked;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BLOCK_BYTES), 0);
    asked = tdm__large_pages_populate(fd, BLOCK_BYTES);
    assert_int_equal(asked, strcmp(tdm__large_pages_setting(), "advise") == 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), BLOCK_BYTES);
    for (off_t at = 0; at < BLOCK_BYTES; at += (off_t)sizeof(zeros)) {
        char page[sizeof(zeros)];

        assert_int_equal(pread(fd, page, sizeof(page), at), sizeof(page));
        assert_memory_equal(page, zeros, sizeof(zeros));
    }
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bracketed_setting_of_large_pages_is_used),
        cmocka_unit_test(only_never_has_a_remedy),
        cmocka_unit_test(memory_that_was_asked_for_is_there_and_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
