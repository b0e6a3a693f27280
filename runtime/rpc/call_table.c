/* call_table.c - calls under way, by id and in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"

#include <stdlib.h>

/* Number of buckets of an empty table. */
enum { CHAINS_MIN = 16 };

tdm_status tdm__call_table_init(struct call_table *table)
{
    TAILQ_INIT(&table->in_order);
    table->count = 0;
    table->chains = calloc(CHAINS_MIN, sizeof(struct tdm__call_table_entry *));
    if (table->chains == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table of calls");
    }
    table->chains_count = CHAINS_MIN;
    return TDM_OK;
}

void tdm__call_table_fini(struct call_table *table)
{
    TDM_ASSERT(table->count == 0);
    free(table->chains);
    table->chains = NULL;
}

/* Returns the bucket to which the ID belongs. */
static struct tdm__call_table_entry **chain_of(const struct call_table *table, uint64_t id)
{
    return &table->chains[id & (table->chains_count - 1)];
}

/* Inserts an entry at the head of its bucket. */
static void chain_insert(struct call_table *table, struct tdm__call_table_entry *entry)
{
    struct tdm__call_table_entry **bucket = chain_of(table, entry->id);

    entry->next = *bucket;
    *bucket = entry;
}

/* Doubles the number of buckets. Without memory the table keeps its buckets and only gets slower.
 */
static void call_table_grow(struct call_table *table)
{
    uint32_t count = 2 * table->chains_count;
    struct tdm__call_table_entry **chains = calloc(count, sizeof(struct tdm__call_table_entry *));
    struct tdm__call_table_entry *entry;

    if (chains == NULL) {
        return;
    }
    free(table->chains);
    table->chains = chains;
    table->chains_count = count;
    TAILQ_FOREACH(entry, &table->in_order, link)
    {
        chain_insert(table, entry);
    }
}

void tdm__call_table_add(struct call_table *table, struct tdm__call_table_entry *entry)
{
    if (table->count >= table->chains_count) {
        call_table_grow(table);
    }
    chain_insert(table, entry);
    TAILQ_INSERT_TAIL(&table->in_order, entry, link);
    table->count++;
}

/* Returns the pointer to the entry with this ID, or the end of its bucket if there is no such
 * entry. */
static struct tdm__call_table_entry **place_of(const struct call_table *table, uint64_t id)
{
    struct tdm__call_table_entry **place = chain_of(table, id);

    while (*place != NULL && (*place)->id != id) {
        place = &(*place)->next;
    }
    return place;
}

struct tdm__call_table_entry *tdm__call_table_find(const struct call_table *table, uint64_t id)
{
    return table->chains == NULL ? NULL : *place_of(table, id);
}

void tdm__call_table_remove(struct call_table *table, struct tdm__call_table_entry *entry)
{
    struct tdm__call_table_entry **place = place_of(table, entry->id);

    TDM_ASSERT(*place == entry);
    *place = entry->next;
    TAILQ_REMOVE(&table->in_order, entry, link);
    table->count--;
}
