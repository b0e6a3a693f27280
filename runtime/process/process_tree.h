/* process_tree.h - the children of this process, as the kernel sees them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_PROCESS_TREE_H
#define TDM_RUNTIME_PROCESS_PROCESS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Orphans of a process's descendants become its own children once this has been called. */
void tdm__process_tree_adopt_orphans(void);

/* Calls fn(arg, pid) for each process whose parent is this one, zombies included. */
void tdm__process_tree_each_child(void (*fn)(void *arg, pid_t pid), void *arg);

/* Kills all children, and those that come to this process when their parents die, and reaps
 * them, until none is left or `timeout_ms` has passed.  True when none is left. */
bool tdm__process_tree_kill_all(int64_t timeout_ms);

/* What the variable `name` was set to when the process was started, or by itself in the same
 * place; false when that cannot be told. */
bool tdm__process_environment_value(pid_t pid, const char *name, char *value, size_t room);

/* When the process was started, in the kernel's ticks since boot; INT64_MAX when that cannot be
 * told.  Of two processes the one with the smaller number is the older. */
int64_t tdm__process_start_ticks(pid_t pid);

/* Kills every process of this user, but for this one and its parent, that was started with
 * `assignment` ("NAME=value") in its environment: so whatever a dead daemon left, for children
 * inherit it.  Returns how many. */
uint32_t tdm__process_tree_kill_marked(const char *assignment);

#endif
