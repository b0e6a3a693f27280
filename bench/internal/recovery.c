/* recovery.c - measures how long an update takes if an engine is killed during it. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark calls the controller's own functions on real actors: four trainer ranks and two
 * engines of two ranks. Each round is a job of its own. After some undisturbed updates rank 1 of
 * engine 1 kills itself at a failpoint of the next update (runtime/failpoint.h). That update is
 * aborted and repeated, or completed without the engine.
 * Two times are compared with twice the time of an undisturbed update: from the kill until the
 * other engine serves, and the whole update with the kill. In a repeated update the surviving
 * engines need not get again what they have (resume_log.h): its time is compared with the same
 * steps of an undisturbed update.
 * The models are the smallest one, and four layers of Qwen3-0.6B (193 MB), or with
 * TANDEM_BENCH_MODEL=full all of it (1.19 GB, about 12 GB of memory). */
#include "actors/worker.h"
#include "bench/internal/weights_job.h"
#include "measure.h"
#include "runtime/clock.h"
#include "runtime/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

/* Number of updates before measuring, and number of undisturbed updates that are measured. */
enum { WARM_UPDATES = 3, CLEAN_UPDATES = 5 };

/* A model to update. */
struct model {
    /* Name for the measures. */
    const char *name;
    /* Number of layers and words. */
    struct bench_model shape;
};

/* The point at which the actor engine/1/1 kills itself. */
struct kill_point {
    /* Value of update.mode. */
    const char *mode;
    /* Name of the failpoint. */
    const char *step;
};

/* All points that are measured. */
static const struct kill_point kill_points[] = {{"donate", "engine.acquire_shadow"},
                                                {"donate", "engine.vote"},
                                                {"donate", "engine.voted"},
                                                {"donate", "engine.flip"},
                                                {"copy", "engine.vote"}};

static struct bench_job job;
/* Environment variable that tells new processes where to kill themselves. */
static char failpoint_variable[256] = "TANDEM_FAILPOINT=";
static char kill_record_path[64]; /* File to which the failpoint writes the time of the kill. */

/* Adds `failpoint_variable` to the environment. Processes that are started later inherit its
 * present value. */
static void extend_environment(void)
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
    words[count] = failpoint_variable;
    environ = words;
}

/* Sets the failpoint for processes that are started from now on, and removes the record of the
 * last kill. */
static void set_failpoint(const struct kill_point *kill_point)
{
    (void)snprintf(kill_record_path, sizeof(kill_record_path), "/tmp/tandem-recovery-%d",
                   (int)getpid());
    (void)unlink(kill_record_path);
    (void)snprintf(failpoint_variable, sizeof(failpoint_variable),
                   "TANDEM_FAILPOINT=engine/1/1 %s %d kill %s", kill_point->step,
                   WARM_UPDATES + CLEAN_UPDATES + 1, kill_record_path);
}

/* Callback for engine events: the loss of engine 1 is expected and not logged. */
static void expect_failure(void *arg, uint32_t engine, enum tdm__engine_event news,
                           const char *text)
{
    (void)arg;
    (void)text;
    if (engine != 1 || news != TDM__ENGINE_EVENT_LOST) {
        bench_die("another engine was lost");
    }
}

/* Opens a job whose engine 1 will kill itself. */
static void open_job(const struct model *model, const struct kill_point *kill_point)
{
    const struct bench_job_options options = {.name = "recovery",
                                              .model = model->shape,
                                              .engines = 2,
                                              .mode = kill_point->mode,
                                              .verify = "full"};

    set_failpoint(kill_point);
    bench_job_open(&job, &options);
    job.controller.workers.on_event = expect_failure;
}

/* Brings the job to the beginning of the next update, without training. */
static void run_until_update(void)
{
    TDM_CHECK(tdm__controller_pause_engines(&job.controller));
    bench_job_train(&job);
}

/* Times of one update. */
struct times {
    /* Nanoseconds until the engines serve again. */
    int64_t all_ns;
    /* Nanoseconds of the last attempt, until its outcome was decided. */
    int64_t try_ns;
    /* True if the update was repeated. */
    bool again;
};

/* Runs one update. With `survives` it is repeated if it fails. */
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

/* Returns the median times of undisturbed updates in milliseconds. */
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

/* Returns when the engine rank was killed, in nanoseconds of tdm__clock_ns(), and removes the
 * record. */
static int64_t read_kill_time(void)
{
    char text[128];

    /* The record has the name, the process ID and the time. */
    if (!tdm__file_read_text(kill_record_path, text, sizeof(text)) || strrchr(text, ' ') == NULL) {
        bench_die("nobody was killed");
    }
    (void)unlink(kill_record_path);
    return strtoll(strrchr(text, ' '), NULL, 10);
}

/* The measures of one kill point. */
struct measures {
    /* From the kill until the other engine serves. */
    struct bench_measure again;
    /* The whole update with the kill. */
    struct bench_measure whole;
    /* The second attempt of updates that were repeated. */
    struct bench_measure second;
};

/* Runs one job with one kill and adds its times. */
static void measure_round(const struct model *model, const struct kill_point *kill_point,
                          struct measures *measures)
{
    struct times times;
    double clean_ms;
    double clean_try_ms;

    open_job(model, kill_point);
    measure_clean(&clean_ms, &clean_try_ms);
    run_until_update();
    times = update_once(true);
    bench_measure_round(&measures->again, (double)(tdm__clock_ns() - read_kill_time()) / 1e6,
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

/* Measures all rounds of one kill point and reports. */
static void measure_end(const struct model *model, const struct kill_point *kill_point)
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
    const char *step = strchr(kill_point->step, '.') + 1;

    (void)snprintf(names[0], sizeof(names[0]), "%s_%s_%s", model->name, kill_point->mode, step);
    (void)snprintf(names[1], sizeof(names[1]), "%s_whole", names[0]);
    (void)snprintf(names[2], sizeof(names[2]), "%s_second", names[0]);
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        measure_round(model, kill_point, &measures);
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

    tdm__worker_run_if_one(); /* In the process of an actor this call does not return. */
    bench_parse_arguments(argc, argv);
    extend_environment();
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (!bench_is_wanted(models[i].name)) {
            continue;
        }
        for (size_t j = 0; j < sizeof(kill_points) / sizeof(kill_points[0]); j++) {
            measure_end(&models[i], &kill_points[j]);
        }
    }
    return bench_status();
}
