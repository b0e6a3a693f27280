/* value_fuzz.c - any bytes are refused, or parse to a tree that encodes and parses to the same
 * tree. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/wire/writer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static bool bytes_are_equal(struct tdm_bytes left, struct tdm_bytes right)
{
    return left.size_bytes == right.size_bytes &&
           (left.size_bytes == 0 || memcmp(left.data, right.data, left.size_bytes) == 0);
}

static bool ndarrays_are_equal(const struct tdm_ndarray *left, const struct tdm_ndarray *right)
{
    struct tdm_bytes left_data = {left->data, tdm_ndarray_bytes(left)};
    struct tdm_bytes right_data = {right->data, tdm_ndarray_bytes(right)};

    TDM_ASSERT((uintptr_t)left->data % tdm_dtype_bytes(left->dtype) == 0);
    return left->dtype == right->dtype && left->dims_count == right->dims_count &&
           memcmp(left->shape, right->shape, left->dims_count * sizeof(left->shape[0])) == 0 &&
           bytes_are_equal(left_data, right_data);
}

static uint64_t number_bits(const tdm_value *value)
{
    uint64_t bits; /* A NaN is equal to itself only as bits. */

    memcpy(&bits, &value->as.number, sizeof(bits));
    return bits;
}

static bool trees_are_equal(const tdm_value *left, const tdm_value *right)
{
    uint64_t children = 0;

    if (left->kind != right->kind) {
        return false;
    }
    switch (left->kind) {
    case TDM_NIL:
        return true;
    case TDM_BOOL:
        return left->as.truth == right->as.truth;
    case TDM_INT:
        return left->as.integer.bits == right->as.integer.bits &&
               left->as.integer.negative == right->as.integer.negative;
    case TDM_DOUBLE:
        return number_bits(left) == number_bits(right);
    case TDM_STRING:
        return left->as.size_bytes == right->as.size_bytes &&
               strcmp(left->as.data, right->as.data) == 0;
    case TDM_BYTES:
        return bytes_are_equal(tdm_value_bytes(left), tdm_value_bytes(right));
    case TDM_NDARRAY:
        return ndarrays_are_equal(left->as.ndarray, right->as.ndarray);
    case TDM_REFERENCE:
    case TDM_HANDLE:
        return bytes_are_equal(tdm__value_ext(left), tdm__value_ext(right));
    case TDM_ARRAY:
    case TDM_MAP:
        break;
    }
    if (left->count != right->count) {
        return false;
    }
    children = left->kind == TDM_MAP ? 2 * (uint64_t)left->count : left->count;
    for (uint64_t i = 0; i < children; i++) {
        if (!trees_are_equal(&left->as.values[i], &right->as.values[i])) {
            return false;
        }
    }
    return true;
}

static void count_release(void *arg)
{
    ++*(int *)arg;
}

/* Checks that parsing in place and parsing a copy give the same tree, or both fail. */
static tdm_document *parse_both_ways(struct tdm_bytes bytes)
{
    tdm_document *copied = NULL;
    tdm_document *borrowed = NULL;
    int released_count = 0;
    tdm_status status = tdm_document_parse(bytes, &copied);

    TDM_ASSERT(tdm__document_parse_borrowed(bytes, count_release, &released_count, &borrowed) ==
               status);
    if (status != TDM_OK) {
        return NULL;
    }
    TDM_ASSERT(trees_are_equal(tdm_document_root(copied), tdm_document_root(borrowed)));
    tdm_document_destroy(borrowed);
    TDM_ASSERT(released_count == 1);
    return copied;
}

static tdm_writer *write_tree(const tdm_value *root)
{
    tdm_writer *counting = NULL;
    tdm_writer *writer = NULL;

    TDM_ASSERT(tdm__writer_create_counting(&counting) == TDM_OK);
    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    tdm_write_value(counting, root);
    tdm_write_value(writer, root);
    TDM_ASSERT(tdm_writer_status(writer) == TDM_OK);
    TDM_ASSERT(tdm_writer_bytes(counting).size_bytes == tdm_writer_bytes(writer).size_bytes);
    tdm_writer_destroy(counting);
    return writer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct tdm_bytes bytes = {data, size_bytes};
    tdm_document *document = parse_both_ways(bytes);
    tdm_document *again = NULL;
    tdm_writer *writer;
    struct tdm_ndarray ndarray;
    const char *text = NULL;
    int64_t number = 0;

    if (document == NULL) {
        return 0;
    }
    (void)tdm_unpack(tdm_document_root(document), "is", &number, &text);
    (void)tdm_unpack(tdm_document_root(document), "a", &ndarray);
    writer = write_tree(tdm_document_root(document));
    TDM_ASSERT(tdm_document_parse(tdm_writer_bytes(writer), &again) == TDM_OK);
    TDM_ASSERT(trees_are_equal(tdm_document_root(document), tdm_document_root(again)));
    tdm_writer_destroy(writer);
    tdm_document_destroy(document);
    tdm_document_destroy(again);
    return 0;
}
