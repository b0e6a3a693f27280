/* ref_complete.c - completes a reference with its value, and pins the references inside of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/ref_complete.h"

#include "actors/objects/large_value.h"
#include "actors/objects/pins.h"
#include "runtime/assert.h"
#include "runtime/error.h"

void tdm__ref_complete(tdm_ref *ref, tdm_status status, const char *detail, tdm_document *document)
{
    tdm_status pinned = TDM_OK;

    TDM_ASSERT(!ref->done);
    ref->done = true;
    if (document != NULL) {
        pinned = tdm__pins_from_document(ref->runtime, document, &ref->nested);
    }
    if (pinned != TDM_OK) {
        tdm_document_destroy(document);
        document = NULL;
        detail = status == TDM_OK ? tdm_error_detail() : detail;
        status = status == TDM_OK ? pinned : status;
    }
    if (status != TDM_OK) {
        ref->document = document;
        tdm__ref_fail(ref, status, detail);
        return;
    }
    ref->status = TDM_OK;
    tdm__ref_set_document(ref, document);
    tdm__ref_wake_waiters(ref);
}

tdm_document *tdm__failure_values_copy(const tdm_document *document)
{
    tdm_document *copy = NULL;
    tdm_writer *writer;

    if (document == NULL || tdm_writer_create(&writer) != TDM_OK) {
        return NULL;
    }
    tdm_write_value(writer, tdm_document_root(document));
    if (tdm_writer_status(writer) != TDM_OK ||
        tdm_document_parse(tdm_writer_bytes(writer), &copy) != TDM_OK) {
        copy = NULL;
    }
    tdm_writer_destroy(writer);
    return copy;
}

void tdm__ref_complete_large(tdm_ref *ref, struct tdm__large *large)
{
    tdm_document *document;
    tdm_status status = tdm__large_document(large, &document);

    TDM_ASSERT(!ref->done);
    if (status == TDM_OK) {
        status = tdm__pins_from_document(ref->runtime, document, &ref->nested);
        tdm_document_destroy(document);
    }
    if (status != TDM_OK) {
        tdm__large_release(large);
        tdm__ref_complete(ref, status, tdm_error_detail(), NULL);
        return;
    }
    ref->large = large;
    tdm__large_allow_spill(large);
    ref->done = true;
    ref->status = TDM_OK;
    tdm__ref_wake_waiters(ref);
}
