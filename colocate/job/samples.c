/* samples.c - batches of samples on their way from the controller to trainer ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/samples.h"

#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MAX = 1 << 20 };

/* An array of 4-byte numbers as bytes; nil where there is none. */
static void write_numbers(tdm_writer *writer, const void *numbers, uint32_t count)
{
    if (numbers == NULL) {
        tdm_write_nil(writer);
    } else {
        tdm_write_bytes(writer, numbers, (size_t)count * 4);
    }
}

tdm_status tdm__batch_write(tdm_writer *writer, const struct tdm_batch *batch)
{
    tdm_write_array(writer, 4);
    tdm_write_bool(writer, batch->supervised);
    tdm_write_uint(writer, batch->step);
    tdm_write_uint(writer, batch->steps_count);
    tdm_write_array(writer, batch->samples_count);
    for (uint32_t i = 0; i < batch->samples_count; i++) {
        const struct tdm_sample *sample = &batch->samples[i];

        tdm_write_array(writer, 9);
        tdm_write_uint(writer, sample->group);
        tdm_write_string(writer, sample->prompt);
        tdm_write_string(writer, sample->answer);
        tdm_write_uint(writer, sample->tokens_count);
        write_numbers(writer, sample->tokens, sample->tokens_count);
        write_numbers(writer, sample->logprobs, sample->tokens_count);
        write_numbers(writer, sample->token_rewards, sample->tokens_count);
        tdm_write_double(writer, (double)sample->reward);
        tdm_write_uint(writer, sample->weight_version);
    }
    return tdm_writer_status(writer);
}

/* Bytes of a message need not be aligned: the numbers are copied to `*store`, which moves on.
 */
static tdm_status read_numbers(const tdm_value *value, uint32_t count, char **store,
                               const void **numbers_out)
{
    struct tdm_bytes bytes = tdm_value_bytes(value);

    if (tdm_value_kind_of(value) == TDM_NIL) {
        *numbers_out = NULL;
        return TDM_OK;
    }
    if (tdm_value_kind_of(value) != TDM_BYTES || bytes.size_bytes != (size_t)count * 4) {
        return tdm__fail(TDM_E_PROTOCOL, "%zu bytes for %u tokens", bytes.size_bytes, count);
    }
    memcpy(*store, bytes.data, bytes.size_bytes);
    *numbers_out = *store;
    *store += bytes.size_bytes;
    return TDM_OK;
}

static tdm_status read_sample(const tdm_value *value, char **store, struct tdm_sample *sample)
{
    uint64_t tokens_count = tdm_value_uint(tdm_value_at(value, 3), UINT64_MAX);
    const void *numbers;

    if (tdm_value_count(value) != 9) {
        return tdm__fail(TDM_E_PROTOCOL, "%u values, a sample has 9", tdm_value_count(value));
    }
    if (tokens_count > UINT32_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "the number of its tokens is none");
    }
    sample->group = (uint32_t)tdm_value_uint(tdm_value_at(value, 0), 0);
    sample->prompt = tdm_value_string(tdm_value_at(value, 1), "");
    sample->answer = tdm_value_string(tdm_value_at(value, 2), "");
    sample->tokens_count = (uint32_t)tokens_count;
    TDM_TRY(read_numbers(tdm_value_at(value, 4), sample->tokens_count, store, &numbers));
    sample->tokens = numbers;
    TDM_TRY(read_numbers(tdm_value_at(value, 5), sample->tokens_count, store, &numbers));
    sample->logprobs = numbers;
    TDM_TRY(read_numbers(tdm_value_at(value, 6), sample->tokens_count, store, &numbers));
    sample->token_rewards = numbers;
    sample->reward = (float)tdm_value_double(tdm_value_at(value, 7), 0);
    sample->weight_version = tdm_value_uint(tdm_value_at(value, 8), 0);
    return TDM_OK;
}

/* Samples first, then room for every number that their values can hold. */
static tdm_status make_room(const tdm_value *samples, struct tdm_sample **samples_out,
                            char **store_out)
{
    uint32_t count = tdm_value_count(samples);
    size_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t field = 4; field <= 6; field++) {
            bytes += tdm_value_bytes(tdm_value_at(tdm_value_at(samples, i), field)).size_bytes;
        }
    }
    *samples_out = calloc(1, (count + 1) * sizeof(**samples_out) + bytes);
    if (*samples_out == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a batch of %u samples", count);
    }
    *store_out = (char *)(*samples_out + count + 1);
    return TDM_OK;
}

tdm_status tdm__batch_read(const tdm_value *value, struct tdm_batch *batch_out)
{
    const tdm_value *samples = tdm_value_at(value, 3);
    struct tdm_sample *all;
    char *store;

    if (tdm_value_count(value) != 4 || tdm_value_count(samples) > SAMPLES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "a batch of %u values, %u samples",
                         tdm_value_count(value), tdm_value_count(samples));
    }
    TDM_TRY(make_room(samples, &all, &store));
    for (uint32_t i = 0; i < tdm_value_count(samples); i++) {
        tdm_status status = read_sample(tdm_value_at(samples, i), &store, &all[i]);

        if (status != TDM_OK) {
            free(all);
            return tdm__wrap(status, "sample %u", i);
        }
    }
    *batch_out =
        (struct tdm_batch){.supervised = tdm_value_bool(tdm_value_at(value, 0), 0),
                           .step = (uint32_t)tdm_value_uint(tdm_value_at(value, 1), 0),
                           .steps_count = (uint32_t)tdm_value_uint(tdm_value_at(value, 2), 0),
                           .samples = all,
                           .samples_count = tdm_value_count(samples)};
    return TDM_OK;
}

void tdm__batch_fini(struct tdm_batch *batch)
{
    free((struct tdm_sample *)(uintptr_t)batch->samples);
    batch->samples = NULL;
}

tdm_status tdm__metrics_write(tdm_writer *writer, const struct tdm_metrics *metrics)
{
    if (metrics->count > TDM_METRICS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u metrics, at most %d", metrics->count,
                         (int)TDM_METRICS_MAX);
    }
    tdm_write_array(writer, 2 * metrics->count);
    for (uint32_t i = 0; i < metrics->count; i++) {
        tdm_write_string(writer, metrics->entries[i].name);
        tdm_write_double(writer, metrics->entries[i].value);
    }
    return tdm_writer_status(writer);
}

tdm_status tdm__metrics_read(const tdm_value *value, struct tdm_metrics *metrics_out)
{
    struct tdm_metrics metrics = {.count = tdm_value_count(value) / 2};

    if (metrics.count > TDM_METRICS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%u metrics, at most %d", metrics.count,
                         (int)TDM_METRICS_MAX);
    }
    for (uint32_t i = 0; i < metrics.count; i++) {
        (void)snprintf(metrics.entries[i].name, sizeof(metrics.entries[i].name), "%s",
                       tdm_value_string(tdm_value_at(value, 2 * i), ""));
        metrics.entries[i].value = tdm_value_double(tdm_value_at(value, 2 * i + 1), 0);
    }
    *metrics_out = metrics;
    return TDM_OK;
}

double tdm__metrics_find(const struct tdm_metrics *metrics, const char *name, double otherwise)
{
    for (uint32_t i = 0; i < metrics->count; i++) {
        if (strcmp(metrics->entries[i].name, name) == 0) {
            return metrics->entries[i].value;
        }
    }
    return otherwise;
}
