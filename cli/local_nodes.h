/* local_nodes.h - finds the daemons of this user that run on this machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_LOCAL_NODES_H
#define TDM_CLI_LOCAL_NODES_H

#include <stddef.h>
#include <tandem/error.h>

/* Calls fn(arg, directory) for the directory of each daemon of this user that runs on this machine
 * and has a directory in tdm__directory_parent_path(). */
void cli_local_nodes_each(void (*fn)(void *arg, const char *directory), void *arg);
/* Writes the address of the daemon that `tandem start` has started, or else of this user's only
 * daemon on this machine, to `address`. Returns TDM_E_NOT_FOUND if absent, and TDM_E_INVAL,
 * with the addresses, if there are several. */
tdm_status cli_local_node_find_only(char *address, size_t address_bytes);

#endif
