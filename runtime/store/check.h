/* check.h - what a key, a pattern and a commit must look like, the same for every filling. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_STORE_CHECK_H
#define TDM_STORE_CHECK_H

#include "runtime/store.h"

#include <stdbool.h>

enum {
    TDM__STORE_KEY_BYTES_MAX = 200,
    TDM__STORE_WRITES_MAX = 10000,
    TDM__STORE_PATTERNS_MAX = 1000
};

/* Printable ASCII without '*'; 1 to 200 bytes. */
bool tdm__store_is_key(const char *key, size_t key_bytes);

/* TDM_E_INVAL or TDM_E_LIMIT with what is wrong. */
tdm_status tdm__store_check_prefix(const char *prefix);
tdm_status tdm__store_check_patterns(const char *const *patterns, uint32_t patterns_count);
tdm_status tdm__store_check_writes(const struct tdm__store_write *writes, uint32_t writes_count);

/* Whether a read of this pattern finds this key. */
bool tdm__store_matches(const char *pattern, const char *key);

#endif
