/* encrypted.h - reaches a Redis server by TLS. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_ENCRYPTED_H
#define TDM_REDIS_ENCRYPTED_H

#include "runtime/loop/loop.h"
#include "runtime/redis/address.h"

/* A Redis server that is reached by TLS. Each connection to the Unix socket of this object is
 * encrypted and forwarded to the server. The server must have a certificate for the host name or IP
 * address of its URL, which an authority has signed that the URL or the system names. */
struct tdm__redis_encrypted;

/* Listens at the Unix socket "store.sock" in `directory` for the server at `address`, which is
 * encrypted. Connects to nothing yet, but reads the files of the address. `loop` is borrowed and
 * must outlive the object. `*local_out` is the address at which this process reaches the server:
 * the socket, with the database, user and password of `address`. */
tdm_status tdm__redis_encrypted_open(struct tdm__loop *loop,
                                     const struct tdm__redis_address *address,
                                     const char *directory, struct tdm__redis_address *local_out,
                                     struct tdm__redis_encrypted **encrypted_out);
/* Ends all connections, removes the socket and frees the object. NULL is allowed. */
void tdm__redis_encrypted_close(struct tdm__redis_encrypted *encrypted);

#endif
