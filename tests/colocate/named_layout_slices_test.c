/* named_layout_slices_test.c - the parts that ranks of named layouts send and want. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/named_layout_slices.h"
#include "colocate/weights/transfer_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TRAINERS = 4, ENGINES = 4 };

static char model_path[] = "/tmp/named-slices-test-XXXXXX";

static const char small[] =
    "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"hidden_size\": 16,"
    " \"intermediate_size\": 32, \"num_attention_heads\": 8, \"num_key_value_heads\": 2,"
    " \"head_dim\": 4, \"vocab_size\": 50, \"tie_word_embeddings\": true, \"num_experts\": 4,"
    " \"moe_intermediate_size\": 8, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [],"
    " \"torch_dtype\": \"bfloat16\"}";
/* Its linear tensors consist of whole FP8 blocks, also cut in two. */
static const char wide[] =
    "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 1, \"hidden_size\": 256,"
    " \"intermediate_size\": 256, \"num_attention_heads\": 4, \"num_key_value_heads\": 4,"
    " \"head_dim\": 64, \"vocab_size\": 128, \"tie_word_embeddings\": true,"
    " \"torch_dtype\": \"bfloat16\"}";

/* Both sides of a job: addresses count from NULL. */
struct sides {
    struct tdm__named_layout *trainers[TRAINERS];
    struct tdm__named_layout *engines[ENGINES];
    struct tdm__layout from[TRAINERS];
    struct tdm__layout to[ENGINES];
    const struct tdm_tensor_info *tensors; /* The tensors as the last trainer rank reports them. */
    uint32_t tensors_count;
    struct tdm__manifest *manifest;
};

static void write_model(const char *text)
{
    FILE *file = fopen(model_path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static struct tdm__named_layout *name(const char *section, const char *layout, uint32_t rank,
                                      uint32_t ranks_count)
{
    struct tdm__named_layout_options options = {
        .section = section, .model_config = model_path, .rank = rank, .ranks_count = ranks_count};
    struct tdm__named_layout *named_layout = NULL;
    tdm_config *config;
    char text[256];

    (void)snprintf(text, sizeof(text), "%s: {layout: %s}", section, layout);
    TRY(tdm_config_parse(text, strlen(text), "job.yaml", &config));
    options.config = config;
    TRY(tdm__named_layout_create(&options, &named_layout));
    tdm_config_destroy(config);
    return named_layout;
}

static void open_sides(struct sides *sides, const char *model, const char *from, const char *to)
{
    write_model(model);
    for (uint32_t i = 0; i < TRAINERS; i++) {
        sides->trainers[i] = name("trainer", from, i, TRAINERS);
        TRY(tdm__named_layout_build_trainer(sides->trainers[i], NULL, &sides->tensors,
                                            &sides->tensors_count, &sides->from[i]));
    }
    TRY(tdm__manifest_create(sides->tensors, sides->tensors_count, &sides->manifest));
    for (uint32_t i = 0; i < ENGINES; i++) {
        sides->engines[i] = name("engine", to, i, ENGINES);
        TRY(tdm__named_layout_build_engine(sides->engines[i], NULL, sides->manifest,
                                           &sides->to[i]));
    }
}

static void close_sides(struct sides *sides)
{
    for (uint32_t i = 0; i < TRAINERS; i++) {
        tdm__named_layout_destroy(sides->trainers[i]);
    }
    for (uint32_t i = 0; i < ENGINES; i++) {
        tdm__named_layout_destroy(sides->engines[i]);
    }
    tdm__manifest_destroy(sides->manifest);
}

/* ---- counting --------------------------------------------------------------------------- */

static void count_slice(const struct sides *sides, const struct tdm_slice *slice, uint8_t *counts)
{
    const struct tdm_tensor_info *tensor = &sides->manifest->tensors[slice->tensor];
    bool is_matrix = tensor->dims_count == 2;
    uint64_t columns = is_matrix ? tensor->shape[1] : 1;
    uint64_t width = is_matrix ? slice->extent[1] : 1;

    for (uint64_t row = 0; row < slice->extent[0]; row++) {
        for (uint64_t column = 0; column < width; column++) {
            counts[(slice->offset[0] + row) * columns + slice->offset[1] + column]++;
        }
    }
}

static void assert_sent_once(const struct sides *sides, const struct tdm__replicas *replicas,
                             uint32_t tensor)
{
    uint64_t elements = tdm_tensor_elements(&sides->manifest->tensors[tensor]);
    uint8_t *counts = calloc(elements, 1);

    assert_non_null(counts);
    for (uint32_t rank = 0; rank < TRAINERS; rank++) {
        for (uint32_t i = 0; i < sides->from[rank].slices_count; i++) {
            if (sides->from[rank].slices[i].tensor == tensor &&
                tdm__replicas_sends(replicas, rank, i)) {
                count_slice(sides, &sides->from[rank].slices[i], counts);
            }
        }
    }
    for (uint64_t i = 0; i < elements; i++) {
        if (counts[i] != 1) {
            fail_msg("%s: element %llu is sent %u times", sides->manifest->tensors[tensor].name,
                     (unsigned long long)i, counts[i]);
        }
    }
    free(counts);
}

static const char *const trainer_layouts[] = {
    "{layout: megatron, tp: 2, pp: 2}",
    "{layout: megatron, tp: 2, ep: 4}",
    /* It has two replicas of everything that is not an expert. */
    "{layout: megatron, tp: 2, ep: 2}",
    "{layout: fsdp, state: sharded}",
    "{layout: fsdp, state: sharded, shards: 2}",
    "{layout: fsdp, state: local}",
    "{layout: fsdp, state: full}",
    "hugging_face",
};

enum { TRAINER_LAYOUTS = sizeof(trainer_layouts) / sizeof(trainer_layouts[0]) };

static void every_element_is_sent_by_one_rank(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < TRAINER_LAYOUTS; k++) {
        struct tdm__replicas replicas;
        struct sides sides;

        print_message("%s\n", trainer_layouts[k]);
        open_sides(&sides, small, trainer_layouts[k], "{layout: engine, tp: 2, ep: 2}");
        TRY(tdm__replicas_init(sides.manifest, sides.from, TRAINERS, &replicas));
        for (uint32_t tensor = 0; tensor < sides.manifest->tensors_count; tensor++) {
            assert_sent_once(&sides, &replicas, tensor);
        }
        tdm__replicas_fini(&replicas);
        close_sides(&sides);
    }
}

static void every_rank_lists_all_that_it_has(void **state)
{
    struct sides sides;

    (void)state;
    open_sides(&sides, small, "hugging_face", "hugging_face");
    for (uint32_t i = 0; i < TRAINERS; i++) {
        assert_int_equal(sides.from[i].slices_count, sides.tensors_count);
        assert_int_equal(sides.to[i].slices_count, sides.tensors_count);
    }
    close_sides(&sides);
}

/* ---- routes ----------------------------------------------------------------------------- */

static void compile(const struct sides *sides)
{
    const struct tdm__transfer_plan_options options = {.manifest = sides->manifest,
                                                       .from = sides->from,
                                                       .from_count = TRAINERS,
                                                       .to = sides->to,
                                                       .to_count = ENGINES,
                                                       .image_bytes =
                                                           sides->engines[0]->size_bytes};
    struct tdm__transfer_plan *transfer_plan;

    if (tdm__transfer_plan_create(&options, &transfer_plan) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    tdm__transfer_plan_destroy(transfer_plan);
}

static void every_pair_of_layouts_has_a_route(void **state)
{
    static const char *const engine_layouts[] = {"{layout: engine, tp: 4}",
                                                 "{layout: engine, tp: 2, ep: 2}",
                                                 "{layout: engine, dtype: BF16}"};

    (void)state;
    for (uint32_t k = 0; k < TRAINER_LAYOUTS; k++) {
        for (uint32_t i = 0; i < 3; i++) {
            struct sides sides;

            open_sides(&sides, small, trainer_layouts[k], engine_layouts[i]);
            compile(&sides);
            close_sides(&sides);
        }
    }
}

static void fp8_is_wanted_with_its_scales(void **state)
{
    uint32_t found = 0;
    struct sides sides;

    (void)state;
    open_sides(&sides, wide, "{layout: fsdp, state: full}",
               "{layout: engine, tp: 2, dtype: F8_E4M3}");
    for (uint32_t i = 0; i < sides.to[0].slices_count; i++) {
        const struct tdm_slice *slice = &sides.to[0].slices[i];

        if (slice->dtype == TDM_F8_E4M3) {
            found++;
            assert_non_null(slice->scales);
            assert_true((uint64_t)(uintptr_t)slice->scales < sides.engines[0]->size_bytes);
        }
    }
    assert_int_equal(found, 7); /* The tensors are q, k, v, o, gate, up and down. */
    compile(&sides);
    close_sides(&sides);
}

static void trainers_do_not_send_fp8(void **state)
{
    const struct tdm_tensor_info *tensors;
    struct tdm__layout layout;
    struct tdm__named_layout *named_layout;
    uint32_t count;

    (void)state;
    write_model(wide);
    named_layout = name("trainer", "{layout: hugging_face, dtype: F8_E4M3}", 0, 1);
    assert_int_equal(tdm__named_layout_build_trainer(named_layout, NULL, &tensors, &count, &layout),
                     TDM_E_UNSUPPORTED);
    assert_non_null(strstr(tdm_error_detail(), "model.layers.0.self_attn.q_proj.weight"));
    tdm__named_layout_destroy(named_layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_sent_by_one_rank),
        cmocka_unit_test(every_rank_lists_all_that_it_has),
        cmocka_unit_test(every_pair_of_layouts_has_a_route),
        cmocka_unit_test(fp8_is_wanted_with_its_scales),
        cmocka_unit_test(trainers_do_not_send_fp8),
    };
    int fd = mkstemp(model_path);
    int failed;

    if (fd < 0) {
        return 1;
    }
    (void)close(fd);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(model_path);
    return failed;
}
