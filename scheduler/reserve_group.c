/* reserve_group.c - places for the bundles of a placement group, all or none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/error.h"
#include "scheduler/attempt.h"
#include "scheduler/reserve.h"

#include <stdlib.h>
#include <string.h>

/* ---- reserve ---------------------------------------------------------------------------- */

struct grouping {
    struct tdm__id id;
    struct tdm__resources *wanted; /* owned */
    uint32_t bundles_count;
    enum tdm_placement_strategy strategy;
    struct tdm__group_record record; /* owned; of the last plan */
    tdm__reserve_group_done *fn;
    void *arg;
};

static void grouping_free(struct grouping *grouping)
{
    tdm__group_record_fini(&grouping->record);
    free(grouping->wanted);
    free(grouping);
}

/* Takes every planned grant from its node, and makes each bundle a pool of its own. */
static tdm_status apply_plan(struct grouping *grouping, struct tdm__nodes_snapshot *snapshot,
                             const struct tdm__bundle_place *places)
{
    for (uint32_t i = 0; i < grouping->bundles_count; i++) {
        struct tdm__bundle_record *bundle = &grouping->record.bundles[i];

        bundle->node = snapshot->nodes[places[i].node].id;
        bundle->grant = places[i].grant;
        tdm__pool_of_grant(&bundle->pool, &places[i].grant);
        TDM_TRY(
            tdm__pool_take_grant(&snapshot->resources[places[i].node].pool, &places[i].grant));
    }
    return TDM_OK;
}

static tdm_status commit_plan(struct grouping *grouping, struct tdm__txn *txn,
                              const struct tdm__nodes_snapshot *snapshot,
                              const struct tdm__bundle_place *places)
{
    char key[TDM__STORE_KEY_BYTES];

    for (uint32_t node = 0; node < snapshot->nodes_count; node++) {
        bool used = false;

        for (uint32_t i = 0; i < grouping->bundles_count && !used; i++) {
            used = places[i].node == node;
        }
        if (used) {
            TDM_TRY(tdm__free_record_put(txn, &snapshot->resources[node]));
        }
    }
    return tdm__group_record_put(txn, tdm__store_key("group", &grouping->id, key),
                                 &grouping->record);
}

static tdm_status plan_group(struct grouping *grouping, struct tdm__txn *txn)
{
    struct tdm__nodes_snapshot snapshot;
    struct tdm__bundle_place *places = calloc(grouping->bundles_count, sizeof(*places));
    tdm_status status;

    if (places == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a plan of %u bundles", grouping->bundles_count);
    }
    status = tdm__nodes_snapshot_read(txn, &snapshot);
    if (status != TDM_OK) {
        free(places);
        return status;
    }
    status =
        snapshot.nodes_count == 0
            ? tdm__fail(TDM_E_AGAIN, "no node has joined again yet")
            : tdm__placement_plan(snapshot.resources, snapshot.nodes_count, grouping->wanted,
                                  grouping->bundles_count, grouping->strategy, places);
    if (status == TDM_OK) {
        status = apply_plan(grouping, &snapshot, places);
    }
    if (status == TDM_OK) {
        status = commit_plan(grouping, txn, &snapshot, places);
    }
    tdm__nodes_snapshot_fini(&snapshot);
    free(places);
    return status;
}

static tdm_status grouping_body(void *arg, struct tdm__txn *txn)
{
    struct grouping *grouping = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__record *own =
        tdm__txn_find(txn, tdm__store_key("group", &grouping->id, key));

    if (own != NULL) { /* an earlier commit, of which no answer came */
        tdm__group_record_fini(&grouping->record);
        return tdm__group_record_read(own, &grouping->record);
    }
    return plan_group(grouping, txn);
}

static void grouping_done(void *arg, tdm_status status, const char *detail)
{
    struct grouping *grouping = arg;

    grouping->fn(grouping->arg, status, detail, status == TDM_OK ? &grouping->record : NULL);
    grouping_free(grouping);
}

tdm_status tdm__reserve_group(struct tdm__loop *loop, struct tdm__store *store,
                              const struct tdm__id *group, const struct tdm__resources *bundles,
                              uint32_t bundles_count, enum tdm_placement_strategy strategy,
                              int64_t deadline_ms, tdm__reserve_group_done *fn, void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {"node/*", "free/*", tdm__store_key("group", group, key)};
    struct grouping *grouping = calloc(1, sizeof(*grouping));
    tdm_status status;

    if (grouping == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", bundles_count);
    }
    *grouping = (struct grouping){
        .id = *group,
        .wanted = calloc(bundles_count, sizeof(*bundles)),
        .bundles_count = bundles_count,
        .strategy = strategy,
        .record = {.bundles_count = bundles_count,
                   .bundles = calloc(bundles_count, sizeof(struct tdm__bundle_record))},
        .fn = fn,
        .arg = arg};
    if (grouping->wanted == NULL || grouping->record.bundles == NULL) {
        grouping_free(grouping);
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", bundles_count);
    }
    memcpy(grouping->wanted, bundles, bundles_count * sizeof(*bundles));
    status = tdm__attempt_in_turn(loop, store, patterns, 3, deadline_ms, grouping_body,
                                  grouping_done, grouping);
    if (status != TDM_OK) {
        grouping_free(grouping);
    }
    return status;
}

/* ---- written again ---------------------------------------------------------------------- */

struct regrouping {
    struct tdm__id id;
    struct tdm__group_record record; /* owned */
    bool without_lost;
    tdm__reserve_done *fn;
    void *arg;
};

static struct tdm__node_resources *snapshot_find(struct tdm__nodes_snapshot *snapshot,
                                                 const struct tdm__id *id)
{
    for (uint32_t i = 0; i < snapshot->nodes_count; i++) {
        if (tdm__id_equal(&snapshot->nodes[i].id, id)) {
            return &snapshot->resources[i];
        }
    }
    return NULL; /* it has left, and all it had */
}

static tdm_status take_bundles_again(struct regrouping *regrouping, struct tdm__txn *txn,
                                     struct tdm__nodes_snapshot *snapshot)
{
    for (uint32_t i = 0; i < regrouping->record.bundles_count; i++) {
        struct tdm__bundle_record *bundle = &regrouping->record.bundles[i];
        struct tdm__node_resources *node = snapshot_find(snapshot, &bundle->node);

        tdm__pool_of_grant(&bundle->pool, &bundle->grant);
        if (node != NULL) {
            TDM_TRY(tdm__pool_take_grant(&node->pool, &bundle->grant));
            TDM_TRY(tdm__free_record_put(txn, node));
        } else if (!regrouping->without_lost) {
            return tdm__fail(TDM_E_AGAIN, "the node of bundle %u is not there", i);
        }
    }
    return TDM_OK;
}

static tdm_status regrouping_body(void *arg, struct tdm__txn *txn)
{
    struct regrouping *regrouping = arg;
    char key[TDM__STORE_KEY_BYTES];
    struct tdm__nodes_snapshot snapshot;
    tdm_status status;

    if (tdm__txn_find(txn, tdm__store_key("group", &regrouping->id, key)) != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__nodes_snapshot_read(txn, &snapshot));
    status = take_bundles_again(regrouping, txn, &snapshot);
    tdm__nodes_snapshot_fini(&snapshot);
    TDM_TRY(status);
    return tdm__group_record_put(txn, key, &regrouping->record);
}

static void regrouping_free(struct regrouping *regrouping)
{
    tdm__group_record_fini(&regrouping->record);
    free(regrouping);
}

static void regrouping_done(void *arg, tdm_status status, const char *detail)
{
    struct regrouping *regrouping = arg;

    regrouping->fn(regrouping->arg, status, detail);
    regrouping_free(regrouping);
}

tdm_status tdm__reserve_group_again(struct tdm__loop *loop, struct tdm__store *store,
                                    const struct tdm__id *id,
                                    const struct tdm__group_record *group, bool without_lost,
                                    int64_t deadline_ms, tdm__reserve_done *fn, void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {"node/*", "free/*", tdm__store_key("group", id, key)};
    struct regrouping *regrouping = calloc(1, sizeof(*regrouping));
    tdm_status status;

    if (regrouping == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", group->bundles_count);
    }
    *regrouping =
        (struct regrouping){.id = *id, .without_lost = without_lost, .fn = fn, .arg = arg};
    status = tdm__group_record_copy(group, &regrouping->record);
    if (status == TDM_OK) {
        status = tdm__attempt_in_turn(loop, store, patterns, 3, deadline_ms, regrouping_body,
                                      regrouping_done, regrouping);
    }
    if (status != TDM_OK) {
        regrouping_free(regrouping);
    }
    return status;
}

/* ---- release ---------------------------------------------------------------------------- */

struct ungrouping {
    struct tdm__id id;
    tdm__reserve_done *fn;
    void *arg;
};

static tdm_status give_back_bundles(const struct tdm__group_record *group, struct tdm__txn *txn,
                                    struct tdm__nodes_snapshot *snapshot)
{
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        struct tdm__node_resources *node = snapshot_find(snapshot, &group->bundles[i].node);

        if (node != NULL) {
            TDM_TRY(tdm__pool_give_back(&node->pool, &group->bundles[i].grant));
            TDM_TRY(tdm__free_record_put(txn, node));
        }
    }
    return TDM_OK;
}

static tdm_status ungrouping_body(void *arg, struct tdm__txn *txn)
{
    struct ungrouping *ungrouping = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__record *record =
        tdm__txn_find(txn, tdm__store_key("group", &ungrouping->id, key));
    struct tdm__nodes_snapshot snapshot;
    struct tdm__group_record group;
    tdm_status status;

    if (record == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__group_record_read(record, &group));
    status = tdm__nodes_snapshot_read(txn, &snapshot);
    if (status == TDM_OK) {
        status = give_back_bundles(&group, txn, &snapshot);
        tdm__nodes_snapshot_fini(&snapshot);
    }
    tdm__group_record_fini(&group);
    TDM_TRY(status);
    return tdm__txn_delete(txn, key);
}

static void ungrouping_done(void *arg, tdm_status status, const char *detail)
{
    struct ungrouping *ungrouping = arg;

    ungrouping->fn(ungrouping->arg, status, detail);
    free(ungrouping);
}

tdm_status tdm__release_group(struct tdm__loop *loop, struct tdm__store *store,
                              const struct tdm__id *group, int64_t deadline_ms,
                              tdm__reserve_done *fn, void *arg)
{
    struct ungrouping *ungrouping = calloc(1, sizeof(*ungrouping));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {"node/*", "free/*", tdm__store_key("group", group, key)};
    tdm_status status;

    if (ungrouping == NULL) {
        return tdm__fail(TDM_E_NOMEM, "removing a group");
    }
    *ungrouping = (struct ungrouping){*group, fn, arg};
    status = tdm__attempt_in_turn(loop, store, patterns, 3, deadline_ms, ungrouping_body,
                                  ungrouping_done, ungrouping);
    if (status != TDM_OK) {
        free(ungrouping);
    }
    return status;
}
