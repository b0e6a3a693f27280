/* mesh_fixture.c - ranks of a mesh on this machine, without a cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mesh_fixture.h"

#include "colocate/comm/tcp/tcp.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

const uint8_t mesh_fixture_token[TDM__TOKEN_BYTES] = {1, 2, 3};

tdm_status mesh_fixture_endpoint(const uint8_t *token, struct tdm__rpc **rpc_out)
{
    const struct tdm__peer_identity self = {
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

void mesh_fixture_end(struct tdm__rpc *rpc)
{
    struct tdm__loop *loop = tdm__rpc_loop(rpc);

    tdm__rpc_destroy(rpc);
    tdm__loop_destroy(loop);
}

tdm_status mesh_fixture_listen(uint32_t rank, uint32_t ranks_count, int64_t timeout_ms,
                               const uint8_t *token, struct tdm__mesh **mesh_out)
{
    struct tdm__mesh_options options = {
        .host = "127.0.0.1", .rank = rank, .ranks_count = ranks_count, .timeout_ms = timeout_ms};
    struct tdm__rpc *identity_source;
    tdm_status status = mesh_fixture_endpoint(token, &identity_source);

    if (status != TDM_OK) {
        return status;
    }
    options.identity_source = identity_source;
    status = tdm__mesh_listen(&options, mesh_out);
    mesh_fixture_end(identity_source);
    return status;
}

/* ---- a communicator ---------------------------------------------------------------------- */

enum { RANKS_MAX = TDM_COLLECTIVE_RANKS_MAX };

/* What the daemons do elsewhere: ranks leave their addresses, and wait for the others'. */
struct rendezvous_fd {
    uint32_t ranks_count;
    size_t piece_bytes;
    char addresses[RANKS_MAX][64];
    sem_t told[RANKS_MAX]; /* Once for each rank. */
};

static const struct tdm__id group_key = {{7}};

static struct rendezvous_fd *map_meeting(int fd)
{
    void *at = mmap(NULL, sizeof(struct rendezvous_fd), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

int mesh_fixture_meeting(uint32_t ranks_count, size_t slot_bytes)
{
    int fd = memfd_create("rendezvous_fd", MFD_CLOEXEC);
    struct rendezvous_fd *rendezvous_fd;

    assert_int_equal(ftruncate(fd, sizeof(*rendezvous_fd)), 0);
    rendezvous_fd = map_meeting(fd);
    assert_non_null(rendezvous_fd);
    rendezvous_fd->ranks_count = ranks_count;
    rendezvous_fd->piece_bytes = slot_bytes;
    for (uint32_t i = 0; i < ranks_count; i++) {
        assert_int_equal(sem_init(&rendezvous_fd->told[i], 1, 0), 0);
    }
    (void)munmap(rendezvous_fd, sizeof(*rendezvous_fd));
    return fd;
}

static void exchange_addresses(struct rendezvous_fd *rendezvous_fd, uint32_t rank, const char *own,
                               const char *addresses[RANKS_MAX])
{
    (void)snprintf(rendezvous_fd->addresses[rank], sizeof(rendezvous_fd->addresses[rank]), "%s",
                   own);
    for (uint32_t i = 0; i < rendezvous_fd->ranks_count; i++) {
        (void)sem_post(&rendezvous_fd->told[rank]);
    }
    for (uint32_t i = 0; i < rendezvous_fd->ranks_count; i++) {
        while (sem_wait(&rendezvous_fd->told[i]) != 0) {
        }
        addresses[i] = rendezvous_fd->addresses[i];
    }
}

tdm_status mesh_fixture_open(int fd, uint32_t rank, int64_t timeout_ms, struct tdm__comm **comm_out)
{
    struct rendezvous_fd *rendezvous_fd = map_meeting(fd);
    const char *addresses[RANKS_MAX];
    struct tdm__mesh *mesh;
    tdm_status status = rendezvous_fd == NULL
                            ? TDM_E_NOMEM
                            : mesh_fixture_listen(rank, rendezvous_fd->ranks_count, timeout_ms,
                                                  mesh_fixture_token, &mesh);

    if (status != TDM_OK) {
        return status;
    }
    exchange_addresses(rendezvous_fd, rank, tdm__mesh_address(mesh), addresses);
    status = tdm__mesh_connect(mesh, &group_key, addresses);
    if (status == TDM_OK) {
        status = tdm__comm_tcp_open(mesh, rank, rendezvous_fd->ranks_count,
                                    rendezvous_fd->piece_bytes, comm_out);
    }
    if (status != TDM_OK) {
        tdm__mesh_destroy(mesh);
    }
    (void)munmap(rendezvous_fd, sizeof(*rendezvous_fd));
    return status;
}
