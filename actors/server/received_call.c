/* received_call.c - a call that an actor has received, from its arrival to its reply. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/received_call.h"

#include "actors/objects/large_message.h"
#include "actors/objects/pins.h"
#include "actors/objects/reply_pins.h"
#include "runtime/error.h"
#include "runtime/free_list.h"

#include <stdlib.h>

tdm_status tdm__call_parse(tdm_call *call)
{
    if (call->document != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__incoming_document(tdm_runtime_current(), call->incoming, &call->document));
    call->arguments = tdm_document_root(call->document);
    return tdm__pins_from_document(tdm_runtime_current(), call->document, &call->pins);
}

bool tdm__call_mark_canceled(tdm_call *call)
{
    atomic_store_explicit(&call->canceled, true, memory_order_relaxed);
    if (tdm__call_is_queued(call)) {
        return false;
    }
    tdm__call_run_cancel_callback(call);
    return true;
}

void tdm__call_run_cancel_callback(tdm_call *call)
{
    tdm_cancel_fn *fn = call->cancel_fn;

    if (fn != NULL && !call->is_replied) {
        call->cancel_fn = NULL;
        fn(call->cancel_arg, call);
    }
}

void tdm__call_free(tdm_call *call)
{
    tdm__pins_release(&call->pins);
    tdm__pins_release(&call->reply_pins);
    tdm__passed_refs_release(call->passed);
    if (!call->document_is_taken) {
        tdm_document_destroy(call->document);
    }
    free(call->name);
    tdm__free_list_free(call, sizeof(*call));
}
