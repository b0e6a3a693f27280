/* library.h - the two tables and the reward that library.c joins. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_LIBRARY_H
#define COLOCATED_RL_LIBRARY_H

#include <tandem/job.h>

/* Filled by trainer.c and engine.c. */
extern const struct tdm_trainer_ops trainer_ops;
extern const struct tdm_engine_ops engine_ops;

/* Stores the reward of each token of a completion and returns 1 if it is exactly the expected
 * answer, else 0. A token earns 1 if it equals the expected one at its position. All tokens of an
 * exactly right answer earn 0.5 more. The credit for single tokens is what lets learning start. */
float reward_answer(const char *prompt, const char *answer, const struct tdm_completion *completion,
                    float *token_rewards);

#endif
