/* memory.c - finds out whether the data of an operation lies on a GPU. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/gpu/memory.h"

#include "runtime/error.h"

/* Asks the driver for the kind of memory at one address. Memory that CUDA does not know is host
 * memory. */
static tdm_status memory_at(const struct tdm__cuda_driver *driver, const void *address,
                            enum tdm__comm_memory *memory_out)
{
    unsigned type = 0;
    int result =
        driver->cuPointerGetAttribute(&type, CU_POINTER_MEMORY_TYPE, (uint64_t)(uintptr_t)address);

    *memory_out = result == CU_SUCCESS && type == CU_MEMORY_IS_DEVICE ? TDM__COMM_MEMORY_GPU
                                                                      : TDM__COMM_MEMORY_HOST;
    return result == CU_INVALID_VALUE
               ? TDM_OK
               : tdm__cuda_check(result, "cuPointerGetAttribute of %p", address);
}

tdm_status tdm__gpu_memory_of(const struct tdm__cuda_driver *driver, const void *in,
                              const void *out, enum tdm__comm_memory *memory_out)
{
    enum tdm__comm_memory memory = TDM__COMM_MEMORY_HOST;
    enum tdm__comm_memory out_memory;

    if (in != NULL) {
        TDM_TRY(memory_at(driver, in, &memory));
    }
    if (out != NULL) {
        TDM_TRY(memory_at(driver, out, &out_memory));
        if (in != NULL && out_memory != memory) {
            return tdm__fail(TDM_E_INVAL,
                             "the data to send lies in %s memory and the result in %s memory: both "
                             "must be in the same kind of memory",
                             memory == TDM__COMM_MEMORY_GPU ? "GPU" : "host",
                             out_memory == TDM__COMM_MEMORY_GPU ? "GPU" : "host");
        }
        memory = out_memory;
    }
    *memory_out = memory;
    return TDM_OK;
}
