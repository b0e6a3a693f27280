/* cluster_state.c - lists of what is in the cluster, asked of the node and laid out for C. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/call_list.h"
#include "actors/common/state_record.h"
#include "actors/objects/object_list.h"
#include "actors/runtime.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>
#include <tandem/state.h>

/* In front of each list: what its texts and small arrays live in. */
struct list {
    tdm_document *document; /* owned */
    void *amounts;          /* owned */
    void *gpus;             /* owned */
    void *bundles;          /* owned; groups only */
    max_align_t items[];
};

/* Where the next small array goes; the sums were counted before. */
struct filler {
    struct tdm_amount *amounts;
    uint32_t *gpus;
    struct tdm_bundle_state *bundles;
};

void tdm_list_free(const void *list)
{
    struct list *whole;

    if (list == NULL) {
        return;
    }
    whole = (struct list *)((uintptr_t)list - offsetof(struct list, items));
    tdm_document_destroy(whole->document);
    free(whole->amounts);
    free(whole->gpus);
    free(whole->bundles);
    free(whole);
}

/* ---- asking ----------------------------------------------------------------------------- */

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

/* How many amounts and GPU indices there are in `value` and below. */
static void count_parts(const tdm_value *record, size_t *amounts, size_t *gpus, size_t *bundles)
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

/* A list for the rows of `document`, which it takes. */
static tdm_status list_create(tdm_document *document, size_t item_bytes, struct list **list_out,
                              struct filler *filler_out,
                              struct tdm__cluster_rows_message *reply_out)
{
    tdm_status status = tdm__cluster_rows_decode(tdm_document_root(document), reply_out);
    const tdm_value *records = reply_out->rows.value;
    uint32_t count = tdm_value_count(records);
    struct list *list;
    size_t amounts = 1;
    size_t gpus = 1;
    size_t bundles = 1;

    if (status != TDM_OK) {
        tdm_document_destroy(document);
        return status;
    }
    list = calloc(1, sizeof(*list) + (count + 1) * item_bytes);
    for (uint32_t i = 0; i < count; i++) {
        count_parts(tdm_value_at(records, i), &amounts, &gpus, &bundles);
    }
    if (list == NULL) {
        tdm_document_destroy(document);
        return tdm__fail(TDM_E_NOMEM, "a list of %u", count);
    }
    list->document = document;
    *filler_out =
        (struct filler){calloc(amounts, sizeof(struct tdm_amount)), calloc(gpus, sizeof(uint32_t)),
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

static const struct tdm_amount *fill_amounts(struct filler *filler, const tdm_value *record,
                                             uint32_t *count_out)
{
    const tdm_value *amounts = tdm_value_find(record, "amounts");
    struct tdm_amount *first = filler->amounts;

    *count_out = tdm_value_count(amounts);
    for (uint32_t i = 0; i < *count_out; i++) {
        const tdm_value *amount = tdm_value_at(amounts, i);

        *filler->amounts++ =
            (struct tdm_amount){.name = tdm_value_string(tdm_value_at(amount, 0), ""),
                                .total = tdm_value_double(tdm_value_at(amount, 1), 0),
                                .free = tdm_value_double(tdm_value_at(amount, 2), 0)};
    }
    return first;
}

static const uint32_t *fill_gpus(struct filler *filler, const tdm_value *record,
                                 uint32_t *count_out)
{
    const tdm_value *gpus = tdm_value_find(record, "gpus");
    uint32_t *first = filler->gpus;

    *count_out = tdm_value_count(gpus);
    for (uint32_t i = 0; i < *count_out; i++) {
        *filler->gpus++ = (uint32_t)tdm_value_uint(tdm_value_at(gpus, i), 0);
    }
    return first;
}

/* ---- actors ----------------------------------------------------------------------------- */

static void fill_actor(struct filler *filler, const tdm_value *record,
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
    actor->amounts = fill_amounts(filler, record, &actor->amounts_count);
    actor->gpu_indices = fill_gpus(filler, record, &actor->gpus_count);
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
    struct list *list;
    struct filler filler;
    struct tdm__cluster_rows_message reply;
    const tdm_value *records;
    struct tdm_actor_state *actors;

    TDM_TRY(state_list_request(runtime, "actors", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*actors), &list, &filler, &reply));
    records = reply.rows.value;
    actors = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        fill_actor(&filler, tdm_value_at(records, i), &actors[i]);
    }
    *actors_out = actors;
    *actors_count_out = tdm_value_count(records);
    if (missing_nodes_out != NULL) {
        *missing_nodes_out = reply.missing_nodes;
    }
    return TDM_OK;
}

/* ---- nodes ------------------------------------------------------------------------------ */

tdm_status tdm_list_nodes(tdm_runtime *runtime, int64_t timeout_ms,
                          const struct tdm_node_state **nodes_out, uint32_t *nodes_count_out)
{
    TDM__REQUIRE(nodes_out);
    TDM__REQUIRE(nodes_count_out);
    *nodes_out = NULL;
    *nodes_count_out = 0;
    TDM__REQUIRE(runtime);

    tdm_document *document;
    struct list *list;
    struct filler filler;
    struct tdm__cluster_rows_message reply;
    const tdm_value *records;
    struct tdm_node_state *nodes;

    TDM_TRY(state_list_request(runtime, "nodes", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*nodes), &list, &filler, &reply));
    records = reply.rows.value;
    nodes = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        const tdm_value *record = tdm_value_at(records, i);

        nodes[i] =
            (struct tdm_node_state){.id = tdm__state_record_text(record, "id"),
                                    .name = tdm__state_record_text(record, "name"),
                                    .unix_address = tdm__state_record_text(record, "unix_address"),
                                    .tcp_address = tdm__state_record_text(record, "tcp_address"),
                                    .pid = tdm__state_record_int(record, "pid")};
        nodes[i].amounts = fill_amounts(&filler, record, &nodes[i].amounts_count);
    }
    *nodes_out = nodes;
    *nodes_count_out = tdm_value_count(records);
    return TDM_OK;
}

/* ---- objects ---------------------------------------------------------------------------- */

/* `missing_out` may be NULL. */
static void tell_missing(const struct tdm__cluster_rows_message *reply,
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
    struct list *list;
    struct filler filler;
    struct tdm__cluster_rows_message reply;
    const tdm_value *records;
    struct tdm_object_state *objects;

    TDM_TRY(state_list_request(runtime, "objects", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*objects), &list, &filler, &reply));
    records = reply.rows.value;
    objects = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        tdm__object_record_read(tdm_value_at(records, i), &objects[i]);
    }
    *objects_out = objects;
    *objects_count_out = tdm_value_count(records);
    tell_missing(&reply, missing_out);
    return TDM_OK;
}

/* ---- calls ------------------------------------------------------------------------------ */

static void fill_calls(const tdm_value *record, struct tdm_calls_state *calls)
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
    struct list *list;
    struct filler filler;
    struct tdm__cluster_rows_message reply;
    const tdm_value *records;
    struct tdm_calls_state *calls;

    TDM_TRY(state_list_request(runtime, "calls", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*calls), &list, &filler, &reply));
    records = reply.rows.value;
    calls = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        fill_calls(tdm_value_at(records, i), &calls[i]);
    }
    *calls_out = calls;
    *calls_count_out = tdm_value_count(records);
    tell_missing(&reply, missing_out);
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
    struct list *list;
    struct filler filler;
    struct tdm__cluster_rows_message reply;
    const tdm_value *records;
    struct tdm_call_state *calls;

    TDM_TRY(state_list_request(runtime, "each call", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*calls), &list, &filler, &reply));
    records = reply.rows.value;
    calls = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        tdm__call_record_read(tdm_value_at(records, i), &calls[i]);
    }
    *calls_out = calls;
    *calls_count_out = tdm_value_count(records);
    tell_missing(&reply, missing_out);
    return TDM_OK;
}

/* ---- groups ----------------------------------------------------------------------------- */

static void fill_group(struct filler *filler, const tdm_value *record,
                       struct tdm_placement_group_state *group)
{
    const tdm_value *bundles = tdm_value_find(record, "bundles");

    group->id = tdm__state_record_text(record, "id");
    group->name = tdm__state_record_text(record, "name");
    group->name_space = tdm__state_record_text(record, "name_space");
    group->detached = (int)tdm__state_record_int(record, "detached");
    group->bundles = filler->bundles;
    group->bundles_count = tdm_value_count(bundles);
    for (uint32_t i = 0; i < group->bundles_count; i++) {
        struct tdm_bundle_state *bundle = filler->bundles++;
        const tdm_value *inner = tdm_value_at(bundles, i);

        bundle->node_id = tdm__state_record_text(inner, "node_id");
        bundle->amounts = fill_amounts(filler, inner, &bundle->amounts_count);
        bundle->gpu_indices = fill_gpus(filler, inner, &bundle->gpus_count);
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
    struct list *list;
    struct filler filler;
    struct tdm__cluster_rows_message reply;
    const tdm_value *records;
    struct tdm_placement_group_state *groups;

    TDM_TRY(state_list_request(runtime, "groups", timeout_ms, &document));
    TDM_TRY(list_create(document, sizeof(*groups), &list, &filler, &reply));
    records = reply.rows.value;
    groups = (void *)list->items;
    for (uint32_t i = 0; i < tdm_value_count(records); i++) {
        fill_group(&filler, tdm_value_at(records, i), &groups[i]);
    }
    *groups_out = groups;
    *groups_count_out = tdm_value_count(records);
    return TDM_OK;
}
