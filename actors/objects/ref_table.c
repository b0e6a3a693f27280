/* ref_table.c - the table of references that other processes know, and their packed form. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns the table of the runtime: a hash table from object ids to entries (struct
 * tdm__shared_ref). An entry exists while its reference does; the reference owns it. An entry
 * has an owner if another process owns the object (borrowed_refs.c), and pins and waiters if
 * this process does (owned_refs.c).
 *
 * This file also packs and parses references and dispatches the calls of the service "object".
 * Everything runs with the loop's lock. docs/protocols/references.md specifies the protocol. */

#include "actors/objects/export.h"
#include "actors/objects/large_value.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref_table_internal.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of hash buckets of an empty table. */
enum { BUCKETS_MIN = 64 };

/* ---- the table -------------------------------------------------------------------------- */

/* Returns the bucket of the object with this id. */
static struct bucket *ref_table_bucket(struct tdm__ref_table *objects, const struct tdm__id *id)
{
    uint64_t hash;

    /* Object ids are random, so their first bytes serve as the hash. */
    memcpy(&hash, id->bytes, sizeof(hash));
    return &objects->buckets[hash & (objects->buckets_count - 1)];
}

/* Replaces the buckets by `buckets_count` new ones, a power of two, and moves all entries. */
static tdm_status ref_table_resize(struct tdm__ref_table *objects, uint32_t buckets_count)
{
    struct bucket *old = objects->buckets;
    uint32_t old_count = objects->buckets_count;
    struct bucket *buckets = calloc(buckets_count, sizeof(*buckets));

    if (buckets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table of %u objects", buckets_count);
    }
    objects->buckets = buckets;
    objects->buckets_count = buckets_count;
    for (uint32_t i = 0; i < old_count; i++) {
        struct tdm__shared_ref *shared;

        while ((shared = LIST_FIRST(&old[i])) != NULL) {
            LIST_REMOVE(shared, in_bucket);
            LIST_INSERT_HEAD(ref_table_bucket(objects, &shared->id), shared, in_bucket);
        }
    }
    free(old);
    return TDM_OK;
}

struct tdm__shared_ref *tdm__shared_ref_find(struct tdm__ref_table *objects,
                                             const struct tdm__id *id)
{
    struct tdm__shared_ref *shared;

    LIST_FOREACH(shared, ref_table_bucket(objects, id), in_bucket)
    {
        if (tdm__id_equal(&shared->id, id)) {
            return shared;
        }
    }
    return NULL;
}

tdm_status tdm__shared_ref_create(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  tdm_ref *ref, struct tdm__shared_ref **shared_out)
{
    struct tdm__shared_ref *shared;

    if (objects->shared_count >= objects->buckets_count) {
        TDM_TRY(ref_table_resize(objects, 2 * objects->buckets_count));
    }
    shared = calloc(1, sizeof(*shared));
    if (shared == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a shared reference");
    }
    shared->objects = objects;
    shared->id = *id;
    shared->ref = ref;
    shared->created_ms = tdm__clock_ms();
    LIST_INIT(&shared->borrower_pins);
    STAILQ_INIT(&shared->waiters);
    LIST_INSERT_HEAD(ref_table_bucket(objects, id), shared, in_bucket);
    objects->shared_count++;
    ref->shared = shared;
    *shared_out = shared;
    return TDM_OK;
}

void tdm__shared_ref_on_last_release(struct tdm__shared_ref *shared)
{
    struct tdm__ref_table *objects = shared->objects;

    LIST_REMOVE(shared, in_bucket);
    objects->shared_count--;
    shared->ref->shared = NULL;
    tdm__value_waiters_fail(shared, "the object is no longer referenced");
    if (shared->owner != NULL) {
        tdm__borrowed_ref_release(shared);
    }
    TDM_ASSERT(LIST_EMPTY(&shared->borrower_pins));
    free(shared);
}

void tdm__shared_ref_on_done(struct tdm__shared_ref *shared)
{
    tdm__value_waiters_reply(shared);
}

bool tdm__shared_ref_is_settled(const struct tdm__shared_ref *shared)
{
    return shared->owner == NULL || shared->pin_acknowledged;
}

bool tdm__shared_ref_is_borrowed(const struct tdm__shared_ref *shared)
{
    return shared->owner != NULL;
}

tdm_status tdm__ref_table_create(tdm_runtime *runtime, struct tdm__ref_table **objects_out)
{
    struct tdm__ref_table *objects = calloc(1, sizeof(*objects));

    if (objects == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table of objects");
    }
    objects->runtime = runtime;
    TAILQ_INIT(&objects->owners);
    TAILQ_INIT(&objects->borrowers);
    TAILQ_INIT(&objects->pins_settling_list);
    TAILQ_INIT(&objects->reply_pins);
    if (ref_table_resize(objects, BUCKETS_MIN) != TDM_OK) {
        free(objects);
        return TDM_E_NOMEM;
    }
    *objects_out = objects;
    return TDM_OK;
}

void tdm__ref_table_destroy(struct tdm__ref_table *objects)
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
            tdm__shared_ref_on_last_release(shared); /* The user keeps the reference itself. */
        }
    }
    tdm__owners_destroy(objects);
    free(objects->buckets);
    free(objects);
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

/* ---- references as bytes ---------------------------------------------------------------- */

/* Enters a reference of this process into the table under a new id, unless it is there, and
 * starts to listen for borrowers. */
static tdm_status ref_table_share(tdm_ref *ref)
{
    struct tdm__ref_table *objects = ref->runtime->objects;
    struct tdm__shared_ref *shared;
    struct tdm__id id;

    if (ref->shared != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__runtime_check(ref->runtime));
    TDM_TRY(tdm__ref_table_listen(objects));
    TDM_TRY(tdm__id_generate(&id));
    return tdm__shared_ref_create(objects, &id, ref, &shared);
}

/* Packs (object, kind, process, node, unix address, tcp address, label). */
static tdm_status reference_pack(tdm_writer *writer, const struct tdm__shared_ref *shared)
{
    const struct ref_owner_address *owner =
        shared->owner != NULL ? &shared->owner->address : &shared->objects->address;

    return tdm_pack(writer, "bibbsss", (const void *)shared->id.bytes, sizeof(shared->id.bytes),
                    (int64_t)owner->kind, (const void *)owner->process.bytes,
                    sizeof(owner->process.bytes), (const void *)owner->node.bytes,
                    sizeof(owner->node.bytes), owner->unix_address, owner->tcp_address,
                    owner->label);
}

tdm_status tdm__reference_write(tdm_writer *writer, tdm_ref *ref)
{
    tdm_writer *bytes;
    tdm_status status;

    TDM_TRY(ref_table_share(ref));
    TDM_TRY(tdm_writer_create(&bytes));
    status = reference_pack(bytes, ref->shared);
    if (status == TDM_OK) {
        tdm__write_ext(writer, TDM__EXT_REFERENCE, tdm_writer_bytes(bytes));
        status = tdm_writer_status(writer);
    }
    tdm_writer_destroy(bytes);
    return status;
}

/* Copies an id out of a packed reference. Returns TDM_E_PROTOCOL if its length is wrong. */
static tdm_status reference_read_id(struct tdm_bytes bytes, struct tdm__id *id_out)
{
    if (bytes.size_bytes != sizeof(id_out->bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "an id of %zu bytes, wanted %zu", bytes.size_bytes,
                         sizeof(id_out->bytes));
    }
    memcpy(id_out->bytes, bytes.data, sizeof(id_out->bytes));
    return TDM_OK;
}

/* Copies a text out of a packed reference. Returns TDM_E_PROTOCOL if it does not fit into
 * `copy_bytes` bytes. */
static tdm_status reference_copy_text(const char *text, char *copy, size_t copy_bytes)
{
    if (text == NULL || strlen(text) >= copy_bytes) {
        return tdm__fail(TDM_E_PROTOCOL, "a text of a reference is longer than %zu bytes",
                         copy_bytes - 1);
    }
    (void)snprintf(copy, copy_bytes, "%s", text);
    return TDM_OK;
}

/* Parses what reference_pack() writes. */
static tdm_status reference_parse(const tdm_value *value, struct tdm__id *id_out,
                                  struct ref_owner_address *owner_out)
{
    struct tdm_bytes object;
    struct tdm_bytes process;
    struct tdm_bytes node;
    const char *texts[3];
    int64_t kind;

    TDM_TRY(tdm_unpack(value, "bibbsss", &object.data, &object.size_bytes, &kind, &process.data,
                       &process.size_bytes, &node.data, &node.size_bytes, &texts[0], &texts[1],
                       &texts[2]));
    if (kind != TDM__PEER_DRIVER && kind != TDM__PEER_WORKER) {
        return tdm__fail(TDM_E_PROTOCOL, "a reference to a process of kind %lld", (long long)kind);
    }
    owner_out->kind = (enum tdm__peer_kind)kind;
    TDM_TRY(reference_read_id(object, id_out));
    TDM_TRY(reference_read_id(process, &owner_out->process));
    TDM_TRY(reference_read_id(node, &owner_out->node));
    TDM_TRY(
        reference_copy_text(texts[0], owner_out->unix_address, sizeof(owner_out->unix_address)));
    TDM_TRY(reference_copy_text(texts[1], owner_out->tcp_address, sizeof(owner_out->tcp_address)));
    return reference_copy_text(texts[2], owner_out->label, sizeof(owner_out->label));
}

/* Creates a failed reference to an object of this process that no longer exists. This happens if
 * the process that passed the reference on did not pin it. */
static tdm_status reference_create_lost(tdm_runtime *runtime, tdm_ref **ref_out)
{
    TDM_TRY(tdm__ref_create(runtime, ref_out));
    tdm__ref_complete(*ref_out, TDM_E_VALUE_LOST,
                      "the value was released before this reference to it arrived", NULL);
    return TDM_OK;
}

tdm_status tdm__reference_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_ref **ref_out)
{
    struct tdm__ref_table *objects = runtime->objects;
    const struct tdm__shared_ref *shared;
    struct ref_owner_address owner;
    tdm_document *document;
    struct tdm__id id;
    tdm_status status;

    TDM_TRY(tdm__runtime_check(runtime));
    TDM_TRY(tdm__wrap(tdm_document_parse(bytes, &document), "a reference"));
    status = reference_parse(tdm_document_root(document), &id, &owner);
    tdm_document_destroy(document);
    TDM_TRY(tdm__wrap(status == TDM_E_TYPE ? TDM_E_PROTOCOL : status, "a reference"));
    shared = tdm__shared_ref_find(objects, &id);
    if (shared != NULL) {
        tdm__ref_retain(shared->ref);
        *ref_out = shared->ref;
        return TDM_OK;
    }
    return tdm__id_equal(&owner.process, &runtime->self.id)
               ? reference_create_lost(runtime, ref_out)
               : tdm__borrowed_ref_open(objects, &id, &owner, ref_out);
}

void tdm__reference_fetch(tdm_ref *ref)
{
    if (!ref->done && ref->shared != NULL && ref->shared->owner != NULL) {
        tdm__borrowed_ref_fetch(ref->shared);
    }
}

/* ---- replies that no caller waits for ---------------------------------------------------- */

void tdm__ref_table_discard_stray_reply(void *runtime, struct tdm__conn *conn, uint64_t call_id,
                                        uint64_t item, struct tdm__rpc_reply *reply)
{
    tdm_document *document;

    if (((tdm_runtime *)runtime)->is_stopping) {
        return;
    }
    if (tdm__pull_is_offer(reply->packed)) {
        /* On failure the sender keeps the export until its connection closes. */
        (void)tdm__pull_decline(conn, reply->packed);
    } else if (tdm__result_document(runtime, conn, reply, &document) == TDM_OK) {
        tdm__reply_pins_acknowledge(runtime, conn, call_id, item, document);
        tdm_document_destroy(document);
    }
}

/* ---- calls of the service "object" ------------------------------------------------------- */

bool tdm__ref_table_serve(tdm_runtime *runtime, struct tdm__incoming_call *incoming)
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
