/* ref.c - the result of a call or of a put, present or to come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/ref.h"

#include "actors/runtime.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

tdm_status tdm__ref_create(tdm_runtime *runtime, tdm_ref **ref_out)
{
    tdm_ref *ref = calloc(1, sizeof(*ref));

    if (ref == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a reference");
    }
    ref->runtime = runtime;
    ref->holders_count = 1;
    *ref_out = ref;
    return TDM_OK;
}

void tdm__ref_retain(tdm_ref *ref)
{
    ref->holders_count++;
}

void tdm_ref_release(tdm_ref *ref)
{
    if (ref == NULL) {
        return;
    }
    /* References may be released after their runtime has stopped: there is no lock then. */
    TDM__ENTER(ref->runtime == tdm_runtime_current() ? ref->runtime->loop : NULL);
    TDM_ASSERT(ref->holders_count > 0);
    ref->holders_count--;
    if (ref->holders_count == 0) {
        tdm_document_destroy(ref->document);
        free(ref->detail);
        free(ref);
    }
}

void tdm__ref_complete(tdm_ref *ref, tdm_status status, const char *detail,
                       tdm_document *document)
{
    TDM_ASSERT(!ref->done);
    ref->done = true;
    ref->status = status;
    ref->document = document;
    if (status != TDM_OK && detail != NULL) {
        ref->detail = strdup(detail); /* out of memory: the status alone has to do */
    }
}

tdm_status tdm__ref_outcome(const tdm_ref *ref)
{
    TDM_ASSERT(ref->done);
    if (ref->status != TDM_OK) {
        return tdm__fail(ref->status, "%s", ref->detail == NULL ? "" : ref->detail);
    }
    return TDM_OK;
}

static bool ref_is_done(void *arg)
{
    const tdm_ref *ref = arg;

    return ref->done;
}

tdm_status tdm_get_value(tdm_ref *ref, int64_t timeout_ms, const tdm_value **value_out)
{
    tdm_status status;
    TDM__LOCK(ref->runtime);

    if (!ref->done) {
        status = tdm__runtime_wait(ref->runtime, ref_is_done, ref, timeout_ms);
        if (status == TDM_E_TIMEOUT) {
            return tdm__fail(status, "no result within %lld ms", (long long)timeout_ms);
        }
        TDM_TRY(status);
    }
    TDM_TRY(tdm__ref_outcome(ref));
    *value_out = tdm_document_root(ref->document);
    return TDM_OK;
}

tdm_status tdm_get(tdm_ref *ref, int64_t timeout_ms, const char *format, ...)
{
    const tdm_value *value;
    tdm_status status;
    va_list args;

    TDM_TRY(tdm_get_value(ref, timeout_ms, &value));
    va_start(args, format);
    status = tdm_unpack_va(value, format, args);
    va_end(args);
    return tdm__wrap(status, "the result");
}

struct waited {
    tdm_ref *const *refs;
    uint32_t refs_count;
    uint32_t wanted_count;
};

static bool enough_are_done(void *arg)
{
    const struct waited *waited = arg;
    uint32_t done_count = 0;

    for (uint32_t i = 0; i < waited->refs_count; i++) {
        done_count += waited->refs[i]->done ? 1 : 0;
    }
    return done_count >= waited->wanted_count;
}

tdm_status tdm_wait(tdm_ref *const *refs, uint32_t refs_count, uint32_t wanted_count,
                    int64_t timeout_ms, uint8_t *done_out)
{
    struct waited waited = {refs, refs_count, wanted_count};
    tdm_status status;

    if (wanted_count > refs_count) {
        return tdm__fail(TDM_E_INVAL, "waiting for %u of %u references", wanted_count,
                         refs_count);
    }
    if (refs_count == 0) {
        return TDM_OK;
    }
    TDM__LOCK(refs[0]->runtime);
    status = tdm__runtime_wait(refs[0]->runtime, enough_are_done, &waited, timeout_ms);
    for (uint32_t i = 0; i < refs_count; i++) {
        done_out[i] = refs[i]->done ? 1 : 0;
    }
    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "fewer than %u of %u results within %lld ms", wanted_count,
                         refs_count, (long long)timeout_ms);
    }
    return status;
}
