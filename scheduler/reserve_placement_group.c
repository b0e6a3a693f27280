/* reserve_placement_group.c - allocates, finds, closes and removes placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation is a transaction as in reserve.c: its state is allocated for the duration of the
 * transaction and freed by its done function, and its body checks first whether its work is already
 * done.
 *
 * Life of a group: pending if its creator wants it kept without resources (its record has no nodes,
 * and only its owner node places it), reserved (all bundles or none), closed (it accepts no actors,
 * and the remover tells the nodes to end its actors), released. If the store lost the records,
 * restore writes them again with free bundles. A commit that changes a group also checks the
 * records of its nodes, since a node that joins meanwhile computes its free resources from the
 * groups it reads. Everything runs on the loop's thread. reserve.h specifies the operations. */

#include "runtime/error.h"
#include "runtime/store/check.h"
#include "runtime/store/txn.h"
#include "scheduler/nodes_snapshot.h"
#include "scheduler/placement_together.h"
#include "scheduler/reserve.h"
#include "scheduler/reserve_ticket.h"
#include "scheduler/retrying_txn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A commit checks each node of the group and writes its free record; it also writes the group's
 * record and the name's. */
_Static_assert(2 * TDM_BUNDLES_MAX + 2 <= TDM__STORE_WRITES_MAX,
               "a group with a node for each bundle fits in one commit");

/* Adds to the transaction one write of the free resources for each node that has a bundle of the
 * placement group. */
static tdm_status put_group_nodes(struct tdm__txn *txn, const struct tdm__nodes_snapshot *snapshot,
                                  const struct tdm__placement_group_record *group)
{
    for (uint32_t i = 0; i < snapshot->nodes_count; i++) {
        if (tdm__placement_group_has_bundle_on(group, &snapshot->nodes[i].id)) {
            TDM_TRY(tdm__free_record_put(txn, &snapshot->resources[i]));
        }
    }
    return TDM_OK;
}

/* ---- reserve ---------------------------------------------------------------------------- */

/* State of tdm__placement_group_reserve(). */
struct group_reservation {
    struct tdm__resources *wanted;        /* Resources of each requested bundle (owned). */
    uint32_t bundles_count;               /* Number of requested bundles. */
    enum tdm_placement_strategy strategy; /* How the bundles are distributed over the nodes. */
    uint32_t bundles_together; /* Number of consecutive bundles on one node; 0 means 1. */
    bool keeps_pending;        /* Whether a group that cannot be placed is written as pending. */
    /* What the requesting node knows of the store's generation (borrowed); NULL if nothing. */
    const struct tdm__store_view *view;
    /* Failure to place the group in the last run of the transaction's body, which wrote it as
     * pending or changed its tickets; TDM_OK if that run did not. */
    tdm_status pending_status;
    char pending_detail[512];  /* Text of that failure. */
    struct tdm__ticket ticket; /* Ticket of the group; its number is 0 until the group waits. */
    uint32_t turn;             /* Number of the group's turn; 0 for none. */
    uint64_t *ticket_number;   /* Where the number of the ticket is kept (borrowed), or NULL. */
    /* What the last run of the body has done with the tickets of the group that waits. */
    enum tdm__ticket_progress progress;
    struct tdm__store *store; /* Store in which the group is reserved (borrowed). */
    int64_t deadline_ms;      /* Deadline of the operation, in milliseconds on CLOCK_MONOTONIC. */
    /* Whether the store has a record of the group after the last run of the body. */
    bool is_in_store;
    /* Record of the placement group, with the placement that the last run of the transaction's body
     * chose (owned). */
    struct tdm__placement_group_record record;
    tdm__placement_group_reserve_fn *fn; /* Callback that gets the placement group. */
    void *arg;                           /* First argument of the callback `fn`. */
};

/* Frees the state of a placement group's reservation. */
static void group_reservation_free(struct group_reservation *group_reservation)
{
    tdm__placement_group_record_fini(&group_reservation->record);
    free(group_reservation->wanted);
    free(group_reservation);
}

/* Allocates each placed bundle on its node and initialises the bundle's pool. */
static tdm_status apply_placements(struct group_reservation *group_reservation,
                                   struct tdm__nodes_snapshot *snapshot,
                                   const struct tdm__bundle_placement *placements)
{
    for (uint32_t i = 0; i < group_reservation->bundles_count; i++) {
        struct tdm__bundle_record *bundle = &group_reservation->record.bundles[i];

        bundle->node = snapshot->nodes[placements[i].node].id;
        bundle->wanted = group_reservation->wanted[i];
        bundle->grant = placements[i].grant;
        tdm__pool_of_grant(&bundle->pool, &placements[i].grant);
        TDM_TRY(tdm__pool_allocate_grant(
            &tdm__nodes_snapshot_change(snapshot, placements[i].node)->pool, &placements[i].grant));
        tdm__nodes_snapshot_change(snapshot, placements[i].node)->ticket =
            (struct tdm__ticket){.number = 0};
    }
    return TDM_OK;
}

/* Adds to the transaction the checks and writes that a placed group needs. */
static tdm_status write_placements(struct group_reservation *group_reservation,
                                   struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot)
{
    char key[TDM__STORE_KEY_BYTES];

    for (uint32_t i = 0; i < group_reservation->bundles_count; i++) {
        TDM_TRY(tdm__txn_require_node_unchanged(txn, &group_reservation->record.bundles[i].node));
    }
    TDM_TRY(tdm__tickets_take_back(txn, snapshot, &group_reservation->ticket.group,
                                   &group_reservation->record, &group_reservation->progress));
    TDM_TRY(put_group_nodes(txn, snapshot, &group_reservation->record));
    TDM_TRY(tdm__placement_group_name_claim(txn, &group_reservation->record));
    group_reservation->record.placed = true;
    return tdm__placement_group_record_put(
        txn, tdm__store_key("group", &group_reservation->record.id, key),
        &group_reservation->record);
}

/* Gives the group's ticket to nodes if the group has a turn, and else takes it back. The group
 * could not be placed, for the reason `status` and this thread's error detail, which are kept. */
static tdm_status change_tickets(struct group_reservation *group_reservation, tdm_status status,
                                 struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot)
{
    const struct tdm__ticket_request request = {.ticket = group_reservation->ticket,
                                                .turn = group_reservation->turn,
                                                .bundles = group_reservation->wanted,
                                                .bundles_count = group_reservation->bundles_count,
                                                .bundles_together =
                                                    group_reservation->bundles_together,
                                                .strategy = group_reservation->strategy};
    static const struct tdm__placement_group_record nowhere;

    (void)snprintf(group_reservation->pending_detail, sizeof(group_reservation->pending_detail),
                   "%s", tdm_error_detail());
    if (status == TDM_E_AGAIN && group_reservation->turn > 0) {
        TDM_TRY(tdm__tickets_give(txn, snapshot, &request, &group_reservation->progress));
    } else {
        TDM_TRY(tdm__tickets_take_back(txn, snapshot, &group_reservation->ticket.group, &nowhere,
                                       &group_reservation->progress));
    }
    return tdm__fail(status, "%s", group_reservation->pending_detail);
}

/* Gives the group that waits a number, by which it comes before groups that wait later: the highest
 * version that the transaction has read. */
static void take_number(struct group_reservation *group_reservation, const struct tdm__txn *txn)
{
    for (uint32_t i = 0; i < tdm__txn_records_count(txn); i++) {
        uint64_t version = tdm__txn_record_at(txn, i)->version;

        if (*group_reservation->ticket_number == 0 && version > group_reservation->ticket.number) {
            group_reservation->ticket.number = version;
        }
    }
    *group_reservation->ticket_number = group_reservation->ticket.number;
}

/* Chooses nodes for all bundles of the group and adds the checks and writes to the transaction. */
static tdm_status place_group(struct group_reservation *group_reservation, struct tdm__txn *txn)
{
    struct tdm__nodes_snapshot snapshot;
    struct tdm__bundle_placement *placements =
        calloc(group_reservation->bundles_count, sizeof(*placements));
    const struct tdm__placement_chance chance = tdm__placement_chance_of(
        &group_reservation->record.owner_node, tdm__txn_losses(txn), tdm__txn_spread(txn));
    tdm_status status;

    if (placements == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a plan of %u bundles", group_reservation->bundles_count);
    }
    status = tdm__nodes_snapshot_read(txn, &snapshot);
    if (status != TDM_OK) {
        free(placements);
        return status;
    }
    tdm__nodes_snapshot_apply_tickets(&snapshot, &group_reservation->ticket,
                                      group_reservation->turn > 0);
    status = snapshot.nodes_count == 0
                 ? tdm__fail(TDM_E_AGAIN, "no node has joined again yet")
                 : tdm__placement_choose_together(
                       snapshot.resources, snapshot.nodes_count, group_reservation->wanted,
                       group_reservation->bundles_count, group_reservation->bundles_together,
                       group_reservation->strategy, &chance, placements);
    if (status == TDM_OK) {
        status = apply_placements(group_reservation, &snapshot, placements);
    }
    if (status == TDM_OK) {
        status = write_placements(group_reservation, txn, &snapshot);
    } else if ((status == TDM_E_AGAIN || status == TDM_E_NO_RESOURCES) &&
               group_reservation->ticket_number != NULL && !tdm__txn_is_guess(txn)) {
        take_number(group_reservation, txn);
        status = change_tickets(group_reservation, status, txn, &snapshot);
    }
    tdm__nodes_snapshot_fini(&snapshot);
    free(placements);
    return status;
}

/* Keeps the reason why a group could not be placed, `status` and this thread's error detail, for
 * the end of a transaction that commits something else. */
static void keep_failure(struct group_reservation *group_reservation, tdm_status status)
{
    group_reservation->pending_status = status;
    (void)snprintf(group_reservation->pending_detail, sizeof(group_reservation->pending_detail),
                   "%s", tdm_error_detail());
}

/* Writes the record of a group that could not be placed. */
static tdm_status write_pending(struct group_reservation *group_reservation, struct tdm__txn *txn)
{
    struct tdm__placement_group_record *record = &group_reservation->record;
    char key[TDM__STORE_KEY_BYTES];

    for (uint32_t i = 0; i < record->bundles_count; i++) {
        record->bundles[i] = (struct tdm__bundle_record){.wanted = group_reservation->wanted[i]};
    }
    TDM_TRY(tdm__placement_group_name_claim(txn, record));
    group_reservation->is_in_store = true;
    return tdm__placement_group_record_put(txn, tdm__store_key("group", &record->id, key), record);
}

/* Fails with TDM_E_AGAIN while the group's name may belong to a group whose node has not written
 * its records again after the store lost changes. Makes the commit fail so if the store has lost
 * changes that the creating node does not know of yet. */
static tdm_status check_name_may_move(const struct group_reservation *group_reservation,
                                      struct tdm__txn *txn)
{
    const struct tdm__placement_group_record *group = &group_reservation->record;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record;

    if (group->name[0] == '\0' || group_reservation->view == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__txn_require_generation(txn, tdm__placement_group_name_key(group, key),
                                        group_reservation->view->generation));
    if (!group_reservation->view->names_wait) {
        return TDM_OK;
    }
    record = tdm__txn_find_record(txn, key);
    return record != NULL && tdm__record_is_confirmed(group_reservation->view, record->version)
               ? TDM_OK
               : tdm__fail(TDM_E_AGAIN,
                           "the cluster's store lost changes, and the name \"%s\" may belong to a "
                           "group of a node that has not written its records again",
                           group->name);
}

/* Body of the transaction that creates a placement group: places the group, unless an earlier
 * commit has done so, or writes it as pending. */
static tdm_status group_reservation_body(void *arg, struct tdm__txn *txn)
{
    struct group_reservation *group_reservation = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *own =
        tdm__txn_find_record(txn, tdm__store_key("group", &group_reservation->record.id, key));
    tdm_status status;

    group_reservation->pending_status = TDM_OK;
    group_reservation->progress = TDM__TICKETS_UNCHANGED;
    group_reservation->record.placed = false;
    group_reservation->is_in_store = own != NULL;
    if (own == NULL) {
        TDM_TRY(check_name_may_move(group_reservation, txn));
    } else {
        tdm__placement_group_record_fini(&group_reservation->record);
        TDM_TRY(tdm__placement_group_record_read(own, &group_reservation->record));
    }
    if (group_reservation->record.placed) { /* By an earlier commit, whose reply was lost. */
        return tdm__txn_require_confirmed(txn, key);
    }
    if (group_reservation->record.closed) {
        return tdm__fail(TDM_E_NOT_FOUND, "the placement group is being removed");
    }
    status = place_group(group_reservation, txn);
    if ((status != TDM_E_AGAIN && status != TDM_E_NO_RESOURCES) || tdm__txn_is_guess(txn)) {
        return status; /* After a guess the body runs again on what the store says. */
    }
    if (own == NULL && group_reservation->keeps_pending) {
        keep_failure(group_reservation, status);
        return write_pending(group_reservation, txn);
    }
    if (group_reservation->progress != TDM__TICKETS_UNCHANGED) {
        keep_failure(group_reservation, status);
        return TDM_OK;
    }
    return status;
}

/* Starts the transaction of the reservation. */
static tdm_status group_reservation_start(struct group_reservation *group_reservation);

/* Reports the placement group to the caller and frees the operation's state. */
static void group_reservation_done(void *arg, tdm_status status, const char *detail)
{
    struct group_reservation *group_reservation = arg;
    bool is_pending;

    if (status == TDM_OK && group_reservation->progress == TDM__TICKETS_UNFINISHED &&
        group_reservation_start(group_reservation) == TDM_OK) {
        return; /* The next run gives the ticket to more nodes. */
    }
    if (status == TDM_OK && group_reservation->pending_status != TDM_OK) {
        status = group_reservation->pending_status;
        detail = group_reservation->pending_detail;
    }
    is_pending =
        group_reservation->is_in_store && (status == TDM_E_AGAIN || status == TDM_E_NO_RESOURCES);
    group_reservation->fn(group_reservation->arg, status, detail,
                          status == TDM_OK || is_pending ? &group_reservation->record : NULL);
    group_reservation_free(group_reservation);
}

/* Allocates the state of a reservation and copies the request. */
static tdm_status group_reservation_create(const struct tdm__placement_group_request *request,
                                           struct group_reservation **grouping_out)
{
    struct group_reservation *group_reservation = calloc(1, sizeof(*group_reservation));
    uint32_t count = request->bundles_count;

    if (group_reservation == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", count);
    }
    *group_reservation = (struct group_reservation){
        .wanted = calloc(count, sizeof(*group_reservation->wanted)),
        .bundles_count = count,
        .strategy = request->strategy,
        .bundles_together = request->bundles_together,
        .keeps_pending = request->keeps_pending,
        .view = request->view,
        .ticket = {.group = request->id,
                   .owner_node = request->owner_node,
                   .number = request->ticket_number == NULL ? 0 : *request->ticket_number},
        .turn = request->ticket_number == NULL ? 0 : request->turn,
        .ticket_number = request->ticket_number,
        .record = {.id = request->id,
                   .bundles_count = count,
                   .bundles = calloc(count, sizeof(struct tdm__bundle_record)),
                   .detached = request->detached,
                   .strategy = request->strategy,
                   .owner_node = request->owner_node}};
    if (group_reservation->wanted == NULL || group_reservation->record.bundles == NULL) {
        group_reservation_free(group_reservation);
        return tdm__fail(TDM_E_NOMEM, "a group of %u bundles", count);
    }
    memcpy(group_reservation->wanted, request->bundles, count * sizeof(*group_reservation->wanted));
    memcpy(group_reservation->record.name, request->name, sizeof(request->name));
    memcpy(group_reservation->record.name_space, request->name_space, sizeof(request->name_space));
    *grouping_out = group_reservation;
    return TDM_OK;
}

static tdm_status group_reservation_start(struct group_reservation *group_reservation)
{
    const struct tdm__placement_group_record *record = &group_reservation->record;
    char key[TDM__STORE_KEY_BYTES];
    char name_key[TDM__STORE_KEY_BYTES];
    const char *patterns[4] = {"node/*", "free/*", tdm__store_key("group", &record->id, key),
                               tdm__placement_group_name_key(record, name_key)};

    return tdm__retrying_txn_run_queued(group_reservation->store, patterns,
                                        name_key[0] == '\0' ? 3 : 4, group_reservation->deadline_ms,
                                        group_reservation_body, group_reservation_done,
                                        group_reservation);
}

tdm_status tdm__placement_group_reserve(struct tdm__store *store,
                                        const struct tdm__placement_group_request *request,
                                        int64_t deadline_ms, tdm__placement_group_reserve_fn *fn,
                                        void *arg)
{
    struct group_reservation *group_reservation;
    tdm_status status;

    TDM_TRY(group_reservation_create(request, &group_reservation));
    group_reservation->fn = fn;
    group_reservation->arg = arg;
    group_reservation->store = store;
    group_reservation->deadline_ms = deadline_ms;
    status = group_reservation_start(group_reservation);
    if (status != TDM_OK) {
        group_reservation_free(group_reservation);
    }
    return status;
}

/* ---- find ------------------------------------------------------------------------------- */

/* State of tdm__placement_group_find(). */
struct group_search {
    struct tdm__placement_group_query query; /* Copy of the caller's query. */
    /* Record of the found placement group (owned); zeroed before the group is found. */
    struct tdm__placement_group_record record;
    tdm__placement_group_reserve_fn *fn; /* Callback that gets the placement group. */
    void *arg;                           /* First argument of the callback `fn`. */
};

/* Returns whether the group matches the query. Closed groups are found only by ID. */
static bool group_matches(const struct tdm__placement_group_query *query,
                          const struct tdm__placement_group_record *group)
{
    if (!tdm__id_is_none(&query->id)) {
        return tdm__id_equal(&query->id, &group->id);
    }
    return !group->closed && strcmp(query->name, group->name) == 0 &&
           strcmp(query->name_space, group->name_space) == 0;
}

/* Body of the transaction that finds a placement group: searches the records that were read. */
static tdm_status group_search_body(void *arg, struct tdm__txn *txn)
{
    struct group_search *group_search = arg;

    for (uint32_t i = 0; i < tdm__txn_records_count(txn); i++) {
        struct tdm__placement_group_record group;

        TDM_TRY(tdm__placement_group_record_read(tdm__txn_record_at(txn, i), &group));
        if (group_matches(&group_search->query, &group)) {
            tdm__placement_group_record_fini(&group_search->record);
            group_search->record = group;
            return TDM_OK;
        }
        tdm__placement_group_record_fini(&group);
    }
    return tdm__fail(TDM_E_NOT_FOUND, "no placement group \"%s\"", group_search->query.name);
}

/* Reports the placement group to the caller and frees the operation's state. */
static void group_search_done(void *arg, tdm_status status, const char *detail)
{
    struct group_search *group_search = arg;

    group_search->fn(group_search->arg, status, detail,
                     status == TDM_OK ? &group_search->record : NULL);
    tdm__placement_group_record_fini(&group_search->record);
    free(group_search);
}

tdm_status tdm__placement_group_find(struct tdm__store *store,
                                     const struct tdm__placement_group_query *query,
                                     int64_t deadline_ms, tdm__placement_group_reserve_fn *fn,
                                     void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[1] = {"group/*"};
    struct group_search *group_search = calloc(1, sizeof(*group_search));
    tdm_status status;

    if (group_search == NULL) {
        return tdm__fail(TDM_E_NOMEM, "finding a group");
    }
    *group_search = (struct group_search){.query = *query, .fn = fn, .arg = arg};
    if (!tdm__id_is_none(&query->id)) {
        patterns[0] = tdm__store_key("group", &query->id, key);
    }
    status = tdm__retrying_txn_run(store, patterns, 1, deadline_ms, group_search_body,
                                   group_search_done, group_search);
    if (status != TDM_OK) {
        free(group_search);
    }
    return status;
}

/* ---- close ------------------------------------------------------------------------------ */

/* State of tdm__placement_group_close(). */
struct group_closing {
    struct tdm__id id;      /* ID of the placement group to close. */
    struct tdm__id remover; /* ID of the node that will remove the placement group. */
    bool exists;            /* Whether the store contains the placement group. */
    /* Record of the closed placement group (owned); valid if `exists` is true. */
    struct tdm__placement_group_record record;
    struct tdm__node_record *nodes; /* Records of the nodes with members of the group (owned). */
    uint32_t nodes_count;           /* Number of entries in `nodes`. */
    /* Callback that gets the closed placement group and the nodes. */
    tdm__placement_group_close_fn *fn;
    void *arg; /* First argument of the callback `fn`. */
};

/* Frees the results of the last run of the transaction's body. */
static void group_closing_reset(struct group_closing *group_closing)
{
    tdm__placement_group_record_fini(&group_closing->record);
    free(group_closing->nodes);
    group_closing->nodes = NULL;
    group_closing->nodes_count = 0;
    group_closing->exists = false;
}

/* Keeps the records of the nodes with members of the group. If the store has lost the group's
 * record, any node may have members. */
static tdm_status group_closing_keep_nodes(struct group_closing *group_closing,
                                           const struct tdm__txn *txn)
{
    struct tdm__nodes_snapshot snapshot;

    TDM_TRY(tdm__nodes_snapshot_read(txn, &snapshot));
    group_closing->nodes = calloc(snapshot.nodes_count + 1, sizeof(*group_closing->nodes));
    if (group_closing->nodes != NULL) {
        for (uint32_t i = 0; i < snapshot.nodes_count; i++) {
            if (!group_closing->exists ||
                tdm__placement_group_has_member_on(&group_closing->record, &snapshot.nodes[i].id)) {
                group_closing->nodes[group_closing->nodes_count++] = snapshot.nodes[i];
            }
        }
    }
    tdm__nodes_snapshot_fini(&snapshot);
    return group_closing->nodes != NULL ? TDM_OK : tdm__fail(TDM_E_NOMEM, "closing a group");
}

/* Body of the transaction that closes a placement group: reads the group and the nodes, marks the
 * group as closed and makes the remover's node its owner. Writes nothing if the group is absent or
 * closed already. */
static tdm_status group_closing_body(void *arg, struct tdm__txn *txn)
{
    struct group_closing *group_closing = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("group", &group_closing->id, key));

    group_closing_reset(group_closing);
    if (record != NULL) {
        TDM_TRY(tdm__placement_group_record_read(record, &group_closing->record));
        group_closing->exists = true;
    }
    TDM_TRY(group_closing_keep_nodes(group_closing, txn));
    if (record == NULL || group_closing->record.closed) {
        return TDM_OK;
    }
    group_closing->record.closed = true;
    group_closing->record.owner_node = group_closing->remover;
    for (uint32_t i = 0; i < group_closing->record.requesters_count; i++) {
        TDM_TRY(tdm__txn_require_node_unchanged(txn, &group_closing->record.requesters[i]));
    }
    for (uint32_t i = 0; group_closing->record.placed && i < group_closing->record.bundles_count;
         i++) {
        /* The nodes of the group's bundles must be told to end the group's actors. */
        TDM_TRY(tdm__txn_require_node_unchanged(txn, &group_closing->record.bundles[i].node));
    }
    return tdm__placement_group_record_put(txn, key, &group_closing->record);
}

/* Reports the closed placement group and the nodes to the caller, and frees the operation's
 * state. */
static void group_closing_done(void *arg, tdm_status status, const char *detail)
{
    struct group_closing *group_closing = arg;

    group_closing->fn(group_closing->arg, status, detail,
                      group_closing->exists ? &group_closing->record : NULL, group_closing->nodes,
                      group_closing->nodes_count);
    group_closing_reset(group_closing);
    free(group_closing);
}

tdm_status tdm__placement_group_close(struct tdm__store *store,
                                      const struct tdm__placement_group_record *group,
                                      int64_t deadline_ms, tdm__placement_group_close_fn *fn,
                                      void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {"node/*", "free/*", tdm__store_key("group", &group->id, key)};
    struct group_closing *group_closing = calloc(1, sizeof(*group_closing));
    tdm_status status;

    if (group_closing == NULL) {
        return tdm__fail(TDM_E_NOMEM, "closing a group");
    }
    *group_closing =
        (struct group_closing){.id = group->id, .remover = group->owner_node, .fn = fn, .arg = arg};
    status = tdm__retrying_txn_run_queued(store, patterns, 3, deadline_ms, group_closing_body,
                                          group_closing_done, group_closing);
    if (status != TDM_OK) {
        free(group_closing);
    }
    return status;
}

/* ---- release ---------------------------------------------------------------------------- */

/* State of tdm__placement_group_release(). */
struct group_removal {
    /* ID and names of the placement group to remove, without its bundles. */
    struct tdm__placement_group_record named;
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Releases the group's bundles on their nodes and adds the writes. */
static tdm_status release_bundles(const struct tdm__placement_group_record *group,
                                  struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot)
{
    for (uint32_t i = 0; group->placed && i < group->bundles_count; i++) {
        struct tdm__node_resources *node =
            tdm__nodes_snapshot_find(snapshot, &group->bundles[i].node);

        if (node != NULL) { /* A failure means that the node has joined again without the bundle. */
            (void)tdm__pool_release_grant(&node->pool, &group->bundles[i].grant);
        } else { /* The node may be joining with the bundle. */
            TDM_TRY(tdm__txn_require_node_unchanged(txn, &group->bundles[i].node));
        }
    }
    return put_group_nodes(txn, snapshot, group);
}

/* Body of the transaction that removes a placement group: removes its records and releases its
 * resources. */
static tdm_status group_removal_body(void *arg, struct tdm__txn *txn)
{
    struct group_removal *group_removal = arg;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("group", &group_removal->named.id, key));
    struct tdm__nodes_snapshot snapshot = {0};
    struct tdm__placement_group_record group = {.bundles = NULL};
    enum tdm__ticket_progress progress = TDM__TICKETS_UNCHANGED;
    tdm_status status;

    TDM_TRY(tdm__placement_group_name_release(txn, &group_removal->named));
    if (record != NULL) {
        TDM_TRY(tdm__placement_group_record_read(record, &group));
    }
    status = tdm__nodes_snapshot_read(txn, &snapshot);
    if (status == TDM_OK) {
        status =
            tdm__tickets_take_back(txn, &snapshot, &group_removal->named.id, &group, &progress);
    }
    if (status == TDM_OK) {
        status = release_bundles(&group, txn, &snapshot);
    }
    tdm__nodes_snapshot_fini(&snapshot);
    tdm__placement_group_record_fini(&group);
    return status == TDM_OK && record != NULL ? tdm__txn_delete(txn, key) : status;
}

/* Reports the outcome of a placement group's removal and frees the operation's state. */
static void group_removal_done(void *arg, tdm_status status, const char *detail)
{
    struct group_removal *group_removal = arg;

    group_removal->fn(group_removal->arg, status, detail);
    free(group_removal);
}

tdm_status tdm__placement_group_release(struct tdm__store *store,
                                        const struct tdm__placement_group_record *group,
                                        int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg)
{
    char key[TDM__STORE_KEY_BYTES];
    char name_key[TDM__STORE_KEY_BYTES];
    const char *patterns[4] = {"node/*", "free/*", tdm__store_key("group", &group->id, key),
                               tdm__placement_group_name_key(group, name_key)};
    struct group_removal *group_removal = calloc(1, sizeof(*group_removal));
    tdm_status status;

    if (group_removal == NULL) {
        return tdm__fail(TDM_E_NOMEM, "removing a group");
    }
    *group_removal = (struct group_removal){*group, fn, arg};
    group_removal->named.bundles = NULL;
    status = tdm__retrying_txn_run_queued(store, patterns, name_key[0] == '\0' ? 3 : 4, deadline_ms,
                                          group_removal_body, group_removal_done, group_removal);
    if (status != TDM_OK) {
        free(group_removal);
    }
    return status;
}
