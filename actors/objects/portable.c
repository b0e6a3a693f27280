/* portable.c - references and handles as bytes that programs pass on by themselves. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The portable form of a reference or handle is the message portable_object: the version of the
 * protocol, and the reference or handle as it is packed inside of values. It therefore contains the
 * owner's address, and the owner serves the reader like any borrower: the connection proves the
 * cluster's token.
 *
 * No process knows how many copies of the bytes there are. The owner keeps the reference until its
 * own process ends: an owner that exports it keeps it at once, a borrower that exports it tells the
 * owner so ("object.keep"). That message precedes the borrower's "object.unpin" on the same
 * connection. Everything runs with the loop's lock. */

#include "actors/objects/portable.h"

#include "actors/objects/owned_refs.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_owners.h"
#include "actors/objects/ref_records.h"
#include "actors/objects/ref_table.h"
#include "actors/process/runtime.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/rpc/protocol.h"

#include <string.h>

/* ---- the bytes ------------------------------------------------------------------------------- */

tdm_status tdm__portable_write(struct tdm_bytes object, struct tdm_portable *portable_out)
{
    const struct tdm__portable_object_message message = {.protocol = tdm__protocol_version(),
                                                         .object.packed = object};
    struct tdm_bytes packed;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__portable_object_encode(&message, writer);
    packed = tdm_writer_bytes(writer);
    if (status == TDM_OK && packed.size_bytes > sizeof(portable_out->bytes)) {
        status = tdm__fail(TDM_E_LIMIT, "a portable form of %zu bytes, at most %zu",
                           packed.size_bytes, sizeof(portable_out->bytes));
    }
    if (status == TDM_OK) {
        memcpy(portable_out->bytes, packed.data, packed.size_bytes);
        portable_out->size_bytes = packed.size_bytes;
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Returns the name of a kind of portable objects, for messages. */
static const char *portable_kind_text(enum tdm_value_kind kind)
{
    return kind == TDM_REFERENCE ? "a reference" : kind == TDM_HANDLE ? "a handle" : "neither";
}

/* Finds the reference or handle in a parsed portable form. */
static tdm_status portable_find_object(const tdm_document *document, enum tdm_value_kind kind,
                                       struct tdm_bytes *object_out)
{
    struct tdm__portable_object_message message;
    enum tdm_value_kind found;

    TDM_TRY(tdm__portable_object_decode(tdm_document_root(document), &message));
    if (message.protocol != tdm__protocol_version()) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "it was made by another build of Tandem: protocol %08x, this one has %08x",
                         message.protocol, tdm__protocol_version());
    }
    found = tdm_value_kind_of(message.object.value);
    if (found != kind) {
        return tdm__fail(found == TDM_REFERENCE || found == TDM_HANDLE ? TDM_E_TYPE
                                                                       : TDM_E_PROTOCOL,
                         "wanted %s, got %s", portable_kind_text(kind), portable_kind_text(found));
    }
    *object_out = tdm__value_ext(message.object.value);
    return TDM_OK;
}

tdm_status tdm__portable_read(struct tdm_bytes bytes, enum tdm_value_kind kind,
                              tdm_document **document_out, struct tdm_bytes *object_out)
{
    tdm_document *document;
    tdm_status status;

    *document_out = NULL;
    *object_out = (struct tdm_bytes){NULL, 0};
    if (bytes.data == NULL || bytes.size_bytes > TDM_PORTABLE_BYTES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "the portable form of %s: %zu bytes, at most %d",
                         portable_kind_text(kind), bytes.data == NULL ? 0 : bytes.size_bytes,
                         (int)TDM_PORTABLE_BYTES_MAX);
    }
    status = tdm_document_parse(bytes, &document);
    if (status == TDM_OK) {
        status = portable_find_object(document, kind, object_out);
        if (status == TDM_OK) {
            *document_out = document;
            return TDM_OK;
        }
        tdm_document_destroy(document);
    }
    return tdm__wrap(status, "the portable form of %s", portable_kind_text(kind));
}

/* ---- references ------------------------------------------------------------------------------ */

void tdm__reference_keep(tdm_ref *ref)
{
    struct tdm__shared_ref *shared = ref->shared;

    if (shared->owner == NULL) {
        tdm__owned_ref_keep(shared);
    } else if (!shared->is_kept && shared->owner->conn != NULL) {
        /* If this fails, the connection closes and the owner is lost. */
        shared->is_kept = tdm__borrowed_ref_send_request(shared, "object.keep", NULL) == TDM_OK;
    }
}

/* Returns TDM_E_STATE unless the reference belongs to the running runtime of this process. */
static tdm_status reference_check_runtime(const tdm_ref *ref)
{
    if (ref->runtime != tdm_runtime_current()) {
        return tdm__fail(TDM_E_STATE, "the runtime of the reference has stopped, or is that of the "
                                      "process that forked this one");
    }
    return TDM_OK;
}

tdm_status tdm_ref_id(tdm_ref *ref, char *id_out)
{
    TDM__REQUIRE(id_out);
    id_out[0] = '\0';
    TDM__REQUIRE(ref);

    struct tdm__id id;

    TDM_TRY(reference_check_runtime(ref));
    TDM__LOCK(ref->runtime);
    TDM_TRY(tdm__reference_id(ref, &id));
    (void)tdm__id_text(&id, id_out);
    return TDM_OK;
}

tdm_status tdm_ref_export(tdm_ref *ref, struct tdm_portable *portable_out)
{
    TDM__REQUIRE(portable_out);
    portable_out->size_bytes = 0;
    TDM__REQUIRE(ref);

    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(reference_check_runtime(ref));
    TDM__LOCK(ref->runtime);
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__reference_write(writer, ref);
    if (status == TDM_OK) {
        status = tdm__portable_write(tdm_writer_bytes(writer), portable_out);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK) {
        tdm__reference_keep(ref);
    }
    return status;
}

tdm_status tdm_ref_import(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(runtime);

    struct tdm_bytes object;
    tdm_document *document;
    tdm_status status;
    TDM__LOCK(runtime);

    TDM_TRY(tdm__portable_read(bytes, TDM_REFERENCE, &document, &object));
    status = tdm__reference_open(runtime, object, ref_out);
    tdm_document_destroy(document);
    return status;
}
