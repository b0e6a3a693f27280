/* results.c - the public functions that put values, and wait for and read results. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements tdm_put(), tdm_get(), tdm_wait() and their variants on references (ref.c). A function
 * with a timeout requests the values of references that other processes own, and drives the loop
 * until they have arrived.
 *
 * Any user thread may enter. All take the loop's lock, except that tdm_get_value() of a completed
 * reference reads its value without it. */

#include "actors/objects/borrowed_refs.h"
#include "actors/objects/large_value.h"
#include "actors/objects/object_callbacks.h"
#include "actors/objects/pins.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_complete.h"
#include "actors/objects/ref_records.h"
#include "actors/objects/ref_table.h"
#include "actors/objects/shared_ref.h"
#include "actors/process/runtime.h"
#include "runtime/error.h"

#include <string.h>

tdm_status tdm_ref_on_done(tdm_ref *ref, tdm_done_fn *fn, void *arg)
{
    TDM__REQUIRE(ref);
    TDM__REQUIRE(fn);

    bool is_done;
    TDM__LOCK(ref->runtime);

    is_done = ref->done; /* If it is, `fn` runs now and may release the reference. */
    TDM_TRY(tdm__ref_on_done(ref, fn, arg));
    if (!is_done) {
        tdm__reference_fetch(ref); /* A borrowed reference gets its value only on request. */
    }
    return TDM_OK;
}

/* Releases what the reference holds of its value; the caller then changes the outcome. */
static void ref_release_value(tdm_ref *ref)
{
    tdm_document *document = ref->document;

    tdm__ref_set_document(ref, NULL);
    tdm_document_destroy(document);
    tdm__large_release(ref->large);
    ref->large = NULL;
    tdm__pins_release(&ref->nested);
}

tdm_status tdm_ref_free_value(tdm_ref *ref)
{
    TDM__REQUIRE(ref);

    TDM__LOCK(ref->runtime);

    TDM_TRY(tdm__runtime_check(ref->runtime));
    if (ref->shared != NULL && tdm__shared_ref_is_borrowed(ref->shared)) {
        return tdm__fail(TDM_E_STATE, "the value belongs to another process: its owner frees it");
    }
    if (!ref->done) {
        return tdm__fail(TDM_E_STATE, "the result has not arrived: tdm_cancel() cancels its call");
    }
    if (ref->status == TDM_OK) {
        ref_release_value(ref);
        ref->status = TDM_E_VALUE_LOST;
        /* Without memory the failure has no text. */
        ref->detail = strdup("the value was freed by its owner");
    }
    return TDM_OK;
}

/* Loop condition: returns true, which ends the wait, once the reference is complete. */
static bool ref_is_done(void *arg)
{
    const tdm_ref *ref = arg;

    return ref->done;
}

/* Fails with TDM_E_TIMEOUT and a text that says what did not arrive within `timeout_ms`. */
static tdm_status ref_fail_late(const tdm_ref *ref, int64_t timeout_ms)
{
    char text[320] = "";

    if (ref->pending_call != NULL) {
        ref->runtime->objects->client->describe_call(ref->pending_call, text, sizeof(text));
    }
    return tdm__fail(TDM_E_TIMEOUT, "no result within %lld ms%s%s", (long long)timeout_ms,
                     text[0] == '\0' ? "" : ": ", text);
}

/* Drives the loop until the reference is complete or `timeout_ms` have passed, and returns its
 * value. */
static tdm_status ref_wait_value(tdm_ref *ref, int64_t timeout_ms, const tdm_value **value_out)
{
    tdm_status status;
    TDM__LOCK(ref->runtime);

    if (!ref->done) {
        tdm__reference_fetch(ref);
        status = tdm__runtime_wait(ref->runtime, ref_is_done, ref, timeout_ms);
        if (status == TDM_E_TIMEOUT) {
            return ref_fail_late(ref, timeout_ms);
        }
        TDM_TRY(status);
    }
    return tdm__ref_value(ref, value_out);
}

tdm_status tdm_get_value(tdm_ref *ref, int64_t timeout_ms, const tdm_value **value_out)
{
    TDM__REQUIRE(ref);
    TDM__REQUIRE(value_out);

    const tdm_value *value = atomic_load_explicit(&ref->value, memory_order_acquire);

    if (value == NULL) {
        *value_out = NULL;
        return ref_wait_value(ref, timeout_ms, value_out);
    }
    *value_out = value;
    return TDM_OK;
}

const tdm_value *tdm_ref_failure(tdm_ref *ref)
{
    TDM__REQUIRE_OR(ref, NULL);

    /* References may be read after their runtime has stopped: there is no lock then. */
    TDM__LOOP_ENTER(ref->runtime == tdm_runtime_current() ? ref->runtime->loop : NULL);

    return ref->done && ref->status != TDM_OK && ref->document != NULL
               ? tdm_document_root(ref->document)
               : NULL;
}

tdm_status tdm_get(tdm_ref *ref, int64_t timeout_ms, const char *format, ...)
{
    TDM__REQUIRE(ref);
    TDM__REQUIRE(format);

    const tdm_value *value;
    tdm_status status;
    va_list args;

    TDM_TRY(tdm_get_value(ref, timeout_ms, &value));
    if (format[0] == 'n' && format[1] == '\0' && tdm_value_count(value) == 0) {
        return TDM_OK; /* The method returned without a reply, which callers read as nil. */
    }
    va_start(args, format);
    status = tdm__refs_unpack(ref->runtime, value, format, args);
    va_end(args);
    return status == TDM_OK ? TDM_OK : tdm__wrap(status, "the result");
}

/* The references that tdm_wait() or tdm_get_many() waits for. */
struct awaited_refs {
    tdm_ref *const *refs;  /* Borrowed from the caller. */
    uint32_t refs_count;   /* Length of `refs`. */
    uint32_t wanted_count; /* How many of them must be complete. */
};

/* Loop condition: returns true if at least `wanted_count` references are complete. */
static bool refs_enough_done(void *arg)
{
    const struct awaited_refs *awaited_refs = arg;
    uint32_t done_count = 0;

    for (uint32_t i = 0; i < awaited_refs->refs_count; i++) {
        done_count += awaited_refs->refs[i]->done ? 1 : 0;
    }
    return done_count >= awaited_refs->wanted_count;
}

tdm_status tdm_wait(tdm_ref *const *refs, uint32_t refs_count, uint32_t wanted_count,
                    int64_t timeout_ms, uint8_t *done_out)
{
    TDM__REQUIRE_ARRAY(refs, refs_count);
    TDM__REQUIRE_ARRAY(done_out, refs_count);

    struct awaited_refs awaited_refs = {refs, refs_count, wanted_count};
    tdm_status status;

    if (wanted_count > refs_count) {
        return tdm__fail(TDM_E_INVAL, "waiting for %u of %u references", wanted_count, refs_count);
    }
    if (refs_count == 0) {
        return TDM_OK;
    }
    TDM__LOCK(refs[0]->runtime);
    for (uint32_t i = 0; i < refs_count; i++) {
        tdm__reference_fetch(refs[i]);
    }
    status = tdm__runtime_wait(refs[0]->runtime, refs_enough_done, &awaited_refs, timeout_ms);
    for (uint32_t i = 0; i < refs_count; i++) {
        done_out[i] = refs[i]->done ? 1 : 0;
    }
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "fewer than %u of %u results within %lld ms", wanted_count,
                         refs_count, (long long)timeout_ms);
    }
    return status;
}

/* Loop condition: returns true if all references are complete or one of them has failed. */
static bool refs_all_done_or_failed(void *arg)
{
    const struct awaited_refs *awaited_refs = arg;
    bool all = true;

    for (uint32_t i = 0; i < awaited_refs->refs_count; i++) {
        const tdm_ref *ref = awaited_refs->refs[i];

        if (ref->done && ref->status != TDM_OK) {
            return true;
        }
        all = all && ref->done;
    }
    return all;
}

tdm_status tdm_get_many(tdm_ref *const *refs, uint32_t refs_count, int64_t timeout_ms,
                        const tdm_value **values_out)
{
    TDM__REQUIRE_ARRAY(refs, refs_count);
    TDM__REQUIRE_ARRAY(values_out, refs_count);

    struct awaited_refs awaited_refs = {refs, refs_count, refs_count};
    tdm_status status;

    if (refs_count == 0) {
        return TDM_OK;
    }
    TDM__LOCK(refs[0]->runtime);
    for (uint32_t i = 0; i < refs_count; i++) {
        tdm__reference_fetch(refs[i]);
    }
    status =
        tdm__runtime_wait(refs[0]->runtime, refs_all_done_or_failed, &awaited_refs, timeout_ms);
    for (uint32_t i = 0; i < refs_count; i++) {
        if (refs[i]->done) {
            TDM_TRY(tdm__wrap(tdm__ref_status(refs[i]), "result %u of %u", i + 1, refs_count));
        }
    }
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "not all of %u results within %lld ms", refs_count,
                         (long long)timeout_ms);
    }
    TDM_TRY(status);
    for (uint32_t i = 0; i < refs_count; i++) {
        TDM_TRY(tdm__wrap(tdm__ref_value(refs[i], &values_out[i]), "result %u of %u", i + 1,
                          refs_count));
    }
    return TDM_OK;
}

tdm_status tdm_ref_copy(tdm_ref *ref, tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(ref);

    TDM__LOOP_ENTER(ref->runtime == tdm_runtime_current() ? ref->runtime->loop : NULL);

    tdm__ref_retain(ref);
    *ref_out = ref;
    return TDM_OK;
}

tdm_status tdm_value_ref(tdm_runtime *runtime, const tdm_value *value, tdm_ref **ref_out)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE(runtime);

    TDM__LOCK(runtime);

    if (value == NULL || tdm_value_kind_of(value) != TDM_REFERENCE) {
        return tdm__fail(TDM_E_TYPE, "wanted a reference");
    }
    return tdm__reference_open(runtime, tdm__value_ext(value), ref_out);
}

/* Creates a complete reference with the document as its value. Takes ownership of `document`. */
static tdm_status put_document(tdm_runtime *runtime, tdm_document *document, tdm_ref **ref_out)
{
    tdm_status status = tdm__ref_create(runtime, ref_out);

    if (status != TDM_OK) {
        tdm_document_destroy(document);
        return status;
    }
    tdm__ref_complete(*ref_out, TDM_OK, NULL, document);
    return TDM_OK;
}

/* Creates a complete reference with the large value. Takes ownership of `large`. */
static tdm_status put_large(tdm_runtime *runtime, struct tdm__large *large, tdm_ref **ref_out)
{
    tdm_status status = tdm__ref_create(runtime, ref_out);

    if (status != TDM_OK) {
        tdm__large_release(large);
        return status;
    }
    tdm__ref_complete_large(*ref_out, large);
    return TDM_OK;
}

/* Creates a complete reference with a copy of the packed value, in shared memory if it is large. */
static tdm_status put_packed(tdm_runtime *runtime, struct tdm_bytes packed, tdm_ref **ref_out)
{
    struct tdm__large *large;
    tdm_document *document;

    TDM_TRY(tdm__large_copy(runtime, packed, &large));
    if (large != NULL) {
        return put_large(runtime, large, ref_out);
    }
    TDM_TRY(tdm_document_parse(packed, &document));
    return put_document(runtime, document, ref_out);
}

/* Packs a small value, or one into which v and p copy large ones, and creates a reference to it. */
static tdm_status put_small(tdm_runtime *runtime, const char *format, va_list args,
                            tdm_ref **ref_out)
{
    struct tdm__pins pins = {0};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__refs_pack(runtime, writer, format, args, &pins);
    if (status == TDM_OK) {
        status = put_packed(runtime, tdm_writer_bytes(writer), ref_out);
    }
    tdm__pins_release(&pins); /* The reference has pinned them itself. */
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm_put(tdm_runtime *runtime, tdm_ref **ref_out, const char *format, ...)
{
    TDM__REQUIRE(ref_out);
    *ref_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE(format);

    struct tdm__large *large;
    tdm_status status;
    va_list args;
    TDM__LOCK(runtime);

    TDM_TRY(tdm__runtime_check(runtime));
    va_start(args, format);
    status = tdm__large_pack(runtime, format, args, tdm__refs_write_object, &large);
    if (status == TDM_OK && large == NULL) {
        status = put_small(runtime, format, args, ref_out);
    } else if (status == TDM_OK) {
        status = put_large(runtime, large, ref_out);
    }
    va_end(args);
    return status;
}
