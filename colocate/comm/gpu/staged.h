/* staged.h - the communicator "staged": moves data of GPUs through host memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_GPU_STAGED_H
#define TDM_COLOCATE_COMM_GPU_STAGED_H

#include "colocate/comm/gpu/options.h"

/* Opens a communicator for data in host memory or on the rank's GPU, for groups in which several
 * ranks share a GPU, which NCCL refuses. The control communicator moves all data; data on a GPU is
 * copied to pinned host memory before and to the GPU afterwards, one slot at a time. Sums are
 * computed in rank order. Fails with TDM_E_UNSUPPORTED without a driver. */
tdm_status tdm__comm_staged_open(const struct tdm__comm_gpu_options *options,
                                 struct tdm__comm **comm_out);

#endif
