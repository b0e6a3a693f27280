/* placement_test.c - placements follow the strategy and the order, and never exceed what is free.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/placement.h"

#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { NODES_MAX = 6, BUNDLES_MAX = 12 };

/* A cluster and a request. */
struct scene {
    struct tdm__node_resources nodes[NODES_MAX];
    uint32_t nodes_count;
    struct tdm__resources bundles[BUNDLES_MAX];
    uint32_t bundles_count;
    struct tdm__bundle_placement places[BUNDLES_MAX];
    struct tdm__placement_chance chance;
};

static void add_node(struct scene *scene, int64_t cpus, int64_t gpus)
{
    struct tdm__node_resources *node = &scene->nodes[scene->nodes_count];
    struct tdm__resources totals = {.cpu = cpus * TDM__RESOURCE_ONE,
                                    .gpu = gpus * TDM__RESOURCE_ONE};

    memset(node, 0, sizeof(*node));
    node->id.bytes[0] = (uint8_t)(scene->nodes_count + 1);
    (void)snprintf(node->name, sizeof(node->name), "node-%u", scene->nodes_count);
    assert_int_equal(tdm__pool_init(&node->pool, &totals), TDM_OK);
    scene->nodes_count++;
}

/* Adds equal bundles; the amounts are in units of 1/10,000. */
static void add_bundles(struct scene *scene, uint32_t count, int64_t cpu, int64_t gpu)
{
    for (uint32_t i = 0; i < count; i++) {
        scene->bundles[scene->bundles_count++] = (struct tdm__resources){.cpu = cpu, .gpu = gpu};
    }
}

static tdm_status plan(struct scene *scene, enum tdm_placement_strategy strategy)
{
    return tdm__placement_choose_all(scene->nodes, scene->nodes_count, scene->bundles,
                                     scene->bundles_count, strategy, &scene->chance, scene->places);
}

static void lies_on(const struct scene *scene, uint32_t bundle, uint32_t node, uint32_t gpu)
{
    assert_int_equal(scene->places[bundle].node, node);
    assert_int_equal(scene->places[bundle].grant.gpu_indices[0], gpu);
}

/* ---- what each strategy does ------------------------------------------------------------ */

static void equal_bundles_come_node_by_node_and_gpu_by_gpu(void **state)
{
    struct scene scene = {0};

    (void)state;
    add_node(&scene, 4, 2);
    add_node(&scene, 4, 2);
    add_bundles(&scene, 4, 10000, 10000);
    for (int strategy = TDM_PACK; strategy <= TDM_SPREAD; strategy++) {
        assert_int_equal(plan(&scene, (enum tdm_placement_strategy)strategy), TDM_OK);
        lies_on(&scene, 0, 0, 0);
        lies_on(&scene, 1, 0, 1);
        lies_on(&scene, 2, 1, 0);
        lies_on(&scene, 3, 1, 1);
    }
}

static void pack_takes_one_node_where_one_is_enough(void **state)
{
    struct scene scene = {0};

    (void)state;
    add_node(&scene, 4, 1);
    add_node(&scene, 4, 4);
    add_bundles(&scene, 4, 10000, 10000);
    assert_int_equal(plan(&scene, TDM_PACK), TDM_OK);
    for (uint32_t i = 0; i < 4; i++) {
        lies_on(&scene, i, 1, i);
    }
}

static void spread_takes_as_many_nodes_as_it_can(void **state)
{
    struct scene scene = {0};

    (void)state;
    add_node(&scene, 8, 0);
    add_node(&scene, 8, 0);
    add_node(&scene, 8, 0);
    add_bundles(&scene, 3, 20000, 0);
    assert_int_equal(plan(&scene, TDM_SPREAD), TDM_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(scene.places[i].node, i);
    }
}

static void fractional_bundles_share_a_gpu_and_others_do_not(void **state)
{
    struct scene scene = {0};

    (void)state;
    add_node(&scene, 8, 2);
    add_bundles(&scene, 2, 0, 4000);
    add_bundles(&scene, 1, 0, 2000);
    add_bundles(&scene, 1, 0, 10000);
    assert_int_equal(plan(&scene, TDM_STRICT_PACK), TDM_OK);
    lies_on(&scene, 3, 0, 0);
    for (uint32_t i = 0; i < 3; i++) {
        lies_on(&scene, i, 0, 1);
    }
}

static void busy_resources_differ_from_impossible_requests(void **state)
{
    struct scene scene = {0};

    (void)state;
    add_node(&scene, 4, 2);
    add_node(&scene, 4, 2);
    add_bundles(&scene, 3, 0, 10000);
    assert_int_equal(plan(&scene, TDM_STRICT_PACK), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "3 x {GPU 1} on one node"));
    assert_int_equal(plan(&scene, TDM_STRICT_SPREAD), TDM_E_NO_RESOURCES);
    assert_int_equal(plan(&scene, TDM_PACK), TDM_OK);
    scene.nodes[0].pool.gpus[0].free = 9999;
    scene.nodes[0].pool.gpus[1].free = 0;
    assert_int_equal(plan(&scene, TDM_PACK), TDM_E_AGAIN);
    assert_non_null(strstr(tdm_error_detail(), "node-0 has CPU 4 of 4, GPU 0.9999+0 of 2"));
    scene.nodes_count = 0;
    assert_int_equal(plan(&scene, TDM_PACK), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "there are no nodes"));
}

/* A request that needs nothing takes nothing away from the group for which a node is kept. */
static void kept_node_takes_only_requests_for_nothing(void **state)
{
    struct scene scene = {0};
    struct tdm__placement_request wish = {.wanted = {.gpu = 10000}};
    struct tdm__bundle_placement place;

    (void)state;
    add_node(&scene, 4, 2);
    add_node(&scene, 4, 1);
    add_bundles(&scene, 2, 0, 10000);
    scene.nodes[0].ticket.group.bytes[0] = 7;
    scene.nodes[0].is_kept = true;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 2, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 1);
    assert_int_equal(plan(&scene, TDM_PACK), TDM_E_AGAIN);
    assert_non_null(strstr(tdm_error_detail(), "kept for placement group 07"));
    wish.wanted.gpu = 20000; /* Only the kept node can ever hold this. */
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 2, &wish, NULL, &place), TDM_E_AGAIN);
    wish.wanted.gpu = 30000;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 2, &wish, NULL, &place),
                     TDM_E_NO_RESOURCES);
    wish.wanted.gpu = 0;
    wish.owner_node = scene.nodes[0].id;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 2, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 0);
    scene.nodes[0].is_kept = false;
    assert_int_equal(plan(&scene, TDM_PACK), TDM_OK);
}

static void wrong_numbers_are_refused(void **state)
{
    struct scene scene = {0};

    (void)state;
    assert_int_equal(plan(&scene, TDM_PACK), TDM_E_INVAL);
    add_bundles(&scene, 1, 1, 0);
    assert_int_equal(plan(&scene, (enum tdm_placement_strategy)4), TDM_E_INVAL);
    assert_int_equal(tdm__placement_choose_all(scene.nodes, TDM__PLACEMENT_NODES_MAX + 1,
                                               scene.bundles, 1, TDM_PACK, NULL, scene.places),
                     TDM_E_LIMIT);
}

/* Placing the two bundles of 4 GPUs first would leave no space for a bundle of 3. Only 4+3+3 on
 * each node is possible. */
static void arrangement_that_greed_misses_is_found(void **state)
{
    struct scene scene = {0};

    (void)state;
    add_node(&scene, 0, 2);
    add_bundles(&scene, 2, 0, 4000);
    add_bundles(&scene, 4, 0, 3000);
    assert_int_equal(plan(&scene, TDM_STRICT_PACK), TDM_OK);
    lies_on(&scene, 0, 0, 0);
    lies_on(&scene, 1, 0, 1);
}

static void actor_is_placed_on_its_owner_node_or_where_it_fits(void **state)
{
    struct scene scene = {0};
    struct tdm__placement_request wish = {.wanted = {.cpu = 20000, .gpu = 5000}};
    struct tdm__bundle_placement place;

    (void)state;
    add_node(&scene, 2, 1);
    add_node(&scene, 4, 1);
    add_node(&scene, 4, 1);
    wish.owner_node = scene.nodes[0].id;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 0);
    assert_int_equal(place.grant.gpu_amount, 5000);
    scene.nodes[0].pool.gpus[0].free = 4000;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 1);
    wish.wanted.cpu = 50000;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place),
                     TDM_E_NO_RESOURCES);
    wish.wanted.cpu = 40000;
    scene.nodes[1].pool.cpu.free = 0;
    scene.nodes[2].pool.cpu.free = 0;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_E_AGAIN);
}

static void scheduling_chooses_the_node(void **state)
{
    struct scene scene = {0};
    struct tdm__placement_request wish = {.wanted = {.cpu = 10000}};
    struct tdm__bundle_placement place;

    (void)state;
    add_node(&scene, 4, 0);
    add_node(&scene, 2, 0);
    add_node(&scene, 3, 0);
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 1); /* The node with the least free CPU. */
    wish.owner_node = scene.nodes[2].id;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 2);
    wish.scheduling = TDM_SCHEDULE_SPREAD;
    scene.nodes[0].actors_count = 2;
    scene.nodes[1].actors_count = 1;
    scene.nodes[2].actors_count = 1;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 1);
    wish.scheduling = TDM_SCHEDULE_NODE_SOFT;
    wish.node = scene.nodes[0].id;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 0);
    scene.nodes[0].pool.cpu.free = 0;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 2);
    wish.scheduling = TDM_SCHEDULE_NODE;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place), TDM_E_AGAIN);
    wish.node.bytes[0] ^= 0xff;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 3, &wish, NULL, &place),
                     TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "is not in the cluster"));
}

static void labels_rule_nodes_out(void **state)
{
    struct scene scene = {0};
    struct tdm__placement_request wish = {.wanted = {.cpu = 10000}};
    struct tdm__bundle_placement place;

    (void)state;
    add_node(&scene, 1, 0);
    add_node(&scene, 2, 0);
    assert_int_equal(tdm__labels_add(&scene.nodes[1].labels, "zone=b"), TDM_OK);
    assert_int_equal(tdm__labels_add_constraint(&wish.labels, "zone=b"), TDM_OK);
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 2, &wish, NULL, &place), TDM_OK);
    assert_int_equal(place.node, 1);
    wish.wanted.cpu = 30000;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 2, &wish, NULL, &place),
                     TDM_E_NO_RESOURCES);
    assert_int_equal(tdm__labels_add_constraint(&wish.labels, "zone!=b"), TDM_OK);
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 2, &wish, NULL, &place),
                     TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "no node has the required labels"));
}

/* ---- chance ----------------------------------------------------------------------------- */

static void actor_is_placed_on_one_of_the_best_nodes(void **state)
{
    struct scene scene = {0};
    struct tdm__placement_request wish = {.wanted = {.cpu = 10000},
                                          .scheduling = TDM_SCHEDULE_SPREAD};
    struct tdm__bundle_placement place;
    uint32_t counts[4] = {0};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        add_node(&scene, 4, 0);
    }
    scene.nodes[1].actors_count = 1; /* The others are equal. */
    scene.chance.width = 8;
    for (scene.chance.seed = 0; scene.chance.seed < 300; scene.chance.seed++) {
        assert_int_equal(tdm__placement_choose_one(scene.nodes, 4, &wish, &scene.chance, &place),
                         TDM_OK);
        counts[place.node]++;
    }
    assert_int_equal(counts[1], 0);
    assert_int_equal(counts[0], 100);
    assert_int_equal(counts[2], 100);
    assert_int_equal(counts[3], 100);
    /* The node of the last attempt is taken again, with SPREAD only if it is still among the best.
     */
    scene.chance.again = scene.nodes[1].id;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 4, &wish, &scene.chance, &place),
                     TDM_OK);
    assert_int_not_equal(place.node, 1);
    scene.chance.again = scene.nodes[3].id;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 4, &wish, &scene.chance, &place),
                     TDM_OK);
    assert_int_equal(place.node, 3);
    wish.scheduling = TDM_SCHEDULE_DEFAULT;
    scene.chance.again = scene.nodes[1].id;
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 4, &wish, &scene.chance, &place),
                     TDM_OK);
    assert_int_equal(place.node, 1);
    /* The owner's node stays the best if it fits. */
    scene.chance.again = scene.nodes[2].id;
    wish =
        (struct tdm__placement_request){.wanted = {.cpu = 10000}, .owner_node = scene.nodes[1].id};
    assert_int_equal(tdm__placement_choose_one(scene.nodes, 4, &wish, &scene.chance, &place),
                     TDM_OK);
    assert_int_equal(place.node, 1);
}

static void group_is_placed_on_one_of_the_first_nodes_that_fit(void **state)
{
    uint32_t counts[4] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct scene scene = {.chance = {.width = 16, .seed = seed}};

        for (uint32_t i = 0; i < 4; i++) {
            add_node(&scene, 4, i == 2 ? 1 : 2);
        }
        add_bundles(&scene, 2, 10000, 10000);
        assert_int_equal(plan(&scene, TDM_PACK), TDM_OK);
        assert_int_equal(scene.places[0].node, scene.places[1].node);
        counts[scene.places[0].node]++;
    }
    assert_int_equal(counts[2], 0);
    assert_in_range(counts[0], 80, 120);
    assert_in_range(counts[1], 80, 120);
    assert_in_range(counts[3], 80, 120);
}

static void chance_widens_with_the_spread(void **state)
{
    const struct tdm__id id = {.bytes = {1}};

    (void)state;
    assert_int_equal(tdm__placement_chance_of(&id, 0, 0).width, 1);
    assert_int_equal(tdm__placement_chance_of(&id, 0, 3).width, 8);
    assert_int_equal(tdm__placement_chance_of(&id, 0, 1000).width, 1024);
    assert_true(tdm__placement_chance_of(&id, 0, 3).seed !=
                tdm__placement_chance_of(&id, 2, 3).seed);
    assert_true(tdm__placement_chance_of(&id, 0, 3).seed ==
                tdm__placement_chance_of(&id, 1, 3).seed);
}

/* ---- properties of random layouts ------------------------------------------------------- */

static void random_scene(struct test_random *chance, struct scene *scene)
{
    static const int64_t gpus[] = {0, 0, 2000, 4000, 5000, 10000, 10000, 20000};
    uint32_t kinds = 1 + test_random_below(chance, 3);
    uint32_t width = 1u << test_random_below(chance, 4);
    uint32_t nodes_count = 1 + test_random_below(chance, NODES_MAX);

    memset(scene, 0, sizeof(*scene));
    scene->chance =
        (struct tdm__placement_chance){.width = width, .seed = test_random_below(chance, 1000)};
    for (uint32_t i = 0; i < nodes_count; i++) {
        struct tdm__pool *pool = &scene->nodes[i].pool;

        add_node(scene, test_random_below(chance, 9), test_random_below(chance, 5));
        for (uint32_t gpu = 0; gpu < pool->gpus_count; gpu++) {
            pool->gpus[gpu].free -= INT64_C(2000) * (test_random_below(chance, 3) == 0);
        }
    }
    for (uint32_t kind = 0; kind < kinds; kind++) {
        add_bundles(scene, 1 + test_random_below(chance, BUNDLES_MAX / 3),
                    test_random_below(chance, 3) * INT64_C(5000),
                    gpus[test_random_below(chance, 8)]);
    }
}

/* Allocates every grant from the pools, which fails if one is not free or is allocated twice. */
static void check_not_oversubscribed(const struct scene *scene)
{
    struct tdm__pool pools[NODES_MAX];

    for (uint32_t i = 0; i < scene->nodes_count; i++) {
        pools[i] = scene->nodes[i].pool;
    }
    for (uint32_t i = 0; i < scene->bundles_count; i++) {
        const struct tdm__grant *grant = &scene->places[i].grant;

        assert_int_equal(grant->cpu, scene->bundles[i].cpu);
        assert_int_equal((int64_t)grant->gpus_count * grant->gpu_amount, scene->bundles[i].gpu);
        assert_int_equal(tdm__pool_allocate_grant(&pools[scene->places[i].node], grant), TDM_OK);
    }
}

static void check_strict(const struct scene *scene, enum tdm_placement_strategy strategy)
{
    for (uint32_t i = 0; i < scene->bundles_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            bool same = scene->places[i].node == scene->places[k].node;

            assert_false(strategy == TDM_STRICT_PACK && !same);
            assert_false(strategy == TDM_STRICT_SPREAD && same);
        }
    }
}

static uint64_t place_number(const struct tdm__bundle_placement *place)
{
    return (uint64_t)place->node << 32 | place->grant.gpu_indices[0];
}

static void check_order(const struct scene *scene)
{
    for (uint32_t i = 0; i < scene->bundles_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (tdm__resources_equal(&scene->bundles[i], &scene->bundles[k])) {
                assert_true(place_number(&scene->places[k]) <= place_number(&scene->places[i]));
            }
        }
    }
}

static void random_placements_keep_every_invariant(void **state)
{
    enum { LAYOUTS = 4000 };
    struct test_random chance = test_random_init("random_placements_keep_every_invariant", 11);
    uint32_t outcomes[3] = {0};
    static struct scene scene;

    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        enum tdm_placement_strategy strategy =
            (enum tdm_placement_strategy)test_random_below(&chance, 4);
        struct scene before;
        tdm_status status;

        random_scene(&chance, &scene);
        before = scene;
        status = plan(&scene, strategy);
        if (status != TDM_OK) {
            assert_true(status == TDM_E_AGAIN || status == TDM_E_NO_RESOURCES);
            /* A failure changes nothing. */
            assert_memory_equal(&scene, &before, sizeof(scene));
            outcomes[status == TDM_E_AGAIN ? 1 : 2]++;
            continue;
        }
        outcomes[0]++;
        check_not_oversubscribed(&scene);
        check_strict(&scene, strategy);
        check_order(&scene);
    }
    print_message("%u placed, %u busy, %u never\n", outcomes[0], outcomes[1], outcomes[2]);
    assert_true(outcomes[0] >= 1000 && outcomes[1] >= 100 && outcomes[2] >= 100);
}

/* Reference implementation: tries every GPU of every node for every bundle. */
static bool can_place(struct scene *scene, uint32_t bundle, enum tdm_placement_strategy strategy,
                      uint32_t used_nodes)
{
    if (bundle == scene->bundles_count) {
        return true;
    }
    for (uint32_t node = 0; node < scene->nodes_count; node++) {
        struct tdm__pool *pool = &scene->nodes[node].pool;
        uint32_t here = UINT32_C(1) << node;

        if ((strategy == TDM_STRICT_SPREAD && (used_nodes & here) != 0) ||
            (strategy == TDM_STRICT_PACK && (used_nodes & ~here) != 0)) {
            continue;
        }
        for (uint32_t gpu = 0; gpu <= pool->gpus_count; gpu++) {
            struct tdm__grant grant;
            bool placed = false;

            if (tdm__pool_allocate_on_gpu(pool, &scene->bundles[bundle], gpu, &grant)) {
                placed = can_place(scene, bundle + 1, strategy, used_nodes | here);
                assert_int_equal(tdm__pool_release_grant(pool, &grant), TDM_OK);
            }
            if (placed) {
                return true;
            }
        }
    }
    return false;
}

static void placements_fail_only_if_none_exists(void **state)
{
    enum { LAYOUTS = 1500 };
    struct test_random chance = test_random_init("placements_fail_only_if_none_exists", 13);
    static struct scene scene;

    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        enum tdm_placement_strategy strategy =
            (enum tdm_placement_strategy)test_random_below(&chance, 4);
        tdm_status status;
        bool now;
        bool ever;

        random_scene(&chance, &scene);
        scene.nodes_count = scene.nodes_count > 2 ? 2 : scene.nodes_count;
        scene.bundles_count = scene.bundles_count > 6 ? 6 : scene.bundles_count;
        status = plan(&scene, strategy);
        now = can_place(&scene, 0, strategy, 0);
        for (uint32_t node = 0; node < scene.nodes_count; node++) {
            tdm__pool_release_all(&scene.nodes[node].pool);
        }
        ever = can_place(&scene, 0, strategy, 0);
        assert_int_equal(status, now ? TDM_OK : ever ? TDM_E_AGAIN : TDM_E_NO_RESOURCES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scheduling_chooses_the_node),
        cmocka_unit_test(labels_rule_nodes_out),
        cmocka_unit_test(equal_bundles_come_node_by_node_and_gpu_by_gpu),
        cmocka_unit_test(pack_takes_one_node_where_one_is_enough),
        cmocka_unit_test(spread_takes_as_many_nodes_as_it_can),
        cmocka_unit_test(fractional_bundles_share_a_gpu_and_others_do_not),
        cmocka_unit_test(busy_resources_differ_from_impossible_requests),
        cmocka_unit_test(kept_node_takes_only_requests_for_nothing),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(arrangement_that_greed_misses_is_found),
        cmocka_unit_test(actor_is_placed_on_its_owner_node_or_where_it_fits),
        cmocka_unit_test(actor_is_placed_on_one_of_the_best_nodes),
        cmocka_unit_test(group_is_placed_on_one_of_the_first_nodes_that_fit),
        cmocka_unit_test(chance_widens_with_the_spread),
        cmocka_unit_test(random_placements_keep_every_invariant),
        cmocka_unit_test(placements_fail_only_if_none_exists),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
