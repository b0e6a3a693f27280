/* image_places_test.c - each image has a part of its own in the bucket of the trainer rank that
 * serves it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/image_places.h"

#include "runtime/messages/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TRAINERS = 4 };

/* Images that are in buckets. */
static const struct tdm__message_list no_gpus = {.count = 0};

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
    TRY(tdm__image_places_init(&groups, locations, &no_gpus, &places));
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
    TRY(tdm__image_places_init(&groups, locations, &no_gpus, &places));
    assert_int_equal(tdm__gather_groups_images(&groups), 6);
    for (uint32_t image = 0; image < 6; image++) {
        assert_int_equal(places.locations[image].gpu.bytes[0], servers[image]);
        assert_int_equal(places.bucket_parts[image], parts[image]);
    }
    tdm__image_places_fini(&places);
}

/* Computes the places of images on `count` GPUs, as a trainer rank does that gets their list. */
static tdm_status places_on_gpus(uint32_t count, struct tdm__image_places *places_out)
{
    static const struct tdm__id gpus[] = {{{10}}, {{11}}, {{12}}, {{13}}};
    const struct tdm__gather_groups groups = tdm__gather_groups_form(2, 2, 2, true);
    const struct tdm__trainer_connect_message sent = {.gpus = {.count = count, .items = gpus}};
    struct tdm__trainer_connect_message received;
    struct tdm__location locations[TRAINERS];
    tdm_document *document;
    tdm_writer *writer;
    tdm_status status;

    fill_locations(locations);
    TRY(tdm_writer_create(&writer));
    TRY(tdm__trainer_connect_encode(&sent, writer));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    TRY(tdm__trainer_connect_decode(tdm_document_root(document), &received));
    status = tdm__image_places_init(&groups, locations, &received.gpus, places_out);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    return status;
}

/* Colocated engines whose memory trainer ranks write have GPUs without a trainer rank. */
static void test_image_in_the_memory_of_an_engine_rank_is_on_its_gpu(void **state)
{
    struct tdm__image_places places;

    (void)state;
    TRY(places_on_gpus(4, &places));
    for (uint32_t image = 0; image < 4; image++) {
        assert_int_equal(places.locations[image].gpu.bytes[0], 10 + image);
        assert_int_equal(places.locations[image].node.bytes[0], 7);
    }
    tdm__image_places_fini(&places);
    assert_int_equal(places_on_gpus(3, &places), TDM_E_PROTOCOL);
    tdm__image_places_fini(&places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_image_is_on_the_gpu_of_its_server),
        cmocka_unit_test(test_images_of_one_server_have_parts_of_one_bucket),
        cmocka_unit_test(test_image_in_the_memory_of_an_engine_rank_is_on_its_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
