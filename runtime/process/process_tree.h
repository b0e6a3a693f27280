/* process_tree.h - finds and kills processes by parent or by their environment. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_PROCESS_TREE_H
#define TDM_RUNTIME_PROCESS_PROCESS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Makes this process the subreaper of its descendants: when a descendant dies, its children
 * become children of this process. */
void tdm__process_tree_adopt_orphans(void);

/* Calls fn(arg, pid) for each child of this process, zombies included, as /proc lists them. */
void tdm__process_tree_each_child(void (*fn)(void *arg, pid_t pid), void *arg);

/* Kills all children by SIGKILL and reaps them, including those that become children of this
 * process when their parents die.  Blocks until no child is left (true) or `timeout_ms` has
 * passed (false). */
bool tdm__process_tree_kill_all(int64_t timeout_ms);

/* Copies the value of the environment variable `name` of the process `pid` to `value`, a buffer
 * of `capacity_bytes`.  It is the value at the start of the process unless the process has
 * overwritten that memory.  Returns false if the value is not set or cannot be read. */
bool tdm__process_environment_value(pid_t pid, const char *name, char *value,
                                    size_t capacity_bytes);

/* Returns the start time of the process in clock ticks since boot; INT64_MAX if it cannot be
 * read.  Of two processes, the one with the smaller number is the older. */
int64_t tdm__process_start_ticks(pid_t pid);

/* Kills all processes of this user that were started with `assignment` ("NAME=value") in their
 * environment, except for this process and its parent.  Children inherit the variable, so this
 * finds everything that a dead daemon has left.  Returns the number of processes. */
uint32_t tdm__process_tree_kill_marked(const char *assignment);

#endif
