/* records.h - an array of record copies whose keys and bytes are in one allocation. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_STORE_RECORDS_H
#define TDM_STORE_RECORDS_H

#include "runtime/store.h"

/* An array of copies of store records. Keys and bytes are stored behind the items in the same
 * allocation, which the owner frees with free(). */
struct tdm__store_records {
    uint32_t count;    /* Number of records in `items`. */
    uint32_t capacity; /* Most records that `items` can contain. */
    /* Unused memory of the allocation for keys and bytes, behind the items. */
    char *free_space;
    size_t free_bytes; /* Size of `free_space` in bytes. */
    /* The records, whose pointers refer to this allocation. */
    struct tdm__store_record items[];
};

/* Creates an empty array with space for `capacity` records, whose keys and bytes together need at
 * most `payload_bytes` bytes. */
tdm_status tdm__store_records_create(uint32_t capacity, size_t payload_bytes,
                                     struct tdm__store_records **records_out);
/* Appends a copy of a record to the array, whose capacity must suffice. */
void tdm__store_records_append(struct tdm__store_records *records, const char *key,
                               size_t key_bytes, uint64_t version, struct tdm_bytes bytes);
/* Sorts the records of the array by key and removes duplicate keys. */
void tdm__store_records_sort(struct tdm__store_records *records);
/* Copies `count` records into a new array, which the caller frees with free(). */
tdm_status tdm__store_records_copy(const struct tdm__store_record *items, uint32_t count,
                                   struct tdm__store_records **records_out);
/* Returns the record with the key `key` among `count` sorted records, or NULL. */
const struct tdm__store_record *tdm__store_records_find(const struct tdm__store_record *items,
                                                        uint32_t count, const char *key);

#endif
