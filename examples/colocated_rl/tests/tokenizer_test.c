/* tokenizer_test.c - characters to tokens and back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/tokenizer.h"

#include "examples/colocated_rl/tests/support/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void text_comes_back_from_its_tokens(void **state)
{
    struct tokenizer tokenizer;
    int32_t tokens[8];
    uint32_t count;
    char text[8];

    (void)state;
    assert_int_equal(tokenizer_init(&tokenizer, "0123456789<>"), TDM_OK);
    assert_int_equal(tokenizer_vocab_size(&tokenizer), 15);
    assert_int_equal(tokenizer_encode(&tokenizer, "4609<", TOKEN_ANSWER, tokens, 8, &count),
                     TDM_OK);
    assert_int_equal(count, 6);
    assert_int_equal(tokens[0], 7);
    assert_int_equal(tokens[5], TOKEN_ANSWER);
    tokenizer_decode(&tokenizer, tokens, count - 1, text, sizeof(text));
    assert_string_equal(text, "4609<");
    tokenizer_decode(&tokenizer, tokens, count - 1, text, 3);
    assert_string_equal(text, "46");
}

static void every_token_is_one_character(void **state)
{
    const int32_t tokens[] = {TOKEN_PAD, 3, TOKEN_END, TOKEN_ANSWER, 99};
    struct tokenizer tokenizer;
    char text[8];

    (void)state;
    assert_int_equal(tokenizer_init(&tokenizer, "ab"), TDM_OK);
    tokenizer_decode(&tokenizer, tokens, 5, text, sizeof(text));
    assert_string_equal(text, "_a_=_");
}

static void strange_text_is_refused_by_name(void **state)
{
    struct tokenizer tokenizer;
    int32_t tokens[4];
    uint32_t count = 7;

    (void)state;
    assert_int_equal(tokenizer_init(&tokenizer, "ab"), TDM_OK);
    assert_int_equal(tokenizer_encode(&tokenizer, "a\xc3", 1, tokens, 4, &count), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "byte 0xc3 at 1"));
    assert_int_equal(tokenizer_encode(&tokenizer, "abab", 1, tokens, 4, &count), TDM_E_LIMIT);
    assert_int_equal(count, 7);
    assert_int_equal(tokenizer_encode(&tokenizer, "aba", 1, tokens, 4, &count), TDM_OK);
}

static void unfit_characters_are_refused(void **state)
{
    const char *const unfit[] = {"", "aa", "a=", "a_", "a\n", "\xc3\xa4"};
    struct tokenizer tokenizer;

    (void)state;
    for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
        assert_int_equal(tokenizer_init(&tokenizer, unfit[i]), TDM_E_INVAL);
    }
}

static void the_written_file_tells_every_character(void **state)
{
    struct tokenizer tokenizer;
    tdm_config *file;
    char path[512];
    int64_t id;
    const char *folder = tiny_folder();

    (void)state;
    assert_int_equal(tokenizer_init(&tokenizer, "a\"\\<"), TDM_OK);
    assert_int_equal(tokenizer_write(&tokenizer, folder), TDM_OK);
    (void)snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    assert_int_equal(tdm_config_read(path, &file), TDM_OK);
    assert_int_equal(tdm_config_count(file, "model.vocab"), TOKENS_SPECIAL + 4);
    for (uint32_t i = 0; i < 4; i++) {
        char key[32];

        (void)snprintf(key, sizeof(key), "model.vocab.%c", "a\"\\<"[i]);
        assert_int_equal(tdm_config_int(file, key, -1, &id), TDM_OK);
        assert_int_equal(id, TOKENS_SPECIAL + (int64_t)i);
    }
    tdm_config_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_comes_back_from_its_tokens),
        cmocka_unit_test(every_token_is_one_character),
        cmocka_unit_test(strange_text_is_refused_by_name),
        cmocka_unit_test(unfit_characters_are_refused),
        cmocka_unit_test(the_written_file_tells_every_character),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
