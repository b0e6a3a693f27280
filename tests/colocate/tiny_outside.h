/* tiny_outside.h - outside memory of the smallest job, in the rank or in a process of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_COLOCATE_TINY_OUTSIDE_H
#define TDM_TESTS_COLOCATE_TINY_OUTSIDE_H

#include <stdint.h>
#include <sys/types.h>
#include <tandem/tandem.h>

/* Settings below "trainer" or "engine":
 *   outside_mib         declared MiB of the outside memory "torch"; absent: there is none
 *   outside_used_mib    MiB that are really allocated; absent: a resume fails
 *   outside_in_process  1: another process has the memory, on the GPU, and is killed by a pause, as
 *                       an engine ends its server */
struct tiny_outside {
    const struct tdm_rank_context *context; /* Borrowed. */
    const char *side;                       /* "trainer" or "engine"; static. */
    void *memory;                           /* Owned memory of this process; NULL for none. */
    size_t size_bytes;                      /* Bytes at `memory`. */
    pid_t holder;                           /* Process that has the memory; 0 for none. */
    int holder_stdin;                       /* Its standard input; valid while it runs. */
};

/* Adds the memory to the regions of the rank, if there is any. */
tdm_status tiny_outside_declare(const struct tiny_outside *outside, struct tdm_region_spec *specs,
                                uint32_t *count);
/* The functions resume() and pause() of the rank. */
tdm_status tiny_outside_resume(struct tiny_outside *outside, const char *tag);
tdm_status tiny_outside_pause(struct tiny_outside *outside, const char *tag);

#endif
