/* call.c - what a method may do with its call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/call.h"

#include "actors/objects/large_value.h"
#include "actors/objects/pull.h"
#include "actors/server/executor.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/log.h"
#include "runtime/loop/loop.h"

#include <stdio.h>
#include <stdlib.h>

enum { SPARE_BYTES_MAX = 1 << 20 };

/* Memory for the replies of the methods that this thread runs. */
static _Thread_local bool runs_methods;
static _Thread_local tdm_writer *cached_writer; /* owned; or NULL */

void tdm__call_thread_init(void)
{
    runs_methods = true;
}

void tdm__call_thread_fini(void)
{
    runs_methods = false;
    tdm_writer_destroy(cached_writer);
    cached_writer = NULL;
}

static tdm_status take_writer(tdm_writer **writer_out)
{
    if (cached_writer == NULL) {
        return tdm_writer_create(writer_out);
    }
    *writer_out = cached_writer;
    cached_writer = NULL;
    return TDM_OK;
}

static void give_writer(tdm_writer *writer)
{
    if (runs_methods && cached_writer == NULL &&
        tdm_writer_bytes(writer).size_bytes <= SPARE_BYTES_MAX) {
        tdm_writer_clear(writer);
        cached_writer = writer;
    } else {
        tdm_writer_destroy(writer);
    }
}

void tdm__call_free(tdm_call *call)
{
    tdm__pins_release(&call->pins);
    tdm__pins_release(&call->reply_pins);
    tdm__passed_refs_release(call->passed);
    tdm_document_destroy(call->document);
    free(call->name);
    tdm__free_list_free(call, sizeof(*call));
}

/* ---- arguments that must be fetched ------------------------------------------------------ */

static tdm_status take_arguments(tdm_call *call, struct tdm__large *large)
{
    TDM_TRY(tdm__large_document(large, &call->document));
    call->arguments = tdm_document_root(call->document);
    return tdm__pins_from_document(tdm_runtime_current(), call->document, &call->pins);
}

static void on_arguments(void *arg, tdm_status status, const char *detail, struct tdm__large *large)
{
    tdm_call *call = arg;

    call->pull = NULL;
    if (status == TDM_OK) {
        status = take_arguments(call, large);
        detail = tdm_error_detail();
        tdm__large_release(large);
    }
    if (status == TDM_OK) {
        tdm__executor_release(call);
    } else if (status == TDM_E_CLOSED) {
        tdm__executor_release_disconnected(call, detail);
    } else {
        tdm__executor_release_failed(call, status, detail);
    }
}

void tdm__call_fetch_arguments(void *arg, tdm_call *call)
{
    struct tdm_bytes packed = tdm__incoming_packed(call->incoming);
    struct tdm__conn *conn = tdm__incoming_conn(call->incoming);
    bool again = call->pull != NULL;

    (void)arg;
    tdm__pull_abandon(call->pull);
    call->pull = NULL;
    if (conn != NULL && tdm__pull_is_offer(packed)) {
        if (!again) {
            tdm__executor_hold(call);
        }
        if (tdm__pull_start(tdm_runtime_current(), conn, packed, on_arguments, call, &call->pull) !=
            TDM_OK) {
            tdm__executor_release_failed(call, TDM_E_LIMIT, tdm_error_detail());
        }
    } else if (again) {
        tdm__executor_release(call);
    }
}

tdm_status tdm__call_parse(tdm_call *call)
{
    if (call->document != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__incoming_document(tdm_runtime_current(), call->incoming, &call->document));
    call->arguments = tdm_document_root(call->document);
    return tdm__pins_from_document(tdm_runtime_current(), call->document, &call->pins);
}

/* ---- what was called -------------------------------------------------------------------- */

tdm_status tdm_call_unpack(tdm_call *call, const char *format, ...)
{
    TDM__REQUIRE(call);
    TDM__REQUIRE(format);

    tdm_status status;
    va_list args;

    va_start(args, format);
    status = tdm__refs_unpack(tdm_runtime_current(), call->arguments, format, args);
    va_end(args);
    return status == TDM_OK ? TDM_OK : tdm__wrap(status, "the arguments");
}

/* Not the incoming call's: that one may go while the method runs. */
const char *tdm_call_method(const tdm_call *call)
{
    TDM__REQUIRE_OR(call, "");

    if (call->method == NULL) {
        return ""; /* a constructor */
    }
    return call->name == NULL ? call->method->name : call->name;
}

const tdm_value *tdm_call_arguments(tdm_call *call)
{
    TDM__REQUIRE_OR(call, NULL);

    return call->arguments;
}

int64_t tdm_call_remaining_ms(tdm_call *call)
{
    TDM__REQUIRE_OR(call, 0);

    return tdm__deadline_remaining_ms(call->deadline_ms);
}

/* Relaxed: nothing else is read on the strength of it. */
int tdm_call_is_canceled(tdm_call *call)
{
    TDM__REQUIRE_OR(call, 0);

    return atomic_load_explicit(&call->canceled, memory_order_relaxed) ||
           atomic_load_explicit(&call->is_disconnected, memory_order_relaxed);
}

/* ---- answers ---------------------------------------------------------------------------- */

static tdm_status check_unanswered(const tdm_call *call)
{
    return call->is_replied
               ? tdm__fail(TDM_E_STATE, "a call is answered once, and this one has been")
               : TDM_OK;
}

/* With the lock. */
static tdm_status call_send_reply(tdm_call *call, const struct tdm__method_reply *said)
{
    TDM_TRY(check_unanswered(call));
    if (call->executor == NULL) {
        call->is_replied = true; /* a constructor's: nobody reads it */
        return TDM_OK;
    }
    tdm__executor_reply(call, said);
    return TDM_OK;
}

static void on_settled(void *arg)
{
    tdm__executor_release_reply(arg);
}

/* The caller lets go of its references with the answer: this process must hold them by then. */
static void call_settle_refs(tdm_call *call)
{
    if (tdm__pins_are_settled(&call->pins)) {
        return;
    }
    tdm__executor_hold_reply(call);
    if (tdm__pins_on_settled(tdm_runtime_current(), &call->pins, on_settled, call) != TDM_OK) {
        tdm__log(TDM__WARN, "call", "an argument may be lost: %s", tdm_error_detail());
        tdm__executor_release_reply(call);
    }
}

void tdm__call_pin_reply_refs(void *arg, tdm_call *call, struct tdm__method_reply *said)
{
    (void)arg;
    call_settle_refs(call);
    if (tdm__passed_refs_create(&call->reply_pins, &call->passed) != TDM_OK) {
        *said = (struct tdm__method_reply){.status = TDM_E_NOMEM, .detail = tdm_error_detail()};
    }
    said->passed = call->passed;
}

/* Takes `large`; without one, the reply is `packed`. */
static tdm_status call_reply_value(tdm_call *call, struct tdm__large *large,
                                   struct tdm_bytes packed)
{
    const struct tdm__method_reply said = {.detail = "", .packed = packed, .large = large};
    tdm_status status = TDM_OK;

    if (call->reply_pins.count == 0) {
        status = tdm__pins_from_packed(tdm_runtime_current(),
                                       large == NULL ? packed : tdm__large_bytes(large),
                                       &call->reply_pins);
    }
    if (status == TDM_OK) {
        status = call_send_reply(call, &said);
    }
    tdm__large_release(large);
    return status;
}

/* A process without a runtime (a test) has no memory for large values. */
static bool may_be_large(const tdm_call *call)
{
    return call->executor != NULL && tdm_runtime_current() != NULL;
}

static tdm_status reply_packed(tdm_call *call, struct tdm_bytes packed_array)
{
    struct tdm__large *large = NULL;

    if (may_be_large(call)) {
        TDM_TRY(tdm__large_copy(tdm_runtime_current(), packed_array, &large));
    }
    return call_reply_value(call, large, packed_array);
}

tdm_status tdm_call_reply_packed(tdm_call *call, struct tdm_bytes packed_array)
{
    TDM__REQUIRE(call);

    TDM__LOOP_ENTER(call->loop);

    TDM_TRY(check_unanswered(call));
    return reply_packed(call, packed_array);
}

static tdm_status reply_small(tdm_call *call, const char *format, va_list args)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(take_writer(&writer));
    status = tdm__refs_pack(tdm_runtime_current(), writer, format, args, &call->reply_pins);
    if (status == TDM_OK) {
        status = reply_packed(call, tdm_writer_bytes(writer));
    }
    give_writer(writer);
    return status;
}

tdm_status tdm_call_reply(tdm_call *call, const char *format, ...)
{
    TDM__REQUIRE(call);
    TDM__REQUIRE(format);

    struct tdm__large *large = NULL;
    tdm_status status = TDM_OK;
    va_list args;
    TDM__LOOP_ENTER(call->loop);

    TDM_TRY(check_unanswered(call));
    va_start(args, format);
    if (may_be_large(call)) {
        status = tdm__large_pack(tdm_runtime_current(), format, args, &large);
    }
    if (status == TDM_OK) {
        status = large == NULL ? reply_small(call, format, args)
                               : call_reply_value(call, large, (struct tdm_bytes){NULL, 0});
    }
    va_end(args);
    return status;
}

tdm_status tdm_call_keep(tdm_call *call)
{
    TDM__REQUIRE(call);

    TDM__LOOP_ENTER(call->loop);

    if (call->executor == NULL || !tdm__executor_is_asynchronous(call->executor)) {
        return tdm__fail(TDM_E_STATE, "only methods of an asynchronous class may keep their calls");
    }
    if (call->is_replied) {
        return tdm__fail(TDM_E_STATE, "the call has been answered, there is nothing to keep");
    }
    call->is_kept = true;
    return TDM_OK;
}

void tdm_call_fail(tdm_call *call, tdm_status status, const char *format, ...)
{
    TDM__REQUIRE_OR(call, );
    TDM__REQUIRE_OR(format, );

    char detail[TDM__ERROR_DETAIL_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(detail, sizeof(detail), format, args);
    va_end(args);
    TDM__LOOP_ENTER(call->loop);
    (void)call_send_reply(
        call, &(struct tdm__method_reply){.status = status == TDM_OK ? TDM_E_METHOD : status,
                                          .detail = detail});
}

/* ---- streams ---------------------------------------------------------------------------- */

static bool item_may_leave(void *arg)
{
    tdm_call *call = arg;

    return call->items_sent - call->items_taken < TDM_STREAM_ITEMS_AHEAD ||
           tdm_call_is_canceled(call) != 0 || call->is_replied;
}

static tdm_status check_stream(const tdm_call *call)
{
    if (call->executor == NULL || call->is_replied || !call->wants_items) {
        return tdm__fail(TDM_E_STATE, call->executor != NULL && call->is_replied
                                          ? "the stream has ended: its call is answered"
                                          : "the caller asked for no stream");
    }
    return TDM_OK;
}

static tdm_status wait_for_taker(tdm_call *call)
{
    tdm_status status = tdm__loop_run(call->loop, item_may_leave, call, call->deadline_ms);

    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "the caller's deadline passed while %d items waited for it",
                         (int)TDM_STREAM_ITEMS_AHEAD);
    }
    TDM_TRY(status);
    if (tdm_call_is_canceled(call) != 0 || call->is_replied) {
        return tdm__fail(TDM_E_CANCELED, "nobody takes the items any more");
    }
    return TDM_OK;
}

/* Takes `holds`: the references in it are kept until the caller has settled. */
static tdm_status send_item(tdm_call *call, struct tdm__large *large, struct tdm_bytes packed,
                            struct tdm__pins *pins)
{
    tdm_runtime *runtime = tdm_runtime_current();
    uint64_t index = call->items_sent + 1;
    struct tdm__passed_refs *passed;
    tdm_status status = TDM_OK;

    if (large != NULL && pins->count == 0) {
        status = tdm__pins_from_packed(runtime, tdm__large_bytes(large), pins);
    }
    if (status == TDM_OK) {
        status = tdm__passed_refs_create(pins, &passed);
    }
    if (status != TDM_OK) {
        return status;
    }
    status = large != NULL ? tdm__large_item(large, runtime, call->incoming, index)
                           : tdm__incoming_send_item(call->incoming, index, packed, NULL, 0);
    if (status == TDM_OK) {
        call->items_sent = index;
        status = tdm__reply_pins_create(runtime, call->incoming, index, passed);
    }
    tdm__passed_refs_release(passed);
    return status;
}

static tdm_status yield_small(tdm_call *call, const char *format, va_list args)
{
    struct tdm__pins pins = {0};
    struct tdm__large *large = NULL; /* values brought in by v or p may make it so */
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(take_writer(&writer));
    status = tdm__refs_pack(tdm_runtime_current(), writer, format, args, &pins);
    if (status == TDM_OK) {
        status = wait_for_taker(call);
    }
    if (status == TDM_OK && may_be_large(call)) {
        status = tdm__large_copy(tdm_runtime_current(), tdm_writer_bytes(writer), &large);
    }
    if (status == TDM_OK) {
        status = send_item(call, large, tdm_writer_bytes(writer), &pins);
    }
    tdm__large_release(large);
    tdm__pins_release(&pins);
    give_writer(writer);
    return status;
}

static tdm_status yield_large(tdm_call *call, struct tdm__large *large)
{
    struct tdm__pins pins = {0};
    tdm_status status = wait_for_taker(call);

    if (status == TDM_OK) {
        status = send_item(call, large, (struct tdm_bytes){NULL, 0}, &pins);
    }
    tdm__large_release(large);
    return status;
}

tdm_status tdm_call_yield(tdm_call *call, const char *format, ...)
{
    TDM__REQUIRE(call);
    TDM__REQUIRE(format);

    struct tdm__large *large = NULL;
    tdm_status status = TDM_OK;
    va_list args;
    TDM__LOOP_ENTER(call->loop);

    TDM_TRY(check_stream(call));
    va_start(args, format);
    if (may_be_large(call)) {
        status = tdm__large_pack(tdm_runtime_current(), format, args, &large);
    }
    if (status == TDM_OK) {
        status = large == NULL ? yield_small(call, format, args) : yield_large(call, large);
    }
    va_end(args);
    return status;
}

/* ---- the constructor -------------------------------------------------------------------- */

tdm_status tdm__call_construct(struct tdm__loop *loop, const struct tdm_actor_class *actor_class,
                               void *self, const tdm_value *arguments)
{
    tdm_call call = {.arguments = arguments, .deadline_ms = TDM__NEVER, .loop = loop};
    uint32_t depth;
    tdm_status status;

    if (actor_class->construct == NULL) {
        return TDM_OK;
    }
    depth = loop == NULL ? 0 : tdm__loop_leave_all(loop);
    status = actor_class->construct(&call, self);
    if (loop != NULL) {
        tdm__loop_reenter(loop, depth);
    }
    return status;
}
