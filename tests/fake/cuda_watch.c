/* cuda_watch.c - the fake library for the CUDA driver: finds races and misaligned accesses. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda.h"
#include "tests/fake/kernel_threads.h"

#include <stdio.h>
#include <string.h>

/* The compiler's option -fsanitize=thread lets a source call a function before each access to
 * memory. These functions are usually the thread sanitizer's. For the kernels they are here, in
 * all builds but those with the thread sanitizer, which then looks for races itself.
 *
 * The last write and the last read of each aligned group of 8 bytes are kept in a table, in which
 * a newer group takes the place of an older one. What is forgotten so is not compared: some races
 * may be missed, but none is reported that does not exist. Barriers order the accesses of one
 * block; nothing orders those of different blocks. */

enum { GROUP_BYTES = 8, GROUPS = 1 << 16 };

/* The bytes of a group that one thread accessed. */
struct access {
    uint64_t interval; /* Number of the barrier before it, of all kernels; 0: no access. */
    uint64_t block;    /* Number of the block, of all kernels. */
    unsigned thread;
    uint8_t mask; /* Bit i: byte i of the group. */
    bool is_atomic;
    bool is_of_several; /* Another thread has accessed the same bytes in this interval, too. */
};

struct group {
    uintptr_t address; /* 0: unused. */
    struct access write;
    struct access read;
};

/* Shared memory, which the linker collects in one section. */
extern char __start_fake_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_fake_shared[] __attribute__((weak, visibility("hidden")));

static struct {
    struct group groups[GROUPS];
    uint64_t first_block; /* Of this kernel. */
    uint64_t block;
    uint64_t interval;
    bool is_running;
} watch;

/* ---- time ------------------------------------------------------------------------------- */

void fake_watch_kernel(void)
{
    watch.first_block = watch.block + 1;
}

void fake_watch_block(void)
{
    watch.block++;
    watch.interval++;
    watch.is_running = true;
    if (__start_fake_shared != NULL) {
        memset(__start_fake_shared, 0xa5, (size_t)(__stop_fake_shared - __start_fake_shared));
    }
}

void fake_watch_barrier(void)
{
    watch.interval++;
}

/* ---- races ------------------------------------------------------------------------------ */

static bool is_shared(uintptr_t address)
{
    return address >= (uintptr_t)__start_fake_shared && address < (uintptr_t)__stop_fake_shared;
}

/* True if nothing orders the earlier access before one of the thread that runs. */
static bool is_unordered(const struct access *earlier, uintptr_t address)
{
    if (earlier->interval == 0 || earlier->block < watch.first_block) {
        return false;
    }
    if (earlier->block != watch.block) {
        return !is_shared(address);
    }
    return earlier->interval == watch.interval &&
           (earlier->thread != fake_thread_index.x || earlier->is_of_several);
}

static bool is_race(const struct access *earlier, uintptr_t address, uint8_t mask, bool is_atomic)
{
    return (earlier->mask & mask) != 0 && !(earlier->is_atomic && is_atomic) &&
           is_unordered(earlier, address);
}

/* Keeps the access as the last one of its kind. */
static void keep_access(struct access *last, uint8_t mask, bool is_atomic)
{
    bool same_interval = last->interval == watch.interval && last->block == watch.block;
    bool same_thread = same_interval && last->thread == fake_thread_index.x;

    if (same_thread && last->is_atomic == is_atomic &&
        (!last->is_of_several || last->mask == mask)) {
        last->mask |= mask;
        return;
    }
    *last = (struct access){.interval = watch.interval,
                            .block = watch.block,
                            .thread = fake_thread_index.x,
                            .mask = mask,
                            .is_atomic = is_atomic,
                            .is_of_several = same_interval && !same_thread && last->mask == mask};
}

static void report_race(const struct access *earlier, uintptr_t address, bool writes)
{
    (void)fprintf(stderr,
                  "fake CUDA: race: thread %u of block %u %s address %#zx of %s memory, which "
                  "thread %u of %s block has accessed without a barrier in between\n",
                  fake_thread_index.x, fake_block_index.x, writes ? "writes" : "reads",
                  (size_t)address, is_shared(address) ? "shared" : "global", earlier->thread,
                  earlier->block == watch.block ? "the same" : "another");
    fake_kernel_stop(CU_ASSERT);
}

static void access_group(uintptr_t address, uint8_t mask, bool writes, bool is_atomic)
{
    struct group *group = &watch.groups[address / GROUP_BYTES % GROUPS];

    if (group->address != address) {
        *group = (struct group){.address = address};
    }
    if (is_race(&group->write, address, mask, is_atomic)) {
        report_race(&group->write, address, writes);
    }
    if (writes && is_race(&group->read, address, mask, is_atomic)) {
        report_race(&group->read, address, writes);
    }
    keep_access(writes ? &group->write : &group->read, mask, is_atomic);
}

static void access_bytes(const void *at, size_t size_bytes, bool writes, bool is_atomic)
{
    uintptr_t address = (uintptr_t)at;
    uintptr_t end = address + size_bytes;

    if (!watch.is_running || fake_is_private(address)) {
        return;
    }
    while (address < end) {
        unsigned first = (unsigned)(address % GROUP_BYTES);
        unsigned count = GROUP_BYTES - first;

        count = count < end - address ? count : (unsigned)(end - address);
        access_group(address - first, (uint8_t)(((1U << count) - 1U) << first), writes, is_atomic);
        address += count;
    }
}

void fake_watch_atomic(const void *at, unsigned size_bytes)
{
    access_bytes(at, size_bytes, true, true);
}

/* ---- what the compiler calls ------------------------------------------------------------ */

#ifdef FAKE_KERNELS_WATCHED
static void access_aligned(const void *at, size_t size_bytes, bool writes)
{
    if (watch.is_running && (uintptr_t)at % size_bytes != 0) {
        fake_kernel_stop(CU_MISALIGNED_ADDRESS);
    }
    access_bytes(at, size_bytes, writes, false);
}

/* The names and types are the compiler's. They are hidden, so that only the kernels of this library
 * call these functions. */
#define HIDDEN __attribute__((visibility("hidden")))
#define ACCESS(size)                                                                               \
    HIDDEN void __tsan_read##size(void *at);                                                       \
    HIDDEN void __tsan_write##size(void *at);                                                      \
    void __tsan_read##size(void *at)                                                               \
    {                                                                                              \
        access_aligned(at, size, false);                                                           \
    }                                                                                              \
    void __tsan_write##size(void *at)                                                              \
    {                                                                                              \
        access_aligned(at, size, true);                                                            \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

HIDDEN void __tsan_read_range(void *at, long size_bytes);
HIDDEN void __tsan_write_range(void *at, long size_bytes);
HIDDEN void __tsan_init(void);
HIDDEN void __tsan_func_entry(void *caller);
HIDDEN void __tsan_func_exit(void *caller);

void __tsan_read_range(void *at, long size_bytes)
{
    access_bytes(at, (size_t)size_bytes, false, false);
}

void __tsan_write_range(void *at, long size_bytes)
{
    access_bytes(at, (size_t)size_bytes, true, false);
}

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void *caller)
{
    (void)caller;
}
#endif
