/* cluster_summary.h - a summary of a cluster: how many of what, and how much of it is used. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_CLUSTER_SUMMARY_H
#define TDM_CLI_CLUSTER_SUMMARY_H

#include <stdio.h>
#include <tandem/state.h>

enum { TDM__SUMMARY_STATES = 6, TDM__SUMMARY_RESOURCES_MAX = 64 };

struct tdm__cluster_summary {
    uint32_t nodes;
    uint32_t missing_nodes;
    uint32_t groups;
    uint32_t actors[TDM__SUMMARY_STATES];
    struct tdm_amount amounts[TDM__SUMMARY_RESOURCES_MAX]; /* names borrowed from the nodes */
    uint32_t amounts_count;
};

/* From lists that were taken already. */
void tdm__cluster_summary_add_nodes(struct tdm__cluster_summary *cluster_summary,
                                    const struct tdm_node_state *nodes, uint32_t nodes_count);
void tdm__cluster_summary_add_actors(struct tdm__cluster_summary *cluster_summary,
                                     const struct tdm_actor_state *actors, uint32_t actors_count);
/* For people, and for programs. */
void tdm__cluster_summary_print(const struct tdm__cluster_summary *cluster_summary, FILE *stream);
void tdm__cluster_summary_print_json(const struct tdm__cluster_summary *cluster_summary,
                                     FILE *stream);

#endif
