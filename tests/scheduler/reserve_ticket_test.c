/* reserve_ticket_test.c - a gang is placed against endless single actors, and its ticket goes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reserve_ticket.h"

#include "tests/support/reserve_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* More nodes than one commit gives a ticket to. */
enum { NODES = 20, ROUNDS = 200 };

/* A group that waits, and the memory of its number. */
struct gang {
    struct tdm__placement_group_request request;
    struct tdm__resources bundles[NODES];
    uint64_t number;
};

/* One actor for each node, which is replaced whenever it ends. */
struct singles {
    struct tdm__actor_record records[NODES];
    bool is_placed[NODES];
};

static struct reserve_fixture world;
static struct tdm__id owner;

static int open_world(void **state)
{
    (void)state;
    if (reserve_fixture_open(&world) != 0) {
        return 1;
    }
    owner = reserve_fixture_join(&world, "owner", 0);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    reserve_fixture_close(&world);
    return 0;
}

static void join_nodes(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)reserve_fixture_join(&world, "node", 1);
    }
}

/* Initialises a group that wants `count` GPUs, each on a node of its own. */
static void gang_init(struct gang *gang, uint32_t count)
{
    *gang = (struct gang){.number = 0};
    assert_int_equal(tdm__id_generate(&gang->request.id), TDM_OK);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(tdm__resources_add(&gang->bundles[i], "GPU", 1), TDM_OK);
    }
    gang->request.bundles = gang->bundles;
    gang->request.bundles_count = count;
    gang->request.strategy = TDM_STRICT_SPREAD;
    gang->request.owner_node = owner;
    gang->request.ticket_number = &gang->number;
}

/* Tries to place the gang, which has the turn number `turn`, or none. */
static tdm_status gang_try(struct gang *gang, uint32_t turn)
{
    gang->request.turn = turn;
    return reserve_fixture_group_by(&world, &gang->request);
}

/* Tries to place an actor with one GPU as number `index`. */
static tdm_status single_place(struct singles *singles, uint32_t index)
{
    struct tdm__actor_request request = reserve_fixture_wish(1, "");
    tdm_status status = reserve_fixture_take(&world, &request);

    singles->is_placed[index] = status == TDM_OK;
    if (status == TDM_OK) {
        singles->records[index] = reserve_fixture_record(&world, &request);
    }
    return status;
}

/* Ends the actor number `index`, if there is one. */
static void single_end(struct singles *singles, uint32_t index)
{
    if (singles->is_placed[index]) {
        assert_int_equal(reserve_fixture_give_back(&world, &singles->records[index]), TDM_OK);
        singles->is_placed[index] = false;
    }
}

static void singles_fill(struct singles *singles, uint32_t count)
{
    *singles = (struct singles){.is_placed = {false}};
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(single_place(singles, i), TDM_OK);
    }
}

/* Lets one actor after the other end and another one try to take its GPU, and the gang try after
 * each. Returns the number of rounds until the gang is placed, or ROUNDS. */
static uint32_t rounds_until_placed(struct gang *gang, struct singles *singles, uint32_t turn)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        tdm_status status;

        single_end(singles, round % NODES);
        (void)single_place(singles, round % NODES);
        status = gang_try(gang, turn);
        if (status == TDM_OK) {
            return round;
        }
        assert_int_equal(status, TDM_E_AGAIN);
    }
    return ROUNDS;
}

static void gang_is_placed_against_endless_singles(void **state)
{
    struct gang gang;
    struct singles singles;

    (void)state;
    join_nodes(NODES);
    gang_init(&gang, NODES);
    singles_fill(&singles, NODES);
    assert_int_equal(rounds_until_placed(&gang, &singles, 0), ROUNDS);
    /* Each single ends once, and no other one takes its place. */
    assert_in_range(rounds_until_placed(&gang, &singles, 1), 1, NODES + 1);
    assert_int_equal(reserve_fixture_ungroup(&world, &gang.request.id), TDM_OK);
    singles_fill(&singles, NODES);
}

static void ticket_names_the_group_that_actors_wait_for(void **state)
{
    struct gang gang;
    struct singles singles;
    char group[TDM__ID_TEXT_BYTES];

    (void)state;
    join_nodes(1);
    gang_init(&gang, 1);
    singles_fill(&singles, 1);
    assert_int_equal(gang_try(&gang, 1), TDM_E_AGAIN);
    assert_true(gang.number > 0);
    single_end(&singles, 0);
    assert_int_equal(single_place(&singles, 0), TDM_E_AGAIN);
    assert_non_null(strstr(world.detail, tdm__id_text(&gang.request.id, group)));
    /* A request that is impossible fails at once, ticket or not. */
    assert_int_equal(reserve_fixture_take(
                         &world, &(struct tdm__actor_request){.actor = gang.request.id,
                                                              .placement.wanted = {.gpu = 20000}}),
                     TDM_E_NO_RESOURCES);
}

static void pause_after_a_turn_takes_the_ticket_back(void **state)
{
    struct gang gang;
    struct singles singles;

    (void)state;
    join_nodes(NODES);
    gang_init(&gang, NODES);
    singles_fill(&singles, NODES);
    assert_int_equal(gang_try(&gang, 1), TDM_E_AGAIN);
    single_end(&singles, 3);
    assert_int_equal(single_place(&singles, 3), TDM_E_AGAIN);
    assert_int_equal(gang_try(&gang, 0), TDM_E_AGAIN);
    assert_int_equal(single_place(&singles, 3), TDM_OK);
}

static void canceled_group_takes_its_ticket_back(void **state)
{
    struct gang gang;
    struct singles singles;

    (void)state;
    join_nodes(2);
    for (int keeps_pending = 0; keeps_pending < 2; keeps_pending++) {
        gang_init(&gang, 2);
        gang.request.keeps_pending = keeps_pending == 1;
        singles_fill(&singles, 2);
        assert_int_equal(gang_try(&gang, 1), TDM_E_AGAIN);
        single_end(&singles, 0);
        assert_int_equal(single_place(&singles, 0), TDM_E_AGAIN);
        assert_int_equal(reserve_fixture_ungroup(&world, &gang.request.id), TDM_OK);
        assert_int_equal(single_place(&singles, 0), TDM_OK);
        single_end(&singles, 0);
        single_end(&singles, 1);
    }
}

static void ticket_ends_with_the_node_of_its_owner(void **state)
{
    struct gang gang;
    struct singles singles;

    (void)state;
    join_nodes(2);
    gang_init(&gang, 2);
    singles_fill(&singles, 2);
    assert_int_equal(gang_try(&gang, 1), TDM_E_AGAIN);
    single_end(&singles, 0);
    assert_int_equal(single_place(&singles, 0), TDM_E_AGAIN);
    reserve_fixture_lose(&world, &owner);
    /* A change makes the reader of the cache see that a node is gone. */
    reserve_fixture_join(&world, "new", 0);
    single_end(&singles, 1);
    assert_int_equal(single_place(&singles, 0), TDM_OK);
    assert_int_equal(single_place(&singles, 1), TDM_OK);
}

static void earlier_group_takes_nodes_over_from_a_later_one(void **state)
{
    struct gang early;
    struct gang late;
    struct singles singles;

    (void)state;
    join_nodes(2);
    gang_init(&early, 2);
    gang_init(&late, 2);
    singles_fill(&singles, 2);
    assert_int_equal(gang_try(&early, 0), TDM_E_AGAIN);
    single_end(&singles, 0);
    assert_int_equal(single_place(&singles, 0), TDM_OK);
    assert_int_equal(gang_try(&late, 1), TDM_E_AGAIN);
    assert_true(early.number < late.number);
    single_end(&singles, 0);
    /* Without a turn even the earlier group waits for the nodes. */
    assert_int_equal(gang_try(&early, 0), TDM_E_AGAIN);
    assert_int_equal(gang_try(&early, 1), TDM_E_AGAIN);
    single_end(&singles, 1);
    assert_int_equal(gang_try(&late, 1), TDM_E_AGAIN);
    assert_int_equal(gang_try(&early, 1), TDM_OK);
    assert_int_equal(reserve_fixture_ungroup(&world, &early.request.id), TDM_OK);
    assert_int_equal(gang_try(&late, 1), TDM_OK);
}

static void impossible_group_gets_no_ticket(void **state)
{
    struct gang gang;
    struct singles singles;

    (void)state;
    join_nodes(2);
    gang_init(&gang, 3);
    assert_int_equal(gang_try(&gang, 1), TDM_E_NO_RESOURCES);
    singles_fill(&singles, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gang_is_placed_against_endless_singles, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(ticket_names_the_group_that_actors_wait_for, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(pause_after_a_turn_takes_the_ticket_back, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(canceled_group_takes_its_ticket_back, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(ticket_ends_with_the_node_of_its_owner, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(earlier_group_takes_nodes_over_from_a_later_one, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(impossible_group_gets_no_ticket, open_world, close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
