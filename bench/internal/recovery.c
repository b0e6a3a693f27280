/* recovery.c - an engine is killed in an update: how long until the others serve again. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's own functions over real actors: four trainer ranks, two engines of two
 * ranks. Each round is a job of its own.  Some updates are left alone, then rank 1 of engine 1
 * kills itself at a named step of the next one (runtime/failpoint.h), which is aborted and begun
 * anew, as a job does it, or is finished without that engine.  Two times are compared with
 * twice that of an update left alone: from the kill until the other engine serves, and the
 * whole update with the kill in it.  What is begun anew spares the survivors what they have
 * already (resume_log.h): how long it takes is compared with the same steps of an update left
 * alone.  For the smallest model and for four layers of Qwen3-0.6B
 * (193 MB), or with TANDEM_BENCH_MODEL=full all of it (1.19 GB, about 12 GB of memory). */
#include "actors/server/worker.h"
#include "bench/internal/weights_job.h"
#include "measure.h"
#include "runtime/clock.h"
#include "runtime/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

enum { WARM_UPDATES = 3, CLEAN_UPDATES = 5 };

struct model {
    const char *name;
    struct bench_model shape;
};

/* Where engine/1/1 ends. */
struct end {
    const char *mode;
    const char *step;
};

static const struct end ends[] = {{"donate", "engine.acquire_shadow"},
                                  {"donate", "engine.vote"},
                                  {"donate", "engine.voted"},
                                  {"donate", "engine.flip"},
                                  {"copy", "engine.vote"}};

static struct bench_job job;
static char plan[256] = "TANDEM_FAILPOINT=";
static char broken[64]; /* the file that says when */

/* The environment of whoever is started, with one more word that changes from job to job. */
static void own_environment(void)
{
    size_t count = 0;
    char **words;

    while (environ[count] != NULL) {
        count++;
    }
    words = calloc(count + 2, sizeof(*words));
    if (words == NULL) {
        bench_die("an environment");
    }
    memcpy(words, environ, count * sizeof(*words));
    words[count] = plan;
    environ = words;
}

/* Whoever is started from here on breaks there. */
static void plan_end(const struct end *end)
{
    (void)snprintf(broken, sizeof(broken), "/tmp/tandem-recovery-%d", (int)getpid());
    (void)unlink(broken);
    (void)snprintf(plan, sizeof(plan), "TANDEM_FAILPOINT=engine/1/1 %s %d kill %s", end->step,
                   WARM_UPDATES + CLEAN_UPDATES + 1, broken);
}

/* Which the log would else tell, each time. */
static void expect_failure(void *arg, uint32_t engine, enum tdm__engine_event news,
                           const char *text)
{
    (void)arg;
    (void)text;
    if (engine != 1 || news != TDM__ENGINE_EVENT_LOST) {
        bench_die("another engine was lost");
    }
}

static void open_job(const struct model *model, const struct end *end)
{
    const struct bench_job_options options = {.name = "recovery",
                                              .model = model->shape,
                                              .engines = 2,
                                              .mode = end->mode,
                                              .verify = "full"};

    plan_end(end);
    bench_job_open(&job, &options);
    job.controller.workers.on_event = expect_failure;
}

/* As between two steps of a job, without the training. */
static void run_until_update(void)
{
    TDM_CHECK(tdm__controller_pause_engines(&job.controller));
    bench_job_train(&job);
}

/* Of one update. */
struct times {
    int64_t all_ns; /* until engines serve again */
    int64_t try_ns; /* its last try alone, until it was decided */
    bool again;     /* which was the second */
};

static struct times update_once(bool survives)
{
    int64_t begin_ns = tdm__clock_ns();
    int64_t try_ns = begin_ns;
    tdm_status status = tdm__controller_update(&job.controller);
    struct times times = {.again = status != TDM_OK && survives};

    if (times.again) {
        try_ns = tdm__clock_ns();
        status = tdm__controller_update(&job.controller);
    }
    TDM_CHECK(status);
    times.try_ns = tdm__clock_ns() - try_ns;
    job.controller.phase.committed_version = job.controller.update.version;
    TDM_CHECK(tdm__controller_flush(&job.controller));
    TDM_CHECK(tdm__controller_resume_kv(&job.controller));
    times.all_ns = tdm__clock_ns() - begin_ns;
    return times;
}

/* Medians of updates left alone. */
static void measure_clean(double *all_ms_out, double *try_ms_out)
{
    double all_ms[CLEAN_UPDATES];
    double try_ms[CLEAN_UPDATES];

    for (int i = 0; i < WARM_UPDATES + CLEAN_UPDATES; i++) {
        struct times times;

        run_until_update();
        times = update_once(false);
        if (i >= WARM_UPDATES) {
            all_ms[i - WARM_UPDATES] = (double)times.all_ns / 1e6;
            try_ms[i - WARM_UPDATES] = (double)times.try_ns / 1e6;
        }
    }
    *all_ms_out = bench_median(all_ms, CLEAN_UPDATES);
    *try_ms_out = bench_median(try_ms, CLEAN_UPDATES);
}

/* By the clock of tdm__clock_ns(). */
static int64_t on_broken_job(void)
{
    char text[128];

    /* name, process id, time */
    if (!tdm__file_read_text(broken, text, sizeof(text)) || strrchr(text, ' ') == NULL) {
        bench_die("nobody was killed");
    }
    (void)unlink(broken);
    return strtoll(strrchr(text, ' '), NULL, 10);
}

struct measures {
    struct bench_measure again;
    struct bench_measure whole;
    struct bench_measure second; /* of updates that were begun anew */
};

static void measure_round(const struct model *model, const struct end *end,
                          struct measures *measures)
{
    struct times times;
    double clean_ms;
    double clean_try_ms;

    open_job(model, end);
    measure_clean(&clean_ms, &clean_try_ms);
    run_until_update();
    times = update_once(true);
    bench_measure_round(&measures->again, (double)(tdm__clock_ns() - on_broken_job()) / 1e6,
                        2 * clean_ms);
    bench_measure_round(&measures->whole, (double)times.all_ns / 1e6, 2 * clean_ms);
    if (times.again) {
        bench_measure_round(&measures->second, (double)times.try_ns / 1e6, clean_try_ms);
    }
    if (tdm__worker_group_live_engines(&job.controller.workers) != 1) {
        bench_die("engine 1 is there");
    }
    bench_job_close(&job);
}

static void measure_end(const struct model *model, const struct end *end)
{
    char names[3][64];
    struct measures measures = {.again = {.name = names[0],
                                          .unit = "ms",
                                          .better = BENCH_LESS_IS_BETTER,
                                          .against = "twice a clean update; from the kill",
                                          .at_least = 1},
                                .whole = {.name = names[1],
                                          .unit = "ms",
                                          .better = BENCH_LESS_IS_BETTER,
                                          .against = "the same; from the update's begin"},
                                .second = {.name = names[2],
                                           .unit = "ms",
                                           .better = BENCH_LESS_IS_BETTER,
                                           .against = "a clean update, until decided"}};
    const char *step = strchr(end->step, '.') + 1;

    (void)snprintf(names[0], sizeof(names[0]), "%s_%s_%s", model->name, end->mode, step);
    (void)snprintf(names[1], sizeof(names[1]), "%s_whole", names[0]);
    (void)snprintf(names[2], sizeof(names[2]), "%s_second", names[0]);
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        measure_round(model, end, &measures);
    }
    bench_measure_report(&measures.again);
    bench_measure_report(&measures.whole);
    if (measures.second.rounds_count > 0) {
        bench_measure_report(&measures.second);
    }
}

int main(int argc, char **argv)
{
    const struct bench_model wanted = bench_model_wanted();
    const struct model models[] = {{"tiny", {0, 4}},
                                   {wanted.layers == 28 ? "1190mb" : "193mb", wanted}};

    tdm__worker_run_if_one(); /* never returns where this program is an actor */
    bench_parse_arguments(argc, argv);
    own_environment();
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (!bench_is_wanted(models[i].name)) {
            continue;
        }
        for (size_t j = 0; j < sizeof(ends) / sizeof(ends[0]); j++) {
            measure_end(&models[i], &ends[j]);
        }
    }
    return bench_status();
}
