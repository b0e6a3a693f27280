/* store_records.c - what the store of the simulated cluster has. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cluster_sim/store_records.h"

#include "runtime/assert.h"
#include "tests/cluster_sim/cluster_store.h"
#include "tests/support/memory_store.h"

#include <stdio.h>
#include <stdlib.h>

bool store_records_have(const char *key)
{
    struct tdm__store_records *records = NULL;
    bool have;

    TDM_ASSERT(memory_store_read(cluster_store_memory(), &key, 1, &records) == TDM_OK);
    have = records->count > 0;
    free(records);
    return have;
}

void store_records_each(const char *prefix,
                        void (*fn)(void *arg, const struct tdm__store_record *record), void *arg)
{
    struct tdm__store_records *records = NULL;
    char pattern[64];
    const char *patterns[] = {pattern};

    (void)snprintf(pattern, sizeof(pattern), "%s*", prefix);
    TDM_ASSERT(memory_store_read(cluster_store_memory(), patterns, 1, &records) == TDM_OK);
    for (uint32_t i = 0; i < records->count; i++) {
        fn(arg, &records->items[i]);
    }
    free(records);
}
