/* object_list.c - the objects of a process as state records, for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Writes the reply to "object.list", which the daemon sends to each process of its node for
 * `tandem list objects`. The list contains the references that this process owns and has passed
 * on, each once, and then the large values that belong to none of them. `is_listed` and
 * `readers_count` in struct tdm__large are scratch fields for this, filled and reset by each
 * list. Runs with the loop's lock; the records are the maps of runtime/messages and
 * tandem/state.h. */

#include "actors/common/object_list.h"

#include "actors/common/state_record.h"
#include "actors/objects/export.h"
#include "actors/objects/object_memory.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_records.h"
#include "runtime/clock.h"
#include "runtime/wire/value.h"

#include <string.h>

/* ---- one record -------------------------------------------------------------------------- */

void tdm__object_record_write(tdm_writer *writer, const struct tdm_object_state *record)
{
    tdm_write_map(writer, 12);
    tdm__state_record_write_text(writer, "id", record->id);
    tdm__state_record_write_text(writer, "owner", record->owner);
    tdm__state_record_write_text(writer, "owner_name", record->owner_name);
    tdm__state_record_write_text(writer, "node_id", record->node_id);
    tdm__state_record_write_text(writer, "node_name", record->node_name);
    tdm__state_record_write_text(writer, "where", record->where);
    tdm__state_record_write_int(writer, "pid", record->pid);
    tdm__state_record_write_int(writer, "size_bytes", record->size_bytes);
    tdm__state_record_write_int(writer, "holders", record->holders_count);
    tdm__state_record_write_int(writer, "borrowers", record->borrowers_count);
    tdm__state_record_write_int(writer, "readers", record->readers_count);
    tdm__state_record_write_int(writer, "age_ms", record->age_ms);
}

void tdm__object_record_read(const tdm_value *value, struct tdm_object_state *record_out)
{
    *record_out = (struct tdm_object_state){
        .id = tdm__state_record_text(value, "id"),
        .owner = tdm__state_record_text(value, "owner"),
        .owner_name = tdm__state_record_text(value, "owner_name"),
        .node_id = tdm__state_record_text(value, "node_id"),
        .node_name = tdm__state_record_text(value, "node_name"),
        .where = tdm__state_record_text(value, "where"),
        .pid = tdm__state_record_int(value, "pid"),
        .size_bytes = tdm__state_record_int(value, "size_bytes"),
        .holders_count = (uint32_t)tdm__state_record_int(value, "holders"),
        .borrowers_count = (uint32_t)tdm__state_record_int(value, "borrowers"),
        .readers_count = (uint32_t)tdm__state_record_int(value, "readers"),
        .age_ms = tdm__state_record_int(value, "age_ms")};
}

/* ---- the records of a process ------------------------------------------------------------ */

/* A list of objects that is being written. */
struct object_list {
    struct tdm__state_records *records; /* Where the records go. */
    int64_t now_ms;                 /* Milliseconds on CLOCK_MONOTONIC at which the list began. */
    struct tdm_object_state common; /* Fields that all records of this process share. */
};

/* Appends a record, or counts it as left out if the list is full. */
static void object_list_add(struct object_list *object_list, const struct tdm_object_state *record)
{
    tdm_writer *writer = tdm__state_records_next(object_list->records);

    if (writer != NULL) {
        tdm__object_record_write(writer, record);
    }
}

/* Fills the fields that depend on a large value of this process. */
static void object_list_describe_large(struct object_list *object_list, struct tdm__large *large,
                                       struct tdm_object_state *record)
{
    record->where = large->segment != NULL ? "SHARED" : "SPILLED";
    record->size_bytes = (int64_t)large->size_bytes;
    record->readers_count = large->readers_count;
    record->age_ms = object_list->now_ms - large->created_ms;
}

/* Fills the fields that depend on a value without a segment of this process. Such a value that
 * is nevertheless large is read in a segment of the process that packed it ("ELSEWHERE"). */
static void object_list_describe_value(const tdm_ref *ref, struct tdm_object_state *record)
{
    if (!ref->done) {
        record->where = "PENDING";
    } else if (ref->status != TDM_OK) {
        record->where = "FAILED";
    } else {
        record->size_bytes =
            ref->document == NULL ? 0 : (int64_t)tdm__document_packed_bytes(ref->document);
        record->where = record->size_bytes > TDM__INLINE_BYTES_MAX ? "ELSEWHERE" : "INLINE";
    }
}

/* Appends the record of one reference that this process owns. */
static void object_list_add_shared(struct object_list *object_list,
                                   const struct tdm__shared_ref *shared)
{
    struct tdm_object_state record = object_list->common;
    struct tdm__large *large = shared->ref->large;
    char id[TDM__ID_TEXT_BYTES];
    const struct borrower_pin *borrower_pin;

    record.id = tdm__id_text(&shared->id, id);
    if (large != NULL) {
        object_list_describe_large(object_list, large, &record);
        large->is_listed = true;
    } else {
        object_list_describe_value(shared->ref, &record);
        record.age_ms = object_list->now_ms - shared->created_ms;
    }
    LIST_FOREACH(borrower_pin, &shared->borrower_pins, of_shared)
    {
        record.borrowers_count++;
    }
    record.holders_count = shared->ref->holders_count - record.borrowers_count;
    object_list_add(object_list, &record);
}

/* Appends all references that this process owns and has passed on. A keep-alive reference of an
 * actor never has a value and is left out. */
static void object_list_add_all_shared(struct object_list *object_list,
                                       const struct tdm__ref_table *objects)
{
    for (uint32_t i = 0; i < objects->buckets_count; i++) {
        const struct tdm__shared_ref *shared;

        LIST_FOREACH(shared, &objects->buckets[i], in_bucket)
        {
            if (shared->owner == NULL && tdm__id_is_none(&shared->ref->actor)) {
                object_list_add_shared(object_list, shared);
            }
        }
    }
}

/* Appends the large values that belong to none of the listed references. */
static void object_list_add_other_large(struct object_list *object_list,
                                        struct tdm__object_memory *memory)
{
    struct tdm__large *large;

    TAILQ_FOREACH(large, &memory->values, link)
    {
        struct tdm_object_state record = object_list->common;

        if (!large->is_listed) {
            object_list_describe_large(object_list, large, &record);
            record.holders_count = large->owners_count - large->readers_count;
            object_list_add(object_list, &record);
        }
        large->is_listed = false;
    }
}

void tdm__object_list_write(tdm_runtime *runtime, struct tdm__state_records *records)
{
    char owner[TDM__ID_TEXT_BYTES];
    struct object_list object_list = {.records = records,
                                      .now_ms = tdm__clock_ms(),
                                      .common = {.id = "",
                                                 .owner = tdm__id_text(&runtime->self.id, owner),
                                                 .owner_name = runtime->self.name,
                                                 .node_id = runtime->node_id,
                                                 .node_name = runtime->node_name,
                                                 .pid = runtime->self.pid}};
    TDM__LOCK(runtime);

    tdm__exports_count_readers(runtime->memory);
    object_list_add_all_shared(&object_list, runtime->objects);
    object_list_add_other_large(&object_list, runtime->memory);
}

bool tdm__object_list_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming)
{
    struct tdm__state_records records;

    if (strcmp(tdm__incoming_method(incoming), "object.list") != 0) {
        return false;
    }
    if (tdm__state_records_reply_begin(&records, TDM__OBJECT_RECORDS_MAX, "objects", incoming)) {
        tdm__object_list_write(runtime, &records);
        tdm__state_records_reply_end(&records, incoming);
    }
    return true;
}
