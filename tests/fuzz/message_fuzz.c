/* message_fuzz.c - any value is refused by each message table, or encodes and decodes to the same
 * message. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/messages/messages.h"
#include "tests/fuzz/fuzz.h"

#include <stdalign.h>
#include <string.h>

enum { STRUCTURE_BYTES_MAX = 4096 };

struct structure {
    alignas(max_align_t) char bytes[STRUCTURE_BYTES_MAX];
};

/* The caller destroys the writer. */
static tdm_writer *encode(const struct tdm__message *message, const struct structure *structure)
{
    tdm_writer *writer;

    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    TDM_ASSERT(tdm__message_encode(message, structure, writer) == TDM_OK);
    return writer;
}

/* Reads each item of each list once. The items were checked together with the message. */
static void read_lists(const struct tdm__message *message, const struct structure *structure)
{
    for (uint32_t i = 0; i < message->fields_count; i++) {
        const struct tdm__field *field = &message->fields[i];
        const struct tdm__message_list *list = (const void *)(structure->bytes + field->offset);
        struct structure item;

        if (field->kind != TDM__FIELD_LIST || field->item_kind != TDM__FIELD_MESSAGE) {
            continue;
        }
        for (uint32_t k = 0; k < list->count; k++) {
            tdm__message_list_read(list, k, &item, field->nested()->size_bytes);
        }
    }
}

static void try_message(const struct tdm__message *message, const tdm_value *value)
{
    struct structure structure;
    tdm_document *document;
    tdm_writer *first;
    tdm_writer *second;

    TDM_ASSERT(message->size_bytes <= sizeof(structure));
    if (tdm__message_decode(message, value, &structure) != TDM_OK) {
        return;
    }
    read_lists(message, &structure);
    first = encode(message, &structure);
    TDM_ASSERT(tdm_document_parse(tdm_writer_bytes(first), &document) == TDM_OK);
    TDM_ASSERT(tdm__message_decode(message, tdm_document_root(document), &structure) == TDM_OK);
    second = encode(message, &structure);
    TDM_ASSERT(tdm_writer_bytes(first).size_bytes == tdm_writer_bytes(second).size_bytes);
    TDM_ASSERT(memcmp(tdm_writer_bytes(first).data, tdm_writer_bytes(second).data,
                      tdm_writer_bytes(first).size_bytes) == 0);
    tdm_writer_destroy(first);
    tdm_writer_destroy(second);
    tdm_document_destroy(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tdm__message *message;
    tdm_document *document;

    fuzz_be_quiet();
    if (tdm_document_parse((struct tdm_bytes){data, size}, &document) != TDM_OK) {
        return 0;
    }
    for (uint32_t i = 0; (message = tdm__messages_at(i)) != NULL; i++) {
        try_message(message, tdm_document_root(document));
    }
    tdm_document_destroy(document);
    return 0;
}
