/* weights.c - weights go from trainers to engines, in each benchmark_mode, against memcpy of the
 * bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's own functions over real actors: two trainer ranks with rows of every tensor,
 * one engine of two ranks with heads, rows or columns.  What is timed is all of an update, from
 * its first word to the store until everybody has given back what he took.  One peer is two
 * processes that copy what the two engine ranks get, the other the flow that everybody has
 * (torch_flow.h); where the engine is on another node, it is two that send it over a socket.
 * TANDEM_BENCH_MODEL=full: all of Qwen3-0.6B (1.19 GB, about 14 GB of memory); else four of its
 * layers. */
#include "actors/server/worker.h"
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

enum { TIMEOUT_MS = 60000, WARM_UPDATES = 3, ENGINES = 1 };

/* A benchmark_mode to update, and what is wanted of it. */
struct benchmark_mode {
    const char *mode;
    const char *verify;
    uint32_t bucket_mib;                 /* 0: 64 */
    const struct bench_cluster *cluster; /* whose second node has the engine; NULL: one node */
    struct bench_measure update;
    struct bench_measure finish; /* the flip and all around it */
    struct bench_measure stock;  /* against the stock flow in buckets */
    struct bench_measure each;   /* against the stock flow, a tensor at a time */
};

/* Who else moves the same bytes. */
struct peers {
    struct bench_copy_workers copiers;
    struct bench_torch_flow stock;
};

static struct bench_job job;

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

/* Each engine rank looks at all of its weights. */
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

/* The seconds of all, and of its last step. */
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

/* Only what has a name is measured, and the stock flow only where there is one. */
static bool is_wanted(const struct bench_measure *measure, const struct peers *peers)
{
    return measure->name != NULL && peers->stock.is_there;
}

struct seconds {
    double copiers;
    double buckets;
    double tensors;
};

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

/* The whole call for a model so small that nothing has to be moved. */
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

/* Both copy pieces of a size that one thread moves past the caches. */
enum { PIECE_BYTES = TDM__COPY_LARGE_BYTES };

static uint64_t copy_and_sum(void *to, const void *from, size_t size_bytes)
{
    struct tdm__strided_rows row = {.count = 1, .size_bytes = PIECE_BYTES};
    uint64_t sum = 0;

    for (size_t at = 0; at + PIECE_BYTES <= size_bytes; at += PIECE_BYTES) {
        sum ^= tdm__rect_checksum_copy(&row, (const char *)from + at, (char *)to + at);
    }
    return sum;
}

static uint64_t copy_past_caches(void *to, const void *from, size_t size_bytes)
{
    for (size_t at = 0; at + PIECE_BYTES <= size_bytes; at += PIECE_BYTES) {
        tdm__copy_large((char *)to + at, (const char *)from + at, PIECE_BYTES);
    }
    return *(const unsigned char *)to;
}

static void summing_copier(int fd)
{
    bench_copier_with(fd, copy_and_sum);
}

static void streaming_copier(int fd)
{
    bench_copier_with(fd, copy_past_caches);
}

/* An update by copies moves each byte twice, and sums it both times on its benchmark_mode. */
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

#define UPDATE(title, peer, ratio)                                                                 \
    {                                                                                              \
        .name = (title), .unit = "GiB/s", .against = (peer), .better = BENCH_MORE_IS_BETTER,       \
        .at_least = (ratio)                                                                        \
    }
#define COPIERS "memcpy, two warmed processes"
#define SENDERS "TCP, two warmed pairs of processes"
#define BUCKETS "PyTorch, in buckets"
#define TENSORS "PyTorch, a tensor at a time"

static struct benchmark_mode ways[] = {
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
    /* What small buckets cost (docs/decisions/0009). */
    {.mode = "copy",
     .verify = "full",
     .bucket_mib = 8,
     .update = UPDATE("update_copy_8mib", COPIERS, 0)},
    {.mode = "copy",
     .verify = "full",
     .bucket_mib = 1,
     .update = UPDATE("update_copy_1mib", COPIERS, 0)},
    {.mode = "names", .verify = "full", .update = UPDATE("update_names", COPIERS, 0)},
};

/* The trainers on one node, the engine on the other. */
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

static void measure_local(const struct bench_model *model)
{
    struct peers peers;

    bench_copy_workers_start(&peers.copiers, "copier", 2, bench_model_bytes(model) / 2);
    bench_torch_flow_start(&peers.stock, TDM_BENCH_SOURCE_DIR, model->layers, model->vocabulary);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        measure_mode(model, &ways[i], &peers);
    }
    if (peers.stock.is_there) {
        bench_torch_flow_stop(&peers.stock);
    }
    bench_copy_workers_stop(&peers.copiers);
}

int main(int argc, char **argv)
{
    static const struct bench_role roles[] = {BENCH_COPIER_ROLE,
                                              BENCH_SENDER_ROLE,
                                              {"summing", summing_copier},
                                              {"streaming", streaming_copier}};
    const struct bench_model model = bench_model_wanted();

    tdm__worker_run_if_one(); /* never returns where this program is an actor */
    bench_peer_run(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));
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
