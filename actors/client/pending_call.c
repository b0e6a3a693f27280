/* pending_call.c - one call of this process, from its creation until its results have arrived. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm__pending_call: its allocation, which contains the method's name, the result
 * references and small arguments, and its completion. A call is completed exactly once, by
 * tdm__pending_call_complete(); later calls of that function do nothing. A completed call may
 * stay in a list of its channel until the actor's reply arrives.
 *
 * send_queue.c moves calls between the lists of a channel and frees them. Everything needs the
 * loop's lock. */

#include "actors/client/pending_call.h"

#include "actors/client/call_arguments.h"
#include "actors/client/call_retry.h"
#include "actors/client/call_stream.h"
#include "actors/common/actor_class.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_complete.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/free_list.h"

#include <stdio.h>
#include <string.h>

/* ---- creating ------------------------------------------------------------------------------ */

/* Returns TDM_E_INVAL if the length of the method's name is out of range. */
static tdm_status method_name_check(const char *method, size_t length)
{
    if (length == 0 || length > TDM__RPC_NAME_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a method name has 1 to %d bytes: \"%.70s\"",
                         TDM__RPC_NAME_BYTES_MAX, method);
    }
    return TDM_OK;
}

/* Creates the result references; each knows the call until it is complete. */
static tdm_status pending_call_create_refs(struct tdm__pending_call *pending_call,
                                           uint32_t refs_count)
{
    while (pending_call->refs_count < refs_count) {
        tdm_ref **slot = &pending_call->refs[pending_call->refs_count];

        TDM_TRY(tdm__ref_create(pending_call->channel->runtime, slot));
        (*slot)->is_of_call = true;
        (*slot)->pending_call = pending_call;
        pending_call->refs_count++;
    }
    return TDM_OK;
}

/* Returns how often the call may be sent again: the option of the call, else that of the actor. */
static int32_t pending_call_retries(const struct tdm__actor_channel *channel,
                                    const struct tdm_call_options *options)
{
    int32_t retries = options == NULL ? 0 : options->max_retries;

    if (retries == 0) {
        retries = channel->max_task_retries;
    }
    return retries == TDM__NO_RETRIES ? 0 : retries;
}

/* Takes ownership of `arguments`. Small ones are copied behind the method's name. */
static void pending_call_take_arguments(struct tdm__pending_call *pending_call, size_t method_bytes,
                                        struct tdm__call_arguments *arguments,
                                        struct tdm_bytes small)
{
    char *place = (char *)(pending_call->refs + pending_call->refs_count) + method_bytes;

    if (small.data == NULL) {
        pending_call->arguments = arguments;
        return;
    }
    memcpy(place, small.data, small.size_bytes);
    pending_call->packed = (struct tdm_bytes){place, small.size_bytes};
    tdm__call_arguments_destroy(arguments);
}

tdm_status tdm__pending_call_create(struct tdm__actor_channel *channel, const char *method,
                                    const struct tdm_call_options *options, uint32_t refs_count,
                                    struct tdm__call_arguments *arguments,
                                    struct tdm__pending_call **pending_call_out)
{
    size_t method_bytes = strlen(method) + 1;
    struct tdm_bytes small = tdm__call_arguments_inline_bytes(arguments);
    size_t size_bytes = sizeof(struct tdm__pending_call) + refs_count * sizeof(tdm_ref *) +
                        method_bytes + small.size_bytes;
    struct tdm__pending_call *pending_call;
    tdm_status status;

    TDM_TRY(method_name_check(method, method_bytes - 1));
    TDM_TRY(tdm__retry_check_options(options));
    pending_call = tdm__free_list_alloc_zeroed(size_bytes);
    if (pending_call == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a call of %s", method);
    }
    pending_call->channel = channel;
    pending_call->size_bytes = size_bytes;
    pending_call->method = memcpy(pending_call->refs + refs_count, method, method_bytes);
    pending_call->created_ms = tdm__clock_coarse_ms();
    pending_call->deadline_ms = options != NULL && options->timeout_ms > 0
                                    ? tdm__deadline_after(options->timeout_ms)
                                    : TDM__NEVER;
    pending_call->retries_left = pending_call_retries(channel, options);
    if (options != NULL && options->concurrency_group != NULL) {
        pending_call->concurrency_group = tdm__concurrency_group_id(options->concurrency_group);
    }
    if (options != NULL) {
        memcpy(pending_call->retry_failures, options->retry_failures,
               sizeof(pending_call->retry_failures));
    }
    status = pending_call_create_refs(pending_call, refs_count);
    if (status != TDM_OK) {
        tdm__pending_call_complete(pending_call, status, "", NULL);
        tdm__pending_call_destroy(pending_call);
        return status;
    }
    pending_call_take_arguments(pending_call, method_bytes, arguments, small);
    *pending_call_out = pending_call;
    return TDM_OK;
}

void tdm__pending_call_destroy(struct tdm__pending_call *pending_call)
{
    TDM_ASSERT(pending_call->settled && pending_call->call_id == 0);
    tdm__pull_abandon(pending_call->pull);
    tdm__call_arguments_destroy(pending_call->arguments);
    tdm__free_list_free(pending_call, pending_call->size_bytes);
}

/* ---- completing ---------------------------------------------------------------------------- */

/* Creates a document with one value of a reply of several values. Each result is an array, so
 * the value is wrapped into one. */
static tdm_status result_wrap_single(const tdm_value *value, tdm_document **document_out)
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

/* Completes one result reference and removes the call's hold. */
static void result_ref_complete(tdm_ref *ref, tdm_status status, const char *detail,
                                tdm_document *document)
{
    ref->pending_call = NULL;
    tdm__ref_complete(ref, status, detail, document);
    tdm__ref_release_locked(ref);
}

/* Completes each of several result references with one of the values in the reply. */
static void pending_call_complete_each(struct tdm__pending_call *pending_call,
                                       tdm_document *document)
{
    const tdm_value *values = tdm_document_root(document);
    uint32_t replied = tdm_value_count(values);
    char detail[160];

    (void)snprintf(detail, sizeof(detail), "method %s replied %u values, %u were asked for",
                   pending_call->method, replied, pending_call->refs_count);
    for (uint32_t i = 0; i < pending_call->refs_count; i++) {
        tdm_document *single = NULL;
        tdm_status status = replied == pending_call->refs_count
                                ? result_wrap_single(tdm_value_at(values, i), &single)
                                : TDM_E_TYPE;

        result_ref_complete(pending_call->refs[i], status,
                            status == TDM_E_TYPE ? detail : tdm_error_detail(), single);
    }
    tdm_document_destroy(document);
}

/* Completes all result references, if the call has any, with the same failure. Takes
 * ownership of `values`, which the failure carries; may be NULL. */
static void pending_call_complete_all(struct tdm__pending_call *pending_call, tdm_status status,
                                      const char *detail, tdm_document *values)
{
    for (uint32_t i = 1; i < pending_call->refs_count; i++) {
        result_ref_complete(pending_call->refs[i], status, detail,
                            tdm__failure_values_copy(values));
    }
    if (pending_call->refs_count > 0) {
        result_ref_complete(pending_call->refs[0], status, detail, values);
    } else {
        tdm_document_destroy(values);
    }
}

void tdm__pending_call_complete(struct tdm__pending_call *pending_call, tdm_status status,
                                const char *detail, tdm_document *document)
{
    char silent[128];

    if (pending_call->settled) {
        tdm_document_destroy(document);
        return;
    }
    pending_call->settled = true;
    pending_call->channel->pending_count -= pending_call->is_pending ? 1 : 0;
    pending_call->channel->runtime->client->results_arrived = true;
    if (status != TDM_OK && detail[0] == '\0') {
        (void)snprintf(silent, sizeof(silent), "method %s failed without saying why",
                       pending_call->method);
        detail = silent;
    }
    if (pending_call->stream != NULL) {
        tdm__stream_end(pending_call->stream, status, detail, document);
    } else if (status != TDM_OK || pending_call->refs_count == 0) {
        pending_call_complete_all(pending_call, status, detail, document);
    } else if (pending_call->refs_count == 1) {
        result_ref_complete(pending_call->refs[0], status, detail, document);
    } else {
        pending_call_complete_each(pending_call, document);
    }
    pending_call->refs_count = 0;
}

/* Writes into `text` which call it is and how far it was, as far as its caller knows. See
 * tdm__pending_call_fail(). */
static void pending_call_progress(const struct tdm__pending_call *pending_call,
                                  uint64_t oldest_sequence, char *text, size_t text_bytes)
{
    unsigned long long sequence = pending_call->sequence;
    long long age_ms = tdm__clock_ms() - pending_call->created_ms;

    if (sequence == 0) {
        (void)snprintf(text, text_bytes, "made %lld ms ago, not sent", age_ms);
    } else if (pending_call->items_received > 0) {
        (void)snprintf(text, text_bytes, "call %llu, made %lld ms ago, started", sequence, age_ms);
    } else if (oldest_sequence != 0 && oldest_sequence < sequence) {
        (void)snprintf(text, text_bytes,
                       "call %llu, made %lld ms ago, perhaps not started: call %llu had not ended",
                       sequence, age_ms, (unsigned long long)oldest_sequence);
    } else {
        (void)snprintf(text, text_bytes, "call %llu, made %lld ms ago, probably started", sequence,
                       age_ms);
    }
}

void tdm__pending_call_describe(const struct tdm__pending_call *pending_call,
                                uint64_t oldest_sequence, char *text, size_t text_bytes)
{
    char progress[160];

    pending_call_progress(pending_call, oldest_sequence, progress, sizeof(progress));
    (void)snprintf(text, text_bytes, "method %s of actor %s, %s", pending_call->method,
                   pending_call->channel->label, progress);
}

void tdm__pending_call_fail(struct tdm__pending_call *pending_call, tdm_status status,
                            const char *reason, uint64_t oldest_sequence)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    char progress[160];
    size_t first_line = strcspn(reason, "\n");

    pending_call_progress(pending_call, oldest_sequence, progress, sizeof(progress));
    (void)snprintf(detail, sizeof(detail), "%.*s, in method %s, %s%s", (int)first_line, reason,
                   pending_call->method, progress, reason + first_line);
    tdm__pending_call_complete(pending_call, status, detail, NULL);
}
