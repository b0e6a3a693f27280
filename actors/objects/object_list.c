/* object_list.c - the objects of a process as rows, for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/object_list.h"

#include "actors/common/state_record.h"
#include "actors/objects/object_memory.h"
#include "actors/objects/ref_table_internal.h"
#include "runtime/clock.h"
#include "runtime/wire/value.h"

/* ---- one row ---------------------------------------------------------------------------- */

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

/* ---- the rows of a process -------------------------------------------------------------- */

/* Rows on their way, and what all of them have in common. */
struct listing {
    struct tdm__state_records *records;
    int64_t now_ms;
    struct tdm_object_state common;
};

static void object_list_add(struct listing *listing, const struct tdm_object_state *record)
{
    tdm_writer *writer = tdm__state_records_next(listing->records);

    if (writer != NULL) {
        tdm__object_record_write(writer, record);
    }
}

static void describe_large(struct listing *listing, struct tdm__large *large,
                           struct tdm_object_state *record)
{
    record->where = large->segment != NULL ? "SHARED" : "SPILLED";
    record->size_bytes = (int64_t)large->size_bytes;
    record->readers_count = large->readers_count;
    record->age_ms = listing->now_ms - large->made_ms;
}

/* One that is no segment of this process, yet large, is read where its maker has it. */
static void describe_value(const tdm_ref *ref, struct tdm_object_state *record)
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

static void add_shared(struct listing *listing, const struct tdm__shared_ref *shared)
{
    struct tdm_object_state record = listing->common;
    struct tdm__large *large = shared->ref->large;
    char id[TDM__ID_TEXT_BYTES];
    const struct borrower_pin *borrower_pin;

    record.id = tdm__id_text(&shared->id, id);
    if (large != NULL) {
        describe_large(listing, large, &record);
        large->is_listed = true;
    } else {
        describe_value(shared->ref, &record);
        record.age_ms = listing->now_ms - shared->made_ms;
    }
    LIST_FOREACH(borrower_pin, &shared->borrower_pins, of_shared)
    {
        record.borrowers_count++;
    }
    record.holders_count = shared->ref->holders_count - record.borrowers_count;
    object_list_add(listing, &record);
}

/* A hold on an actor is a reference, too, but never has a value. */
static void add_all_shared(struct listing *listing, const struct tdm__ref_table *objects)
{
    for (uint32_t i = 0; i < objects->buckets_count; i++) {
        const struct tdm__shared_ref *shared;

        LIST_FOREACH(shared, &objects->buckets[i], in_bucket)
        {
            if (shared->owner == NULL && tdm__id_is_none(&shared->ref->actor)) {
                add_shared(listing, shared);
            }
        }
    }
}

static void add_other_large(struct listing *listing, struct tdm__object_memory *memory)
{
    struct tdm__large *large;

    TAILQ_FOREACH(large, &memory->values, link)
    {
        struct tdm_object_state record = listing->common;

        if (!large->is_listed) {
            describe_large(listing, large, &record);
            record.holders_count = large->owners_count - large->readers_count;
            object_list_add(listing, &record);
        }
        large->is_listed = false;
    }
}

void tdm__object_list_write(tdm_runtime *runtime, struct tdm__state_records *records)
{
    char owner[TDM__ID_TEXT_BYTES];
    struct listing listing = {.records = records,
                              .now_ms = tdm__clock_ms(),
                              .common = {.id = "",
                                         .owner = tdm__id_text(&runtime->self.id, owner),
                                         .owner_name = runtime->self.name,
                                         .node_id = runtime->node_id,
                                         .node_name = runtime->node_name,
                                         .pid = runtime->self.pid}};
    TDM__LOCK(runtime);

    tdm__exports_count_readers(runtime->memory);
    add_all_shared(&listing, runtime->objects);
    add_other_large(&listing, runtime->memory);
}

void tdm__object_list_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming)
{
    struct tdm__state_records records;

    if (tdm__state_records_reply_begin(&records, TDM__OBJECT_RECORDS_MAX, "objects", incoming)) {
        tdm__object_list_write(runtime, &records);
        tdm__state_records_reply_end(&records, incoming);
    }
}
