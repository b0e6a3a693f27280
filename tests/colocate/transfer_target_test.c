/* transfer_target_test.c - a target that was sent is read, or refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/transfer_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static tdm_status read_keys(uint32_t count, size_t key_bytes, struct tdm__transfer_target *target)
{
    static const char bytes[32] = "0123456789abcdefghijklmnopqrstu";
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    tdm_write_array(writer, 3);
    tdm_write_bytes(writer, bytes, 16);
    tdm_write_array(writer, count);
    for (uint32_t i = 0; i < count; i++) {
        tdm_write_bytes(writer, bytes + i, key_bytes);
    }
    tdm_write_nil(writer);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), &document), TDM_OK);
    status = tdm__transfer_target_read(tdm_document_root(document), target);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    return status;
}

static void target_has_one_to_eight_keys(void **state)
{
    struct tdm__transfer_target target;

    (void)state;
    assert_int_equal(read_keys(8, 16, &target), TDM_OK);
    assert_int_equal(target.blocks_count, 8);
    assert_memory_equal(target.gpu.bytes, "0123456789abcdef", 16);
    assert_memory_equal(target.keys[7].bytes, "789abcdefghijklm", 16);
    assert_int_equal(read_keys(0, 16, &target), TDM_E_PROTOCOL);
    assert_int_equal(read_keys(9, 16, &target), TDM_E_PROTOCOL);
}

static void key_has_sixteen_bytes(void **state)
{
    struct tdm__transfer_target target;

    (void)state;
    assert_int_equal(read_keys(1, 15, &target), TDM_E_PROTOCOL);
    assert_int_equal(read_keys(1, 17, &target), TDM_E_PROTOCOL);
    assert_int_equal(tdm__transfer_target_read(NULL, &target), TDM_E_PROTOCOL);
}

static void nil_is_a_rank_that_is_absent(void **state)
{
    struct tdm__transfer_target target;
    tdm_document *document;

    (void)state;
    assert_int_equal(tdm_document_parse((struct tdm_bytes){"\xc0", 1}, &document), TDM_OK);
    assert_int_equal(tdm__transfer_target_read(tdm_document_root(document), &target), TDM_OK);
    assert_true(target.absent);
    tdm_document_destroy(document);
    assert_int_equal(read_keys(1, 16, &target), TDM_OK);
    assert_false(target.absent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_has_one_to_eight_keys),
        cmocka_unit_test(key_has_sixteen_bytes),
        cmocka_unit_test(nil_is_a_rank_that_is_absent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
