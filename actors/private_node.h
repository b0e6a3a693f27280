/* private_node.h - a daemon and a Redis of this driver's own, that end with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_PRIVATE_NODE_H
#define TDM_ACTORS_PRIVATE_NODE_H

#include <stddef.h>
#include <tandem/runtime.h>

struct tdm__private_node;

/* Starts tandemd (TANDEM_DAEMON names it; else it is looked for beside this program, beside
 * libtandem, and in PATH) and waits until it answers. */
tdm_status tdm__private_node_start(const struct tdm_runtime_options *options, int64_t timeout_ms,
                                   struct tdm__private_node **node_out);
/* "unix:/…/tandemd.sock" */
const char *tdm__private_node_address(const struct tdm__private_node *node);
/* How the daemon ended, if it has: "the daemon (pid 12) ended by signal 9 (killed)"; else "".
 */
void tdm__private_node_exit_text(struct tdm__private_node *node, char *text, size_t text_bytes);
/* Lets the daemon end in good order, at most `timeout_ms`, then kills; frees. */
void tdm__private_node_stop(struct tdm__private_node *node, int64_t timeout_ms);

#endif
