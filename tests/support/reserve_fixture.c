/* reserve_fixture.c - nodes in a memory store, and reservations that are waited for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reserve_fixture.h"

#include "runtime/clock.h"
#include "runtime/store/read_cache.h"
#include "runtime/store/records.h"
#include "runtime/store/txn.h"
#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PATIENCE = 30000, WRITES_MAX = 10000 };

static const struct tdm__store_ops *memory_ops;
static struct tdm__store_ops lasting_ops; /* The same store, but no record vanishes by itself. */

/* Records of a node that joins again before the next commit (owned); NULL if none does. */
static struct tdm__store_records *returning;

/* Callback of the commit with which a node joins again. */
static void on_returned(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    (void)arg;
    (void)committed;
    assert_int_equal(status, TDM_OK);
}

/* Puts the records in `returning` into the store. */
static void return_node(struct tdm__store *store)
{
    struct tdm__store_records *records = returning;

    returning = NULL;
    for (uint32_t i = 0; records != NULL && i < records->count; i++) {
        const struct tdm__store_write write = {.kind = TDM__STORE_PUT,
                                               .key = records->items[i].key,
                                               .version = TDM__VERSION_NONE,
                                               .bytes = records->items[i].bytes};

        memory_ops->commit(store, &write, 1, tdm__deadline_after(PATIENCE), on_returned, NULL);
    }
    free(records);
}

static void commit_lasting(struct tdm__store *store, const struct tdm__store_write *writes,
                           uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                           void *arg)
{
    static struct tdm__store_write lasting[WRITES_MAX];

    assert_true(writes_count <= WRITES_MAX);
    return_node(store);
    for (uint32_t i = 0; i < writes_count; i++) {
        lasting[i] = writes[i];
        lasting[i].lease_ms = 0;
    }
    memory_ops->commit(store, lasting, writes_count, deadline_ms, fn, arg);
}

int reserve_fixture_open(struct reserve_fixture *world)
{
    *world = (struct reserve_fixture){.loop = NULL};
    if (tdm__loop_create(&world->loop) != TDM_OK ||
        tdm__store_memory_open(world->loop, &world->store) != TDM_OK) {
        return 1;
    }
    memory_ops = world->store->ops;
    lasting_ops = *memory_ops;
    lasting_ops.commit = commit_lasting;
    world->store->ops = &lasting_ops;
    return tdm__read_cache_create(&world->store->read_cache) != TDM_OK;
}

void reserve_fixture_close(struct reserve_fixture *world)
{
    struct tdm__read_cache *read_cache = world->store->read_cache;

    tdm__placement_group_record_fini(&world->group);
    world->store->ops->close(world->store);
    tdm__read_cache_destroy(read_cache);
    tdm__loop_destroy(world->loop);
}

static bool is_done(void *arg)
{
    return ((struct reserve_fixture *)arg)->done;
}

/* `asked` is what the asking itself returned. */
static tdm_status wait_for(struct reserve_fixture *world, tdm_status asked)
{
    assert_int_equal(asked, TDM_OK);
    assert_int_equal(tdm__loop_run(world->loop, is_done, world, tdm__deadline_after(PATIENCE)),
                     TDM_OK);
    world->done = false;
    return world->status;
}

static int64_t reservation_deadline(const struct reserve_fixture *world)
{
    return tdm__deadline_after(world->wait_ms > 0 ? world->wait_ms : PATIENCE);
}

static void on_done(void *arg, tdm_status status, const char *detail)
{
    struct reserve_fixture *world = arg;

    world->done = true;
    world->status = status;
    (void)snprintf(world->detail, sizeof(world->detail), "%s", detail);
}

void reserve_fixture_join_as(struct reserve_fixture *world, const struct tdm__node_record *record,
                             const struct tdm__node_resources *totals)
{
    assert_int_equal(
        wait_for(world, tdm__reserve_node(world->store, record, totals, NULL, 0,
                                          tdm__deadline_after(PATIENCE), on_done, world)),
        TDM_OK);
}

void reserve_fixture_join_again(struct reserve_fixture *world, const struct tdm__id *id,
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
                                          tdm__deadline_after(PATIENCE), on_done, world)),
        TDM_OK);
}

struct tdm__id reserve_fixture_join(struct reserve_fixture *world, const char *name, double gpus)
{
    struct tdm__id id;

    assert_int_equal(tdm__id_generate(&id), TDM_OK);
    reserve_fixture_join_again(world, &id, name, gpus, NULL, 0);
    return id;
}

static void on_commit(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    ((struct reserve_fixture *)arg)->version = committed->version;
    on_done(arg, status, "");
}

void reserve_fixture_lose(struct reserve_fixture *world, const struct tdm__id *id)
{
    char node[TDM__STORE_KEY_BYTES];
    char resources[TDM__STORE_KEY_BYTES];
    struct tdm__store_write writes[2] = {{.kind = TDM__STORE_DELETE,
                                          .key = tdm__store_key("node", id, node),
                                          .version = TDM__VERSION_ANY},
                                         {.kind = TDM__STORE_DELETE,
                                          .key = tdm__store_key("free", id, resources),
                                          .version = TDM__VERSION_ANY}};

    world->store->ops->commit(world->store, writes, 2, tdm__deadline_after(PATIENCE), on_commit,
                              world);
    assert_int_equal(wait_for(world, TDM_OK), TDM_OK);
}

void reserve_fixture_lose_until_commit(struct reserve_fixture *world, const struct tdm__id *id)
{
    char node[TDM__STORE_KEY_BYTES];
    char resources[TDM__STORE_KEY_BYTES];
    const char *keys[] = {tdm__store_key("node", id, node), tdm__store_key("free", id, resources)};
    struct tdm__store_records *records;

    assert_int_equal(memory_store_read(world->store, keys, 2, &records), TDM_OK);
    assert_int_equal(records->count, 2);
    reserve_fixture_lose(world, id);
    returning = records;
}

void reserve_fixture_forget(struct reserve_fixture *world, const char *key)
{
    struct tdm__store_write write = {
        .kind = TDM__STORE_DELETE, .key = key, .version = TDM__VERSION_ANY};

    world->store->ops->commit(world->store, &write, 1, tdm__deadline_after(PATIENCE), on_commit,
                              world);
    assert_int_equal(wait_for(world, TDM_OK), TDM_OK);
}

static void on_renewed(void *arg, tdm_status status, const struct tdm__store_renewed *renewed,
                       const struct tdm__store_record *members, uint32_t members_count)
{
    (void)renewed;
    (void)members;
    (void)members_count;
    on_done(arg, status, "");
}

void reserve_fixture_replace_store(struct reserve_fixture *world, const struct tdm__id *id)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_renewal renewal = {.key = tdm__store_key("node", id, key),
                                               .lease_ms = TDM__NODE_LEASE_MS,
                                               .grace_ms = TDM__NODE_GRACE_MS};

    memory_store_replace(world->store);
    world->store->ops->renew(world->store, &renewal, tdm__deadline_after(PATIENCE), on_renewed,
                             world);
    assert_int_equal(wait_for(world, TDM_OK), TDM_OK);
}

static tdm_status empty(void *arg, struct tdm__txn *txn)
{
    struct tdm__node_resources node;

    (void)arg;
    TDM_TRY(tdm__free_record_read(tdm__txn_record_at(txn, 0), &node));
    tdm__pool_release_all(&node.pool);
    return tdm__free_record_put(txn, &node);
}

void reserve_fixture_empty(struct reserve_fixture *world, const struct tdm__id *id)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("free", id, key)};

    assert_int_equal(
        wait_for(world, tdm__txn_run(world->store, NULL, patterns, 1, tdm__deadline_after(PATIENCE),
                                     empty, on_done, world)),
        TDM_OK);
}

tdm_status reserve_fixture_again_in(struct reserve_fixture *world,
                                    const struct tdm__actor_record *actor,
                                    const struct tdm__store_view *view)
{
    return wait_for(world, tdm__restore_actor(world->store, actor, view,
                                              reservation_deadline(world), on_done, world));
}

tdm_status reserve_fixture_again(struct reserve_fixture *world,
                                 const struct tdm__actor_record *actor)
{
    static const struct tdm__store_view nothing;

    return reserve_fixture_again_in(world, actor, &nothing);
}

static void on_reconciled(void *arg, tdm_status status, const char *detail,
                          const struct tdm__reconciled *reconciled)
{
    struct reserve_fixture *world = arg;

    world->stale_count =
        reconciled->groups_count < PLACES_MAX ? reconciled->groups_count : PLACES_MAX;
    for (uint32_t i = 0; i < world->stale_count; i++) {
        world->stale[i] = reconciled->groups[i];
    }
    world->removed_count = reconciled->removed_count;
    on_done(arg, status, detail);
}

tdm_status reserve_fixture_reconcile(struct reserve_fixture *world,
                                     const struct tdm__node_holdings *holdings,
                                     const struct tdm__store_view *view)
{
    return wait_for(world,
                    tdm__reserve_reconcile(world->store, holdings, view,
                                           tdm__deadline_after(PATIENCE), on_reconciled, world));
}

static void on_resources(void *arg, tdm_status status, const struct tdm__store_record *records,
                         uint32_t records_count)
{
    struct reserve_fixture *world = arg;
    struct tdm__node_resources resources;

    assert_int_equal(status, TDM_OK);
    assert_int_equal(records_count, 1);
    assert_int_equal(tdm__free_record_read(records, &resources), TDM_OK);
    world->version = resources.generation;
    on_done(world, TDM_OK, "");
}

uint64_t reserve_fixture_generation(struct reserve_fixture *world, const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *pattern = tdm__store_key("free", node, key);

    world->store->ops->read(world->store, &pattern, 1, tdm__deadline_after(PATIENCE), on_resources,
                            world);
    assert_int_equal(wait_for(world, TDM_OK), TDM_OK);
    return world->version;
}

uint64_t reserve_fixture_new_generation(struct reserve_fixture *world)
{
    return memory_store_new_generation(world->store);
}

tdm_status reserve_fixture_settle(struct reserve_fixture *world, const struct tdm__id *node,
                                  uint64_t generation, bool with_names)
{
    return wait_for(world, tdm__reserve_settled(world->store, node, generation, with_names,
                                                tdm__deadline_after(PATIENCE), on_done, world));
}

static void on_taken(void *arg, tdm_status status, const char *detail,
                     const struct tdm__actor_placement *reserved)
{
    struct reserve_fixture *world = arg;

    on_done(world, status, detail);
    if (status == TDM_OK) {
        world->reserved = *reserved;
    }
}

struct tdm__actor_request reserve_fixture_wish(double gpus, const char *name)
{
    struct tdm__actor_request request = {.class_name = "engine"};

    assert_int_equal(tdm__id_generate(&request.actor), TDM_OK);
    assert_int_equal(tdm__resources_add(&request.placement.wanted, "GPU", gpus), TDM_OK);
    (void)snprintf(request.name_key, sizeof(request.name_key), "%s", name);
    return request;
}

struct tdm__actor_record reserve_fixture_record(const struct reserve_fixture *world,
                                                const struct tdm__actor_request *request)
{
    struct tdm__actor_record record = {.actor = request->actor,
                                       .node = world->reserved.node.id,
                                       .group = request->group,
                                       .bundle = request->bundle,
                                       .grant = world->reserved.grant,
                                       .placements = request->placements};

    memcpy(record.name_key, request->name_key, sizeof(record.name_key));
    return record;
}

tdm_status reserve_fixture_take(struct reserve_fixture *world,
                                const struct tdm__actor_request *request)
{
    return wait_for(world, tdm__reserve_actor(world->store, request, reservation_deadline(world),
                                              on_taken, world));
}

tdm_status reserve_fixture_give_back(struct reserve_fixture *world,
                                     const struct tdm__actor_record *actor)
{
    return wait_for(world, tdm__release_actor(world->store, actor, tdm__deadline_after(PATIENCE),
                                              on_done, world));
}

static void on_grouped(void *arg, tdm_status status, const char *detail,
                       const struct tdm__placement_group_record *group)
{
    struct reserve_fixture *world = arg;

    on_done(world, status, detail);
    if (status == TDM_OK) {
        tdm__placement_group_record_fini(&world->group);
        assert_int_equal(tdm__placement_group_record_copy(group, &world->group), TDM_OK);
    }
    for (uint32_t i = 0; status == TDM_OK && i < group->bundles_count && i < PLACES_MAX; i++) {
        world->places[i] = group->bundles[i].node;
        world->gpus[i] = group->bundles[i].grant.gpu_indices[0];
    }
}

tdm_status reserve_fixture_group(struct reserve_fixture *world, const struct tdm__id *id,
                                 double gpus_each, uint32_t bundles_count,
                                 enum tdm_placement_strategy strategy)
{
    struct tdm__resources bundles[PLACES_MAX] = {{.cpu = 0}};

    for (uint32_t i = 0; i < bundles_count; i++) {
        assert_int_equal(tdm__resources_add(&bundles[i], "GPU", gpus_each), TDM_OK);
    }
    return reserve_fixture_group_by(world, &(struct tdm__placement_group_request){
                                               .id = *id,
                                               .bundles = bundles,
                                               .bundles_count = bundles_count,
                                               .strategy = strategy,
                                           });
}

tdm_status reserve_fixture_group_by(struct reserve_fixture *world,
                                    const struct tdm__placement_group_request *request)
{
    return wait_for(world,
                    tdm__placement_group_reserve(world->store, request, reservation_deadline(world),
                                                 on_grouped, world));
}

tdm_status reserve_fixture_find_group(struct reserve_fixture *world, const char *name_space,
                                      const char *name)
{
    struct tdm__placement_group_query question = {0};

    (void)snprintf(question.name_space, sizeof(question.name_space), "%s", name_space);
    (void)snprintf(question.name, sizeof(question.name), "%s", name);
    return wait_for(world,
                    tdm__placement_group_find(world->store, &question,
                                              tdm__deadline_after(PATIENCE), on_grouped, world));
}

static void on_group_closed(void *arg, tdm_status status, const char *detail,
                            const struct tdm__placement_group_record *group,
                            const struct tdm__node_record *nodes, uint32_t nodes_count)
{
    struct reserve_fixture *world = arg;

    world->closed_on_count = nodes_count;
    for (uint32_t i = 0; i < nodes_count && i < PLACES_MAX; i++) {
        world->closed_on[i] = nodes[i].id;
    }
    on_done(arg, status == TDM_OK && group == NULL ? TDM_E_NOT_FOUND : status, detail);
}

tdm_status reserve_fixture_close_group(struct reserve_fixture *world, const struct tdm__id *id,
                                       const struct tdm__id *remover)
{
    const struct tdm__placement_group_record closing = {.id = *id, .owner_node = *remover};

    return wait_for(world, tdm__placement_group_close(world->store, &closing,
                                                      tdm__deadline_after(PATIENCE),
                                                      on_group_closed, world));
}

tdm_status reserve_fixture_group_again_in(struct reserve_fixture *world, bool without_lost,
                                          const struct tdm__store_view *view)
{
    return wait_for(world,
                    tdm__placement_group_restore(world->store, &world->group, without_lost, view,
                                                 reservation_deadline(world), on_done, world));
}

tdm_status reserve_fixture_group_again(struct reserve_fixture *world, bool without_lost)
{
    static const struct tdm__store_view nothing;

    return reserve_fixture_group_again_in(world, without_lost, &nothing);
}

tdm_status reserve_fixture_ungroup(struct reserve_fixture *world, const struct tdm__id *id)
{
    struct tdm__placement_group_record group = world->group;

    group.id = *id; /* No other group has the ID of the last one. */
    return wait_for(world,
                    tdm__placement_group_release(world->store, &group,
                                                 tdm__deadline_after(PATIENCE), on_done, world));
}
