/* descriptors.h - how many file descriptors this process may have, and how many are left. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_DESCRIPTORS_H
#define TDM_RUNTIME_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

/* Number of descriptors that connections of clients never take: they are kept for what the process
 * itself needs, such as files, memory of other processes, and pidfds. */
enum { TDM__DESCRIPTORS_RESERVED = 32 };
/* Largest number for which tdm__descriptors_are_few() can be asked. */
enum { TDM__DESCRIPTORS_ASKED_MAX = 64 };

/* Raises the soft limit of this process (RLIMIT_NOFILE) to the hard one. Processes that it starts
 * later inherit the limit. A failure is ignored, because the process works with fewer descriptors,
 * too. Any thread may call it. */
void tdm__descriptors_raise_limit(void);
/* Returns the number of descriptors that this process may have: its soft limit. Any thread may call
 * it. */
uint64_t tdm__descriptors_limit(void);
/* Returns true if fewer than `count` descriptors are free. It may take them for a moment to find
 * out. Any thread may call it. */
bool tdm__descriptors_are_few(uint32_t count);

#endif
