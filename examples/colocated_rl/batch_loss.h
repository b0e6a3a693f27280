/* batch_loss.h - what one batch teaches: its loss, its gradients, and numbers about it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_BATCH_LOSS_H
#define COLOCATED_RL_BATCH_LOSS_H

#include "examples/colocated_rl/network.h"
#include "examples/colocated_rl/pack.h"
#include "examples/colocated_rl/settings.h"

#include <tandem/job.h>

/* Summed over tokens or samples, here and then over ranks. */
enum batch_loss_sum {
    SUM_LOSS,
    SUM_TOKENS,
    SUM_CLIPPED,
    SUM_LOGPROB_DIFFERENCE, /* of the engine's log-probability and this trainer's */
    SUM_KL,                 /* of the engine from this trainer */
    SUM_KL_START,           /* of this trainer from its start */
    SUM_REWARD,
    SUM_SAMPLES,
    BATCH_LOSS_SUMS
};

/* Lives for one step. */
struct batch_loss {
    const struct settings *settings;
    const struct tdm_batch *batch;
    double tokens;     /* to be predicted, on all ranks: the loss is their mean */
    float *advantages; /* owned: [sample][token], NULL in supervised lessons */
    float *reference;  /* owned: log-probabilities at the start, where KL asks for it */
    double sums[BATCH_LOSS_SUMS];
    double logprob_difference_max;
};

/* The memory of passes forth and back; the pointers are places in regions. */
struct batch_loss_memory {
    struct network network;
    struct pack pack;       /* the host's */
    struct target *targets; /* pack.targets_max, as are … */
    float *numbers;         /* … what is learnt of a target, then its slope */
    float *logits;          /* rows × vocab_size */
    float *logit_gradients; /* rows × vocab_size */
    float *scratch;         /* network_backward_floats() */
};

/* Meets the group, to count tokens. */
tdm_status batch_loss_init(struct batch_loss *batch_loss, const struct settings *settings,
                           const struct tdm_batch *batch, tdm_collective_group *group);
void batch_loss_fini(struct batch_loss *batch_loss);

/* Takes down the log-probabilities of the sampled tokens by the network's present weights, as
 * those of the start. */
tdm_status batch_loss_record_reference(struct batch_loss *batch_loss,
                                       struct batch_loss_memory *memory);
/* Adds the gradients of the loss to `gradients`, and fills the sums. */
tdm_status batch_loss_backward(struct batch_loss *batch_loss, struct batch_loss_memory *memory,
                               float *gradients);
/* Meets the group, to sum over the ranks. */
tdm_status batch_loss_reduce(struct batch_loss *batch_loss, tdm_collective_group *group);

#endif
