/* outgoing.c - one call of this process, from when it is made until its results are there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/outgoing.h"

#include "actors/arguments.h"
#include "actors/children.h"
#include "actors/class.h"
#include "actors/link.h"
#include "actors/objects/pull.h"
#include "actors/retry.h"
#include "actors/stream.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/spare.h"

#include <stdio.h>
#include <string.h>

/* ---- making ----------------------------------------------------------------------------- */

static tdm_status check_method(const char *method, size_t length)
{
    if (length == 0 || length > TDM__RPC_NAME_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a method name has 1 to %d bytes: \"%.70s\"",
                         TDM__RPC_NAME_BYTES_MAX, method);
    }
    return TDM_OK;
}

static tdm_status make_refs(struct tdm__outgoing *outgoing, uint32_t refs_count)
{
    while (outgoing->refs_count < refs_count) {
        tdm_ref **place = &outgoing->refs[outgoing->refs_count];

        TDM_TRY(tdm__ref_create(outgoing->link->runtime, place));
        (*place)->is_of_call = true;
        (*place)->outgoing = outgoing;
        outgoing->refs_count++;
    }
    return TDM_OK;
}

static int32_t retries_of(const struct tdm__link *link, const struct tdm_call_options *options)
{
    int32_t retries = options == NULL ? 0 : options->max_retries;

    if (retries == 0) {
        retries = link->max_task_retries;
    }
    return retries == TDM__NO_RETRIES ? 0 : retries;
}

/* Small ones move in, behind the method's name. */
static void take_arguments(struct tdm__outgoing *outgoing, size_t method_bytes,
                           struct tdm__arguments *arguments, struct tdm_bytes small)
{
    char *place = (char *)(outgoing->refs + outgoing->refs_count) + method_bytes;

    if (small.data == NULL) {
        outgoing->arguments = arguments;
        return;
    }
    memcpy(place, small.data, small.size_bytes);
    outgoing->packed = (struct tdm_bytes){place, small.size_bytes};
    tdm__arguments_destroy(arguments);
}

tdm_status tdm__outgoing_create(struct tdm__link *link, const char *method,
                                const struct tdm_call_options *options, uint32_t refs_count,
                                struct tdm__arguments *arguments,
                                struct tdm__outgoing **outgoing_out)
{
    size_t method_bytes = strlen(method) + 1;
    struct tdm_bytes small = tdm__arguments_small(arguments);
    size_t size_bytes = sizeof(struct tdm__outgoing) + refs_count * sizeof(tdm_ref *) +
                        method_bytes + small.size_bytes;
    struct tdm__outgoing *outgoing;
    tdm_status status;

    TDM_TRY(check_method(method, method_bytes - 1));
    TDM_TRY(tdm__retry_check(options));
    outgoing = tdm__spare_take_zeroed(size_bytes);
    if (outgoing == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a call of %s", method);
    }
    outgoing->link = link;
    outgoing->size_bytes = size_bytes;
    outgoing->method = memcpy(outgoing->refs + refs_count, method, method_bytes);
    outgoing->made_ms = tdm__clock_coarse_ms();
    outgoing->deadline_ms = options != NULL && options->timeout_ms > 0
                                ? tdm__deadline_in(options->timeout_ms)
                                : TDM__NEVER;
    outgoing->retries_left = retries_of(link, options);
    outgoing->parent = tdm__children_parent();
    if (options != NULL && options->concurrency_group != NULL) {
        outgoing->group = tdm__concurrency_group_number(options->concurrency_group);
    }
    if (options != NULL) {
        memcpy(outgoing->retry_failures, options->retry_failures,
               sizeof(outgoing->retry_failures));
    }
    status = make_refs(outgoing, refs_count);
    if (status != TDM_OK) {
        tdm__outgoing_settle(outgoing, status, "", NULL);
        tdm__outgoing_destroy(outgoing);
        return status;
    }
    take_arguments(outgoing, method_bytes, arguments, small);
    *outgoing_out = outgoing;
    return TDM_OK;
}

void tdm__outgoing_destroy(struct tdm__outgoing *outgoing)
{
    TDM_ASSERT(outgoing->settled && outgoing->call_id == 0);
    tdm__pull_abandon(outgoing->pull);
    tdm__arguments_destroy(outgoing->arguments);
    tdm__spare_give(outgoing, outgoing->size_bytes);
}

/* ---- settling --------------------------------------------------------------------------- */

/* A result is an array: of the one value, for each of several. */
static tdm_status one_of(const tdm_value *value, tdm_document **document_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 1);
    tdm_write_value(writer, value);
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_document_parse(tdm_writer_bytes(writer), document_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

static void complete_ref(tdm_ref *ref, tdm_status status, const char *detail,
                         tdm_document *document)
{
    ref->outgoing = NULL;
    tdm__ref_complete(ref, status, detail, document);
    tdm__ref_drop(ref);
}

static void complete_several(struct tdm__outgoing *outgoing, tdm_document *document)
{
    const tdm_value *values = tdm_document_root(document);
    uint32_t replied = tdm_value_count(values);
    char detail[160];

    (void)snprintf(detail, sizeof(detail), "method %s replied %u values, %u were asked for",
                   outgoing->method, replied, outgoing->refs_count);
    for (uint32_t i = 0; i < outgoing->refs_count; i++) {
        tdm_document *part = NULL;
        tdm_status status = replied == outgoing->refs_count
                                ? one_of(tdm_value_at(values, i), &part)
                                : TDM_E_TYPE;

        complete_ref(outgoing->refs[i], status,
                     status == TDM_E_TYPE ? detail : tdm_error_detail(), part);
    }
    tdm_document_destroy(document);
}

static void complete_all(struct tdm__outgoing *outgoing, tdm_status status, const char *detail)
{
    for (uint32_t i = 0; i < outgoing->refs_count; i++) {
        complete_ref(outgoing->refs[i], status, detail, NULL);
    }
}

void tdm__outgoing_settle(struct tdm__outgoing *outgoing, tdm_status status, const char *detail,
                          tdm_document *document)
{
    char silent[128];

    if (outgoing->settled) {
        tdm_document_destroy(document);
        return;
    }
    outgoing->settled = true;
    outgoing->link->pending_count -= outgoing->is_pending ? 1 : 0;
    outgoing->link->runtime->results_arrived = true;
    if (status != TDM_OK && detail[0] == '\0') {
        (void)snprintf(silent, sizeof(silent), "method %s failed without saying why",
                       outgoing->method);
        detail = silent;
    }
    if (outgoing->stream != NULL) {
        tdm__stream_ended(outgoing->stream, status, detail);
        tdm_document_destroy(document);
    } else if (status != TDM_OK || outgoing->refs_count == 0) {
        complete_all(outgoing, status, detail);
        tdm_document_destroy(document);
    } else if (outgoing->refs_count == 1) {
        complete_ref(outgoing->refs[0], status, detail, document);
    } else {
        complete_several(outgoing, document);
    }
    outgoing->refs_count = 0;
}

void tdm__outgoing_fail(struct tdm__outgoing *outgoing, tdm_status status, const char *reason)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    size_t first_line = strcspn(reason, "\n");

    (void)snprintf(detail, sizeof(detail),
                   "%.*s, in method %s, call %llu, %lld ms after it began%s", (int)first_line,
                   reason, outgoing->method, (unsigned long long)outgoing->sequence,
                   (long long)(tdm__clock_ms() - outgoing->made_ms), reason + first_line);
    tdm__outgoing_settle(outgoing, status, detail, NULL);
}
