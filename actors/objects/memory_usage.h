/* memory_usage.h - the bytes of shared memory that all processes of a node use, in one file. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_MEMORY_USAGE_H
#define TDM_ACTORS_OBJECTS_MEMORY_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

/* One process's access to the usage file of its node. The file is mapped by each process that
 * has large values. It contains the limit, the total of used bytes, and one slot for each
 * process with its share. A process owns its slot while it holds a lock on the slot's byte of
 * the file. The kernel releases the lock when the process ends. A process that finds the store
 * full subtracts the shares of slots that are not locked. A wrong entry can only falsify the
 * totals, since no other data depends on them. */
struct tdm__memory_usage;

/* Number of processes of one node that can have large values at a time. */
enum { TDM__MEMORY_USAGE_SLOTS = 1024 };

/* Totals of all processes of a node. */
struct tdm__memory_usage_totals {
    uint64_t limit_bytes;   /* Bytes of shared memory that all processes together may use. */
    uint64_t used_bytes;    /* Bytes of all segments in memory, idle ones included. */
    uint64_t spilled_bytes; /* Bytes of all values that were spilled to disk. */
};

/* Creates the usage file in the node's directory and replaces an older one. Only the daemon
 * calls it. */
tdm_status tdm__memory_usage_create_file(const char *directory, uint64_t limit_bytes);

/* Opens and maps the usage file of the node and acquires a slot. Returns TDM_E_NOT_FOUND if the
 * file does not exist, which means that nothing is limited, and TDM_E_LIMIT if all slots are
 * taken. */
tdm_status tdm__memory_usage_open(const char *directory, struct tdm__memory_usage **usage_out);
/* Subtracts this process's share from the totals and closes the file. NULL is allowed. */
void tdm__memory_usage_close(struct tdm__memory_usage *usage);

/* Adds `bytes` to this process's share. Returns false and adds nothing if the total would exceed
 * the limit. Reclaims the shares of processes that have ended before it fails. */
bool tdm__memory_usage_reserve(struct tdm__memory_usage *usage, uint64_t bytes);
/* Adds `bytes` to this process's share even if the total then exceeds the limit. */
void tdm__memory_usage_reserve_over_limit(struct tdm__memory_usage *usage, uint64_t bytes);
/* Subtracts `bytes`, which must have been reserved, from this process's share. */
void tdm__memory_usage_release(struct tdm__memory_usage *usage, uint64_t bytes);
/* Returns how many bytes must be released before `bytes` can be reserved; 0 if they fit. */
uint64_t tdm__memory_usage_shortage(const struct tdm__memory_usage *usage, uint64_t bytes);
/* Changes the number of bytes that this process has on disk; negative to subtract. */
void tdm__memory_usage_add_spilled(struct tdm__memory_usage *usage, int64_t change_bytes);
/* Reads the limit and the totals of the node. */
void tdm__memory_usage_read(const struct tdm__memory_usage *usage,
                            struct tdm__memory_usage_totals *sums_out);

/* Tells the other processes of the node that this one waits for `bytes`. The request expires
 * after one second. */
void tdm__memory_usage_set_pressure(struct tdm__memory_usage *usage, uint64_t bytes);
/* Returns the number of bytes that a process of the node waits for; 0 if none does. */
uint64_t tdm__memory_usage_pressure(const struct tdm__memory_usage *usage);

#endif
