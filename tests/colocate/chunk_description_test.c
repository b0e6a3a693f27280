/* chunk_description_test.c - a trainer rank describes each part of a chunk once, for the gather
 * group of the engine that gets the part. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/chunk_description.h"

#include "colocate/job/trainer_agreement.h"
#include "tests/support/weight_writer_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Two trainer ranks that both write for the one engine rank. Rank 0 serves its image. */
static struct weight_writers *world;
static struct trainer trainers[WORLD_RANKS];
static struct tdm__served_engine engine = {.takes_part = true};
static struct tdm__written_chunk written;

static tdm_status attach_nothing(void *state, const struct tdm_update_bucket *bucket,
                                 struct tdm_bytes *bytes_out)
{
    (void)state;
    (void)bucket;
    (void)bytes_out;
    return TDM_OK;
}

static tdm_status attach_text(void *state, const struct tdm_update_bucket *bucket,
                              struct tdm_bytes *bytes_out)
{
    (void)state;
    (void)bucket;
    *bytes_out = (struct tdm_bytes){"more", 4};
    return TDM_OK;
}

static const struct tdm_trainer_ops without_bytes = {.attach = attach_nothing};
static const struct tdm_trainer_ops with_bytes = {.attach = attach_text};

static int set_up(void **state)
{
    (void)state;
    world = weight_writers_open(false, TDM__VERIFY_FULL);
    weight_writers_begin(world);
    weight_writers_write(world, 0);
    engine.takes_part = true;
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        struct trainer *trainer = &trainers[i];

        *trainer = (struct trainer){.ops = &without_bytes,
                                    .transfer_plan = world->transfer_plan,
                                    .weight_writer = world->weight_writers[i],
                                    .engines = {.items = &engine, .count = 1}};
        trainer->rank.context.rank = i;
        trainer->rank.context.ranks_count = WORLD_RANKS;
        trainer->rank.groups = (struct tdm__gather_groups){1, 1, 1, 1};
        trainer->rank.group = world->world->groups[i];
        TRY(tdm__trainer_agreement_reserve(trainer));
    }
    written = (struct tdm__written_chunk){&world->world->update, world->world->epoch, 0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        tdm__trainer_agreement_fini(&trainers[i].agreement);
        tdm__announcement_list_fini(&trainers[i].for_others);
        tdm__announcement_list_fini(&trainers[i].for_gather);
    }
    weight_writers_end(world);
    weight_writers_close(world);
    return 0;
}

/* Puts both ranks into one gather group, which serves two engine ranks; the plan has one. */
static void join_groups(void)
{
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        trainers[i].rank.groups = (struct tdm__gather_groups){1, WORLD_RANKS, 1, 1};
        TRY(tdm__trainer_agreement_reserve(&trainers[i]));
    }
}

static void assert_from(const struct tdm__announcement_list *list, uint32_t writer)
{
    assert_int_equal(list->count, 1);
    assert_int_equal(list->items[0].writer, writer);
    assert_int_equal(list->items[0].engine_rank, 0);
    TRY(tdm__rank_announcement_check(&list->items[0], 0, &trainers[0].rank.groups));
}

static void rank_tells_others_what_it_wrote_for_an_engine_of_their_group(void **state)
{
    (void)state;
    TRY(tdm__chunk_describe_for_others(&trainers[0], &written));
    TRY(tdm__chunk_describe_for_others(&trainers[1], &written));
    assert_int_equal(trainers[0].for_others.count, 0);
    assert_from(&trainers[1].for_others, 1);
}

static void ranks_of_one_group_tell_others_nothing(void **state)
{
    (void)state;
    join_groups();
    TRY(tdm__chunk_describe_for_others(&trainers[1], &written));
    assert_int_equal(trainers[1].for_others.count, 0);
}

static void ranks_of_a_group_describe_what_they_wrote_for_its_engine(void **state)
{
    (void)state;
    join_groups();
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        TRY(tdm__chunk_describe_for_group(&trainers[i], &written));
        assert_from(&trainers[i].for_gather, i);
    }
}

static void server_of_the_image_adds_what_the_library_attaches(void **state)
{
    (void)state;
    join_groups();
    for (uint32_t i = 0; i < WORLD_RANKS; i++) {
        trainers[i].ops = &with_bytes;
        TRY(tdm__chunk_describe_for_group(&trainers[i], &written));
        assert_int_equal(trainers[i].for_gather.items[0].attached.size_bytes, i == 0 ? 4 : 0);
    }
}

static void nothing_is_described_for_engines_that_take_no_part(void **state)
{
    (void)state;
    join_groups();
    TRY(tdm__chunk_describe_for_group(&trainers[0], &written));
    engine.takes_part = false;
    TRY(tdm__chunk_describe_for_group(&trainers[0], &written));
    assert_int_equal(trainers[0].for_gather.count, 0);
}

static int run_here(const char *device)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(rank_tells_others_what_it_wrote_for_an_engine_of_their_group),
        EACH(ranks_of_one_group_tell_others_nothing),
        EACH(ranks_of_a_group_describe_what_they_wrote_for_its_engine),
        EACH(server_of_the_image_adds_what_the_library_attaches),
        EACH(nothing_is_described_for_engines_that_take_no_part),
    };

    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void)
{
    return weight_fixture_everywhere(run_here);
}
