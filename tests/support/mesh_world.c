/* mesh_world.c - ranks of a mesh on this machine, without a cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mesh_world.h"

#include "colocate/comm/comm.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

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

/* ---- a communicator ---------------------------------------------------------------------- */

enum { RANKS_MAX = 4 };

/* What the daemons do elsewhere: ranks leave their addresses, and wait for the others'. */
struct meeting {
    uint32_t ranks_count;
    size_t piece_bytes;
    char addresses[RANKS_MAX][64];
    sem_t told[RANKS_MAX]; /* once for each rank */
};

static const struct tdm__id group_key = {{7}};

static struct meeting *map_meeting(int fd)
{
    void *at = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

int mesh_world_meeting(uint32_t ranks_count, size_t slot_bytes)
{
    int fd = memfd_create("meeting", MFD_CLOEXEC);
    struct meeting *meeting;

    assert_int_equal(ftruncate(fd, sizeof(*meeting)), 0);
    meeting = map_meeting(fd);
    assert_non_null(meeting);
    meeting->ranks_count = ranks_count;
    meeting->piece_bytes = slot_bytes;
    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(sem_init(&meeting->told[i], 1, 0), 0);
    }
    (void)munmap(meeting, sizeof(*meeting));
    return fd;
}

static void exchange_addresses(struct meeting *meeting, uint32_t rank, const char *own,
                               const char *addresses[RANKS_MAX])
{
    (void)snprintf(meeting->addresses[rank], sizeof(meeting->addresses[rank]), "%s", own);
    for (uint32_t i = 0; i < meeting->ranks_count; i++) {
        (void)sem_post(&meeting->told[rank]);
    }
    for (uint32_t i = 0; i < meeting->ranks_count; i++) {
        while (sem_wait(&meeting->told[i]) != 0) {
        }
        addresses[i] = meeting->addresses[i];
    }
}

tdm_status mesh_world_open(int fd, uint32_t rank, int64_t timeout_ms,
                           struct tdm__comm **comm_out)
{
    struct meeting *meeting = map_meeting(fd);
    const char *addresses[RANKS_MAX];
    struct tdm__mesh *mesh;
    tdm_status status = meeting == NULL
                            ? TDM_E_NOMEM
                            : mesh_world_listen(rank, meeting->ranks_count, timeout_ms,
                                                mesh_world_token, &mesh);

    if (status != TDM_OK) {
        return status;
    }
    exchange_addresses(meeting, rank, tdm__mesh_address(mesh), addresses);
    status = tdm__mesh_connect(mesh, &group_key, addresses);
    if (status == TDM_OK) {
        status = tdm__comm_tcp_open(mesh, rank, meeting->ranks_count, meeting->piece_bytes,
                                    comm_out);
    }
    if (status != TDM_OK) {
        tdm__mesh_destroy(mesh);
    }
    (void)munmap(meeting, sizeof(*meeting));
    return status;
}
