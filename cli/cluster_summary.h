/* cluster_summary.h - a summary of a cluster: numbers of nodes and actors, and used resources. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_CLUSTER_SUMMARY_H
#define TDM_CLI_CLUSTER_SUMMARY_H

#include <stdio.h>
#include <tandem/state.h>

enum {
    TDM__SUMMARY_STATES = 6,        /* Number of states of an actor. */
    TDM__SUMMARY_RESOURCES_MAX = 64 /* Largest number of kinds of resources in a summary. */
};

/* Summary of a cluster. All zero is an empty summary. */
struct tdm__cluster_summary {
    uint32_t nodes;          /* Number of nodes of the cluster. */
    uint32_t missing_nodes;  /* Number of nodes that did not reply when they were asked. */
    uint32_t groups;         /* Number of placement groups in the cluster. */
    uint32_t waiting_actors; /* Number of actors that wait for resources or for their name. */
    uint32_t waiting_groups; /* Number of placement groups that wait for resources. */
    /* Number of actors in each state, in the order ALIVE, PENDING, STARTING, RESTARTING, ENDING,
     * DEAD. */
    uint32_t actors[TDM__SUMMARY_STATES];
    /* Free and total amount of each kind of resource, summed over all nodes. The names are borrowed
     * from the list of nodes. */
    struct tdm_amount amounts[TDM__SUMMARY_RESOURCES_MAX];
    uint32_t amounts_count; /* Number of kinds of resources in `amounts`. */
};

/* Adds a list of nodes to the summary. The list must outlive the summary. */
void tdm__cluster_summary_add_nodes(struct tdm__cluster_summary *cluster_summary,
                                    const struct tdm_node_state *nodes, uint32_t nodes_count);
/* Adds a list of actors to the summary, which counts them by state. */
void tdm__cluster_summary_add_actors(struct tdm__cluster_summary *cluster_summary,
                                     const struct tdm_actor_state *actors, uint32_t actors_count);
/* Adds a list of placement groups to the summary. */
void tdm__cluster_summary_add_groups(struct tdm__cluster_summary *cluster_summary,
                                     const struct tdm_placement_group_state *groups,
                                     uint32_t groups_count);
/* Prints the summary of a cluster as text. */
void tdm__cluster_summary_print(const struct tdm__cluster_summary *cluster_summary, FILE *stream);
/* Prints the summary of a cluster as one JSON object on a line. */
void tdm__cluster_summary_print_json(const struct tdm__cluster_summary *cluster_summary,
                                     FILE *stream);

#endif
