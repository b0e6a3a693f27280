/* cuda.h - a fake CUDA driver library: its parts, and how tests control it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FAKE_CUDA_H
#define TDM_TESTS_FAKE_CUDA_H

#include "colocate/device/cuda/driver_api.h"

#include <stdbool.h>
#include <sys/types.h>

/* Behaves as the driver does where a program can tell, and is strict where the driver leaves
 * things open.  A device is a directory; physical memory is a file there that is held open and
 * locked by everyone who has a handle, an exported descriptor or a mapping: it is in use for
 * exactly as long as one of them lives, whichever process that is, as on the card.  Device
 * addresses cannot be touched by the processor, but while a kernel runs, which is the kernel's
 * own source (kernel_shim.h). A kernel runs with many threads a block, and is
 * searched for races and misaligned accesses (kernel_threads.h).
 * cuMemAlloc cuts allocations of less than 2 MiB from blocks of 2 MiB, which are what
 * cuMemGetAddressRange finds and what cuIpc shares.
 *
 *   FAKE_CUDA_DIRECTORY  where the devices are: the same one is the same machine
 *   FAKE_CUDA_MACHINE    the last byte but one of their UUIDs (192), which makes them unequal to
 *                        those of another machine
 *   FAKE_CUDA_DEVICES    how many (1)
 *   FAKE_CUDA_BYTES      memory of each (256 MiB)
 *   CUDA_VISIBLE_DEVICES which of them a process sees, by numbers or UUIDs, in this order; a device
 *                        twice: none at all, as an H100 showed
 *   FAKE_CUDA_CONTEXT_BYTES  memory that a process takes of a device with its first context (0)
 *   FAKE_CUDA_CONTEXT_MS milliseconds that the first context of a process takes (0)
 *   FAKE_CUDA_FREE_MS    milliseconds until memory of a process that ended without giving it back
 *                        is free, counted from the first look at it (0)
 *   FAKE_CUDA_MIG        1: the devices are instances of a partitioned GPU
 *   FAKE_CUDA_DEFER      1: asynchronous copies happen when they are waited for, not before
 *   FAKE_CUDA_TOUCH      1: the processor may touch what is mapped, as a kernel may: for
 *                           programs that compute where they are told to keep their data
 *   FAKE_CUDA_REFUSE_READ_ONLY  set: mappings for reading only are refused, as by some drivers
 *   FAKE_CUDA_THREADS    most threads of a kernel's block (16)
 *   FAKE_CUDA_FAIL       "cuMemMap:3:2": the third cuMemMap fails with error 2; any call:
 *                        "*"
 *   FAKE_CUDA_FAIL_IN    the name of the only process that FAKE_CUDA_FAIL is for, such as
 *                        engine/1/0; the next process with the name is spared
 *
 * The error of a kernel (700, 702, 710, 714 to 719), also one that FAKE_CUDA_FAIL asks for, sticks
 * to the process: every later call returns it. */

/* ---- for tests, found with dlsym -------------------------------------------------------- */

/* The n-th call of that function from now on fails with `error`, once; 0 disables this. */
void fake_cuda_fail(const char *name, uint64_t nth, int error);
/* Returns the number of calls of that function since then; of all functions for "*". */
uint64_t fake_cuda_calls(void);
void fake_cuda_defer(bool defer);
/* The stream stops until it has been released as often as it was held; delta is 1 or -1. */
void fake_cuda_hold(void *stream, int delta);
/* Reservations, mappings and handles that this process has. */
unsigned fake_cuda_resources_count(void);

/* ---- between its parts ------------------------------------------------------------------ */

enum { FAKE_UNIT = 2 << 20, FAKE_DEVICES_MAX = 8, FAKE_PATH_BYTES = 256 };
enum { CU_INVALID_CONTEXT = 201, CU_MISALIGNED_ADDRESS = 716 };
/* Most contexts that one thread has pushed. */
enum { FAKE_CONTEXTS_MAX = 256 };

/* Locks the whole library until the calling function returns. Returns an error if the call is to
 * fail. */
int fake_enter(const char *call, int *locked_out);
void fake_leave(int *locked);
#define ENTER()                                                                                    \
    __attribute__((cleanup(fake_leave))) int entered = 0;                                          \
    int told = fake_enter(__func__, &entered);                                                     \
    if (told != CU_SUCCESS) {                                                                      \
        return told;                                                                               \
    }

/* Makes the error of a kernel the result of every later call; other errors pass. Returns `error`.
 */
int fake_stick(int error);
/* Returns the device of the thread's context, or -1. */
int fake_device(void);
const char *fake_path(int device);
size_t fake_capacity(void);
bool fake_is_deferring(void);
bool fake_is_touchable(void);

#define X(name, arguments) int name arguments;
CU_CALLS(X)
#undef X

/* Copies at once. Either end may be on a device. */
int fake_copy(uint64_t to, uint64_t from, size_t bytes);
/* Allows or forbids the processor to access mapped memory, as far as it is mapped for the
 * device. */
int fake_memory_open(bool open);
/* A started kernel. fake_kernel_run() runs it once and frees it. */
struct fake_kernel;
int fake_kernel_run(struct fake_kernel *kernel);
int fake_submit_kernel(void *stream, struct fake_kernel *kernel);
/* What is not Tandem's own: done with a copy of the argument, while memory is open. */
typedef void fake_work_fn(void *argument);
int fake_submit_work(void *stream, fake_work_fn *work, const void *argument, size_t bytes);
/* The same for other libraries' fake libraries, which do not hold the lock. */
int fake_submit(void *stream, fake_work_fn *work, const void *argument, size_t bytes);
/* The example's kernels: CU_NOT_FOUND or CU_INVALID_HANDLE if it is none of them. */
int fake_ops_find(void **function, const char *name);
int fake_ops_launch(const void *function, void *stream, void **arguments);
/* Runs all deferred operations of all streams. */
int fake_run_all(void);
/* True while a stream that is held has work, which fake_run_all() leaves alone. */
bool fake_is_waiting(void);
/* These addresses are unmapped: an error of the device if a copy still uses them. */
void fake_note_unmapping(uint64_t address, size_t bytes);
/* Locks the device's directory against other processes. Returns a descriptor; close it to unlock.
 */
int fake_lock_device(const char *path);
/* Bytes of the device that are in use, while it is locked. */
size_t fake_count_used(const char *path);
/* Makes a file of that many bytes, which the device has as memory from then on. Writes its path to
 * `name`, which has `room` bytes. Returns its descriptor, or -1 if the device is full. */
int fake_make_file(const char *path, size_t bytes, char *name, size_t room);
/* Takes memory of the device that belongs to no allocation. Returns its descriptor for
 * fake_give_memory(), or -1 if the device is full. */
int fake_take_memory(const char *path, size_t bytes);
void fake_give_memory(int fd);
/* Milliseconds after the death of a process until its memory is free. */
unsigned long fake_free_ms(void);
/* True if a kernel may use the address: of the device, or of cuMemHostAlloc. */
bool fake_kernel_may_use(const void *address);

#endif
