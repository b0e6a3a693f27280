/* name_key_test.c - the store keys of names. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/name_key.h"

#include "runtime/store/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Returns the key of the name, which must be one for the store. */
static const char *key_of(const char *name_space, const char *name, char key[TDM__STORE_KEY_BYTES])
{
    (void)tdm__name_key("name", name_space, name, key);
    assert_true(strlen(key) < TDM__STORE_KEY_BYTES);
    assert_true(tdm__store_is_key(key, strlen(key)));
    return key;
}

static void usual_names_are_readable(void **state)
{
    char key[TDM__STORE_KEY_BYTES];
    char name[TDM__NAME_OF_KEY_BYTES];

    (void)state;
    assert_string_equal(key_of("lab", "trainer 1:2", key), "name/lab/trainer 1:2");
    assert_string_equal(tdm__name_of_key(key, name), "trainer 1:2");
    assert_string_equal(key_of("a/b", "*%/ö", key), "name/a%2Fb/%2A%25%2F%C3%B6");
    assert_string_equal(tdm__name_of_key(key, name), "*%/ö");
    assert_string_equal(tdm__name_of_key("no key", name), "no key");
    assert_string_equal(tdm__name_of_key("name/x/%2", name), "%2");
}

static void long_names_have_a_hash_and_their_beginning(void **state)
{
    char texts[2][256];
    char keys[3][TDM__STORE_KEY_BYTES];
    char name[TDM__NAME_OF_KEY_BYTES];

    (void)state;
    for (int i = 0; i < 2; i++) {
        memset(texts[i], 'n', 255);
        texts[i][255] = '\0';
    }
    texts[1][254] = 'm';
    assert_string_not_equal(key_of("lab", texts[0], keys[0]), key_of("lab", texts[1], keys[1]));
    assert_string_not_equal(keys[0], key_of("bal", texts[0], keys[2]));
    assert_string_equal(key_of("lab", texts[0], keys[2]), keys[0]);
    assert_non_null(strstr(tdm__name_of_key(keys[0], name), "nnnn…"));

    for (int i = 0; i < 254; i += 2) {
        memcpy(texts[0] + i, "ö", 2);
    }
    texts[0][254] = '\0';
    (void)key_of(texts[0], texts[0], keys[0]);
    (void)tdm__name_of_key(keys[0], name);
    assert_memory_equal(name, "öööö", 8);
    assert_string_equal(name + strlen(name) - strlen("ö…"), "ö…");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual_names_are_readable),
        cmocka_unit_test(long_names_have_a_hash_and_their_beginning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
