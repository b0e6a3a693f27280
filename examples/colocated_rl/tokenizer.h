/* tokenizer.h - a tokenizer of one token per character, with three special tokens. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TOKENIZER_H
#define COLOCATED_RL_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* The special tokens and a limit. */
enum {
    TOKEN_PAD = 0,      /* Padding. */
    TOKEN_END = 1,      /* End of an answer. */
    TOKEN_ANSWER = 2,   /* '=': the end of the prompt and start of the answer. */
    TOKENS_SPECIAL = 3, /* Number of special tokens. */
    CHARACTERS_MAX = 96 /* Capacity of a vocabulary, in characters. */
};

/* The vocabulary. Character number i has the ID TOKENS_SPECIAL + i. */
struct tokenizer {
    char characters[CHARACTERS_MAX]; /* The characters, not NUL-terminated. */
    uint32_t characters_count;
    int32_t ids[128]; /* ID by ASCII code; -1 if the character is not in the vocabulary. */
};

/* Fills the tokenizer. `characters` are printable ASCII, each once, without '=' and '_', which are
 * reserved. TDM_E_INVAL if they are not. */
tdm_status tokenizer_init(struct tokenizer *tokenizer, const char *characters);
/* Returns the number of tokens, special ones included. */
uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);

/* Encodes the text, followed by the token `last` (TOKEN_ANSWER after a prompt, TOKEN_END after an
 * answer). TDM_E_INVAL names a character that is not in the vocabulary; TDM_E_LIMIT if the text
 * needs more than tokens_max tokens. */
tdm_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, int32_t last,
                            int32_t *tokens, uint32_t tokens_max, uint32_t *count_out);

/* Decodes to one character per token, cut at text_bytes_max - 1 and NUL-terminated. Padding and end
 * tokens become '_', so that character i is always token i. */
void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, uint32_t count,
                      char *text, size_t text_bytes_max);

/* Writes tokenizer.json and tokenizer_config.json in the format that transformers reads. */
tdm_status tokenizer_write(const struct tokenizer *tokenizer, const char *directory);

#endif
