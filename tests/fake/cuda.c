/* cuda.c - the fake library for the CUDA driver: devices, contexts, errors on demand. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CALL_NAME_BYTES = 64 };

/* A context is a pointer to its device's entry. */
struct device {
    char path[FAKE_PATH_BYTES];
    unsigned retained;
};

static struct {
    pthread_mutex_t lock;
    bool initialised;
    bool defer;
    bool touchable;
    int devices_count;
    size_t capacity;
    struct device devices[FAKE_DEVICES_MAX];
    char fail_call[CALL_NAME_BYTES];
    uint64_t fail_nth;
    int fail_error;
    uint64_t calls;
    int sticky; /* The error of a kernel, which every later call returns. */
} fake_driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct device *current;

/* ---- errors on demand ------------------------------------------------------------------- */

void fake_cuda_fail(const char *name, uint64_t nth, int error)
{
    (void)pthread_mutex_lock(&fake_driver.lock);
    (void)snprintf(fake_driver.fail_call, sizeof(fake_driver.fail_call), "%s", name);
    fake_driver.fail_nth = nth;
    fake_driver.fail_error = error;
    fake_driver.calls = 0;
    (void)pthread_mutex_unlock(&fake_driver.lock);
}

uint64_t fake_cuda_calls(void)
{
    return fake_driver.calls;
}

void fake_cuda_defer(bool defer)
{
    fake_driver.defer = defer;
}

bool fake_is_deferring(void)
{
    return fake_driver.defer;
}

bool fake_is_touchable(void)
{
    return fake_driver.touchable;
}

/* ---- errors that stick to the process --------------------------------------------------- */

int fake_stick(int error)
{
    bool of_kernel = error == CU_ILLEGAL_ADDRESS || error == CU_LAUNCH_TIMEOUT ||
                     error == CU_ASSERT ||
                     (error >= CU_HARDWARE_STACK_ERROR && error <= CU_LAUNCH_FAILED);

    if (of_kernel && fake_driver.sticky == CU_SUCCESS) {
        fake_driver.sticky = error;
    }
    return error;
}

static bool may_fail(const char *call)
{
    return strcmp(fake_driver.fail_call, "*") == 0 || strcmp(fake_driver.fail_call, call) == 0;
}

int fake_enter(const char *call, int *locked_out)
{
    (void)pthread_mutex_lock(&fake_driver.lock);
    *locked_out = 1;
    if (may_fail(call)) {
        fake_driver.calls++;
        if (fake_driver.calls == fake_driver.fail_nth) {
            return fake_stick(fake_driver.fail_error);
        }
    }
    if (fake_driver.sticky != CU_SUCCESS) {
        return fake_driver.sticky;
    }
    return fake_driver.initialised || strcmp(call, "cuInit") == 0 ? CU_SUCCESS : CU_NOT_INITIALIZED;
}

void fake_leave(int *locked)
{
    if (*locked) {
        (void)pthread_mutex_unlock(&fake_driver.lock);
    }
}

/* ---- the machine ------------------------------------------------------------------------ */

static unsigned long environment_number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoul(text, NULL, 10) : otherwise;
}

/* True if this process is to fail: each one, or the first one with the name that is wanted. */
static bool is_to_fail(void)
{
    const char *wanted = getenv("FAKE_CUDA_FAIL_IN");
    char path[FAKE_PATH_BYTES];
    char name[16] = "";
    int fd;

    if (wanted == NULL) {
        return true;
    }
    (void)prctl(PR_GET_NAME, name);
    if (strncmp(name, wanted, sizeof(name) - 1) != 0) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "%s/failing", getenv("FAKE_CUDA_DIRECTORY"));
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)close(fd);
    }
    return fd >= 0;
}

static void read_failure(void)
{
    const char *text = getenv("FAKE_CUDA_FAIL");
    unsigned long nth = 0;

    if (text != NULL && is_to_fail() &&
        sscanf(text, "%63[^:]:%lu:%d", fake_driver.fail_call, &nth, &fake_driver.fail_error) == 3) {
        fake_driver.fail_nth = nth;
    }
}

static int make_devices(void)
{
    const char *directory = getenv("FAKE_CUDA_DIRECTORY");

    if (directory == NULL || fake_driver.devices_count > FAKE_DEVICES_MAX) {
        return CU_NO_DEVICE;
    }
    for (int i = 0; i < fake_driver.devices_count; i++) {
        struct device *device = &fake_driver.devices[i];

        (void)snprintf(device->path, sizeof(device->path), "%s/gpu%d", directory, i);
        (void)mkdir(device->path, 0700);
    }
    return fake_driver.devices_count > 0 ? CU_SUCCESS : CU_NO_DEVICE;
}

int cuInit(unsigned flags)
{
    ENTER();
    (void)flags;
    if (!fake_driver.initialised) {
        int result;

        fake_driver.devices_count = (int)environment_number("FAKE_CUDA_DEVICES", 1);
        fake_driver.capacity = environment_number("FAKE_CUDA_BYTES", 256UL << 20);
        fake_driver.touchable = environment_number("FAKE_CUDA_TOUCH", 0) != 0;
        fake_driver.defer |= environment_number("FAKE_CUDA_DEFER", 0) != 0;
        read_failure();
        result = make_devices();
        fake_driver.initialised = result == CU_SUCCESS;
        return result;
    }
    return CU_SUCCESS;
}

int fake_device(void)
{
    return current != NULL ? (int)(current - fake_driver.devices) : -1;
}

const char *fake_path(int device)
{
    return device >= 0 && device < fake_driver.devices_count ? fake_driver.devices[device].path
                                                             : NULL;
}

size_t fake_capacity(void)
{
    return fake_driver.capacity;
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
    *count = fake_driver.devices_count;
    return CU_SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    ENTER();
    if (fake_path(ordinal) == NULL) {
        return CU_INVALID_DEVICE;
    }
    *device = ordinal;
    return CU_SUCCESS;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    ENTER();
    if (fake_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    (void)snprintf(name, (size_t)bytes, "Fake library");
    return CU_SUCCESS;
}

int cuDeviceGetUuid_v2(struct cu_uuid *uuid, int device)
{
    ENTER();
    if (fake_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    memset(uuid->bytes, 0xc0, sizeof(uuid->bytes));
    uuid->bytes[14] = (uint8_t)environment_number("FAKE_CUDA_MACHINE", 0xc0);
    uuid->bytes[15] = (uint8_t)device;
    return CU_SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    ENTER();
    if (fake_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    *bytes = fake_driver.capacity;
    return CU_SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ENTER();
    if (fake_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    *value = attribute == CU_DEVICE_VMM_SUPPORTED || attribute == CU_DEVICE_POSIX_FD_SUPPORTED;
    return CU_SUCCESS;
}

/* ---- contexts --------------------------------------------------------------------------- */

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    ENTER();
    if (fake_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    fake_driver.devices[device].retained++;
    *context = &fake_driver.devices[device];
    return CU_SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER();
    if (fake_path(device) == NULL || fake_driver.devices[device].retained == 0) {
        return CU_INVALID_CONTEXT;
    }
    fake_driver.devices[device].retained--;
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
    return fake_run_all();
}
