/* memory_usage.h - how much shared memory the processes of a node hold, all together. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_MEMORY_USAGE_H
#define TDM_ACTORS_OBJECTS_MEMORY_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* A file in the node's directory, mapped by each process that has large values: the limit, the
 * bytes taken, and a slot for each process with its own part.  A slot is its process's while
 * that holds a lock on it, which the kernel takes back when the process ends, however it ends:
 * whoever finds the store full looks for such parts and gives them back.  Nothing here can hurt
 * but the count: a process that lies takes memory from the others, as it could anyway. */
struct tdm__memory_usage;

enum { TDM__MEMORY_USAGE_SLOTS = 1024 };

struct tdm__memory_usage_totals {
    uint64_t limit_bytes;
    uint64_t used_bytes; /* in memory, idle segments included */
    uint64_t spilled_bytes;
};

/* The daemon's: makes the file. */
tdm_status tdm__memory_usage_create_file(const char *directory, uint64_t limit_bytes);

/* TDM_E_NOT_FOUND where there is none: then nothing is limited.  TDM_E_LIMIT when every slot is
 * taken. */
tdm_status tdm__memory_usage_open(const char *directory, struct tdm__memory_usage **usage_out);
/* What this process had taken is given back.  NULL is allowed. */
void tdm__memory_usage_close(struct tdm__memory_usage *usage);

/* False, and nothing taken, where that would be more than the limit. */
bool tdm__memory_usage_reserve(struct tdm__memory_usage *usage, uint64_t bytes);
/* Over the limit if it must be. */
void tdm__memory_usage_reserve_over_limit(struct tdm__memory_usage *usage, uint64_t bytes);
void tdm__memory_usage_release(struct tdm__memory_usage *usage, uint64_t bytes);
/* How many bytes must be given before so many can be taken. */
uint64_t tdm__memory_usage_shortage(const struct tdm__memory_usage *usage, uint64_t bytes);
void tdm__memory_usage_add_spilled(struct tdm__memory_usage *usage, int64_t change_bytes);
void tdm__memory_usage_read(const struct tdm__memory_usage *usage,
                            struct tdm__memory_usage_totals *sums_out);

/* Somebody waits for so many bytes, for the next second; those who hold some look at it. */
void tdm__memory_usage_set_pressure(struct tdm__memory_usage *usage, uint64_t bytes);
/* How many bytes are waited for; 0: none. */
uint64_t tdm__memory_usage_pressure(const struct tdm__memory_usage *usage);

#endif
