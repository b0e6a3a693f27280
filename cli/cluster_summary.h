/* cluster_summary.h - a summary of a cluster: numbers of nodes and actors, and used resources. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_CLUSTER_SUMMARY_H
#define TDM_CLI_CLUSTER_SUMMARY_H

#include <stdio.h>
#include <tandem/state.h>

/* Number of states of an actor, and most kinds of resources. */
enum { TDM__SUMMARY_STATES = 6, TDM__SUMMARY_RESOURCES_MAX = 64 };

/* Summary of a cluster. All zero is an empty summary. */
struct tdm__cluster_summary {
    uint32_t nodes;         /* Number of nodes. */
    uint32_t missing_nodes; /* Number of nodes that did not reply. */
    uint32_t groups;        /* Number of placement groups. */
    /* Number of actors in each state, in the order ALIVE, PENDING, STARTING, RESTARTING, ENDING,
     * DEAD. */
    uint32_t actors[TDM__SUMMARY_STATES];
    /* Sums over all nodes by kind of resource. The names are borrowed from the list of nodes. */
    struct tdm_amount amounts[TDM__SUMMARY_RESOURCES_MAX];
    uint32_t amounts_count; /* Number of entries in `amounts`. */
};

/* Adds nodes from a list. The list must outlive the summary. */
void tdm__cluster_summary_add_nodes(struct tdm__cluster_summary *cluster_summary,
                                    const struct tdm_node_state *nodes, uint32_t nodes_count);
/* Counts the actors of a list by state. */
void tdm__cluster_summary_add_actors(struct tdm__cluster_summary *cluster_summary,
                                     const struct tdm_actor_state *actors, uint32_t actors_count);
/* Prints the summary as text. */
void tdm__cluster_summary_print(const struct tdm__cluster_summary *cluster_summary, FILE *stream);
/* Prints the summary as one JSON object on a line. */
void tdm__cluster_summary_print_json(const struct tdm__cluster_summary *cluster_summary,
                                     FILE *stream);

#endif
