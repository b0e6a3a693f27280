/* weights.c - measures weight updates in each mode and compares them with memcpy of the same
 * bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark calls the controller's own functions on real actors: two trainer ranks with rows
 * of every tensor, and one engine of two ranks with heads, rows or columns. It measures the
 * whole update, from the first request to the store until every rank has freed what it took.
 * One peer is two processes that copy the bytes that the two engine ranks get. Another is the usual
 * flow with PyTorch (torch_flow.h). If the engine is on another node, the peer is two processes
 * that send the bytes over a socket.
 * TANDEM_BENCH_MODEL=full measures all of Qwen3-0.6B (1.19 GB, about 14 GB of memory), otherwise
 * four of its layers.
 * "weights --updates MODE VERIFY" measures nothing by itself: the script bench/weights tells it
 * when to run an update (serve_updates), and so compares two builds in turn. */
#include "actors/worker.h"
#include "bench/internal/weights_job.h"
#include "cluster.h"
#include "colocate/transfer/rect_checksum.h"
#include "copy_workers.h"
#include "measure.h"
#include "runtime/large_copy.h"
#include "torch_flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* Timeout of calls in milliseconds, number of updates before measuring, and number of engines. */
enum { TIMEOUT_MS = 60000, WARM_UPDATES = 3, ENGINES = 1 };

/* One way to update the weights, with the measures of it. */
struct benchmark_mode {
    /* Value of update.mode. */
    const char *mode;
    /* Value of update.verify. */
    const char *verify;
    /* Size of a bucket in MiB; 0 for 64. */
    uint32_t bucket_mib;
    /* Borrowed cluster whose second node has the engine; NULL for one node. */
    const struct bench_cluster *cluster;
    /* The whole update. */
    struct bench_measure update;
    /* The last step alone: the switch to the new version; without a name it is not reported. */
    struct bench_measure finish;
    /* The whole update against PyTorch in buckets; without a name it is not measured. */
    struct bench_measure stock;
    /* The whole update against PyTorch tensor by tensor; without a name it is not measured. */
    struct bench_measure each;
};

/* What the updates are compared with. */
struct peers {
    /* Processes that copy or send the same bytes. */
    struct bench_copy_workers copiers;
    /* The PyTorch flow. */
    struct bench_torch_flow stock;
};

/* The job that is measured. */
static struct bench_job job;

/* Opens the job for a mode, up to the first update. */
static void open_job(const struct bench_model *model, uint32_t engines,
                     const struct benchmark_mode *benchmark_mode)
{
    const struct bench_job_options options = {
        .name = "weights",
        .model = *model,
        .engines = engines,
        .mode = benchmark_mode->mode,
        .verify = benchmark_mode->verify,
        .bucket_mib = benchmark_mode->bucket_mib,
        .address = benchmark_mode->cluster == NULL ? NULL : benchmark_mode->cluster->address};

    bench_job_open(&job, &options);
    bench_job_train(&job);
}

/* Makes each engine rank check all of its weights. */
static void check_weights(void)
{
    struct tdm__worker_group *workers = &job.controller.workers;
    tdm_writer *writer;

    TDM_CHECK(tdm_writer_create(&writer));
    TDM_CHECK(tdm_pack(writer, "fu((su))", 0.0, (uint64_t)1, "", (uint64_t)0));
    TDM_CHECK(tdm__worker_group_call(workers, workers->engines, workers->engines_count, "generate",
                                     tdm_writer_bytes(writer), TIMEOUT_MS));
    tdm_writer_destroy(writer);
}

/* Runs one update. Returns its seconds, and in `finish_out` those of its last step. */
static double update_once(double *finish_out)
{
    double begun = bench_clock_seconds();
    double finish_begun;

    TDM_CHECK(tdm__controller_update(&job.controller));
    finish_begun = bench_clock_seconds();
    job.controller.phase.committed_version = job.controller.update.version;
    TDM_CHECK(tdm__controller_flush(&job.controller));
    *finish_out = bench_clock_seconds() - finish_begun;
    return bench_clock_seconds() - begun;
}

/* Returns whether to measure against PyTorch: the measure has a name and PyTorch is installed. */
static bool is_wanted(const struct bench_measure *measure, const struct peers *peers)
{
    return measure->name != NULL && peers->stock.is_there;
}

/* Seconds that the peers took in one round; 0 if not measured. */
struct seconds {
    /* Time of the processes that copy or send. */
    double copiers;
    /* Time of PyTorch in buckets. */
    double buckets;
    /* Time of PyTorch tensor by tensor. */
    double tensors;
};

/* Runs all peers once. */
static struct seconds run_peers(const struct benchmark_mode *benchmark_mode,
                                const struct peers *peers)
{
    return (struct seconds){.copiers = bench_copy_workers_run(&peers->copiers),
                            .buckets = is_wanted(&benchmark_mode->stock, peers)
                                           ? bench_torch_flow_by_bucket(&peers->stock)
                                           : 0,
                            .tensors = is_wanted(&benchmark_mode->each, peers)
                                           ? bench_torch_flow_by_tensor(&peers->stock)
                                           : 0};
}

/* Measures one round; `gib` is the size of the model in GiB. */
static void measure_round(struct benchmark_mode *benchmark_mode, const struct peers *peers,
                          double gib, uint32_t round)
{
    struct seconds theirs = {0, 0, 0};
    double updated;
    double finish;

    if (!bench_ours_first(round)) {
        theirs = run_peers(benchmark_mode, peers);
    }
    updated = update_once(&finish);
    if (bench_ours_first(round)) {
        theirs = run_peers(benchmark_mode, peers);
    }
    bench_measure_round(&benchmark_mode->update, gib / updated, gib / theirs.copiers);
    bench_measure_round(&benchmark_mode->finish, finish * 1e3 / gib, 2);
    bench_measure_round(&benchmark_mode->stock, gib / updated, gib / theirs.buckets);
    bench_measure_round(&benchmark_mode->each, gib / updated, gib / theirs.tensors);
}

/* Measures all rounds of a mode and reports its measures. */
static void measure_mode(const struct bench_model *model, struct benchmark_mode *benchmark_mode,
                         const struct peers *peers)
{
    const double gib = (double)bench_model_bytes(model) / (1u << 30);
    double finish;

    open_job(model, ENGINES, benchmark_mode);
    for (int i = 0; i < WARM_UPDATES; i++) {
        (void)update_once(&finish);
    }
    check_weights();
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        measure_round(benchmark_mode, peers, gib, i);
    }
    check_weights();
    bench_job_close(&job);
    bench_measure_report(&benchmark_mode->update);
    if (is_wanted(&benchmark_mode->stock, peers)) {
        bench_measure_report(&benchmark_mode->stock);
    }
    if (is_wanted(&benchmark_mode->each, peers)) {
        bench_measure_report(&benchmark_mode->each);
    }
    if (benchmark_mode->finish.name != NULL) {
        bench_measure_report(&benchmark_mode->finish);
    }
}

/* Measures an update of a model so small that no time is spent on moving bytes. */
static void measure_nothing(void)
{
    static const struct bench_model model = {0, 4};
    static const struct benchmark_mode benchmark_mode = {.mode = "donate", .verify = "sample"};
    static struct bench_measure nothing = {.name = "update_nothing",
                                           .unit = "ms",
                                           .against = "5 ms; 4 ranks, 2 engines",
                                           .better = BENCH_LESS_IS_BETTER,
                                           .at_least = 1};
    double finish;

    open_job(&model, 2, &benchmark_mode);
    for (int i = 0; i < WARM_UPDATES; i++) {
        (void)update_once(&finish);
    }
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        bench_measure_round(&nothing, update_once(&finish) * 1e3, 5);
    }
    check_weights();
    bench_job_close(&job);
    bench_measure_report(&nothing);
}

/* ---- what checksums cost ---------------------------------------------------------------- */

/* Both copies work on pieces of the size from which one thread bypasses the caches. */
enum { PIECE_BYTES = TDM__COPY_LARGE_BYTES };

/* Copies the pieces and computes their checksums. */
static uint64_t copy_and_sum(void *to, const void *from, size_t size_bytes)
{
    struct tdm__strided_rows row = {.count = 1, .size_bytes = PIECE_BYTES};
    uint64_t sum = 0;

    for (size_t at = 0; at + PIECE_BYTES <= size_bytes; at += PIECE_BYTES) {
        sum ^= tdm__rect_checksum_copy(&row, (const char *)from + at, (char *)to + at);
    }
    return sum;
}

/* Copies the pieces with stores that bypass the caches. */
static uint64_t copy_past_caches(void *to, const void *from, size_t size_bytes)
{
    for (size_t at = 0; at + PIECE_BYTES <= size_bytes; at += PIECE_BYTES) {
        tdm__copy_large((char *)to + at, (const char *)from + at, PIECE_BYTES);
    }
    return *(const unsigned char *)to;
}

/* Role "summing": copies with checksums. */
static void summing_copier(int fd)
{
    bench_copier_with(fd, copy_and_sum);
}

/* Role "streaming": copies without checksums. */
static void streaming_copier(int fd)
{
    bench_copier_with(fd, copy_past_caches);
}

/* Measures what checksums cost. An update in copy mode moves each byte twice and computes
 * checksums both times. */
static void measure_sums(const struct bench_model *model)
{
    static struct bench_measure sums = {.name = "copy_with_sums",
                                        .unit = "GiB/s",
                                        .against = "the same copy without sums",
                                        .better = BENCH_MORE_IS_BETTER,
                                        .at_least = 0.95};
    const double gib = (double)bench_model_bytes(model) / (1u << 30);
    struct bench_copy_workers with;
    struct bench_copy_workers without;

    bench_copy_workers_start(&with, "summing", 2, bench_model_bytes(model) / 2);
    bench_copy_workers_start(&without, "streaming", 2, bench_model_bytes(model) / 2);
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        double theirs = bench_ours_first(i) ? 0 : bench_copy_workers_run(&without);
        double ours = bench_copy_workers_run(&with);

        if (bench_ours_first(i)) {
            theirs = bench_copy_workers_run(&without);
        }
        bench_measure_round(&sums, gib / ours, gib / theirs);
    }
    bench_copy_workers_stop(&without);
    bench_copy_workers_stop(&with);
    bench_measure_report(&sums);
}

/* Initialises a measure of whole updates. */
#define UPDATE(title, peer, ratio)                                                                 \
    {                                                                                              \
        .name = (title), .unit = "GiB/s", .against = (peer), .better = BENCH_MORE_IS_BETTER,       \
        .at_least = (ratio)                                                                        \
    }
/* Names of the peers in the table. */
#define COPIERS "memcpy, two warmed processes"
#define SENDERS "TCP, two warmed pairs of processes"
#define BUCKETS "PyTorch, in buckets"
#define TENSORS "PyTorch, a tensor at a time"

/* The modes that are measured on one node. */
static struct benchmark_mode modes[] = {
    {.mode = "donate",
     .verify = "sample",
     .update = UPDATE("update_donate", COPIERS, 0.7),
     .stock = UPDATE("update_donate_stock", BUCKETS, 20),
     .each = UPDATE("update_donate_stock_each", TENSORS, 20),
     .finish = {.name = "finish_donate",
                .unit = "ms/GiB",
                .against = "2 ms a GiB; votes and calls included",
                .better = BENCH_LESS_IS_BETTER,
                .at_least = 1}},
    {.mode = "donate", .verify = "full", .update = UPDATE("update_donate_full", COPIERS, 0.4)},
    {.mode = "copy",
     .verify = "full",
     .update = UPDATE("update_copy", COPIERS, 0.35),
     .stock = UPDATE("update_copy_stock", BUCKETS, 10)},
    /* These show what small buckets cost (docs/decisions/0009). */
    {.mode = "copy",
     .verify = "full",
     .bucket_mib = 8,
     .update = UPDATE("update_copy_8mib", COPIERS, 0)},
    {.mode = "copy",
     .verify = "full",
     .bucket_mib = 1,
     .update = UPDATE("update_copy_1mib", COPIERS, 0)},
    {.mode = "bucket", .verify = "full", .update = UPDATE("update_bucket", COPIERS, 0.35)},
    {.mode = "names", .verify = "full", .update = UPDATE("update_names", COPIERS, 0)},
};

/* Measures updates from trainers on one node to an engine on the other one. */
static void measure_remote(const struct bench_model *model)
{
    const struct bench_node node = {
        .cpus = 8, .gpus = ENGINES * 2, .gpu_bytes = bench_gpu_mib(model) << 20};
    struct peers peers = {.stock = {.is_there = false}};
    struct bench_cluster cluster;
    struct benchmark_mode benchmark_mode = {.mode = "copy",
                                            .verify = "full",
                                            .cluster = &cluster,
                                            .update = UPDATE("update_far", SENDERS, 0.5)};

    bench_cluster_start(&cluster, &node);
    bench_copy_workers_start(&peers.copiers, "sender", 2, bench_model_bytes(model) / 2);
    measure_mode(model, &benchmark_mode, &peers);
    bench_copy_workers_stop(&peers.copiers);
    bench_cluster_stop(&cluster);
}

/* Measures updates on one node in every mode. */
static void measure_local(const struct bench_model *model)
{
    struct peers peers;

    bench_copy_workers_start(&peers.copiers, "copier", 2, bench_model_bytes(model) / 2);
    bench_torch_flow_start(&peers.stock, TDM_BENCH_SOURCE_DIR, model->layers, model->vocabulary);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        measure_mode(model, &modes[i], &peers);
    }
    if (peers.stock.is_there) {
        bench_torch_flow_stop(&peers.stock);
    }
    bench_copy_workers_stop(&peers.copiers);
}

/* Opens a job of the mode and does what the lines of the standard input say, one after the other:
 * "update" runs an update, "copy" copies the bytes of the model with memcpy in two processes,
 * "check" checks the engine's weights. Each prints a line with its seconds. Ends with the input. */
static int serve_updates(const struct bench_model *model, const char *mode, const char *verify)
{
    const struct benchmark_mode benchmark_mode = {.mode = mode, .verify = verify};
    struct bench_copy_workers copiers;
    bool has_copiers = false;
    char line[16];

    open_job(model, ENGINES, &benchmark_mode);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        double seconds = 0;
        double finish;

        if (strcmp(line, "update\n") == 0) {
            seconds = update_once(&finish);
        } else if (strcmp(line, "copy\n") == 0) {
            if (!has_copiers) {
                bench_copy_workers_start(&copiers, "copier", 2, bench_model_bytes(model) / 2);
                has_copiers = true;
            }
            seconds = bench_copy_workers_run(&copiers);
        } else {
            check_weights();
        }
        (void)printf("%.9f\n", seconds);
        (void)fflush(stdout);
    }
    if (has_copiers) {
        bench_copy_workers_stop(&copiers);
    }
    bench_job_close(&job);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct bench_role roles[] = {BENCH_COPIER_ROLE,
                                              BENCH_SENDER_ROLE,
                                              {"summing", summing_copier},
                                              {"streaming", streaming_copier}};
    const struct bench_model model = bench_model_wanted();

    tdm__worker_run_if_one(); /* In the process of an actor this call does not return. */
    bench_peer_run(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));
    if (argc == 4 && strcmp(argv[1], "--updates") == 0) {
        return serve_updates(&model, argv[2], argv[3]);
    }
    bench_parse_arguments(argc, argv);
    if (bench_is_wanted("near")) {
        measure_nothing();
        measure_sums(&model);
        measure_local(&model);
    }
    if (bench_is_wanted("far")) {
        measure_remote(&model);
    }
    return bench_status();
}
