/* data.h - the operations of the communicator "nccl" that move data. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_DATA_H
#define TDM_COLOCATE_COMM_NCCL_DATA_H

#include "colocate/comm/comm.h"

/* Functions of struct tdm__comm_ops that move data. */
tdm_status tdm__nccl_all_reduce(struct tdm__comm *comm, void *data, size_t count,
                                enum tdm__comm_dtype dtype, enum tdm_reduction reduction);
tdm_status tdm__nccl_all_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                                void *out);
tdm_status tdm__nccl_reduce_scatter(struct tdm__comm *comm, const float *in, size_t count,
                                    float *out);
tdm_status tdm__nccl_broadcast(struct tdm__comm *comm, void *data, size_t size_bytes,
                               uint32_t root);
tdm_status tdm__nccl_gather(struct tdm__comm *comm, const void *in, size_t bytes_per_rank,
                            void *out, uint32_t root);
tdm_status tdm__nccl_exchange(struct tdm__comm *comm, const struct tdm__comm_exchange *exchange);

#endif
