/* library.c - a Qwen3 model that learns by group relative policy optimisation, as a job. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/library.h"

TDM_JOB_LIBRARY(.name = "colocated_rl", .trainer = &trainer_ops, .engine = &engine_ops,
                .reward = reward_answer, .devices = "host cuda");
