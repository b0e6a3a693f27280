/* rollout.c - lets the engines complete prompts and computes the rewards. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The rows are divided evenly over the engines that serve. Every rank of an engine gets the same
 * request, since they compute together; only rank 0 replies completions. The seed of each sample
 * depends on the seed of the rollout, the row and the sample number alone. The result is therefore
 * the same with any number of engines. If an engine is lost, the caller repeats the whole rollout
 * with the others. All engines must reply with the same weight version. The reward function runs in
 * this process, on the controller's thread, under the crash guard (reward_guard.h), unless an actor
 * computes the rewards (rewards.h) after all completions have come. */
#include "colocate/job/rollout.h"

#include "colocate/job/completions.h"
#include "colocate/job/reward_guard.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/splitmix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The rows that one engine completes. */
struct rollout_share {
    /* Index of the first row in the rollout. */
    uint32_t first;
    /* Number of rows; 0 if the engine does not serve. */
    uint32_t count;
};

/* The requests of one rollout. It lives on the stack of tdm__rollout_run(). */
struct rollout_requests {
    /* Borrowed worker group. */
    struct tdm__worker_group *workers;
    /* Borrowed options of the rollout. */
    const struct tdm__rollout_options *options;
    /* Owned array with the share of each engine. */
    struct rollout_share *shares;
    /* Owned array with the reference to the reply of each engine rank; NULL if it was not
     * called. */
    tdm_ref **refs;
    /* Owned array with the completion of each sample, whose text is borrowed from a reply. */
    struct tdm_completion *completions;
};

/* Divides the rows over the engines that serve. Returns the number of these engines. */
static uint32_t divide_rows(struct rollout_requests *requests)
{
    const struct tdm__worker_group *workers = requests->workers;
    uint64_t rows_count = requests->options->rows_count;
    uint32_t engines = 0;
    uint32_t share_index = 0;

    for (uint32_t i = 0; i < workers->spec->num_engines; i++) {
        engines += tdm__worker_group_engine_serves(workers, i) ? 1 : 0;
    }
    for (uint32_t i = 0; engines > 0 && i < workers->spec->num_engines; i++) {
        if (tdm__worker_group_engine_serves(workers, i)) {
            uint32_t first = (uint32_t)(rows_count * share_index / engines);

            share_index++;
            requests->shares[i] = (struct rollout_share){
                first, (uint32_t)(rows_count * share_index / engines) - first};
        }
    }
    return engines;
}

/* ---- requests --------------------------------------------------------------------------- */

/* Encodes the request for one share: each row's prompt `samples_per_row` times, with different
 * seeds. */
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

/* Sends the request to every rank of an engine. */
static tdm_status send_engine_share(struct rollout_requests *requests, uint32_t engine)
{
    size_t first = (size_t)engine * requests->workers->ranks_per_engine;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = write_share(writer, requests->options, requests->shares[engine]);
    for (size_t i = first; i < first + requests->workers->ranks_per_engine && status == TDM_OK;
         i++) {
        status = tdm_actor_call_packed(requests->workers->engines[i], "generate",
                                       tdm_writer_bytes(writer), &requests->refs[i]);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- replies --------------------------------------------------------------------------- */

/* Checks that the rewards of a sample are finite numbers, and also its log-probabilities if it was
 * sampled to learn from it. `sample_index` counts the samples of its prompt from 0. */
static tdm_status check_numbers(const struct tdm_sample *sample, uint32_t sample_index,
                                bool is_learned_from)
{
    if (!isfinite(sample->reward)) {
        return tdm__fail(TDM_E_TYPE, "the reward of sample %u of the prompt \"%s\" is %g",
                         sample_index, sample->prompt, (double)sample->reward);
    }
    for (uint32_t i = 0; i < sample->tokens_count; i++) {
        if (!isfinite(sample->token_rewards[i])) {
            return tdm__fail(TDM_E_TYPE,
                             "the reward of token %u in sample %u of the prompt \"%s\" is %g", i,
                             sample_index, sample->prompt, (double)sample->token_rewards[i]);
        }
        if (is_learned_from && !isfinite(sample->logprobs[i])) {
            return tdm__fail(
                TDM_E_TYPE,
                "the log-probability of token %u in sample %u of the prompt \"%s\" is %g", i,
                sample_index, sample->prompt, (double)sample->logprobs[i]);
        }
    }
    return TDM_OK;
}

/* Checks a sample that has its reward, and adds the reward to the sums of the rollout. */
static tdm_status add_reward(const struct tdm__rollout_options *options,
                             struct tdm__rollout *rollout, uint32_t position)
{
    const struct tdm_sample *sample = &rollout->samples[position];

    TDM_TRY(check_numbers(sample, position % options->samples_per_row,
                          options->sampling.temperature > 0));
    rollout->reward += (double)sample->reward / rollout->samples_count;
    rollout->exact += sample->reward >= 1.0F ? 1.0 / rollout->samples_count : 0.0;
    return TDM_OK;
}

/* Decodes completion `index` of a reply into the sample at `position` of the rollout, and
 * computes its reward unless an actor does. */
static tdm_status read_sample(const struct rollout_requests *requests, struct tdm__rollout *rollout,
                              const struct tdm__generated_message *reply, uint32_t index,
                              uint32_t position)
{
    const struct tdm__rollout_options *options = requests->options;
    const struct tdm__dataset_row *row =
        &options->dataset->rows[options->rows[position / options->samples_per_row]];
    size_t offset = (size_t)position * rollout->tokens_max;
    struct tdm_sample *sample = &rollout->samples[position];
    struct tdm_completion *completion = &requests->completions[position];
    struct tdm__completion_message message;

    tdm__message_list_read(&reply->completions, index, &message, sizeof(message));
    TDM_TRY(tdm__wrap(tdm__completion_read(&message, rollout->tokens_max, rollout->tokens + offset,
                                           rollout->logprobs + offset, completion),
                      "answer %u", index));
    *sample = (struct tdm_sample){.group = position / options->samples_per_row,
                                  .prompt = row->prompt,
                                  .answer = row->answer,
                                  .tokens = completion->tokens,
                                  .logprobs = completion->logprobs,
                                  .token_rewards = rollout->token_rewards + offset,
                                  .tokens_count = completion->tokens_count,
                                  .weight_version = reply->version};
    if (options->rewards != NULL) {
        return TDM_OK;
    }
    sample->reward = tdm__reward_guard_call(options->reward, row->prompt, row->answer, completion,
                                            rollout->token_rewards + offset);
    return add_reward(options, rollout, position);
}

/* Decodes all completions of one engine. */
static tdm_status read_engine_completions(const struct rollout_requests *requests, uint32_t engine,
                                          const struct tdm__generated_message *reply,
                                          struct tdm__rollout *rollout)
{
    uint32_t per_row = requests->options->samples_per_row;
    struct rollout_share share = requests->shares[engine];

    if (reply->completions.count != share.count * per_row) {
        return tdm__fail(TDM_E_PROTOCOL, "engine %u replied %u completions for %u prompts", engine,
                         reply->completions.count, share.count * per_row);
    }
    for (uint32_t i = 0; i < share.count * per_row; i++) {
        rollout->engines[share.first * per_row + i] = engine;
        TDM_TRY(tdm__wrap(read_sample(requests, rollout, reply, i, share.first * per_row + i),
                          "engine %u", engine));
    }
    return TDM_OK;
}

/* Decodes the completions of all engines. Fails if they generated with different weight
 * versions. */
static tdm_status read_completions(const struct rollout_requests *requests,
                                   struct tdm__rollout *rollout)
{
    uint32_t first = UINT32_MAX;
    uint64_t version = 0;

    for (uint32_t engine = 0; engine < requests->workers->spec->num_engines; engine++) {
        tdm_ref *ref = requests->refs[(size_t)engine * requests->workers->ranks_per_engine];
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
                             "engine %u generated with version %llu, engine %u with %llu", engine,
                             (unsigned long long)own, first, (unsigned long long)version);
        }
        TDM_TRY(read_engine_completions(requests, engine, &message, rollout));
    }
    return TDM_OK;
}

/* Lets the actor compute the rewards of all samples. */
static tdm_status score_samples(const struct rollout_requests *requests,
                                struct tdm__rollout *rollout)
{
    const struct tdm__rewards_batch batch = {.samples = rollout->samples,
                                             .completions = requests->completions,
                                             .token_rewards = rollout->token_rewards,
                                             .tokens_max = rollout->tokens_max,
                                             .count = rollout->samples_count};

    TDM_TRY(tdm__rewards_score(requests->options->rewards, requests->workers, &batch));
    for (uint32_t i = 0; i < rollout->samples_count; i++) {
        TDM_TRY(add_reward(requests->options, rollout, i));
    }
    return TDM_OK;
}

/* ---- the rollout ----------------------------------------------------------------------- */

/* Allocates the samples and the arrays of all their tokens. */
static tdm_status allocate_samples(const struct tdm__rollout_options *options,
                                   struct tdm__rollout *rollout)
{
    size_t count = (size_t)options->rows_count * options->samples_per_row;
    size_t offset = (count + 1) * options->sampling.tokens_max;

    *rollout = (struct tdm__rollout){.samples_count = (uint32_t)count,
                                     .tokens_max = options->sampling.tokens_max,
                                     .samples = calloc(count + 1, sizeof(*rollout->samples)),
                                     .engines = calloc(count + 1, sizeof(*rollout->engines)),
                                     .tokens = calloc(offset, sizeof(*rollout->tokens)),
                                     .logprobs = calloc(offset, sizeof(*rollout->logprobs)),
                                     .token_rewards = calloc(offset, sizeof(float))};
    if (rollout->samples == NULL || rollout->engines == NULL || rollout->tokens == NULL ||
        rollout->logprobs == NULL || rollout->token_rewards == NULL) {
        tdm__rollout_fini(rollout);
        return tdm__fail(TDM_E_NOMEM, "a rollout of %zu samples", count);
    }
    return TDM_OK;
}

/* Sends all requests, calls `on_requests_sent`, waits for the replies and decodes them. */
static tdm_status request_and_read(struct rollout_requests *requests, struct tdm__rollout *rollout)
{
    struct tdm__worker_group *workers = requests->workers;
    const struct tdm__rollout_options *options = requests->options;
    struct tdm__reward_guard guard;
    tdm_status status;

    if (divide_rows(requests) == 0) {
        return tdm__fail(TDM_E_STATE, "none of %u engines serves", workers->spec->num_engines);
    }
    for (uint32_t engine = 0; engine < workers->spec->num_engines; engine++) {
        if (tdm__worker_group_engine_serves(workers, engine)) {
            TDM_TRY(send_engine_share(requests, engine));
        }
    }
    if (options->on_requests_sent != NULL) {
        options->on_requests_sent(options->on_requests_sent_arg);
    }
    TDM_TRY(tdm__worker_group_await(workers, requests->refs, workers->engines_count,
                                    (int64_t)workers->spec->generate_timeout_ms));
    tdm__reward_guard_begin(&guard, requests->options->library);
    status = read_completions(requests, rollout);
    tdm__reward_guard_end(&guard);
    return status == TDM_OK && options->rewards != NULL ? score_samples(requests, rollout) : status;
}

/* Allocates the rollout and runs the requests. Frees it again on failure. */
static tdm_status run_requests(struct rollout_requests *requests, struct tdm__rollout *rollout_out)
{
    tdm_status status;

    TDM_TRY(allocate_samples(requests->options, rollout_out));
    requests->completions =
        calloc((size_t)rollout_out->samples_count + 1, sizeof(*requests->completions));
    status = requests->completions == NULL
                 ? tdm__fail(TDM_E_NOMEM, "%u completions", rollout_out->samples_count)
                 : request_and_read(requests, rollout_out);
    if (status != TDM_OK) {
        tdm__rollout_fini(rollout_out);
    }
    return status;
}

tdm_status tdm__rollout_run(struct tdm__worker_group *workers,
                            const struct tdm__rollout_options *options,
                            struct tdm__rollout *rollout_out)
{
    struct rollout_requests requests = {
        .workers = workers,
        .options = options,
        .shares = calloc(workers->spec->num_engines + 1, sizeof(struct rollout_share)),
        .refs = calloc(workers->engines_count + 1, sizeof(tdm_ref *))};
    tdm_status status = requests.shares == NULL || requests.refs == NULL
                            ? tdm__fail(TDM_E_NOMEM, "calls to %u ranks", workers->engines_count)
                            : run_requests(&requests, rollout_out);

    if (requests.refs != NULL) {
        tdm__worker_group_release_refs(requests.refs, workers->engines_count);
    }
    free(requests.refs);
    free(requests.shares);
    free(requests.completions);
    return tdm__wrap(status, "generate");
}

void tdm__rollout_fini(struct tdm__rollout *rollout)
{
    free(rollout->samples);
    free(rollout->engines);
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
        /* All arrays have equal capacity, so that they can be exchanged whatever their lengths. */
        const float *token_rewards = a->token_rewards;
        float reward = a->reward;

        a->token_rewards = b->token_rewards;
        a->reward = b->reward;
        b->token_rewards = token_rewards;
        b->reward = reward;
    }
}
