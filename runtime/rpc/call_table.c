/* call_table.c - calls under way, by id and in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/call_table.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>

/* Number of hash buckets with which a table of calls is created; it never has fewer. */
enum { BUCKETS_MIN = 16 };

tdm_status tdm__call_table_init(struct call_table *table)
{
    TAILQ_INIT(&table->in_order);
    table->count = 0;
    table->buckets = calloc(BUCKETS_MIN, sizeof(struct tdm__call_table_entry *));
    if (table->buckets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table of calls");
    }
    table->buckets_count = BUCKETS_MIN;
    return TDM_OK;
}

void tdm__call_table_fini(struct call_table *table)
{
    TDM_ASSERT(table->count == 0);
    free(table->buckets);
    table->buckets = NULL;
}

/* Returns the hash bucket of the table to which a call's ID belongs. */
static struct tdm__call_table_entry **call_table_bucket(const struct call_table *table, uint64_t id)
{
    return &table->buckets[id & (table->buckets_count - 1)];
}

/* Inserts an entry at the head of its hash bucket. */
static void call_table_insert(struct call_table *table, struct tdm__call_table_entry *entry)
{
    struct tdm__call_table_entry **bucket = call_table_bucket(table, entry->id);

    entry->next = *bucket;
    *bucket = entry;
}

/* Doubles the number of hash buckets of a table of calls. Without memory the table keeps its
 * buckets and only gets slower. */
static void call_table_grow(struct call_table *table)
{
    uint32_t count = 2 * table->buckets_count;
    struct tdm__call_table_entry **buckets = calloc(count, sizeof(struct tdm__call_table_entry *));
    struct tdm__call_table_entry *entry;

    if (buckets == NULL) {
        return;
    }
    free(table->buckets);
    table->buckets = buckets;
    table->buckets_count = count;
    TAILQ_FOREACH(entry, &table->in_order, link)
    {
        call_table_insert(table, entry);
    }
}

void tdm__call_table_add(struct call_table *table, struct tdm__call_table_entry *entry)
{
    if (table->count >= table->buckets_count) {
        call_table_grow(table);
    }
    call_table_insert(table, entry);
    TAILQ_INSERT_TAIL(&table->in_order, entry, link);
    table->count++;
}

/* Returns the link that points to the entry with the ID `id`, or the NULL link at the end of its
 * hash bucket if there is no such entry. */
static struct tdm__call_table_entry **call_table_find_slot(const struct call_table *table,
                                                           uint64_t id)
{
    struct tdm__call_table_entry **slot = call_table_bucket(table, id);

    while (*slot != NULL && (*slot)->id != id) {
        slot = &(*slot)->next;
    }
    return slot;
}

struct tdm__call_table_entry *tdm__call_table_find(const struct call_table *table, uint64_t id)
{
    return table->buckets == NULL ? NULL : *call_table_find_slot(table, id);
}

void tdm__call_table_remove(struct call_table *table, struct tdm__call_table_entry *entry)
{
    struct tdm__call_table_entry **slot = call_table_find_slot(table, entry->id);

    TDM_ASSERT(*slot == entry);
    *slot = entry->next;
    TAILQ_REMOVE(&table->in_order, entry, link);
    table->count--;
}
