/* holds.c - references that are kept because something that was packed or read contains them.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/holds.h"

#include "actors/handle.h"
#include "actors/objects/internal.h"
#include "runtime/error.h"

#include <stdlib.h>

/* ---- a list ----------------------------------------------------------------------------- */

tdm_status tdm__holds_add(struct tdm__holds *holds, tdm_ref *ref)
{
    if (holds->count == holds->room) {
        uint32_t room = holds->room == 0 ? 4 : 2 * holds->room;
        tdm_ref **refs = realloc(holds->refs, room * sizeof(*refs));

        if (refs == NULL) {
            return tdm__fail(TDM_E_NOMEM, "a list of %u references", room);
        }
        holds->refs = refs;
        holds->room = room;
    }
    tdm__ref_retain(ref);
    holds->refs[holds->count] = ref;
    holds->count++;
    return TDM_OK;
}

void tdm__holds_release(struct tdm__holds *holds)
{
    if (holds->refs == NULL) {
        return;
    }
    for (uint32_t i = 0; i < holds->count; i++) {
        tdm_ref_release(holds->refs[i]);
    }
    free(holds->refs);
    *holds = (struct tdm__holds){0};
}

static tdm_status hold_ext(tdm_runtime *runtime, const tdm_value *value,
                           struct tdm__holds *holds)
{
    struct tdm_bytes bytes = tdm__value_ext(value);
    tdm_ref *ref = NULL;
    tdm_status status;

    if (tdm_value_kind_of(value) == TDM_HANDLE) {
        TDM_TRY(tdm__handle_bytes_hold(runtime, bytes, &ref));
    } else {
        TDM_TRY(tdm__reference_open(runtime, bytes, &ref));
    }
    if (ref == NULL) {
        return TDM_OK; /* a handle that does not count */
    }
    status = tdm__holds_add(holds, ref);
    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__holds_of_document(tdm_runtime *runtime, const tdm_document *document,
                                  struct tdm__holds *holds)
{
    uint32_t count;
    const tdm_value *const *values = tdm__document_exts(document, &count);

    for (uint32_t i = 0; i < count; i++) {
        tdm_status status = hold_ext(runtime, values[i], holds);

        if (status != TDM_OK) {
            tdm__holds_release(holds);
            return status;
        }
    }
    return TDM_OK;
}

static void nothing_to_release(void *arg)
{
    (void)arg;
}

tdm_status tdm__holds_of_packed(tdm_runtime *runtime, struct tdm_bytes packed,
                                struct tdm__holds *holds)
{
    tdm_document *document;
    tdm_status status;

    if (runtime == NULL || runtime->objects == NULL || runtime->objects->shared_count == 0) {
        return TDM_OK; /* this process knows no reference that could be in it */
    }
    TDM_TRY(tdm__document_parse_borrowed(packed, nothing_to_release, NULL, &document));
    status = tdm__holds_of_document(runtime, document, holds);
    tdm_document_destroy(document);
    return status;
}

/* ---- settled ---------------------------------------------------------------------------- */

bool tdm__holds_settled(const struct tdm__holds *holds)
{
    for (uint32_t i = 0; i < holds->count; i++) {
        const tdm_ref *ref = holds->refs[i];

        if (ref->shared != NULL && !tdm__shared_is_settled(ref->shared)) {
            return false;
        }
    }
    return true;
}

static bool are_settled(void *arg)
{
    return tdm__holds_settled(arg);
}

tdm_status tdm__holds_settle(tdm_runtime *runtime, const struct tdm__holds *holds,
                             int64_t timeout_ms)
{
    if (tdm__holds_settled(holds)) {
        return TDM_OK;
    }
    return tdm__runtime_wait(runtime, are_settled, (void *)holds, timeout_ms);
}

static void settling_end(struct settling *settling)
{
    settling->fn(settling->arg);
    tdm__holds_release(&settling->holds);
    free(settling);
}

tdm_status tdm__holds_when_settled(tdm_runtime *runtime, const struct tdm__holds *holds,
                                   tdm__settled_fn *fn, void *arg)
{
    struct settling *settling;

    if (tdm__holds_settled(holds)) {
        fn(arg);
        return TDM_OK;
    }
    settling = calloc(1, sizeof(*settling));
    if (settling == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a wait for holds");
    }
    settling->fn = fn;
    settling->arg = arg;
    for (uint32_t i = 0; i < holds->count; i++) {
        if (tdm__holds_add(&settling->holds, holds->refs[i]) != TDM_OK) {
            tdm__holds_release(&settling->holds);
            free(settling);
            return TDM_E_NOMEM;
        }
    }
    TAILQ_INSERT_TAIL(&runtime->objects->settlings, settling, link);
    return TDM_OK;
}

void tdm__holds_give_up(tdm_runtime *runtime)
{
    struct settling *settling;

    while ((settling = TAILQ_FIRST(&runtime->objects->settlings)) != NULL) {
        TAILQ_REMOVE(&runtime->objects->settlings, settling, link);
        settling_end(settling);
    }
}

/* What is told may let go of references, and so come back here: from the beginning each time.
 */
void tdm__objects_settle(struct tdm__objects *objects)
{
    struct settling *settling = TAILQ_FIRST(&objects->settlings);

    while (settling != NULL) {
        if (!tdm__holds_settled(&settling->holds)) {
            settling = TAILQ_NEXT(settling, link);
            continue;
        }
        TAILQ_REMOVE(&objects->settlings, settling, link);
        settling_end(settling);
        settling = TAILQ_FIRST(&objects->settlings);
    }
}

/* ---- packing and unpacking -------------------------------------------------------------- */

tdm_status tdm__link_fill(void *runtime, tdm_writer *writer, char letter, void *object)
{
    (void)runtime;
    return letter == 'R' ? tdm__reference_write(writer, object)
                         : tdm__handle_write(writer, object);
}

static tdm_status fill(tdm_runtime *runtime, tdm_writer *packed, const struct tdm__holes *holes,
                       tdm_writer *writer, struct tdm__holds *holds)
{
    if (holes->count > 0) {
        return tdm__fail(TDM_E_INVAL, "the letter r is for the arguments of calls");
    }
    TDM_TRY(tdm__fill_holes(writer, tdm_writer_bytes(packed), holes, tdm__link_fill, runtime));
    return tdm__holds_of_packed(runtime, tdm_writer_bytes(writer), holds);
}

tdm_status tdm__links_pack(tdm_runtime *runtime, tdm_writer *writer, const char *format,
                           va_list args, struct tdm__holds *holds)
{
    struct tdm__holes holes;
    tdm_writer *packed;
    tdm_status status;

    if (!tdm__format_has(format, "rRh")) {
        TDM_TRY(tdm_pack_va(writer, format, args));
        return tdm__format_has(format, "vp")
                   ? tdm__holds_of_packed(runtime, tdm_writer_bytes(writer), holds)
                   : TDM_OK;
    }
    if (runtime == NULL) {
        return tdm__fail(TDM_E_STATE, "references need a runtime");
    }
    TDM_TRY(tdm_writer_create(&packed));
    status = tdm__pack_with_holes(packed, format, args, &holes);
    if (status == TDM_OK) {
        status = fill(runtime, packed, &holes, writer, holds);
    }
    tdm_writer_destroy(packed);
    return status;
}

static tdm_status open_link(void *runtime, char letter, struct tdm_bytes bytes,
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

static void drop_link(void *runtime, char letter, void *object)
{
    (void)runtime;
    if (letter == 'R') {
        tdm_ref_release(object);
    } else {
        tdm_actor_destroy(object);
    }
}

tdm_status tdm__links_unpack(tdm_runtime *runtime, const tdm_value *array, const char *format,
                             va_list args)
{
    const struct tdm__unpack_hooks hooks = {
        .open = open_link, .drop = drop_link, .arg = runtime};

    if (!tdm__format_has(format, "Rh")) {
        return tdm_unpack_va(array, format, args);
    }
    if (runtime == NULL) {
        return tdm__fail(TDM_E_STATE, "references need a runtime");
    }
    {
        TDM__LOCK(runtime);

        return tdm__unpack_with(array, format, args, &hooks);
    }
}
