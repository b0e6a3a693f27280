/* fault_report_test.c - a line on stderr names the paused region that was accessed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/memory/fault_report.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANGE_BYTES = 1 << 16, OUTPUT_BYTES = 512 };

/* Addresses without memory, as those of a paused region. */
static char *range;

/* What a child did before it accessed range + 5. */
enum before { ADDS, ADDS_AND_REMOVES, ADDS_OTHERS, RAISES, FILLS, FILLS_AND_EMPTIES };

/* Is the child: its stderr is the pipe, and it dies of SIGSEGV. */
_Noreturn static void access_range(int stderr_fd, enum before before)
{
    (void)dup2(stderr_fd, STDERR_FILENO);
    (void)signal(SIGSEGV, SIG_DFL); /* The test runner has a handler of its own. */
    for (uintptr_t i = 1; before >= FILLS && i <= TDM__FAULT_REPORT_REGIONS_MAX; i++) {
        tdm__fault_report_add((void *)i, 0, "full");
    }
    for (uintptr_t i = 1; before == FILLS_AND_EMPTIES && i <= TDM__FAULT_REPORT_REGIONS_MAX; i++) {
        tdm__fault_report_remove((void *)i);
    }
    tdm__fault_report_add(range + RANGE_BYTES, RANGE_BYTES, "behind");
    if (before != ADDS_OTHERS) {
        tdm__fault_report_add(range, RANGE_BYTES, "weights");
    }
    if (before == ADDS_AND_REMOVES) {
        tdm__fault_report_remove(range);
    }
    if (before == RAISES) {
        (void)raise(SIGSEGV);
    }
    range[5] = 1;
    _exit(0);
}

/* Runs a child; checks that SIGSEGV ended it, and returns what it printed, which is static. */
static const char *output_of(enum before before)
{
    static char output[OUTPUT_BYTES];
    int ends[2];
    int wait_status;
    ssize_t length;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        access_range(ends[1], before);
    }
    (void)close(ends[1]);
    length = read(ends[0], output, sizeof(output) - 1);
    assert_true(length >= 0);
    output[length] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGSEGV);
    return output;
}

static void an_access_to_a_paused_region_is_named(void **state)
{
    char wanted[OUTPUT_BYTES];

    (void)state;
    (void)snprintf(wanted, sizeof(wanted),
                   "tandem: the paused region \"weights\" was accessed at %p, byte 5 of 65536: "
                   "resume it before its tensors are used\n",
                   (void *)(range + 5));
    assert_string_equal(output_of(ADDS), wanted);
}

static void other_faults_are_not_named(void **state)
{
    (void)state;
    assert_string_equal(output_of(ADDS_AND_REMOVES), "");
    assert_string_equal(output_of(ADDS_OTHERS), "");
    assert_string_equal(output_of(RAISES), "");
}

static void regions_beyond_the_limit_are_not_named(void **state)
{
    (void)state;
    assert_string_equal(output_of(FILLS), "");
    assert_string_not_equal(output_of(FILLS_AND_EMPTIES), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_access_to_a_paused_region_is_named),
        cmocka_unit_test(other_faults_are_not_named),
        cmocka_unit_test(regions_beyond_the_limit_are_not_named),
    };

    range = mmap(NULL, (size_t)2 * RANGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(range, MAP_FAILED);
    return cmocka_run_group_tests_name("fault_report", tests, NULL, NULL);
}
