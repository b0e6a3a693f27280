/* abi_cublas.cc - the example's cuda_library.h says what cublas_v2.h and cuda.h say; a difference
 * does not compile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cublas_v2.h>
#include <cuda.h>
#include <tandem/error.h>

#include "tests/gpu/abi.h"

/* Names of values are alike. */
namespace own {
#include "examples/colocated_rl/cuda_library.h"
} // namespace own

#define SAME_FUNCTION(name)                                                                        \
    static_assert(abi::same_function<decltype(&::name), decltype(own::cuda_library::name)>::value, \
                  #name)
SAME_FUNCTION(cuInit);
SAME_FUNCTION(cuGetErrorName);
SAME_FUNCTION(cuDeviceGetCount);
SAME_FUNCTION(cuDeviceGet);
SAME_FUNCTION(cuDeviceGetUuid_v2);
SAME_FUNCTION(cuDevicePrimaryCtxRetain);
SAME_FUNCTION(cuDevicePrimaryCtxRelease_v2);
SAME_FUNCTION(cuCtxSetCurrent);
SAME_FUNCTION(cuStreamCreate);
SAME_FUNCTION(cuStreamDestroy_v2);
SAME_FUNCTION(cuStreamSynchronize);
SAME_FUNCTION(cuMemcpyAsync);
SAME_FUNCTION(cuModuleLoadData);
SAME_FUNCTION(cuModuleUnload);
SAME_FUNCTION(cuModuleGetFunction);
SAME_FUNCTION(cuLaunchKernel);
SAME_FUNCTION(cublasCreate_v2);
SAME_FUNCTION(cublasDestroy_v2);
SAME_FUNCTION(cublasSetStream_v2);
SAME_FUNCTION(cublasSetMathMode);
SAME_FUNCTION(cublasSnrm2_v2);
SAME_FUNCTION(cublasSgemm_v2);
enum { FUNCTIONS_COMPARED = 22 };
static_assert(sizeof(own::cuda_library) == FUNCTIONS_COMPARED * sizeof(void *),
              "a function of cuda_library.h is not compared");

#define SAME(name, vendors) static_assert((int)own::name == (int)(vendors), #name)
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUBLAS_NO_TRANSPOSE, CUBLAS_OP_N);
SAME(CUBLAS_TRANSPOSE, CUBLAS_OP_T);
SAME(CUBLAS_PEDANTIC_MATH, ::CUBLAS_PEDANTIC_MATH);

static_assert(sizeof(own::cuda_uuid) == sizeof(CUuuid), "cuda_uuid");
static_assert((int)CUBLAS_STATUS_SUCCESS == 0, "success");
