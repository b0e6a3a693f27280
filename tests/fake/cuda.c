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
#include <time.h>
#include <unistd.h>

/* HELD_WAIT_MS: longest wait for a stream that is held. */
enum { CALL_NAME_BYTES = 64, HELD_WAIT_MS = 10000 };

/* A context is a pointer to its device's entry. */
struct device {
    char path[FAKE_PATH_BYTES];
    int number; /* Of the machine, which is part of the UUID. */
    unsigned retained;
    int context_memory; /* Descriptor of what the context takes; valid while it is retained. */
};

static struct {
    pthread_mutex_t lock;
    bool initialised;
    bool defer;
    bool touchable;
    int devices_count;
    size_t capacity;
    size_t context_bytes;
    unsigned long context_ms;
    unsigned long free_ms;
    bool is_mig;
    struct device devices[FAKE_DEVICES_MAX];
    char fail_call[CALL_NAME_BYTES];
    uint64_t fail_nth;
    int fail_error;
    uint64_t calls;
    int sticky; /* The error of a kernel, which every later call returns. */
} fake_driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The thread's stack of contexts; the last one is current. */
static _Thread_local struct {
    struct device *contexts[FAKE_CONTEXTS_MAX];
    int count;
} stack;

static struct device *current_context(void)
{
    return stack.count > 0 ? stack.contexts[stack.count - 1] : NULL;
}

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

/* A context that was pushed can be popped, so that this is none of the calls of "*". */
static bool may_fail(const char *call)
{
    return (strcmp(fake_driver.fail_call, "*") == 0 && strcmp(call, "cuCtxPopCurrent_v2") != 0) ||
           strcmp(fake_driver.fail_call, call) == 0;
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

static void fill_uuid(uint8_t bytes[16], int number)
{
    memset(bytes, 0xc0, 16);
    bytes[14] = (uint8_t)environment_number("FAKE_CUDA_MACHINE", 0xc0);
    bytes[15] = (uint8_t)number;
}

/* The number of the machine's device that an entry of CUDA_VISIBLE_DEVICES names, or -1. */
static int number_of_entry(const char *entry, size_t length, int count)
{
    char text[64];
    uint8_t b[16];

    for (int i = 0; i < count; i++) {
        (void)snprintf(text, sizeof(text), "%d", i);
        if (length == strlen(text) && strncmp(entry, text, length) == 0) {
            return i;
        }
        fill_uuid(b, i);
        (void)snprintf(text, sizeof(text),
                       "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                       fake_driver.is_mig ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6],
                       b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
        if (length == strlen(text) && strncmp(entry, text, length) == 0) {
            return i;
        }
    }
    return -1;
}

/* Keeps the devices that CUDA_VISIBLE_DEVICES names, up to the first entry that names none. */
static void choose_visible(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct device chosen[FAKE_DEVICES_MAX];
    int count = 0;

    while (visible != NULL && *visible != '\0' && count < FAKE_DEVICES_MAX) {
        size_t length = strcspn(visible, ",");
        int number = number_of_entry(visible, length, fake_driver.devices_count);

        if (number < 0) {
            break;
        }
        for (int i = 0; i < count; i++) {
            if (chosen[i].number == number) {
                fake_driver.devices_count = 0;
                return;
            }
        }
        chosen[count++] = fake_driver.devices[number];
        visible += length + (visible[length] == ',' ? 1 : 0);
    }
    if (getenv("CUDA_VISIBLE_DEVICES") != NULL) {
        memcpy(fake_driver.devices, chosen, sizeof(chosen[0]) * (size_t)count);
        fake_driver.devices_count = count;
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
        device->number = i;
    }
    choose_visible();
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
        fake_driver.context_bytes = environment_number("FAKE_CUDA_CONTEXT_BYTES", 0);
        fake_driver.context_ms = environment_number("FAKE_CUDA_CONTEXT_MS", 0);
        fake_driver.free_ms = environment_number("FAKE_CUDA_FREE_MS", 0);
        fake_driver.is_mig = environment_number("FAKE_CUDA_MIG", 0) != 0;
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
    const struct device *current = current_context();

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

unsigned long fake_free_ms(void)
{
    return fake_driver.free_ms;
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
    (void)snprintf(name, (size_t)bytes,
                   fake_driver.is_mig ? "Fake library MIG 1g.10gb" : "Fake library");
    return CU_SUCCESS;
}

int cuDeviceGetUuid_v2(struct cu_uuid *uuid, int device)
{
    ENTER();
    if (fake_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    fill_uuid(uuid->bytes, fake_driver.devices[device].number);
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

int cuMemGetAllocationGranularity(size_t *bytes, const struct cu_allocation *allocation, int which)
{
    ENTER();
    (void)allocation;
    (void)which;
    *bytes = FAKE_UNIT;
    return CU_SUCCESS;
}

/* ---- contexts --------------------------------------------------------------------------- */

/* Takes what a context of the device costs: memory and time. Every call waits meanwhile, as in the
 * driver. */
static int make_context(struct device *device)
{
    const struct timespec time = {.tv_sec = (time_t)(fake_driver.context_ms / 1000),
                                  .tv_nsec = (long)(fake_driver.context_ms % 1000) * 1000000};

    if (fake_driver.context_bytes > 0) {
        device->context_memory = fake_take_memory(device->path, fake_driver.context_bytes);
        if (device->context_memory < 0) {
            return CU_OUT_OF_MEMORY;
        }
    }
    (void)nanosleep(&time, NULL);
    return CU_SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    struct device *entry;

    ENTER();
    if (fake_path(device) == NULL) {
        return CU_INVALID_DEVICE;
    }
    entry = &fake_driver.devices[device];
    if (entry->retained == 0 && make_context(entry) != CU_SUCCESS) {
        return CU_OUT_OF_MEMORY;
    }
    entry->retained++;
    *context = entry;
    return CU_SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER();
    if (fake_path(device) == NULL || fake_driver.devices[device].retained == 0) {
        return CU_INVALID_CONTEXT;
    }
    fake_driver.devices[device].retained--;
    if (fake_driver.devices[device].retained == 0 && fake_driver.context_bytes > 0) {
        fake_give_memory(fake_driver.devices[device].context_memory);
    }
    return CU_SUCCESS;
}

/* Replaces the context on top of the thread's stack; NULL removes it. */
int cuCtxSetCurrent(void *context)
{
    ENTER();
    if (stack.count > 0) {
        stack.count--;
    }
    if (context != NULL) {
        stack.contexts[stack.count++] = context;
    }
    return CU_SUCCESS;
}

int cuCtxPushCurrent_v2(void *context)
{
    ENTER();
    if (context == NULL || stack.count == FAKE_CONTEXTS_MAX) {
        return CU_INVALID_CONTEXT;
    }
    stack.contexts[stack.count++] = context;
    return CU_SUCCESS;
}

int cuCtxPopCurrent_v2(void **context)
{
    ENTER();
    if (stack.count == 0) {
        return CU_INVALID_CONTEXT;
    }
    *context = stack.contexts[--stack.count];
    return CU_SUCCESS;
}

/* Not Tandem's to call, so not in the list of its calls. */
int cuCtxGetCurrent(void **context);

int cuCtxGetCurrent(void **context)
{
    ENTER();
    *context = current_context();
    return CU_SUCCESS;
}

/* Runs what the streams have to do and tells whether that is all. */
static int run_what_can_run(bool *waiting_out)
{
    int result;
    int locked = 0;

    (void)pthread_mutex_lock(&fake_driver.lock);
    locked = 1;
    result = fake_run_all();
    *waiting_out = fake_is_waiting();
    fake_leave(&locked);
    return result;
}

/* Waits for every stream, whoever made it, also for one that is held. */
int cuCtxSynchronize(void)
{
    const struct timespec pause = {.tv_nsec = 100000};
    bool waiting = true;
    int result = CU_SUCCESS;

    {
        ENTER();
        if (fake_device() < 0) {
            return CU_INVALID_CONTEXT;
        }
    }
    for (int i = 0; i < HELD_WAIT_MS * 10 && waiting && result == CU_SUCCESS; i++) {
        result = run_what_can_run(&waiting);
        if (waiting) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return result;
}
