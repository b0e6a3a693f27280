/* call.c - what a method may do with its call. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements the public functions on a tdm_call: reading arguments, replying, keeping, failing, and
 * yielding stream items; and the two hooks that the worker installs in the executor for references
 * and large values. The executor (executor.c) owns the calls and decides when they run.
 *
 * Methods run on threads of the executor without the loop's lock; each public function acquires it.
 * Only the method's thread reads `document` and `arguments`, so reading them needs no lock. A call
 * is replied to at most once: `is_replied` is set under the lock. Constructors have a tdm_call
 * without an executor, whose reply is ignored. */

#include "actors/server/call.h"

#include "actors/objects/large_message.h"
#include "actors/objects/large_value.h"
#include "actors/objects/pins.h"
#include "actors/objects/pull.h"
#include "actors/objects/reply_pins.h"
#include "actors/objects/settling.h"
#include "actors/server/executor.h"
#include "actors/server/reply_buffer.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/loop/loop.h"

#include <stdio.h>

/* ---- arguments that must be fetched ------------------------------------------------------ */

/* Makes the fetched value `large` the arguments of the call. */
static tdm_status call_set_arguments(tdm_call *call, struct tdm__large *large)
{
    TDM_TRY(tdm__large_document(large, &call->document));
    call->arguments = tdm_document_root(call->document);
    return tdm__pins_from_document(tdm_runtime_current(), call->document, &call->pins);
}

/* Receives the result of fetching large arguments and lets the call start, or fails it. Takes
 * `large`. */
static void on_arguments_fetched(void *arg, tdm_status status, const char *detail,
                                 struct tdm__large *large)
{
    tdm_call *call = arg;

    call->pull = NULL;
    if (status == TDM_OK) {
        status = call_set_arguments(call, large);
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
        if (tdm__pull_start(tdm_runtime_current(), conn, packed, on_arguments_fetched, call,
                            &call->pull) != TDM_OK) {
            tdm__executor_release_failed(call, TDM_E_LIMIT, tdm_error_detail());
        }
    } else if (again) {
        tdm__executor_release(call);
    }
}

/* ---- reading a call -------------------------------------------------------------------- */

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

/* The name is not read from the incoming RPC call, which may be freed while the method runs. */
const char *tdm_call_method(const tdm_call *call)
{
    TDM__REQUIRE_OR(call, "");

    if (call->method == NULL) {
        return ""; /* The call of a constructor has no method. */
    }
    return call->name == NULL ? call->method->name : call->name;
}

const tdm_value *tdm_call_arguments(tdm_call *call)
{
    TDM__REQUIRE_OR(call, NULL);

    return call->arguments;
}

tdm_status tdm_call_take_arguments(tdm_call *call, tdm_document **document_out)
{
    TDM__REQUIRE(document_out);
    *document_out = NULL;
    TDM__REQUIRE(call);

    TDM__LOOP_ENTER(call->loop);

    if (call->document_is_taken) {
        return tdm__fail(TDM_E_STATE, "the arguments of the call were taken before");
    }
    call->document_is_taken = true;
    *document_out = call->document;
    return TDM_OK;
}

int64_t tdm_call_remaining_ms(tdm_call *call)
{
    TDM__REQUIRE_OR(call, 0);

    return tdm__deadline_remaining_ms(call->deadline_ms);
}

/* Relaxed order suffices, because no other data is read depending on the flags. */
int tdm_call_is_canceled(tdm_call *call)
{
    TDM__REQUIRE_OR(call, 0);

    return atomic_load_explicit(&call->canceled, memory_order_relaxed) ||
           atomic_load_explicit(&call->is_disconnected, memory_order_relaxed);
}

tdm_status tdm_call_on_cancel(tdm_call *call, tdm_cancel_fn *fn, void *arg)
{
    TDM__REQUIRE(call);

    TDM__LOOP_ENTER(call->loop);

    if (call->executor == NULL || call->is_replied) {
        return tdm__fail(TDM_E_STATE, call->executor == NULL
                                          ? "a constructor cannot be canceled"
                                          : "the call already has a reply and is over");
    }
    call->cancel_fn = fn;
    call->cancel_arg = arg;
    if (atomic_load_explicit(&call->canceled, memory_order_relaxed)) {
        tdm__call_run_cancel_callback(call);
    }
    return TDM_OK;
}

/* ---- replies ---------------------------------------------------------------------------- */

/* Returns TDM_E_STATE if the call has been replied to. If its method did so, that is logged, too,
 * because few methods check it. */
static tdm_status call_check_not_replied(const tdm_call *call)
{
    if (call->method_replied) {
        tdm__log(TDM__WARN, "actors", "method %s replied twice: the second reply is lost",
                 call->name != NULL ? call->name : call->method->name);
    }
    return call->is_replied
               ? tdm__fail(TDM_E_STATE, "the call already has a reply; a method may reply once")
               : TDM_OK;
}

/* Hands the reply of a method to the executor; TDM_E_STATE if there was one before. The caller
 * holds the loop's lock. */
static tdm_status call_send_reply(tdm_call *call, const struct tdm__method_reply *reply)
{
    TDM_TRY(call_check_not_replied(call));
    if (call->executor == NULL) {
        call->is_replied = true; /* The reply of a constructor is not read. */
        return TDM_OK;
    }
    call->method_replied = true;
    tdm__executor_reply(call, reply);
    return TDM_OK;
}

/* Lets the reply of the call leave, because the references of its arguments are registered. */
static void on_refs_settled(void *arg)
{
    tdm__executor_release_reply(arg);
}

/* Holds the reply back until this process's own claims to the references among the arguments are
 * registered with their owners. The caller drops its references when it gets the reply. */
static void call_settle_refs(tdm_call *call)
{
    if (tdm__pins_are_settled(&call->pins)) {
        return;
    }
    tdm__executor_hold_reply(call);
    if (tdm__pins_on_settled(tdm_runtime_current(), &call->pins, on_refs_settled, call) != TDM_OK) {
        tdm__log(TDM__WARN, "call", "an argument may be lost: %s", tdm_error_detail());
        tdm__executor_release_reply(call);
    }
}

void tdm__call_pin_reply_refs(void *arg, tdm_call *call, struct tdm__method_reply *reply)
{
    (void)arg;
    call_settle_refs(call);
    if (tdm__passed_refs_create(&call->reply_pins, &call->passed) != TDM_OK) {
        *reply = (struct tdm__method_reply){.status = TDM_E_NOMEM, .detail = tdm_error_detail()};
    }
    reply->passed = call->passed;
}

/* Replies to the call with `large`, which is taken over, if it is not NULL; else with `packed`. */
static tdm_status call_reply_value(tdm_call *call, struct tdm__large *large,
                                   struct tdm_bytes packed)
{
    const struct tdm__method_reply reply = {.detail = "", .packed = packed, .large = large};
    tdm_status status = TDM_OK;

    if (call->reply_pins.count == 0) {
        status = tdm__pins_from_packed(tdm_runtime_current(),
                                       large == NULL ? packed : tdm__large_bytes(large),
                                       &call->reply_pins);
    }
    if (status == TDM_OK) {
        status = call_send_reply(call, &reply);
    }
    tdm__large_release(large);
    return status;
}

/* True if replies of the call may be placed in shared memory. A process without a runtime, such as
 * a unit test, has none. */
static bool call_reply_may_be_large(const tdm_call *call)
{
    return call->executor != NULL && tdm_runtime_current() != NULL;
}

/* Replies to the call with a packed array, through shared memory if the array is large enough. */
static tdm_status call_reply_bytes(tdm_call *call, struct tdm_bytes packed_array)
{
    struct tdm__large *large = NULL;

    if (call_reply_may_be_large(call)) {
        TDM_TRY(tdm__large_copy(tdm_runtime_current(), packed_array, &large));
    }
    return call_reply_value(call, large, packed_array);
}

tdm_status tdm_call_reply_packed(tdm_call *call, struct tdm_bytes packed_array)
{
    TDM__REQUIRE(call);

    TDM__LOOP_ENTER(call->loop);

    TDM_TRY(call_check_not_replied(call));
    return call_reply_bytes(call, packed_array);
}

/* Replies to the call with values packed by `format`; the reply is known to start small. */
static tdm_status call_reply_formatted(tdm_call *call, const char *format, va_list args)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__reply_buffer_acquire(&writer));
    status = tdm__refs_pack(tdm_runtime_current(), writer, format, args, &call->reply_pins);
    if (status == TDM_OK) {
        status = call_reply_bytes(call, tdm_writer_bytes(writer));
    }
    tdm__reply_buffer_release(writer);
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

    TDM_TRY(call_check_not_replied(call));
    va_start(args, format);
    if (call_reply_may_be_large(call)) {
        status =
            tdm__large_pack(tdm_runtime_current(), format, args, tdm__refs_write_object, &large);
    }
    if (status == TDM_OK) {
        status = large == NULL ? call_reply_formatted(call, format, args)
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
        return tdm__fail(TDM_E_STATE, "the call already has a reply and cannot be kept");
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

/* Packs the values that a failure carries, and pins the references among them. */
static tdm_status call_pack_failure(tdm_call *call, tdm_writer *writer, const char *format,
                                    va_list args)
{
    size_t size_bytes;

    TDM_TRY(tdm__refs_pack(tdm_runtime_current(), writer, format, args, &call->reply_pins));
    size_bytes = tdm_writer_bytes(writer).size_bytes;
    if (size_bytes > TDM_FAILURE_BYTES_MAX) {
        tdm__pins_release(&call->reply_pins);
        return tdm__fail(TDM_E_LIMIT, "a failure with values of %zu bytes, it may carry %d",
                         size_bytes, (int)TDM_FAILURE_BYTES_MAX);
    }
    return TDM_OK;
}

tdm_status tdm_call_fail_with(tdm_call *call, tdm_status status, const char *text,
                              const char *format, ...)
{
    TDM__REQUIRE(call);
    TDM__REQUIRE(text);
    TDM__REQUIRE(format);

    struct tdm__method_reply reply = {.status = status == TDM_OK ? TDM_E_METHOD : status,
                                      .detail = text};
    tdm_writer *writer;
    tdm_status packed;
    va_list args;
    TDM__LOOP_ENTER(call->loop);

    if (call->executor == NULL) {
        return tdm__fail(TDM_E_STATE, "a constructor fails with the status that it returns");
    }
    TDM_TRY(call_check_not_replied(call));
    TDM_TRY(tdm__reply_buffer_acquire(&writer));
    va_start(args, format);
    packed = call_pack_failure(call, writer, format, args);
    va_end(args);
    if (packed == TDM_OK) {
        reply.packed = tdm_writer_bytes(writer);
        packed = call_send_reply(call, &reply);
    }
    tdm__reply_buffer_release(writer);
    return packed;
}

/* ---- streams ---------------------------------------------------------------------------- */

/* Returns how many items of the call's stream may wait for the caller. */
static uint32_t call_items_ahead(const tdm_call *call)
{
    return call->items_ahead == 0 ? TDM_STREAM_ITEMS_AHEAD : call->items_ahead;
}

/* True when the next stream item may be sent or the stream has ended. Condition for
 * tdm__loop_run(). */
static bool call_may_send_item(void *arg)
{
    tdm_call *call = arg;

    uint32_t items_ahead = call_items_ahead(call);

    return items_ahead == TDM_STREAM_ITEMS_UNLIMITED ||
           call->items_sent - call->items_taken < items_ahead || tdm_call_is_canceled(call) != 0 ||
           call->is_replied;
}

/* Returns TDM_E_STATE unless the call's reply is a stream that is still open. */
static tdm_status call_check_stream(const tdm_call *call)
{
    if (call->executor == NULL || call->is_replied || !call->wants_items) {
        return tdm__fail(TDM_E_STATE, call->executor != NULL && call->is_replied
                                          ? "the stream has ended: its call already has a reply"
                                          : "the caller asked for no stream");
    }
    return TDM_OK;
}

tdm_status tdm_call_set_items_ahead(tdm_call *call, uint32_t items_ahead)
{
    TDM__REQUIRE(call);
    TDM__LOOP_ENTER(call->loop);

    TDM_TRY(call_check_stream(call));
    if (items_ahead == 0) {
        return tdm__fail(TDM_E_INVAL, "0 items of a stream ahead of its reader: 1 or more");
    }
    call->items_ahead = items_ahead;
    return TDM_OK;
}

/* Blocks until the caller has consumed enough items for the next one to be sent. TDM_E_TIMEOUT
 * after the caller's deadline, TDM_E_CANCELED if the caller reads no more items. */
static tdm_status call_wait_for_consumer(tdm_call *call)
{
    tdm_status status = tdm__loop_run(call->loop, call_may_send_item, call, call->deadline_ms);

    if (status == TDM_E_TIMEOUT) {
        return tdm__fail(status, "the caller's deadline passed while %u items waited for it",
                         call_items_ahead(call));
    }
    TDM_TRY(status);
    if (tdm_call_is_canceled(call) != 0 || call->is_replied) {
        return tdm__fail(TDM_E_CANCELED, "the caller reads no more items");
    }
    return TDM_OK;
}

/* Sends the next stream item. Takes over the pins: the references in the item are kept until the
 * caller has registered its own. */
static tdm_status call_send_item(tdm_call *call, struct tdm__large *large, struct tdm_bytes packed,
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

/* Packs and sends an item that is small so far. An item into which v or p copies large values may
 * become large. */
static tdm_status call_yield_formatted(tdm_call *call, const char *format, va_list args)
{
    struct tdm__pins pins = {0};
    struct tdm__large *large = NULL; /* Set if values copied by v or p make the item large. */
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__reply_buffer_acquire(&writer));
    status = tdm__refs_pack(tdm_runtime_current(), writer, format, args, &pins);
    if (status == TDM_OK) {
        status = call_wait_for_consumer(call);
    }
    if (status == TDM_OK && call_reply_may_be_large(call)) {
        status = tdm__large_copy(tdm_runtime_current(), tdm_writer_bytes(writer), &large);
    }
    if (status == TDM_OK) {
        status = call_send_item(call, large, tdm_writer_bytes(writer), &pins);
    }
    tdm__large_release(large);
    tdm__pins_release(&pins);
    tdm__reply_buffer_release(writer);
    return status;
}

/* Sends a stream item that lies in shared memory. Takes ownership of `large`. */
static tdm_status call_yield_large(tdm_call *call, struct tdm__large *large)
{
    struct tdm__pins pins = {0};
    tdm_status status = call_wait_for_consumer(call);

    if (status == TDM_OK) {
        status = call_send_item(call, large, (struct tdm_bytes){NULL, 0}, &pins);
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

    TDM_TRY(call_check_stream(call));
    va_start(args, format);
    if (call_reply_may_be_large(call)) {
        status =
            tdm__large_pack(tdm_runtime_current(), format, args, tdm__refs_write_object, &large);
    }
    if (status == TDM_OK) {
        status = large == NULL ? call_yield_formatted(call, format, args)
                               : call_yield_large(call, large);
    }
    va_end(args);
    return status;
}

/* ---- the constructor -------------------------------------------------------------------- */

tdm_status tdm__call_construct(struct tdm__loop *loop, const struct tdm_actor_class *actor_class,
                               void *self, tdm_document *arguments)
{
    tdm_call call = {.document = arguments,
                     .arguments = tdm_document_root(arguments),
                     .deadline_ms = TDM__NEVER,
                     .loop = loop};
    uint32_t depth;
    tdm_status status;

    if (actor_class->construct == NULL) {
        uint32_t count = tdm_value_count(call.arguments);

        tdm_document_destroy(arguments);
        return count == 0 ? TDM_OK
                          : tdm__fail(TDM_E_INVAL,
                                      "class %s has no constructor (.construct), but was given %u "
                                      "arguments",
                                      actor_class->name, count);
    }
    depth = loop == NULL ? 0 : tdm__loop_leave_all(loop);
    status = actor_class->construct(&call, self);
    if (loop != NULL) {
        tdm__loop_reenter(loop, depth);
    }
    if (!call.document_is_taken) {
        tdm_document_destroy(arguments);
    }
    return status;
}
