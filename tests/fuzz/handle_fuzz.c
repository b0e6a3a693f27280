/* handle_fuzz.c - no bytes crash the handle decoder; what it accepts encodes to the same bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/tensor_handles.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tdm__tensor_handles handles;
    void *again;

    if (tdm__tensor_handles_decode((struct tdm_bytes){data, size}, &handles) != TDM_OK) {
        return 0;
    }
    again = malloc(size);
    if (again == NULL || tdm__tensor_handles_bytes(&handles) != size ||
        tdm__tensor_handles_encode(&handles, again, size) != TDM_OK ||
        memcmp(again, data, size) != 0) {
        abort();
    }
    free(again);
    tdm__tensor_handles_fini(&handles);
    return 0;
}
