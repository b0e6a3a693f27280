/* host.h - the communicator "host" between processes of one node, over shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_HOST_HOST_H
#define TDM_COLOCATE_COMM_HOST_HOST_H

#include "colocate/comm/comm.h"

/* Opens a communicator between processes of one node over the shared segment behind `fd`
 * (colocate/comm/host/segment.h). The descriptor stays the caller's. `timeout_ms` limits each
 * operation. */
tdm_status tdm__comm_host_open(int fd, uint32_t rank, int64_t timeout_ms,
                               struct tdm__comm **comm_out);

#endif
