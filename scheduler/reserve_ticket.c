/* reserve_ticket.c - gives the ticket of a placement group that waits to nodes, and takes it back.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reserve_ticket.h"

#include "runtime/error.h"
#include "scheduler/placement_together.h"

#include <stdlib.h>

enum {
    NODES_AT_ONCE = 8, /* Largest number of nodes that get a ticket by one commit. */
    CHANCE_WIDTH = 16  /* Number of candidates among which later turns choose. */
};

/* What the choice of nodes for a ticket works on. */
struct ticket_choice {
    const struct tdm__ticket_request *request; /* The group that waits (borrowed). */
    uint32_t nodes_count;                      /* Number of entries in `idle`. */
    struct tdm__node_resources *idle;          /* The nodes with all resources free (owned). */
    struct tdm__bundle_placement *placements;  /* One entry for each bundle (owned). */
};

/* Returns whether the node has the ticket of the group `id`. */
static bool has_ticket_of(const struct tdm__node_resources *node, const struct tdm__id *id)
{
    return tdm__id_equal(&node->ticket.group, id);
}

/* Chooses nodes that could hold the group if they were idle: of those that have its ticket if
 * `only_own` is set, else of those that are not kept from it. */
static tdm_status ticket_choice_search(struct ticket_choice *choice,
                                       const struct tdm__nodes_snapshot *snapshot, bool only_own)
{
    const struct tdm__ticket_request *request = choice->request;
    struct tdm__placement_chance chance =
        tdm__placement_chance_of(&request->ticket.group, 2 * (uint64_t)request->turn, 0);

    chance.width = request->turn > 1 ? CHANCE_WIDTH : 1;
    for (uint32_t i = 0; i < choice->nodes_count; i++) {
        choice->idle[i].is_kept = only_own
                                      ? !has_ticket_of(&choice->idle[i], &request->ticket.group)
                                      : snapshot->resources[i].is_kept;
    }
    return tdm__placement_choose_together(choice->idle, choice->nodes_count, request->bundles,
                                          request->bundles_count, request->bundles_together,
                                          request->strategy, &chance, choice->placements);
}

/* Adds the writes that give the ticket to the chosen nodes which do not have it. */
static tdm_status ticket_choice_write(const struct ticket_choice *choice, struct tdm__txn *txn,
                                      struct tdm__nodes_snapshot *snapshot,
                                      enum tdm__ticket_progress *progress_out)
{
    uint32_t given_count = 0;

    for (uint32_t i = 0; i < choice->request->bundles_count; i++) {
        uint32_t index = choice->placements[i].node;
        struct tdm__node_resources *node;

        if (has_ticket_of(&snapshot->resources[index], &choice->request->ticket.group)) {
            continue;
        }
        if (given_count == NODES_AT_ONCE) {
            *progress_out = TDM__TICKETS_UNFINISHED;
            return TDM_OK;
        }
        node = tdm__nodes_snapshot_change(snapshot, index);
        node->ticket = choice->request->ticket;
        TDM_TRY(tdm__free_record_put(txn, node));
        *progress_out = TDM__TICKETS_CHANGED;
        given_count++;
    }
    return TDM_OK;
}

tdm_status tdm__tickets_give(struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot,
                             const struct tdm__ticket_request *request,
                             enum tdm__ticket_progress *progress_out)
{
    struct ticket_choice choice = {.request = request,
                                   .nodes_count = snapshot->nodes_count,
                                   .idle = calloc(snapshot->nodes_count + 1, sizeof(*choice.idle)),
                                   .placements =
                                       calloc(request->bundles_count, sizeof(*choice.placements))};
    tdm_status status = TDM_OK;

    if (choice.idle == NULL || choice.placements == NULL) {
        status = tdm__fail(TDM_E_NOMEM, "a ticket for %u nodes", snapshot->nodes_count);
    }
    for (uint32_t i = 0; i < snapshot->nodes_count && status == TDM_OK; i++) {
        choice.idle[i] = snapshot->resources[i];
        tdm__pool_release_all(&choice.idle[i].pool);
    }
    if (status == TDM_OK && ticket_choice_search(&choice, snapshot, true) != TDM_OK &&
        ticket_choice_search(&choice, snapshot, false) == TDM_OK) {
        status = ticket_choice_write(&choice, txn, snapshot, progress_out);
    }
    free(choice.idle);
    free(choice.placements);
    return status;
}

tdm_status tdm__tickets_take_back(struct tdm__txn *txn, struct tdm__nodes_snapshot *snapshot,
                                  const struct tdm__id *id,
                                  const struct tdm__placement_group_record *group,
                                  enum tdm__ticket_progress *progress_out)
{
    for (uint32_t i = 0; i < snapshot->nodes_count; i++) {
        struct tdm__node_resources *node;

        if (!has_ticket_of(&snapshot->resources[i], id)) {
            continue;
        }
        node = tdm__nodes_snapshot_change(snapshot, i);
        node->ticket = (struct tdm__ticket){.number = 0};
        if (!tdm__placement_group_has_bundle_on(group, &node->id)) {
            TDM_TRY(tdm__free_record_put(txn, node));
            *progress_out = TDM__TICKETS_CHANGED;
        }
    }
    return TDM_OK;
}
