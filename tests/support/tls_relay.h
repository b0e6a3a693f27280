/* tls_relay.h - a relay between two endpoints on TCP, which records, changes or adds bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_TLS_RELAY_H
#define TDM_TESTS_SUPPORT_TLS_RELAY_H

#include "tests/support/rpc_pair.h"

#include <stdio.h>

enum { TLS_RELAY_RECORD_BYTES = 1 << 16 };

/* One direction of a relay. */
struct tls_relay_way {
    int from;                               /* Socket to read from; -1 before it exists. */
    int to;                                 /* Socket to write to. */
    uint8_t record[TLS_RELAY_RECORD_BYTES]; /* Bytes that have passed. */
    size_t recorded;                        /* Number of bytes that have passed. */
    size_t flip_at; /* Number of the byte in which one bit is flipped; SIZE_MAX: none. */
    /* Bytes whose last one is replaced wherever they pass; NULL: none. */
    const uint8_t *pattern;
    size_t pattern_bytes; /* Number of bytes of `pattern`. */
    uint8_t replacement;  /* What the last byte is replaced by. */
    uint32_t replaced;    /* How often it was replaced. */
};

/* A client that reaches a server only through a relay, all on TCP. */
struct tls_relay {
    struct rpc_pair pair;           /* The two processes: 0 is the client, 1 the server. */
    char server_address[64];        /* Address of the server. */
    char address[64];               /* Address of the relay. */
    int listener;                   /* Socket at which the relay listens. */
    struct tls_relay_way to_server; /* Bytes from the client to the server. */
    struct tls_relay_way to_client; /* Bytes from the server to the client. */
    char log_path[64];              /* File with the lines that were logged. */
    int log;                        /* Descriptor of that file. */
    const uint32_t *value;          /* Value for which tls_relay_run_until() waits. */
    uint32_t goal;                  /* What that value must reach. */
};

/* Starts a server with this mode of TLS on 127.0.0.1, a relay to it, and a log. */
void tls_relay_open(struct tls_relay *relay, enum tdm__tls_mode server_mode);
void tls_relay_close(struct tls_relay *relay);
/* Connects the client, which always uses TLS, through the relay. */
struct tdm__conn *tls_relay_connect(struct tls_relay *relay);
/* Passes bytes on until *value >= goal; fails the test after PAIR_WAIT_MS. */
void tls_relay_run_until(struct tls_relay *relay, const uint32_t *value, uint32_t goal);
/* Calls "echo" through the relay and waits for the reply. Returns its status. */
tdm_status tls_relay_echo(struct tls_relay *relay, struct tdm__conn *conn);
/* Returns the number of log lines that contain `text`. */
uint32_t tls_relay_count_log(const struct tls_relay *relay, const char *text);
/* Connects a socket to the server and sends bytes, without the relay. The caller closes it. */
int tls_relay_send_raw(struct tls_relay *relay, const void *bytes, size_t count);
/* Runs the server until it has closed such a socket. */
void tls_relay_expect_end(struct tls_relay *relay, int fd);

#endif
