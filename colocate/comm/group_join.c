/* group_join.c - meets the other members of a group through the node's daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/runtime.h"
#include "colocate/comm/comm.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/rpc/rpc.h"

#include <unistd.h>

enum {
    TIMEOUT_MS_DEFAULT = 60000,
    SLOT_BYTES_DEFAULT = 1 << 20,
    GRACE_MS = 2000 /* the daemon knows who is missing: its answer should come before ours */
};

static tdm_status call_meeting(struct tdm__conn *daemon,
                               const struct tdm_group_options *options, int64_t timeout_ms,
                               int *fd_out)
{
    struct tdm__request request = {.method = "meet.join"};
    uint64_t slot_bytes = options->slot_bytes != 0 ? options->slot_bytes : SLOT_BYTES_DEFAULT;
    uint32_t fds_count = 1;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "suuui", options->name, (uint64_t)options->rank,
                      (uint64_t)options->ranks_count, slot_bytes, timeout_ms);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        request.deadline_ms = tdm__deadline_in(tdm__timeout_longer(timeout_ms, GRACE_MS));
        status = tdm__conn_call_wait(daemon, &request, NULL, fd_out, &fds_count);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK && fds_count != 1) {
        return tdm__fail(TDM_E_PROTOCOL, "the daemon answered meet.join without a descriptor");
    }
    return status;
}

tdm_status tdm_group_join(tdm_runtime *runtime, const struct tdm_group_options *options,
                          tdm_group **group_out)
{
    int64_t timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : TIMEOUT_MS_DEFAULT;
    struct tdm__conn *daemon;
    struct tdm__comm *comm = NULL;
    tdm_status status;
    int fd = -1;

    if (options->name == NULL || options->name[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "a group needs a name");
    }
    TDM_TRY(tdm__runtime_daemon(runtime, &daemon));
    TDM_TRY(tdm__wrap(call_meeting(daemon, options, timeout_ms, &fd), "group %s: rank %u of %u",
                      options->name, options->rank, options->ranks_count));
    status = tdm__comm_host_open(fd, options->rank, timeout_ms, &comm);
    (void)close(fd);
    if (status != TDM_OK) {
        return status;
    }
    status = tdm__group_wrap(comm, group_out);
    if (status != TDM_OK) {
        comm->ops->destroy(comm);
    }
    return status;
}
