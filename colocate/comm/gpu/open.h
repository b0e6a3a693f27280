/* open.h - chooses how a group moves data of GPUs: with NCCL, or through host memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_GPU_OPEN_H
#define TDM_COLOCATE_COMM_GPU_OPEN_H

#include "colocate/comm/gpu/options.h"

/* Opens a communicator for data in host memory or on the ranks' GPUs. All ranks call it together;
 * they tell each other their GPUs. If each rank has a GPU of its own, the communicator is "nccl".
 * If ranks share a GPU, which NCCL refuses, it is "staged", unless NCCL_MULTI_RANK_GPU_ENABLE is
 * 1 in the environment of all ranks, with which newer versions of NCCL allow it. Fails with
 * TDM_E_UNSUPPORTED without a driver, or without NCCL where that is needed. */
tdm_status tdm__comm_gpu_open(const struct tdm__comm_gpu_options *options,
                              struct tdm__comm **comm_out);

#endif
