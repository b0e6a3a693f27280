/* replica.c - the trainer ranks that together hold one whole copy of the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/replica.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Bytes of a node's ID as text with its NUL, and of a group's name. */
enum { NODE_ID_BYTES = 33, NAME_BYTES = 128 };

tdm_status replica_init(struct replica *replica, const struct tdm_rank_context *context,
                        uint32_t replicas)
{
    if (replicas == 0 || context->ranks_count % replicas != 0) {
        return tdm_fail(TDM_E_INVAL,
                        "%s: trainer.replicas is %" PRIu32 ", but %" PRIu32
                        " trainer ranks do not divide into %" PRIu32 " replicas",
                        tdm_config_where(context->config, "trainer.replicas"), replicas,
                        context->ranks_count, replicas);
    }
    *replica = (struct replica){.ranks_count = context->ranks_count / replicas};
    replica->rank = context->rank % replica->ranks_count;
    return TDM_OK;
}

/* Joins the group at the node of the replica's first rank. `ids` has the ID of each rank's node. */
static tdm_status join_at_first_rank(struct replica *replica,
                                     const struct tdm_rank_context *context, const char *ids)
{
    uint32_t first = context->rank - replica->rank;
    char name[NAME_BYTES];
    struct tdm_collective_options options = {.name = name,
                                             .rank = replica->rank,
                                             .ranks_count = replica->ranks_count,
                                             .node_id = ids + (size_t)first * NODE_ID_BYTES};
    const char *job;
    const char *model;

    TDM_TRY(tdm_config_string(context->config, "job.name", "job", &job));
    TDM_TRY(tdm_config_string(context->config, "update.model", "policy", &model));
    (void)snprintf(name, sizeof(name), "replica/%.40s/%.40s/%" PRIu32, job, model,
                   first / replica->ranks_count);
    return tdm_collective_join(tdm_runtime_current(), &options, &replica->group);
}

tdm_status replica_join(struct replica *replica, const struct tdm_rank_context *context)
{
    struct tdm_runtime_info info;
    char own[NODE_ID_BYTES];
    tdm_status status;
    char *ids;

    if (context->group == NULL || replica->ranks_count == 1 ||
        replica->ranks_count == context->ranks_count) {
        return TDM_OK;
    }
    ids = calloc(context->ranks_count, NODE_ID_BYTES);
    if (ids == NULL) {
        return tdm_fail(TDM_E_NOMEM, "nodes of %" PRIu32 " ranks", context->ranks_count);
    }
    tdm_runtime_describe(tdm_runtime_current(), &info);
    (void)snprintf(own, sizeof(own), "%s", info.node_id);
    status = tdm_collective_all_gather(context->group, own, sizeof(own), ids);
    if (status == TDM_OK) {
        status = join_at_first_rank(replica, context, ids);
    }
    free(ids);
    return status;
}

void replica_leave(struct replica *replica)
{
    tdm_collective_leave(replica->group);
    replica->group = NULL;
}
