/* models.c - plans of real models: what they move and cost, and what it takes to make them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each line is a plan from a trainer's layout to an engine's on the same GPUs, eight a node.
 * The predicted time is that of the slowest rank if it copied alone, at the rate of memcpy and
 * at the price of a small copy that this machine has just shown; links that are not here are
 * taken to be as fast. */
#include "colocate/plan/reshard.h"
#include "colocate/weights/handle.h"
#include "measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tandem/tandem.h>

enum { GPUS_PER_NODE = 8, COPIES_MEASURED = 20000, HANDLES = 18867 };

#define COPY_BYTES ((size_t)64 << 20)

struct line {
    const char *model;
    const char *from;
    const char *to;
    bool mtp;
    bool fp8; /* with scales for a destination that wants them */
};

/* The last two are measured. */
static const struct line lines[] = {
    {"qwen3-0.6b", "{\"layout\": \"megatron\", \"ranks\": 2, \"tp\": 2}",
     "{\"layout\": \"engine\", \"ranks\": 2, \"tp\": 2}", false, false},
    {"qwen3-0.6b", "{\"layout\": \"fsdp\", \"ranks\": 2, \"state\": \"local\"}",
     "{\"layout\": \"engine\", \"ranks\": 2, \"tp\": 2}", false, false},
    {"qwen3-0.6b", "{\"layout\": \"megatron\", \"ranks\": 2, \"pp\": 2}",
     "{\"layout\": \"hugging_face\"}", false, false},
    {"qwen3-4b", "{\"layout\": \"fsdp\", \"ranks\": 8, \"state\": \"sharded\"}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 2}", false, false},
    {"qwen3-4b",
     "{\"layout\": \"fsdp\", \"ranks\": 8, \"state\": \"local\", \"dtype\": \"F32\"}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 2, \"dtype\": \"BF16\"}", false, false},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8, \"attention_tp\": 1}", false,
     false},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"hugging_face\", \"ranks\": 8}", false, false},
    {"glm-4.5-air", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}", true, false},
    {"deepseek-v3",
     "{\"layout\": \"megatron\", \"ranks\": 128, \"tp\": 8, \"pp\": 4, \"ep\": 32}",
     "{\"layout\": \"engine\", \"ranks\": 128, \"tp\": 8, \"ep\": 32, \"dtype\": \"F8_E4M3\"}",
     true, true},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}", false, false},
    {"deepseek-v3",
     "{\"layout\": \"megatron\", \"ranks\": 128, \"tp\": 8, \"pp\": 4, \"ep\": 32}",
     "{\"layout\": \"engine\", \"ranks\": 128, \"tp\": 32, \"ep\": 32}", true, false},
};

enum {
    LINES_COUNT = sizeof(lines) / sizeof(lines[0]),
    LINE_QWEN3 = LINES_COUNT - 2,
    LINE_DEEPSEEK = LINES_COUNT - 1
};

static struct tdm__rank_place places[128];

/* A plan with what it points to. */
struct planned {
    struct tdm__sharding from;
    struct tdm__sharding to;
    struct tdm__model *model;
    struct tdm__reshard *reshard;
    double seconds; /* to compile, the list of tensors included */
};

static void make_plan(const struct line *line, struct planned *planned)
{
    const struct tdm__model_options options = {.mtp = line->mtp, .scales = line->fp8};
    const struct tdm__side from = {&planned->from, places};
    const struct tdm__side to = {&planned->to, places};
    struct tdm__model_config config;
    char path[512];
    double begun;

    (void)snprintf(path, sizeof(path), "%s/models/%s.json", TDM_BENCH_SOURCE_DIR, line->model);
    TDM_CHECK(tdm__model_config_read(path, &config));
    config.fp8 = false; /* trainers have bf16 */
    TDM_CHECK(tdm__sharding_parse(line->from, strlen(line->from), "from", &planned->from));
    TDM_CHECK(tdm__sharding_parse(line->to, strlen(line->to), "to", &planned->to));
    begun = bench_seconds();
    TDM_CHECK(tdm__model_create(&config, &options, &planned->model));
    TDM_CHECK(tdm__reshard_create(planned->model, &from, &to, &planned->reshard));
    planned->seconds = bench_seconds() - begun;
}

static void drop_plan(struct planned *planned)
{
    tdm__reshard_destroy(planned->reshard);
    tdm__model_destroy(planned->model);
}

/* ---- rates ------------------------------------------------------------------------------ */

struct rates {
    double bytes_per_second;
    double seconds_per_copy;
};

static struct rates measure_rates(void)
{
    const struct tdm__copy copy = {.rows = 1,
                                   .columns = 256,
                                   .from_pitch = 256,
                                   .to_pitch = 256,
                                   .from_dtype = TDM_BF16,
                                   .to_dtype = TDM_BF16};
    uint8_t *from = malloc(COPY_BYTES);
    uint8_t *to = malloc(COPY_BYTES);
    double best = 1e9;
    struct rates rates;
    double begun;

    if (from == NULL || to == NULL) {
        bench_die("memory for the rate of memcpy");
    }
    memset(from, 1, COPY_BYTES);
    for (int i = 0; i < 5; i++) {
        double took;

        begun = bench_seconds();
        memcpy(to, from, COPY_BYTES);
        took = bench_seconds() - begun;
        best = i > 0 && took < best ? took : best; /* the first one touches the pages */
    }
    rates.bytes_per_second = (double)COPY_BYTES / best;
    begun = bench_seconds();
    for (size_t i = 0; i < COPIES_MEASURED; i++) {
        tdm__copy_run(&copy, from + i * 1024, to + i * 1024, NULL, NULL);
    }
    rates.seconds_per_copy = (bench_seconds() - begun) / COPIES_MEASURED;
    free(from);
    free(to);
    return rates;
}

static double predict_seconds(const struct tdm__reshard *reshard, const struct rates *rates)
{
    double slowest = 0;

    for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
        const struct tdm__rank_plan *plan = &reshard->ranks[rank];
        uint64_t size_bytes = 0;
        double seconds;

        for (uint32_t i = 0; i < plan->copies_count; i++) {
            size_bytes += tdm__copy_bytes(&plan->copies[i]);
        }
        seconds = (double)size_bytes / rates->bytes_per_second +
                  plan->copies_count * rates->seconds_per_copy;
        slowest = seconds > slowest ? seconds : slowest;
    }
    return slowest;
}

/* ---- the table -------------------------------------------------------------------------- */

static double gib(uint64_t size_bytes)
{
    return (double)size_bytes / (double)(1 << 30);
}

static void print_plan(const struct line *line, const struct planned *planned,
                       const struct rates *rates)
{
    const struct tdm__reshard_cost *cost = &planned->reshard->cost;

    (void)fprintf(stderr, "%s%s: %u tensors, %.3f GiB\n  from %s\n  to   %s\n", line->model,
                  line->mtp ? " with MTP" : "", planned->model->tensors_count,
                  gib(tdm__model_bytes(planned->model)), line->from, line->to);
    (void)fprintf(stderr,
                  "  same GPU %.2f GiB in %" PRIu64 " copies, same node %.2f in %" PRIu64
                  ", other nodes %.2f in %" PRIu64 "; written %.2f GiB\n",
                  gib(cost->edge_bytes[0]), cost->edge_copies[0], gib(cost->edge_bytes[1]),
                  cost->edge_copies[1], gib(cost->edge_bytes[2]), cost->edge_copies[2],
                  gib(cost->written_bytes));
    (void)fprintf(stderr,
                  "  a rank: at most %u copies, %.3f GiB received, %.3f to %.3f GiB sent, %.3f "
                  "GiB staged\n",
                  cost->copies_max, gib(cost->received_bytes_max), gib(cost->sent_bytes_min),
                  gib(cost->sent_bytes_max), gib(cost->staging_bytes_max));
    (void)fprintf(stderr, "  compiled in %.0f ms; predicted %.3f s\n", planned->seconds * 1e3,
                  predict_seconds(planned->reshard, rates));
}

/* ---- what is promised ------------------------------------------------------------------- */

static uint64_t peak_bytes(void)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss << 10;
}

/* First of all: the peak of a process only grows. */
static void measure_deepseek(void)
{
    static struct bench_measure memory = {.name = "compile_deepseek_peak",
                                          .unit = "MB",
                                          .against = "200 MB",
                                          .better = BENCH_LESS_IS_BETTER,
                                          .at_least = 1};
    static struct bench_measure seconds = {.name = "compile_deepseek",
                                           .unit = "s",
                                           .against = "2 s",
                                           .better = BENCH_LESS_IS_BETTER,
                                           .at_least = 1};
    uint64_t before = peak_bytes();

    for (uint32_t i = 0; i < bench_rounds(); i++) {
        struct planned planned;

        make_plan(&lines[LINE_DEEPSEEK], &planned);
        bench_round(&seconds, planned.seconds, 2);
        bench_round(&memory, (double)(peak_bytes() - before) / 1e6, 200);
        drop_plan(&planned);
    }
    bench_report(&seconds);
    bench_report(&memory);
}

static void measure_qwen3(void)
{
    static struct bench_measure copies = {.name = "copies_a_rank_qwen3_30b",
                                          .unit = "copies",
                                          .against = "2,000",
                                          .better = BENCH_LESS_IS_BETTER,
                                          .at_least = 1};
    struct planned planned;

    make_plan(&lines[LINE_QWEN3], &planned);
    bench_round(&copies, planned.reshard->cost.copies_max, 2000);
    bench_report(&copies);
    drop_plan(&planned);
}

/* Built, encoded, and decoded with all checks. */
static double build_and_parse(struct tdm__handles *handles, void *buffer, size_t size_bytes)
{
    struct tdm__handles decoded;
    double begun = bench_seconds();

    for (uint32_t i = 0; i < HANDLES; i++) {
        handles->tensors[i] = (struct tdm__tensor_record){.tensor = i,
                                                          .dtype = TDM_BF16,
                                                          .dims_count = 2,
                                                          .shape = {768, 2048},
                                                          .stride = {2048, 1},
                                                          .checksum = i};
    }
    TDM_CHECK(tdm__handles_encode(handles, buffer, size_bytes));
    TDM_CHECK(tdm__handles_decode((struct tdm_bytes){buffer, size_bytes}, &decoded));
    tdm__handles_fini(&decoded);
    return bench_seconds() - begun;
}

static void measure_handles(void)
{
    static struct bench_measure seconds = {.name = "handles_18867",
                                           .unit = "ms",
                                           .against = "5 ms",
                                           .better = BENCH_LESS_IS_BETTER,
                                           .at_least = 1};
    static struct bench_measure size = {.name = "handles_18867_bytes",
                                        .unit = "MB",
                                        .against = "2.5 MB",
                                        .better = BENCH_LESS_IS_BETTER,
                                        .at_least = 1};
    struct tdm__storage_record storage = {.gpu = {{1}},
                                          .key = {{2}},
                                          .size_bytes = (uint64_t)768 * 2048 * 2,
                                          .allocation_bytes = (uint64_t)768 * 2048 * 2};
    struct tdm__handles handles = {.header = {.storages_count = 1,
                                              .tensors_count = HANDLES,
                                              .update = {{3}},
                                              .node = {{4}},
                                              .epoch = 1,
                                              .buckets_count = 1},
                                   .storages = &storage,
                                   .tensors = calloc(HANDLES, sizeof(*handles.tensors))};
    size_t size_bytes = tdm__handles_bytes(&handles);
    void *buffer = malloc(size_bytes);

    if (handles.tensors == NULL || buffer == NULL) {
        bench_die("memory for handles");
    }
    (void)build_and_parse(&handles, buffer, size_bytes);
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        bench_round(&seconds, build_and_parse(&handles, buffer, size_bytes) * 1e3, 5);
    }
    bench_round(&size, (double)size_bytes / 1e6, 2.5);
    bench_report(&seconds);
    bench_report(&size);
    free(handles.tensors);
    free(buffer);
}

int main(int argc, char **argv)
{
    struct rates rates;

    bench_init(argc, argv);
    for (uint32_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        places[i] = (struct tdm__rank_place){i / GPUS_PER_NODE, i};
    }
    measure_deepseek();
    measure_qwen3();
    measure_handles();
    rates = measure_rates();
    (void)fprintf(stderr, "memcpy %.2f GiB/s, a copy of 512 bytes %.0f ns\n",
                  gib((uint64_t)rates.bytes_per_second), rates.seconds_per_copy * 1e9);
    for (size_t i = 0; i < LINES_COUNT; i++) {
        struct planned planned;

        make_plan(&lines[i], &planned);
        print_plan(&lines[i], &planned, &rates);
        drop_plan(&planned);
    }
    return bench_status();
}
