/* source_index_test.c - slices are found by tensor, and replicas are neighbours. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/source_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm__model_config config = {
    .family = TDM__MODEL_FAMILY_QWEN3,
    .dtype = TDM_BF16,
    .layers = 1,
    .dense_layers = 1,
    .hidden = 8,
    .vocabulary = 16,
    .heads = 2,
    .kv_heads = 2,
    .head_dim = 4,
    .ffn_width = 8,
};

static void replicas_lie_side_by_side_in_the_order_of_ranks(void **state)
{
    const struct tdm__model_options options = {.mtp = false};
    struct tdm__sharding sharding = tdm__sharding_whole(6);
    struct tdm__rank_shards shards[6];
    struct tdm__source_index sources;
    struct tdm__model *model;
    const struct tdm__source_slice *source_slice;

    (void)state;
    sharding.kind = TDM__SHARDING_FSDP_SHARDED;
    sharding.shards_count = 2;
    assert_int_equal(tdm__model_create(&config, &options, &model), TDM_OK);
    for (uint32_t rank = 0; rank < 6; rank++) {
        assert_int_equal(
            tdm__rank_shards_init(model, &sharding, rank, TDM__SHARDS_SOURCE, &shards[rank]),
            TDM_OK);
    }
    assert_int_equal(tdm__source_index_init(model, shards, 6, &sources), TDM_OK);
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm__source_slice *end = sources.source_slices + sources.tensor_offsets[i + 1];

        source_slice = sources.source_slices + sources.tensor_offsets[i];
        assert_int_equal(end - source_slice, 6);
        assert_int_equal(tdm__source_replicas_count(source_slice, end), 3);
        assert_int_equal(tdm__source_replicas_count(source_slice + 3, end), 3);
        for (uint32_t j = 0; j < 6; j++) {
            assert_int_equal(source_slice[j].rank, j < 3 ? 2 * j : 2 * (j - 3) + 1);
            assert_int_equal(source_slice[j].rectangle.row, j < 3 ? 0 : model->tensors[i].rows / 2);
        }
    }
    tdm__source_index_fini(&sources);
    for (uint32_t rank = 0; rank < 6; rank++) {
        tdm__rank_shards_fini(&shards[rank]);
    }
    tdm__model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_lie_side_by_side_in_the_order_of_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
