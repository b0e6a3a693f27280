/* rollout.c - engines answer prompts, answers get rewards. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rollout.h"

#include "colocate/job/completions.h"
#include "colocate/job/reward_guard.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/splitmix.h"

#include <stdlib.h>
#include <string.h>

/* What one engine is asked: rows first … first+count of the rollout. */
struct rollout_share {
    uint32_t first;
    uint32_t count;
};

/* One rollout under way. */
struct rollout_requests {
    struct tdm__worker_group *workers;
    const struct tdm__rollout_options *options;
    struct rollout_share *shares; /* of each engine; owned */
    tdm_ref **refs;               /* of each rank, NULL where nobody was asked; owned */
};

/* Rows are divided over those who serve now; whose answers they are makes no difference.  How
 * many they are. */
static uint32_t divide_rows(struct rollout_requests *asking)
{
    const struct tdm__worker_group *workers = asking->workers;
    uint64_t rows_count = asking->options->rows_count;
    uint32_t engines = 0;
    uint32_t place = 0;

    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        engines += tdm__worker_group_engine_serves(workers, i) ? 1 : 0;
    }
    for (uint32_t i = 0; engines > 0 && i < workers->spec->num_engines; i++) {
        if (tdm__worker_group_engine_serves(workers, i)) {
            uint32_t first = (uint32_t)(rows_count * place / engines);

            place++;
            asking->shares[i] =
                (struct rollout_share){first, (uint32_t)(rows_count * place / engines) - first};
        }
    }
    return engines;
}

/* ---- asking ----------------------------------------------------------------------------- */

static tdm_status write_share(tdm_writer *writer, const struct tdm__rollout_options *options,
                              struct rollout_share share)
{
    uint32_t count = share.count * options->samples_per_row;
    struct tdm_prompt *prompts = calloc(count + 1, sizeof(*prompts));
    tdm_status status;

    if (prompts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u prompts", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = share.first + i / options->samples_per_row;

        prompts[i].text = options->dataset->rows[options->rows[row]].prompt;
        prompts[i].seed =
            tdm__splitmix64(tdm__splitmix64(options->seed, row), i % options->samples_per_row);
    }
    status = tdm__generation_write_request(writer, &options->sampling, prompts, count);
    free(prompts);
    return status;
}

/* The same question to every rank of an engine. */
static tdm_status send_engine_share(struct rollout_requests *asking, uint32_t engine)
{
    size_t first = (size_t)engine * asking->workers->ranks_per_engine;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = write_share(writer, asking->options, asking->shares[engine]);
    for (size_t i = first; i < first + asking->workers->ranks_per_engine && status == TDM_OK; i++) {
        status = tdm_actor_call_packed(asking->workers->engines[i], "generate",
                                       tdm_writer_bytes(writer), &asking->refs[i]);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- reading ---------------------------------------------------------------------------- */

static tdm_status read_sample(const struct tdm__rollout_options *options,
                              struct tdm__rollout *rollout,
                              const struct tdm__generated_message *reply, uint32_t index,
                              uint32_t position)
{
    const struct tdm__dataset_row *row =
        &options->dataset->rows[options->rows[position / options->samples_per_row]];
    size_t room = (size_t)position * rollout->tokens_max;
    struct tdm_sample *sample = &rollout->samples[position];
    struct tdm__completion_message message;
    struct tdm_completion completion;

    tdm__message_list_read(&reply->completions, index, &message, sizeof(message));
    TDM_TRY(tdm__wrap(tdm__completion_read(&message, rollout->tokens_max, rollout->tokens + room,
                                           rollout->logprobs + room, &completion),
                      "answer %u", index));
    *sample = (struct tdm_sample){.group = position / options->samples_per_row,
                                  .prompt = row->prompt,
                                  .answer = row->answer,
                                  .tokens = completion.tokens,
                                  .logprobs = completion.logprobs,
                                  .token_rewards = rollout->token_rewards + room,
                                  .tokens_count = completion.tokens_count,
                                  .weight_version = reply->version};
    sample->reward = tdm__reward_guard_call(options->reward, row->prompt, row->answer, &completion,
                                            rollout->token_rewards + room);
    rollout->reward += (double)sample->reward / rollout->samples_count;
    rollout->exact += sample->reward >= 1.0F ? 1.0 / rollout->samples_count : 0.0;
    return TDM_OK;
}

static tdm_status read_answers_of(const struct rollout_requests *asking, uint32_t engine,
                                  const struct tdm__generated_message *reply,
                                  struct tdm__rollout *rollout)
{
    uint32_t per_row = asking->options->samples_per_row;
    struct rollout_share share = asking->shares[engine];

    if (reply->completions.count != share.count * per_row) {
        return tdm__fail(TDM_E_PROTOCOL, "engine %u answered %u of %u prompts", engine,
                         reply->completions.count, share.count * per_row);
    }
    for (uint32_t i = 0; i < share.count * per_row; i++) {
        TDM_TRY(
            tdm__wrap(read_sample(asking->options, rollout, reply, i, share.first * per_row + i),
                      "engine %u", engine));
    }
    return TDM_OK;
}

static tdm_status read_answers(const struct rollout_requests *asking, struct tdm__rollout *rollout)
{
    uint32_t first = UINT32_MAX;
    uint64_t version = 0;

    for (uint32_t engine = 0; engine < asking->workers->spec->num_engines; engine++) {
        tdm_ref *ref = asking->refs[(size_t)engine * asking->workers->ranks_per_engine];
        struct tdm__generated_message message;
        const tdm_value *reply;
        uint64_t own;

        if (ref == NULL) {
            continue;
        }
        TDM_TRY(tdm_get_value(ref, 0, &reply));
        TDM_TRY(tdm__wrap(tdm__generated_decode(reply, &message), "engine %u", engine));
        own = message.version;
        if (first == UINT32_MAX) {
            first = engine;
            version = own;
        } else if (version != own) {
            return tdm__fail(TDM_E_STATE,
                             "engine %u answered with version %llu, engine %u with %llu", engine,
                             (unsigned long long)own, first, (unsigned long long)version);
        }
        TDM_TRY(read_answers_of(asking, engine, &message, rollout));
    }
    return TDM_OK;
}

/* ---- the whole -------------------------------------------------------------------------- */

static tdm_status allocate_samples(const struct tdm__rollout_options *options,
                                   struct tdm__rollout *rollout)
{
    size_t count = (size_t)options->rows_count * options->samples_per_row;
    size_t room = (count + 1) * options->sampling.tokens_max;

    *rollout = (struct tdm__rollout){.samples_count = (uint32_t)count,
                                     .tokens_max = options->sampling.tokens_max,
                                     .samples = calloc(count + 1, sizeof(*rollout->samples)),
                                     .tokens = calloc(room, sizeof(*rollout->tokens)),
                                     .logprobs = calloc(room, sizeof(*rollout->logprobs)),
                                     .token_rewards = calloc(room, sizeof(float))};
    if (rollout->samples == NULL || rollout->tokens == NULL || rollout->logprobs == NULL ||
        rollout->token_rewards == NULL) {
        tdm__rollout_fini(rollout);
        return tdm__fail(TDM_E_NOMEM, "a rollout of %zu samples", count);
    }
    return TDM_OK;
}

static tdm_status request_and_read(struct rollout_requests *asking, struct tdm__rollout *rollout)
{
    struct tdm__worker_group *workers = asking->workers;
    const struct tdm__rollout_options *options = asking->options;
    struct tdm__reward_guard guard;
    tdm_status status;

    if (divide_rows(asking) == 0) {
        return tdm__fail(TDM_E_STATE, "none of %u engines serves", workers->spec->num_engines);
    }
    for (uint32_t engine = 0; engine < workers->spec->num_engines; engine++) {
        if (tdm__worker_group_engine_serves(workers, engine)) {
            TDM_TRY(send_engine_share(asking, engine));
        }
    }
    if (options->on_requests_sent != NULL) {
        options->on_requests_sent(options->on_requests_sent_arg);
    }
    TDM_TRY(tdm__worker_group_await(workers, asking->refs, workers->engines_count,
                                    (int64_t)workers->spec->generate_timeout_ms));
    tdm__reward_guard_begin(&guard, asking->options->library);
    status = read_answers(asking, rollout);
    tdm__reward_guard_end(&guard);
    return status;
}

static tdm_status run_requests(struct rollout_requests *asking, struct tdm__rollout *rollout_out)
{
    tdm_status status;

    TDM_TRY(allocate_samples(asking->options, rollout_out));
    status = request_and_read(asking, rollout_out);
    if (status != TDM_OK) {
        tdm__rollout_fini(rollout_out);
    }
    return status;
}

tdm_status tdm__rollout_run(struct tdm__worker_group *workers,
                            const struct tdm__rollout_options *options,
                            struct tdm__rollout *rollout_out)
{
    struct rollout_requests asking = {
        .workers = workers,
        .options = options,
        .shares = calloc(workers->spec->num_engines + 1, sizeof(struct rollout_share)),
        .refs = calloc(workers->engines_count + 1, sizeof(tdm_ref *))};
    tdm_status status = asking.shares == NULL || asking.refs == NULL
                            ? tdm__fail(TDM_E_NOMEM, "calls to %u ranks", workers->engines_count)
                            : run_requests(&asking, rollout_out);

    if (asking.refs != NULL) {
        tdm__worker_group_release_refs(asking.refs, workers->engines_count);
    }
    free(asking.refs);
    free(asking.shares);
    return tdm__wrap(status, "generate");
}

void tdm__rollout_fini(struct tdm__rollout *rollout)
{
    free(rollout->samples);
    free(rollout->tokens);
    free(rollout->logprobs);
    free(rollout->token_rewards);
    *rollout = (struct tdm__rollout){.samples_count = 0};
}

void tdm__rollout_shuffle_rewards(struct tdm__rollout *rollout, uint64_t seed)
{
    for (uint32_t i = rollout->samples_count; i > 1; i--) {
        struct tdm_sample *a = &rollout->samples[i - 1];
        struct tdm_sample *b = &rollout->samples[tdm__splitmix64(seed, i) % i];
        const float *token_rewards = a->token_rewards; /* rows of equal room, whoever has fewer */
        float reward = a->reward;

        a->token_rewards = b->token_rewards;
        a->reward = b->reward;
        b->token_rewards = token_rewards;
        b->reward = reward;
    }
}
