/* group_join.c - meets the other members of a group through the node's daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/runtime.h"
#include "colocate/comm/comm.h"
#include "colocate/comm/tcp/mesh.h"
#include "colocate/device/device.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/rpc/rpc.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    TIMEOUT_MS_DEFAULT = 60000,
    SLOT_BYTES_DEFAULT = 1 << 20,
    GRACE_MS = 2000 /* the daemon knows who is missing: its answer should come before ours */
};

/* What a member asks for, with what it left out filled in. */
struct joining {
    tdm_runtime *runtime;
    const char *name;
    uint32_t rank;
    uint32_t ranks_count;
    size_t slot_bytes;
    int64_t timeout_ms;
    bool on_gpu;
};

/* ---- on one node ------------------------------------------------------------------------ */

static tdm_status call_meeting(struct tdm__conn *daemon, const struct joining *joining,
                               int *fd_out)
{
    const struct tdm__meet_join_message message = {joining->name, joining->rank,
                                                   joining->ranks_count, joining->slot_bytes,
                                                   joining->timeout_ms};
    struct tdm__request request = {.method = "meet.join"};
    uint32_t fds_count = 1;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__meet_join_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        request.deadline_ms =
            tdm__deadline_in(tdm__timeout_longer(joining->timeout_ms, GRACE_MS));
        status = tdm__conn_call_wait(daemon, &request, NULL, fd_out, &fds_count);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK && fds_count != 1) {
        return tdm__fail(TDM_E_PROTOCOL, "the daemon answered meet.join without a descriptor");
    }
    return status;
}

static tdm_status join_here(const struct joining *joining, struct tdm__comm **comm_out)
{
    struct tdm__conn *daemon;
    tdm_status status;
    int fd = -1;

    TDM_TRY(tdm__runtime_daemon(joining->runtime, &daemon));
    TDM_TRY(call_meeting(daemon, joining, &fd));
    status = tdm__comm_host_open(fd, joining->rank, joining->timeout_ms, comm_out);
    (void)close(fd);
    return status;
}

/* ---- across nodes ----------------------------------------------------------------------- */

/* The members, as they came to the meeting. */
struct company {
    struct tdm__id key;
    bool together; /* on one node */
    const char *addresses[TDM__MESH_RANKS_MAX];
};

static tdm_status read_company(const tdm_value *answer, uint32_t ranks_count,
                               struct company *company_out)
{
    struct tdm__meet_members_message message;
    struct tdm__id first_node = {{0}};

    TDM_TRY(tdm__meet_members_decode(answer, &message));
    if (ranks_count > TDM__MESH_RANKS_MAX || message.members.count != ranks_count) {
        return tdm__fail(TDM_E_PROTOCOL, "the daemon answered meet.across with %u members",
                         message.members.count);
    }
    company_out->key = message.key;
    company_out->together = true;
    for (uint32_t i = 0; i < ranks_count; i++) {
        struct tdm__meet_member_message member;

        tdm__message_list_read(&message.members, i, &member, sizeof(member));
        first_node = i == 0 ? member.node : first_node;
        company_out->addresses[i] = member.address;
        company_out->together =
            company_out->together && tdm__id_equal(&member.node, &first_node);
    }
    return TDM_OK;
}

static tdm_status ask_who_comes(const struct joining *joining, const char *node_id,
                                const char *address, tdm_document **document_out)
{
    struct tdm__meet_across_message message = {.name = joining->name,
                                               .rank = joining->rank,
                                               .ranks_count = joining->ranks_count,
                                               .slot_bytes = joining->slot_bytes,
                                               .timeout_ms = joining->timeout_ms,
                                               .address = address};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__id_parse(node_id, &message.id));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__meet_across_encode(&message, writer);
    if (status == TDM_OK) {
        status =
            tdm__runtime_ask(joining->runtime, "meet.across", tdm_writer_bytes(writer),
                             tdm__timeout_longer(joining->timeout_ms, GRACE_MS), document_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Takes the mesh on TDM_OK, unless the members are on one node. */
static tdm_status meet_across(const struct joining *joining, const struct company *company,
                              struct tdm__mesh *mesh, struct tdm__comm **comm_out)
{
    char name[TDM__ID_TEXT_BYTES + 160];
    char key[TDM__ID_TEXT_BYTES];
    struct joining here = *joining;

    if (company->together) {
        (void)snprintf(name, sizeof(name), "%.80s/%s", joining->name,
                       tdm__id_text(&company->key, key));
        here.name = name;
        return join_here(&here, comm_out);
    }
    if (mesh == NULL) {
        return tdm__fail(TDM_E_UNSUPPORTED,
                         "members on several nodes, and this node talks to no other: start its "
                         "daemon with --listen");
    }
    TDM_TRY(tdm__mesh_connect(mesh, &company->key, company->addresses));
    return tdm__comm_tcp_open(mesh, joining->rank, joining->ranks_count, joining->slot_bytes,
                              comm_out);
}

static tdm_status listen_for(const struct joining *joining, struct tdm__mesh **mesh_out)
{
    struct tdm__mesh_options options = {.like = joining->runtime->rpc,
                                        .host = joining->runtime->listen_host,
                                        .rank = joining->rank,
                                        .ranks_count = joining->ranks_count,
                                        .timeout_ms = joining->timeout_ms};
    TDM__LOCK(joining->runtime);

    *mesh_out = NULL;
    return options.host[0] == '\0' ? TDM_OK : tdm__mesh_listen(&options, mesh_out);
}

static tdm_status join_across(const struct joining *joining, const char *node_id,
                              struct tdm__comm **comm_out)
{
    struct tdm__mesh *mesh;
    struct company company;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(listen_for(joining, &mesh));
    status = ask_who_comes(joining, node_id, mesh == NULL ? NULL : tdm__mesh_address(mesh),
                           &document);
    if (status == TDM_OK) {
        status = read_company(tdm_document_root(document), joining->ranks_count, &company);
        if (status == TDM_OK) {
            status = meet_across(joining, &company, mesh, comm_out);
        }
        tdm_document_destroy(document);
    }
    if (status != TDM_OK || company.together) {
        tdm__mesh_destroy(mesh);
    }
    return status;
}

/* ---- on GPUs ---------------------------------------------------------------------------- */

/* What `comm` cannot reach, NCCL does; the members go on meeting on `comm`, which is then part
 * of *comm_out, and the caller's if this fails. */
static tdm_status reach_gpu(const struct joining *joining, struct tdm__comm *comm,
                            struct tdm__comm **comm_out)
{
    struct tdm__comm_nccl_options options = {
        .meeting = comm, .timeout_ms = joining->timeout_ms, .slot_bytes = joining->slot_bytes};
    const struct tdm__device_kind *kind;
    char uuid[TDM__UUID_BYTES];

    if (joining->runtime->gpus_count == 0) {
        return tdm__fail(TDM_E_INVAL, "on_gpu, but this actor has no GPU: ask for one in its "
                                      "options");
    }
    TDM_TRY(tdm__device_here(0, &kind, uuid));
    if (strcmp(kind->name, "cuda") != 0) {
        *comm_out = comm;
        return TDM_OK;
    }
    options.gpu_uuid = uuid;
    return tdm__comm_nccl_open(&options, comm_out);
}

/* ---- all -------------------------------------------------------------------------------- */

/* Leaves what was met, and keeps the words of `status`. */
static void leave(struct tdm__comm *comm, tdm_status status)
{
    char why[TDM__ERROR_DETAIL_BYTES];

    (void)snprintf(why, sizeof(why), "%s", tdm_error_detail());
    comm->ops->destroy(comm);
    (void)tdm__fail(status, "%s", why);
}

tdm_status tdm_group_join(tdm_runtime *runtime, const struct tdm_group_options *options,
                          tdm_group **group_out)
{
    TDM__REQUIRE(group_out);
    *group_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(options);

    const struct joining joining = {
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
    status = options->node_id == NULL ? join_here(&joining, &comm)
                                      : join_across(&joining, options->node_id, &comm);
    if (status == TDM_OK) {
        status = joining.on_gpu ? reach_gpu(&joining, comm, &comm) : TDM_OK;
        if (status == TDM_OK) {
            status = tdm__group_wrap(comm, group_out);
        }
        if (status != TDM_OK) {
            leave(comm, status);
        }
    }
    return tdm__wrap(status, "group %s: rank %u of %u", options->name, options->rank,
                     options->ranks_count);
}
