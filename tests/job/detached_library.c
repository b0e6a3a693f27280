/* detached_library.c - the example's job, in which rank 0 of engine 0 starts a process in a
 * session of its own.  TANDEM_TEST_JOB names the example's library. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdlib.h>
#include <tandem/job.h>
#include <unistd.h>

static const struct tdm_job_library *example;
static struct tdm_trainer_ops trainer;
static struct tdm_engine_ops engine;

static void start_detached_child(void)
{
    if (fork() == 0) {
        (void)setsid();
        (void)execlp("sleep", "sleep", "1000", (char *)NULL);
        _exit(127);
    }
}

static tdm_status engine_open(const struct tdm_rank_context *context, void **state_out)
{
    if (context->group != NULL && context->rank == 0 && context->engine == 0) {
        start_detached_child();
    }
    return example->engine->open(context, state_out);
}

/* The example's tables, with the one entry above in the place of its own. */
__attribute__((constructor)) static void borrow_example(void)
{
    const char *path = getenv("TANDEM_TEST_JOB");
    void *handle = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);

    example = handle == NULL ? NULL : dlsym(handle, "tdm_job_library");
    if (example != NULL) {
        trainer = *example->trainer;
        engine = *example->engine;
        engine.open = engine_open;
    }
}

static float reward(const char *prompt, const char *answer, const struct tdm_completion *completion,
                    float *token_rewards)
{
    return example->reward(prompt, answer, completion, token_rewards);
}

TDM_JOB_LIBRARY(.name = "detached", .trainer = &trainer, .engine = &engine, .reward = reward);
