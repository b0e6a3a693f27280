/* models.c - computes transfer plans of real models: what they move and cost, and the time to
 * compile them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each plan goes from a trainer's layout to an engine's layout on the same GPUs, eight on each
 * node. The predicted time is that of the slowest rank if it copied alone. It uses the rates
 * that this machine has just shown for copies with checksums, casts and quantization, and the
 * time of a small copy. Links between GPUs are assumed to be as fast. */
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

/* Bytes of each buffer whose copy is timed. */
#define COPY_BYTES ((size_t)128 << 20)

/* One plan of the table. */
struct plan_case {
    /* Name of the file in bench/models without ".json". */
    const char *model;
    /* Layout of the trainers as JSON. */
    const char *from;
    /* Layout of the engines as JSON. */
    const char *to;
    /* True to include the tensors for multi-token prediction. */
    bool mtp;
    /* True to include scales, for a destination in FP8. */
    bool fp8;
};

/* All plans. The last two have targets. */
static const struct plan_case plan_cases[] = {
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
    PLAN_CASES_COUNT = sizeof(plan_cases) / sizeof(plan_cases[0]),
    CASE_QWEN3 = PLAN_CASES_COUNT - 2,
    CASE_DEEPSEEK = PLAN_CASES_COUNT - 1
};

/* Node and GPU of each rank. */
static struct tdm__rank_location rank_locations[128];

/* A compiled plan with everything that it refers to. The caller releases it with plan_fini(). */
struct planned {
    /* Parsed layout of the trainers. */
    struct tdm__sharding from;
    /* Parsed layout of the engines. */
    struct tdm__sharding to;
    /* Owned list of tensors. */
    struct tdm__model *model;
    /* Owned plan. */
    struct tdm__reshard *reshard;
    /* Seconds to compile the plan, the list of tensors included. */
    double seconds;
};

/* Reads the model and compiles the plan. */
static void plan_compile(const struct plan_case *plan_case, struct planned *planned)
{
    const struct tdm__model_options options = {.mtp = plan_case->mtp, .scales = plan_case->fp8};
    const struct tdm__reshard_side from = {&planned->from, rank_locations};
    const struct tdm__reshard_side to = {&planned->to, rank_locations};
    struct tdm__model_config config;
    char path[512];
    double begun;

    (void)snprintf(path, sizeof(path), "%s/models/%s.json", TDM_BENCH_SOURCE_DIR, plan_case->model);
    TDM_CHECK(tdm__model_config_read(path, &config));
    config.fp8 = false; /* Trainers have bfloat16 weights. */
    TDM_CHECK(
        tdm__sharding_parse(plan_case->from, strlen(plan_case->from), "from", &planned->from));
    TDM_CHECK(tdm__sharding_parse(plan_case->to, strlen(plan_case->to), "to", &planned->to));
    begun = bench_clock_seconds();
    TDM_CHECK(tdm__model_create(&config, &options, &planned->model));
    TDM_CHECK(tdm__reshard_create(planned->model, &from, &to, &planned->reshard));
    planned->seconds = bench_clock_seconds() - begun;
}

/* Frees the plan. */
static void plan_fini(struct planned *planned)
{
    tdm__reshard_destroy(planned->reshard);
    tdm__model_destroy(planned->model);
}

/* ---- rates ------------------------------------------------------------------------------ */

/* Speeds of this machine. */
struct rates {
    /* Bytes that are read in a second, by enum tdm__conversion. */
    double bytes_per_second[CONVERTS_COUNT];
    /* Seconds of a copy of 512 bytes. */
    double seconds_per_copy;
};

/* Buffers for timing copies; their pages have been touched. */
struct copy_buffers {
    /* Owned source of COPY_BYTES. */
    uint8_t *from;
    /* Owned destination of COPY_BYTES. */
    uint8_t *to;
    /* Owned space for scales. */
    float *scales;
};

/* Allocates the buffers. */
static struct copy_buffers copy_buffers_create(void)
{
    struct copy_buffers copy_buffers = {aligned_alloc(PAGE_BYTES, COPY_BYTES),
                                        aligned_alloc(PAGE_BYTES, COPY_BYTES),
                                        malloc(COPY_BYTES / 1024)};

    if (copy_buffers.from == NULL || copy_buffers.to == NULL || copy_buffers.scales == NULL) {
        bench_die("memory for the rates");
    }
    memset(copy_buffers.from, 1, COPY_BYTES);
    memset(copy_buffers.to, 1, COPY_BYTES);
    return copy_buffers;
}

/* Frees the buffers. */
static void copy_buffers_destroy(struct copy_buffers *copy_buffers)
{
    free(copy_buffers->from);
    free(copy_buffers->to);
    free(copy_buffers->scales);
}

/* Copies the buffer and computes its checksum. */
static void copy_with_sum(const struct copy_buffers *copy_buffers)
{
    const struct tdm__strided_rows rows = {1, COPY_BYTES, COPY_BYTES, COPY_BYTES};

    (void)tdm__rect_checksum_copy(&rows, copy_buffers->from, copy_buffers->to);
}

/* Converts as many rows of 4,096 elements as fit into the buffer. */
static void convert_rows(const struct copy_buffers *copy_buffers, enum tdm__conversion kind,
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

    tdm__rect_copy_execute(&copy, copy_buffers->from, copy_buffers->to, &place,
                           copy_buffers->scales);
}

/* Returns the median speed of a kind of copy in bytes per second. */
static double rate_of(const struct copy_buffers *copy_buffers, enum tdm__conversion kind)
{
    double rates[RATE_ROUNDS];

    for (int i = 0; i < RATE_ROUNDS; i++) {
        double begun = bench_clock_seconds();

        switch (kind) {
        case TDM__CONVERT_NONE:
            copy_with_sum(copy_buffers);
            break;
        case TDM__CONVERT_BF16:
            convert_rows(copy_buffers, kind, TDM_F32, TDM_BF16);
            break;
        case TDM__CONVERT_FP8:
        case TDM__CONVERT_SCALES: /* Finding the scales is nearly all of the work of FP8. */
            convert_rows(copy_buffers, TDM__CONVERT_FP8, TDM_BF16, TDM_F8_E4M3);
            break;
        }
        rates[i] = (double)COPY_BYTES / (bench_clock_seconds() - begun);
    }
    return bench_median(rates, RATE_ROUNDS);
}

/* Measures all speeds. */
static struct rates measure_rates(void)
{
    const struct tdm__rect_copy copy = {.rows = 1,
                                        .columns = 256,
                                        .from_pitch = 256,
                                        .to_pitch = 256,
                                        .from_dtype = TDM_BF16,
                                        .to_dtype = TDM_BF16};
    struct copy_buffers copy_buffers = copy_buffers_create();
    struct rates rates;
    double begun;

    for (int kind = 0; kind < CONVERTS_COUNT; kind++) {
        rates.bytes_per_second[kind] = rate_of(&copy_buffers, (enum tdm__conversion)kind);
    }
    begun = bench_clock_seconds();
    for (size_t i = 0; i < COPIES_MEASURED; i++) {
        tdm__rect_copy_execute(&copy, copy_buffers.from + i * 1024, copy_buffers.to + i * 1024,
                               NULL, NULL);
    }
    rates.seconds_per_copy = (bench_clock_seconds() - begun) / COPIES_MEASURED;
    copy_buffers_destroy(&copy_buffers);
    return rates;
}

/* Returns the seconds of the slowest rank. */
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

/* Converts bytes to GiB. */
static double gib(uint64_t size_bytes)
{
    return (double)size_bytes / (double)(1 << 30);
}

/* Prints a plan as text. */
static void print_plan(const struct plan_case *plan_case, const struct planned *planned,
                       const struct rates *rates)
{
    const struct tdm__reshard_cost *cost = &planned->reshard->cost;

    (void)printf("\n%s%s: %u tensors, %.3f GiB\n  from %s\n  to   %s\n", plan_case->model,
                 plan_case->mtp ? " with MTP" : "", planned->model->tensors_count,
                 gib(tdm__model_bytes(planned->model)), plan_case->from, plan_case->to);
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

/* Prints a plan as one JSON object. Layouts are inserted as they are, because they are JSON. */
static void print_plan_json(const struct plan_case *plan_case, const struct planned *planned,
                            const struct rates *rates)
{
    const struct tdm__reshard_cost *cost = &planned->reshard->cost;

    (void)printf("{\"plan\":\"%s\",\"mtp\":%s,\"from\":%s,\"to\":%s,\"tensors\":%u,"
                 "\"model_bytes\":%" PRIu64 ",\"written_bytes\":%" PRIu64,
                 plan_case->model, plan_case->mtp ? "true" : "false", plan_case->from,
                 plan_case->to, planned->model->tensors_count, tdm__model_bytes(planned->model),
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

/* Prints the measured speeds. */
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

/* Measures the speeds and prints all plans. */
static void print_plans(void)
{
    const struct rates rates = measure_rates();

    print_rates(&rates);
    for (size_t i = 0; i < PLAN_CASES_COUNT; i++) {
        struct planned planned;

        plan_compile(&plan_cases[i], &planned);
        if (bench_is_json()) {
            print_plan_json(&plan_cases[i], &planned, &rates);
        } else {
            print_plan(&plan_cases[i], &planned, &rates);
        }
        plan_fini(&planned);
    }
}

/* ---- targets --------------------------------------------------------------------------- */

/* Returns the peak memory of this process in bytes. */
static uint64_t peak_bytes(void)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss << 10;
}

/* Measures time and memory of compiling the largest plan. It must run first, because the peak of
 * a process never decreases. */
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

        plan_compile(&plan_cases[CASE_DEEPSEEK], &planned);
        bench_measure_round(&seconds, planned.seconds, 2);
        bench_measure_round(&memory, (double)(peak_bytes() - before) / 1e6, 200);
        plan_fini(&planned);
    }
    bench_measure_report(&seconds);
    bench_measure_report(&memory);
}

/* Measures the greatest number of copies of a rank. */
static void measure_qwen3(void)
{
    static struct bench_measure copies = {.name = "copies_a_rank_qwen3_30b",
                                          .unit = "copies",
                                          .against = "2,000",
                                          .better = BENCH_LESS_IS_BETTER,
                                          .at_least = 1};
    struct planned planned;

    plan_compile(&plan_cases[CASE_QWEN3], &planned);
    bench_measure_round(&copies, planned.reshard->cost.copies_max, 2000);
    bench_measure_report(&copies);
    plan_fini(&planned);
}

/* Returns the seconds to build, encode and decode a message of tensor handles. */
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

/* Measures time and size of a message with as many handles as DeepSeek-V3 has on a rank. */
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
