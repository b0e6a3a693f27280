/* id_fuzz.c - any text as an ID is refused, or formats to the same text. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/id.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { CLAIM_BYTES_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char claim[CLAIM_BYTES_MAX + 1] = {0};
    char text[TDM__ID_TEXT_BYTES];
    struct tdm__id id;
    struct tdm__id back;

    memcpy(claim, data, size < CLAIM_BYTES_MAX ? size : CLAIM_BYTES_MAX);
    if (tdm__id_parse(claim, &id) == TDM_OK) {
        TDM_ASSERT(tdm__id_parse(tdm__id_text(&id, text), &back) == TDM_OK);
        TDM_ASSERT(tdm__id_equal(&id, &back));
    }
    return 0;
}
