/* mesh.c - a connection between every two ranks of a group, and pieces of data over them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/tcp/mesh.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 4, TEXT_BYTES = 320 };

static const struct tdm_bytes no_arguments = {"\x90", 1};
static const char confused[] = "was in another call or with another size";

/* Another rank. */
struct peer {
    struct tdm__mesh *mesh;
    struct tdm__conn *conn;  /* borrowed; NULL before it is there and once it has ended */
    struct tdm__conn *watch; /* the same; to a rank that is waited for */
    bool ready;              /* both have said who they are */
    bool left;
    uint32_t sent_count;                   /* pieces that it has not taken yet */
    struct tdm__incoming *arrived[WINDOW]; /* owned: pieces that were not taken here yet */
    uint32_t arrived_first;                /* a ring */
    uint32_t arrived_count;
};

struct tdm__mesh {
    struct tdm__loop *loop; /* owned, like the rest */
    struct tdm__rpc *rpc;
    char address[64];
    struct tdm__id key;
    uint32_t rank;
    uint32_t ranks_count;
    int64_t timeout_ms;
    bool closing;     /* what ends now is ended here */
    bool told;        /* the others know that the group has ended */
    tdm_status ended; /* TDM_OK: not yet */
    uint64_t ended_number;
    char ended_text[TEXT_BYTES];
    /* of the call in progress */
    struct tdm__comm_call call;
    uint64_t number;
    int64_t deadline_ms;
    struct peer peers[TDM__MESH_RANKS_MAX];
};

/* ---- the end ---------------------------------------------------------------------------- */

/* In force from that call on: who is still in an earlier one may finish it, since whoever ended
 * the group later has finished it.  Of two reasons the earlier call's stays, else the first. */
static void end_at(struct tdm__mesh *mesh, uint64_t number, tdm_status status, const char *text)
{
    if ((mesh->ended == TDM_OK || number < mesh->ended_number) && !mesh->closing) {
        mesh->ended = status;
        mesh->ended_number = number;
        (void)snprintf(mesh->ended_text, sizeof(mesh->ended_text), "%s", text);
    }
}

static void end(struct tdm__mesh *mesh, tdm_status status, uint32_t rank, const char *how)
{
    char text[TEXT_BYTES];

    (void)snprintf(text, sizeof(text),
                   "rank %u of %u %.160s: the group has ended and must be made anew", rank,
                   mesh->ranks_count, how);
    end_at(mesh, mesh->number, status, text);
}

static bool has_ended(const struct tdm__mesh *mesh)
{
    return mesh->ended != TDM_OK && mesh->number >= mesh->ended_number;
}

/* One round: what is put off goes out. */
static void flush(struct tdm__mesh *mesh)
{
    (void)tdm__loop_run(mesh->loop, NULL, NULL, 0);
}

static void say_why(struct tdm__mesh *mesh)
{
    const struct tdm__mesh_end_message message = {mesh->ended_number, mesh->ended,
                                                  mesh->ended_text};
    struct tdm__request request = {.method = "mesh.end", .deadline_ms = TDM__NEVER};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        return; /* they see the connections close */
    }
    if (tdm__mesh_end_encode(&message, writer) == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        for (uint32_t i = 0; i < mesh->ranks_count; i++) {
            if (mesh->peers[i].conn != NULL) {
                (void)tdm__conn_call(mesh->peers[i].conn, &request, NULL, NULL, NULL);
            }
        }
    }
    tdm_writer_destroy(writer);
    flush(mesh);
}

/* Nothing is read any more once this returns, so no memory is written that was to land in. */
static void tell_all(struct tdm__mesh *mesh)
{
    mesh->told = true;
    say_why(mesh);
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        if (mesh->peers[i].conn != NULL) {
            tdm__conn_close(mesh->peers[i].conn);
        }
    }
    flush(mesh);
}

/* Outside of callbacks.  TDM_OK while the group lives. */
static tdm_status check(struct tdm__mesh *mesh)
{
    if (!has_ended(mesh)) {
        return TDM_OK;
    }
    if (!mesh->told) {
        tell_all(mesh);
    }
    return tdm__fail(mesh->ended, "%s", mesh->ended_text);
}

tdm_status tdm__mesh_check(struct tdm__mesh *mesh)
{
    TDM__ENTER(mesh->loop);

    flush(mesh);
    if (mesh->ended != TDM_OK && mesh->number < mesh->ended_number) {
        mesh->number = mesh->ended_number;
    }
    return check(mesh);
}

void tdm__mesh_abort(struct tdm__mesh *mesh)
{
    TDM__ENTER(mesh->loop);

    mesh->number++; /* the calls before are done */
    end(mesh, TDM_E_ABORTED, mesh->rank, "gave up");
    (void)check(mesh);
}

/* ---- what comes ------------------------------------------------------------------------- */

static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct peer *peer = arg;
    uint32_t rank = (uint32_t)(peer - peer->mesh->peers);
    char how[128];

    (void)reason;
    if (peer->conn != conn) {
        return;
    }
    peer->conn = NULL;
    if (!peer->left) {
        (void)snprintf(how, sizeof(how), "died: %.100s", detail);
        end(peer->mesh, TDM_E_ABORTED, rank, how);
    }
}

static void adopt(struct peer *peer, struct tdm__conn *conn)
{
    peer->conn = conn;
    tdm__conn_set_user(conn, peer);
    tdm__conn_on_closed(conn, on_closed, peer);
}

/* The lower rank of two waits for the higher one. */
static tdm_status take_hello(struct tdm__mesh *mesh, struct tdm__incoming *incoming)
{
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct tdm__mesh_hello_message message;
    uint64_t rank;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__mesh_hello_table(), &message));
    if (message.key.size_bytes != sizeof(mesh->key.bytes) ||
        memcmp(message.key.data, mesh->key.bytes, sizeof(mesh->key.bytes)) != 0) {
        return tdm__fail(TDM_E_AUTH, "this is another group");
    }
    rank = message.rank;
    if (rank <= mesh->rank || rank >= mesh->ranks_count || mesh->peers[rank].conn != NULL ||
        mesh->peers[rank].ready || conn == NULL || tdm__conn_user(conn) != NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "rank %llu has no business here",
                         (unsigned long long)rank);
    }
    adopt(&mesh->peers[rank], conn);
    mesh->peers[rank].ready = true;
    tdm__incoming_reply(incoming, no_arguments, NULL, 0);
    return TDM_OK;
}

static tdm_status take_data(struct peer *peer, struct tdm__incoming *incoming)
{
    if (peer->arrived_count == WINDOW) {
        return tdm__fail(TDM_E_LIMIT, "%d pieces wait already", WINDOW);
    }
    peer->arrived[(peer->arrived_first + peer->arrived_count++) % WINDOW] = incoming;
    return TDM_OK;
}

static tdm_status take_end(struct peer *peer, struct tdm__incoming *incoming)
{
    struct tdm__mesh_end_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__mesh_end_table(), &message));
    peer->left = true;
    end_at(peer->mesh, message.number,
           message.status == TDM_E_TIMEOUT || message.status == TDM_E_INVAL
               ? (tdm_status)message.status
               : TDM_E_ABORTED,
           message.text == NULL ? "" : message.text);
    tdm__incoming_reply(incoming, no_arguments, NULL, 0);
    return TDM_OK;
}

static tdm_status take(struct tdm__mesh *mesh, struct tdm__incoming *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct peer *peer = conn == NULL ? NULL : tdm__conn_user(conn);

    if (mesh->closing) {
        return tdm__fail(TDM_E_CLOSED, "this rank leaves");
    }
    if (strcmp(method, "mesh.hello") == 0) {
        return take_hello(mesh, incoming);
    }
    if (peer == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%.40s before mesh.hello", method);
    }
    if (strcmp(method, "mesh.data") == 0) {
        return take_data(peer, incoming);
    }
    if (strcmp(method, "mesh.end") == 0) {
        return take_end(peer, incoming);
    }
    if (strcmp(method, "mesh.leave") == 0) {
        peer->left = true;
        tdm__incoming_reply(incoming, no_arguments, NULL, 0);
        return TDM_OK;
    }
    return tdm__fail(TDM_E_NOT_FOUND, "there is no method %.40s", method);
}

static void serve(void *arg, struct tdm__incoming *incoming)
{
    tdm_status status = take(arg, incoming);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* ---- life ------------------------------------------------------------------------------- */

static tdm_status open_endpoint(struct tdm__mesh *mesh, const struct tdm__mesh_options *options)
{
    char address[TDM__RPC_NAME_BYTES_MAX + 16];

    TDM_TRY(tdm__loop_create(&mesh->loop));
    TDM_TRY(tdm__rpc_create_like(options->like, mesh->loop, &mesh->rpc));
    tdm__rpc_serve(mesh->rpc, serve, mesh);
    if (snprintf(address, sizeof(address), "tcp:%s:0", options->host) >= (int)sizeof(address)) {
        return tdm__fail(TDM_E_LIMIT, "the host %.40s… is too long", options->host);
    }
    return tdm__rpc_listen(mesh->rpc, address, mesh->address, sizeof(mesh->address));
}

tdm_status tdm__mesh_listen(const struct tdm__mesh_options *options,
                            struct tdm__mesh **mesh_out)
{
    struct tdm__mesh *mesh;
    tdm_status status;

    if (options->ranks_count == 0 || options->ranks_count > TDM__MESH_RANKS_MAX ||
        options->rank >= options->ranks_count) {
        return tdm__fail(TDM_E_INVAL, "rank %u of %u: a group has 1 to %d ranks", options->rank,
                         options->ranks_count, TDM__MESH_RANKS_MAX);
    }
    mesh = calloc(1, sizeof(*mesh));
    if (mesh == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a group of %u ranks", options->ranks_count);
    }
    mesh->rank = options->rank;
    mesh->ranks_count = options->ranks_count;
    mesh->timeout_ms = options->timeout_ms;
    for (uint32_t i = 0; i < TDM__MESH_RANKS_MAX; i++) {
        mesh->peers[i].mesh = mesh;
    }
    status = open_endpoint(mesh, options);
    if (status != TDM_OK) {
        tdm__mesh_destroy(mesh);
        return status;
    }
    *mesh_out = mesh;
    return TDM_OK;
}

const char *tdm__mesh_address(const struct tdm__mesh *mesh)
{
    return mesh->address;
}

static void refuse_arrived(struct peer *peer)
{
    while (peer->arrived_count > 0) {
        tdm__incoming_fail(peer->arrived[peer->arrived_first], TDM_E_CLOSED,
                           "this rank leaves");
        peer->arrived_first = (peer->arrived_first + 1) % WINDOW;
        peer->arrived_count--;
    }
}

static void close_endpoint(struct tdm__mesh *mesh)
{
    const struct tdm__request leave = {
        .method = "mesh.leave", .packed = no_arguments, .deadline_ms = TDM__NEVER};
    TDM__ENTER(mesh->loop);

    mesh->closing = true;
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        refuse_arrived(&mesh->peers[i]);
        if (mesh->peers[i].conn != NULL) {
            (void)tdm__conn_call(mesh->peers[i].conn, &leave, NULL, NULL, NULL);
        }
    }
    tdm__rpc_destroy(mesh->rpc);
}

void tdm__mesh_destroy(struct tdm__mesh *mesh)
{
    if (mesh == NULL) {
        return;
    }
    if (mesh->rpc != NULL) {
        close_endpoint(mesh);
    }
    if (mesh->loop != NULL) {
        tdm__loop_destroy(mesh->loop);
    }
    free(mesh);
}

/* ---- waiting ---------------------------------------------------------------------------- */

struct wait {
    const struct peer *peer;
    bool (*holds)(const struct peer *peer);
};

static bool is_done(void *arg)
{
    const struct wait *wait = arg;

    return wait->holds(wait->peer) || has_ended(wait->peer->mesh) ||
           (wait->peer->left && wait->peer->conn == NULL);
}

/* Drives the loop until the condition holds for that rank: then it does, whatever has ended the
 * group meanwhile; or never will. */
static tdm_status wait_for(struct tdm__mesh *mesh, uint32_t rank,
                           bool (*holds)(const struct peer *peer))
{
    struct peer *peer = &mesh->peers[rank];
    struct wait wait = {peer, holds};
    tdm_status status = tdm__loop_run(mesh->loop, is_done, &wait, mesh->deadline_ms);

    if (holds(peer)) {
        return TDM_OK;
    }
    end(mesh, status == TDM_OK ? TDM_E_ABORTED : TDM_E_TIMEOUT, rank,
        status == TDM_OK ? "has left" : "did not come in time");
    return check(mesh);
}

static bool is_ready(const struct peer *peer)
{
    return peer->ready;
}

static bool has_room(const struct peer *peer)
{
    return peer->sent_count < WINDOW;
}

static bool has_taken_all(const struct peer *peer)
{
    return peer->sent_count == 0;
}

static bool has_arrived(const struct peer *peer)
{
    return peer->arrived_count > 0;
}

/* ---- connecting ------------------------------------------------------------------------- */

static void on_welcome(void *arg, struct tdm__reply *reply)
{
    struct peer *peer = arg;

    if (reply->status == TDM_OK) {
        peer->ready = true;
    } else if (reply->status != TDM_E_CLOSED) { /* which on_closed() tells better */
        end(peer->mesh, TDM_E_ABORTED, (uint32_t)(peer - peer->mesh->peers), reply->detail);
    }
}

static tdm_status call_on(struct tdm__mesh *mesh, struct peer *peer, const char *address)
{
    const struct tdm__mesh_hello_message message = {{mesh->key.bytes, sizeof(mesh->key.bytes)},
                                                    mesh->rank};
    struct tdm__request request = {.method = "mesh.hello", .deadline_ms = TDM__NEVER};
    struct tdm__conn *conn;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__mesh_hello_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__rpc_connect(mesh->rpc, address, &conn);
    }
    if (status == TDM_OK) {
        adopt(peer, conn);
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(conn, &request, on_welcome, peer, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* It says nothing: only that it ends says that the rank is gone, which would have called. */
static void on_watch_closed(void *arg, struct tdm__conn *conn, tdm_status reason,
                            const char *detail)
{
    struct peer *peer = arg;
    char how[128];

    (void)conn;
    peer->watch = NULL;
    if (!peer->ready && reason != TDM_E_TIMEOUT) { /* who is slow may still come */
        (void)snprintf(how, sizeof(how), "died: %.100s", detail);
        end(peer->mesh, TDM_E_ABORTED, (uint32_t)(peer - peer->mesh->peers), how);
    }
}

static tdm_status watch(struct tdm__mesh *mesh, struct peer *peer, const char *address)
{
    if (address == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__rpc_connect(mesh->rpc, address, &peer->watch));
    tdm__conn_on_closed(peer->watch, on_watch_closed, peer);
    return TDM_OK;
}

static void end_watches(struct tdm__mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        if (mesh->peers[i].watch != NULL) {
            tdm__conn_close(mesh->peers[i].watch);
        }
    }
}

/* ---- pieces ----------------------------------------------------------------------------- */

void tdm__mesh_begin(struct tdm__mesh *mesh, const struct tdm__comm_call *call)
{
    mesh->call = *call;
    mesh->number++;
    mesh->deadline_ms = tdm__deadline_in(mesh->timeout_ms);
}

static void on_taken(void *arg, struct tdm__reply *reply)
{
    struct peer *peer = arg;
    uint32_t rank = (uint32_t)(peer - peer->mesh->peers);
    char how[128];

    if (reply->status == TDM_OK) {
        peer->sent_count--;
    } else if (reply->status == TDM_E_INVAL) {
        end(peer->mesh, TDM_E_INVAL, rank, confused);
    } else if (!peer->left) { /* else who waits for it finds it gone */
        (void)snprintf(how, sizeof(how), "died: %.100s", reply->detail);
        end(peer->mesh, TDM_E_ABORTED, rank, how);
    }
}

static tdm_status send_piece(struct tdm__mesh *mesh, struct peer *peer, const void *piece,
                             size_t size_bytes)
{
    const struct tdm__mesh_data_message message = {mesh->number, (uint64_t)mesh->call.kind,
                                                   (uint64_t)mesh->call.variant,
                                                   mesh->call.size_bytes};
    struct tdm__request request = {
        .method = "mesh.data", .tail = {piece, size_bytes}, .deadline_ms = TDM__NEVER};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__mesh_data_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(peer->conn, &request, on_taken, peer, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__mesh_send(struct tdm__mesh *mesh, uint32_t to, const void *piece,
                          size_t size_bytes)
{
    struct peer *peer = &mesh->peers[to];
    TDM__ENTER(mesh->loop);

    TDM_TRY(check(mesh));
    TDM_TRY(wait_for(mesh, to, has_room));
    if (peer->conn == NULL) {
        end(mesh, TDM_E_ABORTED, to, "has left");
        return check(mesh);
    }
    if (send_piece(mesh, peer, piece, size_bytes) != TDM_OK) {
        end(mesh, TDM_E_ABORTED, to, tdm_error_detail());
        return check(mesh);
    }
    peer->sent_count++;
    return TDM_OK;
}

/* TDM_E_INVAL for what does not belong here. */
static tdm_status read_piece(const struct tdm__mesh *mesh, struct tdm__incoming *incoming,
                             void *piece, size_t size_bytes)
{
    const struct tdm__comm_call *call = &mesh->call;
    struct tdm_bytes came = tdm__incoming_tail(incoming);
    struct tdm__mesh_data_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__mesh_data_table(), &message));
    if (message.number != mesh->number || message.kind != call->kind ||
        message.variant != call->variant || message.size_bytes != call->size_bytes ||
        came.size_bytes != size_bytes) {
        return TDM_E_INVAL;
    }
    if (size_bytes > 0 && came.data != piece) {
        memcpy(piece, came.data, size_bytes);
    }
    return TDM_OK;
}

/* One that has not begun to arrive is read to where it belongs. */
static tdm_status await_piece(struct tdm__mesh *mesh, uint32_t from, void *piece,
                              size_t size_bytes)
{
    struct peer *peer = &mesh->peers[from];
    tdm_status status;

    if (peer->conn != NULL && peer->arrived_count == 0) {
        tdm__conn_land(peer->conn, piece, size_bytes);
    }
    status = wait_for(mesh, from, has_arrived);
    if (peer->conn != NULL) {
        tdm__conn_land(peer->conn, NULL, 0);
    }
    return status;
}

tdm_status tdm__mesh_receive(struct tdm__mesh *mesh, uint32_t from, void *piece,
                             size_t size_bytes)
{
    struct peer *peer = &mesh->peers[from];
    struct tdm__incoming *incoming;
    TDM__ENTER(mesh->loop);

    TDM_TRY(await_piece(mesh, from, piece, size_bytes));
    incoming = peer->arrived[peer->arrived_first];
    peer->arrived_first = (peer->arrived_first + 1) % WINDOW;
    peer->arrived_count--;
    if (read_piece(mesh, incoming, piece, size_bytes) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_INVAL, confused);
        end(mesh, TDM_E_INVAL, from, confused);
        return check(mesh);
    }
    tdm__incoming_reply(incoming, no_arguments, NULL, 0);
    return TDM_OK;
}

tdm_status tdm__mesh_finish(struct tdm__mesh *mesh)
{
    TDM__ENTER(mesh->loop);

    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        TDM_TRY(wait_for(mesh, i, has_taken_all));
    }
    flush(mesh); /* the last answers, which nobody here waits for */
    return TDM_OK;
}

/* ---- the first meeting ------------------------------------------------------------------ */

/* Nobody goes on before all are connected with all. */
static tdm_status meet(struct tdm__mesh *mesh)
{
    const struct tdm__comm_call call = {.kind = TDM__CALL_OPEN};

    tdm__mesh_begin(mesh, &call);
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        TDM_TRY(i == mesh->rank ? TDM_OK : tdm__mesh_send(mesh, i, "", 0));
    }
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        TDM_TRY(i == mesh->rank ? TDM_OK : tdm__mesh_receive(mesh, i, NULL, 0));
    }
    return tdm__mesh_finish(mesh);
}

tdm_status tdm__mesh_connect(struct tdm__mesh *mesh, const struct tdm__id *key,
                             const char *const *addresses)
{
    TDM__ENTER(mesh->loop);

    mesh->key = *key;
    mesh->deadline_ms = tdm__deadline_in(mesh->timeout_ms);
    for (uint32_t i = 0; i < mesh->rank; i++) {
        TDM_TRY(tdm__wrap(call_on(mesh, &mesh->peers[i], addresses[i]), "rank %u of %u", i,
                          mesh->ranks_count));
    }
    for (uint32_t i = mesh->rank + 1; i < mesh->ranks_count; i++) {
        TDM_TRY(watch(mesh, &mesh->peers[i], addresses[i]));
    }
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        if (i != mesh->rank) {
            TDM_TRY(wait_for(mesh, i, is_ready));
        }
    }
    end_watches(mesh);
    (void)meet(mesh); /* what ended a group that was complete is told by the next call */
    return TDM_OK;
}
