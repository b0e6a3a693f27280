/* driver.h - the CUDA driver's library, loaded at run time, and its error messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_DEVICE_CUDA_DRIVER_H
#define TDM_COLOCATE_DEVICE_CUDA_DRIVER_H

#include "colocate/device/cuda/driver_api.h"
#include "colocate/device/device.h"

/* The functions of the CUDA driver, by their names. One static instance per process. */
struct tdm__cuda_driver {
/* NOLINTNEXTLINE(bugprone-macro-parentheses) a declaration cannot have them */
#define X(name, arguments) int(*name) arguments;
    CU_CALLS(X)
#undef X
};

/* Opens libcuda.so.1, or what the environment's TANDEM_CUDA_LIBRARY says instead (another path
 * of the driver's library), and initialises it; once per process, any thread.  Makes no
 * context.  TDM_E_UNSUPPORTED where there is no driver or no GPU, and why. */
tdm_status tdm__cuda_driver(const struct tdm__cuda_driver **driver_out);

/* Converts the result of a driver call: TDM_OK for CU_SUCCESS, TDM_E_DEVICE_FULL for
 * CU_OUT_OF_MEMORY, else TDM_E_DEVICE. The error detail has the formatted call and the driver's
 * name and text of the error. After some errors, such as an illegal address in a kernel, every
 * later CUDA call of the process fails: such a result is reported to tdm__process_fault_report(),
 * which ends an actor and does not return then. */
__attribute__((format(printf, 2, 3))) tdm_status tdm__cuda_check(int result, const char *format,
                                                                 ...);

/* The time in which a GPU's context is current on a thread. Ends with the block that declares it,
 * by TDM__CUDA_SCOPE(). */
struct tdm__cuda_scope {
    /* The driver whose context is current; NULL before tdm__cuda_scope_enter() has succeeded. */
    const struct tdm__cuda_driver *driver;
};

/* Makes a context current on the calling thread until the scope ends. Afterwards the thread has the
 * context that it had before, so that the current device of PyTorch, an engine or the user's own
 * code is what it was. Scopes may be nested. */
tdm_status tdm__cuda_scope_enter(const struct tdm__cuda_driver *driver, void *context,
                                 struct tdm__cuda_scope *scope);
/* Ends a scope, entered or not. TDM__CUDA_SCOPE() arranges the call. */
void tdm__cuda_scope_leave(struct tdm__cuda_scope *scope);

/* Declares the scope `name`, which ends with the block of this line. */
#define TDM__CUDA_SCOPE(name)                                                                      \
    __attribute__((cleanup(tdm__cuda_scope_leave))) struct tdm__cuda_scope name = {NULL}

/* A GPU that this process can see. */
struct tdm__cuda_gpu {
    /* "GPU-", or "MIG-" for an instance of a partitioned GPU, and 32 hexadecimal digits in five
     * groups: the form of CUDA_VISIBLE_DEVICES. */
    char uuid[TDM__UUID_BYTES];
    char name[64];      /* Name of the model, as the driver reports it. */
    size_t total_bytes; /* Size of the GPU's memory. */
    /* The driver's device number, which is valid only in this process. */
    int device;
};

/* Writes the number of GPUs that the driver reports. */
tdm_status tdm__cuda_gpus_count(uint32_t *count_out);
/* Writes the GPU at `index` in the driver's order. The order is not stable: use it to list GPUs
 * only. */
tdm_status tdm__cuda_gpu_at(uint32_t index, struct tdm__cuda_gpu *gpu_out);
/* Finds a GPU by its UUID. TDM_E_NOT_FOUND names the GPUs that are visible. */
tdm_status tdm__cuda_gpu_find(const char *uuid, struct tdm__cuda_gpu *gpu_out);

#endif
