/* store_node.c - a node without an endpoint, for what a daemon writes into the store. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/store_node.h"

#include "actors/daemon/actor_service.h"
#include "actors/daemon/node.h"
#include "actors/daemon/node_reconcile.h"
#include "actors/daemon/placement_group_service.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

void store_node_open(struct store_node *scene, double gpus)
{
    struct tdm__resources totals = {.cpu = 0};

    assert_int_equal(reserve_fixture_open(&scene->world), 0);
    failing_store_open(&scene->deaf, scene->world.store);
    scene->services = (struct tdm__services){0};
    scene->node = (struct tdm__node){.loop = scene->world.loop,
                                     .store = &scene->deaf.store,
                                     .services = &scene->services,
                                     .events = &tdm__node_events,
                                     .record.name = "this",
                                     .totals.name = "this"};
    scene->node.record.id = reserve_fixture_join(&scene->world, "this", gpus);
    scene->node.totals.id = scene->node.record.id;
    TRY(tdm__resources_add(&totals, "GPU", gpus));
    TRY(tdm__resources_add(&totals, "CPU", 8));
    TRY(tdm__pool_init(&scene->node.totals.pool, &totals));
    TRY(tdm__node_actors_create(&scene->node));
    TRY(tdm__placement_groups_create(&scene->node));
    TRY(tdm__node_reconcile_create(&scene->node));
}

void store_node_close(struct store_node *scene)
{
    scene->node.stopping = true;
    tdm__node_actors_destroy(&scene->node);
    tdm__placement_groups_destroy(&scene->node);
    tdm__node_reconcile_destroy(&scene->node);
    reserve_fixture_close(&scene->world);
}
