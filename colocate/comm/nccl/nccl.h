/* nccl.h - the communicator "nccl" over NVIDIA's NCCL: opening. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_NCCL_H
#define TDM_COLOCATE_COMM_NCCL_NCCL_H

#include "colocate/comm/gpu/options.h"

/* Opens a communicator over NCCL for data in host memory or on the rank's GPU; each rank needs a
 * GPU of its own. Fails with TDM_E_UNSUPPORTED without NCCL or a driver. Sums of data on the GPU
 * are computed in NCCL's order, sums of host data in rank order.
 *
 * A failure ends the group: the other ranks are told first, then NCCL is aborted. Both the abort
 * and the destruction of the communicator wait for NCCL at most TDM__NCCL_END_WAIT_MS
 * milliseconds; NCCL then ends on a thread of its own, where it may wait for other ranks. */
tdm_status tdm__comm_nccl_open(const struct tdm__comm_gpu_options *options,
                               struct tdm__comm **comm_out);

#endif
