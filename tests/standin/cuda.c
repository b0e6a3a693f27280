/* cuda.c - the stand-in for the CUDA driver: devices, contexts, errors on demand. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/standin/cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CALL_NAME_BYTES = 64 };

/* A context is a pointer to its device's entry. */
struct device {
    char path[STANDIN_PATH_BYTES];
    unsigned retained;
};

static struct {
    pthread_mutex_t lock;
    bool initialised;
    bool defer;
    bool touchable;
    int devices_count;
    size_t capacity;
    struct device devices[STANDIN_DEVICES_MAX];
    char fail_call[CALL_NAME_BYTES];
    uint64_t fail_nth;
    int fail_error;
    uint64_t calls;
} standin = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct device *current;

/* ---- errors on demand ------------------------------------------------------------------- */

void standin_cuda_fail(const char *name, uint64_t nth, int error)
{
    (void)pthread_mutex_lock(&standin.lock);
    (void)snprintf(standin.fail_call, sizeof(standin.fail_call), "%s", name);
    standin.fail_nth = nth;
    standin.fail_error = error;
    standin.calls = 0;
    (void)pthread_mutex_unlock(&standin.lock);
}

uint64_t standin_cuda_calls(void)
{
    return standin.calls;
}

void standin_cuda_defer(bool defer)
{
    standin.defer = defer;
}

bool standin_deferring(void)
{
    return standin.defer;
}

bool standin_touchable(void)
{
    return standin.touchable;
}

static bool may_fail(const char *call)
{
    return strcmp(standin.fail_call, "*") == 0 || strcmp(standin.fail_call, call) == 0;
}

int standin_enter(const char *call, int *locked_out)
{
    (void)pthread_mutex_lock(&standin.lock);
    *locked_out = 1;
    if (may_fail(call)) {
        standin.calls++;
        if (standin.calls == standin.fail_nth) {
            return standin.fail_error;
        }
    }
    return standin.initialised || strcmp(call, "cuInit") == 0 ? CU_SUCCESS : CU_NOT_INITIALIZED;
}

void standin_leave(int *locked)
{
    if (*locked) {
        (void)pthread_mutex_unlock(&standin.lock);
    }
}

/* ---- the machine ------------------------------------------------------------------------ */

static unsigned long environment_number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoul(text, NULL, 10) : otherwise;
}

static void read_failure(void)
{
    const char *text = getenv("STANDIN_CUDA_FAIL");
    unsigned long nth = 0;

    if (text != NULL &&
        sscanf(text, "%63[^:]:%lu:%d", standin.fail_call, &nth, &standin.fail_error) == 3) {
        standin.fail_nth = nth;
    }
}

static int make_devices(void)
{
    const char *directory = getenv("STANDIN_CUDA_DIRECTORY");

    if (directory == NULL || standin.devices_count > STANDIN_DEVICES_MAX) {
        return CU_NO_DEVICE;
    }
    for (int i = 0; i < standin.devices_count; i++) {
        struct device *device = &standin.devices[i];

        (void)snprintf(device->path, sizeof(device->path), "%s/gpu%d", directory, i);
        (void)mkdir(device->path, 0700);
    }
    return standin.devices_count > 0 ? CU_SUCCESS : CU_NO_DEVICE;
}

int cuInit(unsigned flags)
{
    ENTER();
    (void)flags;
    if (!standin.initialised) {
        int result;

        standin.devices_count = (int)environment_number("STANDIN_CUDA_DEVICES", 1);
        standin.capacity = environment_number("STANDIN_CUDA_BYTES", 256UL << 20);
        standin.touchable = environment_number("STANDIN_CUDA_TOUCH", 0) != 0;
        standin.defer |= environment_number("STANDIN_CUDA_DEFER", 0) != 0;
        read_failure();
        result = make_devices();
        standin.initialised = result == CU_SUCCESS;
        return result;
    }
    return CU_SUCCESS;
}

int standin_device(void)
{
    return current != NULL ? (int)(current - standin.devices) : -1;
}

const char *standin_path(int device)
{
    return device >= 0 && device < standin.devices_count ? standin.devices[device].path : NULL;
}

size_t standin_capacity(void)
{
    return standin.capacity;
}

int cuDriverGetVersion(int *version)
{
    ENTER();
    *version = 12080;
    return CU_SUCCESS;
}

int cuGetErrorName(int result, const char **name)
{
    *name = result == CU_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == CU_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
            : result == CU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                           : "CUDA_ERROR_UNKNOWN";
    return CU_SUCCESS;
}

int cuGetErrorString(int result, const char **text)
{
    *text = result == CU_OUT_OF_MEMORY     ? "out of memory"
            : result == CU_INVALID_VALUE   ? "invalid argument"
            : result == CU_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                           : "unknown error";
    return CU_SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    ENTER();
    *count = standin.devices_count;
    return CU_SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    ENTER();
    if (standin_path(ordinal) == NULL) {
        return CU_INVALID_DEVICE;
    }
    *device = ordinal;
    return CU_SUCCESS;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    ENTER();
    if (standin_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    (void)snprintf(name, (size_t)bytes, "Stand-in");
    return CU_SUCCESS;
}

int cuDeviceGetUuid_v2(struct cu_uuid *uuid, int device)
{
    ENTER();
    if (standin_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    memset(uuid->bytes, 0xc0, sizeof(uuid->bytes));
    uuid->bytes[15] = (uint8_t)device;
    return CU_SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    ENTER();
    if (standin_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    *bytes = standin.capacity;
    return CU_SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ENTER();
    if (standin_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    *value = attribute == CU_DEVICE_VMM_SUPPORTED || attribute == CU_DEVICE_POSIX_FD_SUPPORTED;
    return CU_SUCCESS;
}

/* ---- contexts --------------------------------------------------------------------------- */

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    ENTER();
    if (standin_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    standin.devices[device].retained++;
    *context = &standin.devices[device];
    return CU_SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER();
    if (standin_path(device) == NULL || standin.devices[device].retained == 0) {
        return CU_INVALID_CONTEXT;
    }
    standin.devices[device].retained--;
    return CU_SUCCESS;
}

int cuCtxSetCurrent(void *context)
{
    ENTER();
    current = context;
    return CU_SUCCESS;
}

int cuCtxSynchronize(void)
{
    ENTER();
    return standin_run_all();
}
