/* tls.h - TLS between processes that know the cluster's token, and to servers with certificates. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_TLS_H
#define TDM_RUNTIME_TLS_H

#include "runtime/token.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <tandem/error.h>

/* This module is the only one that uses OpenSSL's libssl. Between processes of a cluster there are
 * no certificates, and TLS is 1.3: both sides derive a key from the token by HKDF, and TLS 1.3
 * agrees on the keys of each connection with that pre-shared key and an exchange of ephemeral keys
 * (X25519). So a recorded connection stays unreadable, even to one who learns the token later. */

/* On which TCP connections a process uses TLS. Unix sockets never use it. The values travel in
 * messages. */
enum tdm__tls_mode {
    TDM__TLS_AUTO, /* On all connections with other machines; those may not be plain text. */
    TDM__TLS_ON,   /* On all connections; none may be plain text. */
    TDM__TLS_OFF,  /* On those that the other side encrypts. */
    TDM__TLS_MODES /* Number of modes. */
};
/* Reads a mode from its name "auto", "on" or "off". Returns TDM_E_INVAL, with `source` as the name
 * of the option, for another text. */
tdm_status tdm__tls_mode_parse(const char *source, const char *text, enum tdm__tls_mode *mode_out);
/* Stores the mode that the environment variable TANDEM_TLS names; TDM__TLS_AUTO if it is not set.
 */
tdm_status tdm__tls_mode_of_environment(enum tdm__tls_mode *mode_out);

/* What all TLS connections of an endpoint share. One thread uses it. */
struct tdm__tls_context;
/* Creates a context with the key of the token, which is copied. */
tdm_status tdm__tls_context_create(const uint8_t token[TDM__TOKEN_BYTES],
                                   struct tdm__tls_context **context_out);
/* Files in PEM format for TLS with a server that has a certificate. */
struct tdm__tls_files {
    const char
        *authorities; /* Certificates of the authorities to trust; NULL: those of the system. */
    const char *certificate; /* This client's certificate and its chain; NULL without one. */
    const char *key;         /* Private key of `certificate`; NULL without one. */
};
/* Creates a context for connections to servers with certificates, by TLS 1.2 or 1.3. The files are
 * read now. Returns TDM_E_INVAL for one that cannot be read or does not fit the others. */
tdm_status tdm__tls_context_create_client(const struct tdm__tls_files *files,
                                          struct tdm__tls_context **context_out);
/* Clears the key and frees the context. No handshake of its connections may follow. NULL is
 * allowed. */
void tdm__tls_context_destroy(struct tdm__tls_context *context);

/* Bytes of a text that belongs to one TLS connection (tdm__tls_binding()), and the first byte of
 * what a client of TLS sends. */
enum { TDM__TLS_BINDING_BYTES = 32, TDM__TLS_FIRST_BYTE = 0x16 };

/* TLS on one socket. One thread uses it; no function blocks. */
struct tdm__tls;
/* Creates TLS on the connected non-blocking socket `fd`, which is borrowed. `server` is true on the
 * side that was connected to. The context must outlive the handshake. */
tdm_status tdm__tls_create(struct tdm__tls_context *context, int fd, bool server,
                           struct tdm__tls **tls_out);
/* Demands a certificate for the host name or IP address `host`, before the handshake. Every
 * connection of a context of tdm__tls_context_create_client() needs this call. */
tdm_status tdm__tls_expect_host(struct tdm__tls *tls, const char *host);
/* Frees the TLS state, not the socket. NULL is allowed. */
void tdm__tls_destroy(struct tdm__tls *tls);
/* Makes the TLS state use another descriptor of its socket. */
void tdm__tls_set_fd(struct tdm__tls *tls, int fd);
/* Continues the handshake; `*done_out` tells whether it has succeeded, else it goes on when the
 * socket is readable. Returns TDM_E_AUTH if the other side does not know the token, or has no
 * certificate that is trusted for its host, TDM_E_PROTOCOL if it does not speak TLS 1.3, and
 * TDM_E_CLOSED if it has ended the connection. `peer` names it in errors. */
tdm_status tdm__tls_handshake(struct tdm__tls *tls, const char *peer, bool *done_out);
/* Writes a text that only the two ends of this connection have. Fails before the handshake has
 * succeeded. */
tdm_status tdm__tls_binding(struct tdm__tls *tls, uint8_t binding_out[TDM__TLS_BINDING_BYTES]);
/* Reads decrypted bytes into `places`. Returns their number; 0 at the end of the connection; -1
 * with errno EAGAIN if there are none yet, EPROTO if bytes were changed or added on the way
 * (tdm__tls_problem() says more), or the errno of recv(2). */
ssize_t tdm__tls_read(struct tdm__tls *tls, const struct iovec *places, size_t places_count);
/* Returns true if tdm__tls_read() may find something although the socket is not readable. */
bool tdm__tls_has_input(const struct tdm__tls *tls);
/* Encrypts bytes and writes them. Returns the number of bytes that it has taken, which may wait in
 * this object (tdm__tls_has_output()); 0 if the socket is full; -1 with errno if the write failed.
 * Without pieces it writes only what waits. */
ssize_t tdm__tls_write(struct tdm__tls *tls, const struct iovec *pieces, size_t pieces_count);
/* Returns true if encrypted bytes wait for the socket to be writable. */
bool tdm__tls_has_output(const struct tdm__tls *tls);
/* Returns what the last failure was, such as "bad record mac" (borrowed until the next call). */
const char *tdm__tls_problem(const struct tdm__tls *tls);

#endif
