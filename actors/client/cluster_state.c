/* cluster_state.c - the public lists of what exists in the cluster, requested from the daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements tdm_list_actors(), tdm_list_nodes(), tdm_list_objects(), tdm_list_calls(),
 * tdm_list_each_call() and tdm_list_placement_groups(). Each sends "state.list" to the daemon,
 * drives the loop until the reply arrives, and converts the records into an array of public
 * structs. The array is the tail of a struct state_list, which owns all memory that the structs
 * point to; tdm_list_free() finds it by its offset.
 *
 * Texts are borrowed from the parsed reply. Small arrays (amounts, GPU indices, bundles) are
 * counted first, allocated once each, and then filled in order. Any user thread may enter. */

#include "actors/client/cluster_state.h"

#include "actors/common/call_record.h"
#include "actors/common/object_list.h"
#include "actors/common/state_record.h"
#include "actors/process/runtime.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <tandem/state.h>

/* A list that was returned to the user, in front of its array. */
struct state_list {
    tdm_document *document; /* Parsed reply, owned; the texts of the array are borrowed from it. */
    const tdm_value *records; /* Array of the records, borrowed from `document`. */
    void *amounts;            /* Amounts of all records, owned. */
    void *gpus;               /* GPU indices of all records, owned. */
    void *bundles; /* Bundles of all records, owned; used only in lists of placement groups. */
    uint32_t missing_nodes; /* Number of nodes that did not reply with their parts. */
    max_align_t items[];    /* The array that the user sees; its type depends on the list. */
};

/* Where the next small arrays of a list go. The arrays were allocated with the right sizes. */
struct array_filler {
    struct tdm_amount *amounts;       /* Next free amount. */
    uint32_t *gpus;                   /* Next free GPU index. */
    struct tdm_bundle_state *bundles; /* Next free bundle. */
};

/* Returns the list whose array the user sees at `items`. */
static struct state_list *state_list_of(const void *items)
{
    return (struct state_list *)((uintptr_t)items - offsetof(struct state_list, items));
}

const tdm_value *tdm__list_record(const void *list, uint32_t index)
{
    return tdm_value_at(state_list_of(list)->records, index);
}

uint32_t tdm__list_missing_nodes(const void *list)
{
    return state_list_of(list)->missing_nodes;
}

void tdm_list_free(const void *list)
{
    struct state_list *whole;

    if (list == NULL) {
        return;
    }
    whole = state_list_of(list);
    tdm_document_destroy(whole->document);
    free(whole->amounts);
    free(whole->gpus);
    free(whole->bundles);
    free(whole);
}

/* ---- requests ---------------------------------------------------------------------------- */

/* Requests the records of one kind from the daemon. */
static tdm_status state_list_request(tdm_runtime *runtime, const char *kind, int64_t timeout_ms,
                                     tdm_document **document_out)
{
    const struct tdm__state_list_message message = {kind};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__state_list_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(runtime, "state.list", tdm_writer_bytes(writer),
                                          timeout_ms, document_out);
    }
    tdm_writer_destroy(writer);
    (void)tdm__wrap(status, "the list of %s", kind);
    return status;
}

/* Adds the numbers of amounts, GPU indices and bundles in a record, including those inside its
 * bundles. */
static void state_record_count_arrays(const tdm_value *record, size_t *amounts, size_t *gpus,
                                      size_t *bundles)
{
    const tdm_value *inner = tdm_value_find(record, "bundles");

    *amounts += tdm_value_count(tdm_value_find(record, "amounts"));
    *gpus += tdm_value_count(tdm_value_find(record, "gpus"));
    *bundles += tdm_value_count(inner);
    for (uint32_t i = 0; i < tdm_value_count(inner); i++) {
        const tdm_value *bundle = tdm_value_at(inner, i);

        *amounts += tdm_value_count(tdm_value_find(bundle, "amounts"));
        *gpus += tdm_value_count(tdm_value_find(bundle, "gpus"));
    }
}

/* Allocates a list for the records in `document`, which it takes ownership of, and decodes the
 * message around them. */
static tdm_status list_create(tdm_document *document, size_t item_bytes,
                              struct state_list **list_out, struct array_filler *filler_out,
                              struct tdm__cluster_state_list_message *reply_out)
{
    tdm_status status = tdm__cluster_state_list_decode(tdm_document_root(document), reply_out);
    const tdm_value *records = reply_out->records.value;
    uint32_t count = tdm_value_count(records);
    struct state_list *list;
    size_t amounts = 1;
    size_t gpus = 1;
    size_t bundles = 1;

    if (status != TDM_OK) {
        tdm_document_destroy(document);
        return status;
    }
    list = calloc(1, sizeof(*list) + (count + 1) * item_bytes);
    for (uint32_t i = 0; i < count; i++) {
        state_record_count_arrays(tdm_value_at(records, i), &amounts, &gpus, &bundles);
    }
    if (list == NULL) {
        tdm_document_destroy(document);
        return tdm__fail(TDM_E_NOMEM, "a list of %u", count);
    }
    list->document = document;
    list->records = records;
    list->missing_nodes = reply_out->missing_nodes;
    *filler_out = (struct array_filler){calloc(amounts, sizeof(struct tdm_amount)),
                                        calloc(gpus, sizeof(uint32_t)),
                                        calloc(bundles, sizeof(struct tdm_bundle_state))};
    list->amounts = filler_out->amounts;
    list->gpus = filler_out->gpus;
    list->bundles = filler_out->bundles;
    if (list->amounts == NULL || list->gpus == NULL || list->bundles == NULL) {
        tdm_list_free(list->items);
        return tdm__fail(TDM_E_NOMEM, "a list of %u", count);
    }
    *list_out = list;
    return TDM_OK;
}

/* Converts the amounts of a record; returns the first. */
static const struct tdm_amount *fill_record_amounts(struct array_filler *array_filler,
                                                    const tdm_value *record, uint32_t *count_out)
{
    const tdm_value *amounts = tdm_value_find(record, "amounts");
    struct tdm_amount *first = array_filler->amounts;

    *count_out = tdm_value_count(amounts);
    for (uint32_t i = 0; i < *count_out; i++) {
        struct tdm__resource_amount_message amount;

        if (tdm__resource_amount_decode(tdm_value_at(amounts, i), &amount) != TDM_OK) {
            amount = (struct tdm__resource_amount_message){.name = ""};
        }
        *array_filler->amounts++ =
            (struct tdm_amount){.name = amount.name, .total = amount.total, .free = amount.free};
    }
    return first;
}

/* Converts the GPU indices of a record; returns the first. */
static const uint32_t *fill_record_gpus(struct array_filler *array_filler, const tdm_value *record,
                                        uint32_t *count_out)
{
    const tdm_value *gpus = tdm_value_find(record, "gpus");
    uint32_t *first = array_filler->gpus;

    *count_out = tdm_value_count(gpus);
    for (uint32_t i = 0; i < *count_out; i++) {
        *array_filler->gpus++ = (uint32_t)tdm_value_uint(tdm_value_at(gpus, i), 0);
    }
    return first;
}

/* ---- actors ----------------------------------------------------------------------------- */

/* Converts the record of an actor. */
static void fill_actor_state(struct array_filler *array_filler, const tdm_value *record,
                             struct tdm_actor_state *actor)
{
    *actor = (struct tdm_actor_state){.id = tdm__state_record_text(record, "id"),
                                      .class_name = tdm__state_record_text(record, "class_name"),
                                      .name = tdm__state_record_text(record, "name"),
                                      .name_space = tdm__state_record_text(record, "name_space"),
                                      .state = tdm__state_record_text(record, "state"),
                                      .node_id = tdm__state_record_text(record, "node_id"),
                                      .node_name = tdm__state_record_text(record, "node_name"),
                                      .creator = tdm__state_record_text(record, "creator"),
                                      .group = tdm__state_record_text(record, "group"),
                                      .death_cause = tdm__state_record_text(record, "death_cause"),
                                      .pid = tdm__state_record_int(record, "pid"),
                                      .restarts = tdm__state_record_int(record, "restarts"),
                                      .detached = (int)tdm__state_record_int(record, "detached")};
    actor->amounts = fill_record_amounts(array_filler, record, &actor->amounts_count);
    actor->gpu_indices = fill_record_gpus(array_filler, record, &actor->gpus_count);
}

tdm_status tdm_list_actors(tdm_runtime *runtime, int64_t timeout_ms,
                           const struct tdm_actor_state **actors_out, uint32_t *actors_count_out,
                           uint32_t *missing_nodes_out)
{
    TDM__REQUIRE(actors_out);
    TDM__REQUIRE(actors_count_out);
    *actors_out = NULL;
    *actors_count_out = 0;
    TDM__REQUIRE(runtime);

    tdm_document *document;
    struct state_list *list;
    struct array_filler array_filler;
    struct tdm__cluster_state_list_message reply;
    const tdm_value *records;
    struct tdm_actor_state *actors;

    TDM_TRY(state_list_request(runtime, "actors", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*actors), &list, &array_filler, &reply));
    records = reply.records.value;
    actors = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        fill_actor_state(&array_filler, tdm_value_at(records, i), &actors[i]);
    }
    *actors_out = actors;
    *actors_count_out = tdm_value_count(records);
    if (missing_nodes_out != NULL) {
        *missing_nodes_out = reply.missing_nodes;
    }
    return TDM_OK;
}

/* ---- nodes ------------------------------------------------------------------------------ */

/* Sets the labels of a node from its record. */
static void fill_record_labels(const tdm_value *record, struct tdm_node_state *node)
{
    const tdm_value *labels = tdm_value_find(record, "labels");
    uint32_t count = tdm_value_count(labels);

    for (uint32_t i = 0; i < count && i < TDM_LABELS_MAX; i++) {
        node->labels[node->labels_count++] = tdm_value_string(tdm_value_at(labels, i), "");
    }
}

tdm_status tdm_list_nodes(tdm_runtime *runtime, int64_t timeout_ms,
                          const struct tdm_node_state **nodes_out, uint32_t *nodes_count_out)
{
    TDM__REQUIRE(nodes_out);
    TDM__REQUIRE(nodes_count_out);
    *nodes_out = NULL;
    *nodes_count_out = 0;
    TDM__REQUIRE(runtime);

    tdm_document *document;
    struct state_list *list;
    struct array_filler array_filler;
    struct tdm__cluster_state_list_message reply;
    const tdm_value *records;
    struct tdm_node_state *nodes;

    TDM_TRY(state_list_request(runtime, "nodes", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*nodes), &list, &array_filler, &reply));
    records = reply.records.value;
    nodes = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        const tdm_value *record = tdm_value_at(records, i);

        nodes[i] =
            (struct tdm_node_state){.id = tdm__state_record_text(record, "id"),
                                    .name = tdm__state_record_text(record, "name"),
                                    .unix_address = tdm__state_record_text(record, "unix_address"),
                                    .tcp_address = tdm__state_record_text(record, "tcp_address"),
                                    .pid = tdm__state_record_int(record, "pid")};
        nodes[i].amounts = fill_record_amounts(&array_filler, record, &nodes[i].amounts_count);
        fill_record_labels(record, &nodes[i]);
    }
    *nodes_out = nodes;
    *nodes_count_out = tdm_value_count(records);
    return TDM_OK;
}

/* ---- objects ---------------------------------------------------------------------------- */

/* Reports which parts of the cluster the list lacks. `missing_out` may be NULL. */
static void fill_missing(const struct tdm__cluster_state_list_message *reply,
                         struct tdm_list_missing *missing_out)
{
    if (missing_out != NULL) {
        *missing_out = (struct tdm_list_missing){.nodes = reply->missing_nodes,
                                                 .processes = reply->silent_processes,
                                                 .rows = reply->left_out};
    }
}

tdm_status tdm_list_objects(tdm_runtime *runtime, int64_t timeout_ms,
                            const struct tdm_object_state **objects_out,
                            uint32_t *objects_count_out, struct tdm_list_missing *missing_out)
{
    TDM__REQUIRE(objects_out);
    TDM__REQUIRE(objects_count_out);
    *objects_out = NULL;
    *objects_count_out = 0;
    TDM__REQUIRE(runtime);

    tdm_document *document;
    struct state_list *list;
    struct array_filler array_filler;
    struct tdm__cluster_state_list_message reply;
    const tdm_value *records;
    struct tdm_object_state *objects;

    TDM_TRY(state_list_request(runtime, "objects", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*objects), &list, &array_filler, &reply));
    records = reply.records.value;
    objects = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        tdm__object_record_read(tdm_value_at(records, i), &objects[i]);
    }
    *objects_out = objects;
    *objects_count_out = tdm_value_count(records);
    fill_missing(&reply, missing_out);
    return TDM_OK;
}

/* ---- calls ------------------------------------------------------------------------------ */

/* Converts the record of the calls of one method. */
static void fill_calls_state(const tdm_value *record, struct tdm_calls_state *calls)
{
    *calls =
        (struct tdm_calls_state){.actor = tdm__state_record_text(record, "actor"),
                                 .class_name = tdm__state_record_text(record, "class_name"),
                                 .actor_name = tdm__state_record_text(record, "actor_name"),
                                 .node_id = tdm__state_record_text(record, "node_id"),
                                 .node_name = tdm__state_record_text(record, "node_name"),
                                 .pid = tdm__state_record_int(record, "pid"),
                                 .method = tdm__state_record_text(record, "method"),
                                 .waiting = (uint64_t)tdm__state_record_int(record, "waiting"),
                                 .running = (uint64_t)tdm__state_record_int(record, "running"),
                                 .finished = (uint64_t)tdm__state_record_int(record, "finished"),
                                 .failed = (uint64_t)tdm__state_record_int(record, "failed")};
}

tdm_status tdm_list_calls(tdm_runtime *runtime, int64_t timeout_ms,
                          const struct tdm_calls_state **calls_out, uint32_t *calls_count_out,
                          struct tdm_list_missing *missing_out)
{
    TDM__REQUIRE(calls_out);
    TDM__REQUIRE(calls_count_out);
    *calls_out = NULL;
    *calls_count_out = 0;
    TDM__REQUIRE(runtime);

    tdm_document *document;
    struct state_list *list;
    struct array_filler array_filler;
    struct tdm__cluster_state_list_message reply;
    const tdm_value *records;
    struct tdm_calls_state *calls;

    TDM_TRY(state_list_request(runtime, "calls", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*calls), &list, &array_filler, &reply));
    records = reply.records.value;
    calls = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        fill_calls_state(tdm_value_at(records, i), &calls[i]);
    }
    *calls_out = calls;
    *calls_count_out = tdm_value_count(records);
    fill_missing(&reply, missing_out);
    return TDM_OK;
}

tdm_status tdm_list_each_call(tdm_runtime *runtime, int64_t timeout_ms,
                              const struct tdm_call_state **calls_out, uint32_t *calls_count_out,
                              struct tdm_list_missing *missing_out)
{
    TDM__REQUIRE(calls_out);
    TDM__REQUIRE(calls_count_out);
    *calls_out = NULL;
    *calls_count_out = 0;
    TDM__REQUIRE(runtime);

    tdm_document *document;
    struct state_list *list;
    struct array_filler array_filler;
    struct tdm__cluster_state_list_message reply;
    const tdm_value *records;
    struct tdm_call_state *calls;

    TDM_TRY(state_list_request(runtime, "each call", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*calls), &list, &array_filler, &reply));
    records = reply.records.value;
    calls = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        tdm__call_record_read(tdm_value_at(records, i), &calls[i]);
    }
    *calls_out = calls;
    *calls_count_out = tdm_value_count(records);
    fill_missing(&reply, missing_out);
    return TDM_OK;
}

/* ---- placement groups -------------------------------------------------------------------- */

/* Converts the record of a placement group. */
static void fill_group_state(struct array_filler *array_filler, const tdm_value *record,
                             struct tdm_placement_group_state *group)
{
    const tdm_value *bundles = tdm_value_find(record, "bundles");

    group->id = tdm__state_record_text(record, "id");
    group->name = tdm__state_record_text(record, "name");
    group->name_space = tdm__state_record_text(record, "name_space");
    group->detached = (int)tdm__state_record_int(record, "detached");
    group->state = tdm__state_record_text(record, "state");
    group->strategy = tdm__state_record_text(record, "strategy");
    group->waits_for = tdm__state_record_text(record, "waits_for");
    group->waited_ms = tdm__state_record_int(record, "waited_ms");
    group->ticket = (uint64_t)tdm__state_record_int(record, "ticket");
    group->bundles = array_filler->bundles;
    group->bundles_count = tdm_value_count(bundles);
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        struct tdm_bundle_state *bundle = array_filler->bundles++;
        const tdm_value *inner = tdm_value_at(bundles, i);

        bundle->node_id = tdm__state_record_text(inner, "node_id");
        bundle->amounts = fill_record_amounts(array_filler, inner, &bundle->amounts_count);
        bundle->gpu_indices = fill_record_gpus(array_filler, inner, &bundle->gpus_count);
    }
}

tdm_status tdm_list_placement_groups(tdm_runtime *runtime, int64_t timeout_ms,
                                     const struct tdm_placement_group_state **groups_out,
                                     uint32_t *groups_count_out)
{
    TDM__REQUIRE(groups_out);
    TDM__REQUIRE(groups_count_out);
    *groups_out = NULL;
    *groups_count_out = 0;
    TDM__REQUIRE(runtime);

    tdm_document *document;
    struct state_list *list;
    struct array_filler array_filler;
    struct tdm__cluster_state_list_message reply;
    const tdm_value *records;
    struct tdm_placement_group_state *groups;

    TDM_TRY(state_list_request(runtime, "groups", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*groups), &list, &array_filler, &reply));
    records = reply.records.value;
    groups = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        fill_group_state(&array_filler, tdm_value_at(records, i), &groups[i]);
    }
    *groups_out = groups;
    *groups_count_out = tdm_value_count(records);
    return TDM_OK;
}
