/* content_hash_test.c - the hash is SHA-256, the same for bytes and for a file. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/content_hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Bytes of the file: more than is read at a time, and no multiple of it. */
enum { FILE_BYTES = 3 * 64 * 1024 + 17 };

static void test_hash_has_the_values_of_the_standard(void **state)
{
    char text[TDM__CONTENT_HASH_TEXT_BYTES];
    struct tdm__content_hash hash;

    (void)state;
    assert_int_equal(tdm__content_hash_bytes((struct tdm_bytes){NULL, 0}, &hash), TDM_OK);
    assert_string_equal(tdm__content_hash_text(&hash, text),
                        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_int_equal(tdm__content_hash_bytes((struct tdm_bytes){"abc", 3}, &hash), TDM_OK);
    assert_string_equal(tdm__content_hash_text(&hash, text),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void test_file_has_the_hash_of_its_bytes(void **state)
{
    FILE *file = tmpfile();
    char *bytes = malloc(FILE_BYTES);
    struct tdm__content_hash of_bytes;
    struct tdm__content_hash of_file;
    uint64_t size_bytes;

    (void)state;
    assert_non_null(file);
    assert_non_null(bytes);
    for (size_t i = 0; i < FILE_BYTES; i++) {
        bytes[i] = (char)(i * 31 % 251);
    }
    assert_int_equal(fwrite(bytes, 1, FILE_BYTES, file), FILE_BYTES);
    assert_int_equal(fflush(file), 0);
    assert_int_equal(lseek(fileno(file), 0, SEEK_SET), 0);
    assert_int_equal(tdm__content_hash_bytes((struct tdm_bytes){bytes, FILE_BYTES}, &of_bytes),
                     TDM_OK);
    assert_int_equal(tdm__content_hash_file(fileno(file), "file", &of_file, &size_bytes), TDM_OK);
    assert_int_equal(size_bytes, FILE_BYTES);
    assert_true(tdm__content_hash_equal(&of_bytes, &of_file));
    bytes[FILE_BYTES - 1] ^= 1;
    assert_int_equal(tdm__content_hash_bytes((struct tdm_bytes){bytes, FILE_BYTES}, &of_bytes),
                     TDM_OK);
    assert_false(tdm__content_hash_equal(&of_bytes, &of_file));
    free(bytes);
    assert_int_equal(fclose(file), 0);
}

static void test_unreadable_file_is_an_error_with_its_path(void **state)
{
    struct tdm__content_hash hash;
    uint64_t size_bytes;

    (void)state;
    assert_int_equal(tdm__content_hash_file(-1, "some/path", &hash, &size_bytes), TDM_E_IO);
    assert_non_null(strstr(tdm_error_detail(), "some/path"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_has_the_values_of_the_standard),
        cmocka_unit_test(test_file_has_the_hash_of_its_bytes),
        cmocka_unit_test(test_unreadable_file_is_an_error_with_its_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
