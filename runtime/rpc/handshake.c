/* handshake.c - both ends of a new connection prove that they know the cluster's token. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake authenticates both ends of a connection before any frame is read.
 *
 *   client -> server   hello (identity and nonce of the client)
 *   server -> client   hello, MAC of the server
 *   client -> server   MAC of the client
 *
 * Each MAC is HMAC-SHA256 with the token over the role of its sender and both hellos. So it is
 * valid for no other connection, no other direction and no changed identity. Every message has a
 * fixed size, and nothing beyond it is read until the MAC is checked.
 *
 * A client whose endpoint wants TLS (runtime/tls.h) first completes the handshake of TLS, and all
 * of this goes through it. A server sees by the first byte whether the client speaks TLS. Inside of
 * TLS the MACs also cover the binding of that TLS connection, so that they are worthless in another
 * one.
 *
 * The version is checked as soon as the first 16 bytes have arrived, so that builds of different
 * versions can name both versions. All functions run on the loop's thread and never block. */
#include "runtime/rpc/handshake.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/protocol.h"
#include "runtime/socket.h"
#include "runtime/utf8.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Role bytes that the MAC of a handshake covers, and the size of its nonce. */
enum { ROLE_CLIENT = 1, ROLE_SERVER = 2, NONCE_BYTES = 32 };

/* Every hello begins with these bytes. Two bytes follow that contained a hand-written version
 * number in earlier builds. They are 0 now, and the version is the hash of protocol.h. */
static const char hello_magic[6] = {'T', 'D', 'M', 'R', 'P', 'C'};

/* Number of bytes of a hello that suffice to check the magic and the version. */
enum { VERSION_END = 16 };

_Static_assert(offsetof(struct wire_hello, version) + sizeof(uint32_t) == VERSION_END,
               "wire format");
_Static_assert(sizeof(((struct wire_hello *)NULL)->nonce) == NONCE_BYTES, "wire format");
_Static_assert(offsetof(struct wire_hello, pid) == 16, "wire format");
_Static_assert(sizeof(((struct tdm__peer_identity *)NULL)->name) == 64, "wire format");

/* Returns the role of this process in the connection's handshake, client or server. */
static uint8_t conn_role(const struct tdm__conn *conn)
{
    return conn->server ? ROLE_SERVER : ROLE_CLIENT;
}

/* ---- hellos and MACs -------------------------------------------------------------------- */

/* Fills this process's hello with its identity and a new random nonce. */
static tdm_status hello_fill(struct tdm__conn *conn)
{
    const struct tdm__peer_identity *self = &conn->rpc->self;
    struct wire_hello wire = {.role = conn_role(conn),
                              .kind = (uint8_t)self->kind,
                              .version = htole32(tdm__protocol_version()),
                              .pid = htole64((uint64_t)self->pid)};

    memcpy(wire.magic, hello_magic, sizeof(wire.magic));
    memcpy(wire.id, self->id.bytes, sizeof(wire.id));
    memcpy(wire.node, self->node.bytes, sizeof(wire.node));
    wire.node_epoch = htole64(self->node_epoch);
    (void)snprintf(wire.name, sizeof(wire.name), "%s", self->name);
    if (RAND_bytes(wire.nonce, sizeof(wire.nonce)) != 1) {
        return tdm__fail(TDM_E_IO, "RAND_bytes: no randomness from the system");
    }
    memcpy(conn->handshake->own_hello.bytes, &wire, sizeof(wire));
    return TDM_OK;
}

/* Returns whether the name in a peer's hello is printable and ends with NUL. */
static bool name_is_valid(const char name[64])
{
    size_t length = strnlen(name, 64);

    return length < 64 && tdm__utf8_is_printable(name, length);
}

/* Returns whether the received bytes are a hello of Tandem with another protocol version. At least
 * VERSION_END bytes must have arrived. */
static bool hello_has_other_version(const struct handshake *handshake)
{
    struct wire_hello wire;

    memcpy(&wire, handshake->input, sizeof(wire));
    return memcmp(wire.magic, hello_magic, sizeof(hello_magic)) == 0 &&
           (wire.old_version != 0 || le32toh(wire.version) != tdm__protocol_version());
}

/* Fails if the peer's hello is not one of Tandem or has another protocol version. It runs before
 * the rest of the hello arrives, because a peer of another version may send nothing more. */
static tdm_status hello_check_version(const struct tdm__conn *conn)
{
    const struct handshake *handshake = conn->handshake;
    struct wire_hello wire;
    char peer_hello[16];

    memcpy(&wire, handshake->input, sizeof(wire));
    if (hello_has_other_version(handshake)) {
        (void)snprintf(peer_hello, sizeof(peer_hello), wire.old_version != 0 ? "%u" : "%08x",
                       wire.old_version != 0 ? le16toh(wire.old_version) : le32toh(wire.version));
        return tdm__fail(TDM_E_PROTOCOL,
                         "%s speaks version %s of the protocol, this process version %08x: "
                         "install the same Tandem for both",
                         conn->label, peer_hello, tdm__protocol_version());
    }
    if (memcmp(wire.magic, hello_magic, sizeof(hello_magic)) != 0) {
        return tdm__fail(TDM_E_PROTOCOL, "%s does not speak Tandem's protocol", conn->label);
    }
    return TDM_OK;
}

/* Checks the complete hello of the peer and extracts its identity, which is not authenticated yet.
 */
static tdm_status hello_read(struct tdm__conn *conn, struct tdm__peer_identity *peer_out)
{
    static const uint8_t zero[2];
    struct wire_hello wire;

    memcpy(&conn->handshake->peer_hello, conn->handshake->input, HELLO_BYTES);
    memcpy(&wire, conn->handshake->input, sizeof(wire));
    if (wire.role == conn_role(conn) || wire.role < ROLE_CLIENT || wire.role > ROLE_SERVER ||
        wire.kind < TDM__PEER_DRIVER || wire.kind > TDM__PEER_DAEMON ||
        memcmp(wire.reserved, zero, sizeof(zero)) != 0 || !name_is_valid(wire.name)) {
        return tdm__fail(TDM_E_PROTOCOL, "%s sent a wrong hello: role %u, kind %u", conn->label,
                         wire.role, wire.kind);
    }
    memset(peer_out, 0, sizeof(*peer_out));
    peer_out->kind = (enum tdm__peer_kind)wire.kind;
    memcpy(peer_out->id.bytes, wire.id, sizeof(wire.id));
    memcpy(peer_out->node.bytes, wire.node, sizeof(wire.node));
    peer_out->node_epoch = le64toh(wire.node_epoch);
    peer_out->pid = (int64_t)le64toh(wire.pid);
    memcpy(peer_out->name, wire.name, strnlen(wire.name, sizeof(wire.name) - 1));
    return TDM_OK;
}

/* Computes the MAC that the side with role `role` sends, over both hellos of the handshake. */
static tdm_status mac_compute(const struct tdm__conn *conn, uint8_t role, uint8_t mac[MAC_BYTES])
{
    const struct handshake *handshake = conn->handshake;
    uint8_t text[1 + 2 * HELLO_BYTES + TDM__TLS_BINDING_BYTES];
    size_t text_bytes = 1 + 2 * HELLO_BYTES;
    const struct hello *client = conn->server ? &handshake->peer_hello : &handshake->own_hello;
    const struct hello *server = conn->server ? &handshake->own_hello : &handshake->peer_hello;
    unsigned mac_bytes = 0;

    text[0] = role;
    memcpy(text + 1, client->bytes, HELLO_BYTES);
    memcpy(text + 1 + HELLO_BYTES, server->bytes, HELLO_BYTES);
    if (conn->tls != NULL) {
        TDM_TRY(tdm__tls_binding(conn->tls, text + text_bytes));
        text_bytes += TDM__TLS_BINDING_BYTES;
    }
    if (HMAC(EVP_sha256(), conn->rpc->token, TDM__TOKEN_BYTES, text, text_bytes, mac, &mac_bytes) ==
            NULL ||
        mac_bytes != MAC_BYTES) {
        return tdm__fail(TDM_E_IO, "HMAC: OpenSSL cannot compute SHA-256");
    }
    return TDM_OK;
}

/* Compares the MAC that the peer sent with the expected one, in constant time. */
static tdm_status mac_check(const struct tdm__conn *conn, const uint8_t *peer_hello)
{
    uint8_t expected[MAC_BYTES];

    TDM_TRY(mac_compute(conn, conn->server ? ROLE_CLIENT : ROLE_SERVER, expected));
    if (CRYPTO_memcmp(expected, peer_hello, MAC_BYTES) != 0) {
        return tdm__fail(TDM_E_AUTH, "%s does not know the cluster's token%s", conn->label,
                         conn->server
                             ? ""
                             : " that this process has: set TANDEM_TOKEN_FILE to the token "
                               "file of that node");
    }
    return TDM_OK;
}

/* ---- the exchange ----------------------------------------------------------------------- */

/* Sends a whole message of the handshake. It never sends only a part, because a new socket's buffer
 * holds more than a whole handshake. */
static tdm_status handshake_send(const struct tdm__conn *conn, const void *data, size_t size_bytes)
{
    struct iovec piece = {.iov_base = (void *)(uintptr_t)data, .iov_len = size_bytes};
    ssize_t sent;

    do {
        sent = conn->tls != NULL ? tdm__tls_write(conn->tls, &piece, 1)
                                 : send(conn->fd, data, size_bytes, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
        return tdm__fail(TDM_E_CLOSED, "%s closed the connection during the handshake",
                         conn->label);
    }
    if (sent < 0) {
        return tdm__fail_errno(errno, "send to %s", conn->label);
    }
    if ((size_t)sent != size_bytes) {
        return tdm__fail(TDM_E_IO, "send to %s: %zd of the handshake's %zu bytes", conn->label,
                         sent, size_bytes);
    }
    return TDM_OK;
}

/* Opens the connection (state CONN_OPEN) to the authenticated `peer`, and allocates its input
 * buffer. Fails if the node of `peer` is lost, or if `peer` is not the process that is expected. */
static tdm_status conn_open(struct tdm__conn *conn, const struct tdm__peer_identity *peer)
{
    if (tdm__lost_nodes_contain(&conn->rpc->lost_nodes, &peer->node, peer->node_epoch)) {
        return tdm__fail(TDM_E_NODE_LOST,
                         "%s (pid %lld) is refused: its node is lost in epoch %llu, in which it "
                         "connects",
                         peer->name, (long long)peer->pid, (unsigned long long)peer->node_epoch);
    }
    if (!tdm__id_is_none(&conn->expected_peer) && !tdm__id_equal(&conn->expected_peer, &peer->id)) {
        conn->was_refused = true;
        return tdm__fail(TDM_E_NODE_LOST,
                         "%s (pid %lld) listens at the address of a process that has ended",
                         peer->name, (long long)peer->pid);
    }
    conn->input = malloc(INPUT_BYTES);
    if (conn->input == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a connection with %s", conn->label);
    }
    conn->peer = *peer;
    (void)snprintf(conn->label, sizeof(conn->label), "%s (pid %lld)", peer->name,
                   (long long)peer->pid);
    free(conn->handshake);
    conn->handshake = NULL;
    conn->state = CONN_OPEN;
    return TDM_OK;
}

/* Server: replies to the client's hello with its own hello and MAC, and then waits for the client's
 * MAC. */
static tdm_status handshake_reply_hello(struct tdm__conn *conn)
{
    uint8_t reply[HELLO_BYTES + MAC_BYTES];
    struct tdm__peer_identity unauthenticated;

    TDM_TRY(hello_read(conn, &unauthenticated));
    memcpy(reply, conn->handshake->own_hello.bytes, HELLO_BYTES);
    TDM_TRY(mac_compute(conn, ROLE_SERVER, reply + HELLO_BYTES));
    TDM_TRY(handshake_send(conn, reply, sizeof(reply)));
    conn->handshake->wanted_bytes += MAC_BYTES;
    return TDM_OK;
}

/* Checks the MAC that the peer sent after its hello. A client then sends its own MAC. Both sides
 * open the connection. */
static tdm_status handshake_finish(struct tdm__conn *conn)
{
    struct tdm__peer_identity peer = {.pid = 0};
    uint8_t mac[MAC_BYTES];

    TDM_TRY(hello_read(conn, &peer));
    TDM_TRY(mac_check(conn, conn->handshake->input + HELLO_BYTES));
    if (!conn->server) {
        TDM_TRY(mac_compute(conn, ROLE_CLIENT, mac));
        TDM_TRY(handshake_send(conn, mac, sizeof(mac)));
    }
    return conn_open(conn, &peer);
}

/* Returns whether the received bytes begin a request of HTTP. At least VERSION_END bytes must have
 * arrived. */
static bool input_is_http(const struct handshake *handshake)
{
    static const char *const methods[] = {"GET /", "POST /",   "HEAD /",
                                          "PUT /", "DELETE /", "OPTIONS "};

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (memcmp(handshake->input, methods[i], strlen(methods[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Tells a client that speaks HTTP, such as a browser at the port of Ray's dashboard, what this port
 * is. */
static void handshake_refuse_http(const struct tdm__conn *conn)
{
    static const char body[] = "This port of Tandem speaks no HTTP, and wants a proof of the "
                               "cluster's token.\nUse the commands: tandem job, tandem status.\n";
    char reply[512];
    char rest[4096];
    int length = snprintf(reply, sizeof(reply),
                          "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\n"
                          "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                          sizeof(body) - 1, body);

    /* The kernel would discard the reply if the rest of the request were unread at the end. */
    (void)recv(conn->fd, rest, sizeof(rest), MSG_DONTWAIT);
    (void)handshake_send(conn, reply, (size_t)length);
}

/* Checks the protocol version in the peer's hello. A server sends its hello even to a client of
 * another version, so that the client can name both versions. */
static tdm_status handshake_check_version(const struct tdm__conn *conn)
{
    if (conn->server && hello_has_other_version(conn->handshake)) {
        (void)handshake_send(conn, conn->handshake->own_hello.bytes, HELLO_BYTES);
    }
    if (conn->server && input_is_http(conn->handshake)) {
        handshake_refuse_http(conn);
    }
    return hello_check_version(conn);
}

/* ---- TLS -------------------------------------------------------------------------------- */

/* Returns whether the endpoint wants the connection to be encrypted: never on Unix sockets, and in
 * the usual mode only if its bytes leave this machine. */
static bool conn_wants_tls(const struct tdm__conn *conn)
{
    enum tdm__tls_mode mode = conn->rpc->tcp.tls_mode;

    return !conn->local && (mode == TDM__TLS_ON ||
                            (mode == TDM__TLS_AUTO && !tdm__socket_is_on_this_machine(conn->fd)));
}

/* Puts TLS on the connection's socket. Its handshake continues in handshake_step_tls(). */
static tdm_status conn_add_tls(struct tdm__conn *conn)
{
    struct tdm__rpc *rpc = conn->rpc;

    if (rpc->tls_context == NULL) {
        TDM_TRY(tdm__tls_context_create(rpc->token, &rpc->tls_context));
    }
    TDM_TRY(tdm__tls_create(rpc->tls_context, conn->fd, conn->server, &conn->tls));
    conn->tls_is_starting = true;
    return TDM_OK;
}

/* Server: finds out by the first byte, which is not taken, whether the client speaks TLS. */
static tdm_status handshake_detect_tls(struct tdm__conn *conn)
{
    uint8_t first = 0;

    if (recv(conn->fd, &first, 1, MSG_PEEK) == 1 && first == TDM__TLS_FIRST_BYTE) {
        return conn_add_tls(conn);
    }
    return TDM_OK;
}

/* Server: fails if the client sends plain text where the endpoint wants TLS. */
static tdm_status handshake_check_plain(const struct tdm__conn *conn)
{
    if (!conn->server || conn->tls != NULL || !conn_wants_tls(conn)) {
        return TDM_OK;
    }
    return tdm__fail(TDM_E_AUTH,
                     "%s sends plain text, and this process wants TLS: start both sides with the "
                     "same --tls, or set TANDEM_TLS for both",
                     conn->label);
}

/* Client: sends the hello. */
static tdm_status handshake_send_hello(const struct tdm__conn *conn)
{
    return handshake_send(conn, conn->handshake->own_hello.bytes, HELLO_BYTES);
}

/* Continues the handshake of TLS. After its success a client sends its hello. */
static tdm_status handshake_step_tls(struct tdm__conn *conn)
{
    bool is_done = false;

    TDM_TRY(tdm__tls_handshake(conn->tls, conn->label, &is_done));
    if (!is_done) {
        return TDM_OK;
    }
    conn->tls_is_starting = false;
    return conn->server ? TDM_OK : handshake_send_hello(conn);
}

/* ---- steps ------------------------------------------------------------------------------ */

tdm_status tdm__handshake_start(struct tdm__conn *conn)
{
    conn->state = CONN_HANDSHAKE;
    tdm__socket_limit_probes(conn->fd);
    TDM_TRY(hello_fill(conn));
    TDM_TRY(tdm__fd_watch_set_events(conn->watch, TDM__READABLE));
    if (conn->server) {
        conn->handshake->wanted_bytes = HELLO_BYTES;
        return TDM_OK;
    }
    conn->handshake->wanted_bytes = HELLO_BYTES + MAC_BYTES;
    if (conn_wants_tls(conn)) {
        TDM_TRY(conn_add_tls(conn));
        return handshake_step_tls(conn);
    }
    return handshake_send_hello(conn);
}

/* Reads at most `wanted` bytes of the handshake, as recv(2) does. */
static ssize_t handshake_recv(const struct tdm__conn *conn, uint8_t *bytes, size_t wanted)
{
    const struct iovec place = {.iov_base = bytes, .iov_len = wanted};

    return conn->tls != NULL ? tdm__tls_read(conn->tls, &place, 1)
                             : recv(conn->fd, bytes, wanted, 0);
}

/* Returns the failure of a handshake whose peer has closed the connection. A server that wants TLS
 * does so without a word, so a client without it is told. */
static tdm_status handshake_closed(const struct tdm__conn *conn)
{
    return tdm__fail(TDM_E_CLOSED, "%s closed the connection during the handshake%s", conn->label,
                     conn->server || conn->local || conn->tls != NULL
                         ? ""
                         : " (this process sends plain text; that one may want TLS: --tls, "
                           "TANDEM_TLS)");
}

tdm_status tdm__handshake_step(struct tdm__conn *conn)
{
    struct handshake *handshake = conn->handshake;
    ssize_t received;

    if (conn->server && !conn->local && conn->tls == NULL && handshake->input_bytes == 0) {
        TDM_TRY(handshake_detect_tls(conn));
    }
    if (conn->tls_is_starting) {
        return handshake_step_tls(conn);
    }
    received = handshake_recv(conn, handshake->input + handshake->input_bytes,
                              handshake->wanted_bytes - handshake->input_bytes);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
        return TDM_OK;
    }
    if (received < 0 && errno != ECONNRESET) {
        return tdm__fail_errno(errno, "recv from %s", conn->label);
    }
    if (received <= 0) {
        return handshake_closed(conn);
    }
    handshake->input_bytes += (uint32_t)received;
    if (handshake->input_bytes >= VERSION_END) {
        TDM_TRY(handshake_check_version(conn));
        TDM_TRY(handshake_check_plain(conn));
    }
    if (handshake->input_bytes < handshake->wanted_bytes) {
        return TDM_OK;
    }
    return handshake->wanted_bytes == HELLO_BYTES ? handshake_reply_hello(conn)
                                                  : handshake_finish(conn);
}
