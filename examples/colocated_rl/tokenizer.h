/* tokenizer.h - one token a character, and the three that a model needs besides. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TOKENIZER_H
#define COLOCATED_RL_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

enum {
    TOKEN_PAD = 0,
    TOKEN_END = 1,    /* of an answer */
    TOKEN_ANSWER = 2, /* '=': the prompt is over, the answer begins */
    TOKENS_SPECIAL = 3,
    CHARACTERS_MAX = 96
};

/* Character number i is token TOKENS_SPECIAL + i. */
struct tokenizer {
    char characters[CHARACTERS_MAX];
    uint32_t characters_count;
    int32_t ids[128]; /* by character; -1: not in the vocabulary */
};

/* `characters`: printable ASCII, each once, without '=' and '_' which are taken. */
tdm_status tokenizer_init(struct tokenizer *tokenizer, const char *characters);
uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);

/* Encodes the text and, after it, the token `last` (TOKEN_ANSWER after a prompt, TOKEN_END
 * after an answer).  TDM_E_INVAL names a character it does not know, TDM_E_LIMIT a text that is
 * too long for tokens[0 … tokens_max). */
tdm_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, int32_t last,
                            int32_t *tokens, uint32_t tokens_max, uint32_t *count_out);

/* One character a token, cut at text_bytes_max - 1, NUL-terminated.  Pad and end tokens become
 * '_', so that character i is always token i. */
void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, uint32_t count,
                      char *text, size_t text_bytes_max);

/* Writes tokenizer.json and tokenizer_config.json, as transformers reads them. */
tdm_status tokenizer_write(const struct tokenizer *tokenizer, const char *directory);

#endif
