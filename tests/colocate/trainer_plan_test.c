/* trainer_plan_test.c - a trainer rank plans updates from what the engines have told, within the
 * size of its bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/trainer_plan.h"

#include "tests/support/weight_writer_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { BUCKET_BYTES = 8192 };

static struct weight_writers *world;
static struct trainer trainer;
static tdm_writer *writer;
static struct tdm_bytes layouts[2]; /* The layout of the engine rank, twice. */
static struct tdm__trainer_connect_message message;

/* Opens rank 0 of two trainer ranks, and the message of one engine rank with a layout. Rank 1 is on
 * another node if `is_divided`. */
static void open_trainer(bool is_divided)
{
    world = is_divided ? weight_writers_open_divided(false)
                       : weight_writers_open(false, TDM__VERIFY_FULL);
    trainer = (struct trainer){.manifest = world->world->manifest,
                               .layouts = world->world->layouts,
                               .locations = world->locations};
    trainer.rank.context.ranks_count = WORLD_RANKS;
    trainer.rank.groups = (struct tdm__gather_groups){1, 1, 1, 1};
    trainer.rank.group = world->world->groups[0];
    trainer.rank.regions = world->world->regions[0];
    trainer.rank.location = world->world->location;
    trainer.rank.bucket_bytes = BUCKET_BYTES;
    /* The rank has joined the group of exchanges. */
    trainer.exchange = world->world->groups[0];
    TRY(tdm_writer_create(&writer));
    TRY(tdm__layout_encode(&(struct tdm__layout){world->slices, WORLD_TENSORS},
                           tdm_region_address(world->world->weights), writer));
    layouts[0] = layouts[1] = tdm_writer_bytes(writer);
    message = (struct tdm__trainer_connect_message){.weights_bytes =
                                                        tdm_region_size(world->world->weights),
                                                    .layouts = {.count = 1, .items = layouts}};
}

static int close_trainer(void **state)
{
    (void)state;
    tdm__trainer_plan_destroy(&trainer);
    tdm_writer_destroy(writer);
    weight_writers_close(world);
    return 0;
}

/* Creates the plan of the message, as it arrives from the controller. */
static tdm_status create_plan(void)
{
    struct tdm__trainer_connect_message arrived;
    tdm_document *document;
    tdm_writer *sent;
    tdm_status status;

    TRY(tdm_writer_create(&sent));
    TRY(tdm__trainer_connect_encode(&message, sent));
    TRY(tdm_document_parse(tdm_writer_bytes(sent), &document));
    TRY(tdm__trainer_connect_decode(tdm_document_root(document), &arrived));
    status = tdm__trainer_plan_create(&trainer, &arrived);
    tdm_document_destroy(document);
    tdm_writer_destroy(sent);
    return status;
}

/* Returns the size of the largest chunk of the engine rank's image. */
static uint64_t largest_chunk(void)
{
    const struct tdm__transfer_plan *plan = trainer.transfer_plan;
    uint64_t largest = 0;

    for (uint32_t i = 0; i < plan->chunks_count; i++) {
        uint64_t bytes = plan->images[0].chunks[i].end - plan->images[0].chunks[i].begin;

        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static void chunks_fit_into_half_of_the_bucket(void **state)
{
    (void)state;
    open_trainer(false);
    TRY(create_plan());
    assert_null(trainer.transfer_plan->exchange);
    assert_true(trainer.transfer_plan->chunks_count > 1);
    assert_true(largest_chunk() <= BUCKET_BYTES / 2);
    assert_true(largest_chunk() > BUCKET_BYTES / 4);
    assert_non_null(tdm__weight_writer_bucket(trainer.weight_writer));
}

static void buffers_of_an_exchange_are_taken_from_the_bucket(void **state)
{
    (void)state;
    open_trainer(true);
    TRY(create_plan());
    assert_non_null(trainer.transfer_plan->exchange);
    assert_true(largest_chunk() <= BUCKET_BYTES / 4);
    assert_ptr_equal(trainer.exchange, world->world->groups[0]);
}

static void rank_that_writes_in_place_has_no_bucket(void **state)
{
    const struct tdm__id gpu = {{0}};

    (void)state;
    open_trainer(false);
    message.in_place = true;
    message.gpus = (struct tdm__message_list){.count = 1, .items = &gpu};
    TRY(create_plan());
    assert_null(tdm__weight_writer_bucket(trainer.weight_writer));
    assert_int_equal(trainer.transfer_plan->chunks_count, 1);
}

static void engines_without_layouts_get_whole_tensors(void **state)
{
    (void)state;
    open_trainer(false);
    message.layouts.count = 0;
    TRY(create_plan());
    assert_non_null(trainer.whole_tensors);
    assert_null(trainer.engine_layouts);
}

static void layouts_of_other_images_are_refused(void **state)
{
    (void)state;
    open_trainer(false);
    message.layouts.count = 2;
    assert_int_equal(create_plan(), TDM_E_PROTOCOL);
    assert_string_equal(tdm_error_detail(), "layouts of 2 engine ranks for 1 images");
}

static void destroyed_plan_can_be_created_again(void **state)
{
    (void)state;
    open_trainer(false);
    TRY(create_plan());
    tdm__trainer_plan_destroy(&trainer);
    assert_null(trainer.transfer_plan);
    assert_null(trainer.weight_writer);
    message.layouts.count = 0;
    TRY(create_plan());
    tdm__trainer_plan_destroy(&trainer);
    assert_null(trainer.whole_tensors);
    message.layouts.count = 1;
    TRY(create_plan());
}

#define EACH(test) cmocka_unit_test_teardown(test, close_trainer)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(chunks_fit_into_half_of_the_bucket),
        EACH(buffers_of_an_exchange_are_taken_from_the_bucket),
        EACH(rank_that_writes_in_place_has_no_bucket),
        EACH(engines_without_layouts_get_whole_tensors),
        EACH(layouts_of_other_images_are_refused),
        EACH(destroyed_plan_can_be_created_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
