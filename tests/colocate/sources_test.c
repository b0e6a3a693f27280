/* sources_test.c - holders of a tensor are found by tensor, replicas side by side. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/plan/sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct tdm__model_config config = {
    .family = TDM__FAMILY_QWEN3,
    .dtype = TDM_BF16,
    .layers = 1,
    .dense_layers = 1,
    .hidden = 8,
    .vocabulary = 16,
    .heads = 2,
    .kv_heads = 2,
    .head_dim = 4,
    .ffn = 8,
};

static void replicas_lie_side_by_side_in_the_order_of_ranks(void **state)
{
    const struct tdm__model_options options = {.mtp = false};
    struct tdm__sharding sharding = tdm__sharding_whole(6);
    struct tdm__shards shards[6];
    struct tdm__sources sources;
    struct tdm__model *model;
    const struct tdm__holder *holder;

    (void)state;
    sharding.kind = TDM__SHARDING_ROWS;
    sharding.shards_count = 2;
    assert_int_equal(tdm__model_create(&config, &options, &model), TDM_OK);
    for (uint32_t rank = 0; rank < 6; rank++) {
        assert_int_equal(
            tdm__shards_make(model, &sharding, rank, TDM__ROLE_SOURCE, &shards[rank]), TDM_OK);
    }
    assert_int_equal(tdm__sources_make(model, shards, 6, &sources), TDM_OK);
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct tdm__holder *end = sources.holders + sources.firsts[i + 1];

        holder = sources.holders + sources.firsts[i];
        assert_int_equal(end - holder, 6);
        assert_int_equal(tdm__sources_replicas(holder, end), 3);
        assert_int_equal(tdm__sources_replicas(holder + 3, end), 3);
        for (uint32_t j = 0; j < 6; j++) {
            assert_int_equal(holder[j].rank, j < 3 ? 2 * j : 2 * (j - 3) + 1);
            assert_int_equal(holder[j].rectangle.row, j < 3 ? 0 : model->tensors[i].rows / 2);
        }
    }
    tdm__sources_fini(&sources);
    for (uint32_t rank = 0; rank < 6; rank++) {
        tdm__shards_fini(&shards[rank]);
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
