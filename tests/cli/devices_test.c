/* devices_test.c - a daemon offers the GPUs that exist, or tells why it cannot. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/devices.h"
#include "tests/support/cuda_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB    ((uint64_t)1 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

#define FIRST  "GPU-c0c0c0c0-c0c0-c0c0-c0c0-c0c0c0c0c000"
#define SECOND "GPU-c0c0c0c0-c0c0-c0c0-c0c0-c0c0c0c0c001"

static void four_virtual_gpus_are_the_default(void **state)
{
    struct cli_daemon_options options = {.device = "host", .gpus = CLI_UNSET};

    (void)state;
    TRY(cli_devices_prepare(&options));
    assert_int_equal(options.gpus, 4);
    assert_true(options.gpu_bytes == 256 * MIB);
    assert_string_equal(getenv("TANDEM_DEVICE"), "host");
}

static void real_gpus_are_offered_by_their_uuids(void **state)
{
    struct cli_daemon_options options = {
        .device = "cuda", .gpus = CLI_UNSET, .gpu_reserve_bytes = UINT64_MAX};

    (void)state;
    TRY(cli_devices_prepare(&options));
    assert_int_equal(options.gpus, 2);
    assert_true(options.gpu_bytes == 48 * MIB); /* The reserve is at most a quarter of 64 MiB. */
    assert_string_equal(getenv("TANDEM_DEVICE"), "cuda");
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), FIRST "," SECOND);
    assert_string_equal(getenv("TANDEM_GPU_UUIDS"), FIRST "," SECOND);
}

static void fewer_gpus_than_there_are_leave_the_others_invisible(void **state)
{
    struct cli_daemon_options options = {.device = "cuda", .gpus = 1, .gpu_bytes = 32 * MIB};

    (void)state;
    TRY(cli_devices_prepare(&options));
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), FIRST);
    assert_string_equal(getenv("TANDEM_GPU_UUIDS"), FIRST);
}

/* What CUDA itself takes is not offered, and a shared GPU is offered in parts. */
static void reserve_is_not_offered(void **state)
{
    struct cli_daemon_options options = {.device = "cuda", .gpus = 4, .gpu_reserve_bytes = 5 * MIB};

    (void)state;
    TRY(cli_devices_prepare(&options));
    assert_true(options.gpu_bytes == 28 * MIB); /* Half of 59, in units of 2. */
    options.gpu_bytes = 0;
    options.gpu_reserve_bytes = 63 * MIB;
    assert_int_equal(cli_devices_prepare(&options), TDM_E_BUDGET);
    assert_string_equal(tdm_error_detail(),
                        "starting the node failed: a reserve of 63 MiB leaves nothing of a GPU of "
                        "64 MiB. Give a smaller --gpu-reserve-bytes");
}

static void virtual_gpus_forget_the_real_ones_of_another_node(void **state)
{
    struct cli_daemon_options options = {.device = "host", .gpus = CLI_UNSET};

    (void)state;
    (void)setenv("TANDEM_GPU_UUIDS", FIRST, 1);
    TRY(cli_devices_prepare(&options));
    assert_string_equal(getenv("TANDEM_GPU_UUIDS"), "");
}

static void more_gpus_than_there_are_share_them(void **state)
{
    struct cli_daemon_options options = {.device = "cuda", .gpus = 3, .gpu_bytes = 32 * MIB};

    (void)state;
    TRY(cli_devices_prepare(&options));
    /* CUDA sees no device if one is named twice. */
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), FIRST "," SECOND);
    assert_string_equal(getenv("TANDEM_GPU_UUIDS"), FIRST "," SECOND "," FIRST);
    options.gpu_bytes = 34 * MIB;
    assert_int_equal(cli_devices_prepare(&options), TDM_E_BUDGET);
    assert_string_equal(tdm_error_detail(),
                        "starting the node failed: 3 GPUs of 34 MiB do not fit on 2 real ones: 2 "
                        "share one of 64 MiB. Give fewer --gpus or a smaller --gpu-bytes");
}

static void unknown_device_is_refused(void **state)
{
    struct cli_daemon_options options = {.device = "abacus", .gpus = CLI_UNSET};

    (void)state;
    assert_int_equal(cli_devices_prepare(&options), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "abacus"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_virtual_gpus_are_the_default),
        cmocka_unit_test(real_gpus_are_offered_by_their_uuids),
        cmocka_unit_test(fewer_gpus_than_there_are_leave_the_others_invisible),
        cmocka_unit_test(more_gpus_than_there_are_share_them),
        cmocka_unit_test(reserve_is_not_offered),
        cmocka_unit_test(virtual_gpus_forget_the_real_ones_of_another_node),
        cmocka_unit_test(unknown_device_is_refused),
    };
    int failed;

    (void)setenv("FAKE_CUDA_DEVICES", "2", 1);
    cuda_gpu_choose(64 * MIB);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
