/* node_lease.c - renews this node's lease, and watches those of the others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Leases end by the store's clock.  A node measures its own by its own clock, from before it
 * asked for the last renewal that succeeded, and stops in time what others may take over.
 * Another node counts as lost when its record is gone, and this node has renewed its own lease
 * without a break for a whole lease: after the store was away everybody gets the time to renew.
 * A node with a store of its own has nobody to fear: it does not stop anything. */
enum {
    STORE_DEADLINE_MS = 10000,
    FENCE_MS = TDM__NODE_LEASE_MS - TDM__NODE_RENEW_MS,
    RENEWALS_MAX = 4 /* a second */
};

struct tdm__node_lease {
    struct tdm__timer *timer;
    int64_t asked_ms;   /* when the renewal under way was asked for */
    int64_t renewed_ms; /* when the last one that succeeded was */
    int64_t steady_ms;  /* since when all have succeeded */
    int64_t lost_ms;    /* when the store last did not know this node any more; 0: never */
    bool joining;       /* again: the store does not know this node, or not for certain */
    bool renewing;
    uint32_t renewals_count; /* asked for since the timer's last turn */
    bool looking;
    bool sweep_is_due; /* dead nodes may have left records */
    bool sweeping;
    char trouble[160]; /* with the store, since when renewals fail; else "" */
};

/* ---- its own ---------------------------------------------------------------------------- */

bool tdm__node_lease_is_joining(const struct tdm__node *node)
{
    return node->lease != NULL && node->lease->joining;
}

static void has_joined(struct tdm__node *node)
{
    node->lease->renewed_ms = node->lease->asked_ms;
    node->lease->joining = false;
    tdm__placement_groups_rewrite(node);
    tdm__node_actors_rewrite(node);
}

static void on_lease_rejoined(void *arg, tdm_status status, const char *detail)
{
    struct tdm__node *node = arg;

    node->lease->renewing = false;
    if (status == TDM_OK) {
        has_joined(node);
    } else {
        tdm__log(TDM__ERROR, "node", "joining again: %s: %s", tdm_strerror(status), detail);
    }
}

static void lease_rejoin(struct tdm__node *node)
{
    uint32_t grants_count;
    struct tdm__grant *grants;

    node->lease->joining = true;
    node->lease->renewing = true;
    tdm__placement_groups_records_lost(node);
    tdm__node_actors_records_lost(node);
    grants = tdm__node_actor_grants(node, &grants_count);
    if (tdm__reserve_node(node->store, &node->record, &node->totals, grants, grants_count,
                          tdm__deadline_after(STORE_DEADLINE_MS), on_lease_rejoined,
                          node) != TDM_OK) {
        node->lease->renewing = false;
    }
    free(grants);
}

static void lease_renew(struct tdm__node *node);

/* Told when it begins, when it changes, and when it is over; not at each renewal. */
static void note_trouble(struct tdm__node_lease *lease, const char *trouble)
{
    if (strcmp(lease->trouble, trouble) == 0) {
        return;
    }
    if (trouble[0] == '\0') {
        tdm__log(TDM__INFO, "node", "the lease is renewed again");
    } else {
        tdm__log(TDM__WARN, "node", "renewing the lease, again each second: %s", trouble);
    }
    (void)snprintf(lease->trouble, sizeof(lease->trouble), "%s", trouble);
}

const char *tdm__node_lease_store_error(const struct tdm__node *node)
{
    return node->lease == NULL ? "" : node->lease->trouble;
}

static void on_lease_renewed(void *arg, tdm_status status, uint64_t version)
{
    struct tdm__node *node = arg;
    struct tdm__node_lease *lease = node->lease;

    (void)version; /* a touch puts nothing */
    lease->renewing = false;
    if (status == TDM_OK) {
        note_trouble(lease, "");
        lease->renewed_ms = lease->asked_ms;
        if (lease->joining) {
            has_joined(node); /* only the answer was lost */
        }
        return;
    }
    lease->steady_ms = tdm__clock_ms();
    if (status == TDM_E_CONFLICT) {
        tdm__log(TDM__WARN, "node", "the lease of node %s was lost: joining again",
                 node->record.name);
        lease->lost_ms = tdm__clock_ms();
        lease_rejoin(node);
    } else {
        char trouble[sizeof(lease->trouble)];

        (void)snprintf(trouble, sizeof(trouble), "%s: %s", tdm_strerror(status),
                       tdm_error_detail());
        note_trouble(lease, trouble);
        /* A connection that dropped is there again at once: a second is much of a lease. */
        if (status == TDM_E_STORE && lease->renewals_count < RENEWALS_MAX && !node->stopping) {
            lease_renew(node);
        }
    }
}

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

    node->lease->renewing = true;
    node->lease->renewals_count++;
    node->lease->asked_ms = tdm__clock_ms();
    node->store->ops->commit(node->store, writes, 2, tdm__deadline_after(TDM__NODE_LEASE_MS),
                             on_lease_renewed, node);
}

bool tdm__node_lease_was_lost(const struct tdm__node *node)
{
    return node->lease != NULL && node->lease->lost_ms != 0 &&
           tdm__clock_ms() - node->lease->lost_ms < TDM__NODE_LEASE_MS;
}

static bool owns_store(const struct tdm__node *node)
{
    return node->exempt_child != NULL && node->exempt_child() != 0;
}

/* ---- the others' ------------------------------------------------------------------------ */

/* Is who is not there lost?  Else nothing is known for certain. */
static bool is_steady(const struct tdm__node_lease *lease)
{
    return tdm__clock_ms() - lease->steady_ms >= TDM__NODE_LEASE_MS;
}

static void lease_sweep_finish(struct tdm__node *node, tdm_status status, const char *detail)
{
    node->lease->sweeping = false;
    node->lease->sweep_is_due = status != TDM_OK;
    if (status != TDM_OK && status != TDM_E_AGAIN) {
        tdm__log(TDM__WARN, "node", "removing what dead nodes left: %s: %s", tdm_strerror(status),
                 detail);
    }
}

/* Once their removal has begun they are nobody's orphans: it is over when none is found. */
static void found_orphans(void *arg, tdm_status status, const char *detail,
                          const struct tdm__id *groups, uint32_t groups_count)
{
    struct tdm__node *node = arg;

    for (uint32_t i = 0; i < groups_count && is_steady(node->lease) && !node->stopping; i++) {
        tdm__placement_group_orphaned(node, &groups[i]);
    }
    lease_sweep_finish(node, groups_count > 0 ? TDM_E_AGAIN : status, detail);
}

static void on_lease_swept(void *arg, tdm_status status, const char *detail)
{
    struct tdm__node *node = arg;

    if (status == TDM_OK && !node->stopping) {
        status = tdm__placement_groups_find_orphans(node->store, &node->record.id,
                                                    tdm__deadline_after(STORE_DEADLINE_MS),
                                                    found_orphans, node);
        if (status == TDM_OK) {
            return;
        }
        detail = tdm_error_detail();
    }
    lease_sweep_finish(node, status, detail);
}

/* The living node with the lowest id does it for all. */
static void lease_sweep(struct tdm__node *node, const struct tdm__node_record *nodes)
{
    struct tdm__node_lease *lease = node->lease;

    if (!lease->sweep_is_due || lease->sweeping || !tdm__id_equal(&nodes[0].id, &node->record.id)) {
        return;
    }
    lease->sweeping = tdm__reserve_sweep(node->store, tdm__deadline_after(STORE_DEADLINE_MS),
                                         on_lease_swept, node) == TDM_OK;
}

static void check_others(struct tdm__node *node, const struct tdm__node_record *nodes,
                         uint32_t nodes_count)
{
    bool is_here = false;

    for (uint32_t i = 0; i < nodes_count; i++) {
        is_here = is_here || tdm__id_equal(&nodes[i].id, &node->record.id);
    }
    if (!is_here || !is_steady(node->lease)) {
        return;
    }
    if (tdm__node_peers_update(node, nodes, nodes_count)) {
        node->lease->sweep_is_due = true;
    }
    tdm__node_actors_update_nodes(node, nodes, nodes_count);
    lease_sweep(node, nodes);
}

static void on_nodes_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                          uint32_t records_count)
{
    struct tdm__node *node = arg;
    struct tdm__node_record *nodes = calloc(records_count + 1, sizeof(*nodes));
    uint32_t nodes_count = 0;

    node->lease->looking = false;
    for (uint32_t i = 0; status == TDM_OK && nodes != NULL && i < records_count; i++) {
        status = tdm__node_record_read(&records[i], &nodes[nodes_count++]);
    }
    if (status == TDM_OK && nodes != NULL && !node->stopping) {
        check_others(node, nodes, nodes_count);
    }
    free(nodes);
}

/* ---- once a second ---------------------------------------------------------------------- */

static void on_timer(void *arg)
{
    static const char *const nodes[] = {"node/*"};
    struct tdm__node *node = arg;
    struct tdm__node_lease *lease = node->lease;

    (void)tdm__timer_set(lease->timer, tdm__deadline_after(TDM__NODE_RENEW_MS));
    tdm__workers_sweep_orphans(node->workers);
    tdm__node_retry_early_queries(node, tdm__clock_ms());
    tdm__node_actors_retry(node); /* another node may have freed what is wanted here */
    tdm__placement_groups_retry(node);
    tdm__placement_groups_rewrite(node);
    tdm__node_actors_rewrite(node);
    if (tdm__clock_ms() - lease->renewed_ms > FENCE_MS && !owns_store(node)) {
        tdm__node_actors_fence(node);
    }
    if (tdm__node_lease_was_lost(node)) {
        tdm__node_actors_query_owners(node);
    }
    lease->renewals_count = 0;
    if (!lease->renewing) {
        lease_renew(node);
    }
    if (!lease->looking) {
        lease->looking = true;
        node->store->ops->read(node->store, nodes, 1, tdm__deadline_after(TDM__NODE_LEASE_MS),
                               on_nodes_read, node);
    }
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
    TDM_TRY(tdm__timer_create(node->loop, on_timer, node, &node->lease->timer));
    return tdm__timer_set(node->lease->timer, tdm__deadline_after(TDM__NODE_RENEW_MS));
}

void tdm__node_lease_destroy(struct tdm__node *node)
{
    if (node->lease != NULL) {
        tdm__timer_destroy(node->lease->timer);
        free(node->lease);
        node->lease = NULL;
    }
}
