/* pins.c - references that stay alive because packed or parsed data contains them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements struct tdm__pins, a list of retained references, and packing and unpacking with the
 * letters R (reference) and h (actor handle). A reference is settled when its owner has counted
 * this process as a borrower; see tdm__shared_ref_is_settled(). Callbacks that wait for this are
 * in the list `pins_settling_list` of the reference table and are checked by
 * tdm__ref_table_check_settling(). Each is called exactly once, at the latest when the runtime
 * stops.
 *
 * Everything runs with the loop's lock. docs/protocols/references.md specifies who pins a
 * reference until when. */

#include "actors/objects/pins.h"

#include "actors/client/actor_handle.h"
#include "actors/objects/ref_table_internal.h"
#include "runtime/error.h"

#include <stdlib.h>

/* ---- a list of pins ----------------------------------------------------------------------- */

tdm_status tdm__pins_add(struct tdm__pins *pins, tdm_ref *ref)
{
    if (pins->count == pins->capacity) {
        uint32_t capacity = pins->capacity == 0 ? 4 : 2 * pins->capacity;
        tdm_ref **refs = realloc(pins->refs, capacity * sizeof(*refs));

        if (refs == NULL) {
            return tdm__fail(TDM_E_NOMEM, "a list of %u references", capacity);
        }
        pins->refs = refs;
        pins->capacity = capacity;
    }
    tdm__ref_retain(ref);
    pins->refs[pins->count] = ref;
    pins->count++;
    return TDM_OK;
}

void tdm__pins_release(struct tdm__pins *pins)
{
    if (pins->refs == NULL) {
        return;
    }
    for (uint32_t i = 0; i < pins->count; i++) {
        tdm_ref_release(pins->refs[i]);
    }
    free(pins->refs);
    *pins = (struct tdm__pins){0};
}

/* Opens one reference or handle of a document and adds it to `pins`. */
static tdm_status pins_add_extension(tdm_runtime *runtime, const tdm_value *value,
                                     struct tdm__pins *pins)
{
    struct tdm_bytes bytes = tdm__value_ext(value);
    tdm_ref *ref = NULL;
    tdm_status status;

    if (tdm_value_kind_of(value) == TDM_HANDLE) {
        TDM_TRY(tdm__handle_bytes_keep_alive(runtime, bytes, &ref));
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

/* ---- settled references ------------------------------------------------------------------- */

bool tdm__pins_are_settled(const struct tdm__pins *pins)
{
    for (uint32_t i = 0; i < pins->count; i++) {
        const tdm_ref *ref = pins->refs[i];

        if (ref->shared != NULL && !tdm__shared_ref_is_settled(ref->shared)) {
            return false;
        }
    }
    return true;
}

/* Loop condition: returns true if all references in `arg` are settled. */
static bool pins_settled_condition(void *arg)
{
    return tdm__pins_are_settled(arg);
}

tdm_status tdm__pins_wait_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                  int64_t timeout_ms)
{
    if (tdm__pins_are_settled(pins)) {
        return TDM_OK;
    }
    return tdm__runtime_wait(runtime, pins_settled_condition, (void *)pins, timeout_ms);
}

/* Calls the callback and frees the wait. It is no longer in the list. */
static void pins_settling_end(struct pins_settling *pins_settling)
{
    pins_settling->fn(pins_settling->arg);
    tdm__pins_release(&pins_settling->pins);
    free(pins_settling);
}

tdm_status tdm__pins_on_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                tdm__pins_settled_fn *fn, void *arg)
{
    struct pins_settling *pins_settling;

    if (tdm__pins_are_settled(pins)) {
        fn(arg);
        return TDM_OK;
    }
    pins_settling = calloc(1, sizeof(*pins_settling));
    if (pins_settling == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a wait for references to settle");
    }
    pins_settling->fn = fn;
    pins_settling->arg = arg;
    for (uint32_t i = 0; i < pins->count; i++) {
        if (tdm__pins_add(&pins_settling->pins, pins->refs[i]) != TDM_OK) {
            tdm__pins_release(&pins_settling->pins);
            free(pins_settling);
            return TDM_E_NOMEM;
        }
    }
    TAILQ_INSERT_TAIL(&runtime->objects->pins_settling_list, pins_settling, link);
    return TDM_OK;
}

void tdm__pins_abandon_settling(tdm_runtime *runtime)
{
    struct pins_settling *pins_settling;

    while ((pins_settling = TAILQ_FIRST(&runtime->objects->pins_settling_list)) != NULL) {
        TAILQ_REMOVE(&runtime->objects->pins_settling_list, pins_settling, link);
        pins_settling_end(pins_settling);
    }
}

/* A callback may release references and so call this function again. The list is therefore
 * searched from its start after each callback. */
void tdm__ref_table_check_settling(struct tdm__ref_table *objects)
{
    struct pins_settling *pins_settling = TAILQ_FIRST(&objects->pins_settling_list);

    while (pins_settling != NULL) {
        if (!tdm__pins_are_settled(&pins_settling->pins)) {
            pins_settling = TAILQ_NEXT(pins_settling, link);
            continue;
        }
        TAILQ_REMOVE(&objects->pins_settling_list, pins_settling, link);
        pins_settling_end(pins_settling);
        pins_settling = TAILQ_FIRST(&objects->pins_settling_list);
    }
}

/* ---- packing and unpacking -------------------------------------------------------------- */

tdm_status tdm__refs_fill_placeholder(void *runtime, tdm_writer *writer, char letter, void *object)
{
    (void)runtime;
    return letter == 'R' ? tdm__reference_write(writer, object) : tdm__handle_write(writer, object);
}

/* Replaces the placeholders in `packed` by references and handles, and pins what the result
 * contains. */
static tdm_status pins_fill(tdm_runtime *runtime, tdm_writer *packed,
                            const struct tdm__placeholders *placeholders, tdm_writer *writer,
                            struct tdm__pins *pins)
{
    if (placeholders->count > 0) {
        return tdm__fail(TDM_E_INVAL, "the letter r is for the arguments of calls");
    }
    TDM_TRY(tdm__fill_placeholders(writer, tdm_writer_bytes(packed), placeholders,
                                   tdm__refs_fill_placeholder, runtime));
    return tdm__pins_from_packed(runtime, tdm_writer_bytes(writer), pins);
}

tdm_status tdm__refs_pack(tdm_runtime *runtime, tdm_writer *writer, const char *format,
                          va_list args, struct tdm__pins *pins)
{
    struct tdm__placeholders placeholders;
    tdm_writer *packed;
    tdm_status status;

    if (!tdm__format_has(format, "rRh&")) {
        TDM_TRY(tdm_pack_va(writer, format, args));
        return tdm__format_has(format, "vp")
                   ? tdm__pins_from_packed(runtime, tdm_writer_bytes(writer), pins)
                   : TDM_OK;
    }
    if (runtime == NULL) {
        return tdm__fail(TDM_E_STATE, "references need a runtime");
    }
    TDM_TRY(tdm_writer_create(&packed));
    status = tdm__pack_with_placeholders(packed, format, args, &placeholders);
    if (status == TDM_OK) {
        status = pins_fill(runtime, packed, &placeholders, writer, pins);
    }
    tdm_writer_destroy(packed);
    return status;
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
        TDM_TRY(tdm__handle_open(runtime, bytes, &actor));
        *object_out = actor;
    }
    return TDM_OK;
}

/* Unpacking hook: releases an opened object because unpacking failed later. */
static void unpacked_object_release(void *runtime, char letter, void *object)
{
    (void)runtime;
    if (letter == 'R') {
        tdm_ref_release(object);
    } else {
        tdm_actor_destroy(object);
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
