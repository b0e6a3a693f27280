/* visible_gpus_test.c - the GPUs that a process sees, and their UUIDs, by the driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/driver.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define FIRST  "GPU-c0c0c0c0-c0c0-c0c0-c0c0-c0c0c0c0c000"
#define SECOND "GPU-c0c0c0c0-c0c0-c0c0-c0c0-c0c0c0c0c001"

/* Writes the UUIDs of the GPUs that this process sees, or the error, to `end`. */
static void write_what_is_seen(int end)
{
    char text[512] = "";
    size_t used = 0;
    uint32_t count;

    if (tdm__cuda_gpus_count(&count) != TDM_OK) {
        (void)dprintf(end, "%s", tdm_error_detail());
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct tdm__cuda_gpu gpu;

        if (tdm__cuda_gpu_at(i, &gpu) == TDM_OK) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i == 0 ? "" : ",",
                                     gpu.uuid);
        }
    }
    (void)dprintf(end, "%s", text);
}

/* Expects this text of a process with these settings; the driver reads them once. */
static void expect_seen(const char *visible, const char *setting, const char *expected)
{
    char text[512];
    int ends[2];
    ssize_t got;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        if (setting != NULL) {
            (void)setenv(setting, "1", 1);
        }
        write_what_is_seen(ends[1]);
        _exit(0);
    }
    (void)close(ends[1]);
    got = read(ends[0], text, sizeof(text) - 1);
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(got >= 0);
    text[got] = '\0';
    if (strstr(text, expected) == NULL) {
        fail_msg("CUDA_VISIBLE_DEVICES=%s: \"%s\" instead of \"%s\"", visible, text, expected);
    }
}

static void a_process_sees_the_gpus_that_the_variable_names(void **state)
{
    (void)state;
    expect_seen(SECOND, NULL, SECOND);
    expect_seen(SECOND "," FIRST, NULL, SECOND "," FIRST);
    expect_seen("1,0", NULL, SECOND "," FIRST);
}

/* What an H100 showed, and the reason why Tandem names a real GPU once. */
static void a_gpu_that_is_named_twice_hides_all(void **state)
{
    (void)state;
    expect_seen(FIRST "," FIRST, NULL, "cuInit");
}

static void uuid_of_a_part_of_a_gpu_has_the_form_of_the_variable(void **state)
{
    (void)state;
    expect_seen("0", "FAKE_CUDA_MIG", "MIG-c0c0c0c0-c0c0-c0c0-c0c0-c0c0c0c0c000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_sees_the_gpus_that_the_variable_names),
        cmocka_unit_test(a_gpu_that_is_named_twice_hides_all),
        cmocka_unit_test(uuid_of_a_part_of_a_gpu_has_the_form_of_the_variable),
    };
    int failed;

    if (cuda_gpu_is_real()) {
        (void)printf("skipped: a real machine has the GPUs that it has\n");
        return 77;
    }
    (void)setenv("FAKE_CUDA_DEVICES", "2", 1);
    cuda_gpu_choose((size_t)64 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
