/* cuda_threads.c - the fake library for the CUDA driver: the threads of a kernel's blocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"
#include "tests/fake/kernel_threads.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

/* Each thread of a block has a stack of its own and is a context that the scheduler, which is the
 * function run_block(), resumes. A thread gives the turn back in fake_barrier(), when it returns,
 * and in fake_kernel_stop(), after which it is never resumed. The library's lock is held while a
 * kernel runs, so that there is one scheduler at a time.
 *
 * The thread sanitizer (FAKE_KERNELS_UNDER_TSAN) takes each thread of a block for a thread of the
 * process, and looks for races in the kernels. It does not see the accesses of this file. */

#ifdef FAKE_KERNELS_UNDER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_BYTES = 64 << 10, THREADS_USUAL = 16 };

struct gpu_thread {
    ucontext_t context;
    void *fiber;  /* The thread as the thread sanitizer knows it; NULL without the sanitizer. */
    int waits_at; /* Line of the barrier where the thread waits; 0 if it has returned. */
};

struct shim_index fake_thread_index;
struct shim_index fake_block_index;
struct shim_index fake_block_size;
struct shim_index fake_grid_size;

typedef int swap_fn(ucontext_t *kept, const ucontext_t *next);

static struct {
    swap_fn *swap;
    char *stacks; /* Of all threads, one after the other. */
    struct gpu_thread threads[FAKE_BLOCK_THREADS_MAX];
    ucontext_t scheduler;
    void *scheduler_fiber;
    unsigned running; /* Number of the thread that has the turn. */
    unsigned barrier; /* Number of the barrier that the threads reach next; the end is one. */
    int error;        /* Of the kernel; CU_SUCCESS until one of its threads ends it. */
    fake_kernel_body *body;
    const void *argument;
} gpu;

/* ---- turns ------------------------------------------------------------------------------ */

/* The address sanitizer replaces swapcontext() by a function that writes a warning, therefore the
 * C library's own one is called. */
static void find_swap(void)
{
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

    *(void **)&gpu.swap = library != NULL ? dlsym(library, "swapcontext") : NULL;
    if (gpu.swap == NULL) {
        abort();
    }
}

static void open_stacks(void)
{
    if (gpu.stacks != NULL) {
        return;
    }
    find_swap();
    gpu.stacks = mmap(NULL, (size_t)STACK_BYTES * FAKE_BLOCK_THREADS_MAX, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (gpu.stacks == MAP_FAILED) {
        abort();
    }
}

/* The thread sanitizer follows the turns, without taking one for an order of accesses. */
static void switch_fiber(void *fiber)
{
#ifdef FAKE_KERNELS_UNDER_TSAN
    __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
#else
    (void)fiber;
#endif
}

static void resume(unsigned number)
{
    struct gpu_thread *thread = &gpu.threads[number];

    gpu.running = number;
    fake_thread_index.x = number;
    switch_fiber(thread->fiber);
    (void)gpu.swap(&gpu.scheduler, &thread->context);
}

static void give_turn_back(void)
{
    switch_fiber(gpu.scheduler_fiber);
    (void)gpu.swap(&gpu.threads[gpu.running].context, &gpu.scheduler);
}

void fake_kernel_stop(int error)
{
    gpu.error = error;
    give_turn_back();
}

bool fake_is_private(uintptr_t address)
{
    return address - (uintptr_t)gpu.stacks < (uintptr_t)STACK_BYTES * FAKE_BLOCK_THREADS_MAX;
}

/* ---- barriers --------------------------------------------------------------------------- */

/* Tells the thread sanitizer that what was done before a barrier is seen behind it. The next
 * barrier has another address, because some threads reach it before others have left this one. */
#ifdef FAKE_KERNELS_UNDER_TSAN
static char barrier_addresses[2];

static void note_arrival(unsigned barrier)
{
    __tsan_release(&barrier_addresses[barrier % 2]);
}

static void note_departure(unsigned barrier)
{
    __tsan_acquire(&barrier_addresses[barrier % 2]);
}
#else
static void note_arrival(unsigned barrier)
{
    (void)barrier;
}

static void note_departure(unsigned barrier)
{
    (void)barrier;
}
#endif

void fake_barrier(int line)
{
    gpu.threads[gpu.running].waits_at = line;
    note_arrival(gpu.barrier);
    give_turn_back();
    note_departure(gpu.barrier - 1);
}

void fake_atomic_add(unsigned long long *at, unsigned long long more)
{
    fake_watch_atomic(at, sizeof(*at));
    (void)__atomic_fetch_add(at, more, __ATOMIC_RELAXED);
}

void fake_atomic_max(unsigned *at, unsigned other)
{
    unsigned old;

    fake_watch_atomic(at, sizeof(*at));
    old = __atomic_load_n(at, __ATOMIC_RELAXED);
    if (old < other) {
        __atomic_store_n(at, other, __ATOMIC_RELAXED);
    }
}

/* ---- blocks ----------------------------------------------------------------------------- */

/* What each thread executes. */
static void thread_main(void)
{
    note_departure(gpu.barrier - 1);
    gpu.body(gpu.argument);
    gpu.threads[gpu.running].waits_at = 0;
    note_arrival(gpu.barrier);
    give_turn_back();
}

static void start_thread(struct gpu_thread *thread, char *stack)
{
    if (getcontext(&thread->context) != 0) {
        abort();
    }
    thread->context.uc_stack.ss_sp = stack;
    thread->context.uc_stack.ss_size = STACK_BYTES;
    thread->context.uc_link = NULL;
    thread->waits_at = 0;
    makecontext(&thread->context, thread_main, 0);
#ifdef FAKE_KERNELS_UNDER_TSAN
    if (thread->fiber == NULL) {
        thread->fiber = __tsan_create_fiber(0);
    }
#endif
}

/* Gives each thread one turn, from the first to the last or the other way round. */
static void give_turns(unsigned count)
{
    bool backwards = gpu.barrier % 2 != 0;

    for (unsigned i = 0; i < count && gpu.error == CU_SUCCESS; i++) {
        resume(backwards ? count - 1 - i : i);
    }
}

/* Sets an error if some threads wait at a barrier that others do not reach: a GPU may wait for
 * ever. */
static void compare_barriers(unsigned count)
{
    for (unsigned i = 1; i < count && gpu.error == CU_SUCCESS; i++) {
        if (gpu.threads[i].waits_at != gpu.threads[0].waits_at) {
            (void)fprintf(stderr,
                          "fake CUDA: threads 0 and %u of a block are at different barriers: lines "
                          "%d and %d (0: returned)\n",
                          i, gpu.threads[0].waits_at, gpu.threads[i].waits_at);
            gpu.error = CU_LAUNCH_TIMEOUT;
        }
    }
}

static int run_block(unsigned threads)
{
    gpu.error = CU_SUCCESS;
#ifdef FAKE_KERNELS_UNDER_TSAN
    gpu.scheduler_fiber = __tsan_get_current_fiber();
#endif
    for (unsigned i = 0; i < threads; i++) {
        start_thread(&gpu.threads[i], gpu.stacks + (size_t)i * STACK_BYTES);
    }
    fake_watch_block();
    note_arrival(gpu.barrier);
    do {
        gpu.barrier++;
        give_turns(threads);
        compare_barriers(threads);
        fake_watch_barrier();
    } while (gpu.error == CU_SUCCESS && gpu.threads[0].waits_at != 0);
    note_departure(gpu.barrier);
    return gpu.error;
}

int fake_grid_run(const struct fake_shape *shape, fake_kernel_body *body, const void *argument)
{
    int error = CU_SUCCESS;

    open_stacks();
    gpu.body = body;
    gpu.argument = argument;
    fake_grid_size = (struct shim_index){shape->blocks, shape->rows, 1};
    fake_block_size = (struct shim_index){shape->threads, 1, 1};
    fake_watch_kernel();
    for (unsigned y = 0; y < shape->rows; y++) {
        for (unsigned x = 0; x < shape->blocks && error == CU_SUCCESS; x++) {
            fake_block_index = (struct shim_index){x, y, 0};
            error = run_block(shape->threads);
        }
    }
    return error;
}

unsigned fake_block_threads(unsigned wanted)
{
    const char *text = getenv("FAKE_CUDA_THREADS");
    unsigned long most = text != NULL ? strtoul(text, NULL, 10) : THREADS_USUAL;
    unsigned threads = 1;

    while (threads * 2 <= wanted && threads * 2 <= most && threads < FAKE_BLOCK_THREADS_MAX) {
        threads *= 2;
    }
    return threads;
}
