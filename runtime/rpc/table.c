/* table.c - calls under way, by id and in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"

#include <stdlib.h>

enum { BUCKETS_MIN = 16 };

tdm_status tdm__rpc_table_init(struct table *table)
{
    TAILQ_INIT(&table->in_order);
    table->count = 0;
    table->buckets = calloc(BUCKETS_MIN, sizeof(struct tdm__rpc_entry *));
    if (table->buckets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table of calls");
    }
    table->buckets_count = BUCKETS_MIN;
    return TDM_OK;
}

void tdm__rpc_table_fini(struct table *table)
{
    TDM_ASSERT(table->count == 0);
    free(table->buckets);
    table->buckets = NULL;
}

static struct tdm__rpc_entry **bucket_of(const struct table *table, uint64_t id)
{
    return &table->buckets[id & (table->buckets_count - 1)];
}

static void chain(struct table *table, struct tdm__rpc_entry *entry)
{
    struct tdm__rpc_entry **bucket = bucket_of(table, entry->id);

    entry->next = *bucket;
    *bucket = entry;
}

/* Without memory the chains get longer, that is all. */
static void grow(struct table *table)
{
    uint32_t count = 2 * table->buckets_count;
    struct tdm__rpc_entry **buckets = calloc(count, sizeof(struct tdm__rpc_entry *));
    struct tdm__rpc_entry *entry;

    if (buckets == NULL) {
        return;
    }
    free(table->buckets);
    table->buckets = buckets;
    table->buckets_count = count;
    TAILQ_FOREACH(entry, &table->in_order, link)
    {
        chain(table, entry);
    }
}

void tdm__rpc_table_add(struct table *table, struct tdm__rpc_entry *entry)
{
    if (table->count >= table->buckets_count) {
        grow(table);
    }
    chain(table, entry);
    TAILQ_INSERT_TAIL(&table->in_order, entry, link);
    table->count++;
}

/* What points at the entry of that id, or at the end of its chain. */
static struct tdm__rpc_entry **place_of(const struct table *table, uint64_t id)
{
    struct tdm__rpc_entry **place = bucket_of(table, id);

    while (*place != NULL && (*place)->id != id) {
        place = &(*place)->next;
    }
    return place;
}

struct tdm__rpc_entry *tdm__rpc_table_find(const struct table *table, uint64_t id)
{
    return table->buckets == NULL ? NULL : *place_of(table, id);
}

void tdm__rpc_table_remove(struct table *table, struct tdm__rpc_entry *entry)
{
    struct tdm__rpc_entry **place = place_of(table, entry->id);

    TDM_ASSERT(*place == entry);
    *place = entry->next;
    TAILQ_REMOVE(&table->in_order, entry, link);
    table->count--;
}
