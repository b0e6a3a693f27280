/* cuda_order.c - the fake library for the CUDA driver: streams, and copies that are put off. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longest wait for a stream that is held, in milliseconds. */
enum { HELD_WAIT_MS = 10000 };

struct stream {
    int device;
    int held;
};

/* What a stream has still to do; all streams' in the order of the calls. */
struct operation {
    struct operation *next;
    struct stream *stream;
    enum { COPY, KERNEL, WORK } kind;
    uint64_t to;
    uint64_t from;
    size_t bytes;
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

    for (int i = 0; i < HELD_WAIT_MS * 10 && is_held(stream); i++) {
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- running ---------------------------------------------------------------------------- */

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
    case KERNEL:
        return fake_kernel_run(operation->kernel);
    case WORK:
        return do_work(operation);
    default:
        return CU_INVALID_VALUE;
    }
}

/* Runs all operations of the stream. */
static int run_stream(struct stream *stream)
{
    struct operation **link = &queue;

    while (*link != NULL && sticky == CU_SUCCESS && !is_held(stream)) {
        struct operation *operation = *link;

        if (operation->stream != stream) {
            link = &operation->next;
            continue;
        }
        *link = operation->next;
        sticky = fake_stick(run(operation));
        free(operation);
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
        (void)run_stream(next->stream);
        next = queue;
    }
    return sticky;
}

bool fake_is_waiting(void)
{
    for (const struct operation *next = queue; next != NULL; next = next->next) {
        if (is_held(next->stream)) {
            return sticky == CU_SUCCESS;
        }
    }
    return false;
}

static bool is_within(uint64_t at, size_t bytes, uint64_t address, size_t size)
{
    return at < address + size && address < at + bytes;
}

void fake_note_unmapping(uint64_t address, size_t bytes)
{
    for (const struct operation *next = queue; next != NULL; next = next->next) {
        if (next->kind == COPY && (is_within(next->to, next->bytes, address, bytes) ||
                                   is_within(next->from, next->bytes, address, bytes))) {
            sticky = fake_stick(CU_ILLEGAL_ADDRESS);
        }
    }
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
    return fake_is_deferring() ? sticky : run_stream(operation->stream);
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
    (void)run_stream(stream);
    free(stream);
    return CU_SUCCESS;
}

int cuStreamSynchronize(void *stream)
{
    wait_while_held(stream);
    ENTER();
    return run_stream(stream);
}

int cuStreamQuery(void *stream)
{
    ENTER();
    if (is_held(stream)) {
        return CU_NOT_READY;
    }
    return run_stream(stream);
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
