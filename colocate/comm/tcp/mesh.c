/* mesh.c - a TCP connection between every two ranks of a group, and chunks of data over them. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The mesh owns a loop, an RPC endpoint, and one connection per other rank. The higher rank of
 * two connects; the lower one also opens a second connection (watch_conn) to the address of the
 * higher one, whose closing shows that the higher rank died before it connected.
 *
 * The operations of a group are numbered. `ended` and end_op_number say from which operation on
 * the group has ended: a rank that is still in an earlier operation may finish it, because the
 * rank that ended the group had finished it. Of two reasons the one with the earlier operation
 * wins.
 *
 * Invariants: at most CHUNKS_IN_FLIGHT_MAX chunks per direction and rank are not taken; after
 * mesh_announce_end() no connection is open, so that no late data is written into a caller's
 * buffer.
 *
 * One thread enters and holds the loop lock. mesh.h specifies the methods. */

#include "colocate/comm/tcp/mesh.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/collective.h>

enum { CHUNKS_IN_FLIGHT_MAX = 4, TEXT_BYTES = 320 };

static const struct tdm_bytes no_arguments = {"\x90", 1};

/* Another rank of the group. The mesh owns it. */
struct peer {
    struct tdm__mesh *mesh; /* Mesh that owns this. */
    /* Borrowed connection; NULL before it exists and after it has closed. */
    struct tdm__conn *conn;
    /* Borrowed second connection to a rank that has not connected yet; NULL otherwise. */
    struct tdm__conn *watch_conn;
    /* True once mesh.hello has succeeded on the connection. */
    bool said_hello;
    /* True once the rank has left or has announced the end of the group. */
    bool left;
    /* Number of chunks sent to this rank that it has not taken yet. */
    uint32_t untaken_count;
    /* Owned ring of calls with chunks of this rank that were not received here yet. */
    struct tdm__incoming_call *arrived_chunks[CHUNKS_IN_FLIGHT_MAX];
    uint32_t first_arrived; /* Index of the ring's oldest chunk. */
    uint32_t arrived_count; /* Number of chunks in the ring. */
};

/* A mesh. One thread uses it, with the loop's lock. */
struct tdm__mesh {
    struct tdm__loop *loop; /* Owned loop. */
    struct tdm__rpc *rpc;   /* Owned endpoint with all connections. */
    char address[64];       /* Address at which the mesh listens. */
    /* Key of the group, which other ranks must present. */
    struct tdm__id key;
    uint32_t rank;        /* Rank of this process. */
    uint32_t ranks_count; /* Number of ranks of the group. */
    /* Milliseconds for connecting and for each operation. */
    int64_t timeout_ms;
    /* True while this rank leaves; connections that close then are no failures. */
    bool closing;
    /* True once this rank has told the others that the group has ended. */
    bool end_announced;
    /* Why the group has ended; TDM_OK while it lives. */
    tdm_status ended;
    /* Number of the operation from which on the group has ended. */
    uint64_t end_op_number;
    char end_text[TEXT_BYTES];      /* Error detail for `ended`. */
    struct tdm__collective_op call; /* Operation in progress. */
    /* Number of the operation in progress, counted from 1. */
    uint64_t op_number;
    /* Deadline of the operation in progress, in milliseconds on CLOCK_MONOTONIC. */
    int64_t deadline_ms;
    /* Owned array of the other ranks by rank; the entry of this rank is not used. */
    struct peer *peers;
};

/* ---- the end ---------------------------------------------------------------------------- */

/* Ends the group from operation `op_number` on. A rank in an earlier operation may finish it,
 * because the rank that ended the group had finished it. The reason of the earlier operation
 * wins, else the first one. */
static void mesh_end_at_op(struct tdm__mesh *mesh, uint64_t op_number, tdm_status status,
                           const char *text)
{
    if ((mesh->ended == TDM_OK || op_number < mesh->end_op_number) && !mesh->closing) {
        mesh->ended = status;
        mesh->end_op_number = op_number;
        (void)snprintf(mesh->end_text, sizeof(mesh->end_text), "%s", text);
    }
}

/* Ends the group from the current operation on because of `rank`. */
static void mesh_end(struct tdm__mesh *mesh, tdm_status status, uint32_t rank, const char *how)
{
    char text[TEXT_BYTES];

    (void)snprintf(text, sizeof(text),
                   "rank %u of %u %.160s: the group has ended and must be created again", rank,
                   mesh->ranks_count, how);
    mesh_end_at_op(mesh, mesh->op_number, status, text);
}

/* Returns true if the group has ended for the operation in progress. */
static bool mesh_has_ended(const struct tdm__mesh *mesh)
{
    return mesh->ended != TDM_OK && mesh->op_number >= mesh->end_op_number;
}

/* Runs the loop once without waiting, to send queued messages and read what has arrived. */
static void mesh_flush(struct tdm__mesh *mesh)
{
    (void)tdm__loop_run(mesh->loop, NULL, NULL, 0);
}

/* Sends mesh.end to all connected ranks. */
static void mesh_send_end_reason(struct tdm__mesh *mesh)
{
    const struct tdm__mesh_end_message message = {mesh->end_op_number, mesh->ended, mesh->end_text};
    struct tdm__rpc_request request = {.method = "mesh.end", .deadline_ms = TDM__NEVER};
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        return; /* The other ranks see the connections close. */
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
    mesh_flush(mesh);
}

/* Tells the other ranks that the group has ended and closes all connections. Nothing is read
 * after it returns, so no late data is written into a caller's buffer. */
static void mesh_announce_end(struct tdm__mesh *mesh)
{
    mesh->end_announced = true;
    mesh_send_end_reason(mesh);
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        if (mesh->peers[i].conn != NULL) {
            tdm__conn_close(mesh->peers[i].conn);
        }
    }
    mesh_flush(mesh);
}

/* Returns TDM_OK while the group lives; otherwise announces the end and fails with the reason.
 * Must not be called in a callback. */
static tdm_status mesh_check_alive(struct tdm__mesh *mesh)
{
    if (!mesh_has_ended(mesh)) {
        return TDM_OK;
    }
    if (!mesh->end_announced) {
        mesh_announce_end(mesh);
    }
    return tdm__fail(mesh->ended, "%s", mesh->end_text);
}

tdm_status tdm__mesh_check(struct tdm__mesh *mesh)
{
    TDM__LOOP_ENTER(mesh->loop);

    mesh_flush(mesh);
    if (mesh->ended != TDM_OK && mesh->op_number < mesh->end_op_number) {
        mesh->op_number = mesh->end_op_number;
    }
    return mesh_check_alive(mesh);
}

void tdm__mesh_abort(struct tdm__mesh *mesh)
{
    TDM__LOOP_ENTER(mesh->loop);

    mesh->op_number++; /* All earlier operations are complete. */
    mesh_end(mesh, TDM_E_ABORTED, mesh->rank, "gave up");
    (void)mesh_check_alive(mesh);
}

/* ---- incoming calls ------------------------------------------------------------------------- */

/* Ends the group when the connection of a rank closes that has not left: its process has ended, or
 * what connects the two machines has failed. */
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
        (void)snprintf(how, sizeof(how), "died or cannot be reached: %.100s", detail);
        mesh_end(peer->mesh, TDM_E_ABORTED, rank, how);
    }
}

/* Makes `conn` the connection to the peer. */
static void peer_set_conn(struct peer *peer, struct tdm__conn *conn)
{
    peer->conn = conn;
    tdm__conn_set_user_data(conn, peer);
    tdm__conn_on_closed(conn, on_closed, peer);
}

/* Serves mesh.hello of a higher rank, which connects to this one. */
static tdm_status serve_hello(struct tdm__mesh *mesh, struct tdm__incoming_call *incoming)
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
        mesh->peers[rank].said_hello || conn == NULL || tdm__conn_user_data(conn) != NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "rank %llu has no business here",
                         (unsigned long long)rank);
    }
    peer_set_conn(&mesh->peers[rank], conn);
    mesh->peers[rank].said_hello = true;
    tdm__incoming_reply(incoming, no_arguments, NULL, 0);
    return TDM_OK;
}

/* Stores a chunk until tdm__mesh_receive() takes it. */
static tdm_status serve_data(struct peer *peer, struct tdm__incoming_call *incoming)
{
    if (peer->arrived_count == CHUNKS_IN_FLIGHT_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%d chunks wait already", CHUNKS_IN_FLIGHT_MAX);
    }
    peer->arrived_chunks[(peer->first_arrived + peer->arrived_count++) % CHUNKS_IN_FLIGHT_MAX] =
        incoming;
    return TDM_OK;
}

/* Serves mesh.end: another rank reports why the group has ended. */
static tdm_status serve_end(struct peer *peer, struct tdm__incoming_call *incoming)
{
    struct tdm__mesh_end_message message;

    TDM_TRY(tdm__incoming_decode(incoming, tdm__mesh_end_table(), &message));
    peer->left = true;
    mesh_end_at_op(peer->mesh, message.op_number,
                   message.status == TDM_E_TIMEOUT || message.status == TDM_E_INVAL
                       ? (tdm_status)message.status
                       : TDM_E_ABORTED,
                   message.text == NULL ? "" : message.text);
    tdm__incoming_reply(incoming, no_arguments, NULL, 0);
    return TDM_OK;
}

/* Dispatches an incoming call to its method. */
static tdm_status mesh_dispatch_call(struct tdm__mesh *mesh, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    struct tdm__conn *conn = tdm__incoming_conn(incoming);
    struct peer *peer = conn == NULL ? NULL : tdm__conn_user_data(conn);

    if (mesh->closing) {
        return tdm__fail(TDM_E_CLOSED, "this rank leaves");
    }
    if (strcmp(method, "mesh.hello") == 0) {
        return serve_hello(mesh, incoming);
    }
    if (peer == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%.40s before mesh.hello", method);
    }
    if (strcmp(method, "mesh.data") == 0) {
        return serve_data(peer, incoming);
    }
    if (strcmp(method, "mesh.end") == 0) {
        return serve_end(peer, incoming);
    }
    if (strcmp(method, "mesh.leave") == 0) {
        peer->left = true;
        tdm__incoming_reply(incoming, no_arguments, NULL, 0);
        return TDM_OK;
    }
    return tdm__fail(TDM_E_NOT_FOUND, "there is no method %.40s", method);
}

/* Serves an incoming call and fails it if its method fails. */
static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    tdm_status status = mesh_dispatch_call(arg, incoming);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    }
}

/* ---- creating and destroying -------------------------------------------------------------- */

/* Creates the loop and the endpoint, and listens. */
static tdm_status mesh_open_endpoint(struct tdm__mesh *mesh,
                                     const struct tdm__mesh_options *options)
{
    char address[TDM__RPC_NAME_BYTES_MAX + 16];

    TDM_TRY(tdm__loop_create(&mesh->loop));
    TDM_TRY(tdm__rpc_create_like(options->identity_source, mesh->loop, &mesh->rpc));
    tdm__rpc_set_call_handler(mesh->rpc, serve, mesh);
    if (snprintf(address, sizeof(address), "tcp:%s:0", options->host) >= (int)sizeof(address)) {
        return tdm__fail(TDM_E_LIMIT, "the host %.40s… is too long", options->host);
    }
    return tdm__rpc_listen(mesh->rpc, address, mesh->address, sizeof(mesh->address));
}

tdm_status tdm__mesh_listen(const struct tdm__mesh_options *options, struct tdm__mesh **mesh_out)
{
    struct tdm__mesh *mesh;
    tdm_status status;

    if (options->ranks_count == 0 || options->ranks_count > TDM_COLLECTIVE_RANKS_MAX ||
        options->rank >= options->ranks_count) {
        return tdm__fail(TDM_E_INVAL, "rank %u of %u: a group has 1 to %d ranks, numbered from 0",
                         options->rank, options->ranks_count, TDM_COLLECTIVE_RANKS_MAX);
    }
    mesh = calloc(1, sizeof(*mesh));
    if (mesh != NULL) {
        mesh->peers = calloc(options->ranks_count, sizeof(*mesh->peers));
    }
    if (mesh == NULL || mesh->peers == NULL) {
        free(mesh);
        return tdm__fail(TDM_E_NOMEM, "a group of %u ranks", options->ranks_count);
    }
    mesh->rank = options->rank;
    mesh->ranks_count = options->ranks_count;
    mesh->timeout_ms = options->timeout_ms;
    for (uint32_t i = 0; i < options->ranks_count; i++) {
        mesh->peers[i].mesh = mesh;
    }
    status = mesh_open_endpoint(mesh, options);
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

/* Fails the chunks of a rank that were not received. */
static void mesh_refuse_chunks(struct peer *peer)
{
    while (peer->arrived_count > 0) {
        tdm__incoming_fail(peer->arrived_chunks[peer->first_arrived], TDM_E_CLOSED,
                           "this rank leaves");
        peer->first_arrived = (peer->first_arrived + 1) % CHUNKS_IN_FLIGHT_MAX;
        peer->arrived_count--;
    }
}

/* Tells all ranks that this rank leaves, and destroys the endpoint. Keeps the error detail, which
 * calls that are in flight overwrite when they fail. */
static void mesh_close_endpoint(struct tdm__mesh *mesh)
{
    const struct tdm__rpc_request leave = {
        .method = "mesh.leave", .packed = no_arguments, .deadline_ms = TDM__NEVER};
    char detail[TDM__ERROR_DETAIL_BYTES];
    TDM__LOOP_ENTER(mesh->loop);

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    mesh->closing = true;
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        mesh_refuse_chunks(&mesh->peers[i]);
        if (mesh->peers[i].conn != NULL) {
            (void)tdm__conn_call(mesh->peers[i].conn, &leave, NULL, NULL, NULL);
        }
    }
    tdm__rpc_destroy(mesh->rpc);
    (void)tdm__fail(TDM_OK, "%s", detail);
}

void tdm__mesh_destroy(struct tdm__mesh *mesh)
{
    if (mesh == NULL) {
        return;
    }
    if (mesh->rpc != NULL) {
        mesh_close_endpoint(mesh);
    }
    if (mesh->loop != NULL) {
        tdm__loop_destroy(mesh->loop);
    }
    free(mesh->peers);
    free(mesh);
}

/* ---- waiting ---------------------------------------------------------------------------- */

/* A condition on a peer that a run of the loop waits for. */
struct wait {
    const struct peer *peer;                 /* Peer whose condition is awaited. */
    bool (*is_met)(const struct peer *peer); /* Returns true when the condition holds. */
};

/* Returns true if the wait is over: the condition holds, the group has ended, or the peer is
 * gone. */
static bool wait_is_over(void *arg)
{
    const struct wait *wait = arg;

    return wait->is_met(wait->peer) || mesh_has_ended(wait->peer->mesh) ||
           (wait->peer->left && wait->peer->conn == NULL);
}

/* Runs the loop until the condition holds for that rank, and returns TDM_OK then, even if the
 * group has ended meanwhile. Otherwise it ends the group and fails. */
static tdm_status mesh_wait_for(struct tdm__mesh *mesh, uint32_t rank,
                                bool (*is_met)(const struct peer *peer))
{
    struct peer *peer = &mesh->peers[rank];
    struct wait wait = {peer, is_met};
    tdm_status status = tdm__loop_run(mesh->loop, wait_is_over, &wait, mesh->deadline_ms);

    if (is_met(peer)) {
        return TDM_OK;
    }
    mesh_end(mesh, status == TDM_OK ? TDM_E_ABORTED : TDM_E_TIMEOUT, rank,
             status == TDM_OK ? "has left" : "did not come in time");
    return mesh_check_alive(mesh);
}

/* Returns true once the peer is connected. */
static bool peer_is_ready(const struct peer *peer)
{
    return peer->said_hello;
}

/* Returns true if another chunk may be sent to the peer. */
static bool peer_may_send(const struct peer *peer)
{
    return peer->untaken_count < CHUNKS_IN_FLIGHT_MAX;
}

/* Returns true if the peer has taken all chunks. */
static bool peer_took_all(const struct peer *peer)
{
    return peer->untaken_count == 0;
}

/* Returns true if a chunk of the peer is waiting. */
static bool chunk_has_arrived(const struct peer *peer)
{
    return peer->arrived_count > 0;
}

/* ---- connecting ------------------------------------------------------------------------- */

/* Handles the reply to mesh.hello. */
static void on_hello_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct peer *peer = arg;

    if (reply->status == TDM_OK) {
        peer->said_hello = true;
        /* The function on_closed() reports a closed connection with a better text. */
    } else if (reply->status != TDM_E_CLOSED) {
        mesh_end(peer->mesh, TDM_E_ABORTED, (uint32_t)(peer - peer->mesh->peers), reply->detail);
    }
}

/* Connects to a lower rank and calls mesh.hello. */
static tdm_status mesh_call_peer(struct tdm__mesh *mesh, struct peer *peer, const char *address)
{
    const struct tdm__mesh_hello_message message = {{mesh->key.bytes, sizeof(mesh->key.bytes)},
                                                    mesh->rank};
    struct tdm__rpc_request request = {.method = "mesh.hello", .deadline_ms = TDM__NEVER};
    struct tdm__conn *conn;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__mesh_hello_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__rpc_connect(mesh->rpc, address, &conn);
    }
    if (status == TDM_OK) {
        peer_set_conn(peer, conn);
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(conn, &request, on_hello_reply, peer, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Ends the group when the watched connection closes: the higher rank died before it connected.
 * This is the only purpose of the connection. */
static void on_watch_closed(void *arg, struct tdm__conn *conn, tdm_status reason,
                            const char *detail)
{
    struct peer *peer = arg;
    char how[128];

    (void)conn;
    peer->watch_conn = NULL;
    if (!peer->said_hello && reason != TDM_E_TIMEOUT) { /* A slow rank may still connect. */
        (void)snprintf(how, sizeof(how), "died or cannot be reached: %.100s", detail);
        mesh_end(peer->mesh, TDM_E_ABORTED, (uint32_t)(peer - peer->mesh->peers), how);
    }
}

/* Opens the watched connection to a higher rank, unless its address is unknown. */
static tdm_status watch_conn(struct tdm__mesh *mesh, struct peer *peer, const char *address)
{
    if (address == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__rpc_connect(mesh->rpc, address, &peer->watch_conn));
    tdm__conn_on_closed(peer->watch_conn, on_watch_closed, peer);
    return TDM_OK;
}

/* Closes all watched connections. */
static void mesh_close_watches(struct tdm__mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        if (mesh->peers[i].watch_conn != NULL) {
            tdm__conn_close(mesh->peers[i].watch_conn);
        }
    }
}

/* ---- chunks ----------------------------------------------------------------------------- */

void tdm__mesh_op_begin(struct tdm__mesh *mesh, const struct tdm__collective_op *call)
{
    mesh->call = *call;
    mesh->op_number++;
    mesh->deadline_ms = tdm__deadline_after(mesh->timeout_ms);
}

/* Handles the reply to a chunk: the peer has taken it, or the group ends. */
static void on_chunk_taken(void *arg, struct tdm__rpc_reply *reply)
{
    struct peer *peer = arg;
    uint32_t rank = (uint32_t)(peer - peer->mesh->peers);
    char how[128];

    if (reply->status == TDM_OK) {
        peer->untaken_count--;
    } else if (reply->status == TDM_E_INVAL) {
        mesh_end(peer->mesh, TDM_E_INVAL, rank, reply->detail);
    } else if (!peer->left) { /* A rank that left is detected by the next wait for it. */
        (void)snprintf(how, sizeof(how), "died or cannot be reached: %.100s", reply->detail);
        mesh_end(peer->mesh, TDM_E_ABORTED, rank, how);
    }
}

/* Sends one chunk as a call of mesh.data. */
static tdm_status mesh_send_chunk(struct tdm__mesh *mesh, struct peer *peer, const void *chunk,
                                  size_t size_bytes)
{
    const struct tdm__mesh_data_message message = {
        mesh->op_number, (uint64_t)mesh->call.kind, (uint64_t)mesh->call.root_or_dtype,
        mesh->call.size_bytes, (uint64_t)mesh->call.memory};
    struct tdm__rpc_request request = {
        .method = "mesh.data", .tail = {chunk, size_bytes}, .deadline_ms = TDM__NEVER};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__mesh_data_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(peer->conn, &request, on_chunk_taken, peer, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__mesh_send(struct tdm__mesh *mesh, uint32_t to, const void *chunk, size_t size_bytes)
{
    struct peer *peer = &mesh->peers[to];
    TDM__LOOP_ENTER(mesh->loop);

    TDM_TRY(mesh_check_alive(mesh));
    TDM_TRY(mesh_wait_for(mesh, to, peer_may_send));
    if (peer->conn == NULL) {
        mesh_end(mesh, TDM_E_ABORTED, to, "has left");
        return mesh_check_alive(mesh);
    }
    if (mesh_send_chunk(mesh, peer, chunk, size_bytes) != TDM_OK) {
        mesh_end(mesh, TDM_E_ABORTED, to, tdm_error_detail());
        return mesh_check_alive(mesh);
    }
    peer->untaken_count++;
    return TDM_OK;
}

/* Returns the operation to which a chunk of another rank belongs. */
static struct tdm__collective_op op_of_chunk(const struct tdm__mesh_data_message *message)
{
    return (struct tdm__collective_op){.kind = (enum tdm__collective_op_kind)message->kind,
                                       .root_or_dtype = (uint32_t)message->root_or_dtype,
                                       .size_bytes = message->size_bytes,
                                       .memory = (enum tdm__comm_memory)message->memory};
}

/* Copies an arrived chunk of rank `from` to the caller's buffer and replies. If it belongs to
 * another operation or has another size, both ranks get TDM_E_INVAL and how their operations
 * differ. */
static tdm_status mesh_read_chunk(struct tdm__mesh *mesh, uint32_t from,
                                  struct tdm__incoming_call *incoming, void *chunk,
                                  size_t size_bytes)
{
    struct tdm_bytes arrived = tdm__incoming_tail(incoming);
    struct tdm__mesh_data_message message = {0};
    struct tdm__collective_op theirs;
    char how[TDM__OP_DIFFERENCE_BYTES];

    if (tdm__incoming_decode(incoming, tdm__mesh_data_table(), &message) != TDM_OK) {
        message.kind = UINT32_MAX; /* Equal to no operation. */
    }
    theirs = op_of_chunk(&message);
    if (message.op_number != mesh->op_number || !tdm__collective_op_equal(&theirs, &mesh->call) ||
        arrived.size_bytes != size_bytes) {
        tdm__incoming_fail(incoming, TDM_E_INVAL,
                           tdm__collective_op_difference(&mesh->call, &theirs, from, how));
        mesh_end(mesh, TDM_E_INVAL, from,
                 tdm__collective_op_difference(&theirs, &mesh->call, mesh->rank, how));
        return mesh_check_alive(mesh);
    }
    if (size_bytes > 0 && arrived.data != chunk) {
        memcpy(chunk, arrived.data, size_bytes);
    }
    tdm__incoming_reply(incoming, no_arguments, NULL, 0);
    return TDM_OK;
}

/* Waits for a chunk of a rank. A chunk that has not started to arrive is read directly into the
 * caller's buffer. */
static tdm_status mesh_await_chunk(struct tdm__mesh *mesh, uint32_t from, void *chunk,
                                   size_t size_bytes)
{
    struct peer *peer = &mesh->peers[from];
    tdm_status status;

    if (peer->conn != NULL && peer->arrived_count == 0) {
        tdm__conn_set_tail_buffer(peer->conn, chunk, size_bytes);
    }
    status = mesh_wait_for(mesh, from, chunk_has_arrived);
    if (peer->conn != NULL) {
        tdm__conn_set_tail_buffer(peer->conn, NULL, 0);
    }
    return status;
}

tdm_status tdm__mesh_receive(struct tdm__mesh *mesh, uint32_t from, void *chunk, size_t size_bytes)
{
    struct peer *peer = &mesh->peers[from];
    struct tdm__incoming_call *incoming;
    TDM__LOOP_ENTER(mesh->loop);

    TDM_TRY(mesh_await_chunk(mesh, from, chunk, size_bytes));
    incoming = peer->arrived_chunks[peer->first_arrived];
    peer->first_arrived = (peer->first_arrived + 1) % CHUNKS_IN_FLIGHT_MAX;
    peer->arrived_count--;
    return mesh_read_chunk(mesh, from, incoming, chunk, size_bytes);
}

tdm_status tdm__mesh_op_finish(struct tdm__mesh *mesh)
{
    TDM__LOOP_ENTER(mesh->loop);

    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        TDM_TRY(mesh_wait_for(mesh, i, peer_took_all));
    }
    mesh_flush(mesh); /* Sends the last replies, for which no code here waits. */
    return TDM_OK;
}

/* ---- connecting all ranks -------------------------------------------------------------------- */

/* Exchanges an empty chunk with every rank, so that no rank continues before all are connected
 * with all. */
static tdm_status mesh_synchronize_peers(struct tdm__mesh *mesh)
{
    const struct tdm__collective_op call = {.kind = TDM__COLLECTIVE_OPEN};

    tdm__mesh_op_begin(mesh, &call);
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        TDM_TRY(i == mesh->rank ? TDM_OK : tdm__mesh_send(mesh, i, "", 0));
    }
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        TDM_TRY(i == mesh->rank ? TDM_OK : tdm__mesh_receive(mesh, i, NULL, 0));
    }
    return tdm__mesh_op_finish(mesh);
}

tdm_status tdm__mesh_connect(struct tdm__mesh *mesh, const struct tdm__id *key,
                             const char *const *addresses)
{
    TDM__LOOP_ENTER(mesh->loop);

    mesh->key = *key;
    mesh->deadline_ms = tdm__deadline_after(mesh->timeout_ms);
    for (uint32_t i = 0; i < mesh->rank; i++) {
        TDM_TRY(tdm__wrap(mesh_call_peer(mesh, &mesh->peers[i], addresses[i]), "rank %u of %u", i,
                          mesh->ranks_count));
    }
    for (uint32_t i = mesh->rank + 1; i < mesh->ranks_count; i++) {
        TDM_TRY(watch_conn(mesh, &mesh->peers[i], addresses[i]));
    }
    for (uint32_t i = 0; i < mesh->ranks_count; i++) {
        if (i != mesh->rank) {
            TDM_TRY(mesh_wait_for(mesh, i, peer_is_ready));
        }
    }
    mesh_close_watches(mesh);
    (void)mesh_synchronize_peers(
        mesh); /* The next operation reports the end of a group that was complete. */
    return TDM_OK;
}
