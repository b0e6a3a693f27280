/* named_layout_test.c - jobs whose layouts have names: every element arrives, or the tensor is
 * named.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/named_layout_slices.h"

#include "actors/worker.h"
#include "colocate/job/controller.h"
#include "colocate/weights/transfer_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 60000, TEXT_BYTES = 1024, RANKS_MAX = 8 };

/* ---- models ----------------------------------------------------------------------------- */

static const char dense[] =
    "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 3, \"hidden_size\": 32,"
    " \"intermediate_size\": 48, \"num_attention_heads\": 8, \"num_key_value_heads\": 4,"
    " \"head_dim\": 8, \"vocab_size\": 101, \"tie_word_embeddings\": true,"
    " \"torch_dtype\": \"bfloat16\"}";
static const char experts[] =
    "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"hidden_size\": 32,"
    " \"intermediate_size\": 48, \"num_attention_heads\": 8, \"num_key_value_heads\": 2,"
    " \"head_dim\": 8, \"vocab_size\": 96, \"tie_word_embeddings\": false,"
    " \"num_experts\": 8, \"moe_intermediate_size\": 16, \"decoder_sparse_step\": 1,"
    " \"mlp_only_layers\": [], \"torch_dtype\": \"bfloat16\"}";
/* Rows and columns that four or two ranks do not cut between blocks of 128 x 128. */
static const char blocks[] =
    "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 1, \"hidden_size\": 160,"
    " \"intermediate_size\": 48, \"num_attention_heads\": 8, \"num_key_value_heads\": 8,"
    " \"head_dim\": 16, \"vocab_size\": 96, \"tie_word_embeddings\": false,"
    " \"num_experts\": 2, \"moe_intermediate_size\": 384, \"decoder_sparse_step\": 1,"
    " \"mlp_only_layers\": [], \"torch_dtype\": \"bfloat16\"}";

static char model_path[] = "/tmp/named-test-XXXXXX";

static void write_model(const char *text)
{
    FILE *file = fopen(model_path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* ---- without processes ------------------------------------------------------------------ */

static tdm_config *config_of(const char *text)
{
    tdm_config *config;

    TRY(tdm_config_parse(text, strlen(text), "job.yaml", &config));
    return config;
}

static tdm_status name(const tdm_config *config, const char *section, uint32_t rank,
                       uint32_t ranks_count, struct tdm__named_layout **named_out)
{
    const struct tdm__named_layout_options options = {.config = config,
                                                      .section = section,
                                                      .model_config = model_path,
                                                      .rank = rank,
                                                      .ranks_count = ranks_count};

    return tdm__named_layout_create(&options, named_out);
}

static void refuses(const char *text, const char *section, uint32_t ranks_count, const char *words)
{
    tdm_config *config = config_of(text);
    struct tdm__named_layout *named_layout = NULL;

    if (name(config, section, 0, ranks_count, &named_layout) == TDM_OK ||
        strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("%s: \"%s\" does not say \"%s\"", text, tdm_error_detail(), words);
    }
    tdm_config_destroy(config);
}

static void impossible_layout_is_refused_with_its_name(void **state)
{
    (void)state;
    write_model(dense);
    refuses("engine: {layout: {layout: engine, tp: 3}}", "engine", 3,
            "engine.layout: model.embed_tokens.weight: 128 heads or rows cannot be cut over 3");
    refuses("trainer: {layout: megatrom}", "trainer", 1, "megatrom");
    refuses("trainer: {layout: {layout: megatron, tp: 2}}", "trainer", 3, "3 ranks");
    refuses("trainer: {layout: {layout: fsdp, ranks: 4}}", "trainer", 2,
            "trainer.layout is of 4 ranks, but there are 2");
    refuses("trainer: {layout: {layout: fsdp, tp: 2}}", "trainer", 2,
            "trainer.layout: 1 fields are none of a fsdp layout's");
    refuses("trainer: {layout: 7}", "trainer", 2, "trainer.layout");
}

static void layout_wants_a_model(void **state)
{
    tdm_config *config = config_of("trainer: {layout: fsdp}");
    const struct tdm__named_layout_options options = {
        .config = config, .section = "trainer", .model_config = "", .ranks_count = 1};
    struct tdm__named_layout *named_layout;

    (void)state;
    assert_int_equal(tdm__named_layout_create(&options, &named_layout), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "model.config"));
    tdm_config_destroy(config);
}

static void without_a_name_the_library_is_asked(void **state)
{
    tdm_config *config = config_of("trainer: {num_ranks: 1}");
    struct tdm_rank_context context = {.rank = 0};
    struct tdm__named_layout *named_layout = NULL;

    (void)state;
    TRY(name(config, "trainer", 0, 1, &named_layout));
    assert_null(named_layout);
    tdm__named_layout_fill_context(named_layout, &context);
    assert_null(context.tensors);
    tdm_config_destroy(config);
}

static void tensors_have_the_layouts_names_and_places(void **state)
{
    tdm_config *config = config_of("trainer: {layout: {layout: megatron, tp: 2}}");
    struct tdm_rank_context context = {.rank = 1};
    struct tdm_region_spec spec = {"weights", 0, TDM_REGION_KEEP};
    struct tdm__named_layout *named_layout;
    bool found = false;

    (void)state;
    write_model(dense);
    TRY(name(config, "trainer", 1, 2, &named_layout));
    tdm__named_layout_fill_context(named_layout, &context);
    for (uint32_t i = 0; i < context.tensors_count; i++) {
        const struct tdm_rank_tensor *tensor = &context.tensors[i];

        assert_int_equal(tensor->offset_bytes % 256, 0);
        if (strstr(tensor->info.name, "layers.1.self_attention.linear_qkv.weight") != NULL) {
            found = true;
            assert_int_equal(tensor->info.shape[0], (8 + 4 + 4) * 8 / 2);
            assert_int_equal(tensor->info.shape[1], 32);
        }
    }
    assert_true(found);
    spec.size_bytes = context.tensors_bytes - 1;
    assert_int_equal(tdm__named_layout_check_regions(named_layout, &spec, 1), TDM_E_INVAL);
    spec.size_bytes++;
    TRY(tdm__named_layout_check_regions(named_layout, &spec, 1));
    spec.policy = TDM_REGION_DROP;
    assert_int_equal(tdm__named_layout_check_regions(named_layout, &spec, 1), TDM_E_INVAL);
    assert_int_equal(tdm__named_layout_check_regions(named_layout, &spec, 0), TDM_E_INVAL);
    tdm__named_layout_destroy(named_layout);
    tdm_config_destroy(config);
}

/* Trainers of one model, an engine of another. */
static void engine_of_another_model_is_refused_by_tensor(void **state)
{
    tdm_config *config = config_of("trainer: {layout: fsdp}\nengine: {layout: engine}\n");
    const struct tdm_tensor_info *tensors;
    struct tdm__manifest *manifest;
    struct tdm__layout layout;
    struct tdm__named_layout *trainer;
    struct tdm__named_layout *engine;
    uint32_t count;

    (void)state;
    write_model(dense);
    TRY(name(config, "trainer", 0, 1, &trainer));
    TRY(tdm__named_layout_build_trainer(trainer, NULL, &tensors, &count, &layout));
    TRY(tdm__manifest_create(tensors, count, &manifest));
    write_model(experts);
    TRY(name(config, "engine", 0, 1, &engine));
    assert_int_equal(tdm__named_layout_build_engine(engine, NULL, manifest, &layout), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "model.embed_tokens.weight has 96 x 32"));
    assert_non_null(strstr(tdm_error_detail(), "101 x 32"));
    tdm__named_layout_destroy(engine);
    tdm__manifest_destroy(manifest);
    tdm__named_layout_destroy(trainer);
    tdm_config_destroy(config);
}

/* ---- jobs ------------------------------------------------------------------------------- */

static const char job_file[] =
    "job: {name: named, library: " TDM_TEST_BUILD_DIR "/tests/named_job_library.so}\n"
    "cluster: {num_gpus: 4, gpu_bytes: 32 MiB, cpus: 8}\n"
    "model: {config: %s}\n"
    "trainer: {num_ranks: 4, layout: %s, step_timeout_ms: 60000}\n"
    "engine: {num_engines: %u, rollout_num_gpus_per_engine: %u, layout: %s}\n"
    "update: {update_weight_buffer_size: 16 KiB, mode: %s, timeout_ms: 60000}\n"
    "data: {train: none, unseen: none}\n";

struct pair {
    const char *model;
    const char *trainer;
    const char *engine;
    uint32_t engines_count;
    const char *mode;
};

static struct tdm__job_spec spec;
static struct tdm__controller controller;

static void open_job(const struct pair *pair)
{
    static const struct tdm__job_run_options run = {.program = "test"};
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    char text[TEXT_BYTES];

    write_model(pair->model);
    (void)snprintf(text, sizeof(text), job_file, model_path, pair->trainer, pair->engines_count,
                   4 / pair->engines_count, pair->engine, pair->mode);
    TRY(tdm__job_spec_from_config(config_of(text), "", &spec));
    controller = (struct tdm__controller){.spec = &spec, .options = &run};
    options.cpus = 8;
    options.gpus = spec.num_gpus;
    options.gpu_bytes = spec.gpu_bytes;
    TRY(tdm_runtime_start(&options, &controller.runtime));
    if (tdm__worker_group_start(&controller.workers, controller.runtime, &spec,
                                &(struct tdm__worker_group_options){.names_ms = 0}) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    TRY(tdm__controller_resume_trainer(&controller));
    TRY(tdm__controller_pause_trainer(&controller));
    TRY(tdm__controller_resume_weights(&controller));
}

static void close_job(void)
{
    tdm__worker_group_fini(&controller.workers);
    tdm_runtime_stop(controller.runtime);
    tdm__job_spec_fini(&spec);
}

/* Every engine rank looks at every element. */
static tdm_status look(void)
{
    struct tdm__worker_group *workers = &controller.workers;
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "fu((su))", 0.0, (uint64_t)1, "", (uint64_t)0));
    status = tdm__worker_group_call(workers, workers->engines, workers->engines_count, "generate",
                                    tdm_writer_bytes(writer), WAIT_MS);
    tdm_writer_destroy(writer);
    return status;
}

static void every_element_arrives_between_named_layouts(void **state)
{
    static const struct pair pairs[] = {
        {dense, "{layout: megatron, tp: 2, pp: 2, dtype: F32}",
         "{layout: engine, tp: 2, dtype: BF16}", 2, "donate"},
        {dense, "{layout: fsdp, state: local, dtype: F32}", "{layout: engine, tp: 4}", 1, "copy"},
        {experts, "{layout: megatron, tp: 2, ep: 2, dtype: F32}",
         "{layout: engine, tp: 4, ep: 2, etp: 2}", 1, "donate"},
        {experts, "{layout: fsdp, state: sharded, dtype: F32}", "{layout: engine, tp: 2, ep: 2}", 2,
         "donate"},
        {dense, "{layout: hugging_face, dtype: F32}", "hugging_face", 4, "donate"},
        {blocks, "{layout: megatron, tp: 4, etp: 4, dtype: F32}",
         "{layout: engine, tp: 1, dtype: F8_E4M3}", 4, "donate"},
        {blocks, "{layout: fsdp, state: local, dtype: BF16}",
         "{layout: engine, tp: 1, dtype: F8_E4M3}", 4, "copy"},
        /* Several trainer ranks have the same blocks, or the same parts of blocks. */
        {blocks, "{layout: fsdp, state: full, dtype: F32}",
         "{layout: engine, tp: 1, dtype: F8_E4M3}", 4, "copy"},
        {blocks, "{layout: megatron, tp: 2, etp: 2, dtype: F32}",
         "{layout: engine, tp: 1, dtype: F8_E4M3}", 4, "donate"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        print_message("%s to %s\n", pairs[i].trainer, pairs[i].engine);
        open_job(&pairs[i]);
        assert_int_not_equal(look(), TDM_OK); /* No weights have arrived yet. */
        for (uint64_t version = 1; version <= 2; version++) {
            if (tdm__controller_update(&controller) != TDM_OK) {
                fail_msg("%s", tdm_error_detail());
            }
            assert_int_equal(controller.update.version, version);
            controller.phase.committed_version = version;
            TRY(tdm__controller_flush(&controller));
            if (look() != TDM_OK) {
                fail_msg("%s", tdm_error_detail());
            }
        }
        close_job();
    }
}

/* All trainer ranks have everything, so each byte comes from the rank on the engine rank's GPU. */
static void weights_come_from_the_same_gpu(void **state)
{
    static const struct pair pair = {dense, "{layout: hugging_face, dtype: F32}",
                                     "{layout: engine, tp: 2}", 2, "copy"};

    (void)state;
    open_job(&pair);
    TRY(tdm__controller_update(&controller));
    for (uint32_t i = 0; i < controller.workers.trainers_count; i++) {
        struct tdm__span span;
        const tdm_value *value;
        uint64_t bytes = 0;
        tdm_ref *ref;

        TRY(tdm_actor_call(controller.workers.trainers[i], "trace", &ref, ""));
        TRY(tdm_get_value(ref, WAIT_MS, &value));
        for (uint32_t k = 0; tdm__span_read(value, k, &span) != 0; k++) {
            if (strncmp(span.name, "write bucket", strlen("write bucket")) == 0) {
                assert_string_equal(span.to, "same GPU");
                bytes += span.bytes;
            }
        }
        assert_true(bytes > 0);
        tdm_ref_release(ref);
    }
    close_job();
}

static void job_is_refused_before_anything_runs(void **state)
{
    static const char odd[] =
        "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 1, \"hidden_size\": 32,"
        " \"intermediate_size\": 50, \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
        " \"head_dim\": 8, \"vocab_size\": 64, \"tie_word_embeddings\": true,"
        " \"torch_dtype\": \"bfloat16\"}";
    static struct tdm__memory_budget_input input;
    struct tdm__job_library library;
    char text[TEXT_BYTES];

    (void)state;
    write_model(odd);
    (void)snprintf(text, sizeof(text), job_file, model_path, "fsdp", 1, 4,
                   "{layout: engine, tp: 4}", "donate");
    TRY(tdm__job_spec_from_config(config_of(text), "", &spec));
    TRY(tdm__job_library_open(spec.library, &library));
    assert_int_equal(tdm__job_memory_budget_input(&spec, &library, &input), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "engine.layout: model.layers.0.mlp."));
    tdm__job_library_close(&library);
    tdm__job_spec_fini(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_layout_is_refused_with_its_name),
        cmocka_unit_test(layout_wants_a_model),
        cmocka_unit_test(without_a_name_the_library_is_asked),
        cmocka_unit_test(tensors_have_the_layouts_names_and_places),
        cmocka_unit_test(engine_of_another_model_is_refused_by_tensor),
        cmocka_unit_test(every_element_arrives_between_named_layouts),
        cmocka_unit_test(weights_come_from_the_same_gpu),
        cmocka_unit_test(job_is_refused_before_anything_runs),
    };
    int failed;
    int fd;

    tdm__worker_run_if_one(); /* In the process of an actor this call does not return. */
    fd = mkstemp(model_path);
    if (fd < 0) {
        return 1;
    }
    (void)close(fd);
    (void)setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1);
    (void)unsetenv("TANDEM_ADDRESS");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(model_path);
    return failed;
}
