/* cuda_order.c - the fake library for the CUDA driver: streams, events, copies that are put off. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { EVENT_WAIT_MS = 10000 };

struct stream {
    int device;
    int held;
};

/* Of an event that other processes can open: shared with them. */
struct times {
    uint64_t recorded; /* Number of calls of cuEventRecord. */
    uint64_t happened; /* Number of recordings that the stream has reached. */
};

struct event {
    struct times *times; /* The counters (owned); in a file if the event is shared. */
    char file[FAKE_PATH_BYTES + 32];
    bool opened;
};

/* What a stream has still to do; all streams' in the order of the calls. */
struct operation {
    struct operation *next;
    struct stream *stream;
    enum { COPY, RECORD, WAIT, KERNEL, WORK } kind;
    uint64_t to;
    uint64_t from;
    size_t bytes;
    struct event *event;
    uint64_t time;              /* Number of the event's recording. */
    struct fake_kernel *kernel; /* owned */
    fake_work_fn *work;
    void *argument; /* owned */
};

static struct operation *queue;
/* Error after an illegal address, which all later calls return. */
static int sticky;

void fake_cuda_hold(void *stream, int delta)
{
    (void)__atomic_add_fetch(&((struct stream *)stream)->held, delta, __ATOMIC_ACQ_REL);
}

static bool is_held(const struct stream *stream)
{
    return stream != NULL && __atomic_load_n(&stream->held, __ATOMIC_ACQUIRE) != 0;
}

/* Is called without the library's lock, because the function that holds the stream needs it. */
static void wait_while_held(const struct stream *stream)
{
    const struct timespec pause = {.tv_nsec = 100000};

    for (int i = 0; i < EVENT_WAIT_MS * 10 && is_held(stream); i++) {
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- running ---------------------------------------------------------------------------- */

static uint64_t happened(const struct event *event)
{
    return __atomic_load_n(&event->times->happened, __ATOMIC_ACQUIRE);
}

static int run_until(struct stream *stream, const struct operation *last);

/* Runs the stream of this process that records the event; another process is waited for. */
static int await(const struct event *event, uint64_t time)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (struct operation *other = queue; other != NULL; other = other->next) {
        if (other->kind == RECORD && other->event->times == event->times && other->time >= time) {
            return run_until(other->stream, other);
        }
    }
    for (int i = 0; i < EVENT_WAIT_MS && happened(event) < time; i++) {
        (void)nanosleep(&pause, NULL);
    }
    return happened(event) >= time ? CU_SUCCESS : CU_LAUNCH_TIMEOUT;
}

static int do_work(const struct operation *operation)
{
    int result = fake_memory_open(true);

    if (result == CU_SUCCESS) {
        operation->work(operation->argument);
        result = fake_memory_open(false);
    }
    free(operation->argument);
    return result;
}

static int run(const struct operation *operation)
{
    switch (operation->kind) {
    case COPY:
        return fake_copy(operation->to, operation->from, operation->bytes);
    case RECORD:
        __atomic_store_n(&operation->event->times->happened, operation->time, __ATOMIC_RELEASE);
        return CU_SUCCESS;
    case WAIT:
        return await(operation->event, operation->time);
    case KERNEL:
        return fake_kernel_run(operation->kernel);
    case WORK:
        return do_work(operation);
    default:
        return CU_INVALID_VALUE;
    }
}

/* The stream's operations up to `last` (NULL: all). */
static int run_until(struct stream *stream, const struct operation *last)
{
    struct operation **link = &queue;

    while (*link != NULL && sticky == CU_SUCCESS && !is_held(stream)) {
        struct operation *operation = *link;
        bool done = operation == last;

        if (operation->stream != stream) {
            link = &operation->next;
            continue;
        }
        *link = operation->next;
        sticky = run(operation);
        free(operation);
        if (done) {
            break;
        }
        link = &queue; /* Starts again, since a wait may have run other operations. */
    }
    return sticky;
}

int fake_run_all(void)
{
    for (const struct operation *next = queue; next != NULL && sticky == CU_SUCCESS;) {
        if (is_held(next->stream)) {
            next = next->next;
            continue;
        }
        (void)run_until(next->stream, NULL);
        next = queue;
    }
    return sticky;
}

static int submit(const struct operation *operation)
{
    struct operation **link = &queue;
    struct operation *copy = malloc(sizeof(*copy));

    if (copy == NULL) {
        abort();
    }
    *copy = *operation;
    copy->next = NULL;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = copy;
    return fake_is_deferring() ? sticky : run_until(operation->stream, NULL);
}

int fake_submit_kernel(void *stream, struct fake_kernel *kernel)
{
    return submit(&(struct operation){.stream = stream, .kind = KERNEL, .kernel = kernel});
}

int fake_submit_work(void *stream, fake_work_fn *work, const void *argument, size_t bytes)
{
    void *copy = malloc(bytes);

    if (copy == NULL) {
        abort();
    }
    memcpy(copy, argument, bytes);
    return submit(
        &(struct operation){.stream = stream, .kind = WORK, .work = work, .argument = copy});
}

int fake_submit(void *stream, fake_work_fn *work, const void *argument, size_t bytes)
{
    ENTER();
    return fake_submit_work(stream, work, argument, bytes);
}

/* ---- streams ---------------------------------------------------------------------------- */

int cuStreamCreate(void **stream, unsigned flags)
{
    struct stream *made;

    ENTER();
    (void)flags;
    if (fake_device() < 0) {
        return CU_INVALID_CONTEXT;
    }
    made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    made->device = fake_device();
    *stream = made;
    return CU_SUCCESS;
}

int cuStreamDestroy_v2(void *stream)
{
    wait_while_held(stream);
    ENTER();
    (void)run_until(stream, NULL);
    free(stream);
    return CU_SUCCESS;
}

int cuStreamSynchronize(void *stream)
{
    wait_while_held(stream);
    ENTER();
    return run_until(stream, NULL);
}

int cuStreamQuery(void *stream)
{
    ENTER();
    if (is_held(stream)) {
        return CU_NOT_READY;
    }
    return run_until(stream, NULL);
}

/* ---- events ----------------------------------------------------------------------------- */

static struct times *map_times(const char *file, bool create)
{
    int fd = open(file, create ? O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0600);
    void *times = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(struct times)) == 0) {
        times = mmap(NULL, sizeof(struct times), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return times != MAP_FAILED ? times : NULL;
}

int cuEventCreate(void **event, unsigned flags)
{
    static unsigned counter;
    struct event *made;

    ENTER();
    (void)flags;
    if (fake_device() < 0) {
        return CU_INVALID_CONTEXT;
    }
    made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    counter++;
    (void)snprintf(made->file, sizeof(made->file), "%s/event-%d-%u", fake_path(fake_device()),
                   (int)getpid(), counter);
    made->times = map_times(made->file, true);
    if (made->times == NULL) {
        free(made);
        return CU_OUT_OF_MEMORY;
    }
    *event = made;
    return CU_SUCCESS;
}

int cuEventDestroy_v2(void *event)
{
    struct event *gone = event;

    ENTER();
    (void)fake_run_all();
    (void)munmap(gone->times, sizeof(*gone->times));
    if (!gone->opened) {
        (void)unlink(gone->file);
    }
    free(gone);
    return CU_SUCCESS;
}

int cuEventRecord(void *event, void *stream)
{
    struct event *recorded = event;
    struct operation operation = {.stream = stream, .kind = RECORD, .event = recorded};

    ENTER();
    operation.time = __atomic_add_fetch(&recorded->times->recorded, 1, __ATOMIC_ACQ_REL);
    return submit(&operation);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    struct event *awaited = event;
    struct operation operation = {.stream = stream, .kind = WAIT, .event = awaited};

    ENTER();
    (void)flags;
    operation.time = __atomic_load_n(&awaited->times->recorded, __ATOMIC_ACQUIRE);
    return submit(&operation);
}

int cuIpcGetEventHandle(struct cu_ipc_handle *handle, void *event)
{
    const char *name = strrchr(((struct event *)event)->file, '/');

    ENTER();
    memset(handle, 0, sizeof(*handle));
    (void)snprintf(handle->bytes, sizeof(handle->bytes), "%s", name);
    return CU_SUCCESS;
}

int cuIpcOpenEventHandle(void **event, struct cu_ipc_handle handle)
{
    struct event *made;

    ENTER();
    if (fake_device() < 0) {
        return CU_INVALID_CONTEXT;
    }
    made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    (void)snprintf(made->file, sizeof(made->file), "%s%.48s", fake_path(fake_device()),
                   handle.bytes);
    made->opened = true;
    made->times = map_times(made->file, false);
    if (made->times == NULL) {
        free(made);
        return CU_INVALID_HANDLE;
    }
    *event = made;
    return CU_SUCCESS;
}

/* ---- copies ----------------------------------------------------------------------------- */

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    struct operation operation = {
        .stream = stream, .kind = COPY, .to = to, .from = from, .bytes = bytes};

    ENTER();
    return submit(&operation);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
    return cuMemcpyAsync(to, (uint64_t)(uintptr_t)from, bytes, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    return cuMemcpyAsync((uint64_t)(uintptr_t)to, from, bytes, stream);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    ENTER();
    return fake_copy(to, (uint64_t)(uintptr_t)from, bytes);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    ENTER();
    return fake_copy((uint64_t)(uintptr_t)to, from, bytes);
}
