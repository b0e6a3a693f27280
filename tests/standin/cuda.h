/* cuda.h - a stand-in for the CUDA driver's library: its parts, and how tests control it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_STANDIN_CUDA_H
#define TDM_TESTS_STANDIN_CUDA_H

#include "colocate/device/cuda/driver_api.h"

#include <stdbool.h>
#include <sys/types.h>

/* Behaves as the driver does where a program can tell, and is strict where the driver leaves
 * things open.  A device is a directory; physical memory is a file there that is held open and
 * locked by everyone who has a handle, an exported descriptor or a mapping: it is in use for
 * exactly as long as one of them lives, whichever process that is, as on the card.  Device
 * addresses cannot be touched by the processor, but while a kernel runs, which is the kernel's
 * own source (kernel_shim.h).
 *
 *   STANDIN_CUDA_DIRECTORY  where the devices are: the same one is the same machine
 *   STANDIN_CUDA_DEVICES    how many (1)
 *   STANDIN_CUDA_BYTES      memory of each (256 MiB)
 *   STANDIN_CUDA_DEFER      1: asynchronous copies happen when they are waited for, not before
 *   STANDIN_CUDA_TOUCH      1: the processor may touch what is mapped, as a kernel may: for
 *                           programs that compute where they are told to keep their data
 *   STANDIN_CUDA_FAIL       "cuMemMap:3:2": the third cuMemMap fails with error 2; any call:
 * "*"
 */

/* ---- for tests, found with dlsym -------------------------------------------------------- */

/* The n-th call of that name from now on fails with `error`, once; 0 never. */
void standin_cuda_fail(const char *name, uint64_t nth, int error);
/* Calls of that name since; of all for "*". */
uint64_t standin_cuda_calls(void);
void standin_cuda_defer(bool defer);
/* The stream gets no further until it is let go as often as it was held. */
void standin_cuda_hold(void *stream, int delta);
/* Reservations, mappings and handles that this process has. */
unsigned standin_cuda_things(void);

/* ---- between its parts ------------------------------------------------------------------ */

enum {
    STANDIN_UNIT = 2 << 20,
    STANDIN_DEVICES_MAX = 8,
    STANDIN_PATH_BYTES = 256,
    CU_INVALID_CONTEXT = 201
};

/* Locks the whole library until the function returns, and fails if it is told to. */
int standin_enter(const char *call, int *locked_out);
void standin_leave(int *locked);
#define ENTER()                                                                                \
    __attribute__((cleanup(standin_leave))) int entered = 0;                                   \
    int told = standin_enter(__func__, &entered);                                              \
    if (told != CU_SUCCESS) {                                                                  \
        return told;                                                                           \
    }

/* The device of the thread's context; -1 if there is none. */
int standin_device(void);
const char *standin_path(int device);
size_t standin_capacity(void);
bool standin_deferring(void);
bool standin_touchable(void);

#define X(name, arguments) int name arguments;
CU_CALLS(X)
#undef X

/* Copies now; either end may be on a device. */
int standin_copy(uint64_t to, uint64_t from, size_t bytes);
/* Lets the processor touch what is mapped, as far as it is mapped for the device, or no more.
 */
int standin_memory_open(bool open);
/* A kernel that was started: run once, which frees it. */
struct standin_kernel;
int standin_kernel_run(struct standin_kernel *kernel);
int standin_submit_kernel(void *stream, struct standin_kernel *kernel);
/* What is not Tandem's own: done with a copy of the argument, while memory is open. */
typedef void standin_work(void *argument);
int standin_submit_work(void *stream, standin_work *work, const void *argument, size_t bytes);
/* The same for other libraries' stand-ins, which do not hold the lock. */
int standin_submit(void *stream, standin_work *work, const void *argument, size_t bytes);
/* The example's kernels: CU_NOT_FOUND or CU_INVALID_HANDLE if it is none of them. */
int standin_ops_find(void **function, const char *name);
int standin_ops_launch(const void *function, void *stream, void **arguments);
/* What is not Tandem's own: done with a copy of the argument, while memory is open. */
typedef void standin_work(void *argument);
int standin_submit_work(void *stream, standin_work *work, const void *argument, size_t bytes);
/* The same for other libraries' stand-ins, which do not hold the lock. */
int standin_submit(void *stream, standin_work *work, const void *argument, size_t bytes);
/* The example's kernels: CU_NOT_FOUND or CU_INVALID_HANDLE if it is none of them. */
int standin_ops_find(void **function, const char *name);
int standin_ops_launch(const void *function, void *stream, void **arguments);
/* Runs all that was put off, in every stream. */
int standin_run_all(void);

#endif
