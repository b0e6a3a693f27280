/* models.c - plans of real models: what they move and cost, and what it takes to make them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each plan goes from a trainer's layout to an engine's on the same GPUs, eight a node.  Its
 * predicted time is that of the slowest rank if it copied alone, at the rates that this machine
 * has just shown: for copies with their sums, for casts and for quantizing, and the price of
 * a small copy.  Links that are not here are taken to be as fast. */
#include "colocate/layout/reshard.h"
#include "colocate/transfer/rect_checksum.h"
#include "colocate/weights/tensor_handles.h"
#include "measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tandem/tandem.h>

enum {
    GPUS_PER_NODE = 8,
    COPIES_MEASURED = 20000,
    RATE_ROUNDS = 5,
    PAGE_BYTES = 4096,
    HANDLES = 18867,
    CONVERTS_COUNT = TDM__CONVERT_SCALES + 1
};

#define COPY_BYTES ((size_t)128 << 20)

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
    {"qwen3-4b", "{\"layout\": \"fsdp\", \"ranks\": 8, \"state\": \"local\", \"dtype\": \"F32\"}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 2, \"dtype\": \"BF16\"}", false, false},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8, \"attention_tp\": 1}", false,
     false},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"hugging_face\", \"ranks\": 8}", false, false},
    {"glm-4.5-air", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}", true, false},
    {"deepseek-v3", "{\"layout\": \"megatron\", \"ranks\": 128, \"tp\": 8, \"pp\": 4, \"ep\": 32}",
     "{\"layout\": \"engine\", \"ranks\": 128, \"tp\": 8, \"ep\": 32, \"dtype\": \"F8_E4M3\"}",
     true, true},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}", false, false},
    {"deepseek-v3", "{\"layout\": \"megatron\", \"ranks\": 128, \"tp\": 8, \"pp\": 4, \"ep\": 32}",
     "{\"layout\": \"engine\", \"ranks\": 128, \"tp\": 32, \"ep\": 32}", true, false},
};

enum {
    LINES_COUNT = sizeof(lines) / sizeof(lines[0]),
    LINE_QWEN3 = LINES_COUNT - 2,
    LINE_DEEPSEEK = LINES_COUNT - 1
};

static struct tdm__rank_location rank_locations[128];

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
    const struct tdm__reshard_side from = {&planned->from, rank_locations};
    const struct tdm__reshard_side to = {&planned->to, rank_locations};
    struct tdm__model_config config;
    char path[512];
    double begun;

    (void)snprintf(path, sizeof(path), "%s/models/%s.json", TDM_BENCH_SOURCE_DIR, line->model);
    TDM_CHECK(tdm__model_config_read(path, &config));
    config.fp8 = false; /* trainers have bf16 */
    TDM_CHECK(tdm__sharding_parse(line->from, strlen(line->from), "from", &planned->from));
    TDM_CHECK(tdm__sharding_parse(line->to, strlen(line->to), "to", &planned->to));
    begun = bench_clock_seconds();
    TDM_CHECK(tdm__model_create(&config, &options, &planned->model));
    TDM_CHECK(tdm__reshard_create(planned->model, &from, &to, &planned->reshard));
    planned->seconds = bench_clock_seconds() - begun;
}

static void drop_plan(struct planned *planned)
{
    tdm__reshard_destroy(planned->reshard);
    tdm__model_destroy(planned->model);
}

/* ---- rates ------------------------------------------------------------------------------ */

struct rates {
    double bytes_per_second[CONVERTS_COUNT]; /* read; by enum tdm__conversion */
    double seconds_per_copy;
};

/* Two rank_locations, touched, and one for scales. */
struct room {
    uint8_t *from;
    uint8_t *to;
    float *scales;
};

static struct room make_room(void)
{
    struct room room = {aligned_alloc(PAGE_BYTES, COPY_BYTES),
                        aligned_alloc(PAGE_BYTES, COPY_BYTES), malloc(COPY_BYTES / 1024)};

    if (room.from == NULL || room.to == NULL || room.scales == NULL) {
        bench_die("memory for the rates");
    }
    memset(room.from, 1, COPY_BYTES);
    memset(room.to, 1, COPY_BYTES);
    return room;
}

static void drop_room(struct room *room)
{
    free(room->from);
    free(room->to);
    free(room->scales);
}

static void copy_with_sum(const struct room *room)
{
    const struct tdm__strided_rows rows = {1, COPY_BYTES, COPY_BYTES, COPY_BYTES};

    (void)tdm__rect_checksum_copy(&rows, room->from, room->to);
}

/* As many rows of 4,096 elements as there is room for. */
static void conversion(const struct room *room, enum tdm__conversion kind,
                       enum tdm_dtype from_dtype, enum tdm_dtype to_dtype)
{
    static const struct tdm__scales_location place = {.pitch = 4096 / 128};
    const struct tdm__rect_copy copy = {
        .rows = (uint32_t)(COPY_BYTES / 4096 / tdm_dtype_bytes(from_dtype)),
        .columns = 4096,
        .from_pitch = 4096,
        .to_pitch = 4096,
        .conversion = (uint8_t)kind,
        .from_dtype = (uint8_t)from_dtype,
        .to_dtype = (uint8_t)to_dtype};

    tdm__rect_copy_execute(&copy, room->from, room->to, &place, room->scales);
}

static double rate_of(const struct room *room, enum tdm__conversion kind)
{
    double rates[RATE_ROUNDS];

    for (int i = 0; i < RATE_ROUNDS; i++) {
        double begun = bench_clock_seconds();

        switch (kind) {
        case TDM__CONVERT_NONE:
            copy_with_sum(room);
            break;
        case TDM__CONVERT_BF16:
            conversion(room, kind, TDM_F32, TDM_BF16);
            break;
        case TDM__CONVERT_FP8:
        case TDM__CONVERT_SCALES: /* nearly all of FP8's work is to find them */
            conversion(room, TDM__CONVERT_FP8, TDM_BF16, TDM_F8_E4M3);
            break;
        }
        rates[i] = (double)COPY_BYTES / (bench_clock_seconds() - begun);
    }
    return bench_median(rates, RATE_ROUNDS);
}

static struct rates measure_rates(void)
{
    const struct tdm__rect_copy copy = {.rows = 1,
                                        .columns = 256,
                                        .from_pitch = 256,
                                        .to_pitch = 256,
                                        .from_dtype = TDM_BF16,
                                        .to_dtype = TDM_BF16};
    struct room room = make_room();
    struct rates rates;
    double begun;

    for (int kind = 0; kind < CONVERTS_COUNT; kind++) {
        rates.bytes_per_second[kind] = rate_of(&room, (enum tdm__conversion)kind);
    }
    begun = bench_clock_seconds();
    for (size_t i = 0; i < COPIES_MEASURED; i++) {
        tdm__rect_copy_execute(&copy, room.from + i * 1024, room.to + i * 1024, NULL, NULL);
    }
    rates.seconds_per_copy = (bench_clock_seconds() - begun) / COPIES_MEASURED;
    drop_room(&room);
    return rates;
}

static double predict_seconds(const struct tdm__reshard *reshard, const struct rates *rates)
{
    double slowest = 0;

    for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
        const struct tdm__rank_copies *plan = &reshard->ranks[rank];
        double seconds = plan->copies_count * rates->seconds_per_copy;

        for (uint32_t i = 0; i < plan->copies_count; i++) {
            const struct tdm__rect_copy *copy = &plan->copies[i];

            seconds +=
                (double)tdm__rect_copy_bytes(copy) / rates->bytes_per_second[copy->conversion];
        }
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

    (void)printf("\n%s%s: %u tensors, %.3f GiB\n  from %s\n  to   %s\n", line->model,
                 line->mtp ? " with MTP" : "", planned->model->tensors_count,
                 gib(tdm__model_bytes(planned->model)), line->from, line->to);
    (void)printf("  same GPU %.2f GiB in %" PRIu64 " copies, same node %.2f in %" PRIu64
                 ", other nodes %.2f in %" PRIu64 "; written %.2f GiB\n",
                 gib(cost->bytes_by_locality[0]), cost->copies_by_locality[0],
                 gib(cost->bytes_by_locality[1]), cost->copies_by_locality[1],
                 gib(cost->bytes_by_locality[2]), cost->copies_by_locality[2],
                 gib(cost->written_bytes));
    (void)printf("  a rank: at most %u copies, %.3f GiB received, %.3f to %.3f GiB sent, %.3f "
                 "GiB staged\n",
                 cost->copies_max, gib(cost->received_bytes_max), gib(cost->sent_bytes_min),
                 gib(cost->sent_bytes_max), gib(cost->staging_bytes_max));
    (void)printf("  compiled in %.0f ms; predicted %.3f s\n", planned->seconds * 1e3,
                 predict_seconds(planned->reshard, rates));
}

/* Layouts are JSON as they are. */
static void print_plan_json(const struct line *line, const struct planned *planned,
                            const struct rates *rates)
{
    const struct tdm__reshard_cost *cost = &planned->reshard->cost;

    (void)printf("{\"plan\":\"%s\",\"mtp\":%s,\"from\":%s,\"to\":%s,\"tensors\":%u,"
                 "\"model_bytes\":%" PRIu64 ",\"written_bytes\":%" PRIu64,
                 line->model, line->mtp ? "true" : "false", line->from, line->to,
                 planned->model->tensors_count, tdm__model_bytes(planned->model),
                 cost->written_bytes);
    for (int locality = 0; locality < TDM__LOCALITIES_COUNT; locality++) {
        static const char *const names[] = {"same_gpu", "same_node", "other_node"};

        (void)printf(",\"%s_bytes\":%" PRIu64 ",\"%s_copies\":%" PRIu64, names[locality],
                     cost->bytes_by_locality[locality], names[locality],
                     cost->copies_by_locality[locality]);
    }
    (void)printf(",\"copies_max\":%u,\"received_bytes_max\":%" PRIu64
                 ",\"compile_seconds\":%.4g,\"predicted_seconds\":%.4g}\n",
                 cost->copies_max, cost->received_bytes_max, planned->seconds,
                 predict_seconds(planned->reshard, rates));
}

static void print_rates(const struct rates *rates)
{
    const double *each = rates->bytes_per_second;

    if (bench_is_json()) {
        (void)printf("{\"rates\":\"bytes a second\",\"copy\":%.4g,\"cast_bf16\":%.4g,"
                     "\"quantize_fp8\":%.4g,\"seconds_per_copy\":%.4g}\n",
                     each[TDM__CONVERT_NONE], each[TDM__CONVERT_BF16], each[TDM__CONVERT_FP8],
                     rates->seconds_per_copy);
    } else {
        (void)printf("\ncopied with sums at %.2f GiB/s, cast to bf16 at %.2f, quantized to fp8 at "
                     "%.2f, a copy of 512 bytes in %.0f ns\n",
                     gib((uint64_t)each[TDM__CONVERT_NONE]), gib((uint64_t)each[TDM__CONVERT_BF16]),
                     gib((uint64_t)each[TDM__CONVERT_FP8]), rates->seconds_per_copy * 1e9);
    }
}

static void print_plans(void)
{
    const struct rates rates = measure_rates();

    print_rates(&rates);
    for (size_t i = 0; i < LINES_COUNT; i++) {
        struct planned planned;

        make_plan(&lines[i], &planned);
        if (bench_is_json()) {
            print_plan_json(&lines[i], &planned, &rates);
        } else {
            print_plan(&lines[i], &planned, &rates);
        }
        drop_plan(&planned);
    }
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
        bench_measure_round(&seconds, planned.seconds, 2);
        bench_measure_round(&memory, (double)(peak_bytes() - before) / 1e6, 200);
        drop_plan(&planned);
    }
    bench_measure_report(&seconds);
    bench_measure_report(&memory);
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
    bench_measure_round(&copies, planned.reshard->cost.copies_max, 2000);
    bench_measure_report(&copies);
    drop_plan(&planned);
}

/* Built, encoded, and decoded with all checks. */
static double build_and_parse(struct tdm__tensor_handles *handles, void *buffer, size_t size_bytes)
{
    struct tdm__tensor_handles decoded;
    double begun = bench_clock_seconds();

    for (uint32_t i = 0; i < HANDLES; i++) {
        handles->tensors[i] = (struct tdm__tensor_record){.tensor = i,
                                                          .dtype = TDM_BF16,
                                                          .dims_count = 2,
                                                          .shape = {768, 2048},
                                                          .stride = {2048, 1},
                                                          .checksum = i};
    }
    TDM_CHECK(tdm__tensor_handles_encode(handles, buffer, size_bytes));
    TDM_CHECK(tdm__tensor_handles_decode((struct tdm_bytes){buffer, size_bytes}, &decoded));
    tdm__tensor_handles_fini(&decoded);
    return bench_clock_seconds() - begun;
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
    struct tdm__tensor_handles handles = {.header = {.storages_count = 1,
                                                     .tensors_count = HANDLES,
                                                     .update = {{3}},
                                                     .node = {{4}},
                                                     .epoch = 1,
                                                     .buckets_count = 1},
                                          .storages = &storage,
                                          .tensors = calloc(HANDLES, sizeof(*handles.tensors))};
    size_t size_bytes = tdm__tensor_handles_bytes(&handles);
    void *buffer = malloc(size_bytes);

    if (handles.tensors == NULL || buffer == NULL) {
        bench_die("memory for handles");
    }
    (void)build_and_parse(&handles, buffer, size_bytes);
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        bench_measure_round(&seconds, build_and_parse(&handles, buffer, size_bytes) * 1e3, 5);
    }
    bench_measure_round(&size, (double)size_bytes / 1e6, 2.5);
    bench_measure_report(&seconds);
    bench_measure_report(&size);
    free(handles.tensors);
    free(buffer);
}

int main(int argc, char **argv)
{
    bench_parse_arguments(argc, argv);
    for (uint32_t i = 0; i < sizeof(rank_locations) / sizeof(rank_locations[0]); i++) {
        rank_locations[i] = (struct tdm__rank_location){i / GPUS_PER_NODE, i};
    }
    measure_deepseek();
    measure_qwen3();
    measure_handles();
    print_plans();
    return bench_status();
}
