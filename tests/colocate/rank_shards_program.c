/* rank_shards_program.c - prints the tensors and slices of each rank of a layout, for the tests of
 * the Python package, which compare them with models of Megatron-core. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/rank_shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* Prints one line for each tensor of the rank (name, type, shape), each followed by one for each of
 * its slices: name of the model's tensor, first row and column, rows, columns, and the place in the
 * rank's tensor: offset and pitch. */
static void print_rank(const struct tdm__model *model, const struct tdm__sharding *sharding,
                       const struct tdm__rank_shards *shards)
{
    char name[TDM_TENSOR_NAME_BYTES_MAX];

    for (uint32_t i = 0; i < shards->shard_tensors_count; i++) {
        const struct tdm__shard_tensor *tensor = &shards->shard_tensors[i];

        printf("tensor %s %s", tdm__shard_tensor_name(model, sharding, tensor, name),
               tdm_dtype_name((enum tdm_dtype)tensor->dtype));
        for (uint32_t j = 0; j < tensor->dims_count; j++) {
            printf(" %" PRIu64, tensor->shape[j]);
        }
        printf("\n");
        for (uint32_t j = 0; j < shards->slices_count; j++) {
            const struct tdm__tensor_slice *slice = &shards->slices[j];

            if (slice->shard_tensor == i) {
                printf("slice %s %u %u %u %u %" PRIu64 " %u\n",
                       tdm__model_tensor_name(model, slice->tensor, name), slice->rectangle.row,
                       slice->rectangle.column, slice->rectangle.rows, slice->rectangle.columns,
                       slice->offset, slice->pitch);
            }
        }
    }
}

/* Prints the tensors and slices of all ranks of the layout. */
static tdm_status print_layout(const char *config_path, const char *layout)
{
    struct tdm__model_options options = {.mtp = false};
    struct tdm__model_config config;
    struct tdm__sharding sharding;
    struct tdm__model *model;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__model_config_read(config_path, &config));
    TDM_TRY(tdm__sharding_parse(layout, strlen(layout), "layout", &sharding));
    TDM_TRY(tdm__model_create(&config, &options, &model));
    for (uint32_t rank = 0; rank < sharding.ranks_count && status == TDM_OK; rank++) {
        struct tdm__rank_shards shards;

        status = tdm__rank_shards_init(model, &sharding, rank, TDM__SHARDS_SOURCE, &shards);
        if (status == TDM_OK) {
            printf("rank %u\n", rank);
            print_rank(model, &sharding, &shards);
            tdm__rank_shards_fini(&shards);
        }
    }
    tdm__model_destroy(model);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        (void)fprintf(stderr, "usage: rank_shards_program CONFIG.json LAYOUT\n");
        return 2;
    }
    if (print_layout(argv[1], argv[2]) != TDM_OK) {
        (void)fprintf(stderr, "rank_shards_program: %s\n", tdm_error_detail());
        return 1;
    }
    return 0;
}
