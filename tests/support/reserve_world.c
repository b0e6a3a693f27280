/* reserve_world.c - nodes in a memory store, and reservations that are waited for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reserve_world.h"

#include "runtime/clock.h"
#include "runtime/store/known.h"
#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PATIENCE = 30000, WRITES_MAX = 10000 };

static const struct tdm__store_ops *memory_ops;
static struct tdm__store_ops lasting_ops; /* the same, but nothing vanishes by itself */

static void commit_lasting(struct tdm__store *store, const struct tdm__write *writes,
                           uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                           void *arg)
{
    static struct tdm__write lasting[WRITES_MAX];

    assert_true(writes_count <= WRITES_MAX);
    for (uint32_t i = 0; i < writes_count; i++) {
        lasting[i] = writes[i];
        lasting[i].lease_ms = 0;
    }
    memory_ops->commit(store, lasting, writes_count, deadline_ms, fn, arg);
}

int reserve_world_open(struct reserve_world *world)
{
    *world = (struct reserve_world){.loop = NULL};
    if (tdm__loop_create(&world->loop) != TDM_OK ||
        tdm__store_memory_open(world->loop, &world->store) != TDM_OK) {
        return 1;
    }
    memory_ops = world->store->ops;
    lasting_ops = *memory_ops;
    lasting_ops.commit = commit_lasting;
    world->store->ops = &lasting_ops;
    return tdm__known_create(&world->store->known) != TDM_OK;
}

void reserve_world_close(struct reserve_world *world)
{
    struct tdm__known *known = world->store->known;

    tdm__group_record_fini(&world->group);
    world->store->ops->close(world->store);
    tdm__known_destroy(known);
    tdm__loop_destroy(world->loop);
}

static bool is_done(void *arg)
{
    return ((struct reserve_world *)arg)->done;
}

/* `asked` is what the asking itself returned. */
static tdm_status wait_for(struct reserve_world *world, tdm_status asked)
{
    assert_int_equal(asked, TDM_OK);
    assert_int_equal(tdm__loop_run(world->loop, is_done, world, tdm__deadline_in(PATIENCE)),
                     TDM_OK);
    world->done = false;
    return world->status;
}

static void on_done(void *arg, tdm_status status, const char *detail)
{
    struct reserve_world *world = arg;

    world->done = true;
    world->status = status;
    (void)snprintf(world->detail, sizeof(world->detail), "%s", detail);
}

void reserve_world_join_as(struct reserve_world *world, const struct tdm__node_record *record,
                           const struct tdm__node_resources *totals)
{
    assert_int_equal(
        wait_for(world, tdm__reserve_node(world->store, record, totals, NULL, 0,
                                          tdm__deadline_in(PATIENCE), on_done, world)),
        TDM_OK);
}

void reserve_world_join_again(struct reserve_world *world, const struct tdm__id *id,
                              const char *name, double gpus, const struct tdm__grant *grants,
                              uint32_t grants_count)
{
    struct tdm__node_record record = {.id = *id, .pid = 1};
    struct tdm__node_resources totals = {.id = *id};
    struct tdm__resources resources = {.cpu = 0};

    (void)snprintf(record.name, sizeof(record.name), "%s", name);
    (void)snprintf(totals.name, sizeof(totals.name), "%s", name);
    assert_int_equal(tdm__resources_add(&resources, "GPU", gpus), TDM_OK);
    assert_int_equal(tdm__resources_add(&resources, "CPU", 8), TDM_OK);
    assert_int_equal(tdm__pool_init(&totals.pool, &resources), TDM_OK);
    assert_int_equal(
        wait_for(world, tdm__reserve_node(world->store, &record, &totals, grants, grants_count,
                                          tdm__deadline_in(PATIENCE), on_done, world)),
        TDM_OK);
}

struct tdm__id reserve_world_join(struct reserve_world *world, const char *name, double gpus)
{
    struct tdm__id id;

    assert_int_equal(tdm__id_make(&id), TDM_OK);
    reserve_world_join_again(world, &id, name, gpus, NULL, 0);
    return id;
}

static void on_commit(void *arg, tdm_status status, uint64_t version)
{
    (void)version;
    on_done(arg, status, "");
}

void reserve_world_lose(struct reserve_world *world, const struct tdm__id *id)
{
    char node[TDM__STORE_KEY_BYTES];
    char resources[TDM__STORE_KEY_BYTES];
    struct tdm__write writes[2] = {{.kind = TDM__WRITE_DELETE,
                                    .key = tdm__store_key("node", id, node),
                                    .version = TDM__VERSION_ANY},
                                   {.kind = TDM__WRITE_DELETE,
                                    .key = tdm__store_key("free", id, resources),
                                    .version = TDM__VERSION_ANY}};

    world->store->ops->commit(world->store, writes, 2, tdm__deadline_in(PATIENCE), on_commit,
                              world);
    assert_int_equal(wait_for(world, TDM_OK), TDM_OK);
}

void reserve_world_forget(struct reserve_world *world, const char *key)
{
    struct tdm__write write = {
        .kind = TDM__WRITE_DELETE, .key = key, .version = TDM__VERSION_ANY};

    world->store->ops->commit(world->store, &write, 1, tdm__deadline_in(PATIENCE), on_commit,
                              world);
    assert_int_equal(wait_for(world, TDM_OK), TDM_OK);
}

static tdm_status empty(void *arg, struct tdm__txn *txn)
{
    struct tdm__node_resources node;

    (void)arg;
    TDM_TRY(tdm__free_record_read(tdm__txn_at(txn, 0), &node));
    tdm__pool_make_empty(&node.pool);
    return tdm__free_record_put(txn, &node);
}

void reserve_world_empty(struct reserve_world *world, const struct tdm__id *id)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("free", id, key)};

    assert_int_equal(
        wait_for(world, tdm__txn_run(world->store, NULL, patterns, 1,
                                     tdm__deadline_in(PATIENCE), empty, on_done, world)),
        TDM_OK);
}

tdm_status reserve_world_again(struct reserve_world *world,
                               const struct tdm__actor_record *actor)
{
    return wait_for(world, tdm__reserve_again(world->store, actor, tdm__deadline_in(PATIENCE),
                                              on_done, world));
}

static void on_taken(void *arg, tdm_status status, const char *detail,
                     const struct tdm__reserved *reserved)
{
    struct reserve_world *world = arg;

    on_done(world, status, detail);
    if (status == TDM_OK) {
        world->reserved = *reserved;
    }
}

tdm_status reserve_world_take(struct reserve_world *world,
                              const struct tdm__reserve_actor *request)
{
    return wait_for(world, tdm__reserve_actor(world->store, request, tdm__deadline_in(PATIENCE),
                                              on_taken, world));
}

tdm_status reserve_world_give_back(struct reserve_world *world,
                                   const struct tdm__actor_record *actor)
{
    return wait_for(world, tdm__release_actor(world->store, actor, tdm__deadline_in(PATIENCE),
                                              on_done, world));
}

static void on_grouped(void *arg, tdm_status status, const char *detail,
                       const struct tdm__group_record *group)
{
    struct reserve_world *world = arg;

    on_done(world, status, detail);
    if (status == TDM_OK) {
        tdm__group_record_fini(&world->group);
        assert_int_equal(tdm__group_record_copy(group, &world->group), TDM_OK);
    }
    for (uint32_t i = 0; status == TDM_OK && i < group->bundles_count && i < PLACES_MAX; i++) {
        world->places[i] = group->bundles[i].node;
        world->gpus[i] = group->bundles[i].grant.gpu_indices[0];
    }
}

tdm_status reserve_world_group(struct reserve_world *world, const struct tdm__id *id,
                               double gpus_each, uint32_t bundles_count,
                               enum tdm_placement_strategy strategy)
{
    struct tdm__resources bundles[PLACES_MAX] = {{.cpu = 0}};

    for (uint32_t i = 0; i < bundles_count; i++) {
        assert_int_equal(tdm__resources_add(&bundles[i], "GPU", gpus_each), TDM_OK);
    }
    return reserve_world_group_by(world, &(struct tdm__reserve_group){
                                             .id = *id,
                                             .bundles = bundles,
                                             .bundles_count = bundles_count,
                                             .strategy = strategy,
                                         });
}

tdm_status reserve_world_group_by(struct reserve_world *world,
                                  const struct tdm__reserve_group *request)
{
    return wait_for(world, tdm__reserve_group(world->store, request, tdm__deadline_in(PATIENCE),
                                              on_grouped, world));
}

tdm_status reserve_world_find_group(struct reserve_world *world, const char *name_space,
                                    const char *name)
{
    struct tdm__find_group question = {0};

    (void)snprintf(question.name_space, sizeof(question.name_space), "%s", name_space);
    (void)snprintf(question.name, sizeof(question.name), "%s", name);
    return wait_for(world, tdm__find_group(world->store, &question, tdm__deadline_in(PATIENCE),
                                           on_grouped, world));
}

static void on_group_closed(void *arg, tdm_status status, const char *detail,
                            const struct tdm__group_record *group,
                            const struct tdm__nodes_snapshot *nodes)
{
    (void)nodes;
    on_done(arg, status == TDM_OK && group == NULL ? TDM_E_NOT_FOUND : status, detail);
}

tdm_status reserve_world_close_group(struct reserve_world *world, const struct tdm__id *id,
                                     const struct tdm__id *remover)
{
    const struct tdm__group_record closing = {.id = *id, .home = *remover};

    return wait_for(world, tdm__close_group(world->store, &closing, tdm__deadline_in(PATIENCE),
                                            on_group_closed, world));
}

tdm_status reserve_world_group_again(struct reserve_world *world, bool without_lost)
{
    return wait_for(world,
                    tdm__reserve_group_again(world->store, &world->group, without_lost,
                                             tdm__deadline_in(PATIENCE), on_done, world));
}

tdm_status reserve_world_ungroup(struct reserve_world *world, const struct tdm__id *id)
{
    struct tdm__group_record group = world->group;

    group.id = *id; /* with the name of the last one, which no other has */
    return wait_for(world, tdm__release_group(world->store, &group, tdm__deadline_in(PATIENCE),
                                              on_done, world));
}
