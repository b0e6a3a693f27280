/* copy_split_test.c - the pieces of a copy write each element of it once and in its own piece. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/copy_split.h"

#include "colocate/layout/model.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 2000 };

/* A record of which source element each element of the slice was written from, plus one. 0 means
 * not written. */
struct picture {
    uint64_t *from; /* Source of each element; owned. */
    uint64_t elements;
};

static uint64_t blocks(uint64_t elements)
{
    return (elements + TDM__FP8_BLOCK - 1) / TDM__FP8_BLOCK;
}

/* Records the writes of a copy. Scales are written one for each block, from the first of its
 * rows. */
static void draw(struct picture *picture, const struct tdm__rect_copy *copy)
{
    bool is_scales = copy->conversion == TDM__CONVERT_SCALES;
    uint64_t each = is_scales ? TDM__FP8_BLOCK : 1;
    uint64_t rows = is_scales ? blocks(copy->rows) : copy->rows;
    uint64_t columns = is_scales ? blocks(copy->columns) : copy->columns;

    assert_true(copy->rows > 0 && copy->columns > 0);
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t column = 0; column < columns; column++) {
            uint64_t at = copy->to_offset + row * copy->to_pitch + column;

            assert_true(at < picture->elements);
            assert_true(picture->from[at] == 0);
            picture->from[at] =
                copy->from_offset + row * each * copy->from_pitch + column * each + 1;
        }
    }
}

/* Records the writes of a copy and checks that all lie between two positions. */
static void draw_within(struct picture *picture, const struct tdm__rect_copy *copy, uint64_t begin,
                        uint64_t end)
{
    uint64_t before = 0;
    uint64_t inside = 0;

    for (uint64_t i = 0; i < picture->elements; i++) {
        before += picture->from[i] != 0 && (i < begin || i >= end);
    }
    draw(picture, copy);
    for (uint64_t i = 0; i < picture->elements; i++) {
        inside += picture->from[i] != 0 && (i < begin || i >= end);
    }
    assert_true(inside == before);
}

struct fixture {
    struct test_random chance;
    struct tdm_slice slice;
    struct tdm__rect_copy copy;
    uint64_t pitch; /* Pitch of the slice as it is written. */
    uint64_t rows;
};

static uint32_t between(struct fixture *fixture, uint64_t low, uint64_t high)
{
    return (uint32_t)low + test_random_below(&fixture->chance, (uint32_t)(high - low) + 1);
}

/* Chooses a random rectangle of elements in a slice. A rectangle that covers all columns is
 * flat. */
static void invent_elements(struct fixture *fixture)
{
    struct tdm__rect_copy *copy = &fixture->copy;
    uint32_t first_row = 0;
    uint32_t first_column = 0;

    fixture->rows = between(fixture, 1, 20);
    fixture->pitch = between(fixture, 1, 40);
    copy->rows = between(fixture, 1, fixture->rows);
    copy->columns = between(fixture, 1, fixture->pitch);
    first_row = between(fixture, 0, fixture->rows - copy->rows);
    first_column = between(fixture, 0, fixture->pitch - copy->columns);
    copy->to_offset = first_row * fixture->pitch + first_column;
    copy->to_pitch = (uint32_t)fixture->pitch;
    copy->from_pitch = copy->columns + between(fixture, 0, 5);
    copy->conversion = (uint8_t)between(fixture, TDM__CONVERT_NONE, TDM__CONVERT_BF16);
    copy->from_dtype = TDM_F32;
    copy->to_dtype = copy->conversion == TDM__CONVERT_NONE ? TDM_F32 : TDM_BF16;
    tdm__rect_copy_flatten(copy);
}

/* Chooses a rectangle of whole blocks, or of their scales. The last blocks of a slice may be
 * smaller. */
static void invent_blocks(struct fixture *fixture)
{
    struct tdm__rect_copy *copy = &fixture->copy;
    uint64_t extent[2] = {between(fixture, 1, 600), between(fixture, 1, 600)};
    uint64_t first[2];
    uint64_t end[2];
    bool is_scales = between(fixture, 0, 1) == 1;
    uint64_t unit = is_scales ? TDM__FP8_BLOCK : 1;

    for (int i = 0; i < 2; i++) {
        first[i] = between(fixture, 0, blocks(extent[i]) - 1);
        end[i] = (uint64_t)between(fixture, first[i] + 1, blocks(extent[i])) * TDM__FP8_BLOCK;
        end[i] = end[i] < extent[i] ? end[i] : extent[i];
        first[i] *= TDM__FP8_BLOCK;
        fixture->slice.extent[i] = extent[i];
    }
    fixture->pitch = is_scales ? blocks(extent[1]) : extent[1];
    fixture->rows = is_scales ? blocks(extent[0]) : extent[0];
    copy->rows = (uint32_t)(end[0] - first[0]);
    copy->columns = (uint32_t)(end[1] - first[1]);
    copy->to_pitch = (uint32_t)fixture->pitch;
    copy->to_offset = first[0] / unit * fixture->pitch + first[1] / unit;
    copy->from_pitch = copy->columns + between(fixture, 0, 300);
    copy->conversion = is_scales ? TDM__CONVERT_SCALES : TDM__CONVERT_FP8;
    copy->from_dtype = TDM_F32;
    copy->to_dtype = is_scales ? TDM_F32 : TDM_F8_E4M3;
}

static struct picture picture_open(const struct fixture *fixture)
{
    struct picture picture = {.elements = fixture->rows * fixture->pitch};

    picture.from = calloc(picture.elements, sizeof(*picture.from));
    assert_non_null(picture.from);
    return picture;
}

static void cut_anyhow(struct fixture *fixture, struct picture *picture)
{
    const struct tdm__rect_copy *copy = &fixture->copy;
    size_t bytes = tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
    uint64_t unit = tdm__copy_split_unit(&fixture->slice, (enum tdm__conversion)copy->conversion,
                                         copy->to_dtype);
    uint64_t size_bytes = picture->elements * bytes;

    for (uint64_t at = 0; at < size_bytes;) {
        struct tdm__rect_copy pieces[TDM__COPY_SPLIT_MAX];
        uint64_t units = (size_bytes - at + unit - 1) / unit;
        uint64_t end = at + between(fixture, 1, units) * unit;
        uint32_t count;

        end = end < size_bytes ? end : size_bytes;
        count = tdm__copy_split(copy, at, end, pieces);
        assert_true(count <= TDM__COPY_SPLIT_MAX);
        for (uint32_t i = 0; i < count; i++) {
            draw_within(picture, &pieces[i], at / bytes, end / bytes);
        }
        at = end;
    }
}

static void check(uint64_t seed, void (*invent)(struct fixture *fixture))
{
    struct fixture fixture = {.chance = {.state = seed}};
    struct picture whole;
    struct picture cut;

    fixture.copy.from_offset = between(&fixture, 0, 50);
    invent(&fixture);
    whole = picture_open(&fixture);
    cut = picture_open(&fixture);
    draw(&whole, &fixture.copy);
    cut_anyhow(&fixture, &cut);
    assert_memory_equal(cut.from, whole.from, whole.elements * sizeof(*whole.from));
    free(whole.from);
    free(cut.from);
}

static void pieces_of_elements_cover_the_copy(void **state)
{
    uint64_t first = test_random_first_seed("cut");
    (void)state;
    for (uint64_t seed = first; seed < first + ROUNDS; seed++) {
        check(seed, invent_elements);
    }
}

/* This test has fewer rounds because its rectangles are larger. */
static void pieces_of_blocks_cover_the_copy(void **state)
{
    uint64_t first = test_random_first_seed("cut");
    (void)state;
    for (uint64_t seed = first; seed < first + ROUNDS / 40; seed++) {
        check(seed, invent_blocks);
    }
}

static void rectangle_is_at_most_three_in_a_piece(void **state)
{
    const struct tdm__rect_copy copy = {.to_offset = 2,
                                        .rows = 4,
                                        .columns = 5,
                                        .from_pitch = 5,
                                        .to_pitch = 10,
                                        .from_dtype = TDM_U8,
                                        .to_dtype = TDM_U8};
    struct tdm__rect_copy pieces[TDM__COPY_SPLIT_MAX];

    (void)state;
    assert_int_equal(tdm__copy_split(&copy, 4, 34, pieces), 3);
    assert_int_equal(pieces[0].columns, 3);
    assert_int_equal(pieces[1].rows, 2);
    assert_int_equal(pieces[2].columns, 2);
    assert_int_equal(tdm__copy_split(&copy, 7, 12, pieces), 0);
    assert_int_equal(tdm__copy_split(&copy, 3, 5, pieces), 1);
    assert_int_equal(tdm__copy_split(&copy, 0, 40, pieces), 1);
    assert_memory_equal(&pieces[0], &copy, sizeof(copy));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_elements_cover_the_copy),
        cmocka_unit_test(pieces_of_blocks_cover_the_copy),
        cmocka_unit_test(rectangle_is_at_most_three_in_a_piece),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
