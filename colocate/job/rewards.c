/* rewards.c - rewards that an actor computes, as the process that runs the job sees it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rewards.h"

#include "colocate/job/python_library.h"
#include "colocate/job/rank.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longest time in milliseconds until the actor is constructed; its library may be slow to load. */
enum { START_MS = 60000 };

/* Creates the actor with the arguments of a rank. */
static tdm_status create_actor(struct tdm__rewards *rewards, tdm_runtime *runtime,
                               const struct tdm__job_spec *spec, const char *config_json)
{
    const struct tdm__rank_arguments_message arguments = {.config_json = config_json,
                                                          .config_name = "job file",
                                                          .library = spec->library,
                                                          .model_config = spec->model_config,
                                                          .model = spec->update_model,
                                                          .group = "",
                                                          .ranks_count = 1,
                                                          .seed = spec->seed};
    char name[TDM__RANK_NAME_BYTES];
    struct tdm_actor_options options = {.name = name, .environment = {"OPENBLAS_NUM_THREADS=1"}};
    struct tdm__python_actor *python = calloc(1, sizeof(*python));
    tdm_writer *writer = NULL;
    tdm_status status =
        python == NULL ? tdm__fail(TDM_E_NOMEM, "an actor's options") : tdm_writer_create(&writer);

    tdm__rank_name(name, spec->update_model, "rewards");
    if (status == TDM_OK) {
        status = tdm__python_actor_init(python, spec, &options);
    }
    if (status == TDM_OK) {
        status = tdm__rank_arguments_encode(&arguments, writer);
    }
    if (status == TDM_OK) {
        status = tdm_actor_create_packed(runtime, "tandem.rewards", &options,
                                         tdm_writer_bytes(writer), &rewards->actor);
    }
    tdm_writer_destroy(writer);
    free(python);
    return status;
}

/* Creates the actor and waits until it is constructed. If the actor of an earlier job still has the
 * name, tries again for a while: that job may have ended just now. */
static tdm_status create_with_name(struct tdm__rewards *rewards, tdm_runtime *runtime,
                                   const struct tdm__job_spec *spec, const char *config_json,
                                   int64_t names_ms)
{
    const struct timespec pause = {.tv_nsec = 200000000};
    int64_t deadline_ms = tdm__deadline_after(names_ms);
    tdm_status status;

    for (;;) {
        status = create_actor(rewards, runtime, spec, config_json);
        if (status == TDM_OK) {
            status = tdm_actor_wait_ready(rewards->actor, START_MS);
        }
        if (status != TDM_E_EXISTS || tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return status;
        }
        tdm_actor_destroy(rewards->actor);
        rewards->actor = NULL;
        (void)nanosleep(&pause, NULL);
    }
}

tdm_status tdm__rewards_start(struct tdm__rewards *rewards, tdm_runtime *runtime,
                              const struct tdm__job_spec *spec, int64_t names_ms)
{
    char *config_json;
    tdm_status status;

    TDM_TRY(tdm_config_json(spec->config, &config_json));
    status = create_with_name(rewards, runtime, spec, config_json, names_ms);
    free(config_json);
    if (status != TDM_OK) {
        char detail[TDM__ERROR_DETAIL_BYTES];

        (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
        tdm__rewards_stop(rewards);
        return tdm__fail(status, "rewards: %s", detail);
    }
    return TDM_OK;
}

void tdm__rewards_stop(struct tdm__rewards *rewards)
{
    if (rewards->actor != NULL) {
        (void)tdm_actor_kill(rewards->actor, TDM__WORKER_KILL_MS);
        tdm_actor_destroy(rewards->actor);
        rewards->actor = NULL;
    }
}

/* Getter of a message list: fills the message of answer `index`. */
static void get_item(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__rewards_batch *batch = arg;
    const struct tdm_completion *completion = &batch->completions[index];
    struct tdm__reward_item_message *item = item_out;

    *item = (struct tdm__reward_item_message){
        .prompt = batch->samples[index].prompt,
        .answer = batch->samples[index].answer,
        .tokens = {completion->tokens, completion->tokens_count * sizeof(int32_t)},
        .logprobs = {completion->logprobs, completion->tokens_count * sizeof(float)},
        .text = completion->text,
        .finished = completion->finished != 0};
}

/* Stores one reward. */
static tdm_status read_result(const struct tdm__rewards_batch *batch, uint32_t index,
                              const struct tdm__reward_result_message *result)
{
    struct tdm_sample *sample = &batch->samples[index];
    size_t size_bytes = sample->tokens_count * sizeof(float);

    if (result->token_rewards.size_bytes != size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL, "%zu bytes of rewards for %u tokens",
                         result->token_rewards.size_bytes, sample->tokens_count);
    }
    sample->reward = (float)result->reward;
    if (size_bytes > 0) {
        memcpy(batch->token_rewards + (size_t)index * batch->tokens_max, result->token_rewards.data,
               size_bytes);
    }
    return TDM_OK;
}

/* Stores the rewards of a reply, and counts those that have failed. */
static tdm_status read_results(const struct tdm__rewards_batch *batch, const tdm_value *reply,
                               uint32_t failures_max)
{
    struct tdm__reward_results_message message;
    char first[TDM__ERROR_DETAIL_BYTES / 2] = "";
    uint32_t failures_count = 0;

    TDM_TRY(tdm__reward_results_decode(reply, &message));
    if (message.results.count != batch->count) {
        return tdm__fail(TDM_E_PROTOCOL, "%u rewards for %u answers", message.results.count,
                         batch->count);
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct tdm__reward_result_message result;

        tdm__message_list_read(&message.results, i, &result, sizeof(result));
        TDM_TRY(tdm__wrap(read_result(batch, i, &result), "reward %u", i));
        if (result.failure != NULL && failures_count++ == 0) {
            (void)snprintf(first, sizeof(first), "of the prompt \"%.100s\", failed: %s",
                           batch->samples[i].prompt, result.failure);
        }
    }
    if (failures_count > failures_max) {
        return tdm__fail(TDM_E_METHOD,
                         "%u of %u rewards failed, rollout.reward_failures_max allows %u; the "
                         "first, %s",
                         failures_count, batch->count, failures_max, first);
    }
    if (failures_count > 0) {
        tdm__log(TDM__WARN, "job", "%u of %u rewards failed and are 0; the first, %s",
                 failures_count, batch->count, first);
    }
    return TDM_OK;
}

tdm_status tdm__rewards_score(const struct tdm__rewards *rewards, struct tdm__worker_group *workers,
                              const struct tdm__rewards_batch *batch)
{
    const struct tdm__reward_items_message message = {
        .items = {.count = batch->count, .get = get_item, .arg = batch}};
    const tdm_value *reply = NULL;
    tdm_ref *ref = NULL;
    tdm_status status =
        tdm__rank_call(rewards->actor, "score", tdm__reward_items_table(), &message, &ref);

    if (status == TDM_OK) {
        status = tdm__worker_group_await(workers, &ref, 1, workers->spec->rewards_timeout_ms);
    }
    if (status == TDM_OK) {
        status = tdm_get_value(ref, 0, &reply);
    }
    if (status == TDM_OK) {
        status = read_results(batch, reply, workers->spec->reward_failures_max);
    }
    tdm_ref_release(ref);
    return tdm__wrap(status, "rewards");
}
