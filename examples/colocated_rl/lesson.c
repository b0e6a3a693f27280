/* lesson.c - what one batch teaches: its loss, its gradients, and numbers about it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/lesson.h"

#include <math.h>
#include <stdlib.h>

/* What is done with one predicted token: returns the gradient of the loss for its
 * log-probability. */
typedef double lesson_token(struct lesson *lesson, const struct target *target, float logprob);

static tdm_status make_advantages(struct lesson *lesson)
{
    const struct tdm_batch *batch = lesson->batch;
    uint32_t stride = lesson->settings->answer_max;

    for (uint32_t from = 0, to; from < batch->samples_count; from = to) {
        for (to = from; to < batch->samples_count &&
                        batch->samples[to].group == batch->samples[from].group;
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
                        lesson->advantages + (size_t)from * stride, stride);
    }
    return TDM_OK;
}

tdm_status lesson_begin(struct lesson *lesson, const struct settings *settings,
                        const struct tdm_batch *batch, tdm_group *group)
{
    size_t places = (size_t)batch->samples_count * settings->answer_max + 1;
    uint64_t tokens;

    *lesson = (struct lesson){.settings = settings, .batch = batch};
    TDM_TRY(pack_count_targets(batch, &tokens));
    lesson->tokens = (double)tokens;
    if (group != NULL) {
        TDM_TRY(tdm_group_all_reduce_double(group, &lesson->tokens, 1, TDM_SUM));
    }
    if (batch->supervised) {
        return TDM_OK;
    }
    lesson->advantages = calloc(places, sizeof(float));
    lesson->reference = calloc(places, sizeof(float));
    if (lesson->advantages == NULL || lesson->reference == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a batch of %u samples", batch->samples_count);
    }
    return make_advantages(lesson);
}

void lesson_end(struct lesson *lesson)
{
    free(lesson->advantages);
    free(lesson->reference);
    *lesson = (struct lesson){0};
}

static double refer_token(struct lesson *lesson, const struct target *target, float logprob)
{
    lesson->reference[target->sample * lesson->settings->answer_max + target->at] = logprob;
    return 0.0;
}

static double imitate_token(struct lesson *lesson, const struct target *target, float logprob)
{
    (void)target;
    lesson->sums[SUM_LOSS] -= (double)logprob;
    lesson->sums[SUM_TOKENS] += 1.0;
    return -1.0;
}

static double reinforce_token(struct lesson *lesson, const struct target *target, float logprob)
{
    const struct tdm_sample *sample = &lesson->batch->samples[target->sample];
    size_t place = target->sample * lesson->settings->answer_max + target->at;
    const struct grpo_token token = {
        .logprob = (double)logprob,
        .sampled = (double)sample->logprobs[target->at],
        .reference = (double)lesson->reference[place],
        .advantage = (double)lesson->advantages[place],
    };
    struct grpo_loss loss = grpo_token_loss(&lesson->settings->grpo, &token);
    double difference = fabs(token.logprob - token.sampled);

    lesson->sums[SUM_LOSS] += loss.loss;
    lesson->sums[SUM_TOKENS] += 1.0;
    lesson->sums[SUM_CLIPPED] += loss.clipped;
    lesson->sums[SUM_DIFFERENCE] += difference;
    lesson->sums[SUM_KL] += grpo_divergence(token.logprob, token.sampled);
    lesson->sums[SUM_KL_START] += loss.kl;
    lesson->difference_max = fmax(lesson->difference_max, difference);
    return loss.gradient;
}

static double temperature_of(const struct lesson *lesson)
{
    return lesson->batch->supervised ? 1.0 : lesson->settings->temperature;
}

/* Computes the log-probabilities of the packed rows, in place of their logits, and brings those
 * of the targets to the pack's numbers. */
static tdm_status predict(const struct lesson *lesson, struct lesson_memory *memory)
{
    struct machine *machine = memory->network.machine;
    const struct pack *pack = &memory->pack;
    const struct log_softmax softmax = {
        .x = memory->logits,
        .scale = (float)(1.0 / temperature_of(lesson)),
        .width = lesson->settings->shape.vocab_size,
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

/* Gives every target to `visit`; its slope takes the place of its log-probability. */
static void visit_targets(struct lesson *lesson, const struct pack *pack, lesson_token *visit)
{
    double share = 1.0 / (lesson->tokens * temperature_of(lesson));

    for (uint32_t i = 0; i < pack->targets_count; i++) {
        pack->numbers[i] = (float)(share * visit(lesson, &pack->targets[i], pack->numbers[i]));
    }
}

/* Spreads the slopes over the logits, and brings them back to the weights. */
static tdm_status descend(const struct lesson *lesson, struct lesson_memory *memory,
                          float *gradients)
{
    struct machine *machine = memory->network.machine;
    const struct pack *pack = &memory->pack;
    const struct spreading spreading = {
        .gradients = memory->logit_gradients,
        .logprobs = memory->logits,
        .targets = memory->targets,
        .slopes = memory->numbers,
        .width = lesson->settings->shape.vocab_size,
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

tdm_status lesson_refer(struct lesson *lesson, struct lesson_memory *memory)
{
    for (uint32_t next = 0; next < lesson->batch->samples_count;) {
        TDM_TRY(pack_fill(&memory->pack, lesson->settings, lesson->batch, &next));
        TDM_TRY(predict(lesson, memory));
        visit_targets(lesson, &memory->pack, refer_token);
    }
    return TDM_OK;
}

tdm_status lesson_learn(struct lesson *lesson, struct lesson_memory *memory, float *gradients)
{
    const struct tdm_batch *batch = lesson->batch;

    for (uint32_t next = 0; next < batch->samples_count;) {
        TDM_TRY(pack_fill(&memory->pack, lesson->settings, batch, &next));
        TDM_TRY(predict(lesson, memory));
        visit_targets(lesson, &memory->pack,
                      batch->supervised ? imitate_token : reinforce_token);
        TDM_TRY(descend(lesson, memory, gradients));
    }
    for (uint32_t i = 0; i < batch->samples_count; i++) {
        lesson->sums[SUM_REWARD] += (double)batch->samples[i].reward;
    }
    lesson->sums[SUM_SAMPLES] = batch->samples_count;
    return TDM_OK;
}

tdm_status lesson_gather(struct lesson *lesson, tdm_group *group)
{
    if (group == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm_group_all_reduce_double(group, lesson->sums, LESSON_SUMS, TDM_SUM));
    return tdm_group_all_reduce_double(group, &lesson->difference_max, 1, TDM_MAX);
}
