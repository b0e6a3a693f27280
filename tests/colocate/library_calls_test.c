/* library_calls_test.c - libraries that lack a function are refused by the function's name. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/nccl/library.h"
#include "colocate/device/cuda/driver.h"
#include "runtime/error.h"
#include "tests/support/cuda_gpu.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CUDA_LIBRARY TDM_TEST_BUILD_DIR "/tests/cuda_fake.so"
#define NCCL_LIBRARY TDM_TEST_BUILD_DIR "/tests/nccl_fake.so"

/* Takes the place of the C library's function in this program and in Tandem's library. */
__attribute__((visibility("default"))) void *dlsym(void *library, const char *name);

/* Name of the function that the library lacks; NULL for none. */
static const char *missing;

void *dlsym(void *library, const char *name)
{
    static void *(*real)(void *library, const char *name);

    if (real == NULL) {
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    }
    if (real == NULL) { /* An older C library. */
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    }
    return missing != NULL && strcmp(name, missing) == 0 ? NULL : real(library, name);
}

static void driver_that_lacks_a_function_is_refused(void **state)
{
    static const char *const names[] = {
#define X(name, arguments) #name,
        CU_CALLS(X)
#undef X
    };
    const struct tdm__cuda_driver *driver = NULL;
    char said[128];

    (void)state;
    assert_int_equal(setenv("TANDEM_CUDA_LIBRARY", CUDA_LIBRARY, 1), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        missing = names[i];
        assert_int_equal(tdm__cuda_driver(&driver), TDM_E_UNSUPPORTED);
        (void)snprintf(said, sizeof(said), " has no %s: a newer driver is needed", names[i]);
        assert_non_null(strstr(tdm_error_detail(), said));
        assert_null(driver);
    }
    missing = NULL;
    assert_int_equal(tdm__cuda_driver(&driver), TDM_OK); /* It is tried again. */
    missing = names[0];
    assert_int_equal(tdm__cuda_driver(&driver), TDM_OK); /* It is loaded once. */
    missing = NULL;
}

static void nccl_that_lacks_a_function_is_refused(void **state)
{
    static const char *const names[] = {
#define X(name, arguments) #name,
        NCCL_CALLS(X) NCCL_TEXT_CALLS(X)
#undef X
    };
    const struct tdm__nccl_library *library = NULL;
    char said[128];

    (void)state;
    assert_int_equal(setenv("TANDEM_NCCL_LIBRARY", NCCL_LIBRARY, 1), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        missing = names[i];
        assert_int_equal(tdm__nccl_library(&library), TDM_E_UNSUPPORTED);
        (void)snprintf(said, sizeof(said), " has no %s: NCCL 2.18 is needed", names[i]);
        assert_non_null(strstr(tdm_error_detail(), said));
        assert_null(library);
    }
    missing = NULL;
    assert_int_equal(tdm__nccl_library(&library), TDM_OK);
}

static void library_that_is_not_there_is_named(void **state)
{
    const struct tdm__cuda_driver *driver = NULL;
    const struct tdm__nccl_library *library = NULL;

    (void)state;
    assert_int_equal(setenv("TANDEM_CUDA_LIBRARY", "/nowhere/libcuda.so", 1), 0);
    assert_int_equal(tdm__cuda_driver(&driver), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "no CUDA driver: /nowhere/libcuda.so"));
    assert_int_equal(setenv("TANDEM_NCCL_LIBRARY", "/nowhere/libnccl.so", 1), 0);
    assert_int_equal(tdm__nccl_library(&library), TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "no NCCL: /nowhere/libnccl.so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_that_is_not_there_is_named),
        cmocka_unit_test(driver_that_lacks_a_function_is_refused),
        cmocka_unit_test(nccl_that_lacks_a_function_is_refused),
    };
    int failed;

    cuda_gpu_choose((size_t)64 << 20); /* The fake library needs its variables. */
    if (cuda_gpu_is_real()) {
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gpu_forget();
    return failed;
}
