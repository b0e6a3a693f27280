/* redis_functions_test.c - the library of Lua functions has a name that changes with its text. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/functions.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Returns the 64-bit FNV-1a hash of a text and its NUL. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    size_t bytes = strlen(text) + 1;

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Computes the first two lines that the text must have. Returns their length in bytes. */
static size_t header_of(const struct tdm__redis_library *library, char header[256])
{
    return (size_t)snprintf(header, 256, "#!lua name=%s\nlocal library = '%s'\n", library->name,
                            library->name);
}

static void text_begins_with_the_name_of_the_library(void **state)
{
    const struct tdm__redis_library *library = tdm__redis_library();
    char header[256];

    (void)state;
    assert_memory_equal(library->text, header, header_of(library, header));
}

static void name_is_the_hash_of_everything_behind_it(void **state)
{
    const struct tdm__redis_library *library = tdm__redis_library();
    char header[256];
    char expected[TDM__REDIS_NAME_BYTES];

    (void)state;
    (void)snprintf(expected, sizeof(expected), "tandem_%016" PRIx64,
                   hash_of(library->text + header_of(library, header)));
    assert_string_equal(library->name, expected);
}

/* Checks that the name of a function is that of the library with the suffix, and that the text
 * registers a function with this suffix. */
static void check_function(const char *name, const char *suffix)
{
    const struct tdm__redis_library *library = tdm__redis_library();
    char expected[2 * TDM__REDIS_NAME_BYTES];

    (void)snprintf(expected, sizeof(expected), "%s%s", library->name, suffix);
    assert_string_equal(name, expected);
    (void)snprintf(expected, sizeof(expected), "library .. '%s'", suffix);
    assert_non_null(strstr(library->text, expected));
}

static void functions_are_named_after_the_library(void **state)
{
    const struct tdm__redis_library *library = tdm__redis_library();

    (void)state;
    check_function(library->read_function, "_read");
    check_function(library->commit_function, "_commit");
    check_function(library->renew_function, "_renew");
    check_function(library->session_function, "_session");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_begins_with_the_name_of_the_library),
        cmocka_unit_test(name_is_the_hash_of_everything_behind_it),
        cmocka_unit_test(functions_are_named_after_the_library),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
