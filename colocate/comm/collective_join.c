/* collective_join.c - joins a group through the rendezvous service of the node's daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* This file implements tdm_collective_join(). It owns nothing after the call: the group owns its
 * communicator.
 *
 * On one node: the daemon replies to rendezvous.join with the descriptor of a shared segment when
 * all members have joined (communicator host). Across nodes: each member listens,
 * rendezvous.join_multi_node returns all addresses and a key, and the members connect a mesh
 * (communicator tcp). If it turns out that all are on one node, they join once more on that node
 * under a name with the key. With on_gpu, NCCL is opened on top, with the first communicator as
 * its control communicator; where ranks share a GPU, the communicator staged (gpu/open.h).
 *
 * The calling thread blocks until the group is complete. rendezvous_service.h specifies the
 * methods. */

#include "actors/process/runtime.h"
#include "colocate/comm/collective.h"
#include "colocate/comm/gpu/open.h"
#include "colocate/comm/host/host.h"
#include "colocate/comm/tcp/tcp.h"
#include "colocate/device/kinds.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/rpc/rpc.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    /* Milliseconds to wait for all members if the options do not say. */
    TIMEOUT_MS_DEFAULT = 60000,
    /* Bytes of a slot or chunk if the options do not say. */
    SLOT_BYTES_DEFAULT = 1 << 20,
    /* Milliseconds that a call waits beyond its own timeout, so that the daemon's error, which
     * names the missing ranks, arrives first. */
    GRACE_MS = 2000
};

/* The options of a join, with defaults filled in. All pointers are borrowed. */
struct join_options {
    tdm_runtime *runtime; /* Runtime of the actor. */
    const char *name;     /* Name of the group. */
    uint32_t rank;        /* Rank of this process. */
    uint32_t ranks_count; /* Number of ranks of the group. */
    size_t slot_bytes;    /* Bytes of a slot or a chunk. */
    /* Milliseconds for the join and for each operation. */
    int64_t timeout_ms;
    bool on_gpu; /* True if the group shall move data of GPUs. */
};

/* ---- on one node ------------------------------------------------------------------------ */

/* Calls rendezvous.join and returns the descriptor of the group's segment, which the caller must
 * close. */
static tdm_status call_rendezvous(struct tdm__conn *daemon, const struct join_options *join_options,
                                  int *fd_out)
{
    const struct tdm__rendezvous_join_message message = {
        join_options->name, join_options->rank, join_options->ranks_count, join_options->slot_bytes,
        join_options->timeout_ms};
    struct tdm__rpc_request request = {.method = "rendezvous.join"};
    uint32_t fds_count = 1;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__rendezvous_join_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        request.deadline_ms =
            tdm__deadline_after(tdm__timeout_add(join_options->timeout_ms, GRACE_MS));
        status = tdm__conn_call_wait(daemon, &request, NULL, fd_out, &fds_count);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK && fds_count != 1) {
        return tdm__fail(TDM_E_PROTOCOL, "the daemon's reply to rendezvous.join has no descriptor");
    }
    return status;
}

/* Joins a group whose members are on this node. */
static tdm_status join_one_node(const struct join_options *join_options,
                                struct tdm__comm **comm_out)
{
    struct tdm__conn *daemon;
    tdm_status status;
    int fd = -1;

    TDM_TRY(tdm__runtime_daemon(join_options->runtime, &daemon));
    TDM_TRY(call_rendezvous(daemon, join_options, &fd));
    status = tdm__comm_host_open(fd, join_options->rank, join_options->timeout_ms, comm_out);
    (void)close(fd);
    return status;
}

/* ---- across nodes ----------------------------------------------------------------------- */

/* The members of a group across nodes. The addresses point into the daemon's reply. */
struct rendezvous_members {
    /* Key of the group, which members present when they connect. */
    struct tdm__id key;
    bool is_one_node; /* True if all members are on one node. */
    /* Address of each rank; NULL if it does not listen. */
    const char *addresses[TDM_COLLECTIVE_RANKS_MAX];
};

/* Decodes the members of a complete group from the daemon's reply. */
static tdm_status read_rendezvous_members(const tdm_value *reply, uint32_t ranks_count,
                                          struct rendezvous_members *members_out)
{
    struct tdm__rendezvous_members_message message;
    struct tdm__id first_node = {{0}};

    TDM_TRY(tdm__rendezvous_members_decode(reply, &message));
    if (ranks_count > TDM_COLLECTIVE_RANKS_MAX || message.members.count != ranks_count) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "the daemon's reply to rendezvous.join_multi_node has %u members",
                         message.members.count);
    }
    members_out->key = message.key;
    members_out->is_one_node = true;
    for (uint32_t i = 0; i < ranks_count; i++) {
        struct tdm__rendezvous_member_message member;

        tdm__message_list_read(&message.members, i, &member, sizeof(member));
        first_node = i == 0 ? member.node : first_node;
        members_out->addresses[i] = member.address;
        members_out->is_one_node =
            members_out->is_one_node && tdm__id_equal(&member.node, &first_node);
    }
    return TDM_OK;
}

/* Calls rendezvous.join_multi_node and blocks until all members have joined. */
static tdm_status join_and_await_members(const struct join_options *join_options,
                                         const char *node_id, const char *address,
                                         tdm_document **document_out)
{
    struct tdm__rendezvous_across_message message = {.name = join_options->name,
                                                     .rank = join_options->rank,
                                                     .ranks_count = join_options->ranks_count,
                                                     .slot_bytes = join_options->slot_bytes,
                                                     .timeout_ms = join_options->timeout_ms,
                                                     .address = address};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__id_parse(node_id, &message.id));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__rendezvous_across_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(
            join_options->runtime, "rendezvous.join_multi_node", tdm_writer_bytes(writer),
            tdm__timeout_add(join_options->timeout_ms, GRACE_MS), document_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Connects the members, or joins them again on their node if all are on one. Takes the mesh on
 * TDM_OK unless all members are on one node. */
static tdm_status connect_members(const struct join_options *join_options,
                                  const struct rendezvous_members *rendezvous_members,
                                  struct tdm__mesh *mesh, struct tdm__comm **comm_out)
{
    char name[TDM__ID_TEXT_BYTES + 160];
    char key[TDM__ID_TEXT_BYTES];
    struct join_options here = *join_options;

    if (rendezvous_members->is_one_node) {
        (void)snprintf(name, sizeof(name), "%.80s/%s", join_options->name,
                       tdm__id_text(&rendezvous_members->key, key));
        here.name = name;
        return join_one_node(&here, comm_out);
    }
    if (mesh == NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "members on several nodes, and this node talks to no other: start its "
                         "daemon with --listen");
    }
    TDM_TRY(tdm__mesh_connect(mesh, &rendezvous_members->key, rendezvous_members->addresses));
    return tdm__comm_tcp_open(mesh, join_options->rank, join_options->ranks_count,
                              join_options->slot_bytes, comm_out);
}

/* Starts to listen for the other members. `mesh_out` is NULL if this node does not listen for
 * other nodes. */
static tdm_status listen_for_members(const struct join_options *join_options,
                                     struct tdm__mesh **mesh_out)
{
    struct tdm__mesh_options options = {.identity_source = join_options->runtime->rpc,
                                        .host = join_options->runtime->listen_host,
                                        .rank = join_options->rank,
                                        .ranks_count = join_options->ranks_count,
                                        .timeout_ms = join_options->timeout_ms};
    TDM__LOCK(join_options->runtime);

    *mesh_out = NULL;
    return options.host[0] == '\0' ? TDM_OK : tdm__mesh_listen(&options, mesh_out);
}

/* Joins a group whose members may be on several nodes; the daemon of `node_id` is the meeting
 * point. */
static tdm_status join_multi_node(const struct join_options *join_options, const char *node_id,
                                  struct tdm__comm **comm_out)
{
    struct tdm__mesh *mesh;
    struct rendezvous_members rendezvous_members;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(listen_for_members(join_options, &mesh));
    status = join_and_await_members(join_options, node_id,
                                    mesh == NULL ? NULL : tdm__mesh_address(mesh), &document);
    if (status == TDM_OK) {
        status = read_rendezvous_members(tdm_document_root(document), join_options->ranks_count,
                                         &rendezvous_members);
        if (status == TDM_OK) {
            status = connect_members(join_options, &rendezvous_members, mesh, comm_out);
        }
        tdm_document_destroy(document);
    }
    if (status != TDM_OK || rendezvous_members.is_one_node) {
        tdm__mesh_destroy(mesh);
    }
    return status;
}

/* ---- on GPUs ---------------------------------------------------------------------------- */

/* Opens the collective library of the process's kind of device over the control communicator
 * `comm`; `*comm_out` then owns `comm`. For kinds without one `*comm_out` is `comm`. On failure
 * `comm` stays the caller's. */
static tdm_status add_gpu_library(const struct join_options *join_options, struct tdm__comm *comm,
                                  struct tdm__comm **comm_out)
{
    struct tdm__comm_gpu_options options = {.control_comm = comm,
                                            .timeout_ms = join_options->timeout_ms,
                                            .slot_bytes = join_options->slot_bytes};
    const struct tdm__device_kind *kind;
    char uuid[TDM__UUID_BYTES];

    if (join_options->runtime->gpus_count == 0) {
        return tdm__fail(TDM_E_INVAL, "on_gpu, but this actor has no GPU: ask for one in its "
                                      "options");
    }
    TDM_TRY(tdm__device_of_process(join_options->runtime->gpu_indices[0], &kind, uuid));
    switch (kind->collective) {
    case TDM__DEVICE_COLLECTIVE_NCCL:
        options.gpu_uuid = uuid;
        return tdm__comm_gpu_open(&options, comm_out);
    case TDM__DEVICE_COLLECTIVE_HOST:
        break;
    }
    *comm_out = comm;
    return TDM_OK;
}

/* ---- join --------------------------------------------------------------------------------- */

/* Leaves the communicator after a failure and restores the error detail. */
static void leave_after_failure(struct tdm__comm *comm, tdm_status status)
{
    char why[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(why, sizeof(why), "%s", tdm_error_detail());
    comm->ops->destroy(comm);
    (void)tdm__fail(status, "%s", why);
}

tdm_status tdm_collective_join(tdm_runtime *runtime, const struct tdm_collective_options *options,
                               tdm_collective_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    const struct join_options join_options = {
        .runtime = runtime,
        .name = options->name,
        .rank = options->rank,
        .ranks_count = options->ranks_count,
        .slot_bytes = options->slot_bytes != 0 ? options->slot_bytes : SLOT_BYTES_DEFAULT,
        .timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : TIMEOUT_MS_DEFAULT,
        .on_gpu = options->on_gpu != 0};
    struct tdm__comm *comm;
    tdm_status status;

    if (options->name == NULL || options->name[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "a group needs a name");
    }
    status = options->node_id == NULL ? join_one_node(&join_options, &comm)
                                      : join_multi_node(&join_options, options->node_id, &comm);
    if (status == TDM_OK) {
        status = join_options.on_gpu ? add_gpu_library(&join_options, comm, &comm) : TDM_OK;
        if (status == TDM_OK) {
            status = tdm__collective_wrap(comm, group_out);
        }
        if (status != TDM_OK) {
            leave_after_failure(comm, status);
        }
    }
    return tdm__wrap(status, "group %s: rank %u of %u", options->name, options->rank,
                     options->ranks_count);
}
