/* value_fuzz.c - any bytes: refused, or a tree that writes back and parses again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"

#include <tandem/value.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct tdm_bytes bytes = {data, size_bytes};
    tdm_document *document = NULL;
    tdm_document *again = NULL;
    tdm_writer *writer = NULL;
    const char *text = NULL;
    int64_t number = 0;

    if (tdm_document_parse(bytes, &document) != TDM_OK) {
        return 0;
    }
    (void)tdm_unpack(tdm_document_root(document), "is", &number, &text);
    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    tdm_write_value(writer, tdm_document_root(document));
    bytes = tdm_writer_bytes(writer);
    TDM_ASSERT(bytes.size_bytes <= 2 * size_bytes); /* a float grows to a double */
    TDM_ASSERT(tdm_document_parse(bytes, &again) == TDM_OK);
    tdm_writer_destroy(writer);
    tdm_document_destroy(document);
    tdm_document_destroy(again);
    return 0;
}
