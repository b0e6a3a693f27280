/* mesh_fixture.h - ranks of a mesh on this machine, without a cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_MESH_FIXTURE_H
#define TDM_TESTS_SUPPORT_MESH_FIXTURE_H

#include "colocate/comm/comm.h"
#include "colocate/comm/tcp/mesh.h"

extern const uint8_t mesh_fixture_token[TDM__TOKEN_BYTES];

/* An endpoint that shows this token; tdm__rpc_destroy() and then its loop's. */
tdm_status mesh_fixture_endpoint(const uint8_t *token, struct tdm__rpc **rpc_out);
void mesh_fixture_end(struct tdm__rpc *rpc);

tdm_status mesh_fixture_listen(uint32_t rank, uint32_t ranks_count, int64_t timeout_ms,
                               const uint8_t *token, struct tdm__mesh **mesh_out);

/* The function mesh_fixture_meeting() returns a descriptor at which the ranks of a group, processes
 * or threads, find each other. Each rank opens a TCP communicator there by mesh_fixture_open(),
 * which blocks for at most `timeout_ms` milliseconds. Messages are cut into pieces of `slot_bytes`.
 */
int mesh_fixture_meeting(uint32_t ranks_count, size_t slot_bytes);
tdm_status mesh_fixture_open(int fd, uint32_t rank, int64_t timeout_ms,
                             struct tdm__comm **comm_out);

#endif
