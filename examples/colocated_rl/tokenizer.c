/* tokenizer.c - a tokenizer of one token per character, with three special tokens. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/tokenizer.h"

#include "examples/colocated_rl/text_file.h"

#include <string.h>

/* Stands for padding and end tokens in decoded text. */
enum { UNPRINTABLE = '_' };

static const char *const special_names[TOKENS_SPECIAL] = {"<pad>", "<eos>", "="};

tdm_status tokenizer_init(struct tokenizer *tokenizer, const char *characters)
{
    size_t count = strlen(characters);

    if (count == 0 || count > CHARACTERS_MAX) {
        return tdm_fail(TDM_E_INVAL, "model.characters has %zu characters, wanted 1 to %d", count,
                        CHARACTERS_MAX);
    }
    memset(tokenizer->ids, -1, sizeof(tokenizer->ids));
    tokenizer->characters_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        unsigned char character = (unsigned char)characters[i];

        if (character < ' ' || character > '~' || character == '=' || character == UNPRINTABLE ||
            tokenizer->ids[character] >= 0) {
            return tdm_fail(TDM_E_INVAL,
                            "model.characters: byte 0x%02x at %zu is not printable ASCII, is "
                            "there twice, or is '=' or '_'",
                            character, i);
        }
        tokenizer->characters[i] = characters[i];
        tokenizer->ids[character] = TOKENS_SPECIAL + (int32_t)i;
    }
    return TDM_OK;
}

uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return TOKENS_SPECIAL + tokenizer->characters_count;
}

tdm_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, int32_t last,
                            int32_t *tokens, uint32_t tokens_max, uint32_t *count_out)
{
    size_t count = strlen(text);

    if (count >= tokens_max) {
        return tdm_fail(TDM_E_LIMIT, "\"%.64s\" is %zu tokens, at most %u", text, count + 1,
                        tokens_max);
    }
    for (size_t i = 0; i < count; i++) {
        unsigned char character = (unsigned char)text[i];
        int32_t id = character < 128 ? tokenizer->ids[character] : -1;

        if (id < 0) {
            return tdm_fail(
                TDM_E_INVAL, "byte 0x%02x at %zu of \"%.64s\" is not in model.characters \"%.*s\"",
                character, i, text, (int)tokenizer->characters_count, tokenizer->characters);
        }
        tokens[i] = id;
    }
    tokens[count] = last;
    *count_out = (uint32_t)count + 1;
    return TDM_OK;
}

/* Returns the character of a token, UNPRINTABLE for special ones. */
static char character_of(const struct tokenizer *tokenizer, int32_t token)
{
    if (token == TOKEN_ANSWER) {
        return '=';
    }
    if (token < TOKENS_SPECIAL || token >= TOKENS_SPECIAL + (int32_t)tokenizer->characters_count) {
        return UNPRINTABLE;
    }
    return tokenizer->characters[token - TOKENS_SPECIAL];
}

void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, uint32_t count,
                      char *text, size_t text_bytes_max)
{
    size_t length = 0;

    while (length < count && length + 1 < text_bytes_max) {
        text[length] = character_of(tokenizer, tokens[length]);
        length++;
    }
    text[length] = '\0';
}

/* Writes the entry of a special token. */
static void write_added_token(struct text_file *file, int32_t id)
{
    (void)fprintf(file->stream,
                  "    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, "
                  "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                  "\"special\": true}",
                  id, special_names[id]);
}

/* Writes a byte-pair model without pairs, which leaves single characters. Its template appends '='
 * to every prompt, as trainer and engine do. */
static void write_tokenizer(const struct tokenizer *tokenizer, struct text_file *file)
{
    (void)fputs("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                "  \"added_tokens\": [\n",
                file->stream);
    write_added_token(file, TOKEN_PAD);
    (void)fputs(",\n", file->stream);
    write_added_token(file, TOKEN_END);
    (void)fprintf(file->stream,
                  "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": null,\n"
                  "  \"post_processor\": {\n    \"type\": \"TemplateProcessing\",\n"
                  "    \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                  "{\"SpecialToken\": {\"id\": \"=\", \"type_id\": 0}}],\n"
                  "    \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                  "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],\n"
                  "    \"special_tokens\": {\"=\": {\"id\": \"=\", \"ids\": [%d], "
                  "\"tokens\": [\"=\"]}}\n  },\n"
                  "  \"decoder\": {\"type\": \"Fuse\"},\n  \"model\": {\n"
                  "    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
                  "    \"continuing_subword_prefix\": null,\n"
                  "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
                  "    \"byte_fallback\": false,\n    \"vocab\": {\n",
                  TOKEN_ANSWER);
    for (int32_t id = 0; id < TOKENS_SPECIAL; id++) {
        (void)fprintf(file->stream, "      \"%s\": %d,\n", special_names[id], id);
    }
    for (uint32_t i = 0; i < tokenizer->characters_count; i++) {
        (void)fputs("      ", file->stream);
        text_file_string(file, &tokenizer->characters[i], 1);
        (void)fprintf(file->stream, ": %u%s\n", TOKENS_SPECIAL + i,
                      i + 1 < tokenizer->characters_count ? "," : "");
    }
    (void)fputs("    },\n    \"merges\": []\n  }\n}\n", file->stream);
}

tdm_status tokenizer_write(const struct tokenizer *tokenizer, const char *directory)
{
    struct text_file file;

    TDM_TRY(text_file_open(&file, directory, "tokenizer.json"));
    write_tokenizer(tokenizer, &file);
    TDM_TRY(text_file_close(&file));

    TDM_TRY(text_file_open(&file, directory, "tokenizer_config.json"));
    (void)fputs("{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                "  \"pad_token\": \"<pad>\",\n  \"eos_token\": \"<eos>\",\n"
                "  \"clean_up_tokenization_spaces\": false\n}\n",
                file.stream);
    return text_file_close(&file);
}
