/* started_node.h - the node that `tandem start` has started on this machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_PROCESS_STARTED_NODE_H
#define TDM_ACTORS_PROCESS_STARTED_NODE_H

#include "actors/process/text_sizes.h"

#include <stdbool.h>
#include <stddef.h>
#include <tandem/error.h>

/* What is known about the node that `tandem start` has started for this user on this machine. */
struct tdm__started_node {
    char directory[TDM__ADDRESS_BYTES]; /* Directory of the node's daemon. */
    /* Address of the node's daemon for processes of this machine, "unix:/...". */
    char address[TDM__ADDRESS_BYTES];
    bool is_head; /* Whether the node is the head of its cluster. */
    /* Address at which further nodes join the cluster, "host:port". */
    char cluster_address[TDM__ADDRESS_BYTES];
};

/* Writes the path of the directory of the node that `tandem start` starts for this user on this
 * machine: "tandem-started-UID" in the directory of tdm__directory_parent_path(). A user has at
 * most one such node. */
tdm_status tdm__started_node_directory(char *path, size_t path_bytes);
/* Finds the node that `tandem start` has started. Returns TDM_E_NOT_FOUND if absent, or if
 * it is still starting. */
tdm_status tdm__started_node_find(struct tdm__started_node *node_out);
/* Writes the file in the directory of a started node from which tdm__started_node_find() learns
 * the address of the cluster. */
tdm_status tdm__started_node_write(const char *directory, bool is_head,
                                   const char *cluster_address);

/* Translates an address as users write it to the address of a daemon, "unix:/path" or
 * "tcp:host:port". "auto" means the node that `tandem start` has started (TDM_E_NOT_FOUND without
 * one). "host:port" means that node if it belongs to the cluster with this address, else the daemon
 * at this TCP address. Other texts are copied. */
tdm_status tdm__node_address_resolve(const char *text, char *address, size_t address_bytes);

#endif
