/* status.c - `tandem status`: a cluster at a glance. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster.h"
#include "cli/glance.h"

#include <stdbool.h>

static struct tdm__option options[] = {
    {"--json", false, NULL}, {"--address", true, NULL}, {NULL, false, NULL}};

static tdm_status show(tdm_runtime *runtime, bool as_json)
{
    struct tdm__glance glance = {0};
    const struct tdm_node_state *nodes = NULL;
    const struct tdm_actor_state *actors = NULL;
    const struct tdm_group_state *groups = NULL;
    uint32_t nodes_count;
    uint32_t actors_count;
    tdm_status status = tdm_list_nodes(runtime, TDM__CLUSTER_MS, &nodes, &nodes_count);

    if (status == TDM_OK) {
        status = tdm_list_actors(runtime, TDM__CLUSTER_MS, &actors, &actors_count,
                                 &glance.missing_nodes);
    }
    if (status == TDM_OK) {
        status = tdm_list_groups(runtime, TDM__CLUSTER_MS, &groups, &glance.groups);
    }
    if (status == TDM_OK) {
        tdm__glance_add_nodes(&glance, nodes, nodes_count);
        tdm__glance_add_actors(&glance, actors, actors_count);
        if (as_json) {
            tdm__glance_print_json(&glance, stdout);
        } else {
            tdm__glance_print(&glance, stdout);
        }
    }
    tdm_list_free(groups);
    tdm_list_free(actors);
    tdm_list_free(nodes);
    return status;
}

static int run(const struct tdm__words *words)
{
    tdm_runtime *runtime;
    tdm_status status = tdm__cluster_join(words, &runtime);

    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    return tdm__cluster_leave(runtime,
                              show(runtime, tdm__option_value(words, "--json") != NULL));
}

const struct tdm__command tdm__command_status = {
    .name = "status",
    .summary = "show a running cluster at a glance",
    .help = "usage: tandem status [--json] [--address ADDRESS]\n\n"
            "How many nodes, actors and placement groups there are, and how much of each\n"
            "resource is used.\n\n"
            "  --address  of a node; default: TANDEM_ADDRESS, else the only node here\n",
    .options = options,
    .run = run};
