/* kernels_test.c - the image of the kernels is found, loaded and unloaded. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/device/cuda/kernels.h"

#include "colocate/device/cuda/driver_api.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNIT   ((size_t)2 << 20)
#define TRY(x) assert_int_equal((x), TDM_OK)

static void file_that_is_no_image_is_refused(void **state)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    const char *path = getenv("TANDEM_CUDA_KERNELS");
    char *kept = path != NULL ? strdup(path) : NULL;
    struct tdm__cuda_kernels *kernels;

    (void)state;
    (void)setenv("TANDEM_CUDA_KERNELS", "/nowhere/kernels", 1);
    assert_int_equal(tdm__cuda_kernels_open(gpu->devices[0], &kernels), TDM_E_IO);
    (void)setenv("TANDEM_CUDA_KERNELS", "/dev/null", 1);
    assert_int_equal(tdm__cuda_kernels_open(gpu->devices[0], &kernels), TDM_E_LIMIT);
    if (kept != NULL) {
        (void)setenv("TANDEM_CUDA_KERNELS", kept, 1);
    } else {
        (void)unsetenv("TANDEM_CUDA_KERNELS");
    }
    free(kept);
    cuda_gpu_close(gpu);
}

/* What they compute: move_test. */
static void kernel_image_is_loaded_or_the_failure_is_explained(void **state)
{
    static const char *const calls[] = {"cuCtxPushCurrent_v2", "cuModuleLoadData",
                                        "cuModuleGetFunction"};
    static const char *const texts[] = {"cuCtxPushCurrent", "cuModuleLoadData",
                                        "cuModuleGetFunction"};
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    struct tdm__cuda_kernels *kernels;

    (void)state;
    for (size_t i = 0; i < 3 && !cuda_gpu_is_real(); i++) {
        cuda_gpu_fake.break_call(calls[i], 1, CU_INVALID_VALUE);
        assert_int_equal(tdm__cuda_kernels_open(gpu->devices[0], &kernels), TDM_E_DEVICE);
        assert_non_null(strstr(tdm_error_detail(), texts[i]));
    }
    TRY(tdm__cuda_kernels_open(gpu->devices[0], &kernels));
    tdm__cuda_kernels_close(kernels);
    cuda_gpu_close(gpu);
}

/* Returns whether kernels are available; prints why not. */
static bool has_kernels(void)
{
    struct cuda_gpu *gpu = cuda_gpu_open(64 * UNIT, false);
    struct tdm__cuda_kernels *kernels = NULL;
    tdm_status status = tdm__cuda_kernels_open(gpu->devices[0], &kernels);

    if (status != TDM_OK) {
        (void)printf("skipped: %s\n", tdm_error_detail());
    }
    tdm__cuda_kernels_close(kernels);
    cuda_gpu_close(gpu);
    return status == TDM_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_that_is_no_image_is_refused),
        cmocka_unit_test(kernel_image_is_loaded_or_the_failure_is_explained),
    };
    int failed;

    cuda_gpu_choose(64 * UNIT);
    if (!has_kernels()) {
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
