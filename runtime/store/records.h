/* records.h - copies of records, keys and bytes in one block. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_STORE_RECORDS_H
#define TDM_STORE_RECORDS_H

#include "runtime/store.h"

/* Freed with free(). */
struct tdm__store_records {
    uint32_t count;
    uint32_t capacity;
    char *free_space; /* inside this block, behind the items */
    size_t free_bytes;
    struct tdm__store_record items[];
};

/* Room for `capacity` records whose keys and bytes together take `payload_bytes`. */
tdm_status tdm__store_records_create(uint32_t capacity, size_t payload_bytes,
                                     struct tdm__store_records **records_out);
void tdm__store_records_append(struct tdm__store_records *records, const char *key,
                               size_t key_bytes, uint64_t version, struct tdm_bytes bytes);
/* By key; a key that is there twice stays once. */
void tdm__store_records_sort(struct tdm__store_records *records);
tdm_status tdm__store_records_copy(const struct tdm__store_record *items, uint32_t count,
                                   struct tdm__store_records **records_out);
/* The record of this key among sorted ones, or NULL. */
const struct tdm__store_record *tdm__store_records_find(const struct tdm__store_record *items,
                                                        uint32_t count, const char *key);

#endif
