/* train_batch.c - encodes batches of samples for trainer ranks and the metrics that they reply. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The messages are declared in runtime/messages/messages.h. Arrays of numbers travel as bytes in
 * the byte order of the machine, since all ranks have the same. Decoding allocates one block:
 * the samples, then the numbers of all of them, which are copied because bytes in a message may
 * not be aligned. Texts stay in the message. Limits on counts protect against malformed
 * messages. The functions have no state. */
#include "colocate/job/train_batch.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most samples that a decoded batch may have. */
enum { SAMPLES_MAX = 1 << 20 };

/* Returns an array of 4-byte numbers as bytes; empty if `numbers` is NULL. */
static struct tdm_bytes numbers_bytes(const void *numbers, uint32_t count)
{
    return (struct tdm_bytes){numbers, numbers == NULL ? 0 : (size_t)count * 4};
}

/* Getter of a message list: fills the message of sample `index`. */
static void get_sample(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm_sample *sample = &((const struct tdm_sample *)arg)[index];
    struct tdm__sample_message *item = item_out;

    *item = (struct tdm__sample_message){
        .group = sample->group,
        .prompt = sample->prompt,
        .answer = sample->answer,
        .tokens_count = sample->tokens_count,
        .tokens = numbers_bytes(sample->tokens, sample->tokens_count),
        .logprobs = numbers_bytes(sample->logprobs, sample->tokens_count),
        .token_rewards = numbers_bytes(sample->token_rewards, sample->tokens_count),
        .reward = (double)sample->reward,
        .weight_version = sample->weight_version};
}

tdm_status tdm__batch_write(tdm_writer *writer, const struct tdm_batch *batch)
{
    const struct tdm__batch_message message = {
        .supervised = batch->supervised != 0,
        .step = batch->step,
        .steps_count = batch->steps_count,
        .samples = {.count = batch->samples_count, .get = get_sample, .arg = batch->samples}};

    return tdm__batch_encode(&message, writer);
}

/* Copies the numbers of a message to `*store` and advances it, because bytes in a message may
 * not be aligned. TDM_E_PROTOCOL if there are not `count` numbers. */
static tdm_status read_numbers(struct tdm_bytes bytes, uint32_t count, char **store,
                               const void **numbers_out)
{
    if (bytes.data == NULL) {
        *numbers_out = NULL;
        return TDM_OK;
    }
    if (bytes.size_bytes != (size_t)count * 4) {
        return tdm__fail(TDM_E_PROTOCOL, "%zu bytes for %u tokens", bytes.size_bytes, count);
    }
    memcpy(*store, bytes.data, bytes.size_bytes);
    *numbers_out = *store;
    *store += bytes.size_bytes;
    return TDM_OK;
}

/* Decodes one sample; its numbers are copied to `*store`, its texts are borrowed. */
static tdm_status read_sample(const struct tdm__sample_message *message, char **store,
                              struct tdm_sample *sample)
{
    const void *numbers;

    *sample = (struct tdm_sample){.group = message->group,
                                  .prompt = message->prompt == NULL ? "" : message->prompt,
                                  .answer = message->answer == NULL ? "" : message->answer,
                                  .tokens_count = message->tokens_count,
                                  .reward = (float)message->reward,
                                  .weight_version = message->weight_version};
    TDM_TRY(read_numbers(message->tokens, sample->tokens_count, store, &numbers));
    sample->tokens = numbers;
    TDM_TRY(read_numbers(message->logprobs, sample->tokens_count, store, &numbers));
    sample->logprobs = numbers;
    TDM_TRY(read_numbers(message->token_rewards, sample->tokens_count, store, &numbers));
    sample->token_rewards = numbers;
    return TDM_OK;
}

/* Allocates the samples and, behind them, space for the numbers of all samples. */
static tdm_status allocate_samples(const struct tdm__message_list *samples,
                                   struct tdm_sample **samples_out, char **store_out)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < samples->count; i++) {
        struct tdm__sample_message sample;

        tdm__message_list_read(samples, i, &sample, sizeof(sample));
        bytes +=
            sample.tokens.size_bytes + sample.logprobs.size_bytes + sample.token_rewards.size_bytes;
    }
    *samples_out = calloc(1, (samples->count + 1) * sizeof(**samples_out) + bytes);
    if (*samples_out == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a batch of %u samples", samples->count);
    }
    *store_out = (char *)(*samples_out + samples->count + 1);
    return TDM_OK;
}

tdm_status tdm__batch_read(const tdm_value *value, struct tdm_batch *batch_out)
{
    struct tdm__batch_message message;
    struct tdm_sample *all;
    char *store;

    TDM_TRY(tdm__batch_decode(value, &message));
    if (message.samples.count > SAMPLES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "a batch of %u samples", message.samples.count);
    }
    TDM_TRY(allocate_samples(&message.samples, &all, &store));
    for (uint32_t i = 0; i < message.samples.count; i++) {
        struct tdm__sample_message sample;
        tdm_status status;

        tdm__message_list_read(&message.samples, i, &sample, sizeof(sample));
        status = read_sample(&sample, &store, &all[i]);
        if (status != TDM_OK) {
            free(all);
            return tdm__wrap(status, "sample %u", i);
        }
    }
    *batch_out = (struct tdm_batch){.supervised = message.supervised,
                                    .step = message.step,
                                    .steps_count = message.steps_count,
                                    .samples = all,
                                    .samples_count = message.samples.count};
    return TDM_OK;
}

void tdm__batch_fini(struct tdm_batch *batch)
{
    free((struct tdm_sample *)(uintptr_t)batch->samples);
    batch->samples = NULL;
}

/* Getter of a message list: fills the message of metric `index`. */
static void get_metric(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm_metrics *metrics = arg;
    struct tdm__metric_message *item = item_out;

    *item =
        (struct tdm__metric_message){metrics->entries[index].name, metrics->entries[index].value};
}

tdm_status tdm__train_metrics_write(tdm_writer *writer, const struct tdm_metrics *metrics)
{
    struct tdm__step_metrics_message message = {.metrics = {.get = get_metric, .arg = metrics}};

    if (metrics->count > TDM_METRICS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u metrics, at most %d", metrics->count,
                         (int)TDM_METRICS_MAX);
    }
    message.metrics.count = metrics->count;
    return tdm__step_metrics_encode(&message, writer);
}

tdm_status tdm__train_metrics_read(const tdm_value *value, struct tdm_metrics *metrics_out)
{
    struct tdm__step_metrics_message message;
    struct tdm_metrics metrics = {.count = 0};

    TDM_TRY(tdm__step_metrics_decode(value, &message));
    metrics.count = message.metrics.count;
    if (metrics.count > TDM_METRICS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%u metrics, at most %d", metrics.count,
                         (int)TDM_METRICS_MAX);
    }
    for (uint32_t i = 0; i < metrics.count; i++) {
        struct tdm__metric_message metric;

        tdm__message_list_read(&message.metrics, i, &metric, sizeof(metric));
        (void)snprintf(metrics.entries[i].name, sizeof(metrics.entries[i].name), "%s", metric.name);
        metrics.entries[i].value = metric.value;
        if (!isfinite(metric.value)) {
            return tdm__fail(TDM_E_TYPE,
                             "the metric %s is %g; the last checkpoint is kept as it is",
                             metric.name, metric.value);
        }
    }
    *metrics_out = metrics;
    return TDM_OK;
}

double tdm__train_metrics_find(const struct tdm_metrics *metrics, const char *name,
                               double otherwise)
{
    for (uint32_t i = 0; i < metrics->count; i++) {
        if (strcmp(metrics->entries[i].name, name) == 0) {
            return metrics->entries[i].value;
        }
    }
    return otherwise;
}
