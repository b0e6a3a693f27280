/* mesh_world.c - ranks of a mesh on this machine, without a cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mesh_world.h"

#include <unistd.h>

const uint8_t mesh_world_token[TDM__TOKEN_BYTES] = {1, 2, 3};

tdm_status mesh_world_endpoint(const uint8_t *token, struct tdm__rpc **rpc_out)
{
    const struct tdm__identity self = {
        .kind = TDM__PEER_WORKER, .pid = getpid(), .name = "member"};
    struct tdm__loop *loop;
    tdm_status status = tdm__loop_create(&loop);

    if (status != TDM_OK) {
        return status;
    }
    status = tdm__rpc_create(loop, &self, token, rpc_out);
    if (status != TDM_OK) {
        tdm__loop_destroy(loop);
    }
    return status;
}

void mesh_world_end(struct tdm__rpc *rpc)
{
    struct tdm__loop *loop = tdm__rpc_loop(rpc);

    tdm__rpc_destroy(rpc);
    tdm__loop_destroy(loop);
}

tdm_status mesh_world_listen(uint32_t rank, uint32_t ranks_count, int64_t timeout_ms,
                             const uint8_t *token, struct tdm__mesh **mesh_out)
{
    struct tdm__mesh_options options = {.host = "127.0.0.1",
                                        .rank = rank,
                                        .ranks_count = ranks_count,
                                        .timeout_ms = timeout_ms};
    struct tdm__rpc *like;
    tdm_status status = mesh_world_endpoint(token, &like);

    if (status != TDM_OK) {
        return status;
    }
    options.like = like;
    status = tdm__mesh_listen(&options, mesh_out);
    mesh_world_end(like);
    return status;
}
