/* check.h - validity rules for keys, patterns and commits, shared by all store implementations. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_STORE_CHECK_H
#define TDM_STORE_CHECK_H

#include "runtime/store.h"

#include <stdbool.h>

/* Limits that every implementation of the store checks. */
enum {
    TDM__STORE_KEY_BYTES_MAX = 200, /* Most bytes of a record's key. */
    TDM__STORE_WRITES_MAX = 10000,  /* Most writes in one commit to the store. */
    /* Most key patterns in one read of the store. */
    TDM__STORE_PATTERNS_MAX = 1000
};

/* Returns whether `key` is a valid key of a record: 1 to 200 bytes of printable ASCII without '*'.
 */
bool tdm__store_is_key(const char *key, size_t key_bytes);

/* Checks a key prefix that is to be watched, which may be empty. Returns TDM_E_INVAL with the text
 * of the problem. */
tdm_status tdm__store_check_prefix(const char *prefix);
/* Checks the key patterns of a read: each must be a key, a prefix followed by '*', or such a prefix
 * with a version as tdm__store_is_changes() has it. Returns
 * TDM_E_INVAL, or TDM_E_LIMIT for too many. */
tdm_status tdm__store_check_patterns(const char *const *patterns, uint32_t patterns_count);
/* Checks the keys and leases in the writes of a commit. Returns TDM_E_INVAL, or TDM_E_LIMIT for too
 * many writes. */
tdm_status tdm__store_check_writes(const struct tdm__store_write *writes, uint32_t writes_count);

/* Returns whether `pattern` has the form PREFIX*>VERSION, which reads what has changed since that
 * version (runtime/store.h). Sets the length of the prefix and the version; neither may be NULL. */
bool tdm__store_is_changes(const char *pattern, size_t *prefix_bytes_out, uint64_t *since_out);
/* Returns whether `key` is that of the first record of a read of PREFIX*>VERSION, which tells how
 * complete the others are: PREFIX*. */
bool tdm__store_is_changes_key(const char *key, size_t key_bytes);

/* Returns whether a read of `pattern` may return the record with the key `key`. */
bool tdm__store_matches(const char *pattern, const char *key);

#endif
