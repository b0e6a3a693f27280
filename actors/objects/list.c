/* list.c - the objects of a process as rows, for its daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/list.h"

#include "actors/objects/internal.h"
#include "actors/objects/memory.h"
#include "actors/row.h"
#include "runtime/clock.h"
#include "runtime/wire/value.h"

/* ---- one row ---------------------------------------------------------------------------- */

void tdm__object_row_write(tdm_writer *writer, const struct tdm_object_state *row)
{
    tdm_write_map(writer, 12);
    tdm__row_write_text(writer, "id", row->id);
    tdm__row_write_text(writer, "owner", row->owner);
    tdm__row_write_text(writer, "owner_name", row->owner_name);
    tdm__row_write_text(writer, "node_id", row->node_id);
    tdm__row_write_text(writer, "node_name", row->node_name);
    tdm__row_write_text(writer, "where", row->where);
    tdm__row_write_number(writer, "pid", row->pid);
    tdm__row_write_number(writer, "size_bytes", row->size_bytes);
    tdm__row_write_number(writer, "holders", row->holders_count);
    tdm__row_write_number(writer, "borrowers", row->borrowers_count);
    tdm__row_write_number(writer, "readers", row->readers_count);
    tdm__row_write_number(writer, "age_ms", row->age_ms);
}

void tdm__object_row_read(const tdm_value *value, struct tdm_object_state *row_out)
{
    *row_out = (struct tdm_object_state){
        .id = tdm__row_text(value, "id"),
        .owner = tdm__row_text(value, "owner"),
        .owner_name = tdm__row_text(value, "owner_name"),
        .node_id = tdm__row_text(value, "node_id"),
        .node_name = tdm__row_text(value, "node_name"),
        .where = tdm__row_text(value, "where"),
        .pid = tdm__row_number(value, "pid"),
        .size_bytes = tdm__row_number(value, "size_bytes"),
        .holders_count = (uint32_t)tdm__row_number(value, "holders"),
        .borrowers_count = (uint32_t)tdm__row_number(value, "borrowers"),
        .readers_count = (uint32_t)tdm__row_number(value, "readers"),
        .age_ms = tdm__row_number(value, "age_ms")};
}

/* ---- the rows of a process -------------------------------------------------------------- */

/* Rows on their way, and what all of them have in common. */
struct listing {
    struct tdm__rows *rows;
    int64_t now_ms;
    struct tdm_object_state common;
};

static void add(struct listing *listing, const struct tdm_object_state *row)
{
    tdm_writer *writer = tdm__rows_next(listing->rows);

    if (writer != NULL) {
        tdm__object_row_write(writer, row);
    }
}

static void describe_large(struct listing *listing, struct tdm__large *large,
                           struct tdm_object_state *row)
{
    row->where = large->segment != NULL ? "SHARED" : "SPILLED";
    row->size_bytes = (int64_t)large->size_bytes;
    row->readers_count = large->readers_count;
    row->age_ms = listing->now_ms - large->made_ms;
}

/* One that is no segment of this process, yet large, is read where its maker has it. */
static void describe_value(const tdm_ref *ref, struct tdm_object_state *row)
{
    if (!ref->done) {
        row->where = "PENDING";
    } else if (ref->status != TDM_OK) {
        row->where = "FAILED";
    } else {
        row->size_bytes =
            ref->document == NULL ? 0 : (int64_t)tdm__document_packed_bytes(ref->document);
        row->where = row->size_bytes > TDM__INLINE_BYTES_MAX ? "ELSEWHERE" : "INLINE";
    }
}

static void add_shared(struct listing *listing, const struct tdm__shared *shared)
{
    struct tdm_object_state row = listing->common;
    struct tdm__large *large = shared->ref->large;
    char id[TDM__ID_TEXT_BYTES];
    const struct loan *loan;

    row.id = tdm__id_text(&shared->id, id);
    if (large != NULL) {
        describe_large(listing, large, &row);
        large->is_listed = true;
    } else {
        describe_value(shared->ref, &row);
        row.age_ms = listing->now_ms - shared->made_ms;
    }
    LIST_FOREACH(loan, &shared->loans, of_shared)
    {
        row.borrowers_count++;
    }
    row.holders_count = shared->ref->holders_count - row.borrowers_count;
    add(listing, &row);
}

/* A hold on an actor is a reference, too, but never has a value. */
static void add_all_shared(struct listing *listing, const struct tdm__objects *objects)
{
    for (uint32_t i = 0; i < objects->buckets_count; i++) {
        const struct tdm__shared *shared;

        LIST_FOREACH(shared, &objects->buckets[i], in_bucket)
        {
            if (shared->owner == NULL && tdm__id_is_none(&shared->ref->actor)) {
                add_shared(listing, shared);
            }
        }
    }
}

static void add_other_large(struct listing *listing, struct tdm__memory *memory)
{
    struct tdm__large *large;

    TAILQ_FOREACH(large, &memory->values, link)
    {
        struct tdm_object_state row = listing->common;

        if (!large->is_listed) {
            describe_large(listing, large, &row);
            row.holders_count = large->owners_count - large->readers_count;
            add(listing, &row);
        }
        large->is_listed = false;
    }
}

void tdm__objects_write_rows(tdm_runtime *runtime, struct tdm__rows *rows)
{
    char owner[TDM__ID_TEXT_BYTES];
    struct listing listing = {.rows = rows,
                              .now_ms = tdm__clock_ms(),
                              .common = {.id = "",
                                         .owner = tdm__id_text(&runtime->self.id, owner),
                                         .owner_name = runtime->self.name,
                                         .node_id = runtime->node_id,
                                         .node_name = runtime->node_name,
                                         .pid = runtime->self.pid}};
    TDM__LOCK(runtime);

    tdm__lendings_count(runtime->memory);
    add_all_shared(&listing, runtime->objects);
    add_other_large(&listing, runtime->memory);
}

void tdm__objects_list_serve(tdm_runtime *runtime, struct tdm__incoming *incoming)
{
    struct tdm__rows rows;

    if (tdm__rows_begin_answer(&rows, TDM__OBJECT_ROWS_MAX, "objects", incoming)) {
        tdm__objects_write_rows(runtime, &rows);
        tdm__rows_answer(&rows, incoming);
    }
}
