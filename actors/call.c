/* call.c - one call inside the actor that runs it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/call.h"

#include "actors/class.h"
#include "actors/observe.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>

enum { SETTLE_TIMEOUT_MS = 10000 };

tdm_status tdm_call_unpack(tdm_call *call, const char *format, ...)
{
    tdm_status status;
    va_list args;

    va_start(args, format);
    status = tdm__links_unpack(tdm_runtime_current(), call->arguments, format, args);
    va_end(args);
    return tdm__wrap(status, "the arguments");
}

const tdm_value *tdm_call_arguments(tdm_call *call)
{
    return call->arguments;
}

int64_t tdm_call_remaining_ms(tdm_call *call)
{
    return tdm__deadline_left(call->deadline_ms);
}

/* The caller lets go of its references with the answer: this process must hold them by then. */
static void settle(tdm_call *call)
{
    if (call->holds.count > 0 &&
        tdm__holds_settle(tdm_runtime_current(), &call->holds, SETTLE_TIMEOUT_MS) != TDM_OK) {
        tdm__log(TDM__WARN, "call", "the owner of an argument does not answer: %s",
                 tdm_error_detail());
    }
}

static void send_reply(tdm_call *call, struct tdm_bytes packed_array)
{
    settle(call);
    tdm__reply_keeps(tdm_runtime_current(), call->incoming, &call->replied_with);
    tdm__incoming_reply(call->incoming, packed_array, NULL, 0);
    call->incoming = NULL;
}

tdm_status tdm_call_reply_packed(tdm_call *call, struct tdm_bytes packed_array)
{
    TDM__ENTER(call->loop);

    if (call->replied) {
        return tdm__fail(TDM_E_STATE, "a method replies at most once");
    }
    if (call->replied_with.count == 0) {
        TDM_TRY(tdm__holds_of_packed(tdm_runtime_current(), packed_array, &call->replied_with));
    }
    call->replied = true;
    if (call->incoming != NULL) {
        send_reply(call, packed_array);
    }
    return TDM_OK;
}

tdm_status tdm_call_reply(tdm_call *call, const char *format, ...)
{
    tdm_writer *writer;
    tdm_status status;
    va_list args;
    TDM__ENTER(call->loop);

    if (call->replied) {
        return tdm__fail(TDM_E_STATE, "a method replies at most once");
    }
    TDM_TRY(tdm_writer_create(&writer));
    va_start(args, format);
    status = tdm__links_pack(tdm_runtime_current(), writer, format, args, &call->replied_with);
    va_end(args);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

static void answer_without_reply(tdm_call *call, tdm_status status)
{
    if (call->incoming == NULL) {
        return; /* replied before it failed: the reply stands */
    }
    settle(call);
    if (status == TDM_OK) {
        tdm__incoming_reply_pack(call->incoming, "");
    } else {
        tdm__incoming_fail(call->incoming, status, tdm_error_detail());
    }
}

static tdm_status run_method(const struct tdm_actor_class *actor_class, void *self,
                             tdm_call *call)
{
    const char *name = tdm__incoming_method(call->incoming);
    const struct tdm_method_entry *method = tdm__class_method(actor_class, name);
    char methods[512];
    struct tdm__span span;
    uint32_t depth;
    tdm_status status;

    if (method == NULL) {
        return tdm__fail(TDM_E_NOT_FOUND, "class %s has no method \"%s\"; it has: %s",
                         actor_class->name, name,
                         tdm__class_methods_text(actor_class, methods, sizeof(methods)));
    }
    (void)tdm__fail(TDM_OK, "%s", ""); /* a method that fails silently has no detail */
    tdm__span_begin(&span, method->name, call->incoming);
    depth = call->loop == NULL ? 0 : tdm__loop_let_go(call->loop);
    status = method->run(call, self);
    tdm__span_end(&span, status);
    if (call->loop != NULL) {
        tdm__loop_take_back(call->loop, depth);
    }
    return status;
}

void tdm__call_run(struct tdm__loop *loop, const struct tdm_actor_class *actor_class,
                   void *self, struct tdm__incoming *incoming)
{
    tdm_call call = {
        .incoming = incoming, .deadline_ms = tdm__incoming_deadline(incoming), .loop = loop};
    tdm_document *document = NULL;
    tdm_status status = tdm__incoming_take_document(incoming, &document);

    if (status == TDM_OK) {
        status = tdm__holds_of_document(tdm_runtime_current(), document, &call.holds);
    }
    if (status == TDM_OK) {
        call.arguments = tdm_document_root(document);
        status = run_method(actor_class, self, &call);
    }
    answer_without_reply(&call, status);
    tdm__holds_release(&call.holds);
    tdm__holds_release(&call.replied_with);
    tdm_document_destroy(document);
}

tdm_status tdm__call_construct(struct tdm__loop *loop,
                               const struct tdm_actor_class *actor_class, void *self,
                               const tdm_value *arguments)
{
    tdm_call call = {.arguments = arguments, .deadline_ms = TDM__NEVER, .loop = loop};
    uint32_t depth;
    tdm_status status;

    if (actor_class->construct == NULL) {
        return TDM_OK;
    }
    depth = loop == NULL ? 0 : tdm__loop_let_go(loop);
    status = actor_class->construct(&call, self);
    if (loop != NULL) {
        tdm__loop_take_back(loop, depth);
    }
    return status;
}
