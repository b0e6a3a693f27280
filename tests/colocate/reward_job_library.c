/* reward_job_library.c - the smallest job library, with rewards that an actor computes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

/* The tables of tests/colocate/tiny_job_library.c. */
static struct tdm_trainer_ops trainer;
static struct tdm_engine_ops engine;

__attribute__((constructor)) static void copy_tables(void)
{
    void *handle = dlopen(TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so", RTLD_NOW | RTLD_LOCAL);
    const struct tdm_job_library *tiny = handle == NULL ? NULL : dlsym(handle, "tdm_job_library");

    if (tiny != NULL) {
        trainer = *tiny->trainer;
        engine = *tiny->engine;
    }
}

static tdm_status rewards_open(const struct tdm_rank_context *context, void **state_out)
{
    uint64_t *seed = malloc(sizeof(*seed));
    int64_t slow_ms;

    TDM_TRY(tdm_config_int(context->config, "model.slow_ms", 0, &slow_ms));
    (void)usleep((useconds_t)slow_ms * 1000);
    if (seed == NULL || context->group != NULL || context->ranks_count != 1) {
        free(seed);
        return tdm_fail(TDM_E_INVAL, "a wrong context");
    }
    *seed = context->seed;
    *state_out = seed;
    return TDM_OK;
}

/* The prompt says what happens. Else the reward is the seed, and that of each token its number plus
 * its log-probability. */
static tdm_status rewards_score(void *state, struct tdm_reward_request *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm_completion *completion = requests[i].completion;

        if (strcmp(requests[i].prompt, "crash") == 0) {
            _exit(5);
        }
        if (strcmp(requests[i].prompt, "sleep") == 0) {
            (void)sleep(60);
        }
        if (strcmp(requests[i].prompt, "broken") == 0) {
            return tdm_fail(TDM_E_METHOD, "no rewards today");
        }
        requests[i].reward = (float)*(const uint64_t *)state;
        for (uint32_t t = 0; t < completion->tokens_count; t++) {
            requests[i].token_rewards[t] = (float)completion->tokens[t] + completion->logprobs[t];
        }
        if (strcmp(requests[i].prompt, "fail") == 0) {
            (void)snprintf(requests[i].failure, sizeof(requests[i].failure),
                           "the judge of \"%s\" is out, text %s", requests[i].answer,
                           completion->text);
        }
    }
    return TDM_OK;
}

static const struct tdm_reward_ops rewards = {
    .size_bytes = sizeof(rewards), .open = rewards_open, .score = rewards_score, .close = free};

TDM_JOB_LIBRARY(.name = "rewarding", .trainer = &trainer, .engine = &engine, .rewards = &rewards);
