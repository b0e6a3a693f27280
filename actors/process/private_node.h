/* private_node.h - the daemon and the Redis that a driver starts for itself and that end with it.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_PROCESS_PRIVATE_NODE_H
#define TDM_ACTORS_PROCESS_PRIVATE_NODE_H

#include <stddef.h>
#include <tandem/runtime.h>

/* A daemon with its own Redis, started and owned by this driver. Not locked: used only while the
 * runtime starts and stops, and to describe how the daemon ended. */
struct tdm__private_node;

/* Starts tandemd and waits at most `timeout_ms` for it to report that it is ready; see
 * daemon_process.h for the place of the program. On success the caller owns `*node_out`. */
tdm_status tdm__private_node_start(const struct tdm_runtime_options *options, int64_t timeout_ms,
                                   struct tdm__private_node **node_out);
/* Returns the address of the daemon, such as "unix:/.../tandemd.sock". It is valid as long as
 * `node`. */
const char *tdm__private_node_address(const struct tdm__private_node *node);
/* Writes how the daemon ended, such as "the daemon (pid 12) ended by signal 9 (killed)", or "" if
 * it has not ended. Blocks at most 2 s for the end of the supervisor. */
void tdm__private_node_exit_text(struct tdm__private_node *node, char *text, size_t text_bytes);
/* Kills the daemon, because it does not reply; its supervisor then kills all processes of the node.
 * Does not block. */
void tdm__private_node_kill(struct tdm__private_node *node);
/* Asks the daemon to stop, waits at most `timeout_ms` for its graceful end, then kills what is
 * left. Frees `node`. */
void tdm__private_node_stop(struct tdm__private_node *node, int64_t timeout_ms);

#endif
