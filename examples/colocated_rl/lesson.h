/* lesson.h - what one batch teaches: its loss, its gradients, and numbers about it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_LESSON_H
#define COLOCATED_RL_LESSON_H

#include "examples/colocated_rl/network.h"
#include "examples/colocated_rl/pack.h"
#include "examples/colocated_rl/settings.h"

#include <tandem/job.h>

/* Summed over tokens or samples, here and then over ranks. */
enum lesson_sum {
    SUM_LOSS,
    SUM_TOKENS,
    SUM_CLIPPED,
    SUM_DIFFERENCE, /* of the engine's log-probability and this trainer's */
    SUM_KL,         /* of the engine from this trainer */
    SUM_KL_START,   /* of this trainer from its start */
    SUM_REWARD,
    SUM_SAMPLES,
    LESSON_SUMS
};

/* Lives for one step. */
struct lesson {
    const struct settings *settings;
    const struct tdm_batch *batch;
    double tokens;     /* to be predicted, on all ranks: the loss is their mean */
    float *advantages; /* owned: [sample][token], NULL in supervised lessons */
    float *reference;  /* owned: log-probabilities at the start, where KL asks for it */
    double sums[LESSON_SUMS];
    double difference_max;
};

/* The memory of passes forth and back; the pointers are places in regions. */
struct lesson_memory {
    struct network network;
    struct pack pack;       /* the host's */
    struct target *targets; /* pack.targets_max, as are … */
    float *numbers;         /* … what is learnt of a target, then its slope */
    float *logits;          /* rows × vocab_size */
    float *logit_gradients; /* rows × vocab_size */
    float *scratch;         /* network_backward_floats() */
};

/* Meets the group, to count tokens. */
tdm_status lesson_begin(struct lesson *lesson, const struct settings *settings,
                        const struct tdm_batch *batch, tdm_group *group);
void lesson_end(struct lesson *lesson);

/* Takes down the log-probabilities of the sampled tokens by the network's present weights, as
 * those of the start. */
tdm_status lesson_refer(struct lesson *lesson, struct lesson_memory *memory);
/* Adds the gradients of the loss to `gradients`, and fills the sums. */
tdm_status lesson_learn(struct lesson *lesson, struct lesson_memory *memory, float *gradients);
/* Meets the group, to sum over the ranks. */
tdm_status lesson_gather(struct lesson *lesson, tdm_group *group);

#endif
