/* handshake.h - authenticates the two ends of a new connection. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_HANDSHAKE_H
#define TDM_RUNTIME_RPC_HANDSHAKE_H

#include "runtime/rpc/hello.h"
#include "runtime/rpc/types.h"

/* Limits of a handshake. */
enum {
    /* Milliseconds within which a peer must complete the handshake. */
    HANDSHAKE_MS = 5000,
    MAC_BYTES = 32 /* Bytes of a MAC (HMAC-SHA256) of the handshake. */
};
/* Bytes of a hello message as sent. */
struct hello {
    uint8_t bytes[HELLO_BYTES]; /* The bytes of a struct wire_hello. */
};

/* State of a handshake in progress, owned by its connection. */
struct handshake {
    struct hello own_hello;  /* Hello message that this process sends. */
    struct hello peer_hello; /* Hello message that the peer sent. */
    /* Bytes received from the peer: its hello, then its MAC. */
    uint8_t input[HELLO_BYTES + MAC_BYTES];
    uint32_t input_bytes; /* Number of valid bytes in `input`. */
    /* Number of bytes in `input` that the next step of the handshake needs. Nothing beyond them is
     * read before the peer is authenticated. */
    uint32_t wanted_bytes;
};

/* Starts the handshake of a connection: prepares this process's hello, which a client sends at
 * once. */
tdm_status tdm__handshake_start(struct tdm__conn *conn);
/* Reads available bytes from the connection's socket and continues the handshake. If it returns
 * TDM_OK and the state is CONN_OPEN, the peer is authenticated. */
tdm_status tdm__handshake_step(struct tdm__conn *conn);

#endif
