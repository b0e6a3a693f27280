/* frame_fuzz.c - any header is refused, or encodes to the same bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/wire/frame.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    uint8_t header[TDM__FRAME_HEADER_BYTES];
    struct tdm__frame frame;

    if (size_bytes < sizeof(header)) {
        return 0;
    }
    if (tdm__frame_decode(data, &frame) == TDM_OK) {
        tdm__frame_encode(&frame, header);
        TDM_ASSERT(memcmp(header, data, sizeof(header)) == 0);
    }
    (void)tdm__frame_method_is_valid((const char *)data, size_bytes);
    return 0;
}
