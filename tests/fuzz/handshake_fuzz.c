/* handshake_fuzz.c - a peer without the token cannot finish the handshake, whatever it sends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/rpc/handshake.h"
#include "runtime/rpc/internal.h"
#include "runtime/rpc/protocol.h"
#include "runtime/rpc/rpc.h"
#include "tests/fuzz/fuzz.h"

#include <endian.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUNDS_MAX = 20 };

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    (void)incoming;
    TDM_ASSERT(false); /* No peer has been authenticated. */
}

/* Sends the input. A version of 0 in its hello is replaced by the version of this build, which the
 * inputs cannot know. */
static bool send_input(int fd, const uint8_t *data, size_t size)
{
    enum { VERSION_AT = 12 };
    uint32_t version = htole32(tdm__protocol_version());
    uint8_t hello[HELLO_BYTES];
    size_t hello_bytes = size < sizeof(hello) ? size : sizeof(hello);
    static const uint8_t zero[sizeof(version)];

    memcpy(hello, data, hello_bytes);
    if (hello_bytes == sizeof(hello) && memcmp(hello + VERSION_AT, zero, sizeof(version)) == 0) {
        memcpy(hello + VERSION_AT, &version, sizeof(version));
    }
    return write(fd, hello, hello_bytes) == (ssize_t)hello_bytes &&
           write(fd, data + hello_bytes, size - hello_bytes) == (ssize_t)(size - hello_bytes);
}

/* The first byte of the input selects the role of the fuzzed peer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t token[TDM__TOKEN_BYTES] = {1};
    struct tdm__peer_identity self = {.kind = TDM__PEER_DAEMON, .pid = 1, .name = "fuzz"};
    struct tdm__conn *conn;
    struct tdm__loop *loop;
    struct tdm__rpc *rpc;
    int fds[2];

    if (size == 0) {
        return 0;
    }
    fuzz_be_quiet();
    TDM_ASSERT(tdm__loop_create(&loop) == TDM_OK);
    TDM_ASSERT(tdm__rpc_create(loop, &self, token, &rpc) == TDM_OK);
    TDM_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    tdm__rpc_set_call_handler(rpc, serve, NULL);
    TDM_ASSERT(tdm__rpc_adopt(rpc, fds[0], (data[0] & 1) != 0, &conn) == TDM_OK);
    tdm__conn_retain(conn);
    if (send_input(fds[1], data + 1, size - 1)) {
        (void)shutdown(fds[1], SHUT_WR);
    }
    for (int i = 0; i < ROUNDS_MAX && conn->state != CONN_ENDED; i++) {
        (void)tdm__loop_run(loop, NULL, NULL, tdm__clock_ms());
        TDM_ASSERT(conn->state != CONN_OPEN);
    }
    tdm__rpc_destroy(rpc);
    tdm__conn_release(conn);
    (void)close(fds[1]);
    tdm__loop_destroy(loop);
    return 0;
}
