/* sharding_fuzz.c - no sharding crashes its reader, or the transfer plan from it to another one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"
#include "tests/support/layout_pair.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 64 };

/* The input consists of two shardings with a newline between them. */
static const struct tdm__model_config config = {
    .family = TDM__MODEL_FAMILY_GLM4_MOE,
    .dtype = TDM_BF16,
    .layers = 3,
    .dense_layers = 1,
    .hidden = 256,
    .vocabulary = 100,
    .heads = 8,
    .kv_heads = 4,
    .head_dim = 64,
    .ffn_width = 512,
    .experts = 8,
    .expert_ffn = 128,
    .shared_experts = 1,
    .mtp_layers = 1,
    .attention_bias = true,
    .router_bias = true,
};

static void compile(const struct tdm__sharding *from_sharding,
                    const struct tdm__sharding *to_sharding)
{
    const struct layout_pair_options options = {
        .config = &config, .mtp = true, .from = from_sharding, .to = to_sharding};
    struct layout_pair pair;

    if (layout_pair_plan(&options, &pair) == TDM_OK) {
        if (pair.plan->cost.written_bytes == 0) {
            abort();
        }
        layout_pair_drop(&pair);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *newline = size == 0 ? NULL : memchr(text, '\n', size);
    size_t first_size = newline == NULL ? size : (size_t)(newline - text);
    struct tdm__sharding from;
    struct tdm__sharding to;

    if (tdm__sharding_parse(text, first_size, "from", &from) != TDM_OK) {
        return 0;
    }
    if (newline == NULL ||
        tdm__sharding_parse(newline + 1, size - first_size - 1, "to", &to) != TDM_OK) {
        to = tdm__sharding_whole(1);
    }
    if (from.ranks_count <= RANKS_MAX && to.ranks_count <= RANKS_MAX) {
        compile(&from, &to);
    }
    return 0;
}
