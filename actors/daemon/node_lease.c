/* node_lease.c - renews this node's lease in the store, and watches the leases of other nodes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Leases expire by the store's clock. A node measures its own lease by its own clock, from before
 * it sent the last renewal that succeeded. It fences (stops) what other nodes may take over before
 * the lease can have expired. A node that owns its store has no competitor and fences nothing,
 * until a second node joins.
 *
 * Another node counts as lost when its record is gone, provided that this node has renewed its own
 * lease without a failure for a whole lease. So after an outage of the store all nodes get the time
 * to renew. The living node with the lowest id removes what dead nodes left in the store (the
 * sweep). A node whose record was lost joins again and rewrites the records of its actors and
 * groups. Everything runs on the daemon's loop thread. */

#include "actors/daemon/node_lease.h"

#include "actors/daemon/actor_placement.h"
#include "actors/daemon/actor_queries.h"
#include "actors/daemon/actor_remote.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/placement_group_service.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    STORE_DEADLINE_MS = 10000, /* Milliseconds that one request to the store may take. */
    /* Milliseconds since the last successful renewal after which actors are fenced (stopped). */
    FENCE_MS = TDM__NODE_LEASE_MS - TDM__NODE_RENEW_MS,
    /* Most renewals of the lease that are sent between two firings of the timer. */
    RENEWALS_MAX = 4
};

/* This node's lease. struct tdm__node owns it. All times are milliseconds on CLOCK_MONOTONIC. */
struct tdm__node_lease {
    /* Timer that renews the lease every TDM__NODE_RENEW_MS milliseconds, owned. */
    struct tdm__timer *timer;
    int64_t renewal_sent_ms; /* Time at which the last renewal of the lease was sent. */
    int64_t renewed_ms;      /* Time at which the last successful renewal was sent. */
    int64_t steady_ms;       /* Time since which all renewals have succeeded. */
    bool is_renewing;        /* True while a renewal of the lease waits for the store's reply. */
    uint32_t renewals_count; /* Number of renewals sent since the timer last fired. */
    bool is_reading_nodes;   /* True while the list of nodes is being read from the store. */
    bool sweep_is_due;       /* True if dead nodes may have left records in the store. */
    bool is_sweeping;        /* True while dead nodes' records are being removed from the store. */
};

/* ---- this node's lease ------------------------------------------------------------------ */

/* Defined below; it reads the list of nodes from the store. */
static void lease_read_nodes(struct tdm__node *node);

/* Notes that this node has joined the cluster again, and rewrites the lost records of its actors
 * and placement groups. The list of nodes has the new epoch of this node, without which others may
 * refuse its connections. */
static void lease_on_joined(struct tdm__node *node)
{
    node->lease->renewed_ms = node->lease->renewal_sent_ms;
    node->lease_status.is_joining = false;
    lease_read_nodes(node);
    tdm__placement_groups_rewrite(node);
    tdm__node_actors_rewrite(node);
}

/* Handles the store's reply to this node's request to join the cluster again. */
static void on_lease_rejoined(void *arg, tdm_status status, const char *detail)
{
    struct tdm__node *node = arg;

    node->lease->is_renewing = false;
    if (status == TDM_OK) {
        lease_on_joined(node);
    } else {
        tdm__log(TDM__ERROR, "node", "joining again: %s: %s", tdm_strerror(status), detail);
    }
}

/* Joins the cluster again: writes this node's record and the resources that its actors hold into
 * the store. */
static void lease_rejoin(struct tdm__node *node)
{
    uint32_t grants_count;
    struct tdm__grant *grants;

    node->lease_status.is_joining = true;
    node->lease->is_renewing = true;
    tdm__placement_groups_records_lost(node);
    tdm__node_actors_records_lost(node);
    grants = tdm__node_actor_grants(node, &grants_count);
    if (tdm__reserve_node(node->store, &node->record, &node->totals, grants, grants_count,
                          tdm__deadline_after(STORE_DEADLINE_MS), on_lease_rejoined,
                          node) != TDM_OK) {
        node->lease->is_renewing = false;
    }
    free(grants);
}

/* Defined below; it sends a renewal of the lease to the store. */
static void lease_renew(struct tdm__node *node);

/* Handles the store's reply to a renewal of this node's lease. */
static void on_lease_renewed(void *arg, tdm_status status, uint64_t version)
{
    struct tdm__node *node = arg;
    struct tdm__node_lease *lease = node->lease;

    (void)version; /* A renewal writes no value. */
    lease->is_renewing = false;
    if (status == TDM_OK) {
        tdm__lease_status_set_store_error(&node->lease_status, "");
        lease->renewed_ms = lease->renewal_sent_ms;
        if (node->lease_status.is_joining) {
            /* The node's record is in the store: only the reply to joining was lost. */
            lease_on_joined(node);
        }
        return;
    }
    lease->steady_ms = tdm__clock_ms();
    if (status == TDM_E_CONFLICT) {
        tdm__log(TDM__WARN, "node", "the lease of node %s was lost: joining again",
                 node->record.name);
        node->lease_status.lost_ms = tdm__clock_ms();
        lease_rejoin(node);
    } else {
        char store_error[sizeof(node->lease_status.store_error)];

        (void)snprintf(store_error, sizeof(store_error), "%s: %s", tdm_strerror(status),
                       tdm_error_detail());
        tdm__lease_status_set_store_error(&node->lease_status, store_error);
        /* A dropped connection is usually back at once, and a second is a large part of a lease, so
         * the renewal is repeated immediately. */
        if (status == TDM_E_STORE && lease->renewals_count < RENEWALS_MAX && !node->stopping) {
            lease_renew(node);
        }
    }
}

/* Sends a renewal of this node's lease to the store. */
static void lease_renew(struct tdm__node *node)
{
    char node_key[TDM__STORE_KEY_BYTES];
    char free_key[TDM__STORE_KEY_BYTES];
    struct tdm__store_write writes[2] = {
        {.kind = TDM__STORE_RENEW_LEASE,
         .key = tdm__store_key("node", &node->record.id, node_key),
         .version = TDM__VERSION_ANY,
         .lease_ms = TDM__NODE_LEASE_MS},
        {.kind = TDM__STORE_RENEW_LEASE,
         .key = tdm__store_key("free", &node->record.id, free_key),
         .version = TDM__VERSION_ANY,
         .lease_ms = TDM__NODE_LEASE_MS},
    };

    node->lease->is_renewing = true;
    node->lease->renewals_count++;
    node->lease->renewal_sent_ms = tdm__clock_ms();
    node->store->ops->commit(node->store, writes, 2, tdm__deadline_after(TDM__NODE_LEASE_MS),
                             on_lease_renewed, node);
}

/* True if this daemon runs the cluster's store itself and no other node has used the store. */
static bool node_owns_store(const struct tdm__node *node)
{
    return !node->store_is_shared && node->exempt_child != NULL && node->exempt_child() != 0;
}

/* ---- other nodes' leases ----------------------------------------------------------------- */

/* True if this node has renewed its lease without a failure for a whole lease, so that a node whose
 * record is missing is certainly lost. */
static bool lease_is_steady(const struct tdm__node_lease *lease)
{
    return tdm__clock_ms() - lease->steady_ms >= TDM__NODE_LEASE_MS;
}

/* Ends a sweep of dead nodes' records, which is repeated unless it succeeded and found nothing. */
static void lease_sweep_finish(struct tdm__node *node, tdm_status status, const char *detail)
{
    node->lease->is_sweeping = false;
    node->lease->sweep_is_due = status != TDM_OK;
    if (status != TDM_OK && status != TDM_E_AGAIN) {
        tdm__log(TDM__WARN, "node", "removing what dead nodes left: %s: %s", tdm_strerror(status),
                 detail);
    }
}

/* Handles the list of placement groups whose owners' nodes are dead: removes these groups. The
 * sweep is repeated until none is found. */
static void on_orphans_found(void *arg, tdm_status status, const char *detail,
                             const struct tdm__id *groups, uint32_t groups_count)
{
    struct tdm__node *node = arg;

    for (uint32_t i = 0; i < groups_count && lease_is_steady(node->lease) && !node->stopping; i++) {
        tdm__placement_group_orphaned(node, &groups[i]);
    }
    lease_sweep_finish(node, groups_count > 0 ? TDM_E_AGAIN : status, detail);
}

/* Handles the result of removing records of dead nodes: searches the store for orphaned placement
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

/* Starts a sweep of dead nodes' records in the store if one is due. The living node with the lowest
 * id does it for all. */
static void lease_sweep(struct tdm__node *node, const struct tdm__node_record *nodes)
{
    struct tdm__node_lease *lease = node->lease;

    if (!lease->sweep_is_due || lease->is_sweeping ||
        !tdm__id_equal(&nodes[0].id, &node->record.id)) {
        return;
    }
    lease->is_sweeping = tdm__reserve_sweep(node->store, tdm__deadline_after(STORE_DEADLINE_MS),
                                            on_lease_swept, node) == TDM_OK;
}

/* Notes the nodes of `nodes`, the living nodes, and the epoch of this one. Handles the loss of
 * known nodes that are not in the list, and the loss of their actors. */
static void lease_check_other_nodes(struct tdm__node *node, const struct tdm__node_record *nodes,
                                    uint32_t nodes_count)
{
    bool is_here = false;

    tdm__node_peers_note(node, nodes, nodes_count);
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (tdm__id_equal(&nodes[i].id, &node->record.id)) {
            is_here = true;
            tdm__node_set_epoch(node, nodes[i].epoch);
        }
    }
    if (!is_here || !lease_is_steady(node->lease)) {
        return;
    }
    if (tdm__node_peers_update(node, nodes, nodes_count)) {
        node->lease->sweep_is_due = true;
    }
    tdm__node_actors_update_nodes(node, nodes, nodes_count);
    lease_sweep(node, nodes);
}

/* Handles the store's reply with the records of all nodes. */
static void on_nodes_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                          uint32_t records_count)
{
    struct tdm__node *node = arg;
    struct tdm__node_record *nodes = calloc(records_count + 1, sizeof(*nodes));
    uint32_t nodes_count = 0;

    node->lease->is_reading_nodes = false;
    for (uint32_t i = 0; status == TDM_OK && nodes != NULL && i < records_count; i++) {
        status = tdm__node_record_read(&records[i], &nodes[nodes_count++]);
    }
    node->store_is_shared = node->store_is_shared || nodes_count > 1;
    if (status == TDM_OK && nodes != NULL && !node->stopping) {
        lease_check_other_nodes(node, nodes, nodes_count);
    }
    free(nodes);
}

static void lease_read_nodes(struct tdm__node *node)
{
    static const char *const nodes[] = {"node/*"};

    if (!node->lease->is_reading_nodes) {
        node->lease->is_reading_nodes = true;
        node->store->ops->read(node->store, nodes, 1, tdm__deadline_after(TDM__NODE_LEASE_MS),
                               on_nodes_read, node);
    }
}

/* ---- once a second ---------------------------------------------------------------------- */

/* Once a second renews the lease, reads the list of nodes, and retries what waits. */
static void on_lease_timer(void *arg)
{
    struct tdm__node *node = arg;
    struct tdm__node_lease *lease = node->lease;

    (void)tdm__timer_set(lease->timer, tdm__deadline_after(TDM__NODE_RENEW_MS));
    tdm__node_retry_early_queries(node, tdm__clock_ms());
    node->events->resources_freed(node); /* Another node may have freed resources. */
    tdm__placement_groups_rewrite(node);
    tdm__node_actors_rewrite(node);
    tdm__node_actors_report_ends(node);
    node->lease_status.is_fenced =
        tdm__clock_ms() - lease->renewed_ms > FENCE_MS && !node_owns_store(node);
    if (node->lease_status.is_fenced) {
        tdm__node_actors_fence(node);
    }
    if (tdm__lease_status_was_lost(&node->lease_status)) {
        tdm__node_actors_query_owners(node);
    }
    lease->renewals_count = 0;
    if (!lease->is_renewing) {
        lease_renew(node);
    }
    lease_read_nodes(node);
}

tdm_status tdm__node_lease_create(struct tdm__node *node)
{
    int64_t now_ms = tdm__clock_ms();

    node->lease = calloc(1, sizeof(*node->lease));
    if (node->lease == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a node's lease");
    }
    *node->lease =
        (struct tdm__node_lease){.renewed_ms = now_ms, .steady_ms = now_ms, .sweep_is_due = true};
    TDM_TRY(tdm__timer_create(node->loop, on_lease_timer, node, &node->lease->timer));
    return tdm__timer_set(node->lease->timer, tdm__deadline_after(TDM__NODE_RENEW_MS));
}

void tdm__node_lease_destroy(struct tdm__node *node)
{
    if (node->lease != NULL) {
        tdm__timer_destroy(node->lease->timer);
        free(node->lease);
        node->lease = NULL;
        node->lease_status = (struct tdm__lease_status){0};
    }
}
