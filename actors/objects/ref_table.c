/* ref_table.c - references as bytes: entering them into the table of references, and opening them.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* Packs and parses references. A reference that is packed, or whose id is asked for, enters the
 * table of its runtime (shared_ref.c). From the first packed one on this process listens for
 * borrowers. A packed reference that
 * another process owns is opened as a borrowed one (ref_owners.c). Everything runs with the loop's
 * lock. docs/protocols/references.md specifies the packed form. */

#include "actors/objects/ref_table.h"

#include "actors/objects/owned_refs.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_owners.h"
#include "actors/objects/ref_records.h"
#include "actors/objects/shared_ref.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <string.h>

/* Enters a reference of this process into the table under a new id, unless it is there. */
static tdm_status ref_table_enter(tdm_ref *ref)
{
    struct tdm__shared_ref *shared;
    struct tdm__id id;

    if (ref->shared != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__runtime_check(ref->runtime));
    TDM_TRY(tdm__id_generate(&id));
    return tdm__shared_ref_create(ref->runtime->objects, &id, ref, &shared);
}

tdm_status tdm__reference_id(tdm_ref *ref, struct tdm__id *id_out)
{
    TDM_TRY(ref_table_enter(ref));
    *id_out = ref->shared->id;
    return TDM_OK;
}

/* Lets other processes reach a reference: if this process owns it, the process starts to listen for
 * borrowers, and the reference enters the table. */
static tdm_status ref_table_share(tdm_ref *ref)
{
    if (ref->shared == NULL || ref->shared->owner == NULL) {
        TDM_TRY(tdm__runtime_check(ref->runtime));
        TDM_TRY(tdm__ref_table_listen(ref->runtime->objects));
    }
    return ref_table_enter(ref);
}

/* Encodes the message packed_reference. */
static tdm_status reference_encode(tdm_writer *writer, const struct tdm__shared_ref *shared)
{
    const struct ref_owner_address *owner =
        shared->owner != NULL ? &shared->owner->address : &shared->objects->address;
    const struct tdm__packed_reference_message message = {.object = shared->id,
                                                          .owner_kind = (int32_t)owner->kind,
                                                          .owner_process = owner->process,
                                                          .owner_node = owner->node,
                                                          .unix_address = owner->unix_address,
                                                          .tcp_address = owner->tcp_address,
                                                          .label = owner->label};

    return tdm__packed_reference_encode(&message, writer);
}

tdm_status tdm__reference_write(tdm_writer *writer, tdm_ref *ref)
{
    tdm_writer *bytes;
    tdm_status status;

    TDM_TRY(ref_table_share(ref));
    TDM_TRY(tdm_writer_create(&bytes));
    status = reference_encode(bytes, ref->shared);
    if (status == TDM_OK) {
        tdm__write_ext(writer, TDM__EXT_REFERENCE, tdm_writer_bytes(bytes));
        status = tdm_writer_status(writer);
    }
    tdm_writer_destroy(bytes);
    return status;
}

/* Copies a text out of a packed reference. Returns TDM_E_PROTOCOL if it does not fit into
 * `copy_bytes` bytes. */
static tdm_status reference_copy_text(const char *text, char *copy, size_t copy_bytes)
{
    if (strlen(text) >= copy_bytes) {
        return tdm__fail(TDM_E_PROTOCOL, "a text of a reference is longer than %zu bytes",
                         copy_bytes - 1);
    }
    (void)snprintf(copy, copy_bytes, "%s", text);
    return TDM_OK;
}

/* Decodes what reference_encode() writes. */
static tdm_status reference_decode(const tdm_value *value, struct tdm__id *id_out,
                                   struct ref_owner_address *owner_out)
{
    struct tdm__packed_reference_message message;

    TDM_TRY(tdm__packed_reference_decode(value, &message));
    if (message.owner_kind != TDM__PEER_DRIVER && message.owner_kind != TDM__PEER_WORKER) {
        return tdm__fail(TDM_E_PROTOCOL, "a reference to a process of kind %d",
                         (int)message.owner_kind);
    }
    owner_out->kind = (enum tdm__peer_kind)message.owner_kind;
    owner_out->process = message.owner_process;
    owner_out->node = message.owner_node;
    *id_out = message.object;
    TDM_TRY(reference_copy_text(message.unix_address, owner_out->unix_address,
                                sizeof(owner_out->unix_address)));
    TDM_TRY(reference_copy_text(message.tcp_address, owner_out->tcp_address,
                                sizeof(owner_out->tcp_address)));
    return reference_copy_text(message.label, owner_out->label, sizeof(owner_out->label));
}

/* Creates a failed reference to an object of this process that no longer exists. This happens if
 * the process that passed the reference on did not pin it. */
static tdm_status reference_create_lost(tdm_runtime *runtime, tdm_ref **ref_out)
{
    TDM_TRY(tdm__ref_create(runtime, ref_out));
    tdm__ref_fail(*ref_out, TDM_E_VALUE_LOST,
                  "the value was released before this reference to it arrived");
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
    status = reference_decode(tdm_document_root(document), &id, &owner);
    tdm_document_destroy(document);
    TDM_TRY(tdm__wrap(status, "a reference"));
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
