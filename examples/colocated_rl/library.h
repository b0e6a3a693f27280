/* library.h - the two tables and the reward that library.c joins. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_LIBRARY_H
#define COLOCATED_RL_LIBRARY_H

#include <tandem/job.h>

extern const struct tdm_trainer_ops trainer_ops;
extern const struct tdm_engine_ops engine_ops;

/* A token earns 1 if it is the right one in its place, and all tokens of an answer that is
 * exactly right earn half as much again: part credit is what lets learning start. */
float reward_answer(const char *prompt, const char *answer, const struct tdm_completion *completion,
                    float *token_rewards);

#endif
