/* learn.c - runs the whole job in one process without the runtime: does it learn, how fast? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/random.h"
#include "examples/colocated_rl/tests/support/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* learn JOB.yaml SEED [KEY=VALUE …]: prints a line each 20 steps, then one line of the result.
 */

enum { TEXT_BYTES_MAX = 64, LINES_MAX = 1 << 16, EVALUATE_EVERY = 20 };

struct pair {
    char prompt[TEXT_BYTES_MAX];
    char answer[TEXT_BYTES_MAX];
};

struct dataset {
    struct pair *pairs; /* owned */
    uint32_t count;
};

struct job {
    struct world *world;
    struct dataset train, unseen;
    uint64_t seed;
    int64_t prompts_count, samples_each, answer_max, steps_count, warmup_steps, warmup_size;
    double seconds_rollout, seconds_step, seconds_update;
    double logprob_difference_max, difference_mean_max;
};

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *room(size_t count, size_t size_bytes)
{
    void *memory = calloc(count + 1, size_bytes);

    if (memory == NULL) {
        abort();
    }
    return memory;
}

static struct dataset read_dataset(const tdm_config *config, const char *key, const char *job)
{
    struct dataset data = {.pairs = room(LINES_MAX, sizeof(struct pair))};
    const char *slash = strrchr(job, '/');
    const char *name = NULL;
    char path[1024];
    FILE *file;

    TDM_CHECK(tdm_config_string(config, key, "", &name));
    (void)snprintf(path, sizeof(path), "%.*s%s", slash == NULL ? 0 : (int)(slash - job) + 1, job,
                   name);
    file = fopen(path, "re");
    if (file == NULL) {
        tdm_check(tdm_fail(TDM_E_NOT_FOUND, "cannot be opened"), path);
    }
    while (data.count < LINES_MAX &&
           fscanf(file, " {\"prompt\": \"%63[^\"]\", \"answer\": \"%63[^\"]\"}",
                  data.pairs[data.count].prompt, data.pairs[data.count].answer) == 2) {
        data.count++;
    }
    (void)fclose(file);
    if (data.count == 0) {
        tdm_check(tdm_fail(TDM_E_INVAL, "holds no prompts"), path);
    }
    return data;
}

/* Picks `count` different pairs, in an order that seed and step decide. */
static void pick(const struct job *job, uint64_t step, uint32_t *picks, uint32_t count)
{
    uint8_t *taken = room(job->train.count, 1);
    uint64_t counter = step << 32;

    for (uint32_t i = 0; i < count;) {
        uint32_t pair = (uint32_t)(random_bits(job->seed ^ 0x5eed, counter++) % job->train.count);

        if (!taken[pair]) {
            taken[pair] = 1;
            picks[i++] = pair;
        }
    }
    free(taken);
}

static double evaluate(struct job *job, double temperature)
{
    const struct tdm_sampling sampling = {temperature, (uint32_t)job->answer_max};
    uint32_t count = job->unseen.count;
    struct tdm_prompt *prompts = room(count, sizeof(*prompts));
    struct tdm_completion *completions = world_completions(count, sampling.tokens_max);
    float *rewards = room(sampling.tokens_max, sizeof(float));
    double right = 0.0;

    for (uint32_t i = 0; i < count; i++) {
        prompts[i] = (struct tdm_prompt){job->unseen.pairs[i].prompt, i};
    }
    world_generate(job->world, prompts, count, 1, &sampling, completions);
    for (uint32_t i = 0; i < count; i++) {
        right += (double)reward_answer(prompts[i].text, job->unseen.pairs[i].answer,
                                       &completions[i], rewards);
    }
    free(rewards);
    free(prompts);
    world_completions_free(completions);
    return right / count;
}

static void warm_up(struct job *job, uint32_t step)
{
    uint32_t count = (uint32_t)job->warmup_size;
    uint32_t *picks = room(count, sizeof(*picks));
    struct tdm_sample *samples = room(count, sizeof(*samples));
    const struct tdm_batch batch = {1, step, (uint32_t)job->warmup_steps, samples, count};
    struct tdm_metrics metrics;

    pick(job, step, picks, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct pair *pair = &job->train.pairs[picks[i]];

        samples[i] =
            (struct tdm_sample){.group = i, .prompt = pair->prompt, .answer = pair->answer};
    }
    world_step(job->world, &batch, 1, &metrics);
    free(picks);
    free(samples);
}

/* Turns answers into samples; token_rewards has answer_max places for each. */
static void reward_all(const struct job *job, const struct tdm_prompt *prompts,
                       const struct tdm_completion *completions, const uint32_t *picks,
                       struct tdm_sample *samples, float *token_rewards)
{
    for (uint32_t i = 0; i < job->prompts_count * job->samples_each; i++) {
        uint32_t group = i / (uint32_t)job->samples_each;
        const char *answer = job->train.pairs[picks[group]].answer;
        float *rewards = token_rewards + i * job->answer_max;

        samples[i] = (struct tdm_sample){
            .group = group,
            .prompt = prompts[i].text,
            .answer = answer,
            .tokens = completions[i].tokens,
            .logprobs = completions[i].logprobs,
            .token_rewards = rewards,
            .reward = reward_answer(prompts[i].text, answer, &completions[i], rewards),
            .tokens_count = completions[i].tokens_count,
        };
    }
}

static void reinforce(struct job *job, uint32_t step, struct tdm_metrics *metrics)
{
    const struct tdm_sampling sampling = {1.0, (uint32_t)job->answer_max};
    uint32_t each = (uint32_t)job->samples_each;
    uint32_t count = (uint32_t)job->prompts_count * each;
    uint32_t *picks = room((size_t)job->prompts_count, sizeof(*picks));
    struct tdm_prompt *prompts = room(count, sizeof(*prompts));
    struct tdm_completion *completions = world_completions(count, sampling.tokens_max);
    struct tdm_sample *samples = room(count, sizeof(*samples));
    float *rewards = room((size_t)count * sampling.tokens_max, sizeof(float));
    const struct tdm_batch batch = {0, step, (uint32_t)job->steps_count, samples, count};
    double start = now();

    pick(job, 1000000U + step, picks, (uint32_t)job->prompts_count);
    for (uint32_t i = 0; i < count; i++) {
        prompts[i] = (struct tdm_prompt){job->train.pairs[picks[i / each]].prompt,
                                         random_bits(job->seed, (uint64_t)step << 32 | i)};
    }
    world_generate(job->world, prompts, count, each, &sampling, completions);
    reward_all(job, prompts, completions, picks, samples, rewards);
    job->seconds_rollout += now() - start;
    start = now();
    world_step(job->world, &batch, each, metrics);
    job->seconds_step += now() - start;
    start = now();
    world_update(job->world);
    job->seconds_update += now() - start;
    free(picks);
    free(prompts);
    free(samples);
    free(rewards);
    world_completions_free(completions);
}

static void note(struct job *job, uint32_t step, const struct tdm_metrics *metrics)
{
    double largest = world_metric(metrics, "logprob_diff_max");
    double mean = world_metric(metrics, "logprob_diff_mean");

    job->logprob_difference_max =
        largest > job->logprob_difference_max ? largest : job->logprob_difference_max;
    job->difference_mean_max = mean > job->difference_mean_max ? mean : job->difference_mean_max;
    if (step % EVALUATE_EVERY == 0) {
        (void)printf("step %3u  train %.3f  unseen %.3f  grad %.2f  diff max %.1e mean %.1e  "
                     "rollout %.1f s  step %.1f s  update %.1f s\n",
                     step, world_metric(metrics, "reward"), evaluate(job, 0.0),
                     world_metric(metrics, "grad_norm"), largest, mean, job->seconds_rollout,
                     job->seconds_step, job->seconds_update);
        (void)fflush(stdout);
    }
}

static int64_t setting(const tdm_config *config, const char *path)
{
    int64_t value = 0;

    TDM_CHECK(tdm_config_int(config, path, 0, &value));
    return value;
}

static void run(struct job *job)
{
    double start = now();
    double before;

    for (uint32_t step = 1; step <= job->warmup_steps; step++) {
        warm_up(job, step);
    }
    world_update(job->world);
    before = evaluate(job, 0.0);
    (void)printf("before: unseen greedy %.3f\n", before);
    for (uint32_t step = 1; step <= job->steps_count; step++) {
        struct tdm_metrics metrics;

        reinforce(job, step, &metrics);
        note(job, step, &metrics);
    }
    (void)printf("seed %" PRIu64 ": %.3f -> %.3f greedy, %.3f sampled, %u unseen, %.1f s, "
                 "diff max %.1e mean %.1e\n",
                 job->seed, before, evaluate(job, 0.0), evaluate(job, 1.0), job->unseen.count,
                 now() - start, job->logprob_difference_max, job->difference_mean_max);
}

int main(int count, char **words)
{
    tdm_config *config;
    struct job job = {0};
    const char *save;

    if (count < 3) {
        (void)fprintf(stderr, "usage: learn JOB.yaml SEED [KEY=VALUE ...]\n");
        return 2;
    }
    TDM_CHECK(tdm_config_read(words[1], &config));
    for (int i = 3; i < count; i++) {
        TDM_CHECK(tdm_config_override(config, words[i]));
    }
    job.seed = strtoull(words[2], NULL, 10);
    job.train = read_dataset(config, "data.train", words[1]);
    job.unseen = read_dataset(config, "data.unseen", words[1]);
    job.prompts_count = setting(config, "rollout.rollout_batch_size");
    job.samples_each = setting(config, "rollout.n_samples_per_prompt");
    job.answer_max = setting(config, "rollout.rollout_max_response_len");
    job.steps_count = setting(config, "rollout.num_rollout");
    job.warmup_steps = setting(config, "rollout.warmup_steps");
    job.warmup_size = setting(config, "rollout.warmup_batch_size");
    job.world = world_open(config, job.seed);
    run(&job);
    TDM_CHECK(tdm_config_string(config, "job.save", NULL, &save));
    if (save != NULL) {
        world_save(job.world, save);
    }
    world_close(job.world);
    free(job.train.pairs);
    free(job.unseen.pairs);
    tdm_config_destroy(config);
    return 0;
}
