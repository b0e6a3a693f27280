/* pins.c - references that stay alive because packed or parsed data contains them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Opens the references and actor handles in documents and pins them, and packs and unpacks with the
 * letters R (reference) and h (actor handle). Handles belong to the client side, which is asked
 * through object_callbacks.h.
 *
 * Everything runs with the loop's lock. docs/protocols/references.md specifies who pins a
 * reference until when. */

#include "actors/objects/pins.h"

#include "actors/objects/object_callbacks.h"
#include "actors/objects/ref_records.h"
#include "actors/objects/ref_table.h"
#include "actors/process/runtime.h"
#include "runtime/error.h"
#include "runtime/wire/format.h"
#include "runtime/wire/placeholders.h"

/* ---- references in data --------------------------------------------------------------------- */

/* Opens one reference or handle of a document and adds it to `pins`. */
static tdm_status pins_add_extension(tdm_runtime *runtime, const tdm_value *value,
                                     struct tdm__pins *pins)
{
    struct tdm_bytes bytes = tdm__value_ext(value);
    tdm_ref *ref = NULL;
    tdm_status status;

    if (tdm_value_kind_of(value) == TDM_HANDLE) {
        TDM_TRY(runtime->objects->client->handle_keep_alive(runtime, bytes, &ref));
    } else {
        TDM_TRY(tdm__reference_open(runtime, bytes, &ref));
    }
    if (ref == NULL) {
        return TDM_OK; /* The handle does not keep its actor alive. */
    }
    status = tdm__pins_add(pins, ref);
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__pins_from_document(tdm_runtime *runtime, const tdm_document *document,
                                   struct tdm__pins *pins)
{
    uint32_t count;
    const tdm_value *const *values = tdm__document_exts(document, &count);

    for (uint32_t i = 0; i < count; i++) {
        tdm_status status = pins_add_extension(runtime, values[i], pins);

        if (status != TDM_OK) {
            tdm__pins_release(pins);
            return status;
        }
    }
    return TDM_OK;
}

/* A document's release function for bytes that the caller owns. */
static void borrowed_bytes_release(void *arg)
{
    (void)arg;
}

tdm_status tdm__pins_from_packed(tdm_runtime *runtime, struct tdm_bytes packed,
                                 struct tdm__pins *pins)
{
    tdm_document *document;
    tdm_status status;

    if (runtime == NULL || runtime->objects == NULL || runtime->objects->shared_count == 0) {
        return TDM_OK; /* Without shared references the bytes can contain none. */
    }
    TDM_TRY(tdm__document_parse_borrowed(packed, borrowed_bytes_release, NULL, &document));
    status = tdm__pins_from_document(runtime, document, pins);
    tdm_document_destroy(document);
    return status;
}

/* ---- packing and unpacking -------------------------------------------------------------- */

tdm_status tdm__refs_write_object(void *runtime, tdm_writer *writer, char letter, void *object)
{
    const struct tdm__ref_table *objects = ((const tdm_runtime *)runtime)->objects;

    return letter == 'R' ? tdm__reference_write(writer, object)
                         : objects->client->handle_write(writer, object);
}

tdm_status tdm__refs_pack(tdm_runtime *runtime, tdm_writer *writer, const char *format,
                          va_list args, struct tdm__pins *pins)
{
    if (!tdm__format_has(format, "rRh&vp")) {
        return tdm_pack_va(writer, format, args);
    }
    if (runtime == NULL && tdm__format_has(format, "rRh&")) {
        return tdm__fail(TDM_E_STATE, "references need a runtime");
    }
    TDM_TRY(tdm__pack_with_objects(writer, format, args, tdm__refs_write_object, runtime));
    return tdm__pins_from_packed(runtime, tdm_writer_bytes(writer), pins);
}

/* Unpacking hook: opens the reference (letter R) or handle (h) in the bytes. */
static tdm_status unpacked_object_open(void *runtime, char letter, struct tdm_bytes bytes,
                                       void **object_out)
{
    tdm_actor *actor;
    tdm_ref *ref;

    if (letter == 'R') {
        TDM_TRY(tdm__reference_open(runtime, bytes, &ref));
        *object_out = ref;
    } else {
        TDM_TRY(((tdm_runtime *)runtime)->objects->client->handle_open(runtime, bytes, &actor));
        *object_out = actor;
    }
    return TDM_OK;
}

/* Unpacking hook: releases an opened object because unpacking failed later. */
static void unpacked_object_release(void *runtime, char letter, void *object)
{
    if (letter == 'R') {
        tdm_ref_release(object);
    } else {
        ((tdm_runtime *)runtime)->objects->client->handle_destroy(object);
    }
}

tdm_status tdm__refs_unpack(tdm_runtime *runtime, const tdm_value *array, const char *format,
                            va_list args)
{
    const struct tdm__unpack_hooks hooks = {
        .open = unpacked_object_open, .drop = unpacked_object_release, .arg = runtime};

    if (!tdm__format_has(format, "Rh")) {
        return tdm_unpack_va(array, format, args);
    }
    if (runtime == NULL) {
        return tdm__fail(TDM_E_STATE, "references need a runtime");
    }
    {
        TDM__LOCK(runtime);

        return tdm__unpack_with_hooks(array, format, args, &hooks);
    }
}
