/* rect_checksum_test.c - a checksum distinguishes any two contents, and all variants agree. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/transfer/rect_checksum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM_BYTES = 1 << 20 };

struct place {
    _Alignas(64) uint8_t from[ROOM_BYTES];
    _Alignas(64) uint8_t to[ROOM_BYTES];
    _Alignas(64) uint8_t plain[ROOM_BYTES];
};

static struct place place;

static void fill(void)
{
    uint64_t word = 1;

    for (size_t i = 0; i < ROOM_BYTES; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        place.from[i] = (uint8_t)(word >> 56);
    }
}

static void assert_copied(const struct tdm__strided_rows *rows, const uint8_t *from,
                          const uint8_t *to)
{
    for (size_t i = 0; i < rows->count; i++) {
        assert_memory_equal(to + i * rows->to_pitch, from + i * rows->from_pitch, rows->size_bytes);
    }
}

static void every_way_agrees_and_copies(void **state)
{
    static const struct tdm__strided_rows shapes[] = {
        {1, 0, 0, 0},
        {1, 1, 1, 1},
        {1, 63, 63, 63},
        {1, 64, 64, 64},
        {3, 65, 100, 67},
        {7, 128, 256, 128},
        {1, 700000, 0, 0},
        {512, 1024, 1024, 1984},
        {300, 2000, 2048, 2016},
        {503, 1088, 2048, 1088},
        {299, 2048, 2048, 2048},
        {6, 4096, 8192, 4096},
        {1000, 6, 10, 8},
    };

    (void)state;
    fill();
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (size_t shift = 0; shift < 40; shift += 13) {
            const uint8_t *from = place.from + shift;
            uint8_t *to = place.to + (shift % 2) * 32;
            uint64_t plain;

            memset(place.to, 0, sizeof(place.to));
            memset(place.plain, 0, sizeof(place.plain));
            plain = tdm__rect_checksum_copy_plain(&shapes[i], from, place.plain);
            assert_true(tdm__rect_checksum_copy(&shapes[i], from, to) == plain);
            assert_true(tdm__rect_checksum(&shapes[i], from) == plain);
            assert_copied(&shapes[i], from, to);
            assert_copied(&shapes[i], from, place.plain);
        }
    }
}

static void bytes_between_the_rows_are_neither_read_nor_written(void **state)
{
    const struct tdm__strided_rows rows = {10, 70, 100, 90};
    uint64_t sum;

    (void)state;
    fill();
    memset(place.to, 5, sizeof(place.to));
    sum = tdm__rect_checksum_copy(&rows, place.from, place.to);
    place.from[70] ^= 1;
    place.from[99] ^= 1;
    assert_true(tdm__rect_checksum(&rows, place.from) == sum);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(place.to[i * 90 + 70], 5);
        assert_int_equal(place.to[i * 90 + 89], 5);
    }
}

static void every_flipped_bit_is_seen(void **state)
{
    const struct tdm__strided_rows rows = {3, 150, 200, 200};
    uint64_t sum;

    (void)state;
    fill();
    sum = tdm__rect_checksum(&rows, place.from);
    for (size_t row = 0; row < 3; row++) {
        for (size_t bit = 0; bit < (size_t)150 * 8; bit++) {
            uint8_t *byte = &place.from[row * 200 + bit / 8];

            *byte = (uint8_t)(*byte ^ (1u << bit % 8));
            assert_true(tdm__rect_checksum(&rows, place.from) != sum);
            *byte = (uint8_t)(*byte ^ (1u << bit % 8));
        }
    }
    assert_true(tdm__rect_checksum(&rows, place.from) == sum);
}

static void swap(size_t one, size_t other, size_t size_bytes)
{
    uint8_t kept[256];

    memcpy(kept, place.from + one, size_bytes);
    memcpy(place.from + one, place.from + other, size_bytes);
    memcpy(place.from + other, kept, size_bytes);
}

/* Also the signs of two numbers in the same lane, which a sum of words would not see. */
static void order_and_pairs_of_flips_are_seen(void **state)
{
    const struct tdm__strided_rows rows = {1, (size_t)64 * 64, 0, 0};
    uint64_t sum;

    (void)state;
    fill();
    sum = tdm__rect_checksum(&rows, place.from);
    for (size_t i = 0; i + 64 < (size_t)64 * 64; i += 8) {
        swap(i, i + 8, 8);
        assert_true(tdm__rect_checksum(&rows, place.from) != sum);
        swap(i, i + 8, 8);
        swap(i, i + 64, 8);
        assert_true(tdm__rect_checksum(&rows, place.from) != sum);
        swap(i, i + 64, 8);
        place.from[i + 7] ^= 0x80;
        place.from[i + 64 + 7] ^= 0x80;
        assert_true(tdm__rect_checksum(&rows, place.from) != sum);
        place.from[i + 7] ^= 0x80;
        place.from[i + 64 + 7] ^= 0x80;
    }
}

static void zeros_of_other_lengths_have_other_sums(void **state)
{
    uint64_t last = 0;

    (void)state;
    memset(place.from, 0, sizeof(place.from));
    for (size_t size = 0; size < 300; size++) {
        const struct tdm__strided_rows rows = {1, size, size, size};
        uint64_t sum = tdm__rect_checksum(&rows, place.from);

        assert_true(size == 0 || sum != last);
        last = sum;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_agrees_and_copies),
        cmocka_unit_test(bytes_between_the_rows_are_neither_read_nor_written),
        cmocka_unit_test(every_flipped_bit_is_seen),
        cmocka_unit_test(order_and_pairs_of_flips_are_seen),
        cmocka_unit_test(zeros_of_other_lengths_have_other_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
