/* kernel_threads.h - runs kernels on the host with many threads a block and barriers. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FAKE_KERNEL_THREADS_H
#define TDM_TESTS_FAKE_KERNEL_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* The threads of a block take turns on one thread of the process: each runs until it reaches a
 * barrier or returns. The order of the turns changes from barrier to barrier, so that a kernel
 * without a barrier that it needs gives wrong results. Blocks run one after the other.
 *
 * Sources of kernels that are compiled with calls for each access (FAKE_KERNELS_WATCHED) are also
 * watched. An access at an address that is not a multiple of its size ends the kernel with error
 * 716. Two threads that access the same bytes without a barrier in between, one of them writing
 * and not both with atomics, end it with CU_ASSERT and a text on stderr: a race, whatever the
 * results are. */

enum { FAKE_BLOCK_THREADS_MAX = 256 };

struct shim_index {
    unsigned x;
    unsigned y;
    unsigned z;
};

extern struct shim_index fake_thread_index;
extern struct shim_index fake_block_index;
extern struct shim_index fake_block_size;
extern struct shim_index fake_grid_size;

/* Shape of a launch. */
struct fake_shape {
    unsigned blocks;  /* In a row of the grid. */
    unsigned rows;    /* Of the grid. */
    unsigned threads; /* Of a block; at most FAKE_BLOCK_THREADS_MAX. */
};

/* Runs the kernel for each thread of the grid. Returns CU_SUCCESS or the error of the kernel. */
typedef void fake_kernel_body(const void *argument);
int fake_grid_run(const struct fake_shape *shape, fake_kernel_body *body, const void *argument);
/* Returns the number of threads for a block of which `wanted` were asked for: a power of two, and
 * at most FAKE_CUDA_THREADS. */
unsigned fake_block_threads(unsigned wanted);

/* What kernels call. `line` tells one barrier of a kernel from another. */
void fake_barrier(int line);
void fake_atomic_add(unsigned long long *at, unsigned long long more);
void fake_atomic_max(unsigned *at, unsigned other);

/* ---- between the parts ------------------------------------------------------------------ */

/* Ends the kernel from one of its threads. Does not return. */
void fake_kernel_stop(int error);
/* True if the address is on the stack of the thread that runs. */
bool fake_is_private(uintptr_t address);
/* Forgets the accesses of earlier kernels. */
void fake_watch_kernel(void);
/* A new block begins, whose shared memory holds arbitrary bytes as on a GPU. */
void fake_watch_block(void);
/* All threads of the block have reached a barrier. */
void fake_watch_barrier(void);
/* A thread accesses memory with an atomic. */
void fake_watch_atomic(const void *at, unsigned size_bytes);

#endif
