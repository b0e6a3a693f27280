/* node_processes.h - signals to all processes of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_NODE_PROCESSES_H
#define TDM_TESTS_SUPPORT_NODE_PROCESSES_H

#include <sys/types.h>

/* Sends the signal to a process, such as the supervisor of a node, and to all its descendants. With
 * SIGSTOP the node is as silent as one without power, but can go on. */
void node_processes_signal(pid_t root, int signal);

#endif
