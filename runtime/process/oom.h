/* oom.h - did the kernel kill for want of memory? */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_OOM_H
#define TDM_RUNTIME_OOM_H

#include <stdint.h>

/* The kernel counts its out-of-memory kills: for each memory cgroup (v2: memory.events, v1:
 * memory.oom_control) and for the machine (/proc/vmstat).  A count that rose between two looks
 * is a verdict on a process of this cgroup that was killed in between; a count of the machine
 * is only a suspicion. */
struct tdm__oom {
    int64_t cgroup_kills; /* -1: cannot be read */
    int64_t machine_kills;
    char cgroup_file[512]; /* "" where there is none */
    char machine_file[64];
};

enum tdm__oom_verdict {
    TDM__OOM_NO,      /* no kill was counted */
    TDM__OOM_YES,     /* in this cgroup */
    TDM__OOM_PERHAPS, /* somewhere on this machine */
    TDM__OOM_UNKNOWN  /* nothing can be read here */
};

/* `root` is "" but in tests. */
void tdm__oom_init(struct tdm__oom *oom, const char *root);
/* Since the last look. */
enum tdm__oom_verdict tdm__oom_check(struct tdm__oom *oom);

#endif
