/* copy_cut_test.c - the parts of a copy fit into a round and write together what the copy writes.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/copy_cut.h"

#include "colocate/layout/model.h"
#include "colocate/weights/convert.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ROUNDS random copies are cut; a copy has up to EXTENT_MAX rows and columns. */
enum { ROUNDS = 1000, EXTENT_MAX = 300 };

/* Returns a plan of one image with `chunks_count` chunks, the first of which has all copies. */
static struct tdm__transfer_plan plan_of(const struct tdm__rect_copy *copies, uint32_t copies_count,
                                         struct tdm__transfer_plan_image *image)
{
    *image =
        (struct tdm__transfer_plan_image){.copies = calloc(copies_count, sizeof(*image->copies)),
                                          .chunks = calloc(1, sizeof(*image->chunks)),
                                          .copies_count = copies_count,
                                          .chunks_count = 1};
    assert_non_null(image->copies);
    assert_non_null(image->chunks);
    memcpy(image->copies, copies, copies_count * sizeof(*copies));
    image->chunks[0].copies_count = copies_count;
    return (struct tdm__transfer_plan){.to_count = 1, .chunks_count = 1, .images = image};
}

/* Frees what plan_of() has allocated. */
static void image_free(struct tdm__transfer_plan_image *image)
{
    free(image->copies);
    free(image->chunks);
}

/* Returns a random copy between two nodes. */
static struct tdm__rect_copy random_copy(struct test_random *random)
{
    struct tdm__rect_copy copy = {.rows = 1 + test_random_below(random, EXTENT_MAX),
                                  .columns = 1 + test_random_below(random, EXTENT_MAX),
                                  .conversion = (uint8_t)test_random_below(random, 4),
                                  .locality = TDM__LOCALITY_OTHER_NODE,
                                  .from_dtype = TDM_F32};

    copy.from_pitch = copy.columns + test_random_below(random, 3);
    copy.to_pitch = copy.columns + test_random_below(random, 3);
    copy.to_dtype = (uint8_t)(copy.conversion == TDM__CONVERT_NONE   ? TDM_F32
                              : copy.conversion == TDM__CONVERT_BF16 ? TDM_BF16
                              : copy.conversion == TDM__CONVERT_FP8  ? TDM_F8_E4M3
                                                                     : TDM_F32);
    return copy;
}

/* Returns the distance between two elements of the source, in rows and in columns, from which a
 * copy writes neighbours. */
static uint64_t source_step(const struct tdm__rect_copy *copy)
{
    return copy->conversion == TDM__CONVERT_SCALES ? TDM__FP8_BLOCK : 1;
}

/* Notes for each element that the copy writes the element that it reads, plus 1; none is written
 * twice. */
static void draw(uint64_t *picture, const struct tdm__rect_copy *copy)
{
    uint64_t step = source_step(copy);

    for (uint64_t row = 0; row < (copy->rows + step - 1) / step; row++) {
        for (uint64_t column = 0; column < (copy->columns + step - 1) / step; column++) {
            uint64_t to = copy->to_offset + row * copy->to_pitch + column;

            assert_int_equal(picture[to], 0);
            picture[to] = copy->from_offset + row * step * copy->from_pitch + column * step + 1;
        }
    }
}

/* Returns the most bytes that a part may write: those of a round, or of the smallest unit. */
static uint64_t most_bytes(const struct tdm__rect_copy *copy, uint64_t round_bytes)
{
    struct tdm__strided_rows rows = tdm__convert_written_rows(copy);
    uint64_t smallest = copy->conversion == TDM__CONVERT_FP8      ? TDM__FP8_BLOCK * rows.size_bytes
                        : copy->conversion == TDM__CONVERT_SCALES ? rows.size_bytes
                                                                  : sizeof(float);

    return round_bytes > smallest ? round_bytes : smallest;
}

static void parts_fit_and_write_what_the_copy_writes(void **state)
{
    struct test_random random =
        test_random_init("copy_cut_test", test_random_first_seed("copy_cut_test"));
    const size_t picture_bytes = (size_t)EXTENT_MAX * (EXTENT_MAX + 3) * sizeof(uint64_t);
    uint64_t *expected = malloc(picture_bytes);
    uint64_t *picture = malloc(picture_bytes);

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct tdm__rect_copy copy = random_copy(&random);
        uint64_t round_bytes = 1 + test_random_below(&random, 20000);
        struct tdm__transfer_plan_image image;
        struct tdm__transfer_plan plan = plan_of(&copy, 1, &image);

        memset(expected, 0, picture_bytes);
        memset(picture, 0, picture_bytes);
        draw(expected, &copy);
        assert_int_equal(tdm__copy_cut(&plan, round_bytes), TDM_OK);
        for (uint32_t part = 0; part < image.copies_count; part++) {
            struct tdm__strided_rows rows = tdm__convert_written_rows(&image.copies[part]);

            assert_true(rows.count * rows.size_bytes <= most_bytes(&copy, round_bytes));
            draw(picture, &image.copies[part]);
        }
        assert_memory_equal(picture, expected, picture_bytes);
        image_free(&image);
    }
    free(expected);
    free(picture);
}

static void copies_on_one_node_stay_whole(void **state)
{
    struct test_random random =
        test_random_init("copy_cut_test", test_random_first_seed("copy_cut_test"));
    struct tdm__transfer_plan_image image;
    struct tdm__rect_copy copies[2];
    struct tdm__transfer_plan plan;

    (void)state;
    for (int i = 0; i < 2; i++) {
        copies[i] = random_copy(&random);
        copies[i].locality = i == 0 ? TDM__LOCALITY_SAME_GPU : TDM__LOCALITY_SAME_NODE;
    }
    plan = plan_of(copies, 2, &image);
    assert_int_equal(tdm__copy_cut(&plan, 1), TDM_OK);
    assert_int_equal(image.copies_count, 2);
    assert_memory_equal(image.copies, copies, sizeof(copies));
    image_free(&image);
}

static void equal_copies_to_different_places_are_cut_equally(void **state)
{
    const struct tdm__rect_copy copy = {.rows = 10,
                                        .columns = 7,
                                        .from_pitch = 7,
                                        .to_pitch = 50,
                                        .locality = TDM__LOCALITY_OTHER_NODE,
                                        .from_dtype = TDM_F32,
                                        .to_dtype = TDM_F32};
    struct tdm__rect_copy copies[2] = {copy, copy};
    struct tdm__transfer_plan_image image;
    struct tdm__transfer_plan plan;
    uint32_t half;

    (void)state;
    copies[1].to_offset = 1000;
    plan = plan_of(copies, 2, &image);
    assert_int_equal(tdm__copy_cut(&plan, 3 * 7 * sizeof(float)), TDM_OK);
    half = image.copies_count / 2;
    assert_int_equal(image.copies_count, 2 * 4);
    assert_int_equal(image.chunks[0].copies_first, 0);
    assert_int_equal(image.chunks[0].copies_count, image.copies_count);
    for (uint32_t i = 0; i < half; i++) {
        assert_int_equal(image.copies[i].from_offset, image.copies[half + i].from_offset);
        assert_int_equal(image.copies[i].rows, image.copies[half + i].rows);
        assert_int_equal(image.copies[i].columns, image.copies[half + i].columns);
    }
    image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_fit_and_write_what_the_copy_writes),
        cmocka_unit_test(copies_on_one_node_stay_whole),
        cmocka_unit_test(equal_copies_to_different_places_are_cut_equally)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
