/* oom.h - finds out whether the kernel has killed a process for lack of memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_OOM_H
#define TDM_RUNTIME_OOM_H

#include <stdint.h>

/* Counts of the out-of-memory kills of the kernel at the last check.  The kernel counts them for
 * each memory cgroup (v2: memory.events, v1: memory.oom_control) and for the whole machine
 * (/proc/vmstat).  If the count of the cgroup has risen since the last check, a process of this
 * cgroup was killed for lack of memory.  If only the count of the machine has risen, that is a
 * mere suspicion. */
struct tdm__oom {
    /* Number of out-of-memory kills in the cgroup of this process; -1 if it cannot be read. */
    int64_t cgroup_kills;
    /* Number of out-of-memory kills on this machine; -1 if it cannot be read. */
    int64_t machine_kills;
    /* Path of the file that contains the count of the cgroup; "" if no such file exists. */
    char cgroup_file[512];
    char machine_file[64]; /* Path of the file that contains the count of the machine. */
};

/* Whether a process that was killed since the last check ran out of memory. */
enum tdm__oom_verdict {
    TDM__OOM_NO,  /* The kernel has counted no out-of-memory kill. */
    TDM__OOM_YES, /* The kernel has counted an out-of-memory kill in the cgroup of this process. */
    /* The kernel has counted an out-of-memory kill on this machine, but none in the cgroup of this
     * process. */
    TDM__OOM_PERHAPS,
    TDM__OOM_UNKNOWN /* The kernel's counts of out-of-memory kills cannot be read. */
};

/* Finds the kernel's files with the counts of out-of-memory kills and reads them for the first
 * time.  `root` is put before "/proc" and "/sys"; it is "" except in tests. */
void tdm__oom_init(struct tdm__oom *oom, const char *root);
/* Reads the counts of out-of-memory kills again and returns what they say about the time since the
 * last check. */
enum tdm__oom_verdict tdm__oom_check(struct tdm__oom *oom);

#endif
