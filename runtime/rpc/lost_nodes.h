/* lost_nodes.h - the nodes that a process was told are lost, with their epochs. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_LOST_NODES_H
#define TDM_RUNTIME_RPC_LOST_NODES_H

#include "runtime/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* Most nodes in a table of lost nodes; a further one replaces the oldest. */
enum { TDM__LOST_NODES_MAX = 4096 };

/* One lost node. */
struct tdm__lost_node {
    struct tdm__id node; /* ID of the node. */
    uint64_t epoch;      /* Highest epoch of the node in which it is lost. */
};

/* Table of lost nodes. All zeros is an empty table. Its owner calls tdm__lost_nodes_fini(). */
struct tdm__lost_nodes {
    struct tdm__lost_node *entries; /* The lost nodes (owned); NULL while there are none. */
    uint32_t count;                 /* Number of entries in `entries`. */
    uint32_t capacity;              /* Number of entries for which `entries` has memory. */
    uint32_t next; /* Index of the entry that is replaced once the table is full. */
};

/* Adds the node `node`, lost in `epoch`, to the table, or raises the epoch of its entry. */
tdm_status tdm__lost_nodes_add(struct tdm__lost_nodes *lost, const struct tdm__id *node,
                               uint64_t epoch);
/* Returns true if the table says that the node `node` is lost in `epoch` or in a higher one. */
bool tdm__lost_nodes_contain(const struct tdm__lost_nodes *lost, const struct tdm__id *node,
                             uint64_t epoch);
/* Frees the memory of the table, which is empty afterwards. */
void tdm__lost_nodes_fini(struct tdm__lost_nodes *lost);

#endif
