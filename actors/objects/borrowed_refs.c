/* borrowed_refs.c - the borrower's side: references owned by other processes, and their values. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct ref_owner, one for each process whose references this one borrows, and its
 * connection. When a borrowed reference is opened, the borrower sends "object.pin"; when its
 * last holder releases it, "object.unpin". The value is requested once, when the user first
 * wants it, by "object.get".
 *
 * The owner replies with the value, with an offer (the value is then pulled), or with another
 * process of this node that fetches the value (this process then sends "object.sibling",
 * and "object.fetch" to the owner if that fails). If the connection to the owner closes, the daemon
 * is asked how the owner ended, and every reference without a value fails with TDM_E_OWNER_DIED.
 *
 * Everything runs on the loop with its lock. docs/protocols/references.md specifies the
 * messages. */

#include "actors/client/actor_channel.h"
#include "actors/objects/export.h"
#include "actors/objects/large_value.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref_table_internal.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Milliseconds to wait for the daemon's reply about the end of an owner. */
enum { FATE_TIMEOUT_MS = 5000 };

/* ---- the end of an owner --------------------------------------------------------------------- */

/* Frees the owner if its connection has closed, no question about its end is open, and no
 * reference is borrowed from it. */
static void owner_free_if_unused(struct ref_owner *owner)
{
    if (owner->conn != NULL || owner->fate_requested || !TAILQ_EMPTY(&owner->borrowed)) {
        return;
    }
    TAILQ_REMOVE(&owner->objects->owners, owner, link);
    free(owner);
}

/* Completes a borrowed reference without a value, unless it is complete. */
static void borrow_complete(tdm_ref *ref, tdm_status status, const char *detail)
{
    if (!ref->done) {
        tdm__ref_complete(ref, status, detail, NULL);
        ref->runtime->results_arrived = true;
    }
}

/* Fails all incomplete references of an owner that has ended. `how` says how it ended. */
static void owner_died(struct ref_owner *owner, const char *how)
{
    tdm_runtime *runtime = owner->objects->runtime;
    char detail[TDM__ERROR_DETAIL_BYTES / 2];
    char node[TDM__ID_TEXT_BYTES];
    struct tdm__shared_ref *shared;

    (void)snprintf(detail, sizeof(detail), "%s on node %s, which owned the value, has gone: %s",
                   owner->address.label, tdm__id_text(&owner->address.node, node), how);
    TAILQ_FOREACH(shared, &owner->borrowed, of_owner)
    {
        borrow_complete(shared->ref, TDM_E_OWNER_DIED, detail);
    }
    owner->fate_requested = false;
    owner_free_if_unused(owner);
    tdm__actor_channels_flush(runtime);
}

/* Reply of the daemon to "actor.fate". */
static void on_fate_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct ref_owner *owner = arg;
    bool known = reply->status == TDM_E_ACTOR_DIED || reply->status == TDM_E_NODE_LOST;

    owner_died(owner, known ? reply->detail : owner->end_text);
}

/* Asks the daemon how a worker that owned references ended; only the daemon that watches the
 * worker knows. Returns TDM_E_NOT_FOUND if the owner is not a worker. */
static tdm_status owner_request_fate(struct ref_owner *owner)
{
    struct tdm__rpc_request request = {.method = "actor.fate",
                                       .deadline_ms = tdm__deadline_after(FATE_TIMEOUT_MS)};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    if (owner->address.kind != TDM__PEER_WORKER || owner->objects->runtime->is_stopping) {
        return TDM_E_NOT_FOUND;
    }
    TDM_TRY(tdm__runtime_daemon(owner->objects->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "b", (const void *)owner->address.process.bytes,
                      sizeof(owner->address.process.bytes));
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(daemon, &request, on_fate_reply, owner, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* The owner cannot be reached, for the reason in `end_text`. Its references count as settled,
 * and fail when the daemon has said how it ended. */
static void owner_lost(struct ref_owner *owner)
{
    struct tdm__shared_ref *shared;

    TAILQ_FOREACH(shared, &owner->borrowed, of_owner)
    {
        shared->pin_acknowledged = true; /* The owner can no longer acknowledge the pin. */
    }
    owner->fate_requested = true;
    if (TAILQ_EMPTY(&owner->borrowed) || owner_request_fate(owner) != TDM_OK) {
        owner_died(owner, owner->end_text);
    }
}

/* The connection to the owner has closed. */
static void on_owner_closed(void *arg, struct tdm__conn *conn, tdm_status reason,
                            const char *detail)
{
    struct ref_owner *owner = arg;
    struct tdm__ref_table *objects = owner->objects;

    (void)conn;
    owner->conn = NULL;
    (void)snprintf(owner->end_text, sizeof(owner->end_text), "%s: %s", tdm_strerror(reason),
                   detail);
    owner_lost(owner);
    tdm__ref_table_check_settling(objects);
}

void tdm__owners_destroy(struct tdm__ref_table *objects)
{
    while (!TAILQ_EMPTY(&objects->owners)) {
        struct ref_owner *owner = TAILQ_FIRST(&objects->owners);

        TAILQ_REMOVE(&objects->owners, owner, link);
        free(owner);
    }
}

/* ---- owners ----------------------------------------------------------------------------- */

/* Connects to the owner. If that fails, the owner has no connection and `end_text` says why. */
static void owner_connect(struct ref_owner *owner)
{
    tdm_runtime *runtime = owner->objects->runtime;
    bool here = tdm__id_equal(&owner->address.node, &runtime->self.node);
    const char *address = here ? owner->address.unix_address : owner->address.tcp_address;

    if (address[0] == '\0') {
        (void)snprintf(owner->end_text, sizeof(owner->end_text),
                       "its node does not serve other nodes: start its daemon with --listen");
    } else if (tdm__rpc_connect(runtime->rpc, address, &owner->conn) != TDM_OK) {
        (void)snprintf(owner->end_text, sizeof(owner->end_text), "%.400s", tdm_error_detail());
    } else {
        tdm__conn_on_closed(owner->conn, on_owner_closed, owner);
    }
}

/* Finds or creates the connected owner with this address. */
static tdm_status owner_get(struct tdm__ref_table *objects, const struct ref_owner_address *address,
                            struct ref_owner **owner_out)
{
    struct ref_owner *owner;

    TAILQ_FOREACH(owner, &objects->owners, link)
    {
        if (owner->conn != NULL && tdm__id_equal(&owner->address.process, &address->process) &&
            strcmp(owner->address.unix_address, address->unix_address) == 0) {
            if (owner->address.tcp_address[0] == '\0') {
                /* An address from a process of the owner's node lacks nothing, unlike one made
                 * from a redirection. */
                owner->address = *address;
            }
            *owner_out = owner;
            return TDM_OK;
        }
    }
    owner = calloc(1, sizeof(*owner));
    if (owner == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an owner");
    }
    owner->objects = objects;
    owner->address = *address;
    TAILQ_INIT(&owner->borrowed);
    owner_connect(owner);
    TAILQ_INSERT_HEAD(&objects->owners, owner, link);
    *owner_out = owner;
    return TDM_OK;
}

/* Sends a request about one reference to its owner. If `fn` is not NULL, it gets the reference
 * as its argument, with a holder that it must release. */
static tdm_status borrow_send_request(struct tdm__shared_ref *shared, const char *method,
                                      tdm__rpc_reply_fn *fn)
{
    struct tdm__rpc_request request = {.method = method, .deadline_ms = TDM__NEVER};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "b", (const void *)shared->id.bytes, sizeof(shared->id.bytes));
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(shared->owner->conn, &request, fn, fn == NULL ? NULL : shared->ref,
                                NULL);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK && fn != NULL) {
        tdm__ref_retain(shared->ref);
    }
    return status;
}

/* Returns true if the reply is TDM_E_CLOSED because the connection to the owner has closed.
 * on_owner_closed() handles this case. */
static bool borrow_reply_is_closed(const tdm_ref *ref, const struct tdm__rpc_reply *reply)
{
    return reply->status == TDM_E_CLOSED &&
           (ref->shared == NULL || ref->shared->owner->conn == NULL ||
            !tdm__conn_is_open(ref->shared->owner->conn));
}

/* ---- object.pin, object.unpin
 * ----------------------------------------------------------------- */

/* Reply to "object.pin". */
static void on_pin_reply(void *arg, struct tdm__rpc_reply *reply)
{
    tdm_ref *ref = arg;
    tdm_runtime *runtime = ref->runtime;

    if (!borrow_reply_is_closed(
            ref, reply)) { /* Otherwise on_owner_closed() reports the end of the owner. */
        ref->shared->pin_acknowledged = true;
        if (reply->status != TDM_OK) {
            borrow_complete(ref, reply->status, reply->detail);
        }
    }
    tdm_ref_release(ref);
    tdm__ref_table_check_settling(runtime->objects);
    tdm__actor_channels_flush(runtime);
}

/* Sends "object.pin". Returns TDM_OK if the connection has closed, since on_owner_closed()
 * handles that. */
static tdm_status borrow_send_pin(struct tdm__shared_ref *shared)
{
    tdm_status status = TDM_OK;

    if (shared->owner->conn != NULL) {
        status = borrow_send_request(shared, "object.pin", on_pin_reply);
    }
    return status == TDM_E_CLOSED ? TDM_OK : status;
}

tdm_status tdm__borrowed_ref_open(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  const struct ref_owner_address *address, tdm_ref **ref_out)
{
    struct tdm__shared_ref *shared;
    struct ref_owner *owner;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(owner_get(objects, address, &owner));
    status = tdm__ref_create(objects->runtime, &ref);
    if (status == TDM_OK) {
        status = tdm__shared_ref_create(objects, id, ref, &shared);
        if (status == TDM_OK) {
            shared->owner = owner;
            TAILQ_INSERT_TAIL(&owner->borrowed, shared, of_owner);
            status = borrow_send_pin(shared);
        }
        if (status != TDM_OK) {
            tdm_ref_release(ref);
        }
    }
    if (status != TDM_OK) {
        owner_free_if_unused(owner);
        return status;
    }
    if (owner->conn == NULL) {
        owner_lost(owner);
    }
    *ref_out = ref;
    return TDM_OK;
}

void tdm__borrowed_ref_release(struct tdm__shared_ref *shared)
{
    struct ref_owner *owner = shared->owner;

    TAILQ_REMOVE(&owner->borrowed, shared, of_owner);
    if (owner->conn == NULL) {
        owner_free_if_unused(owner);
    } else if (shared->pin_acknowledged) {
        /* If this fails, the pin ends with the connection. */
        (void)borrow_send_request(shared, "object.unpin", NULL);
    }
}

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
    ref->runtime->results_arrived = true;
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

    if (ref->done || borrow_reply_is_closed(ref, &end)) {
        tdm__large_release(large); /* The end of the owner is reported by on_owner_closed(). */
    } else if (status == TDM_OK) {
        tdm__ref_complete_large(ref, large);
        borrow_hold_until_nested_settled(ref);
    } else {
        borrow_complete(ref, status, detail);
    }
    tdm_ref_release(ref);
    tdm__actor_channels_flush(runtime);
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
        borrow_send_request(shared, "object.fetch", on_value_reply) != TDM_OK) {
        borrow_complete(ref, TDM_E_OWNER_DIED, tdm_error_detail());
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
    tdm__actor_channels_flush(runtime);
}

/* Returns true if the reply names another process of this node instead of a value. */
static bool reply_is_redirection(struct tdm_bytes packed)
{
    static const char head[] = "\x81\xa4near";

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
    struct tdm_bytes process;
    tdm_document *document;
    const char *name;
    int64_t kind;
    tdm_status status;

    TDM_TRY(tdm_document_parse(packed, &document));
    status = tdm_unpack(tdm_value_find(tdm_document_root(document), "near"), "ibs", &kind,
                        &process.data, &process.size_bytes, &name);
    if (status == TDM_OK && process.size_bytes == sizeof(address.process.bytes)) {
        address.kind = (enum tdm__peer_kind)kind;
        memcpy(address.process.bytes, process.data, sizeof(address.process.bytes));
        (void)snprintf(address.label, sizeof(address.label), "%s", name);
        (void)snprintf(address.unix_address, sizeof(address.unix_address),
                       "unix:%s/" TDM__OWNER_SOCKET, runtime->directory,
                       tdm__id_text(&address.process, id));
        *address_out = address;
    } else if (status == TDM_OK) {
        status = tdm__fail(TDM_E_PROTOCOL, "a process's id of %zu bytes", process.size_bytes);
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
    TDM_TRY(owner_get(objects, &address, &owner));
    *conn_out = owner->conn;
    if (owner->conn == NULL) {
        owner_free_if_unused(owner);
        return tdm__fail(TDM_E_CLOSED, "%s does not listen", address.label);
    }
    return TDM_OK;
}

/* Sends "object.sibling" to the process that the redirection names. */
static tdm_status borrow_send_sibling_request(tdm_ref *ref, struct tdm_bytes packed)
{
    struct tdm__rpc_request request = {.method = "object.sibling", .deadline_ms = TDM__NEVER};
    struct sibling_request *sibling_request = malloc(sizeof(*sibling_request));
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
        status = tdm_pack(writer, "b", (const void *)ref->shared->id.bytes,
                          sizeof(ref->shared->id.bytes));
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

    if (!borrow_reply_is_closed(ref, reply) && !ref->done) {
        if (reply->status != TDM_OK) {
            borrow_complete(ref, reply->status, reply->detail);
        } else {
            status = borrow_handle_reply(ref, reply);
            if (status != TDM_OK) {
                borrow_complete(ref, status, tdm_error_detail());
            }
        }
    }
    tdm_ref_release(ref);
    tdm__actor_channels_flush(runtime);
}

void tdm__borrowed_ref_fetch(struct tdm__shared_ref *shared)
{
    const tdm_runtime *runtime = shared->objects->runtime;

    if (shared->value_requested || shared->owner->conn == NULL) {
        /* The value is requested already, or on_owner_closed() reports the end of the owner. */
        return;
    }
    shared->value_requested = true;
    if (!tdm__id_equal(&shared->owner->address.node, &runtime->self.node)) {
        /* The owner may redirect other processes of this node to this one. */
        (void)tdm__ref_table_listen(shared->objects);
    }
    if (borrow_send_request(shared, "object.get", on_value_reply) != TDM_OK) {
        borrow_complete(shared->ref, TDM_E_OWNER_DIED, tdm_error_detail());
    }
}
