/* owned_refs.c - the owner's side of references: borrowers, their pins, and replies with values. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns the borrowers of this process's references (struct borrower, one for each connection) and
 * their pins (struct borrower_pin). A borrower has at most one pin on a reference, and each pin
 * holds the reference. When the connection closes, all pins of the borrower are released.
 *
 * A request for a value that is not set waits in the reference's entry (struct value_waiter)
 * until the call completes. A request for a large value from another node may be redirected to a
 * process of that node that already fetches it; see owner_redirect_to_sibling().
 *
 * Everything runs on the loop with its lock. docs/protocols/references.md specifies the
 * messages. */

#include "actors/objects/owned_refs.h"

#include "actors/objects/large_message.h"
#include "actors/objects/large_value.h"
#include "actors/objects/ref.h"
#include "actors/objects/shared_ref.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the addresses of this process as an owner ------------------------------------------- */

tdm_status tdm__ref_table_listen(struct tdm__ref_table *objects)
{
    tdm_runtime *runtime = objects->runtime;
    struct ref_owner_address *own = &objects->address;
    char address[TDM__ADDRESS_BYTES + 40];
    char id[TDM__ID_TEXT_BYTES];

    if (objects->listening) {
        return TDM_OK;
    }
    own->kind = runtime->self.kind;
    own->process = runtime->self.id;
    own->node = runtime->self.node;
    (void)snprintf(own->label, sizeof(own->label), "%s", runtime->self.name);
    (void)snprintf(address, sizeof(address), "unix:%s/" TDM__OWNER_SOCKET, runtime->directory,
                   tdm__id_text(&runtime->self.id, id));
    TDM_TRY(tdm__rpc_listen(runtime->rpc, address, own->unix_address, sizeof(own->unix_address)));
    objects->listening = true;
    if (runtime->listen_host[0] == '\0') {
        return TDM_OK;
    }
    (void)snprintf(address, sizeof(address), "tcp:%s:0", runtime->listen_host);
    return tdm__rpc_listen(runtime->rpc, address, own->tcp_address, sizeof(own->tcp_address));
}

/* ---- borrowers -------------------------------------------------------------------------- */

/* Releases one pin, and with it possibly the reference. */
static void borrower_pin_end(struct borrower_pin *borrower_pin)
{
    tdm_ref *ref = borrower_pin->shared->ref;

    LIST_REMOVE(borrower_pin, of_borrower);
    LIST_REMOVE(borrower_pin, of_shared);
    free(borrower_pin);
    tdm_ref_release(ref);
}

/* Releases all pins of a borrower and frees it. */
static void borrower_end(struct borrower *borrower)
{
    while (!LIST_EMPTY(&borrower->borrower_pins)) {
        borrower_pin_end(LIST_FIRST(&borrower->borrower_pins));
    }
    TAILQ_REMOVE(&borrower->objects->borrowers, borrower, link);
    free(borrower);
}

/* Close watcher: the borrower has ended or closed the connection. */
static void on_borrower_closed(struct tdm__close_watcher *closer)
{
    borrower_end((struct borrower *)closer);
}

/* Finds or creates the borrower at the other end of `conn`. Returns TDM_E_CLOSED if `conn` is
 * NULL. */
static tdm_status borrower_get(struct tdm__ref_table *objects, struct tdm__conn *conn,
                               struct borrower **borrower_out)
{
    struct borrower *borrower;
    tdm_status status;

    TAILQ_FOREACH(borrower, &objects->borrowers, link)
    {
        if (borrower->conn == conn) {
            *borrower_out = borrower;
            return TDM_OK;
        }
    }
    if (conn == NULL) {
        return tdm__fail(TDM_E_CLOSED, "the borrower is gone");
    }
    borrower = calloc(1, sizeof(*borrower));
    if (borrower == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a borrower");
    }
    borrower->closer.fn = on_borrower_closed;
    borrower->objects = objects;
    borrower->conn = conn;
    LIST_INIT(&borrower->borrower_pins);
    status = tdm__conn_watch_close(conn, &borrower->closer);
    if (status != TDM_OK) {
        free(borrower);
        return status;
    }
    TAILQ_INSERT_HEAD(&objects->borrowers, borrower, link);
    *borrower_out = borrower;
    return TDM_OK;
}

void tdm__borrowers_destroy(struct tdm__ref_table *objects)
{
    while (!TAILQ_EMPTY(&objects->borrowers)) {
        struct borrower *borrower = TAILQ_FIRST(&objects->borrowers);

        tdm__conn_unwatch_close(&borrower->closer);
        borrower_end(borrower);
    }
}

/* Returns the pin of the borrower at the other end of `conn`, or NULL. */
static struct borrower_pin *borrower_pin_find(const struct tdm__shared_ref *shared,
                                              const struct tdm__conn *conn)
{
    struct borrower_pin *borrower_pin;

    LIST_FOREACH(borrower_pin, &shared->borrower_pins, of_shared)
    {
        if (borrower_pin->borrower->conn == conn) {
            return borrower_pin;
        }
    }
    return NULL;
}

/* ---- object.pin, object.unpin, object.keep
 * -------------------------------------------------------------- */

/* Adds the pin of the borrower at the other end of `conn`. Returns TDM_E_STATE if it has one. */
static tdm_status owner_add_pin(struct tdm__shared_ref *shared, struct tdm__conn *conn)
{
    struct borrower *borrower;
    struct borrower_pin *borrower_pin;

    if (borrower_pin_find(shared, conn) != NULL) {
        return tdm__fail(TDM_E_STATE, "this process has pinned the object already");
    }
    TDM_TRY(borrower_get(shared->objects, conn, &borrower));
    borrower_pin = calloc(1, sizeof(*borrower_pin));
    if (borrower_pin == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a pin");
    }
    borrower_pin->shared = shared;
    borrower_pin->borrower = borrower;
    LIST_INSERT_HEAD(&borrower->borrower_pins, borrower_pin, of_borrower);
    LIST_INSERT_HEAD(&shared->borrower_pins, borrower_pin, of_shared);
    tdm__ref_retain(shared->ref);
    return TDM_OK;
}

/* Removes the pin of the borrower at the other end of `conn`. Returns TDM_E_STATE if it has
 * none. */
static tdm_status owner_serve_unpin(struct tdm__shared_ref *shared, struct tdm__conn *conn)
{
    struct borrower_pin *borrower_pin = borrower_pin_find(shared, conn);

    if (borrower_pin == NULL) {
        return tdm__fail(TDM_E_STATE, "this process has not pinned the object");
    }
    borrower_pin_end(borrower_pin);
    return TDM_OK;
}

void tdm__owned_ref_keep(struct tdm__shared_ref *shared)
{
    if (!shared->is_kept) {
        shared->is_kept = true;
        tdm__ref_retain(shared->ref);
    }
}

/* ---- object.get, object.fetch, object.sibling ------------------------------------------------ */

bool tdm__ref_ensure_segment(tdm_ref *ref)
{
    if (ref->large == NULL && !ref->is_small &&
        tdm__large_of_value(ref->runtime, ref->value, &ref->large) == TDM_OK) {
        if (ref->large == NULL) {
            ref->is_small = true;
        } else {
            tdm__large_allow_spill(ref->large);
        }
    }
    return ref->large != NULL;
}

/* Returns a process of the caller's node that was offered the same large value and still pins
 * it, or NULL. */
static const struct tdm__peer_identity *
owner_find_fetcher(const struct tdm__shared_ref *shared, const struct tdm__incoming_call *incoming)
{
    const struct tdm__peer_identity *requester = tdm__incoming_peer(incoming);
    const struct borrower_pin *borrower_pin;

    LIST_FOREACH(borrower_pin, &shared->borrower_pins, of_shared)
    {
        const struct tdm__peer_identity *other = tdm__conn_peer(borrower_pin->borrower->conn);

        if (borrower_pin->reads_large_value &&
            borrower_pin->borrower->conn != tdm__incoming_conn(incoming) &&
            tdm__id_equal(&other->node, &requester->node)) {
            return other;
        }
    }
    return NULL;
}

/* Replies {"sibling": object_sibling} to "object.get" if a process of the caller's node
 * already fetches the value, and returns true. Otherwise records that the caller will fetch the
 * value itself, and returns false. */
static bool owner_redirect_to_sibling(struct tdm__shared_ref *shared,
                                      struct tdm__incoming_call *incoming)
{
    const struct tdm__peer_identity *fetcher = NULL;
    struct borrower_pin *borrower_pin = borrower_pin_find(shared, tdm__incoming_conn(incoming));
    struct tdm__object_sibling_message message;
    tdm_writer *writer;
    bool sent = false;

    if (strcmp(tdm__incoming_method(incoming), "object.get") == 0) {
        fetcher = owner_find_fetcher(shared, incoming);
    }
    if (fetcher != NULL && tdm_writer_create(&writer) == TDM_OK) {
        tdm_write_map(writer, 1);
        tdm_write_string(writer, "sibling");
        message = (struct tdm__object_sibling_message){(int32_t)fetcher->kind, fetcher->id,
                                                       fetcher->name};
        sent = tdm__object_sibling_encode(&message, writer) == TDM_OK;
        if (sent) {
            tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
        }
        tdm_writer_destroy(writer);
    }
    if (!sent && borrower_pin != NULL) {
        borrower_pin->reads_large_value = true;
    }
    return sent;
}

/* Replies with the failure of a completed reference and the values that the failure carries. */
static void owner_reply_failure(const tdm_ref *ref, struct tdm__incoming_call *incoming)
{
    struct tdm_bytes packed = {NULL, 0};
    tdm_writer *writer = NULL;

    if (ref->document != NULL && tdm_writer_create(&writer) == TDM_OK) {
        tdm_write_value(writer, tdm_document_root(ref->document));
        if (tdm_writer_status(writer) == TDM_OK) {
            packed = tdm_writer_bytes(writer);
        }
    }
    tdm__incoming_fail_with(incoming, ref->status, ref->detail == NULL ? "" : ref->detail, packed);
    tdm_writer_destroy(writer);
}

/* Replies with the value of a completed reference, with a description of its segment, or with
 * its failure. */
static void owner_reply_value(tdm_ref *ref, struct tdm__incoming_call *incoming)
{
    tdm_writer *writer;
    tdm_status status;

    if (ref->status != TDM_OK) {
        owner_reply_failure(ref, incoming);
        return;
    }
    if (tdm__ref_ensure_segment(ref)) {
        if (!tdm__large_is_offered(ref->large, ref->runtime, incoming) ||
            !owner_redirect_to_sibling(ref->shared, incoming)) {
            tdm__large_reply(ref->large, ref->runtime, incoming);
        }
        return;
    }
    status = tdm_writer_create(&writer);
    if (status == TDM_OK) {
        tdm_write_value(writer, ref->value);
        status = tdm_writer_status(writer);
        if (status == TDM_OK) {
            tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
        }
        tdm_writer_destroy(writer);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* Replies with the value, now or when the reference completes. Takes ownership of `incoming` on
 * TDM_OK. */
static tdm_status owner_get_value(struct tdm__shared_ref *shared,
                                  struct tdm__incoming_call *incoming)
{
    struct value_waiter *waiter;

    if (shared->ref->done) {
        owner_reply_value(shared->ref, incoming);
        return TDM_OK;
    }
    waiter = calloc(1, sizeof(*waiter));
    if (waiter == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a request for an object");
    }
    waiter->incoming = incoming;
    STAILQ_INSERT_TAIL(&shared->waiters, waiter, link);
    return TDM_OK;
}

/* Removes the first waiting call of the reference and returns it. There must be one. */
static struct tdm__incoming_call *value_waiters_pop(struct tdm__shared_ref *shared)
{
    struct value_waiter *waiter = STAILQ_FIRST(&shared->waiters);
    struct tdm__incoming_call *incoming = waiter->incoming;

    STAILQ_REMOVE_HEAD(&shared->waiters, link);
    free(waiter);
    return incoming;
}

void tdm__value_waiters_reply(struct tdm__shared_ref *shared)
{
    while (!STAILQ_EMPTY(&shared->waiters)) {
        owner_reply_value(shared->ref, value_waiters_pop(shared));
    }
}

void tdm__value_waiters_fail(struct tdm__shared_ref *shared, const char *why)
{
    while (!STAILQ_EMPTY(&shared->waiters)) {
        tdm__incoming_fail(value_waiters_pop(shared), TDM_E_VALUE_LOST, why);
    }
}

/* ---- calls of borrowers ---------------------------------------------------------------------- */

/* Finds the entry of the object that the call names; `*shared_out` is NULL if absent. */
static tdm_status shared_ref_find_requested(struct tdm__ref_table *objects,
                                            struct tdm__incoming_call *incoming,
                                            struct tdm__shared_ref **shared_out)
{
    struct tdm__object_request_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__object_request_table(), &message));
    *shared_out = tdm__shared_ref_find(objects, &message.object);
    return TDM_OK;
}

/* Finds the entry of an object that this process owns. Fails with TDM_E_OWNER_DIED if
 * absent. */
static tdm_status shared_ref_find_owned(struct tdm__ref_table *objects,
                                        struct tdm__incoming_call *incoming,
                                        struct tdm__shared_ref **shared_out)
{
    TDM_TRY(shared_ref_find_requested(objects, incoming, shared_out));
    if (*shared_out == NULL || (*shared_out)->owner != NULL) {
        return tdm__fail(TDM_E_OWNER_DIED,
                         "%s does not know the object: it was released, or its owner was an "
                         "earlier process of that name",
                         objects->address.label);
    }
    return TDM_OK;
}

/* Finds the entry of a borrowed object whose value this process has fetched or fetches itself. A
 * process that was redirected to another one refuses, so that no processes wait for each other
 * in a cycle. */
static tdm_status shared_ref_find_fetched(struct tdm__ref_table *objects,
                                          struct tdm__incoming_call *incoming,
                                          struct tdm__shared_ref **shared_out)
{
    const struct tdm__shared_ref *shared;

    TDM_TRY(shared_ref_find_requested(objects, incoming, shared_out));
    shared = *shared_out;
    if (shared == NULL ||
        (shared->ref->done ? shared->ref->large == NULL
                           : !shared->value_requested || shared->sibling_requested)) {
        return tdm__fail(TDM_E_VALUE_LOST, "%s does not fetch the value", objects->address.label);
    }
    return TDM_OK;
}

/* Replies to the three requests for a value. `from_sibling` selects "object.sibling", for which
 * this process is a borrower. Takes ownership of `incoming` on TDM_OK. */
static tdm_status owner_serve_get(struct tdm__ref_table *objects,
                                  struct tdm__incoming_call *incoming, bool from_sibling)
{
    struct tdm__shared_ref *shared;

    TDM_TRY(from_sibling ? shared_ref_find_fetched(objects, incoming, &shared)
                         : shared_ref_find_owned(objects, incoming, &shared));
    return owner_get_value(shared, incoming);
}

/* Replies to "object.keep": a borrower has exported the reference. */
static tdm_status owner_serve_keep(struct tdm__ref_table *objects,
                                   struct tdm__incoming_call *incoming)
{
    struct tdm__shared_ref *shared;

    TDM_TRY(shared_ref_find_owned(objects, incoming, &shared));
    tdm__owned_ref_keep(shared);
    tdm__incoming_reply_pack(incoming, "");
    return TDM_OK;
}

/* Replies to "object.unpin" if `unpins`, else to "object.pin". */
static tdm_status owner_serve_pin(struct tdm__ref_table *objects,
                                  struct tdm__incoming_call *incoming, bool unpins)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct tdm__shared_ref *shared;

    TDM_TRY(shared_ref_find_owned(objects, incoming, &shared));
    TDM_TRY(unpins ? owner_serve_unpin(shared, conn) : owner_add_pin(shared, conn));
    tdm__incoming_reply_pack(incoming, "");
    return TDM_OK;
}

bool tdm__owned_refs_serve(struct tdm__ref_table *objects, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    bool unpins = strcmp(method, "object.unpin") == 0;
    bool from_sibling = strcmp(method, "object.sibling") == 0;
    tdm_status status;

    if (unpins || strcmp(method, "object.pin") == 0) {
        status = owner_serve_pin(objects, incoming, unpins);
    } else if (strcmp(method, "object.keep") == 0) {
        status = owner_serve_keep(objects, incoming);
    } else if (from_sibling || strcmp(method, "object.get") == 0 ||
               strcmp(method, "object.fetch") == 0) {
        status = owner_serve_get(objects, incoming, from_sibling);
    } else {
        return false;
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
    return true;
}
