/* objects.c - the objects of a runtime: references and large values, and calls about them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Ties the files of actors/objects together. It creates and destroys the object memory and the
 * reference table of a runtime, and dispatches the calls of the service "object". It also says what
 * happens to a table entry when its reference completes or ends. Everything runs with the loop's
 * lock. docs/protocols/references.md specifies the protocol. */

#include "actors/objects/objects.h"

#include "actors/objects/export.h"
#include "actors/objects/large_message.h"
#include "actors/objects/large_value.h"
#include "actors/objects/owned_refs.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_owners.h"
#include "actors/objects/ref_records.h"
#include "actors/objects/reply_pins.h"
#include "actors/objects/settling.h"
#include "actors/objects/shared_ref.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* ---- the end of an entry ------------------------------------------------------------------ */

/* Removes the entry from the table and frees it, because its last holder releases the reference. */
static void on_last_release(struct tdm__shared_ref *shared)
{
    tdm__shared_ref_remove(shared);
    tdm__value_waiters_fail(shared, "the object is no longer referenced");
    if (shared->owner != NULL) {
        tdm__borrowed_ref_release(shared);
    }
    TDM_ASSERT(LIST_EMPTY(&shared->borrower_pins));
    free(shared);
}

/* What references tell the table about their entries. */
static const struct tdm__shared_ref_callbacks entry_callbacks = {
    .on_done = tdm__value_waiters_reply, .on_last_release = on_last_release};

/* ---- creation and end ------------------------------------------------------------------------ */

/* Creates an empty reference table. */
static tdm_status ref_table_create(tdm_runtime *runtime, const struct tdm__object_callbacks *client,
                                   struct tdm__ref_table **objects_out)
{
    struct tdm__ref_table *objects = calloc(1, sizeof(*objects));

    if (objects == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table of objects");
    }
    objects->runtime = runtime;
    objects->callbacks = &entry_callbacks;
    objects->client = client;
    TAILQ_INIT(&objects->owners);
    TAILQ_INIT(&objects->borrowers);
    TAILQ_INIT(&objects->pins_settling_list);
    TAILQ_INIT(&objects->reply_pins);
    *objects_out = objects;
    return TDM_OK;
}

/* Removes an entry because the table ends. The user keeps the reference itself. */
static void shared_ref_end(struct tdm__shared_ref *shared)
{
    tdm_ref *kept = shared->is_kept && shared->owner == NULL ? shared->ref : NULL;

    on_last_release(shared);
    tdm_ref_release(kept);
}

/* Frees the table after all connections have closed. NULL is allowed. */
static void ref_table_destroy(struct tdm__ref_table *objects)
{
    if (objects == NULL) {
        return;
    }
    tdm__reply_pins_destroy(objects);
    tdm__pins_abandon_settling(objects->runtime);
    tdm__borrowers_destroy(objects);
    for (uint32_t i = 0; i < objects->buckets_count; i++) {
        struct tdm__shared_ref *shared;

        while ((shared = LIST_FIRST(&objects->buckets[i])) != NULL) {
            shared_ref_end(shared);
        }
    }
    tdm__owners_destroy(objects);
    free(objects->buckets);
    free(objects);
}

tdm_status tdm__objects_create(tdm_runtime *runtime, const struct tdm__object_callbacks *client)
{
    TDM_TRY(tdm__object_memory_create(runtime, &runtime->memory));
    return ref_table_create(runtime, client, &runtime->objects);
}

void tdm__objects_destroy(tdm_runtime *runtime)
{
    ref_table_destroy(runtime->objects);
    runtime->objects = NULL;
    tdm__exports_end(runtime->memory);
    tdm__object_memory_destroy(runtime->memory);
    runtime->memory = NULL;
}

void tdm__ref_table_counts(tdm_runtime *runtime, struct tdm__ref_table_counts *count_out)
{
    struct tdm__ref_table *objects = runtime->objects;
    const struct reply_pins *reply_pins;
    TDM__LOCK(runtime);

    *count_out = (struct tdm__ref_table_counts){0};
    for (uint32_t i = 0; i < objects->buckets_count; i++) {
        const struct tdm__shared_ref *shared;

        LIST_FOREACH(shared, &objects->buckets[i], in_bucket)
        {
            const struct borrower_pin *pin;

            if (shared->owner != NULL) {
                count_out->borrowed++;
                continue;
            }
            count_out->owned++;
            LIST_FOREACH(pin, &shared->borrower_pins, of_shared)
            {
                count_out->borrower_pins++;
            }
        }
    }
    TAILQ_FOREACH(reply_pins, &objects->reply_pins, link)
    {
        count_out->reply_pins++;
    }
}

uint32_t tdm_runtime_shared_refs_count(tdm_runtime *runtime)
{
    TDM__REQUIRE_OR(runtime, 0);

    const struct tdm__ref_table *objects = runtime->objects;
    const struct reply_pins *reply_pins;
    uint32_t count = 0;
    TDM__LOCK(runtime);

    for (uint32_t i = 0; i < objects->buckets_count; i++) {
        const struct tdm__shared_ref *shared;

        LIST_FOREACH(shared, &objects->buckets[i], in_bucket)
        {
            count +=
                shared->owner == NULL && (shared->is_kept || !LIST_EMPTY(&shared->borrower_pins));
        }
    }
    TAILQ_FOREACH(reply_pins, &objects->reply_pins, link)
    {
        count++; /* Its caller has not pinned the references yet. */
    }
    return count;
}

/* ---- replies that no caller waits for ---------------------------------------------------- */

void tdm__objects_discard_stray_reply(void *runtime, struct tdm__conn *conn, uint64_t call_id,
                                      uint64_t item, struct tdm__rpc_reply *reply)
{
    tdm_document *document;

    if (((tdm_runtime *)runtime)->is_stopping) {
        return;
    }
    tdm__result_return_lost(conn, reply);
    if (reply->status != TDM_OK) {
        document = tdm__failure_document(reply);
        if (document != NULL) {
            tdm__reply_pins_acknowledge(runtime, conn, call_id, item, document);
            tdm_document_destroy(document);
        }
    } else if (tdm__pull_is_offer(reply->packed)) {
        /* On failure the sender keeps the export until its connection closes. */
        (void)tdm__pull_decline(conn, reply->packed);
    } else if (tdm__result_document(runtime, conn, reply, &document) == TDM_OK) {
        tdm__reply_pins_acknowledge(runtime, conn, call_id, item, document);
        tdm_document_destroy(document);
    }
}

/* ---- calls of the service "object" ------------------------------------------------------- */

bool tdm__objects_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming)
{
    if (!tdm__id_is_none(tdm__incoming_target(incoming)) || runtime->objects == NULL) {
        return false;
    }
    if (strcmp(tdm__incoming_method(incoming), "object.settled") == 0) {
        tdm__reply_pins_serve_settled(runtime->objects, incoming);
        return true;
    }
    if (strcmp(tdm__incoming_method(incoming), "object.return") == 0) {
        tdm__large_serve_return(runtime, incoming);
        return true;
    }
    if (strcmp(tdm__incoming_method(incoming), "object.read") == 0) {
        tdm__pull_serve(runtime, incoming);
        return true;
    }
    return tdm__owned_refs_serve(runtime->objects, incoming);
}
