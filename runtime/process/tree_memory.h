/* tree_memory.h - how much memory the processes below another one use. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_TREE_MEMORY_H
#define TDM_RUNTIME_PROCESS_TREE_MEMORY_H

#include <stdint.h>
#include <sys/types.h>
#include <tandem/error.h>

/* Adds up the private memory of all descendants of the process `root`, without `root` itself:
 * the resident pages that no file and no shared memory backs (RssAnon of /proc/PID/status). Pages
 * that a forked process still shares with its parent count twice. Processes that start or end
 * meanwhile may be missing. TDM_E_IO if /proc cannot be read. Any thread may call it. */
tdm_status tdm__tree_private_bytes(pid_t root, uint64_t *bytes_out);

#endif
