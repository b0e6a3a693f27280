/* reserve_placement_group.c - allocates, finds, closes and removes placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation is a transaction as in reserve.c: its state is allocated for the duration of the
 * transaction and freed by its done function, and its body checks first whether its work is already
 * done.
 *
 * Life of a group: reserved (all bundles or none), closed (it accepts no actors, and the remover
 * tells the nodes to end its actors), released. If the store lost the records, restore writes them
 * again with free bundles. A commit that changes a group also checks the records of its nodes,
 * since a node that joins meanwhile computes its free resources from the groups it reads.
 * Everything runs on the loop's thread. reserve.h specifies the operations. */

#include "runtime/error.h"
#include "runtime/store/check.h"
#include "scheduler/reserve.h"
#include "scheduler/retrying_txn.h"

#include <stdlib.h>
#include <string.h>

/* Returns whether a bundle of the group is on this node. */
static bool has_bundle_on(const struct tdm__placement_group_record *group,
                          const struct tdm__id *node)
{
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        if (tdm__id_equal(&group->bundles[i].node, node)) {
            return true;
        }
    }
    return false;
}

/* A commit checks each node of the group and writes its free record; it also writes the group's
 * record and the name's. */
_Static_assert(2 * TDM_BUNDLES_MAX + 2 <= TDM__STORE_WRITES_MAX,
               "a group with a node for each bundle fits in one commit");

/* Adds a write of the free resources of each node that has a bundle of the group, one per node. */
static tdm_status put_its_nodes(struct tdm__txn *txn, const struct tdm__nodes_snapshot *snapshot,
                                const struct tdm__placement_group_record *group)
{
    for (uint32_t i = 0; i < snapshot->nodes_count; i++) {
        if (has_bundle_on(group, &snapshot->nodes[i].id)) {
            TDM_TRY(tdm__free_record_put(txn, &snapshot->resources[i]));
        }
    }
    return TDM_OK;
}

/* ---- reserve ---------------------------------------------------------------------------- */

/* State of tdm__placement_group_reserve(). */
struct grouping {
    struct tdm__resources *wanted; /* Requested bundles (owned). */
    uint32_t bundles_count;        /* Number of requested bundles. */
    enum tdm_placement_strategy strategy;
    /* The group, with the placement of the last run of the body (owned). */
    struct tdm__placement_group_record record;
    tdm__placement_group_reserve_fn *fn; /* Reports the outcome. */
    void *arg;                           /* Passed to `fn`. */
};

/* Frees the state of a reservation. */
static void grouping_free(struct grouping *grouping)
{
    tdm__placement_group_record_fini(&grouping->record);
    free(grouping->wanted);
    free(grouping);
}

/* Allocates each placed bundle on its node and initialises the bundle's pool. */
static tdm_status apply_plan(struct grouping *grouping, struct tdm__nodes_snapshot *snapshot,
                             const struct tdm__bundle_placement *places)
{
    for (uint32_t i = 0; i < grouping->bundles_count; i++) {
        struct tdm__bundle_record *bundle = &grouping->record.bundles[i];

        bundle->node = snapshot->nodes[places[i].node].id;
        bundle->grant = places[i].grant;
        tdm__pool_of_grant(&bundle->pool, &places[i].grant);
        TDM_TRY(
            tdm__pool_allocate_grant(&snapshot->resources[places[i].node].pool, &places[i].grant));
    }
    return TDM_OK;
}

/* Adds the checks and writes of a placed group to the transaction. */
static tdm_status commit_plan(struct grouping *grouping, struct tdm__txn *txn,
                              const struct tdm__nodes_snapshot *snapshot)
{
    char key[TDM__STORE_KEY_BYTES];

    for (uint32_t i = 0; i < grouping->bundles_count; i++) {
        TDM_TRY(tdm__txn_require_node_unchanged(txn, &grouping->record.bundles[i].node));
    }
    TDM_TRY(put_its_nodes(txn, snapshot, &grouping->record));
    TDM_TRY(tdm__placement_group_name_claim(txn, &grouping->record));
    return tdm__placement_group_record_put(txn, tdm__store_key("group", &grouping->record.id, key),
                                           &grouping->record);
}

/* Places all bundles on the current nodes and adds the writes. */
static tdm_status plan_group(struct grouping *grouping, struct tdm__txn *txn)
{
    struct tdm__nodes_snapshot snapshot;
    struct tdm__bundle_placement *places = calloc(grouping->bundles_count, sizeof(*places));
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
            : tdm__placement_choose_all(snapshot.resources, snapshot.nodes_count, grouping->wanted,
                                        grouping->bundles_count, grouping->strategy, places);
    if (status == TDM_OK) {
        status = apply_plan(grouping, &snapshot, places);
    }
    if (status == TDM_OK) {
        status = commit_plan(grouping, txn, &snapshot);
    }
    tdm__nodes_snapshot_fini(&snapshot);
    free(places);
    return status;
}

/* Places the group, unless an earlier commit has done so. */
static tdm_status grouping_body(void *arg, struct tdm__txn *txn)
{
    struct grouping *grouping = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *own =
        tdm__txn_find_record(txn, tdm__store_key("group", &grouping->record.id, key));

    /* An earlier commit succeeded, but its reply was lost. */
    if (own != NULL) {
        tdm__placement_group_record_fini(&grouping->record);
        return tdm__placement_group_record_read(own, &grouping->record);
    }
    return plan_group(grouping, txn);
}

/* Reports the group and frees the state. */
static void grouping_done(void *arg, tdm_status status, const char *detail)
{
    struct grouping *grouping = arg;

    grouping->fn(grouping->arg, status, detail, status == TDM_OK ? &grouping->record : NULL);
    grouping_free(grouping);
}

/* Allocates the state of a reservation and copies the request. */
static tdm_status grouping_create(const struct tdm__placement_group_request *request,
                                  struct grouping **grouping_out)
{
    struct grouping *grouping = calloc(1, sizeof(*grouping));
    uint32_t count = request->bundles_count;

    if (grouping == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", count);
    }
    *grouping =
        (struct grouping){.wanted = calloc(count, sizeof(*grouping->wanted)),
                          .bundles_count = count,
                          .strategy = request->strategy,
                          .record = {.id = request->id,
                                     .bundles_count = count,
                                     .bundles = calloc(count, sizeof(struct tdm__bundle_record)),
                                     .detached = request->detached,
                                     .owner_node = request->owner_node}};
    if (grouping->wanted == NULL || grouping->record.bundles == NULL) {
        grouping_free(grouping);
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", count);
    }
    memcpy(grouping->wanted, request->bundles, count * sizeof(*grouping->wanted));
    memcpy(grouping->record.name, request->name, sizeof(request->name));
    memcpy(grouping->record.name_space, request->name_space, sizeof(request->name_space));
    *grouping_out = grouping;
    return TDM_OK;
}

tdm_status tdm__placement_group_reserve(struct tdm__store *store,
                                        const struct tdm__placement_group_request *request,
                                        int64_t deadline_ms, tdm__placement_group_reserve_fn *fn,
                                        void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    char name_key[TDM__STORE_KEY_BYTES];
    const char *patterns[4] = {"node/*", "free/*", tdm__store_key("group", &request->id, key)};
    uint32_t count = 3;
    struct grouping *grouping;
    tdm_status status;

    TDM_TRY(grouping_create(request, &grouping));
    grouping->fn = fn;
    grouping->arg = arg;
    if (request->name[0] != '\0') {
        patterns[count++] = tdm__placement_group_name_key(&grouping->record, name_key);
    }
    status = tdm__retrying_txn_run_queued(store, patterns, count, deadline_ms, grouping_body,
                                          grouping_done, grouping);
    if (status != TDM_OK) {
        grouping_free(grouping);
    }
    return status;
}

/* ---- find ------------------------------------------------------------------------------- */

/* State of tdm__placement_group_find(). */
struct finding {
    /* Copy of the query. */
    struct tdm__placement_group_query question;
    /* The found group (owned); zeroed before it is found. */
    struct tdm__placement_group_record record;
    tdm__placement_group_reserve_fn *fn; /* Reports the outcome. */
    void *arg;                           /* Passed to `fn`. */
};

/* Returns whether the group matches the query. Closed groups are found only by ID. */
static bool is_wanted(const struct tdm__placement_group_query *question,
                      const struct tdm__placement_group_record *group)
{
    if (!tdm__id_is_none(&question->id)) {
        return tdm__id_equal(&question->id, &group->id);
    }
    return !group->closed && strcmp(question->name, group->name) == 0 &&
           strcmp(question->name_space, group->name_space) == 0;
}

/* Searches the records that were read. */
static tdm_status finding_body(void *arg, struct tdm__txn *txn)
{
    struct finding *finding = arg;

    for (uint32_t i = 0; i < tdm__txn_records_count(txn); i++) {
        struct tdm__placement_group_record group;

        TDM_TRY(tdm__placement_group_record_read(tdm__txn_record_at(txn, i), &group));
        if (is_wanted(&finding->question, &group)) {
            tdm__placement_group_record_fini(&finding->record);
            finding->record = group;
            return TDM_OK;
        }
        tdm__placement_group_record_fini(&group);
    }
    return tdm__fail(TDM_E_NOT_FOUND, "no placement group \"%s\"", finding->question.name);
}

/* Reports the group and frees the state. */
static void finding_done(void *arg, tdm_status status, const char *detail)
{
    struct finding *finding = arg;

    finding->fn(finding->arg, status, detail, status == TDM_OK ? &finding->record : NULL);
    tdm__placement_group_record_fini(&finding->record);
    free(finding);
}

tdm_status tdm__placement_group_find(struct tdm__store *store,
                                     const struct tdm__placement_group_query *question,
                                     int64_t deadline_ms, tdm__placement_group_reserve_fn *fn,
                                     void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[1] = {"group/*"};
    struct finding *finding = calloc(1, sizeof(*finding));
    tdm_status status;

    if (finding == NULL) {
        return tdm__fail(TDM_E_NOMEM, "finding a group");
    }
    *finding = (struct finding){.question = *question, .fn = fn, .arg = arg};
    if (!tdm__id_is_none(&question->id)) {
        patterns[0] = tdm__store_key("group", &question->id, key);
    }
    status =
        tdm__retrying_txn_run(store, patterns, 1, deadline_ms, finding_body, finding_done, finding);
    if (status != TDM_OK) {
        free(finding);
    }
    return status;
}

/* ---- written again ---------------------------------------------------------------------- */

/* State of tdm__placement_group_restore(). */
struct regrouping {
    /* Copy of the group with free bundles (owned). */
    struct tdm__placement_group_record record;
    bool without_lost;        /* Whether bundles on lost nodes are ignored. */
    tdm__reserve_done_fn *fn; /* Reports the outcome. */
    void *arg;                /* Passed to `fn`. */
};

/* Returns the resources of a node in the snapshot, or NULL if the node is lost. */
static struct tdm__node_resources *snapshot_find(struct tdm__nodes_snapshot *snapshot,
                                                 const struct tdm__id *id)
{
    for (uint32_t i = 0; i < snapshot->nodes_count; i++) {
        if (tdm__id_equal(&snapshot->nodes[i].id, id)) {
            return &snapshot->resources[i];
        }
    }
    return NULL; /* The node is lost with all its resources. */
}

/* Allocates the group's bundles on their nodes again and adds the writes. */
static tdm_status take_bundles_again(const struct regrouping *regrouping, struct tdm__txn *txn,
                                     struct tdm__nodes_snapshot *snapshot)
{
    for (uint32_t i = 0; i < regrouping->record.bundles_count; i++) {
        const struct tdm__bundle_record *bundle = &regrouping->record.bundles[i];
        struct tdm__node_resources *node = snapshot_find(snapshot, &bundle->node);

        if (node != NULL) {
            TDM_TRY(tdm__pool_allocate_grant(&node->pool, &bundle->grant));
        } else if (!regrouping->without_lost) {
            return tdm__fail(TDM_E_AGAIN, "the node of bundle %u is not there", i);
        } else {
            TDM_TRY(tdm__txn_require_node_unchanged(
                txn, &bundle->node)); /* Otherwise it would join without the bundle. */
        }
    }
    return put_its_nodes(txn, snapshot, &regrouping->record);
}

/* Writes the group again, unless it exists. */
static tdm_status regrouping_body(void *arg, struct tdm__txn *txn)
{
    const struct regrouping *regrouping = arg;
    struct tdm__placement_group_record group =
        /* The bundles belong to the state of the operation. */
        regrouping->record;
    char key[TDM__STORE_KEY_BYTES];
    struct tdm__nodes_snapshot snapshot;
    tdm_status status;

    if (tdm__txn_find_record(txn, tdm__store_key("group", &group.id, key)) != NULL) {
        return TDM_OK;
    }
    status = tdm__placement_group_name_claim(txn, &group);
    if (status == TDM_E_EXISTS) {
        group.name[0] = '\0';
    } else if (status != TDM_OK) {
        return status;
    }
    TDM_TRY(tdm__nodes_snapshot_read(txn, &snapshot));
    status = take_bundles_again(regrouping, txn, &snapshot);
    tdm__nodes_snapshot_fini(&snapshot);
    TDM_TRY(status);
    return tdm__placement_group_record_put(txn, key, &group);
}

/* Frees the state of a restoration. */
static void regrouping_free(struct regrouping *regrouping)
{
    tdm__placement_group_record_fini(&regrouping->record);
    free(regrouping);
}

/* Reports the outcome of a restoration. */
static void regrouping_done(void *arg, tdm_status status, const char *detail)
{
    struct regrouping *regrouping = arg;

    regrouping->fn(regrouping->arg, status, detail);
    regrouping_free(regrouping);
}

tdm_status tdm__placement_group_restore(struct tdm__store *store,
                                        const struct tdm__placement_group_record *group,
                                        bool without_lost, int64_t deadline_ms,
                                        tdm__reserve_done_fn *fn, void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    char name_key[TDM__STORE_KEY_BYTES];
    const char *patterns[4] = {"node/*", "free/*", tdm__store_key("group", &group->id, key),
                               tdm__placement_group_name_key(group, name_key)};
    struct regrouping *regrouping = calloc(1, sizeof(*regrouping));
    tdm_status status;

    if (regrouping == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", group->bundles_count);
    }
    *regrouping = (struct regrouping){.without_lost = without_lost, .fn = fn, .arg = arg};
    status = tdm__placement_group_record_copy(group, &regrouping->record);
    if (status == TDM_OK) {
        for (uint32_t i = 0; i < group->bundles_count; i++) {
            tdm__pool_of_grant(&regrouping->record.bundles[i].pool, &group->bundles[i].grant);
        }
        status =
            tdm__retrying_txn_run_queued(store, patterns, name_key[0] == '\0' ? 3 : 4, deadline_ms,
                                         regrouping_body, regrouping_done, regrouping);
    }
    if (status != TDM_OK) {
        regrouping_free(regrouping);
    }
    return status;
}

/* ---- close ------------------------------------------------------------------------------ */

/* State of tdm__placement_group_close(). */
struct closing {
    struct tdm__id id;      /* Group to close. */
    struct tdm__id remover; /* Node that will remove the group. */
    bool is_there;          /* Whether the group exists. */
    /* The closed group (owned); valid if it exists. */
    struct tdm__placement_group_record record;
    struct tdm__nodes_snapshot nodes;  /* Nodes of the cluster (owned). */
    tdm__placement_group_close_fn *fn; /* Reports the outcome. */
    void *arg;                         /* Passed to `fn`. */
};

/* Frees the results of the last run of the body. */
static void closing_forget(struct closing *closing)
{
    tdm__placement_group_record_fini(&closing->record);
    tdm__nodes_snapshot_fini(&closing->nodes);
    closing->nodes = (struct tdm__nodes_snapshot){0};
    closing->is_there = false;
}

/* Reads the group and the nodes, and marks the group as closed. */
static tdm_status closing_body(void *arg, struct tdm__txn *txn)
{
    struct closing *closing = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("group", &closing->id, key));

    closing_forget(closing);
    TDM_TRY(tdm__nodes_snapshot_read(txn, &closing->nodes));
    if (record == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__placement_group_record_read(record, &closing->record));
    closing->is_there = true;
    if (closing->record.closed) {
        return TDM_OK;
    }
    closing->record.closed = true;
    closing->record.owner_node = closing->remover;
    for (uint32_t i = 0; i < closing->record.bundles_count; i++) {
        TDM_TRY(tdm__txn_require_node_unchanged(
            txn, &closing->record.bundles[i].node)); /* Nodes that must be told. */
    }
    return tdm__placement_group_record_put(txn, key, &closing->record);
}

/* Reports the group and the nodes, and frees the state. */
static void closing_done(void *arg, tdm_status status, const char *detail)
{
    struct closing *closing = arg;

    closing->fn(closing->arg, status, detail, closing->is_there ? &closing->record : NULL,
                &closing->nodes);
    closing_forget(closing);
    free(closing);
}

tdm_status tdm__placement_group_close(struct tdm__store *store,
                                      const struct tdm__placement_group_record *group,
                                      int64_t deadline_ms, tdm__placement_group_close_fn *fn,
                                      void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {"node/*", "free/*", tdm__store_key("group", &group->id, key)};
    struct closing *closing = calloc(1, sizeof(*closing));
    tdm_status status;

    if (closing == NULL) {
        return tdm__fail(TDM_E_NOMEM, "closing a group");
    }
    *closing =
        (struct closing){.id = group->id, .remover = group->owner_node, .fn = fn, .arg = arg};
    status = tdm__retrying_txn_run_queued(store, patterns, 3, deadline_ms, closing_body,
                                          closing_done, closing);
    if (status != TDM_OK) {
        free(closing);
    }
    return status;
}

/* ---- release ---------------------------------------------------------------------------- */

/* State of tdm__placement_group_release(). */
struct ungrouping {
    /* ID and names of the group, without its bundles. */
    struct tdm__placement_group_record named;
    tdm__reserve_done_fn *fn; /* Reports the outcome. */
    void *arg;                /* Passed to `fn`. */
};

/* Releases the group's bundles on their nodes and adds the writes. */
static tdm_status give_back_bundles(const struct tdm__placement_group_record *group,
                                    struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot)
{
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        struct tdm__node_resources *node = snapshot_find(snapshot, &group->bundles[i].node);

        if (node != NULL) { /* Failure: the node has joined again without it. */
            (void)tdm__pool_release_grant(&node->pool, &group->bundles[i].grant);
        } else { /* The node may be joining with the bundle. */
            TDM_TRY(tdm__txn_require_node_unchanged(txn, &group->bundles[i].node));
        }
    }
    return put_its_nodes(txn, snapshot, group);
}

/* Removes the group's records and releases its resources. */
static tdm_status ungrouping_body(void *arg, struct tdm__txn *txn)
{
    struct ungrouping *ungrouping = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("group", &ungrouping->named.id, key));
    struct tdm__nodes_snapshot snapshot;
    struct tdm__placement_group_record group;
    tdm_status status;

    TDM_TRY(tdm__placement_group_name_release(txn, &ungrouping->named));
    if (record == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__placement_group_record_read(record, &group));
    status = tdm__nodes_snapshot_read(txn, &snapshot);
    if (status == TDM_OK) {
        status = give_back_bundles(&group, txn, &snapshot);
        tdm__nodes_snapshot_fini(&snapshot);
    }
    tdm__placement_group_record_fini(&group);
    TDM_TRY(status);
    return tdm__txn_delete(txn, key);
}

/* Reports the outcome of a removal. */
static void ungrouping_done(void *arg, tdm_status status, const char *detail)
{
    struct ungrouping *ungrouping = arg;

    ungrouping->fn(ungrouping->arg, status, detail);
    free(ungrouping);
}

tdm_status tdm__placement_group_release(struct tdm__store *store,
                                        const struct tdm__placement_group_record *group,
                                        int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    char name_key[TDM__STORE_KEY_BYTES];
    const char *patterns[4] = {"node/*", "free/*", tdm__store_key("group", &group->id, key),
                               tdm__placement_group_name_key(group, name_key)};
    struct ungrouping *ungrouping = calloc(1, sizeof(*ungrouping));
    tdm_status status;

    if (ungrouping == NULL) {
        return tdm__fail(TDM_E_NOMEM, "removing a group");
    }
    *ungrouping = (struct ungrouping){*group, fn, arg};
    ungrouping->named.bundles = NULL;
    status = tdm__retrying_txn_run_queued(store, patterns, name_key[0] == '\0' ? 3 : 4, deadline_ms,
                                          ungrouping_body, ungrouping_done, ungrouping);
    if (status != TDM_OK) {
        free(ungrouping);
    }
    return status;
}
