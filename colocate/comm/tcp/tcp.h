/* tcp.h - the communicator "tcp" between nodes, over a mesh of TCP connections. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_TCP_TCP_H
#define TDM_COLOCATE_COMM_TCP_TCP_H

#include "colocate/comm/comm.h"
#include "colocate/comm/tcp/mesh.h"

/* Opens a communicator between nodes over a connected mesh, which it owns from TDM_OK on. Larger
 * data is sent in chunks of `chunk_bytes`. */
tdm_status tdm__comm_tcp_open(struct tdm__mesh *mesh, uint32_t rank, uint32_t ranks_count,
                              size_t chunk_bytes, struct tdm__comm **comm_out);

#endif
