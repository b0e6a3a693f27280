/* placement_together.c - chooses nodes for bundles of which several must be on one node. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each set of bundles becomes one large bundle. tdm__placement_choose_all() places the large
 * bundles, and each grant is then divided among the bundles of its set. Bundles of a set are equal,
 * so that every division is exact. The functions are pure, and any thread may call them. */
#include "scheduler/placement_together.h"

#include "runtime/error.h"

#include <stdlib.h>

/* Returns whether the resources of `together` bundles like this one are larger than any amount. */
static bool is_too_large(const struct tdm__resources *bundle, uint32_t together)
{
    int64_t limit = TDM__RESOURCE_AMOUNT_MAX / together;
    bool is_large = bundle->cpu > limit || bundle->gpu > limit;

    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        is_large = is_large || bundle->custom[i].amount > limit;
    }
    return is_large;
}

/* Checks that the bundles divide into sets of `together` equal ones without fractions of GPUs. */
static tdm_status check_sets(const struct tdm__resources *bundles, uint32_t bundles_count,
                             uint32_t together)
{
    if (bundles_count == 0 || bundles_count % together != 0) {
        return tdm__fail(TDM_E_INVAL,
                         "%u bundles do not divide into sets of %u that are placed together",
                         bundles_count, together);
    }
    for (uint32_t i = 0; i < bundles_count; i++) {
        const struct tdm__resources *first = &bundles[i - i % together];

        if (!tdm__resources_equal(&bundles[i], first)) {
            return tdm__fail(TDM_E_INVAL,
                             "bundle %u differs from bundle %u, with which it is placed together",
                             i, i - i % together);
        }
        if (bundles[i].gpu % TDM__RESOURCE_ONE != 0) {
            return tdm__fail(TDM_E_INVAL,
                             "bundle %u has a fraction of a GPU: bundles that are placed together "
                             "have whole GPUs",
                             i);
        }
        if (is_too_large(&bundles[i], together)) {
            return tdm__fail(TDM_E_LIMIT, "%u bundles like bundle %u are too large for one node",
                             together, i);
        }
    }
    return TDM_OK;
}

/* Returns the resources of `together` bundles like this one. */
static struct tdm__resources multiply(const struct tdm__resources *bundle, uint32_t together)
{
    struct tdm__resources sum = *bundle;

    sum.cpu *= together;
    sum.gpu *= together;
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        sum.custom[i].amount *= together;
    }
    return sum;
}

/* Returns the grant of bundle number `index` of a set: its share of the grant of the set. */
static struct tdm__grant share_of_grant(const struct tdm__grant *set, uint32_t index,
                                        uint32_t together)
{
    struct tdm__grant share = *set;

    share.cpu /= together;
    share.gpus_count /= together;
    for (uint32_t i = 0; i < TDM__NODE_GPUS_MAX; i++) {
        share.gpu_indices[i] =
            i < share.gpus_count ? set->gpu_indices[index * share.gpus_count + i] : 0;
    }
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        share.custom[i].amount /= together;
    }
    return share;
}

tdm_status tdm__placement_choose_together(const struct tdm__node_resources *nodes,
                                          uint32_t nodes_count,
                                          const struct tdm__resources *bundles,
                                          uint32_t bundles_count, uint32_t together,
                                          enum tdm_placement_strategy strategy,
                                          const struct tdm__placement_chance *chance,
                                          struct tdm__bundle_placement *placements_out)
{
    uint32_t sets_count = bundles_count / (together == 0 ? 1 : together);
    struct tdm__resources *sets;
    tdm_status status;

    if (together <= 1) {
        return tdm__placement_choose_all(nodes, nodes_count, bundles, bundles_count, strategy,
                                         chance, placements_out);
    }
    TDM_TRY(check_sets(bundles, bundles_count, together));
    sets = calloc(sets_count, sizeof(*sets));
    if (sets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u sets of bundles", sets_count);
    }
    for (uint32_t i = 0; i < sets_count; i++) {
        sets[i] = multiply(&bundles[(size_t)i * together], together);
    }
    /* The output has room for more than one entry for each set. The sets are divided from the last
     * one, so that no entry is overwritten before it is read. */
    status = tdm__placement_choose_all(nodes, nodes_count, sets, sets_count, strategy, chance,
                                       placements_out);
    free(sets);
    for (uint32_t i = status == TDM_OK ? bundles_count : 0; i-- > 0;) {
        const struct tdm__bundle_placement set = placements_out[i / together];

        placements_out[i] = (struct tdm__bundle_placement){
            set.node, share_of_grant(&set.grant, i % together, together)};
    }
    return status;
}
