/* ref_owners.c - the processes that own references borrowed here, and the pins sent to them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct ref_owner, one for each process whose references this one borrows, and its
 * connection. When a borrowed reference is opened, the borrower sends "object.pin"; when its
 * last holder releases it, "object.unpin". If the connection to the owner closes, the daemon is
 * asked how the owner ended, and every reference without a value fails with TDM_E_OWNER_DIED.
 *
 * borrowed_refs.c requests the values. Everything runs on the loop with its lock.
 * docs/protocols/references.md specifies the messages. */

#include "actors/objects/ref_owners.h"

#include "actors/objects/object_callbacks.h"
#include "actors/objects/ref.h"
#include "actors/objects/settling.h"
#include "actors/objects/shared_ref.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Milliseconds to wait for the daemon's reply about the end of an owner. */
enum { FATE_TIMEOUT_MS = 5000 };

/* ---- the end of an owner --------------------------------------------------------------------- */

void tdm__ref_owner_free_if_unused(struct ref_owner *owner)
{
    if (owner->conn != NULL || owner->fate_requested || !TAILQ_EMPTY(&owner->borrowed)) {
        return;
    }
    TAILQ_REMOVE(&owner->objects->owners, owner, link);
    free(owner);
}

void tdm__borrowed_ref_fail(tdm_ref *ref, tdm_status status, const char *detail)
{
    if (!ref->done) {
        tdm__ref_fail(ref, status, detail);
        ref->runtime->objects->client->result_arrived(ref->runtime);
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
        tdm__borrowed_ref_fail(shared->ref, TDM_E_OWNER_DIED, detail);
    }
    owner->fate_requested = false;
    tdm__ref_owner_free_if_unused(owner);
    runtime->objects->client->send_ready_calls(runtime);
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
    const struct tdm__actor_query_message query = {.actor = owner->address.process};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    if (owner->address.kind != TDM__PEER_WORKER || owner->objects->runtime->is_stopping) {
        return TDM_E_NOT_FOUND;
    }
    TDM_TRY(tdm__runtime_daemon(owner->objects->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
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

tdm_status tdm__ref_owner_get(struct tdm__ref_table *objects,
                              const struct ref_owner_address *address, struct ref_owner **owner_out)
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

tdm_status tdm__borrowed_ref_send_request(struct tdm__shared_ref *shared, const char *method,
                                          tdm__rpc_reply_fn *fn)
{
    struct tdm__rpc_request request = {.method = method, .deadline_ms = TDM__NEVER};
    const struct tdm__object_request_message message = {shared->id};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__object_request_encode(&message, writer);
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

bool tdm__borrowed_ref_reply_is_closed(const tdm_ref *ref, const struct tdm__rpc_reply *reply)
{
    return reply->status == TDM_E_CLOSED &&
           (ref->shared == NULL || ref->shared->owner->conn == NULL ||
            !tdm__conn_is_open(ref->shared->owner->conn));
}

/* ---- object.pin, object.unpin -------------------------------------------------------------- */

/* Reply to "object.pin". */
static void on_pin_reply(void *arg, struct tdm__rpc_reply *reply)
{
    tdm_ref *ref = arg;
    tdm_runtime *runtime = ref->runtime;

    if (!tdm__borrowed_ref_reply_is_closed(
            ref, reply)) { /* Otherwise on_owner_closed() reports the end of the owner. */
        ref->shared->pin_acknowledged = true;
        if (reply->status != TDM_OK) {
            tdm__borrowed_ref_fail(ref, reply->status, reply->detail);
        }
    }
    tdm_ref_release(ref);
    tdm__ref_table_check_settling(runtime->objects);
    runtime->objects->client->send_ready_calls(runtime);
}

/* Sends "object.pin". Returns TDM_OK if the connection has closed, since on_owner_closed()
 * handles that. */
static tdm_status borrow_send_pin(struct tdm__shared_ref *shared)
{
    tdm_status status = TDM_OK;

    if (shared->owner->conn != NULL) {
        status = tdm__borrowed_ref_send_request(shared, "object.pin", on_pin_reply);
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

    TDM_TRY(tdm__ref_owner_get(objects, address, &owner));
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
        tdm__ref_owner_free_if_unused(owner);
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
        tdm__ref_owner_free_if_unused(owner);
    } else if (shared->pin_acknowledged) {
        /* If this fails, the pin ends with the connection. */
        (void)tdm__borrowed_ref_send_request(shared, "object.unpin", NULL);
    }
}
