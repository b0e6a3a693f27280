/* handle_fuzz.c - no bytes make the handle decoder crash; what it accepts, it writes alike. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/handle.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tdm__handles handles;
    void *again;

    if (tdm__handles_decode((struct tdm_bytes){data, size}, &handles) != TDM_OK) {
        return 0;
    }
    again = malloc(size);
    if (again == NULL || tdm__handles_bytes(&handles) != size ||
        tdm__handles_encode(&handles, again, size) != TDM_OK ||
        memcmp(again, data, size) != 0) {
        abort();
    }
    free(again);
    tdm__handles_fini(&handles);
    return 0;
}
