/* check.c - validity rules for keys, patterns and commits, shared by all store implementations. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/store/check.h"

#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Most digits of a version in a pattern: versions stay under 2^53, and tests use small ones. */
enum { VERSION_DIGITS_MAX = 19 };

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

bool tdm__store_is_changes_key(const char *key, size_t key_bytes)
{
    return key_bytes > 1 && key[key_bytes - 1] == '*' && is_plain_text(key, key_bytes - 1);
}

bool tdm__store_is_changes(const char *pattern, size_t *prefix_bytes_out, uint64_t *since_out)
{
    const char *star = strchr(pattern, '*');
    size_t digits = star == NULL || star[1] != '>' ? 0 : strspn(star + 2, "0123456789");

    if (digits == 0 || digits > VERSION_DIGITS_MAX || star[2 + digits] != '\0') {
        return false;
    }
    *prefix_bytes_out = (size_t)(star - pattern);
    *since_out = strtoull(star + 2, NULL, 10);
    return true;
}

/* Returns whether `pattern` is well-formed. */
static bool is_pattern(const char *pattern)
{
    size_t bytes = strlen(pattern);
    uint64_t since;

    if (tdm__store_is_changes(pattern, &bytes, &since)) {
        return bytes > 0 && is_plain_text(pattern, bytes);
    }
    return bytes > 0 && pattern[bytes - 1] == '*' ? is_plain_text(pattern, bytes - 1)
                                                  : tdm__store_is_key(pattern, bytes);
}

tdm_status tdm__store_check_patterns(const char *const *patterns, uint32_t patterns_count)
{
    if (patterns_count > TDM__STORE_PATTERNS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u patterns in one read, at most %d", patterns_count,
                         TDM__STORE_PATTERNS_MAX);
    }
    for (uint32_t i = 0; i < patterns_count; i++) {
        if (!is_pattern(patterns[i])) {
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
    uint64_t since;

    if (tdm__store_is_changes(pattern, &bytes, &since)) {
        return strncmp(pattern, key, bytes) == 0;
    }
    if (bytes > 0 && pattern[bytes - 1] == '*') {
        return strncmp(pattern, key, bytes - 1) == 0;
    }
    return strcmp(pattern, key) == 0;
}
