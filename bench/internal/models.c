/* models.c - computes transfer plans of real models: what they move and cost, and the time to
 * compile them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each plan goes from a trainer's layout to an engine's layout on the same GPUs, eight on each
 * node. The slices of all ranks are built first, as each rank of a job builds its own; the time to
 * compile is that of tdm__transfer_plan_create(). The predicted time is that of the slowest rank if
 * it copied alone. It uses the rates that this machine has just shown for copies with checksums,
 * casts and quantization, and the time of a small copy. Links between GPUs are assumed to be as
 * fast. */
#include "colocate/job/named_layout_slices.h"
#include "colocate/transfer/copy_op.h"
#include "colocate/transfer/rect_checksum.h"
#include "colocate/weights/convert.h"
#include "colocate/weights/tensor_handles.h"
#include "colocate/weights/transfer_plan.h"
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
};

/* All plans. The last two have targets. */
static const struct plan_case plan_cases[] = {
    {"qwen3-0.6b", "{\"layout\": \"megatron\", \"ranks\": 2, \"tp\": 2}",
     "{\"layout\": \"engine\", \"ranks\": 2, \"tp\": 2}", false},
    {"qwen3-0.6b", "{\"layout\": \"fsdp\", \"ranks\": 2, \"state\": \"local\"}",
     "{\"layout\": \"engine\", \"ranks\": 2, \"tp\": 2}", false},
    {"qwen3-0.6b", "{\"layout\": \"megatron\", \"ranks\": 2, \"pp\": 2}",
     "{\"layout\": \"hugging_face\"}", false},
    {"qwen3-4b", "{\"layout\": \"fsdp\", \"ranks\": 8, \"state\": \"sharded\"}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 2}", false},
    {"qwen3-4b", "{\"layout\": \"fsdp\", \"ranks\": 8, \"state\": \"local\", \"dtype\": \"F32\"}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 2, \"dtype\": \"BF16\"}", false},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8, \"attention_tp\": 1}", false},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"hugging_face\", \"ranks\": 8}", false},
    {"glm-4.5-air", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}", true},
    {"deepseek-v3", "{\"layout\": \"megatron\", \"ranks\": 128, \"tp\": 8, \"pp\": 4, \"ep\": 32}",
     "{\"layout\": \"engine\", \"ranks\": 128, \"tp\": 8, \"ep\": 32, \"dtype\": \"F8_E4M3\"}",
     true},
    {"qwen3-30b-a3b", "{\"layout\": \"megatron\", \"ranks\": 8, \"tp\": 4, \"ep\": 8}",
     "{\"layout\": \"engine\", \"ranks\": 8, \"tp\": 8, \"ep\": 8}", false},
    {"deepseek-v3", "{\"layout\": \"megatron\", \"ranks\": 128, \"tp\": 8, \"pp\": 4, \"ep\": 32}",
     "{\"layout\": \"engine\", \"ranks\": 128, \"tp\": 32, \"ep\": 32}", true},
};

enum {
    PLAN_CASES_COUNT = sizeof(plan_cases) / sizeof(plan_cases[0]),
    CASE_QWEN3 = PLAN_CASES_COUNT - 2,
    CASE_DEEPSEEK = PLAN_CASES_COUNT - 1
};

/* Largest number of ranks of a layout. */
enum { RANKS_MAX = 128 };

/* Node and GPU of each rank. */
static struct tdm__location rank_locations[RANKS_MAX];

/* One side of a plan: what each rank has. */
struct bench_side {
    /* Parsed layout. */
    struct tdm__sharding sharding;
    /* Owned list of tensors. */
    struct tdm__model *model;
    /* What each rank has, and where. */
    struct tdm__named_layout ranks[RANKS_MAX];
    /* The slices of each rank; they belong to `ranks`. */
    struct tdm__layout layouts[RANKS_MAX];
};

/* A compiled plan with everything that it refers to. The caller releases it with plan_fini(). */
struct planned {
    /* The trainers. */
    struct bench_side from;
    /* The engines. */
    struct bench_side to;
    /* Owned list of the tensors, as trainers have them. */
    struct tdm__manifest *manifest;
    /* Owned plan. */
    struct tdm__transfer_plan *plan;
    /* Seconds to compile the plan. */
    double seconds;
};

/* The plan that is being measured; it is large. */
static struct planned planned_now;

/* Computes what each rank of a side has. */
static void side_open(struct bench_side *side, const struct tdm__model_config *config,
                      const char *layout, bool mtp, bool trains)
{
    struct tdm__model_options options = {.mtp = mtp};

    TDM_CHECK(tdm__sharding_parse(layout, strlen(layout), "layout", &side->sharding));
    options.scales = side->sharding.dtype == TDM_F8_E4M3;
    TDM_CHECK(tdm__model_create(config, &options, &side->model));
    for (uint32_t rank = 0; rank < side->sharding.ranks_count; rank++) {
        struct tdm__named_layout *named = &side->ranks[rank];

        *named = (struct tdm__named_layout){.model = side->model,
                                            .sharding = side->sharding,
                                            .where = "layout",
                                            .rank = rank,
                                            .trains = trains};
        TDM_CHECK(tdm__rank_shards_init(side->model, &side->sharding, rank,
                                        trains ? TDM__SHARDS_SOURCE : TDM__SHARDS_DESTINATION,
                                        &named->shards));
        named->tensors = calloc(named->shards.shard_tensors_count + 1u, sizeof(*named->tensors));
        if (named->tensors == NULL) {
            bench_die("memory for the tensors of a rank");
        }
        for (uint32_t i = 0; i < named->shards.shard_tensors_count; i++) {
            named->tensors[i].offset_bytes = named->size_bytes;
            named->size_bytes +=
                (tdm__shard_tensor_bytes(&named->shards.shard_tensors[i]) + 255) / 256 * 256;
        }
    }
}

/* Frees what the ranks of a side have. */
static void side_close(struct bench_side *side)
{
    for (uint32_t rank = 0; rank < side->sharding.ranks_count; rank++) {
        tdm__rank_shards_fini(&side->ranks[rank].shards);
        free(side->ranks[rank].tensors);
        free(side->ranks[rank].model_tensors);
        free(side->ranks[rank].model_names);
        free(side->ranks[rank].slices);
    }
    tdm__model_destroy(side->model);
}

/* Builds the slices of all ranks. The first trainer rank lists the tensors; the others find theirs
 * in that list, which is quicker than to list them again. */
static void build_slices(struct planned *planned)
{
    const struct tdm_tensor_info *tensors;
    uint32_t count;

    TDM_CHECK(tdm__named_layout_build_trainer(&planned->from.ranks[0], NULL, &tensors, &count,
                                              &planned->from.layouts[0]));
    TDM_CHECK(tdm__manifest_create(tensors, count, &planned->manifest));
    for (uint32_t i = 1; i < planned->from.sharding.ranks_count; i++) {
        TDM_CHECK(tdm__named_layout_build_engine(&planned->from.ranks[i], NULL, planned->manifest,
                                                 &planned->from.layouts[i]));
    }
    for (uint32_t i = 0; i < planned->to.sharding.ranks_count; i++) {
        TDM_CHECK(tdm__named_layout_build_engine(&planned->to.ranks[i], NULL, planned->manifest,
                                                 &planned->to.layouts[i]));
    }
}

/* Compiles the plan between the two sides. An earlier plan is freed first. */
static void compile_again(struct planned *planned)
{
    struct tdm__transfer_plan_options options = {.manifest = planned->manifest,
                                                 .from = planned->from.layouts,
                                                 .from_count = planned->from.sharding.ranks_count,
                                                 .to = planned->to.layouts,
                                                 .to_count = planned->to.sharding.ranks_count,
                                                 .from_locations = rank_locations,
                                                 .to_locations = rank_locations};
    double begun = bench_clock_seconds();

    tdm__transfer_plan_destroy(planned->plan);
    for (uint32_t i = 0; i < options.to_count; i++) {
        uint64_t bytes = planned->to.ranks[i].size_bytes;

        options.image_bytes = bytes > options.image_bytes ? bytes : options.image_bytes;
    }
    TDM_CHECK(tdm__transfer_plan_create(&options, &planned->plan));
    planned->seconds = bench_clock_seconds() - begun;
}

/* Reads the model, builds both sides and compiles the plan. */
static void plan_compile(const struct plan_case *plan_case, struct planned *planned)
{
    struct tdm__model_config config;
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/models/%s.json", TDM_BENCH_SOURCE_DIR, plan_case->model);
    TDM_CHECK(tdm__model_config_read(path, &config));
    config.fp8 = false; /* Trainers have bfloat16 weights. */
    planned->plan = NULL;
    side_open(&planned->from, &config, plan_case->from, plan_case->mtp, true);
    side_open(&planned->to, &config, plan_case->to, plan_case->mtp, false);
    build_slices(planned);
    compile_again(planned);
}

/* Frees the plan. */
static void plan_fini(struct planned *planned)
{
    tdm__transfer_plan_destroy(planned->plan);
    tdm__manifest_destroy(planned->manifest);
    side_close(&planned->from);
    side_close(&planned->to);
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
};

/* Allocates the buffers. */
static struct copy_buffers copy_buffers_create(void)
{
    struct copy_buffers copy_buffers = {aligned_alloc(PAGE_BYTES, COPY_BYTES),
                                        aligned_alloc(PAGE_BYTES, COPY_BYTES)};

    if (copy_buffers.from == NULL || copy_buffers.to == NULL) {
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
    const struct tdm__rect_copy copy = {
        .rows = (uint32_t)(COPY_BYTES / 4096 / tdm_dtype_bytes(from_dtype)),
        .columns = 4096,
        .from_pitch = 4096,
        .to_pitch = 4096,
        .conversion = (uint8_t)kind,
        .from_dtype = (uint8_t)from_dtype,
        .to_dtype = (uint8_t)to_dtype};
    struct tdm__copy_op op = tdm__convert_copy_op(&copy, copy_buffers->from, copy_buffers->to);
    uint64_t sum;

    TDM_CHECK(tdm__copy_op_execute(&op, &sum));
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
        struct tdm__copy_op op =
            tdm__convert_copy_op(&copy, copy_buffers.from + i * 1024, copy_buffers.to + i * 1024);
        uint64_t sum;

        TDM_CHECK(tdm__copy_op_execute(&op, &sum));
    }
    rates.seconds_per_copy = (bench_clock_seconds() - begun) / COPIES_MEASURED;
    copy_buffers_destroy(&copy_buffers);
    return rates;
}

/* Returns the seconds of the slowest rank. */
static double predict_seconds(const struct tdm__transfer_plan *plan, const struct rates *rates)
{
    double slowest = 0;

    for (uint32_t rank = 0; rank < plan->to_count; rank++) {
        const struct tdm__transfer_plan_image *image = &plan->images[rank];
        double seconds = image->copies_count * rates->seconds_per_copy;

        for (uint32_t i = 0; i < image->copies_count; i++) {
            const struct tdm__rect_copy *copy = &image->copies[i];

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
    const struct tdm__transfer_cost *cost = &planned->plan->cost;

    (void)printf("\n%s%s: %u tensors, %.3f GiB\n  from %s\n  to   %s\n", plan_case->model,
                 plan_case->mtp ? " with MTP" : "", planned->from.model->tensors_count,
                 gib(tdm__model_bytes(planned->from.model)), plan_case->from, plan_case->to);
    (void)printf("  same GPU %.2f GiB in %" PRIu64 " copies, same node %.2f in %" PRIu64
                 ", other nodes %.2f in %" PRIu64 "; written %.2f GiB\n",
                 gib(cost->bytes_by_locality[0]), cost->copies_by_locality[0],
                 gib(cost->bytes_by_locality[1]), cost->copies_by_locality[1],
                 gib(cost->bytes_by_locality[2]), cost->copies_by_locality[2],
                 gib(cost->written_bytes));
    (void)printf("  a rank: at most %u copies, %.3f GiB received, %.3f to %.3f GiB sent; %.3f GiB "
                 "read for shared scales\n",
                 cost->copies_max, gib(cost->received_bytes_max), gib(cost->sent_bytes_min),
                 gib(cost->sent_bytes_max), gib(planned->plan->scales.measured_bytes));
    (void)printf("  compiled in %.0f ms; predicted %.3f s\n", planned->seconds * 1e3,
                 predict_seconds(planned->plan, rates));
}

/* Prints a plan as one JSON object. Layouts are inserted as they are, because they are JSON. */
static void print_plan_json(const struct plan_case *plan_case, const struct planned *planned,
                            const struct rates *rates)
{
    const struct tdm__transfer_cost *cost = &planned->plan->cost;

    (void)printf("{\"plan\":\"%s\",\"mtp\":%s,\"from\":%s,\"to\":%s,\"tensors\":%u,"
                 "\"model_bytes\":%" PRIu64 ",\"written_bytes\":%" PRIu64,
                 plan_case->model, plan_case->mtp ? "true" : "false", plan_case->from,
                 plan_case->to, planned->from.model->tensors_count,
                 tdm__model_bytes(planned->from.model), cost->written_bytes);
    for (int locality = 0; locality < TDM__LOCALITIES_COUNT; locality++) {
        static const char *const names[] = {"same_gpu", "same_node", "other_node"};

        (void)printf(",\"%s_bytes\":%" PRIu64 ",\"%s_copies\":%" PRIu64, names[locality],
                     cost->bytes_by_locality[locality], names[locality],
                     cost->copies_by_locality[locality]);
    }
    (void)printf(",\"copies_max\":%u,\"received_bytes_max\":%" PRIu64
                 ",\"compile_seconds\":%.4g,\"predicted_seconds\":%.4g}\n",
                 cost->copies_max, cost->received_bytes_max, planned->seconds,
                 predict_seconds(planned->plan, rates));
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
        plan_compile(&plan_cases[i], &planned_now);
        if (bench_is_json()) {
            print_plan_json(&plan_cases[i], &planned_now, &rates);
        } else {
            print_plan(&plan_cases[i], &planned_now, &rates);
        }
        plan_fini(&planned_now);
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

    plan_compile(&plan_cases[CASE_DEEPSEEK], &planned_now);
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        compile_again(&planned_now);
        bench_measure_round(&seconds, planned_now.seconds, 2);
        bench_measure_round(&memory, (double)(peak_bytes() - before) / 1e6, 200);
    }
    plan_fini(&planned_now);
    bench_measure_report(&seconds);
    bench_measure_report(&memory);
}

/* Measures the greatest number of copies of a rank. */
static void measure_qwen3(void)
{
    /* A rank has 2,742 tensors, each with a checksum of its own. */
    static struct bench_measure copies = {.name = "copies_a_rank_qwen3_30b",
                                          .unit = "copies",
                                          .against = "2,800",
                                          .better = BENCH_LESS_IS_BETTER,
                                          .at_least = 1};

    plan_compile(&plan_cases[CASE_QWEN3], &planned_now);
    bench_measure_round(&copies, planned_now.plan->cost.copies_max, 2800);
    bench_measure_report(&copies);
    plan_fini(&planned_now);
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
        rank_locations[i] = (struct tdm__location){.node = {{1, (uint8_t)(i / GPUS_PER_NODE)}},
                                                   .gpu = {{1, (uint8_t)i}}};
    }
    measure_deepseek();
    measure_qwen3();
    measure_handles();
    print_plans();
    return bench_status();
}
