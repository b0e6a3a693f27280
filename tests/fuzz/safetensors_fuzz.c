/* safetensors_fuzz.c - no bytes crash the safetensors reader or make it read out of bounds. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    /* The copy is aligned, and the sanitizer detects reads past its end. */
    uint64_t *copy = malloc(size_bytes + 1);
    volatile unsigned char last = 0;
    tdm_safetensors *file;

    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, bytes, size_bytes);
    if (tdm__safetensors_parse(copy, size_bytes, "fuzz", &file) == TDM_OK) {
        for (uint32_t i = 0; i < tdm_safetensors_count(file); i++) {
            const struct tdm_tensor_view *view = tdm_safetensors_view(file, i);
            uint64_t view_bytes = tdm_tensor_bytes(&view->info);

            if (tdm_safetensors_find(file, view->info.name) != view) {
                abort();
            }
            if (view_bytes > 0) {
                last = ((const unsigned char *)view->data)[view_bytes - 1];
            }
        }
        tdm_safetensors_close(file);
    }
    (void)last;
    free(copy);
    return 0;
}
