/* driver.c - the CUDA driver's library, loaded at run time, and its error messages. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The process has one instance of the driver's functions, cuda_driver_state, protected by its
 * lock until `ready` is set. A failed load is tried again at the next call. The library stays
 * open until the process ends, because the driver's threads run in it. Any thread may enter.
 * driver_api.h declares the functions. */

#include "colocate/device/cuda/driver.h"

#include "runtime/error.h"
#include "runtime/process_fault.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver of this process. */
static struct {
    pthread_mutex_t lock;
    /* True once all functions were found and cuInit succeeded. */
    bool ready;
    struct tdm__cuda_driver calls; /* The driver's functions. */
} cuda_driver_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- opening ---------------------------------------------------------------------------- */

/* Looks up all functions of the driver in the library. */
static tdm_status driver_find_calls(void *library, const char *path)
{
    /* POSIX allows function pointers in void pointers; C has no conversion for them. */
#define X(name, arguments)                                                                         \
    *(void **)&cuda_driver_state.calls.name = dlsym(library, #name);                               \
    if (cuda_driver_state.calls.name == NULL) {                                                    \
        return tdm__fail(TDM_E_UNSUPPORTED, "%s has no " #name ": a newer driver is needed",       \
                         path);                                                                    \
    }
    CU_CALLS(X)
#undef X
    return TDM_OK;
}

/* Opens the library and initialises it. The library stays open until the process ends, because
 * the driver's threads run in it. */
static tdm_status driver_load(void)
{
    const char *path = getenv("TANDEM_CUDA_LIBRARY");
    void *library;
    tdm_status status;
    int result;

    path = path != NULL ? path : "libcuda.so.1";
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED, "no CUDA driver: %s", dlerror());
    }
    status = driver_find_calls(library, path);
    if (status != TDM_OK) {
        (void)dlclose(library);
        return status;
    }
    result = cuda_driver_state.calls.cuInit(0);
    if (result != CU_SUCCESS) {
        (void)tdm__cuda_check(result, "cuInit");
        return tdm__fail(TDM_E_UNSUPPORTED, "%s: %s%s", path, tdm_error_detail(),
                         result == CU_SYSTEM_NOT_READY
                             ? ". The GPUs of this machine are connected by NVSwitch, and their "
                               "service does not run yet: systemctl start nvidia-fabricmanager"
                             : "");
    }
    return TDM_OK;
}

tdm_status tdm__cuda_driver(const struct tdm__cuda_driver **driver_out)
{
    tdm_status status = TDM_OK;

    (void)pthread_mutex_lock(&cuda_driver_state.lock);
    if (!cuda_driver_state.ready) {
        status = driver_load();
        cuda_driver_state.ready = status == TDM_OK;
    }
    (void)pthread_mutex_unlock(&cuda_driver_state.lock);
    if (status == TDM_OK) {
        *driver_out = &cuda_driver_state.calls;
    }
    return status;
}

/* Returns true for the errors of kernels and of the GPU after which every later CUDA call of the
 * process fails with the same error, so that the process must be started again. */
static bool cuda_error_is_sticky(int result)
{
    return result == CU_ILLEGAL_ADDRESS || result == CU_LAUNCH_TIMEOUT || result == CU_ASSERT ||
           (result >= CU_HARDWARE_STACK_ERROR && result <= CU_LAUNCH_FAILED);
}

/* Reports the error that the error detail of this thread describes as a fault of the process,
 * which ends an actor. In other processes the error detail then says what to do. */
static tdm_status cuda_report_sticky_error(tdm_status status)
{
    char cause[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(cause, sizeof(cause), "%s", tdm_error_detail());
    tdm__process_fault_report(cause);
    return tdm__fail(
        status, "%s: every later CUDA call of this process fails, it must be started again", cause);
}

tdm_status tdm__cuda_check(int result, const char *format, ...)
{
    tdm_status status;
    const char *name = NULL;
    const char *text = NULL;
    char call[256];
    va_list args;

    if (result == CU_SUCCESS) {
        return TDM_OK;
    }
    va_start(args, format);
    (void)vsnprintf(call, sizeof(call), format, args);
    va_end(args);
    if (cuda_driver_state.calls.cuGetErrorName(result, &name) != CU_SUCCESS || name == NULL) {
        name = "an error without a name";
    }
    if (cuda_driver_state.calls.cuGetErrorString(result, &text) != CU_SUCCESS || text == NULL) {
        text = "no description";
    }
    status = tdm__fail(result == CU_OUT_OF_MEMORY ? TDM_E_DEVICE_FULL : TDM_E_DEVICE,
                       "%s: %s (%d: %s)", call, name, result, text);
    return cuda_error_is_sticky(result) ? cuda_report_sticky_error(status) : status;
}

/* ---- contexts --------------------------------------------------------------------------- */

tdm_status tdm__cuda_scope_enter(const struct tdm__cuda_driver *driver, void *context,
                                 struct tdm__cuda_scope *scope)
{
    TDM_TRY(tdm__cuda_check(driver->cuCtxPushCurrent_v2(context), "cuCtxPushCurrent"));
    scope->driver = driver;
    return TDM_OK;
}

void tdm__cuda_scope_leave(struct tdm__cuda_scope *scope)
{
    void *context;

    if (scope->driver != NULL) {
        (void)scope->driver->cuCtxPopCurrent_v2(&context);
        scope->driver = NULL;
    }
}

/* ---- GPUs ------------------------------------------------------------------------------- */

/* Formats the UUID of a GPU with this name in the way of nvidia-smi, which CUDA_VISIBLE_DEVICES
 * wants. The UUID of an instance of a partitioned GPU begins with "MIG-"; its name has the profile
 * behind that word ("NVIDIA H100 80GB HBM3 MIG 1g.10gb"). */
static void write_uuid(const struct cu_uuid *uuid, const char *name, char text[TDM__UUID_BYTES])
{
    const uint8_t *b = uuid->bytes;

    (void)snprintf(text, TDM__UUID_BYTES,
                   "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   strstr(name, " MIG ") != NULL ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4],
                   b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

tdm_status tdm__cuda_gpus_count(uint32_t *count_out)
{
    const struct tdm__cuda_driver *driver;
    int count;

    TDM_TRY(tdm__cuda_driver(&driver));
    TDM_TRY(tdm__cuda_check(driver->cuDeviceGetCount(&count), "cuDeviceGetCount"));
    *count_out = (uint32_t)count;
    return TDM_OK;
}

tdm_status tdm__cuda_gpu_at(uint32_t index, struct tdm__cuda_gpu *gpu_out)
{
    const struct tdm__cuda_driver *driver;
    struct tdm__cuda_gpu gpu = {.device = 0};
    struct cu_uuid uuid;

    TDM_TRY(tdm__cuda_driver(&driver));
    TDM_TRY(tdm__cuda_check(driver->cuDeviceGet(&gpu.device, (int)index),
                            "cuDeviceGet of number %u", index));
    TDM_TRY(tdm__cuda_check(driver->cuDeviceGetUuid_v2(&uuid, gpu.device),
                            "cuDeviceGetUuid of number %u", index));
    TDM_TRY(tdm__cuda_check(driver->cuDeviceGetName(gpu.name, sizeof(gpu.name), gpu.device),
                            "cuDeviceGetName of number %u", index));
    write_uuid(&uuid, gpu.name, gpu.uuid);
    TDM_TRY(tdm__cuda_check(driver->cuDeviceTotalMem_v2(&gpu.total_bytes, gpu.device),
                            "cuDeviceTotalMem of %s", gpu.uuid));
    *gpu_out = gpu;
    return TDM_OK;
}

tdm_status tdm__cuda_gpu_find(const char *uuid, struct tdm__cuda_gpu *gpu_out)
{
    char seen[512] = "none";
    size_t used = 0;
    uint32_t count;

    TDM_TRY(tdm__cuda_gpus_count(&count));
    for (uint32_t i = 0; i < count; i++) {
        struct tdm__cuda_gpu gpu;

        TDM_TRY(tdm__cuda_gpu_at(i, &gpu));
        if (strcmp(gpu.uuid, uuid) == 0) {
            *gpu_out = gpu;
            return TDM_OK;
        }
        if (used < sizeof(seen)) {
            used += (size_t)snprintf(seen + used, sizeof(seen) - used, "%s%s", i == 0 ? "" : ", ",
                                     gpu.uuid);
        }
    }
    return tdm__fail(TDM_E_NOT_FOUND, "no GPU %s is visible to this process: %s", uuid, seen);
}
