/* rewards.c - the rewards of an answer, token by token. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/library.h"

#include <string.h>

/* Additional reward of every token of an exactly right answer. */
static const float exact_bonus = 0.5F;

float reward_answer(const char *prompt, const char *answer, const struct tdm_completion *completion,
                    float *token_rewards)
{
    size_t length = strlen(answer);
    size_t text_length = strlen(completion->text);
    int exact = completion->finished && strcmp(completion->text, answer) == 0;

    (void)prompt;
    for (uint32_t i = 0; i < completion->tokens_count; i++) {
        int ends = completion->finished && i + 1 == completion->tokens_count;
        int right =
            ends ? i == length : i < length && i < text_length && completion->text[i] == answer[i];

        token_rewards[i] = (right ? 1.0F : 0.0F) + (exact ? exact_bonus : 0.0F);
    }
    return exact ? 1.0F : 0.0F;
}
