/* image_places_test.c - each image has a part of its own in the bucket of the trainer rank that
 * serves it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/image_places.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TRAINERS = 4 };

/* Trainer rank i is on GPU i. */
static void fill_locations(struct tdm__location locations[TRAINERS])
{
    for (uint32_t i = 0; i < TRAINERS; i++) {
        locations[i] = (struct tdm__location){.node = {{7}}};
        locations[i].gpu.bytes[0] = (unsigned char)i;
    }
}

static void test_image_is_on_the_gpu_of_its_server(void **state)
{
    const struct tdm__gather_groups groups = tdm__gather_groups_form(TRAINERS, 2, 2, false);
    struct tdm__location locations[TRAINERS];
    struct tdm__image_places places;

    (void)state;
    fill_locations(locations);
    TRY(tdm__image_places_init(&groups, locations, &places));
    for (uint32_t image = 0; image < TRAINERS; image++) {
        assert_int_equal(places.locations[image].gpu.bytes[0], image);
        assert_int_equal(places.locations[image].node.bytes[0], 7);
        assert_int_equal(places.bucket_parts[image], 0);
    }
    tdm__image_places_fini(&places);
    assert_null(places.locations);
}

static void test_images_of_one_server_have_parts_of_one_bucket(void **state)
{
    static const uint32_t servers[] = {0, 0, 1, 2, 2, 3};
    static const uint32_t parts[] = {0, 1, 0, 0, 1, 0};
    const struct tdm__gather_groups groups = tdm__gather_groups_form(TRAINERS, 6, 3, false);
    struct tdm__location locations[TRAINERS];
    struct tdm__image_places places;

    (void)state;
    fill_locations(locations);
    TRY(tdm__image_places_init(&groups, locations, &places));
    assert_int_equal(tdm__gather_groups_images(&groups), 6);
    for (uint32_t image = 0; image < 6; image++) {
        assert_int_equal(places.locations[image].gpu.bytes[0], servers[image]);
        assert_int_equal(places.bucket_parts[image], parts[image]);
    }
    tdm__image_places_fini(&places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_image_is_on_the_gpu_of_its_server),
        cmocka_unit_test(test_images_of_one_server_have_parts_of_one_bucket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
