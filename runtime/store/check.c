/* check.c - validity rules for keys, patterns and commits, shared by all store implementations. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/check.h"

#include "runtime/error.h"

#include <string.h>

/* Returns whether `text` is printable ASCII without '*' and not longer than a record's key may be.
 */
static bool is_plain_text(const char *text, size_t text_bytes)
{
    for (size_t i = 0; i < text_bytes; i++) {
        if (text[i] < ' ' || text[i] > '~' || text[i] == '*') {
            return false;
        }
    }
    return text_bytes <= TDM__STORE_KEY_BYTES_MAX;
}

bool tdm__store_is_key(const char *key, size_t key_bytes)
{
    return key_bytes > 0 && is_plain_text(key, key_bytes);
}

/* Returns TDM_E_INVAL for the invalid text `key`; `what` names its kind in the error, such as a key
 * or a prefix. */
static tdm_status bad_key(const char *what, const char *key)
{
    return tdm__fail(TDM_E_INVAL,
                     "%s \"%.40s\" of %zu bytes: wanted 1 to %d bytes of printable ASCII "
                     "without '*'",
                     what, key, strlen(key), TDM__STORE_KEY_BYTES_MAX);
}

tdm_status tdm__store_check_prefix(const char *prefix)
{
    return is_plain_text(prefix, strlen(prefix)) ? TDM_OK : bad_key("prefix", prefix);
}

tdm_status tdm__store_check_patterns(const char *const *patterns, uint32_t patterns_count)
{
    if (patterns_count > TDM__STORE_PATTERNS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u patterns in one read, at most %d", patterns_count,
                         TDM__STORE_PATTERNS_MAX);
    }
    for (uint32_t i = 0; i < patterns_count; i++) {
        size_t bytes = strlen(patterns[i]);
        bool is_prefix = bytes > 0 && patterns[i][bytes - 1] == '*';

        if (is_prefix ? !is_plain_text(patterns[i], bytes - 1)
                      : !tdm__store_is_key(patterns[i], bytes)) {
            return bad_key("pattern", patterns[i]);
        }
    }
    return TDM_OK;
}

tdm_status tdm__store_check_writes(const struct tdm__store_write *writes, uint32_t writes_count)
{
    if (writes_count > TDM__STORE_WRITES_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u writes in one commit, at most %d", writes_count,
                         TDM__STORE_WRITES_MAX);
    }
    for (uint32_t i = 0; i < writes_count; i++) {
        if (!tdm__store_is_key(writes[i].key, strlen(writes[i].key))) {
            return bad_key("key", writes[i].key);
        }
        if (writes[i].lease_ms < 0) {
            return tdm__fail(TDM_E_INVAL, "%s: a lease of %lld ms", writes[i].key,
                             (long long)writes[i].lease_ms);
        }
    }
    return TDM_OK;
}

bool tdm__store_matches(const char *pattern, const char *key)
{
    size_t bytes = strlen(pattern);

    if (bytes > 0 && pattern[bytes - 1] == '*') {
        return strncmp(pattern, key, bytes - 1) == 0;
    }
    return strcmp(pattern, key) == 0;
}
