/* borrowed_refs.c - the borrower's side: holds on the objects of other processes, and their values.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/actor_channel.h"
#include "actors/objects/large_value.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref_table_internal.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FATE_TIMEOUT_MS = 5000 };

/* ---- the end of an owner ---------------------------------------------------------------- */

static void owner_free_if_unused(struct ref_owner *owner)
{
    if (owner->conn != NULL || owner->asking || !TAILQ_EMPTY(&owner->borrowed)) {
        return;
    }
    TAILQ_REMOVE(&owner->objects->owners, owner, link);
    free(owner);
}

static void borrow_complete(tdm_ref *ref, tdm_status status, const char *detail)
{
    if (!ref->done) {
        tdm__ref_complete(ref, status, detail, NULL);
        ref->runtime->results_arrived = true;
    }
}

/* What has not come will not come. */
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
    owner->asking = false;
    owner_free_if_unused(owner);
    tdm__actor_channels_flush(runtime);
}

static void on_fate(void *arg, struct tdm__rpc_reply *reply)
{
    struct ref_owner *owner = arg;
    bool known = reply->status == TDM_E_ACTOR_DIED || reply->status == TDM_E_NODE_LOST;

    owner_died(owner, known ? reply->detail : owner->end_text);
}

/* Only the daemon that watches an actor's process knows how it ended. */
static tdm_status ask_fate(struct ref_owner *owner)
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
        status = tdm__conn_call(daemon, &request, on_fate, owner, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* It cannot be reached, as owner->end says. */
static void owner_lost(struct ref_owner *owner)
{
    struct tdm__shared_ref *shared;

    TAILQ_FOREACH(shared, &owner->borrowed, of_owner)
    {
        shared->pin_acknowledged = true; /* nothing more can come of the hold */
    }
    owner->asking = true;
    if (TAILQ_EMPTY(&owner->borrowed) || ask_fate(owner) != TDM_OK) {
        owner_died(owner, owner->end_text);
    }
}

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

/* Without a connection afterwards where nobody listens any more. */
static void owner_connect(struct ref_owner *owner)
{
    tdm_runtime *runtime = owner->objects->runtime;
    bool here = tdm__id_equal(&owner->address.node, &runtime->self.node);
    const char *address = here ? owner->address.unix_address : owner->address.tcp_address;

    if (address[0] == '\0') {
        (void)snprintf(owner->end_text, sizeof(owner->end_text),
                       "its node talks to no other: start its daemon with --listen");
    } else if (tdm__rpc_connect(runtime->rpc, address, &owner->conn) != TDM_OK) {
        (void)snprintf(owner->end_text, sizeof(owner->end_text), "%.400s", tdm_error_detail());
    } else {
        tdm__conn_on_closed(owner->conn, on_owner_closed, owner);
    }
}

static tdm_status owner_of(struct tdm__ref_table *objects, const struct ref_owner_address *address,
                           struct ref_owner **owner_out)
{
    struct ref_owner *owner;

    TAILQ_FOREACH(owner, &objects->owners, link)
    {
        if (owner->conn != NULL && tdm__id_equal(&owner->address.process, &address->process) &&
            strcmp(owner->address.unix_address, address->unix_address) == 0) {
            if (owner->address.tcp_address[0] == '\0') {
                owner->address = *address; /* a process of this node tells more of itself */
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

/* `fn` gets the reference, with one holder more. */
static tdm_status ask_owner(struct tdm__shared_ref *shared, const char *method,
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

static bool has_closed(const tdm_ref *ref, const struct tdm__rpc_reply *reply)
{
    return reply->status == TDM_E_CLOSED &&
           (ref->shared == NULL || ref->shared->owner->conn == NULL ||
            !tdm__conn_is_open(ref->shared->owner->conn));
}

/* ---- hold ------------------------------------------------------------------------------- */

static void on_hold(void *arg, struct tdm__rpc_reply *reply)
{
    tdm_ref *ref = arg;
    tdm_runtime *runtime = ref->runtime;

    if (!has_closed(ref, reply)) { /* else on_owner_closed() says what became of it */
        ref->shared->pin_acknowledged = true;
        if (reply->status != TDM_OK) {
            borrow_complete(ref, reply->status, reply->detail);
        }
    }
    tdm_ref_release(ref);
    tdm__ref_table_check_settling(runtime->objects);
    tdm__actor_channels_flush(runtime);
}

/* Where the connection has ended on_owner_closed() says what became of it, now or soon. */
static tdm_status ask_hold(struct tdm__shared_ref *shared)
{
    tdm_status status = TDM_OK;

    if (shared->owner->conn != NULL) {
        status = ask_owner(shared, "object.pin", on_hold);
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

    TDM_TRY(owner_of(objects, address, &owner));
    status = tdm__ref_create(objects->runtime, &ref);
    if (status == TDM_OK) {
        status = tdm__shared_ref_create(objects, id, ref, &shared);
        if (status == TDM_OK) {
            shared->owner = owner;
            TAILQ_INSERT_TAIL(&owner->borrowed, shared, of_owner);
            status = ask_hold(shared);
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
        (void)ask_owner(shared, "object.unpin", NULL); /* the connection's end drops it, too */
    }
}

/* ---- get -------------------------------------------------------------------------------- */

static void nested_settled(void *arg)
{
    tdm_ref_release(arg);
}

/* The references inside the value must be held here before the value itself may go. */
static void hold_nested(tdm_ref *ref)
{
    ref->runtime->results_arrived = true;
    tdm__ref_retain(ref);
    if (tdm__pins_on_settled(ref->runtime, &ref->nested, nested_settled, ref) != TDM_OK) {
        tdm_ref_release(ref);
    }
}

/* Takes `document`. */
static tdm_status take_value(tdm_ref *ref, tdm_document *document)
{
    if (tdm_value_kind_of(tdm_document_root(document)) != TDM_ARRAY) {
        tdm_document_destroy(document);
        return tdm__fail(TDM_E_PROTOCOL, "the owner's answer is no array");
    }
    tdm__ref_complete(ref, TDM_OK, NULL, document);
    hold_nested(ref);
    return TDM_OK;
}

static tdm_status borrow_read_reply(tdm_ref *ref, struct tdm__rpc_reply *reply)
{
    tdm_document *document;

    TDM_TRY(tdm__result_document(ref->runtime, ref->shared->owner->conn, reply, &document));
    return take_value(ref, document);
}

static void on_pulled(void *arg, tdm_status status, const char *detail, struct tdm__large *large)
{
    tdm_ref *ref = arg;
    tdm_runtime *runtime = ref->runtime;
    const struct tdm__rpc_reply end = {.status = status};

    if (ref->done || has_closed(ref, &end)) {
        tdm__large_release(large); /* on_owner_closed() says what became of it */
    } else if (status == TDM_OK) {
        tdm__ref_complete_large(ref, large);
        hold_nested(ref);
    } else {
        borrow_complete(ref, status, detail);
    }
    tdm_ref_release(ref);
    tdm__actor_channels_flush(runtime);
}

/* Keeps a hold on the reference while more is to come. */
static tdm_status start_pull(tdm_ref *ref, const struct tdm__rpc_reply *reply)
{
    struct tdm__pull *pull;

    TDM_TRY(tdm__pull_start(ref->runtime, ref->shared->owner->conn, reply->packed, on_pulled, ref,
                            &pull));
    tdm__ref_retain(ref);
    return TDM_OK;
}

/* ---- get, from a process of this node that fetches the value ----------------------------- */

/* A question to such a process. */
struct sibling {
    tdm_ref *ref;           /* held */
    struct tdm__conn *conn; /* borrowed: the question ends before it does */
};

static void on_got(void *arg, struct tdm__rpc_reply *reply);

/* It does not have the value any more, or has gone: the owner sends the value itself. */
static void borrow_fetch_value(tdm_ref *ref)
{
    struct tdm__shared_ref *shared = ref->shared;

    shared->asked_sibling = false;
    if (shared->owner->conn != NULL && ask_owner(shared, "object.fetch", on_got) != TDM_OK) {
        borrow_complete(ref, TDM_E_OWNER_DIED, tdm_error_detail());
    }
}

static void on_sibling(void *arg, struct tdm__rpc_reply *reply)
{
    struct sibling *sibling = arg;
    tdm_ref *ref = sibling->ref;
    tdm_runtime *runtime = ref->runtime;
    tdm_document *document = NULL;
    tdm_status status = reply->status;

    if (status == TDM_OK) {
        status = tdm__result_document(runtime, sibling->conn, reply, &document);
    }
    free(sibling);
    if (ref->done || ref->shared == NULL) {
        tdm_document_destroy(document);
    } else if (status != TDM_OK || take_value(ref, document) != TDM_OK) {
        borrow_fetch_value(ref);
    }
    tdm_ref_release(ref);
    tdm__actor_channels_flush(runtime);
}

static bool is_sibling(struct tdm_bytes packed)
{
    static const char head[] = "\x81\xa4near";

    return packed.size_bytes > sizeof(head) && memcmp(packed.data, head, sizeof(head) - 1) == 0;
}

/* Where processes of this node listen is known. */
static tdm_status read_sibling(const struct tdm__ref_table *objects, struct tdm_bytes packed,
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

static tdm_status connect_sibling(struct tdm__ref_table *objects, struct tdm_bytes packed,
                                  struct tdm__conn **conn_out)
{
    struct ref_owner_address address;
    struct ref_owner *owner;

    TDM_TRY(read_sibling(objects, packed, &address));
    TDM_TRY(owner_of(objects, &address, &owner));
    *conn_out = owner->conn;
    if (owner->conn == NULL) {
        owner_free_if_unused(owner);
        return tdm__fail(TDM_E_CLOSED, "%s does not listen", address.label);
    }
    return TDM_OK;
}

static tdm_status ask_sibling(tdm_ref *ref, struct tdm_bytes packed)
{
    struct tdm__rpc_request request = {.method = "object.sibling", .deadline_ms = TDM__NEVER};
    struct sibling *sibling = malloc(sizeof(*sibling));
    tdm_writer *writer = NULL;
    tdm_status status = sibling == NULL ? tdm__fail(TDM_E_NOMEM, "a question") : TDM_OK;

    if (status == TDM_OK) {
        sibling->ref = ref;
        status = connect_sibling(ref->shared->objects, packed, &sibling->conn);
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
        status = tdm__conn_call(sibling->conn, &request, on_sibling, sibling, NULL);
    }
    tdm_writer_destroy(writer);
    if (status != TDM_OK) {
        free(sibling);
        return status;
    }
    tdm__ref_retain(ref);
    ref->shared->asked_sibling = true;
    return TDM_OK;
}

/* Who waits for the value here waits for nobody else: see find_fetched(). */
static void go_sibling(tdm_ref *ref, struct tdm_bytes packed)
{
    tdm__value_waiters_fail(ref->shared, "the value is not fetched here");
    if (ask_sibling(ref, packed) != TDM_OK) {
        borrow_fetch_value(ref);
    }
}

/* ---- get -------------------------------------------------------------------------------- */

static tdm_status borrow_take_reply(tdm_ref *ref, struct tdm__rpc_reply *reply)
{
    if (is_sibling(reply->packed) && !ref->shared->asked_sibling) {
        go_sibling(ref, reply->packed);
        return TDM_OK;
    }
    return tdm__pull_is_offer(reply->packed) ? start_pull(ref, reply)
                                             : borrow_read_reply(ref, reply);
}

static void on_got(void *arg, struct tdm__rpc_reply *reply)
{
    tdm_ref *ref = arg;
    tdm_runtime *runtime = ref->runtime;
    tdm_status status;

    if (!has_closed(ref, reply) && !ref->done) {
        if (reply->status != TDM_OK) {
            borrow_complete(ref, reply->status, reply->detail);
        } else {
            status = borrow_take_reply(ref, reply);
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
        return; /* on its way, or about to be told that its owner is gone */
    }
    shared->value_requested = true;
    if (!tdm__id_equal(&shared->owner->address.node, &runtime->self.node)) {
        (void)tdm__ref_table_listen(shared->objects); /* others of this node may be sent here */
    }
    if (ask_owner(shared, "object.get", on_got) != TDM_OK) {
        borrow_complete(shared->ref, TDM_E_OWNER_DIED, tdm_error_detail());
    }
}
