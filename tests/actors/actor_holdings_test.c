/* actor_holdings_test.c - a daemon refuses what its own table leaves no room for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_holdings.h"

#include "actors/daemon/actor_service.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static struct tdm__node node;

static int open_node(void **state)
{
    struct tdm__resources totals = {.cpu = 0};

    (void)state;
    node = (struct tdm__node){.events = &tdm__node_events, .record.name = "this"};
    TRY(tdm__loop_create(&node.loop));
    TRY(tdm__resources_add(&totals, "GPU", 2));
    TRY(tdm__resources_add(&totals, "CPU", 1));
    TRY(tdm__pool_init(&node.totals.pool, &totals));
    return tdm__node_actors_create(&node) != TDM_OK;
}

static int close_node(void **state)
{
    (void)state;
    node.stopping = true;
    tdm__node_actors_destroy(&node);
    tdm__loop_destroy(node.loop);
    return 0;
}

/* The record of an actor with `amount` of the GPU `gpu` and one CPU. */
static struct tdm__actor_record record_of(uint32_t gpu, int64_t amount)
{
    struct tdm__actor_record record = {
        .grant = {
            .cpu = TDM__RESOURCE_ONE, .gpus_count = 1, .gpu_indices = {gpu}, .gpu_amount = amount}};

    TRY(tdm__id_generate(&record.actor));
    return record;
}

static struct actor_entry *run_actor(const struct tdm__actor_record *record)
{
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    struct actor_entry *entry;

    spec->id = record->actor;
    entry = tdm__actor_entry_add(&node, spec);
    assert_non_null(entry);
    entry->record = *record;
    entry->lifecycle.state = ACTOR_RESTARTING; /* It has no worker, but holds its resources. */
    return entry;
}

static void placement_that_was_removed_is_refused_and_a_later_one_is_not(void **state)
{
    struct tdm__actor_record record = record_of(0, TDM__RESOURCE_ONE);
    struct tdm__removed_placement removed = {.actor = record.actor, .placements = 3};

    (void)state;
    record.placements = 3;
    TRY(tdm__node_check_placement(&node, &record, 0));
    tdm__node_placement_removed(&node, &removed);
    assert_int_equal(tdm__node_check_placement(&node, &record, 0), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "node this has given up"));
    record.placements = 4;
    TRY(tdm__node_check_placement(&node, &record, 0));
}

static void gpu_of_another_actor_is_refused(void **state)
{
    struct tdm__actor_record first = record_of(0, TDM__RESOURCE_ONE);
    struct tdm__actor_record second = record_of(0, TDM__RESOURCE_ONE / 2);

    (void)state;
    TRY(tdm__node_check_placement(&node, &first, 0));
    (void)run_actor(&first);
    TRY(tdm__node_check_placement(&node, &first, 0)); /* The actor itself is not in the way. */
    assert_int_equal(tdm__node_check_placement(&node, &second, 0), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "node this"));
    second.grant.gpu_indices[0] = 1;
    TRY(tdm__node_check_placement(&node, &second, 0));
}

static void halves_of_a_gpu_fit_twice(void **state)
{
    struct tdm__actor_record records[3];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        records[i] = record_of(1, TDM__RESOURCE_ONE / 2);
        assert_int_equal(tdm__node_check_placement(&node, &records[i], 0),
                         i < 2 ? TDM_OK : TDM_E_NO_RESOURCES);
        (void)run_actor(&records[i]);
    }
}

static void actor_in_a_group_holds_its_gpus(void **state)
{
    struct tdm__actor_record first = record_of(0, TDM__RESOURCE_ONE);
    struct tdm__actor_record second = record_of(0, TDM__RESOURCE_ONE);

    (void)state;
    TRY(tdm__id_generate(&first.group));
    (void)run_actor(&first);
    assert_int_equal(tdm__node_check_placement(&node, &second, 0), TDM_E_NO_RESOURCES);
}

static void cpus_count_while_nodes_write_their_records(void **state)
{
    struct tdm__actor_record first = record_of(0, TDM__RESOURCE_ONE);
    struct tdm__actor_record second = record_of(1, TDM__RESOURCE_ONE);

    (void)state;
    (void)run_actor(&first);
    TRY(tdm__node_check_placement(&node, &second, 0));
    node.store_view.names_wait = true;
    assert_int_equal(tdm__node_check_placement(&node, &second, 0), TDM_E_NO_RESOURCES);
}

static void placement_of_an_older_epoch_is_refused(void **state)
{
    (void)state;
    node.record.epoch = 7;
    assert_int_equal(tdm__node_check_placed_epoch(&node, 6), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "node this in epoch 6"));
    TRY(tdm__node_check_placed_epoch(&node, 7));
    TRY(tdm__node_check_placed_epoch(&node, 8)); /* This node learns of it later. */
    node.lease_status.awaits_epoch = true;
    assert_int_equal(tdm__node_check_placed_epoch(&node, 7), TDM_E_AGAIN);
}

static void placement_of_an_older_generation_is_refused(void **state)
{
    struct tdm__actor_record record = record_of(0, TDM__RESOURCE_ONE);

    (void)state;
    node.store_view.generation = 7;
    assert_int_equal(tdm__node_check_placement(&node, &record, 6), TDM_E_NO_RESOURCES);
    TRY(tdm__node_check_placement(&node, &record, 7));
    TRY(tdm__node_check_placement(&node, &record, 8)); /* This node learns of it later. */
}

static void only_actors_with_resources_of_this_node_are_listed(void **state)
{
    struct tdm__actor_record first = record_of(0, TDM__RESOURCE_ONE);
    struct tdm__actor_record second = record_of(1, TDM__RESOURCE_ONE);
    struct tdm__actor_record *records;
    uint32_t count;

    (void)state;
    (void)run_actor(&first);
    run_actor(&second)->lifecycle.state = ACTOR_REMOTE;
    records = tdm__node_held_records(&node, &count);
    assert_int_equal(count, 1);
    assert_true(tdm__id_equal(&records[0].actor, &first.actor));
    free(records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_node, close_node)
        CASE(placement_that_was_removed_is_refused_and_a_later_one_is_not),
        CASE(gpu_of_another_actor_is_refused),
        CASE(halves_of_a_gpu_fit_twice),
        CASE(actor_in_a_group_holds_its_gpus),
        CASE(cpus_count_while_nodes_write_their_records),
        CASE(placement_of_an_older_epoch_is_refused),
        CASE(placement_of_an_older_generation_is_refused),
        CASE(only_actors_with_resources_of_this_node_are_listed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
