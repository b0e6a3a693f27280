/* placement_together_test.c - bundles that belong together get GPUs of one node, in order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/placement_together.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { NODES_MAX = 4, BUNDLES_MAX = 8 };

/* A cluster and a request. */
struct scene {
    struct tdm__node_resources nodes[NODES_MAX];
    uint32_t nodes_count;
    struct tdm__resources bundles[BUNDLES_MAX];
    struct tdm__bundle_placement places[BUNDLES_MAX];
};

static void add_node(struct scene *scene, int64_t gpus)
{
    struct tdm__node_resources *node = &scene->nodes[scene->nodes_count];
    const struct tdm__resources totals = {.cpu = INT64_C(8) * TDM__RESOURCE_ONE,
                                          .gpu = gpus * TDM__RESOURCE_ONE};

    node->id.bytes[0] = (uint8_t)(scene->nodes_count + 1);
    (void)snprintf(node->name, sizeof(node->name), "node-%u", scene->nodes_count);
    assert_int_equal(tdm__pool_init(&node->pool, &totals), TDM_OK);
    scene->nodes_count++;
}

/* Takes one GPU of a node. */
static void use_gpu(struct scene *scene, uint32_t node, uint32_t gpu)
{
    scene->nodes[node].pool.gpus[gpu].free = 0;
}

/* Places `count` bundles with a GPU and half a CPU each, `together` of them on one node. */
static tdm_status place(struct scene *scene, uint32_t count, uint32_t together)
{
    for (uint32_t i = 0; i < count; i++) {
        scene->bundles[i].gpu = TDM__RESOURCE_ONE;
        scene->bundles[i].cpu = TDM__RESOURCE_ONE / 2;
    }
    return tdm__placement_choose_together(scene->nodes, scene->nodes_count, scene->bundles, count,
                                          together, TDM_PACK, NULL, scene->places);
}

static void lies_on(const struct scene *scene, uint32_t bundle, uint32_t node, uint32_t gpu)
{
    const struct tdm__bundle_placement *placement = &scene->places[bundle];

    assert_int_equal(placement->node, node);
    assert_int_equal(placement->grant.gpus_count, 1);
    assert_int_equal(placement->grant.gpu_indices[0], gpu);
    assert_int_equal(placement->grant.gpu_indices[1], 0);
    assert_int_equal(placement->grant.gpu_amount, TDM__RESOURCE_ONE);
    assert_int_equal(placement->grant.cpu, TDM__RESOURCE_ONE / 2);
}

/* With one node for each bundle alone, PACK would take three GPUs of the first node. */
static void pairs_are_not_divided_among_nodes(void **state)
{
    struct scene scene = {.nodes_count = 0};

    (void)state;
    add_node(&scene, 4);
    add_node(&scene, 4);
    use_gpu(&scene, 0, 1);
    use_gpu(&scene, 1, 0);
    assert_int_equal(place(&scene, 4, 1), TDM_OK);
    assert_int_equal(scene.places[2].node, 0);
    assert_int_equal(scene.places[3].node, 1);
    assert_int_equal(place(&scene, 4, 2), TDM_OK);
    lies_on(&scene, 0, 0, 0);
    lies_on(&scene, 1, 0, 2);
    lies_on(&scene, 2, 1, 1);
    lies_on(&scene, 3, 1, 2);
}

static void sets_are_numbered_node_by_node(void **state)
{
    struct scene scene = {.nodes_count = 0};

    (void)state;
    add_node(&scene, 2);
    add_node(&scene, 4);
    add_node(&scene, 2);
    assert_int_equal(place(&scene, 8, 2), TDM_OK);
    for (uint32_t i = 0; i < 8; i++) {
        lies_on(&scene, i, i < 2 ? 0 : (i < 6 ? 1 : 2), i < 2 ? i : (i - 2) % 4);
    }
}

static void sets_that_fit_no_node_are_refused_with_their_size(void **state)
{
    struct scene scene = {.nodes_count = 0};

    (void)state;
    add_node(&scene, 3);
    add_node(&scene, 3);
    assert_int_equal(place(&scene, 6, 2), TDM_E_NO_RESOURCES);
    assert_non_null(strstr(tdm_error_detail(), "3 x {CPU 1, GPU 2}"));
    assert_int_equal(place(&scene, 4, 2), TDM_OK);
    use_gpu(&scene, 0, 0);
    use_gpu(&scene, 0, 1);
    assert_int_equal(place(&scene, 4, 2), TDM_E_AGAIN);
}

static void bundles_that_cannot_be_divided_are_refused(void **state)
{
    struct scene scene = {.nodes_count = 0};

    (void)state;
    add_node(&scene, 4);
    assert_int_equal(place(&scene, 3, 2), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "3 bundles do not divide into sets of 2"));
    assert_int_equal(place(&scene, 0, 2), TDM_E_INVAL);
    scene.bundles[1].custom[0] = (struct tdm__custom_resource){"disk", 1};
    assert_int_equal(place(&scene, 2, 2), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "bundle 1 differs from bundle 0"));
    scene.bundles[0].custom[0] = (struct tdm__custom_resource){"disk", TDM__RESOURCE_AMOUNT_MAX};
    scene.bundles[1] = scene.bundles[0];
    assert_int_equal(place(&scene, 2, 2), TDM_E_LIMIT);
    memset(scene.bundles, 0, sizeof(scene.bundles));
    for (uint32_t i = 0; i < 2; i++) {
        scene.bundles[i].gpu = TDM__RESOURCE_ONE / 2;
    }
    assert_int_equal(tdm__placement_choose_together(scene.nodes, 1, scene.bundles, 2, 2, TDM_PACK,
                                                    NULL, scene.places),
                     TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "bundle 0 has a fraction of a GPU"));
}

static void named_resources_are_divided_exactly(void **state)
{
    const struct tdm__resources totals = {.custom = {{"disk", 60000}}};
    const struct tdm__resources bundle = {.custom = {{"disk", 20000}}};
    const struct tdm__resources bundles[] = {bundle, bundle, bundle};
    struct tdm__node_resources node = {.name = "node"};
    struct tdm__bundle_placement places[3];

    (void)state;
    assert_int_equal(tdm__pool_init(&node.pool, &totals), TDM_OK);
    assert_int_equal(
        tdm__placement_choose_together(&node, 1, bundles, 3, 3, TDM_STRICT_SPREAD, NULL, places),
        TDM_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(tdm__pool_allocate_grant(&node.pool, &places[i].grant), TDM_OK);
    }
    assert_int_equal(node.pool.custom[0].amount.free, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_not_divided_among_nodes),
        cmocka_unit_test(sets_are_numbered_node_by_node),
        cmocka_unit_test(sets_that_fit_no_node_are_refused_with_their_size),
        cmocka_unit_test(bundles_that_cannot_be_divided_are_refused),
        cmocka_unit_test(named_resources_are_divided_exactly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
