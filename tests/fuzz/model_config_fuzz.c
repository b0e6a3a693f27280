/* model_config_fuzz.c - no config.json crashes its reader, or the tensors derived from it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/layout/model.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS_LOOKED_AT = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tdm__model_config config;

    if (tdm__model_config_parse((const char *)data, size, "fuzz", &config) != TDM_OK) {
        return 0;
    }
    for (int i = 0; i < 4; i++) {
        const struct tdm__model_options options = {.mtp = (i & 1) != 0, .scales = (i & 2) != 0};
        struct tdm__model *model;

        if (tdm__model_create(&config, &options, &model) != TDM_OK) {
            continue;
        }
        for (uint32_t j = 0; j < model->tensors_count && j < TENSORS_LOOKED_AT; j++) {
            const struct tdm__model_tensor *tensor = &model->tensors[j];
            char name[TDM_TENSOR_NAME_BYTES_MAX];

            if (tensor->rows == 0 || tensor->columns == 0 ||
                strlen(tdm__model_tensor_name(model, j, name)) == 0) {
                abort();
            }
        }
        tdm__model_destroy(model);
    }
    return 0;
}
