/* batch_loss.h - what one batch teaches: its loss, its gradients, and numbers about it. */
/* SPDX-License-Identifier: Apache-2.0 */
/* batch_loss.h - the loss of one batch, its gradients, and statistics about it. */
#ifndef COLOCATED_RL_BATCH_LOSS_H
#define COLOCATED_RL_BATCH_LOSS_H

#include "examples/colocated_rl/network.h"
#include "examples/colocated_rl/pack.h"
#include "examples/colocated_rl/settings.h"

#include <tandem/job.h>

/* Indices of sums over the tokens or samples of a batch. Each rank sums its own part;
 * batch_loss_reduce() then sums over the ranks. */
enum batch_loss_sum {
    SUM_LOSS,    /* Sum of the losses of the tokens. */
    SUM_TOKENS,  /* Number of predicted tokens. */
    SUM_CLIPPED, /* Number of tokens whose probability ratio was clipped. */
    /* Sum of the absolute differences between the engine's and this trainer's log-probabilities. */
    SUM_LOGPROB_DIFFERENCE,
    /* Sum of the estimated KL divergences between this trainer's and the engine's distribution. */
    SUM_KL,
    /* Sum of the estimated KL divergences between this trainer and the reference weights. */
    SUM_KL_START,
    SUM_REWARD,     /* Sum of the samples' rewards. */
    SUM_SAMPLES,    /* Number of samples. */
    BATCH_LOSS_SUMS /* Number of sums. */
};

/* The state of computing the loss of one batch. It lives on the stack of the trainer's step
 * function for one step. */
struct batch_loss {
    const struct settings *settings; /* The job's settings (borrowed). */
    const struct tdm_batch *batch;   /* The batch (borrowed). */
    double tokens; /* Number of predicted tokens on all ranks; the loss is the mean over them. */
    float *advantages; /* Advantages (owned) as [sample][token]; NULL in supervised steps. */
    /* Log-probabilities of the reference weights (owned) as [sample][token]; NULL in supervised
     * steps. */
    float *reference;
    double sums[BATCH_LOSS_SUMS]; /* The sums, by enum batch_loss_sum. */
    /* Largest difference between the engine's and this trainer's log-probability of a token. */
    double logprob_difference_max;
};

/* The memory for forward and backward passes of a trainer rank. Pointers point into regions of the
 * rank, in the machine's memory, except for `pack`. */
struct batch_loss_memory {
    struct network network; /* The model and its arrays. */
    struct pack pack;       /* The rows and targets of the current pass, in host memory. */
    struct target *targets; /* Targets of the pass, pack.targets_max of them. */
    /* One float per target, pack.targets_max of them: first the log-probability, then the gradient
     * of the loss for it. */
    float *numbers;
    float *logits;          /* Logits, then log-probabilities, rows × vocab_size. */
    float *logit_gradients; /* Gradients of the logits, rows × vocab_size. */
    float *scratch; /* Scratch memory of network_backward(), network_backward_floats() floats. */
};

/* Prepares the loss of a batch: counts its tokens over all ranks of the group and computes the
 * advantages. Waits for all ranks; `group` is NULL if there is only one. */
tdm_status batch_loss_init(struct batch_loss *batch_loss, const struct settings *settings,
                           const struct tdm_batch *batch, tdm_collective_group *group);
void batch_loss_fini(struct batch_loss *batch_loss);

/* Stores the log-probabilities that the network's present weights give to the sampled tokens as
 * those of the reference. */
tdm_status batch_loss_record_reference(struct batch_loss *batch_loss,
                                       struct batch_loss_memory *memory);
/* Adds the gradients of the loss to gradients[model->elements] and fills the sums. */
tdm_status batch_loss_backward(struct batch_loss *batch_loss, struct batch_loss_memory *memory,
                               float *gradients);
/* Finds the sample whose gradients are not finite, after the gradients of the whole batch were not.
 * Computes the gradients of one sample after the other in gradients[model->elements]. Fails with
 * TDM_E_METHOD at the first that are not finite, and names its prompt and sample. Returns TDM_OK if
 * this rank's part of the batch has no such sample. */
tdm_status batch_loss_find_overflow(const struct batch_loss *batch_loss,
                                    struct batch_loss_memory *memory, float *gradients);
/* Sums the statistics over the ranks and waits for all of them. A NULL group leaves them as they
 * are. */
tdm_status batch_loss_reduce(struct batch_loss *batch_loss, tdm_collective_group *group);

#endif
