/* glance.h - a cluster at a glance: how many of what, and how much of it is used. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_GLANCE_H
#define TDM_CLI_GLANCE_H

#include <stdio.h>
#include <tandem/state.h>

enum { TDM__GLANCE_STATES = 6, TDM__GLANCE_KINDS_MAX = 64 };

struct tdm__glance {
    uint32_t nodes;
    uint32_t missing_nodes;
    uint32_t groups;
    uint32_t actors[TDM__GLANCE_STATES];
    struct tdm_amount amounts[TDM__GLANCE_KINDS_MAX]; /* names borrowed from the nodes */
    uint32_t amounts_count;
};

/* From lists that were taken already. */
void tdm__glance_add_nodes(struct tdm__glance *glance, const struct tdm_node_state *nodes,
                           uint32_t nodes_count);
void tdm__glance_add_actors(struct tdm__glance *glance, const struct tdm_actor_state *actors,
                            uint32_t actors_count);
/* For people, and for programs. */
void tdm__glance_print(const struct tdm__glance *glance, FILE *stream);
void tdm__glance_print_json(const struct tdm__glance *glance, FILE *stream);

#endif
