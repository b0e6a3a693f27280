/* records.c - an array of record copies whose keys and bytes are in one allocation. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/records.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

tdm_status tdm__store_records_create(uint32_t capacity, size_t payload_bytes,
                                     struct tdm__store_records **records_out)
{
    size_t items_bytes = capacity * sizeof(struct tdm__store_record);
    /* Each key needs one more byte for its NUL. */
    size_t text_bytes = payload_bytes + capacity;
    struct tdm__store_records *records = malloc(sizeof(*records) + items_bytes + text_bytes);

    if (records == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u records of %zu bytes", capacity, payload_bytes);
    }
    records->count = 0;
    records->capacity = capacity;
    records->free_space = (char *)&records->items[capacity];
    records->free_bytes = text_bytes;
    *records_out = records;
    return TDM_OK;
}

/* Copies bytes into the unused memory of the array's allocation and returns the copy. */
static char *records_put_text(struct tdm__store_records *records, const void *data,
                              size_t size_bytes)
{
    char *place = records->free_space;

    TDM_ASSERT(size_bytes <= records->free_bytes);
    if (size_bytes > 0) {
        memcpy(place, data, size_bytes);
    }
    records->free_space += size_bytes;
    records->free_bytes -= size_bytes;
    return place;
}

void tdm__store_records_append(struct tdm__store_records *records, const char *key,
                               size_t key_bytes, uint64_t version, struct tdm_bytes bytes)
{
    struct tdm__store_record *record = &records->items[records->count];

    TDM_ASSERT(records->count < records->capacity);
    record->key = records_put_text(records, key, key_bytes);
    (void)records_put_text(records, "", 1);
    record->version = version;
    record->bytes.data = records_put_text(records, bytes.data, bytes.size_bytes);
    record->bytes.size_bytes = bytes.size_bytes;
    records->count++;
}

/* Compares two records by key, for qsort() and bsearch(). */
static int compare_records(const void *a, const void *b)
{
    return strcmp(((const struct tdm__store_record *)a)->key,
                  ((const struct tdm__store_record *)b)->key);
}

void tdm__store_records_sort(struct tdm__store_records *records)
{
    uint32_t kept = 0;

    qsort(records->items, records->count, sizeof(records->items[0]), compare_records);
    for (uint32_t i = 0; i < records->count; i++) {
        if (kept == 0 || strcmp(records->items[kept - 1].key, records->items[i].key) != 0) {
            records->items[kept++] = records->items[i];
        }
    }
    records->count = kept;
}

tdm_status tdm__store_records_copy(const struct tdm__store_record *items, uint32_t count,
                                   struct tdm__store_records **records_out)
{
    struct tdm__store_records *records = NULL;
    size_t payload_bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        payload_bytes += strlen(items[i].key) + items[i].bytes.size_bytes;
    }
    TDM_TRY(tdm__store_records_create(count, payload_bytes, &records));
    for (uint32_t i = 0; i < count; i++) {
        tdm__store_records_append(records, items[i].key, strlen(items[i].key), items[i].version,
                                  items[i].bytes);
    }
    *records_out = records;
    return TDM_OK;
}

const struct tdm__store_record *tdm__store_records_find(const struct tdm__store_record *items,
                                                        uint32_t count, const char *key)
{
    struct tdm__store_record wanted = {.key = key};

    if (count == 0) {
        return NULL;
    }
    return bsearch(&wanted, items, count, sizeof(*items), compare_records);
}
