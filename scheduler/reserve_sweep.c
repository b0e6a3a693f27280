/* reserve_sweep.c - removes the records that lost nodes left, and finds their placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A lost node has no node record any more, but records of its resources, actors and names remain.
 * Every daemon sweeps them now and then; several may do so at the same time, and the transactions
 * resolve that. Records of actors that their owner node will create again are kept.
 *
 * Groups of lost nodes are only reported: the daemon that finds one must end its actors before it
 * removes the group. Everything runs on the loop's thread. reserve.h specifies the operations. */

#include "runtime/error.h"
#include "runtime/store/txn.h"
#include "scheduler/reserve.h"
#include "scheduler/retrying_txn.h"

#include <stdlib.h>
#include <string.h>

/* Largest number of records that one transaction removes. Other processes wait while the store
 * removes them. */
enum { RECORDS_AT_ONCE = 900 };

/* State of tdm__reserve_sweep(). */
struct sweep {
    struct tdm__id self; /* ID of the node that sweeps. */
    /* Number of records that the last run of the transaction's body removed. */
    uint32_t removed_count;
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Returns whether the node was in the cluster when the transaction read the records. */
static bool node_is_present(const struct tdm__txn *txn, const struct tdm__id *node)
{
    char key[TDM__STORE_KEY_BYTES];

    return tdm__txn_find_record(txn, tdm__store_key("node", node, key)) != NULL;
}

/* Returns whether the record is about the resources of a lost node, or about an actor of a lost
 * node that will not be created again. Stores the ID of that node in `node_out`. */
static bool is_of_lost_node(const struct tdm__txn *txn, const struct tdm__store_record *record,
                            struct tdm__id *node_out)
{
    struct tdm__actor_record actor;

    if (strncmp(record->key, "free/", 5) == 0) {
        return tdm__id_parse(record->key + 5, node_out) == TDM_OK &&
               !node_is_present(txn, node_out);
    }
    if (strncmp(record->key, "node/", 5) == 0 || tdm__actor_record_read(record, &actor) != TDM_OK) {
        return false;
    }
    *node_out = actor.node;
    return !node_is_present(txn, &actor.node) &&
           !(actor.recreate_on_node_loss && node_is_present(txn, &actor.owner_node));
}

/* Body of the transaction of a sweep: removes at most RECORDS_AT_ONCE records of actors on lost
 * nodes. */
static tdm_status sweep_body(void *arg, struct tdm__txn *txn)
{
    struct sweep *sweep = arg;

    sweep->removed_count = 0;
    for (uint32_t i = 0; i < tdm__txn_records_count(txn) && sweep->removed_count < RECORDS_AT_ONCE;
         i++) {
        const struct tdm__store_record *record = tdm__txn_record_at(txn, i);
        struct tdm__id lost;

        if (is_of_lost_node(txn, record, &lost)) {
            TDM_TRY(tdm__txn_require_node_lost(txn, &sweep->self, &lost));
            TDM_TRY(tdm__txn_delete(txn, record->key));
            sweep->removed_count++;
        }
    }
    return TDM_OK;
}

/* Reports the outcome of a sweep, TDM_E_AGAIN if records may remain, and frees the sweep's
 * state. */
static void sweep_done(void *arg, tdm_status status, const char *detail)
{
    struct sweep *sweep = arg;
    bool is_complete = status != TDM_OK || sweep->removed_count < RECORDS_AT_ONCE;

    sweep->fn(sweep->arg, is_complete ? status : TDM_E_AGAIN, detail);
    free(sweep);
}

tdm_status tdm__reserve_sweep(struct tdm__store *store, const struct tdm__id *self,
                              int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg)
{
    static const char *const patterns[] = {"node/*", "free/*", "actor/*", "name/*"};
    struct sweep *sweep = calloc(1, sizeof(*sweep));
    tdm_status status;

    if (sweep == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a sweep of records");
    }
    *sweep = (struct sweep){.self = *self, .fn = fn, .arg = arg};
    status = tdm__retrying_txn_run(store, patterns, 4, deadline_ms, sweep_body, sweep_done, sweep);
    if (status != TDM_OK) {
        free(sweep);
    }
    return status;
}

/* ---- a node leaves ---------------------------------------------------------------------- */

/* State of tdm__reserve_leave(). */
struct leave {
    struct tdm__id node;      /* ID of the node that leaves. */
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Body of the transaction that removes a node's own records. */
static tdm_status leave_body(void *arg, struct tdm__txn *txn)
{
    const struct leave *leave = arg;
    char key[TDM__STORE_KEY_BYTES];

    TDM_TRY(tdm__txn_delete(txn, tdm__store_key("node", &leave->node, key)));
    return tdm__txn_delete(txn, tdm__store_key("free", &leave->node, key));
}

/* Reports that the node has left, and frees the operation's state. */
static void leave_done(void *arg, tdm_status status, const char *detail)
{
    struct leave *leave = arg;

    leave->fn(leave->arg, status, detail);
    free(leave);
}

tdm_status tdm__reserve_leave(struct tdm__store *store, const struct tdm__id *node,
                              int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg)
{
    char node_key[TDM__STORE_KEY_BYTES];
    char free_key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("node", node, node_key),
                              tdm__store_key("free", node, free_key)};
    struct leave *leave = calloc(1, sizeof(*leave));
    tdm_status status;

    if (leave == NULL) {
        return tdm__fail(TDM_E_NOMEM, "leaving the cluster");
    }
    *leave = (struct leave){*node, fn, arg};
    status = tdm__retrying_txn_run(store, patterns, 2, deadline_ms, leave_body, leave_done, leave);
    if (status != TDM_OK) {
        free(leave);
    }
    return status;
}

/* ---- groups ----------------------------------------------------------------------------- */

/* State of tdm__placement_groups_find_orphans(). */
struct orphans {
    struct tdm__id self;                  /* ID of the node that searches for orphans. */
    struct tdm__id *groups;               /* IDs of the orphaned placement groups (owned). */
    uint32_t groups_count;                /* Number of entries in `groups`. */
    tdm__placement_groups_orphans_fn *fn; /* Callback that gets the orphaned placement groups. */
    void *arg;                            /* First argument of the callback `fn`. */
};

/* Appends the ID of the placement group in `record` to the orphans if no node will remove the
 * group. The commit, which writes nothing, checks that the group's owner is lost. */
static tdm_status add_if_orphan(struct orphans *orphans, struct tdm__txn *txn,
                                const struct tdm__store_record *record)
{
    struct tdm__placement_group_record group;
    tdm_status status = TDM_OK;

    TDM_TRY(tdm__placement_group_record_read(record, &group));
    if ((!group.detached || group.closed || !group.placed) &&
        !node_is_present(txn, &group.owner_node)) {
        orphans->groups[orphans->groups_count++] = group.id;
        status = tdm__txn_require_node_lost(txn, &orphans->self, &group.owner_node);
    }
    tdm__placement_group_record_fini(&group);
    return status;
}

/* Body of the transaction that finds orphans: collects orphaned placement groups from the records
 * that were read. */
static tdm_status orphans_body(void *arg, struct tdm__txn *txn)
{
    struct orphans *orphans = arg;
    uint32_t count = tdm__txn_records_count(txn);

    if (!node_is_present(txn, &orphans->self)) {
        return tdm__fail(TDM_E_AGAIN, "this node has not joined again yet");
    }
    free(orphans->groups);
    orphans->groups_count = 0;
    orphans->groups = calloc(count, sizeof(*orphans->groups));
    if (orphans->groups == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a list of %u groups", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct tdm__store_record *record = tdm__txn_record_at(txn, i);

        if (strncmp(record->key, "group/", 6) == 0) {
            TDM_TRY(add_if_orphan(orphans, txn, record));
        }
    }
    return TDM_OK;
}

/* Frees the state of a search for orphans. */
static void orphans_free(struct orphans *orphans)
{
    free(orphans->groups);
    free(orphans);
}

/* Reports the orphaned placement groups to the caller and frees the state of the search. */
static void orphans_done(void *arg, tdm_status status, const char *detail)
{
    struct orphans *orphans = arg;

    orphans->fn(orphans->arg, status, detail, orphans->groups,
                status == TDM_OK ? orphans->groups_count : 0);
    orphans_free(orphans);
}

tdm_status tdm__placement_groups_find_orphans(struct tdm__store *store, const struct tdm__id *self,
                                              int64_t deadline_ms,
                                              tdm__placement_groups_orphans_fn *fn, void *arg)
{
    static const char *const patterns[] = {"node/*", "group/*"};
    struct orphans *orphans = calloc(1, sizeof(*orphans));
    tdm_status status;

    if (orphans == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a look for groups of dead nodes");
    }
    *orphans = (struct orphans){.self = *self, .fn = fn, .arg = arg};
    status =
        tdm__retrying_txn_run(store, patterns, 2, deadline_ms, orphans_body, orphans_done, orphans);
    if (status != TDM_OK) {
        orphans_free(orphans);
    }
    return status;
}
