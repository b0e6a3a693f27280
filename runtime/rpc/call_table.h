/* call_table.h - a hash table of calls by their IDs, in the order of insertion. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_CALL_TABLE_H
#define TDM_RUNTIME_RPC_CALL_TABLE_H

#include <stdint.h>
#include <sys/queue.h>
#include <tandem/error.h>

/* Entry of a table of RPC calls, the first member of each structure that a table keeps. Only the
 * files of this folder use the fields. */
struct tdm__call_table_entry {
    /* Links the entry into the table's list, in the order of insertion. */
    TAILQ_ENTRY(tdm__call_table_entry) link;
    /* Next entry of the same hash bucket; NULL at its end. */
    struct tdm__call_table_entry *next;
    uint64_t id; /* The call's ID, unique in its table. */
};

/* A hash table of the RPC calls of a connection by their IDs, which also keeps the order of
 * insertion. The connection owns the table, which borrows the entries. */
struct call_table {
    /* All entries of the table in the order of insertion. */
    TAILQ_HEAD(, tdm__call_table_entry) in_order;
    /* Hash buckets (owned); NULL before init and after fini. */
    struct tdm__call_table_entry **buckets;
    uint32_t buckets_count; /* Number of buckets, a power of two. */
    uint32_t count;         /* Number of entries in the table. */
};

/* Initialises an empty table of calls with the smallest number of buckets. */
tdm_status tdm__call_table_init(struct call_table *table);
/* Frees the buckets of a table of calls, which must be empty. */
void tdm__call_table_fini(struct call_table *table);
/* Adds an entry to a table of calls. The entry's ID must not be in the table yet. Never fails. */
void tdm__call_table_add(struct call_table *table, struct tdm__call_table_entry *entry);
/* Returns the entry of the call with the ID `id`, or NULL if it is not in the table. */
struct tdm__call_table_entry *tdm__call_table_find(const struct call_table *table, uint64_t id);
/* Removes an entry that is in the table of calls. The entry is not freed. */
void tdm__call_table_remove(struct call_table *table, struct tdm__call_table_entry *entry);

#endif
