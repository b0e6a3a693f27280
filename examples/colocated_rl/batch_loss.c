/* batch_loss.c - the loss of one batch, its gradients, and statistics about it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/batch_loss.h"

#include <math.h>
#include <stdlib.h>

/* Computes the loss of one predicted token, adds to the sums, and returns the derivative of the
 * loss with respect to the token's log-probability. */
typedef double lesson_token(struct batch_loss *batch_loss, const struct target *target,
                            float logprob);

/* Computes the advantages, group by group. TDM_E_INVAL if a sample lacks rewards or
 * log-probabilities. */
static tdm_status compute_advantages(struct batch_loss *batch_loss)
{
    const struct tdm_batch *batch = batch_loss->batch;
    uint32_t stride = batch_loss->settings->answer_max;

    for (uint32_t from = 0, to; from < batch->samples_count; from = to) {
        for (to = from;
             to < batch->samples_count && batch->samples[to].group == batch->samples[from].group;
             to++) {
            const struct tdm_sample *sample = &batch->samples[to];

            if (sample->token_rewards == NULL || sample->logprobs == NULL ||
                sample->tokens_count > stride) {
                return tdm_fail(TDM_E_INVAL,
                                "sample %u lacks rewards or log-probabilities, or has %u "
                                "tokens, at most %u",
                                to, sample->tokens_count, stride);
            }
        }
        grpo_advantages(batch->samples + from, to - from,
                        batch_loss->advantages + (size_t)from * stride, stride);
    }
    return TDM_OK;
}

tdm_status batch_loss_init(struct batch_loss *batch_loss, const struct settings *settings,
                           const struct tdm_batch *batch, tdm_collective_group *group)
{
    size_t places = (size_t)batch->samples_count * settings->answer_max + 1;
    uint64_t tokens;

    *batch_loss = (struct batch_loss){.settings = settings, .batch = batch};
    TDM_TRY(pack_count_targets(batch, &tokens));
    batch_loss->tokens = (double)tokens;
    if (group != NULL) {
        TDM_TRY(tdm_collective_all_reduce_double(group, &batch_loss->tokens, 1, TDM_SUM));
    }
    if (batch->supervised) {
        return TDM_OK;
    }
    batch_loss->advantages = calloc(places, sizeof(float));
    batch_loss->reference = calloc(places, sizeof(float));
    if (batch_loss->advantages == NULL || batch_loss->reference == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a batch of %u samples", batch->samples_count);
    }
    return compute_advantages(batch_loss);
}

void batch_loss_fini(struct batch_loss *batch_loss)
{
    free(batch_loss->advantages);
    free(batch_loss->reference);
    *batch_loss = (struct batch_loss){0};
}

/* Stores the log-probability as that of the reference. */
static double refer_token(struct batch_loss *batch_loss, const struct target *target, float logprob)
{
    batch_loss->reference[target->sample * batch_loss->settings->answer_max + target->at] = logprob;
    return 0.0;
}

/* The loss of a supervised step: the negative log-probability. */
static double imitate_token(struct batch_loss *batch_loss, const struct target *target,
                            float logprob)
{
    (void)target;
    batch_loss->sums[SUM_LOSS] -= (double)logprob;
    batch_loss->sums[SUM_TOKENS] += 1.0;
    return -1.0;
}

/* The loss of a reinforcement step (GRPO). */
static double reinforce_token(struct batch_loss *batch_loss, const struct target *target,
                              float logprob)
{
    const struct tdm_sample *sample = &batch_loss->batch->samples[target->sample];
    size_t place = target->sample * batch_loss->settings->answer_max + target->at;
    const struct grpo_token token = {
        .logprob = (double)logprob,
        .sampled = (double)sample->logprobs[target->at],
        .reference = (double)batch_loss->reference[place],
        .advantage = (double)batch_loss->advantages[place],
    };
    struct grpo_loss loss = grpo_token_loss(&batch_loss->settings->grpo, &token);
    double difference = fabs(token.logprob - token.sampled);

    batch_loss->sums[SUM_LOSS] += loss.loss;
    batch_loss->sums[SUM_TOKENS] += 1.0;
    batch_loss->sums[SUM_CLIPPED] += loss.clipped;
    batch_loss->sums[SUM_LOGPROB_DIFFERENCE] += difference;
    batch_loss->sums[SUM_KL] += grpo_divergence(token.logprob, token.sampled);
    batch_loss->sums[SUM_KL_START] += loss.kl;
    batch_loss->logprob_difference_max = fmax(batch_loss->logprob_difference_max, difference);
    return loss.gradient;
}

/* Returns the temperature of the probabilities: that of sampling, or 1 in supervised steps. */
static double temperature_of(const struct batch_loss *batch_loss)
{
    return batch_loss->batch->supervised ? 1.0 : batch_loss->settings->temperature;
}

/* Computes the log-probabilities of the packed rows, which replace their logits, and copies those
 * of the targets to pack->numbers. */
static tdm_status compute_logprobs(const struct batch_loss *batch_loss,
                                   struct batch_loss_memory *memory)
{
    struct machine *machine = memory->network.machine;
    const struct pack *pack = &memory->pack;
    const struct log_softmax softmax = {
        .x = memory->logits,
        .scale = (float)(1.0 / temperature_of(batch_loss)),
        .width = batch_loss->settings->shape.vocab_size,
        .count = pack->rows_count,
    };
    const struct choice choice = {
        .chosen = memory->numbers,
        .logprobs = memory->logits,
        .targets = memory->targets,
        .width = softmax.width,
        .targets_count = pack->targets_count,
    };

    TDM_TRY(network_forward(&memory->network, pack->rows, pack->rows_count));
    network_head(&memory->network, memory->network.hidden, pack->rows_count, memory->logits);
    machine->ops->log_softmax(machine, &softmax);
    TDM_TRY(machine->ops->write(machine, memory->targets, pack->targets,
                                pack->targets_count * sizeof(*pack->targets)));
    machine->ops->choose(machine, &choice);
    return machine->ops->read(machine, pack->numbers, memory->numbers,
                              pack->targets_count * sizeof(*pack->numbers));
}

/* Returns the number of a sample among those of its prompt, which follow one another, from 0. */
static uint32_t number_in_group(const struct tdm_batch *batch, uint32_t sample)
{
    uint32_t first = sample;

    while (first > 0 && batch->samples[first - 1].group == batch->samples[sample].group) {
        first--;
    }
    return sample - first;
}

/* Fails because a number of a target is not finite, and names its prompt and sample. */
static tdm_status fail_not_finite(const struct tdm_batch *batch, const struct target *target,
                                  const char *what, double number)
{
    return tdm_fail(TDM_E_METHOD, "the %s of token %u in sample %u of the prompt \"%s\" is %g",
                    what, target->at, number_in_group(batch, target->sample),
                    batch->samples[target->sample].prompt, number);
}

/* Fails if a statistic of the batch is not finite; `target` is the token that was added last. */
static tdm_status check_sums(const struct batch_loss *batch_loss, const struct target *target)
{
    static const char *const names[BATCH_LOSS_SUMS] = {
        [SUM_LOSS] = "loss",
        [SUM_LOGPROB_DIFFERENCE] = "difference of the log-probability",
        [SUM_KL] = "KL divergence from the engine",
        [SUM_KL_START] = "KL divergence from the reference",
    };

    for (uint32_t i = 0; i < BATCH_LOSS_SUMS; i++) {
        if (names[i] != NULL && !isfinite(batch_loss->sums[i])) {
            return fail_not_finite(batch_loss->batch, target, names[i], batch_loss->sums[i]);
        }
    }
    return TDM_OK;
}

/* Calls `visit` for every target and replaces its log-probability by the gradient of the loss,
 * divided by the number of tokens of the batch. Fails if one of them, or a statistic, is not
 * finite. */
static tdm_status visit_targets(struct batch_loss *batch_loss, const struct pack *pack,
                                lesson_token *visit)
{
    double share = 1.0 / (batch_loss->tokens * temperature_of(batch_loss));

    for (uint32_t i = 0; i < pack->targets_count; i++) {
        const struct target *target = &pack->targets[i];
        float logprob = pack->numbers[i];

        if (!isfinite(logprob)) {
            return fail_not_finite(batch_loss->batch, target, "log-probability", (double)logprob);
        }
        pack->numbers[i] = (float)(share * visit(batch_loss, target, logprob));
        if (!isfinite(pack->numbers[i])) {
            return fail_not_finite(batch_loss->batch, target, "gradient", (double)pack->numbers[i]);
        }
        TDM_TRY(check_sums(batch_loss, target));
    }
    return TDM_OK;
}

/* Computes the gradients of the logits from those of the targets, and from these the gradients of
 * the weights. */
static tdm_status backpropagate(const struct batch_loss *batch_loss,
                                struct batch_loss_memory *memory, float *gradients)
{
    struct machine *machine = memory->network.machine;
    const struct pack *pack = &memory->pack;
    const struct spreading spreading = {
        .gradients = memory->logit_gradients,
        .logprobs = memory->logits,
        .targets = memory->targets,
        .slopes = memory->numbers,
        .width = batch_loss->settings->shape.vocab_size,
        .targets_count = pack->targets_count,
        .count = pack->rows_count,
    };

    TDM_TRY(machine->ops->write(machine, memory->numbers, pack->numbers,
                                pack->targets_count * sizeof(*pack->numbers)));
    machine->ops->spread(machine, &spreading);
    network_backward(&memory->network, pack->rows_count, memory->logit_gradients, gradients,
                     memory->scratch);
    return TDM_OK;
}

tdm_status batch_loss_record_reference(struct batch_loss *batch_loss,
                                       struct batch_loss_memory *memory)
{
    for (uint32_t next = 0; next < batch_loss->batch->samples_count;) {
        TDM_TRY(pack_fill(&memory->pack, batch_loss->settings, batch_loss->batch, &next));
        TDM_TRY(compute_logprobs(batch_loss, memory));
        TDM_TRY(visit_targets(batch_loss, &memory->pack, refer_token));
    }
    return TDM_OK;
}

tdm_status batch_loss_backward(struct batch_loss *batch_loss, struct batch_loss_memory *memory,
                               float *gradients)
{
    const struct tdm_batch *batch = batch_loss->batch;

    for (uint32_t next = 0; next < batch->samples_count;) {
        TDM_TRY(pack_fill(&memory->pack, batch_loss->settings, batch, &next));
        TDM_TRY(compute_logprobs(batch_loss, memory));
        TDM_TRY(visit_targets(batch_loss, &memory->pack,
                              batch->supervised ? imitate_token : reinforce_token));
        TDM_TRY(backpropagate(batch_loss, memory, gradients));
    }
    for (uint32_t i = 0; i < batch->samples_count; i++) {
        batch_loss->sums[SUM_REWARD] += (double)batch->samples[i].reward;
    }
    batch_loss->sums[SUM_SAMPLES] = batch->samples_count;
    return TDM_OK;
}

/* Computes the gradients of the weights from one sample of the batch. The sums of `batch_loss`
 * stay as they are. */
static tdm_status backward_of_sample(const struct batch_loss *batch_loss, uint32_t sample,
                                     struct batch_loss_memory *memory, float *gradients)
{
    size_t place = (size_t)sample * batch_loss->settings->answer_max;
    struct tdm_batch single = *batch_loss->batch;
    struct batch_loss alone = *batch_loss;
    struct machine *machine = memory->network.machine;

    single.samples += sample;
    single.samples_count = 1;
    alone.batch = &single;
    if (!single.supervised) {
        alone.advantages += place;
        alone.reference += place;
    }
    machine->ops->zero(machine,
                       &(const struct filling){gradients, memory->network.model->elements});
    return batch_loss_backward(&alone, memory, gradients);
}

tdm_status batch_loss_find_overflow(const struct batch_loss *batch_loss,
                                    struct batch_loss_memory *memory, float *gradients)
{
    const struct tdm_batch *batch = batch_loss->batch;
    struct machine *machine = memory->network.machine;

    for (uint32_t i = 0; i < batch->samples_count; i++) {
        double squares = 0.0;

        TDM_TRY(backward_of_sample(batch_loss, i, memory, gradients));
        TDM_TRY(
            machine->ops->squares(machine, gradients, memory->network.model->elements, &squares));
        if (!isfinite(squares)) {
            return tdm_fail(TDM_E_METHOD,
                            "the gradient of the weights from sample %u of the prompt \"%s\" is "
                            "not finite",
                            number_in_group(batch, i), batch->samples[i].prompt);
        }
    }
    return TDM_OK;
}

tdm_status batch_loss_reduce(struct batch_loss *batch_loss, tdm_collective_group *group)
{
    if (group == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm_collective_all_reduce_double(group, batch_loss->sums, BATCH_LOSS_SUMS, TDM_SUM));
    return tdm_collective_all_reduce_double(group, &batch_loss->logprob_difference_max, 1, TDM_MAX);
}
