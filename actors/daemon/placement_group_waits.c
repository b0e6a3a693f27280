/* placement_group_waits.c - the calls that wait until a placement group is placed. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Any process may wait for any group of the cluster, also for one that another node created. Each
 * call is first answered from the store, if the group is placed already. Otherwise it is kept until
 * this daemon places or removes the group, or until a later look into the store shows that another
 * daemon has done so. A call whose deadline has passed is dropped at the next look; its caller has
 * given up by itself. Everything runs on the daemon's loop thread. */

#include "actors/daemon/placement_group_waits.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Milliseconds that a request to the store may take. */
enum { STORE_DEADLINE_MS = 10000 };

/* A call that waits until a placement group is placed. The list of waiting calls owns it. */
struct placement_group_wait {
    struct placement_group_wait *next;   /* Next waiting call. */
    struct tdm__node *node;              /* State of this node's daemon, borrowed. */
    struct tdm__incoming_call *incoming; /* The call, owned; NULL once it has its reply. */
    struct tdm__id group;                /* ID of the group. */
    /* True while the store is asked for the group; the entry must stay in memory meanwhile. */
    bool is_asking;
};

/* The calls of a daemon that wait until a placement group is placed. struct tdm__node owns it. */
struct tdm__placement_group_waits {
    struct placement_group_wait *all; /* List of the waiting calls, owned. */
};

/* ---- descriptions ----------------------------------------------------------------------- */

/* What bundle_places_get() needs to list the nodes and GPUs of a placement group's bundles. */
struct bundle_places {
    const struct tdm__placement_group_record *record; /* Record of the placement group, borrowed. */
    /* Text of the id of the last bundle's node, which an item points to. */
    char node_id[TDM__ID_TEXT_BYTES];
};

/* Writes node and GPUs of bundle `index` to `item_out`; a callback for the message encoder. */
static void bundle_places_get(const void *arg, uint32_t index, void *item_out)
{
    static const struct tdm__bundle_record no_place;
    struct bundle_places *bundle_places = (struct bundle_places *)(uintptr_t)arg;
    const struct tdm__bundle_record *bundle =
        bundle_places->record->placed ? &bundle_places->record->bundles[index] : &no_place;
    struct tdm__bundle_placement_message *item = item_out;

    *item = (struct tdm__bundle_placement_message){
        .node_id = tdm__id_text(&bundle->node, bundle_places->node_id),
        .gpu_indices = {.count = bundle->grant.gpus_count, .items = bundle->grant.gpu_indices}};
}

void tdm__placement_group_reply(struct tdm__incoming_call *incoming,
                                const struct tdm__placement_group_record *record,
                                const struct placement_group_pending *pending)
{
    struct bundle_places bundle_places = {.record = record};
    const struct tdm__group_placement_message message = {
        .id = record->id,
        .strategy = (int64_t)record->strategy,
        .name_space = record->name_space,
        .name = record->name,
        .detached = record->detached,
        .placed = record->placed,
        .infeasible = pending != NULL && pending->is_infeasible,
        .pending_cause = pending == NULL ? "" : pending->cause,
        .bundles = {
            .count = record->bundles_count, .get = bundle_places_get, .arg = &bundle_places}};

    tdm__incoming_reply_message(incoming, tdm__group_placement_table(), &message);
}

void tdm__placement_group_reply_pending(struct tdm__incoming_call *incoming,
                                        const struct tdm__placement_group_request *request,
                                        const struct placement_group_pending *pending)
{
    struct tdm__placement_group_record record = {.id = request->id,
                                                 .bundles_count = request->bundles_count,
                                                 .strategy = request->strategy,
                                                 .detached = request->detached};

    memcpy(record.name, request->name, sizeof(record.name));
    memcpy(record.name_space, request->name_space, sizeof(record.name_space));
    tdm__placement_group_reply(incoming, &record, pending);
}

/* ---- waiting calls ---------------------------------------------------------------------- */

tdm_status tdm__placement_group_waits_create(struct tdm__node *node)
{
    node->placement_group_waits = calloc(1, sizeof(*node->placement_group_waits));
    return node->placement_group_waits == NULL
               ? tdm__fail(TDM_E_NOMEM, "the calls that wait for placement groups")
               : TDM_OK;
}

/* Frees the entries whose calls have their replies, except those with a request to the store under
 * way. */
static void waits_free_ended(struct tdm__placement_group_waits *waits)
{
    struct placement_group_wait **link = &waits->all;

    while (*link != NULL) {
        struct placement_group_wait *wait = *link;

        if (wait->incoming == NULL && !wait->is_asking) {
            *link = wait->next;
            free(wait);
        } else {
            link = &wait->next;
        }
    }
}

/* Fails the waiting call. The entry stays in the list. */
static void wait_fail(struct placement_group_wait *wait, tdm_status status, const char *detail)
{
    if (wait->incoming != NULL) {
        tdm__incoming_fail(wait->incoming, status, detail);
        wait->incoming = NULL;
    }
}

void tdm__placement_group_waits_destroy(struct tdm__node *node)
{
    struct tdm__placement_group_waits *waits = node->placement_group_waits;

    while (waits != NULL && waits->all != NULL) {
        struct placement_group_wait *wait = waits->all;

        waits->all = wait->next;
        wait_fail(wait, TDM_E_CANCELED, "the node has stopped");
        free(wait);
    }
    free(waits);
    node->placement_group_waits = NULL;
}

/* Handles the store's reply with the group's record: replies to the call if the group is placed or
 * gone. A failed store is asked again later. */
static void on_group_found(void *arg, tdm_status status, const char *detail,
                           const struct tdm__placement_group_record *record)
{
    struct placement_group_wait *wait = arg;

    wait->is_asking = false;
    if (status == TDM_E_NOT_FOUND || (record != NULL && record->closed)) {
        wait_fail(wait, TDM_E_NOT_FOUND, record == NULL ? detail : "it is being removed");
    } else if (record != NULL && record->placed && wait->incoming != NULL) {
        tdm__placement_group_reply(wait->incoming, record, NULL);
        wait->incoming = NULL;
    }
    waits_free_ended(wait->node->placement_group_waits);
}

/* Asks the store whether the group is placed. */
static void wait_ask(struct placement_group_wait *wait)
{
    const struct tdm__placement_group_query query = {.id = wait->group};

    wait->is_asking =
        tdm__placement_group_find(wait->node->store, &query, tdm__deadline_after(STORE_DEADLINE_MS),
                                  on_group_found, wait) == TDM_OK;
}

/* Reads the ID of the group from the arguments of "placement_group.wait". */
static tdm_status read_group(struct tdm__incoming_call *incoming, struct tdm__id *group_out)
{
    struct tdm__group_find_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__group_find_table(), &message));
    *group_out = message.id;
    return tdm__id_is_none(group_out) ? tdm__fail(TDM_E_PROTOCOL, "a group without an ID") : TDM_OK;
}

void tdm__placement_group_waits_serve(struct tdm__node *node, struct tdm__incoming_call *incoming)
{
    struct placement_group_wait *wait = calloc(1, sizeof(*wait));
    struct tdm__id group;
    tdm_status status =
        wait == NULL ? tdm__fail(TDM_E_NOMEM, "a waiting call") : read_group(incoming, &group);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        free(wait);
        return;
    }
    *wait = (struct placement_group_wait){.next = node->placement_group_waits->all,
                                          .node = node,
                                          .incoming = incoming,
                                          .group = group};
    node->placement_group_waits->all = wait;
    wait_ask(wait);
}

void tdm__placement_group_waits_end(struct tdm__node *node,
                                    const struct tdm__placement_group_record *record)
{
    for (struct placement_group_wait *wait = node->placement_group_waits->all; wait != NULL;
         wait = wait->next) {
        if (wait->incoming != NULL && tdm__id_equal(&wait->group, &record->id)) {
            tdm__placement_group_reply(wait->incoming, record, NULL);
            wait->incoming = NULL;
        }
    }
    waits_free_ended(node->placement_group_waits);
}

void tdm__placement_group_waits_fail(struct tdm__node *node, const struct tdm__id *group,
                                     const char *detail)
{
    for (struct placement_group_wait *wait = node->placement_group_waits->all; wait != NULL;
         wait = wait->next) {
        if (tdm__id_equal(&wait->group, group)) {
            wait_fail(wait, TDM_E_NOT_FOUND, detail);
        }
    }
    waits_free_ended(node->placement_group_waits);
}

void tdm__placement_group_waits_retry(struct tdm__node *node)
{
    int64_t now_ms = tdm__clock_ms();

    for (struct placement_group_wait *wait = node->placement_group_waits->all; wait != NULL;
         wait = wait->next) {
        if (wait->incoming != NULL && tdm__incoming_deadline(wait->incoming) <= now_ms) {
            wait_fail(wait, TDM_E_TIMEOUT, "the placement group is not placed yet");
        } else if (wait->incoming != NULL && !wait->is_asking) {
            wait_ask(wait);
        }
    }
    waits_free_ended(node->placement_group_waits);
}
