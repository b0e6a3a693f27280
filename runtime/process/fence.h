/* fence.h - the page by which a daemon tells its supervisor which processes end with a lease. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_FENCE_H
#define TDM_RUNTIME_PROCESS_FENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <tandem/error.h>

/* Memory that a daemon shares with its supervisor. The daemon writes the end of its node's lease
 * and a list of processes into it; at that time the supervisor kills these processes, even if the
 * daemon is stopped or busy. The daemon's loop thread writes and the supervisor reads, without
 * locks. */
struct tdm__fence;

/* Most processes in a fence. */
enum { TDM__FENCED_PROCESSES_MAX = 1 << 16 };

/* Creates an empty fence without an end. Must be called before the daemon is forked from its
 * supervisor. The memory is freed when both processes have ended. */
tdm_status tdm__fence_create(struct tdm__fence **fence_out);

/* Sets the end of the lease, in milliseconds on CLOCK_BOOTTIME; 0 for a lease that never ends. A
 * supervisor that sleeps until an earlier end wakes up then and sees the later one. */
void tdm__fence_set_end(struct tdm__fence *fence, int64_t end_ms);
/* Adds the process `pid` to the list. Returns false, after a message in the log, if the list is
 * full: the process must be killed then. A process that has ended is not added. With `fence` NULL
 * it returns true and does nothing. */
bool tdm__fence_covers(struct tdm__fence *fence, pid_t pid);
/* Removes the process `pid` from the list, if it is there. `fence` may be NULL. */
void tdm__fence_remove(struct tdm__fence *fence, pid_t pid);

/* For the supervisor: kills the processes in the list by SIGKILL if the lease has ended by `now_ms`
 * on CLOCK_BOOTTIME. Returns the milliseconds after which to call again, at most a second. Never
 * blocks. A process is killed only if it is the one that was added, not a later one with the same
 * process id. */
int tdm__fence_enforce(struct tdm__fence *fence, int64_t now_ms);

#endif
