/* borrowed_refs.c - the values of references that other processes own. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Requests the value of a borrowed reference once, when the user first wants it, by "object.get".
 * The owner replies with the value, with an offer, or with another process of this node that
 * fetches the value. After an offer the value is pulled. From the other process it is requested by
 * "object.sibling", and if that fails, from the owner by "object.fetch". ref_owners.c has the
 * connections to the owners and fails the references of an owner that has ended.
 *
 * Everything runs on the loop with its lock. docs/protocols/references.md specifies the
 * messages. */

#include "actors/objects/borrowed_refs.h"

#include "actors/objects/large_message.h"
#include "actors/objects/large_value.h"
#include "actors/objects/object_callbacks.h"
#include "actors/objects/owned_refs.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_complete.h"
#include "actors/objects/ref_owners.h"
#include "actors/objects/ref_records.h"
#include "actors/objects/settling.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values --------------------------------------------------------------------------------- */

/* All references inside a fetched value are settled: releases the outer reference. */
static void on_nested_settled(void *arg)
{
    tdm_ref_release(arg);
}

/* Holds the reference until the references inside its value are settled. The owner keeps them
 * only while the outer reference is pinned. */
static void borrow_hold_until_nested_settled(tdm_ref *ref)
{
    ref->runtime->objects->client->result_arrived(ref->runtime);
    tdm__ref_retain(ref);
    if (tdm__pins_on_settled(ref->runtime, &ref->nested, on_nested_settled, ref) != TDM_OK) {
        tdm_ref_release(ref);
    }
}

/* Completes the reference with the value that its owner sent. Takes ownership of `document`. */
static tdm_status borrow_complete_value(tdm_ref *ref, tdm_document *document)
{
    if (tdm_value_kind_of(tdm_document_root(document)) != TDM_ARRAY) {
        tdm_document_destroy(document);
        return tdm__fail(TDM_E_PROTOCOL, "the owner's reply is not an array");
    }
    tdm__ref_complete(ref, TDM_OK, NULL, document);
    borrow_hold_until_nested_settled(ref);
    return TDM_OK;
}

/* Completes the reference with the failure that its owner sent, and the values that it carries. */
static void borrow_complete_failure(tdm_ref *ref, const struct tdm__rpc_reply *reply)
{
    tdm__ref_complete(ref, reply->status, reply->detail, tdm__failure_document(reply));
    borrow_hold_until_nested_settled(ref);
}

/* Completes the reference with the value in the reply, which is in the message or in shared
 * memory. */
static tdm_status borrow_read_reply(tdm_ref *ref, struct tdm__rpc_reply *reply)
{
    tdm_document *document;

    TDM_TRY(tdm__result_document(ref->runtime, ref->shared->owner->conn, reply, &document));
    return borrow_complete_value(ref, document);
}

/* Called when the value has been pulled or the pull has failed. */
static void on_pulled(void *arg, tdm_status status, const char *detail, struct tdm__large *large)
{
    tdm_ref *ref = arg;
    tdm_runtime *runtime = ref->runtime;
    const struct tdm__rpc_reply end = {.status = status};

    if (ref->done || tdm__borrowed_ref_reply_is_closed(ref, &end)) {
        tdm__large_release(large); /* ref_owners.c reports the end of the owner. */
    } else if (status == TDM_OK) {
        tdm__ref_complete_large(ref, large);
        borrow_hold_until_nested_settled(ref);
    } else {
        tdm__borrowed_ref_fail(ref, status, detail);
    }
    tdm_ref_release(ref);
    runtime->objects->client->send_ready_calls(runtime);
}

/* Starts to pull an offered value, with a holder of the reference until on_pulled(). */
static tdm_status borrow_start_pull(tdm_ref *ref, const struct tdm__rpc_reply *reply)
{
    struct tdm__pull *pull;

    TDM_TRY(tdm__pull_start(ref->runtime, ref->shared->owner->conn, reply->packed, on_pulled, ref,
                            &pull));
    tdm__ref_retain(ref);
    return TDM_OK;
}

/* ---- values from another process of this node ------------------------------------------------ */

/* An "object.sibling" request in flight, to a process of this node that fetches the value.
 */
struct sibling_request {
    tdm_ref *ref;           /* Retained until the reply arrives. */
    struct tdm__conn *conn; /* Borrowed; the request ends before the connection does. */
};

static void on_value_reply(void *arg, struct tdm__rpc_reply *reply);

/* Requests the value from the owner itself, because the other process of this node no longer has
 * it or has ended. */
static void borrow_fetch_value(tdm_ref *ref)
{
    struct tdm__shared_ref *shared = ref->shared;

    shared->sibling_requested = false;
    if (shared->owner->conn != NULL &&
        tdm__borrowed_ref_send_request(shared, "object.fetch", on_value_reply) != TDM_OK) {
        tdm__borrowed_ref_fail(ref, TDM_E_OWNER_DIED, tdm_error_detail());
    }
}

/* Reply to "object.sibling". */
static void on_sibling_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct sibling_request *sibling_request = arg;
    tdm_ref *ref = sibling_request->ref;
    tdm_runtime *runtime = ref->runtime;
    tdm_document *document = NULL;
    tdm_status status = reply->status;

    if (status == TDM_OK) {
        status = tdm__result_document(runtime, sibling_request->conn, reply, &document);
    }
    free(sibling_request);
    if (ref->done || ref->shared == NULL) {
        tdm_document_destroy(document);
    } else if (status != TDM_OK || borrow_complete_value(ref, document) != TDM_OK) {
        borrow_fetch_value(ref);
    }
    tdm_ref_release(ref);
    runtime->objects->client->send_ready_calls(runtime);
}

/* Returns true if the reply names another process of this node instead of a value. */
static bool reply_is_redirection(struct tdm_bytes packed)
{
    static const char head[] = "\x81\xa7sibling";

    return packed.size_bytes > sizeof(head) && memcmp(packed.data, head, sizeof(head) - 1) == 0;
}

/* Parses the redirection and computes the socket address of the process that it names, in this
 * node's directory. */
static tdm_status redirection_parse(const struct tdm__ref_table *objects, struct tdm_bytes packed,
                                    struct ref_owner_address *address_out)
{
    const tdm_runtime *runtime = objects->runtime;
    struct ref_owner_address address = {.node = runtime->self.node};
    char id[TDM__ID_TEXT_BYTES];
    struct tdm__object_sibling_message message;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(packed, &document));
    status = tdm__object_sibling_decode(tdm_value_find(tdm_document_root(document), "sibling"),
                                        &message);
    if (status == TDM_OK) {
        address.kind = (enum tdm__peer_kind)message.kind;
        address.process = message.process;
        (void)snprintf(address.label, sizeof(address.label), "%s", message.name);
        (void)snprintf(address.unix_address, sizeof(address.unix_address),
                       "unix:%s/" TDM__OWNER_SOCKET, runtime->directory,
                       tdm__id_text(&address.process, id));
        *address_out = address;
    }
    tdm_document_destroy(document);
    return status;
}

/* Connects to the process of this node that the redirection names. */
static tdm_status redirection_connect(struct tdm__ref_table *objects, struct tdm_bytes packed,
                                      struct tdm__conn **conn_out)
{
    struct ref_owner_address address;
    struct ref_owner *owner;

    TDM_TRY(redirection_parse(objects, packed, &address));
    TDM_TRY(tdm__ref_owner_get(objects, &address, &owner));
    *conn_out = owner->conn;
    if (owner->conn == NULL) {
        tdm__ref_owner_free_if_unused(owner);
        return tdm__fail(TDM_E_CLOSED, "%s does not listen", address.label);
    }
    return TDM_OK;
}

/* Sends "object.sibling" to the process that the redirection names. */
static tdm_status borrow_send_sibling_request(tdm_ref *ref, struct tdm_bytes packed)
{
    struct tdm__rpc_request request = {.method = "object.sibling", .deadline_ms = TDM__NEVER};
    struct sibling_request *sibling_request = malloc(sizeof(*sibling_request));
    const struct tdm__object_request_message message = {ref->shared->id};
    tdm_writer *writer = NULL;
    tdm_status status = sibling_request == NULL
                            ? tdm__fail(TDM_E_NOMEM, "a request to another process of this node")
                            : TDM_OK;

    if (status == TDM_OK) {
        sibling_request->ref = ref;
        status = redirection_connect(ref->shared->objects, packed, &sibling_request->conn);
    }
    if (status == TDM_OK) {
        status = tdm_writer_create(&writer);
    }
    if (status == TDM_OK) {
        status = tdm__object_request_encode(&message, writer);
    }
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(sibling_request->conn, &request, on_sibling_reply, sibling_request,
                                NULL);
    }
    tdm_writer_destroy(writer);
    if (status != TDM_OK) {
        free(sibling_request);
        return status;
    }
    tdm__ref_retain(ref);
    ref->shared->sibling_requested = true;
    return TDM_OK;
}

/* Requests the value from another process of this node. Processes that wait here for the value
 * are refused, so that no cycle of waiting processes can arise; see shared_ref_find_fetched() in
 * owned_refs.c. */
static void borrow_follow_redirection(tdm_ref *ref, struct tdm_bytes packed)
{
    tdm__value_waiters_fail(ref->shared, "the value is not fetched here");
    if (borrow_send_sibling_request(ref, packed) != TDM_OK) {
        borrow_fetch_value(ref);
    }
}

/* ---- requests for values --------------------------------------------------------------------- */

/* Handles a successful reply of the owner: redirection, offer or value. */
static tdm_status borrow_handle_reply(tdm_ref *ref, struct tdm__rpc_reply *reply)
{
    if (reply_is_redirection(reply->packed) && !ref->shared->sibling_requested) {
        borrow_follow_redirection(ref, reply->packed);
        return TDM_OK;
    }
    return tdm__pull_is_offer(reply->packed) ? borrow_start_pull(ref, reply)
                                             : borrow_read_reply(ref, reply);
}

/* Reply to "object.get" and "object.fetch". */
static void on_value_reply(void *arg, struct tdm__rpc_reply *reply)
{
    tdm_ref *ref = arg;
    tdm_runtime *runtime = ref->runtime;
    tdm_status status;

    if (!tdm__borrowed_ref_reply_is_closed(ref, reply) && !ref->done) {
        if (reply->status != TDM_OK) {
            borrow_complete_failure(ref, reply);
        } else {
            status = borrow_handle_reply(ref, reply);
            if (status != TDM_OK) {
                tdm__borrowed_ref_fail(ref, status, tdm_error_detail());
            }
        }
    }
    tdm_ref_release(ref);
    runtime->objects->client->send_ready_calls(runtime);
}

/* Requests the value from the owner unless that has been done. */
static void borrowed_ref_fetch(struct tdm__shared_ref *shared)
{
    const tdm_runtime *runtime = shared->objects->runtime;

    if (shared->value_requested || shared->owner->conn == NULL) {
        /* The value is requested already, or ref_owners.c reports the end of the owner. */
        return;
    }
    shared->value_requested = true;
    if (!tdm__id_equal(&shared->owner->address.node, &runtime->self.node)) {
        /* The owner may redirect other processes of this node to this one. */
        (void)tdm__ref_table_listen(shared->objects);
    }
    if (tdm__borrowed_ref_send_request(shared, "object.get", on_value_reply) != TDM_OK) {
        tdm__borrowed_ref_fail(shared->ref, TDM_E_OWNER_DIED, tdm_error_detail());
    }
}

void tdm__reference_fetch(tdm_ref *ref)
{
    if (!ref->done && ref->shared != NULL && ref->shared->owner != NULL) {
        borrowed_ref_fetch(ref->shared);
    }
}
