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

/* Largest number of process ids in struct tdm__reaped. */
enum { TDM__REAPED_PIDS_MAX = 8 };
/* Processes that were reaped. */
struct tdm__reaped {
    uint32_t count;                     /* Number of the processes. */
    int32_t pids[TDM__REAPED_PIDS_MAX]; /* Process ids of the first of them; the rest is 0. */
};

/* Kills all children by SIGKILL and reaps them, including those that become children of this
 * process when their parents die.  Blocks until no child is left (true) or `timeout_ms` has
 * passed (false).  Without children it does not read /proc.  Stores the processes that were
 * reaped in `reaped_out`, which may be NULL. */
bool tdm__process_tree_kill_all(int64_t timeout_ms, struct tdm__reaped *reaped_out);

/* Kills all children by SIGKILL for which is_own(arg, pid) returns false, and reaps those that have
 * ended.  Never blocks.  Returns the number of those that have not ended, and stores the process id
 * of one of them in `left_out`; the caller repeats the call until it returns 0, because killed
 * processes end later and leave children. */
uint32_t tdm__process_tree_kill_others(bool (*is_own)(void *arg, pid_t pid), void *arg,
                                       pid_t *left_out);

/* Kills all processes of this user that were started with `assignment` ("NAME=value") in their
 * environment, except for this process and its parent.  Children inherit the variable, so this
 * finds everything that a dead daemon has left.  Returns the number of processes. */
uint32_t tdm__process_tree_kill_marked(const char *assignment);

#endif
