/* state_groups.c - the list of placement groups: those of the store, and those that wait. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The store has the groups that are placed, and those asynchronous ones that are pending. Why a
 * group waits, and that a group waits whose creator waits for it, is known only to the daemon that
 * tries to place it. So each daemon lists the groups that wait at it, and their records are merged
 * with those of the store by the ID of the group. The store is read before the daemons are asked.
 * Everything runs on the daemon's loop thread. */

#include "actors/daemon/state_groups.h"

#include "actors/common/state_record.h"
#include "actors/daemon/placement_group_table.h"
#include "actors/daemon/state_records.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups that wait on this node ------------------------------------------------------- */

/* Returns whether the group waits for resources. */
static bool group_waits(const struct group_entry *group)
{
    return group->waiting_since_ms != 0 && !group->is_held && !group->is_unwanted;
}

/* Writes the record of a group that waits, as it was requested. Without memory its bundles are
 * missing. */
static void write_waiting_group(tdm_writer *writer, const struct group_entry *group)
{
    const struct tdm__placement_group_request *request = &group->request;
    struct tdm__bundle_record *bundles = calloc(request->bundles_count, sizeof(*bundles));
    const struct tdm__group_wait wait = {.cause =
                                             group->wait_reason == NULL ? "" : group->wait_reason,
                                         .waited_ms = tdm__clock_ms() - group->waiting_since_ms,
                                         .ticket_number = group->ticket_number};
    struct tdm__placement_group_record record = {.id = request->id,
                                                 .bundles_count =
                                                     bundles == NULL ? 0 : request->bundles_count,
                                                 .bundles = bundles,
                                                 .strategy = request->strategy,
                                                 .detached = request->detached};

    memcpy(record.name, request->name, sizeof(record.name));
    memcpy(record.name_space, request->name_space, sizeof(record.name_space));
    for (uint32_t i = 0; i < record.bundles_count; i++) {
        bundles[i].wanted = request->bundles[i];
    }
    tdm__state_write_group(writer, &record, &wait);
    free(bundles);
}

/* Writes an array of the records of the groups that wait at the node `arg`. */
static void write_waiting_groups(tdm_writer *writer, const void *arg)
{
    const struct group_list *all = &((const struct tdm__node *)arg)->placement_groups->all;
    const struct group_entry *group;
    uint32_t count = 0;

    TAILQ_FOREACH(group, all, in_all)
    {
        count += group_waits(group) ? 1 : 0;
    }
    tdm_write_array(writer, count);
    TAILQ_FOREACH(group, all, in_all)
    {
        if (group_waits(group)) {
            write_waiting_group(writer, group);
        }
    }
}

void tdm__state_write_waiting_groups(tdm_writer *writer, const struct tdm__node *node)
{
    const struct tdm__node_state_list_message message = {
        .records = {.write = write_waiting_groups, .arg = node}};

    (void)tdm__node_state_list_encode(&message, writer);
}

/* ---- groups of the store ----------------------------------------------------------------- */

/* A group of the store in a list that is being collected. */
struct stored_group {
    const char *id;          /* ID of the group, borrowed from `record`. */
    const tdm_value *record; /* Record of the group for lists, borrowed. */
    bool is_replaced;        /* True once a daemon's record of the group was accepted. */
};

struct tdm__stored_groups {
    tdm_document *document;      /* Records of the groups, owned. */
    struct stored_group *groups; /* The groups, sorted by ID; owned. */
    uint32_t count;              /* Number of entries of `groups`. */
};

/* Compares the IDs of two groups, for qsort() and bsearch(). */
static int stored_group_compare(const void *a, const void *b)
{
    return strcmp(((const struct stored_group *)a)->id, ((const struct stored_group *)b)->id);
}

/* Parses the records of the groups among `records`. */
static tdm_status parse_groups(const struct tdm__store_record *records, uint32_t records_count,
                               tdm_document **document_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm__state_write_groups(writer, records, records_count);
    status = tdm_document_parse(tdm_writer_bytes(writer), document_out);
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__stored_groups_create(const struct tdm__store_record *records,
                                     uint32_t records_count, struct tdm__stored_groups **groups_out)
{
    struct tdm__stored_groups *groups = calloc(1, sizeof(*groups));
    const tdm_value *root;
    tdm_status status =
        groups == NULL ? TDM_E_NOMEM : parse_groups(records, records_count, &groups->document);

    if (status != TDM_OK) {
        free(groups);
        return tdm__fail(status, "the list of placement groups");
    }
    root = tdm_document_root(groups->document);
    groups->groups = calloc(tdm_value_count(root) + 1u, sizeof(*groups->groups));
    if (groups->groups == NULL) {
        tdm__stored_groups_destroy(groups);
        return tdm__fail(TDM_E_NOMEM, "the list of placement groups");
    }
    groups->count = tdm_value_count(root);
    for (uint32_t i = 0; i < groups->count; i++) {
        const tdm_value *record = tdm_value_at(root, i);

        groups->groups[i] =
            (struct stored_group){.id = tdm__state_record_text(record, "id"), .record = record};
    }
    qsort(groups->groups, groups->count, sizeof(*groups->groups), stored_group_compare);
    *groups_out = groups;
    return TDM_OK;
}

void tdm__stored_groups_destroy(struct tdm__stored_groups *groups)
{
    if (groups != NULL) {
        tdm_document_destroy(groups->document);
        free(groups->groups);
        free(groups);
    }
}

bool tdm__stored_groups_accept(struct tdm__stored_groups *groups, const tdm_value *waiting)
{
    const struct stored_group key = {.id = tdm__state_record_text(waiting, "id")};
    struct stored_group *stored =
        bsearch(&key, groups->groups, groups->count, sizeof(*groups->groups), stored_group_compare);

    if (stored == NULL) {
        return true;
    }
    stored->is_replaced = strcmp(tdm__state_record_text(stored->record, "state"), "PENDING") == 0;
    return stored->is_replaced;
}

uint32_t tdm__stored_groups_write(const struct tdm__stored_groups *groups, tdm_writer *writer)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < groups->count; i++) {
        if (!groups->groups[i].is_replaced) {
            tdm_write_value(writer, groups->groups[i].record);
            count++;
        }
    }
    return count;
}
