/* status.c - `tandem status`: prints a summary of a cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster.h"
#include "cli/cluster_summary.h"

#include <stdbool.h>

static struct tdm__option options[] = {
    {"--json", false, NULL}, {"--address", true, NULL}, {NULL, false, NULL}};

/* Collects the lists of the cluster and prints their summary. */
static tdm_status status_print(tdm_runtime *runtime, bool as_json)
{
    struct tdm__cluster_summary cluster_summary = {0};
    const struct tdm_node_state *nodes = NULL;
    const struct tdm_actor_state *actors = NULL;
    const struct tdm_placement_group_state *groups = NULL;
    uint32_t nodes_count;
    uint32_t actors_count;
    uint32_t groups_count;
    tdm_status status = tdm_list_nodes(runtime, TDM__CLUSTER_TIMEOUT_MS, &nodes, &nodes_count);

    if (status == TDM_OK) {
        status = tdm_list_actors(runtime, TDM__CLUSTER_TIMEOUT_MS, &actors, &actors_count,
                                 &cluster_summary.missing_nodes);
    }
    if (status == TDM_OK) {
        status =
            tdm_list_placement_groups(runtime, TDM__CLUSTER_TIMEOUT_MS, &groups, &groups_count);
    }
    if (status == TDM_OK) {
        tdm__cluster_summary_add_nodes(&cluster_summary, nodes, nodes_count);
        tdm__cluster_summary_add_actors(&cluster_summary, actors, actors_count);
        tdm__cluster_summary_add_groups(&cluster_summary, groups, groups_count);
        if (as_json) {
            tdm__cluster_summary_print_json(&cluster_summary, stdout);
        } else {
            tdm__cluster_summary_print(&cluster_summary, stdout);
        }
    }
    tdm_list_free(groups);
    tdm_list_free(actors);
    tdm_list_free(nodes);
    return status;
}

/* Runs `tandem status` and returns the exit code. */
static int status_main(const struct tdm__parsed_arguments *args)
{
    tdm_runtime *runtime;
    tdm_status status = tdm__cluster_join(args, &runtime);

    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    return tdm__cluster_leave(runtime,
                              status_print(runtime, tdm__option_value(args, "--json") != NULL));
}

const struct tdm__command tdm__command_status = {
    .name = "status",
    .summary = "print a summary of a running cluster",
    .help = "usage: tandem status [--json] [--address ADDRESS]\n\n"
            "How many nodes, actors and placement groups there are, how many of the actors\n"
            "and groups wait for resources, and how much of each resource is used.\n\n"
            "  --address  of a node; default: TANDEM_ADDRESS, else the only node here\n",
    .options = options,
    .run = status_main};
