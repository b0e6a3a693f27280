/* call_table.h - a hash table of calls by their IDs, in the order of insertion. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_CALL_TABLE_H
#define TDM_RUNTIME_RPC_CALL_TABLE_H

#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* First member of each structure that is kept in a table of calls. Only the files of this folder
 * use the fields. */
struct tdm__call_table_entry {
    /* Links the entry into the table's list, in the order of insertion. */
    TAILQ_ENTRY(tdm__call_table_entry) link;
    /* Next entry of the same hash bucket; NULL at its end. */
    struct tdm__call_table_entry *next;
    uint64_t id; /* The call's ID, unique in its table. */
};

/* A hash table of calls by their IDs, which also keeps the order of insertion. It belongs to its
 * connection and borrows the entries. */
struct call_table {
    /* All entries in the order of insertion. */
    TAILQ_HEAD(, tdm__call_table_entry) in_order;
    /* Hash buckets (owned); NULL before init and after fini. */
    struct tdm__call_table_entry **buckets;
    uint32_t buckets_count; /* Number of buckets, a power of two. */
    uint32_t count;         /* Number of entries. */
};

/* Initialises an empty table with the smallest number of buckets. */
tdm_status tdm__call_table_init(struct call_table *table);
/* Frees the buckets. The table must be empty. */
void tdm__call_table_fini(struct call_table *table);
/* Adds an entry. Its ID must not be in the table yet. Never fails. */
void tdm__call_table_add(struct call_table *table, struct tdm__call_table_entry *entry);
/* Returns the entry with this ID, or NULL. */
struct tdm__call_table_entry *tdm__call_table_find(const struct call_table *table, uint64_t id);
/* Removes an entry that is in the table. */
void tdm__call_table_remove(struct call_table *table, struct tdm__call_table_entry *entry);

#endif
