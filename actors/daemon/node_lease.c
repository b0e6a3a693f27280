/* node_lease.c - renews this node's lease in the store, and watches the list of nodes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The state of this node's own lease is a pure state machine (lease_machine.h). This file reports
 * events to it and carries out its actions: it renews the lease, joins again, and fences (stops)
 * what other nodes may take over. The end of the lease is also written to a page that the
 * supervisor shares, so that it kills these actors in time even if this daemon is stopped.
 *
 * The store judges the leases of all nodes (runtime/store.h). Each renewal returns the list of
 * nodes if it has changed. A node that is missing in it, or that is in it with another epoch, was
 * lost: lease_node_lost() is the one place where this daemon learns that. For some time after a
 * change of the store's generation, nodes that are missing count as present, and nodes whose epoch
 * has changed were not lost: the store has lost their records, and they have joined again.
 *
 * The living node with the lowest id removes what lost nodes left in the store (the sweep). A node
 * whose record was lost joins again and rewrites the records of its actors and groups. Everything
 * runs on the daemon's loop thread. */

#include "actors/daemon/node_lease.h"

#include "actors/daemon/actor_placement.h"
#include "actors/daemon/actor_queries.h"
#include "actors/daemon/actor_remote.h"
#include "actors/daemon/lease_machine.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/node_reconcile.h"
#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/placement_group_service.h"
#include "actors/daemon/placement_group_table.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/process/fence.h"
#include "scheduler/reserve_epoch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STORE_DEADLINE_MS = 10000, /* Milliseconds that one request to the store may take. */
    /* Most milliseconds that a renewal of the lease waits for its reply. */
    RENEWAL_DEADLINE_MS = 6000,
    /* Milliseconds after which a request without a reply is noted as a failure of the store. */
    SILENCE_MS = 2000,
    LEAVE_DEADLINE_MS = 2000, /* Milliseconds that leaving the cluster may take. */
    /* Most renewals of the lease that are sent between two firings of the timer. */
    RENEWALS_MAX = 4
};

/* A list of nodes. */
struct node_list {
    struct tdm__node_record *records; /* Records of the nodes as they were read, owned. */
    uint32_t count;                   /* Number of nodes in the list. */
};

/* This node's lease. struct tdm__node owns it. */
struct tdm__node_lease {
    struct lease_machine machine; /* State of the lease; times in milliseconds on CLOCK_BOOTTIME. */
    /* Timer that renews the lease every TDM__NODE_RENEW_MS milliseconds, owned. */
    struct tdm__timer *timer;
    struct tdm__timer *fence_timer; /* Timer of the end of the lease, owned. */
    uint32_t requests_count;        /* Number of renewals sent since the timer last fired. */
    bool is_leaving;                /* True once this node has begun to leave the cluster. */
    bool sweep_is_due;              /* True if lost nodes may have left records in the store. */
    bool is_sweeping;       /* True while lost nodes' records are being removed from the store. */
    bool is_changing_epoch; /* True while a request for a new epoch of another node is under way. */

    uint64_t members_epoch; /* Epoch of the list of nodes that the store returned last. */
    /* Count of the last renewal that the store has acknowledged since this node joined. */
    uint64_t renewals_count;
    uint64_t clock_ms;       /* Kept clock of the store at that renewal, or at an earlier one. */
    uint64_t generation;     /* Generation of the store at the last renewal; 0 before the first. */
    bool is_held;            /* True while no missing node counts as lost. */
    struct node_list listed; /* Nodes in the list that the store returned last. */
    struct node_list living; /* The same, and missing nodes that do not count as lost yet. */

    /* Callback of the first join, which runs once this node knows its epoch; NULL afterwards. */
    tdm__reserve_done_fn *joined;
    void *joined_arg; /* First argument of `joined`. */
};

/* Defined below; it reports an event to the state machine of the lease. */
static void lease_report(struct tdm__node *node, enum lease_event event);

/* ---- lists of nodes --------------------------------------------------------------------- */

/* Frees the array of a list. */
static void node_list_fini(struct node_list *list)
{
    free(list->records);
    *list = (struct node_list){0};
}

/* Creates an empty list with room for `capacity` nodes. Running out of memory ends the process. */
static struct node_list node_list_init(uint32_t capacity)
{
    struct node_list list = {.records = calloc(capacity + 1u, sizeof(*list.records))};

    TDM_ASSERT(list.records != NULL);
    return list;
}

/* Appends a node to a list that has room for it. */
static void node_list_add(struct node_list *list, const struct tdm__node_record *record)
{
    list->records[list->count++] = *record;
}

/* Returns the record of the node in the list, or NULL if the node is not in it. */
static const struct tdm__node_record *node_list_find(const struct node_list *list,
                                                     const struct tdm__id *id)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (tdm__id_equal(&list->records[i].id, id)) {
            return &list->records[i];
        }
    }
    return NULL;
}

/* ---- the sweep -------------------------------------------------------------------------- */

/* Ends a sweep of lost nodes' records, which is repeated unless it succeeded and found nothing, and
 * no node was lost since it began. */
static void lease_sweep_finish(struct tdm__node *node, tdm_status status, const char *detail)
{
    node->lease->is_sweeping = false;
    node->lease->sweep_is_due = node->lease->sweep_is_due || status != TDM_OK;
    if (status != TDM_OK && status != TDM_E_AGAIN && !node->stopping) {
        tdm__log(TDM__WARN, "node", "removing what lost nodes left: %s: %s", tdm_strerror(status),
                 detail);
    }
}

/* Handles the list of placement groups whose owners' nodes are lost: removes these groups. The
 * sweep is repeated until none is found. */
static void on_orphans_found(void *arg, tdm_status status, const char *detail,
                             const struct tdm__id *groups, uint32_t groups_count)
{
    struct tdm__node *node = arg;

    for (uint32_t i = 0; i < groups_count && !node->stopping; i++) {
        tdm__placement_group_orphaned(node, &groups[i]);
    }
    lease_sweep_finish(node, groups_count > 0 ? TDM_E_AGAIN : status, detail);
}

/* Handles the result of removing records of lost nodes: searches the store for orphaned placement
 * groups next. */
static void on_lease_swept(void *arg, tdm_status status, const char *detail)
{
    struct tdm__node *node = arg;

    if (status == TDM_OK && !node->stopping) {
        status = tdm__placement_groups_find_orphans(node->store, &node->record.id,
                                                    tdm__deadline_after(STORE_DEADLINE_MS),
                                                    on_orphans_found, node);
        if (status == TDM_OK) {
            return;
        }
        detail = tdm_error_detail();
    }
    lease_sweep_finish(node, status, detail);
}

/* Starts a sweep of lost nodes' records in the store if one is due. The living node with the lowest
 * id does it for all. */
static void lease_sweep(struct tdm__node *node)
{
    struct tdm__node_lease *lease = node->lease;

    if (!lease->sweep_is_due || lease->is_sweeping || lease->is_held || lease->living.count == 0 ||
        !tdm__id_equal(&lease->living.records[0].id, &node->record.id)) {
        return;
    }
    lease->is_sweeping =
        tdm__reserve_sweep(node->store, &node->record.id, tdm__deadline_after(STORE_DEADLINE_MS),
                           on_lease_swept, node) == TDM_OK;
    lease->sweep_is_due = !lease->is_sweeping;
}

/* ---- other nodes ------------------------------------------------------------------------- */

/* Handles the loss of a node, which was in the list with this record. This is the one place where
 * the daemon learns of a loss. A node that has joined again already has a higher epoch. */
static void lease_node_lost(struct tdm__node *node, const struct tdm__node_record *lost)
{
    tdm__log(TDM__INFO, "node", "node %s of epoch %llu is lost", lost->name,
             (unsigned long long)lost->epoch);
    node->lease->sweep_is_due = true;
    tdm__node_actors_lose_owner(node, &lost->id, lost->epoch);
    tdm__node_reconcile_orphans(node);
}

/* Closes connections to nodes that are not in `list`. */
static void lease_update_peers(struct tdm__node *node, const struct node_list *list)
{
    if (tdm__node_peers_update(node, list->records, list->count)) {
        node->lease->sweep_is_due = true;
    }
}

/* Returns whether a node was lost between two lists, in which it has the records `before` and
 * `now`; NULL if it is not in the list. Nodes that join a new generation of the store were not
 * lost, but their records were. A node may also have got a new epoch without being lost. */
static bool lease_was_lost(const struct tdm__node_lease *lease,
                           const struct tdm__node_record *before,
                           const struct tdm__node_record *now)
{
    if (before == NULL || lease->is_held) {
        return false;
    }
    return now == NULL || (now->epoch != before->epoch &&
                           (now->lives_since == 0 || now->lives_since > before->epoch));
}

/* Finds the nodes that were lost since the last renewal, those included that have joined again. */
static void lease_find_lost_nodes(struct tdm__node *node, const struct node_list *living)
{
    const struct tdm__node_lease *lease = node->lease;
    const struct node_list *before = &lease->living;
    struct node_list without_returned = node_list_init(living->count);

    for (uint32_t i = 0; i < before->count; i++) {
        const struct tdm__node_record *record = &before->records[i];

        if (lease_was_lost(lease, record, node_list_find(living, &record->id)) &&
            !tdm__id_equal(&record->id, &node->record.id)) {
            lease_node_lost(node, record);
        }
    }
    for (uint32_t i = 0; i < living->count; i++) {
        const struct tdm__node_record *record = &living->records[i];

        if (!lease_was_lost(lease, node_list_find(before, &record->id), record) ||
            tdm__id_equal(&record->id, &node->record.id)) {
            node_list_add(&without_returned, record);
        }
    }
    if (without_returned.count < living->count) {
        lease_update_peers(node, &without_returned);
    }
    node_list_fini(&without_returned);
}

/* Handles the outcome of a request for a new epoch of another node. The list of nodes shows whether
 * another request is necessary. */
static void on_epoch_changed(void *arg, tdm_status status, const char *detail)
{
    struct tdm__node *node = arg;

    if (status != TDM_OK && !node->stopping) {
        tdm__log(TDM__WARN, "node", "a new epoch of a node that was counted as lost: %s: %s",
                 tdm_strerror(status), detail);
    }
    if (node->lease != NULL) {
        node->lease->is_changing_epoch = false;
    }
}

/* Looks in the store's list for a node whose listed epoch this node has counted as lost, and
 * requests a new epoch for it. One node is handled for each list that the store returns. Such a
 * node is found after a partition with two Redis masters, or if the store has lost changes. This
 * node and its processes refuse those of the old epoch. */
static void lease_request_epochs(struct tdm__node *node)
{
    struct tdm__node_lease *lease = node->lease;

    for (uint32_t i = 0; !lease->is_changing_epoch && i < lease->listed.count; i++) {
        const struct tdm__node_record *record = &lease->listed.records[i];

        if (tdm__id_equal(&record->id, &node->record.id) ||
            !tdm__node_was_lost(node, &record->id, record->epoch)) {
            continue;
        }
        tdm__log(TDM__INFO, "node", "node %s, which was lost in epoch %llu, gets a new epoch",
                 record->name, (unsigned long long)record->epoch);
        lease->is_changing_epoch = true;
        if (tdm__reserve_new_epoch(node->store, &record->id, record->epoch,
                                   tdm__deadline_after(STORE_DEADLINE_MS), on_epoch_changed,
                                   node) != TDM_OK) {
            on_epoch_changed(node, TDM_E_NOMEM, tdm_error_detail());
        }
    }
}

/* Computes the list of living nodes from the list of the store, and handles its changes. */
static void lease_update_living(struct tdm__node *node)
{
    struct tdm__node_lease *lease = node->lease;
    struct node_list living = node_list_init(lease->listed.count + lease->living.count);

    for (uint32_t i = 0; i < lease->listed.count; i++) {
        node_list_add(&living, &lease->listed.records[i]);
    }
    for (uint32_t i = 0; lease->is_held && i < lease->living.count; i++) {
        if (node_list_find(&lease->listed, &lease->living.records[i].id) == NULL) {
            node_list_add(&living, &lease->living.records[i]);
        }
    }
    lease_find_lost_nodes(node, &living);
    node_list_fini(&lease->living);
    lease->living = living;
    if (living.count > 1) {
        tdm__node_store_shared(node);
    }
    lease_update_peers(node, &lease->living);
    tdm__node_actors_update_nodes(node, lease->living.records, lease->living.count,
                                  lease->members_epoch);
    tdm__node_remote_actors_update_nodes(node, living.records, living.count, lease->is_held);
    if (!lease->is_held) {
        tdm__node_peers_lose_unlisted(node, living.records, living.count, lease->members_epoch);
    }
    lease_request_epochs(node);
    lease_sweep(node);
}

/* Stores the list of nodes that the store has returned. */
static void lease_set_listed(struct tdm__node_lease *lease, const struct tdm__store_record *members,
                             uint32_t members_count)
{
    struct node_list listed = node_list_init(members_count);

    for (uint32_t i = 0; i < members_count; i++) {
        struct tdm__node_record record;

        if (tdm__node_record_read(&members[i], &record) == TDM_OK) {
            node_list_add(&listed, &record);
        } else {
            tdm__log(TDM__ERROR, "node", "the list of nodes: %s", tdm_error_detail());
        }
    }
    node_list_fini(&lease->listed);
    lease->listed = listed;
}

/* Stores what the store has returned with a renewal. */
static void lease_learn(struct tdm__node_lease *lease, const struct tdm__store_renewed *renewed,
                        const struct tdm__store_record *members, uint32_t members_count)
{
    if (lease->generation != 0 && lease->generation != renewed->generation) {
        tdm__log(TDM__WARN, "node",
                 "Redis was restarted or replaced, or has lost changes: no node counts as lost for "
                 "%llu s",
                 (unsigned long long)renewed->held_ms / 1000);
    }
    lease->renewals_count = renewed->renewals_count;
    if (lease->generation == renewed->generation && renewed->clock_ms < lease->clock_ms) {
        /* The store went back to a time before this node joined, so that the count of renewals does
         * not show it. The next renewal shows it by a count that the store does not have. */
        lease->renewals_count++;
    }
    lease->generation = renewed->generation;
    lease->clock_ms = renewed->clock_ms;
    lease->members_epoch = renewed->members_epoch;
    lease->is_held = renewed->held_ms > 0;
    if (members != NULL) {
        lease_set_listed(lease, members, members_count);
    }
}

/* ---- this node's lease ------------------------------------------------------------------ */

/* Notes that the store's reply to a request about the lease is a failure. */
static void lease_note_failure(struct tdm__node *node, tdm_status status, const char *detail)
{
    char store_error[sizeof(node->lease_status.store_error)];

    if (!node->stopping) {
        (void)snprintf(store_error, sizeof(store_error), "%s: %s", tdm_strerror(status), detail);
        tdm__lease_status_set_store_error(&node->lease_status, store_error);
    }
}

/* Calls the callback of the first join, unless it was called. */
static void lease_settle_join(struct tdm__node_lease *lease, tdm_status status, const char *detail)
{
    tdm__reserve_done_fn *joined = lease->joined;

    lease->joined = NULL;
    if (joined != NULL) {
        joined(lease->joined_arg, status, detail);
    }
}

/* Handles the store's reply to this node's request to join the cluster. A renewal follows at once,
 * because its reply tells this node its epoch. Without it the processes of this node would connect
 * to others that could not tell later whether the node was lost since. */
static void on_lease_joined(void *arg, tdm_status status, const char *detail)
{
    struct tdm__node *node = arg;
    struct tdm__node_lease *lease = node->lease;

    if (status != TDM_OK && lease->joined == NULL) {
        lease_note_failure(node, status, detail);
    }
    lease_report(node, status == TDM_OK ? LEASE_ON_JOINED : LEASE_ON_FAILED);
    if (status != TDM_OK) {
        lease_settle_join(lease, status, detail);
    } else if (!lease->is_leaving && !node->stopping) {
        lease_report(node, LEASE_ON_TIMER);
    }
}

/* Joins the cluster: writes this node's record and the resources that its actors hold into the
 * store. */
static tdm_status lease_join(struct tdm__node *node)
{
    uint32_t grants_count;
    struct tdm__grant *grants = tdm__node_actor_grants(node, &grants_count);
    tdm_status status =
        tdm__reserve_node(node->store, &node->record, &node->totals, grants, grants_count,
                          tdm__deadline_after(STORE_DEADLINE_MS), on_lease_joined, node);

    free(grants);
    return status;
}

/* Notes in this node's record whether the node was lost before it joins again. No other node can
 * have taken it over before the end of its lease, so that the store has lost the record. Other
 * nodes may not learn of the record before missing nodes count as lost. */
static void lease_note_continuity(struct tdm__node *node)
{
    if (tdm__lease_status_has_ended(&node->lease_status)) {
        node->record.lives_since = 0;
    } else if (node->record.lives_since == 0) {
        node->record.lives_since = node->record.epoch;
    }
}

/* Joins the cluster again, after the store has lost this node's record. */
static void lease_rejoin(struct tdm__node *node)
{
    lease_note_continuity(node);
    node->lease_status.is_joining = true;
    node->lease_status.awaits_epoch = true;
    tdm__placement_groups_records_lost(node);
    tdm__node_actors_records_lost(node);
    tdm__node_remote_actors_doubt(node);
    if (lease_join(node) != TDM_OK) {
        on_lease_joined(node, TDM_E_NOMEM, tdm_error_detail());
    }
}

/* Writes this node's records again if the generation of the store has changed. The nodes that were
 * known before are those of the last list of living nodes or, at the first renewal, those of the
 * store's. */
static void lease_reconcile(struct tdm__node *node)
{
    const struct tdm__node_lease *lease = node->lease;
    const struct node_list *known = lease->living.count > 0 ? &lease->living : &lease->listed;

    if (!node->stopping) {
        tdm__node_reconcile_renewed(node, lease->generation, lease->is_held, known->records,
                                    known->count);
    }
}

/* Stores the epoch of this node. The workers of other nodes' actors learn a new one when these
 * nodes have confirmed the actors; their daemons are asked again for a while. */
static void lease_set_epoch(struct tdm__node *node, uint64_t epoch)
{
    if (node->record.epoch != 0 && node->record.epoch != epoch) {
        node->lease_status.lost_ms = tdm__clock_ms();
    }
    node->lease_status.awaits_epoch = false;
    tdm__node_set_epoch(node, epoch);
}

/* Handles the store's reply to a renewal of this node's lease. */
static void on_lease_renewed(void *arg, tdm_status status, const struct tdm__store_renewed *renewed,
                             const struct tdm__store_record *members, uint32_t members_count)
{
    struct tdm__node *node = arg;
    struct tdm__node_lease *lease = node->lease;

    if (status == TDM_OK) {
        tdm__lease_status_set_store_error(&node->lease_status, "");
        lease_learn(lease, renewed, members, members_count);
        lease_set_epoch(node, renewed->epoch);
        lease_reconcile(node);
        lease_report(node, LEASE_ON_RENEWED);
        if (!node->stopping) {
            lease_update_living(node);
        }
        lease_settle_join(lease, TDM_OK, "");
    } else if (status == TDM_E_CONFLICT && !lease->is_leaving) {
        tdm__log(TDM__WARN, "node", "Redis has no record of node %s any more: joining again",
                 node->record.name);
        node->lease_status.lost_ms = tdm__clock_ms();
        lease->renewals_count = 0; /* The record of the next join counts from the beginning. */
        lease_report(node, LEASE_ON_REFUSED);
    } else {
        lease_note_failure(node, status, tdm_error_detail());
        lease_report(node, LEASE_ON_FAILED);
        /* A dropped connection is usually back at once, and a second is a large part of a short
         * lease, so the renewal is repeated immediately. */
        if (status == TDM_E_STORE && lease->requests_count < RENEWALS_MAX && !node->stopping) {
            lease_report(node, LEASE_ON_TIMER);
        }
    }
}

/* Sends a renewal of this node's lease to the store. */
static void lease_renew(struct tdm__node *node)
{
    char key[TDM__STORE_KEY_BYTES];
    int64_t lease_ms = tdm__node_lease_ms(&node->record);
    int64_t deadline_ms = lease_ms / 2 < RENEWAL_DEADLINE_MS ? lease_ms / 2 : RENEWAL_DEADLINE_MS;
    const struct tdm__store_renewal renewal = {.key = tdm__store_key("node", &node->record.id, key),
                                               .lease_ms = lease_ms,
                                               .grace_ms = TDM__NODE_GRACE_MS,
                                               .members_epoch = node->lease->members_epoch,
                                               .renewals_count = node->lease->renewals_count,
                                               .generation = node->lease->generation};

    node->lease->requests_count++;
    node->store->ops->renew(node->store, &renewal, tdm__deadline_after(deadline_ms),
                            on_lease_renewed, node);
}

/* Tells the supervisor and the other files of the daemon when the lease ends, and sets the timer of
 * that time. */
static void lease_publish(struct tdm__node *node)
{
    struct tdm__node_lease *lease = node->lease;
    int64_t fence_ms = tdm__lease_machine_fence_at(&lease->machine);
    int64_t left_ms = fence_ms - tdm__clock_boot_ms();

    node->lease_status.fence_ms = fence_ms == LEASE_NEVER ? 0 : fence_ms;
    if (node->fence != NULL) {
        tdm__fence_set_end(node->fence, node->lease_status.fence_ms);
    }
    if (fence_ms != LEASE_NEVER) {
        (void)tdm__timer_set(lease->fence_timer, tdm__deadline_after(left_ms > 0 ? left_ms : 0));
    }
}

/* Stops the actors that other nodes may take over, because the lease has ended. */
static void lease_fence(struct tdm__node *node)
{
    tdm__log(
        TDM__WARN, "node",
        "the lease of node %s has ended, because no renewal of it has succeeded for %lld s: its "
        "actors with names, restarts or GPUs are stopped",
        node->record.name, (long long)tdm__node_lease_ms(&node->record) / 1000);
    tdm__node_actors_fence(node);
}

/* Reports an event to the state machine of the lease, and carries out what it asks for. */
static void lease_report(struct tdm__node *node, enum lease_event event)
{
    struct tdm__node_lease *lease = node->lease;
    struct lease_actions actions =
        tdm__lease_machine_step(&lease->machine, event, tdm__clock_boot_ms());

    if (actions.fences) {
        lease_fence(node);
    }
    if (actions.publishes) {
        lease_publish(node);
    }
    if (actions.has_joined) {
        node->lease_status.is_joining = false;
        tdm__node_reconcile_start(node);
    }
    if (actions.renews) {
        lease_renew(node);
    } else if (actions.joins) {
        lease_rejoin(node);
    }
}

/* ---- timers ------------------------------------------------------------------------------ */

/* At the end of the lease stops the actors that other nodes may take over. The timer may fire
 * early, because it is not one of CLOCK_BOOTTIME, or because the lease was renewed. */
static void on_fence_timer(void *arg)
{
    struct tdm__node *node = arg;

    if (!tdm__lease_status_has_ended(&node->lease_status)) {
        lease_publish(node);
    } else if (!node->lease->is_leaving) {
        lease_report(node, LEASE_ON_TIMER);
    }
}

/* Once a second renews the lease, and retries what waits. */
static void on_lease_timer(void *arg)
{
    struct tdm__node *node = arg;
    struct tdm__node_lease *lease = node->lease;

    (void)tdm__timer_set(lease->timer, tdm__deadline_after(TDM__NODE_RENEW_MS));
    if (lease->is_leaving) {
        return;
    }
    tdm__node_retry_early_queries(node, tdm__clock_ms());
    node->events->resources_freed(node); /* Another node may have freed resources. */
    tdm__placement_groups_rewrite(node);
    (void)tdm__placement_group_table_trim(node);
    tdm__node_actors_rewrite(node);
    tdm__node_actors_report_ends(node);
    tdm__node_reconcile_continue(node);
    if (tdm__lease_status_was_lost(&node->lease_status)) {
        tdm__node_actors_query_owners(node);
    }
    if (!node->lease_status.is_joining) {
        tdm__node_remote_actors_query(node);
    }
    if (lease->machine.request != LEASE_ASKS_NOTHING &&
        tdm__clock_boot_ms() - lease->machine.sent_at >= SILENCE_MS &&
        node->lease_status.store_error[0] == '\0') {
        lease_note_failure(node, TDM_E_STORE, "no answer for two seconds");
    }
    lease->requests_count = 0;
    lease_report(node, LEASE_ON_TIMER);
}

/* ---- start and end ----------------------------------------------------------------------- */

tdm_status tdm__node_lease_start(struct tdm__node *node, tdm__reserve_done_fn *fn, void *arg)
{
    node->lease = calloc(1, sizeof(*node->lease));
    if (node->lease == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a node's lease");
    }
    node->lease->sweep_is_due = true;
    node->lease->joined = fn;
    node->lease->joined_arg = arg;
    tdm__lease_machine_init(&node->lease->machine, tdm__node_lease_ms(&node->record),
                            node->owns_store, tdm__clock_boot_ms());
    TDM_TRY(tdm__timer_create(node->loop, on_lease_timer, node, &node->lease->timer));
    TDM_TRY(tdm__timer_create(node->loop, on_fence_timer, node, &node->lease->fence_timer));
    TDM_TRY(tdm__timer_set(node->lease->timer, tdm__deadline_after(TDM__NODE_RENEW_MS)));
    lease_publish(node);
    return lease_join(node);
}

void tdm__node_lease_check(struct tdm__node *node)
{
    if (node->lease != NULL && !node->lease->is_leaving && !node->stopping) {
        lease_report(node, LEASE_ON_TIMER);
    }
}

void tdm__node_store_shared(struct tdm__node *node)
{
    node->owns_store = false;
    if (node->lease != NULL && node->lease->machine.is_alone) {
        lease_report(node, LEASE_ON_SHARED);
    }
}

tdm_status tdm__node_leave(struct tdm__node *node, tdm__reserve_done_fn *fn, void *arg)
{
    node->lease->is_leaving = true;
    return tdm__reserve_leave(node->store, &node->record.id, tdm__deadline_after(LEAVE_DEADLINE_MS),
                              fn, arg);
}

void tdm__node_lease_destroy(struct tdm__node *node)
{
    struct tdm__node_lease *lease = node->lease;

    if (lease != NULL) {
        tdm__timer_destroy(lease->timer);
        tdm__timer_destroy(lease->fence_timer);
        node_list_fini(&lease->listed);
        node_list_fini(&lease->living);
        free(lease);
        node->lease = NULL;
        node->lease_status = (struct tdm__lease_status){0};
    }
}
