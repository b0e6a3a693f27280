/* checksum_test.c - a changed byte is found and its tensor is named. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/checksum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_flipped_bit_is_found_and_the_tensor_named(void **state)
{
    uint8_t data[64];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 7);
    }
    uint64_t sum = tdm__checksum_tensor(data, sizeof(data));

    assert_int_equal(tdm__checksum_verify("w", data, sizeof(data), sum), TDM_OK);
    for (size_t bit = 0; bit < sizeof(data) * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_int_equal(tdm__checksum_verify("layers.3.up", data, sizeof(data), sum),
                         TDM_E_CHECKSUM);
        assert_non_null(strstr(tdm_error_detail(), "layers.3.up"));
        data[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
}

static void contents_depend_on_manifest_sums_and_order(void **state)
{
    const struct tdm__hash manifest = {1, 2};
    const struct tdm__hash other = {2, 1};
    const uint64_t sums[] = {5, 6};
    const uint64_t swapped[] = {6, 5};
    struct tdm__hash hash = tdm__checksum_contents_hash(&manifest, sums, 2);
    struct tdm__hash same = tdm__checksum_contents_hash(&manifest, sums, 2);
    struct tdm__hash by_manifest = tdm__checksum_contents_hash(&other, sums, 2);
    struct tdm__hash by_order = tdm__checksum_contents_hash(&manifest, swapped, 2);
    struct tdm__hash by_count = tdm__checksum_contents_hash(&manifest, sums, 1);
    char text[TDM__HASH_TEXT_BYTES];

    (void)state;
    assert_true(tdm__hash_equal(&hash, &same));
    same.high++;
    assert_false(tdm__hash_equal(&hash, &same));
    same.high--;
    same.low++;
    assert_false(tdm__hash_equal(&hash, &same));
    assert_false(tdm__hash_equal(&hash, &by_manifest));
    assert_false(tdm__hash_equal(&hash, &by_order));
    assert_false(tdm__hash_equal(&hash, &by_count));
    assert_string_equal(tdm__hash_text(&manifest, text), "00000000000000010000000000000002");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_bit_is_found_and_the_tensor_named),
        cmocka_unit_test(contents_depend_on_manifest_sums_and_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
