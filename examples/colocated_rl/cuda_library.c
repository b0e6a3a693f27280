/* cuda_library.c - the functions of the CUDA driver and cuBLAS, loaded at run time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/cuda_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    int ready; /* 1: all calls are there and cuInit is done */
    struct cuda_library calls;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A call by its name and where it is to be kept. */
struct call {
    const char *name;
    void **place;
};

/* clang-format off */
#define CALL(name) {#name, (void **)&loaded.calls.name}
/* clang-format on */

static const struct call cuda_calls[] = {
    CALL(cuInit),
    CALL(cuGetErrorName),
    CALL(cuDeviceGetCount),
    CALL(cuDeviceGet),
    CALL(cuDeviceGetUuid_v2),
    CALL(cuDevicePrimaryCtxRetain),
    CALL(cuDevicePrimaryCtxRelease_v2),
    CALL(cuCtxSetCurrent),
    CALL(cuStreamCreate),
    CALL(cuStreamDestroy_v2),
    CALL(cuStreamSynchronize),
    CALL(cuMemcpyAsync),
    CALL(cuModuleLoadData),
    CALL(cuModuleUnload),
    CALL(cuModuleGetFunction),
    CALL(cuLaunchKernel),
};

static const struct call cublas_calls[] = {
    CALL(cublasCreate_v2),   CALL(cublasDestroy_v2), CALL(cublasSetStream_v2),
    CALL(cublasSetMathMode), CALL(cublasSnrm2_v2),   CALL(cublasSgemm_v2),
};

static tdm_status find_calls(void *library, const struct call *calls, size_t count)
{
    if (library == NULL) {
        return tdm_fail(TDM_E_UNSUPPORTED, "%s", dlerror());
    }
    for (size_t i = 0; i < count; i++) {
        *calls[i].place = dlsym(library, calls[i].name);
        if (*calls[i].place == NULL) {
            return tdm_fail(TDM_E_UNSUPPORTED, "%s", dlerror());
        }
    }
    return TDM_OK;
}

static void *open_cublas(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                        "libcublas.so"};
    const char *path = getenv("COLOCATED_RL_CUBLAS_LIBRARY");
    void *library = NULL;

    if (path != NULL) {
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static tdm_status cuda_library_load(void)
{
    const char *path = getenv("TANDEM_CUDA_LIBRARY");
    int result;

    TDM_TRY(find_calls(dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL),
                       cuda_calls, sizeof(cuda_calls) / sizeof(cuda_calls[0])));
    TDM_TRY(
        find_calls(open_cublas(), cublas_calls, sizeof(cublas_calls) / sizeof(cublas_calls[0])));
    result = loaded.calls.cuInit(0);
    return result == 0
               ? TDM_OK
               : tdm_fail(TDM_E_UNSUPPORTED, "cuInit failed with %d: no GPU can be used", result);
}

tdm_status cuda_library_open(const struct cuda_library **library_out)
{
    tdm_status status = TDM_OK;

    (void)pthread_mutex_lock(&loaded.lock);
    if (!loaded.ready) {
        status = cuda_library_load();
        loaded.ready = status == TDM_OK;
    }
    (void)pthread_mutex_unlock(&loaded.lock);
    if (status == TDM_OK) {
        *library_out = &loaded.calls;
    }
    return status;
}
