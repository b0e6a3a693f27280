/* http.h - a small HTTP server by which other programs read metrics and state of this process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_HTTP_H
#define TDM_RUNTIME_HTTP_H

#include "runtime/loop/loop.h"

#include <stddef.h>

/* An HTTP server for GET and HEAD requests. Its address is "127.0.0.1:9100", "[::1]:0" (the kernel
 * chooses the port) or "unix:/path"; the socket file gets mode 0600, and a stale one is replaced.
 * Over TCP, the Host header of a request must be an IP address, "localhost", or the host of the
 * server's address. So a web page cannot reach the server under a domain name of its own (DNS
 * rebinding). */
struct tdm__http_server;

/* An HTTP request that has arrived. It must get exactly one reply by tdm__http_reply(), now or
 * later. */
struct tdm__http_request;

/* Callback that handles an HTTP request. Runs in a callback of the loop. `path` is the path in the
 * URL without the query, borrowed until the reply. */
typedef void tdm__http_handler_fn(void *arg, struct tdm__http_request *request, const char *path);

/* Opens an HTTP server that listens at `address` and calls fn(arg, ...) for each request. The
 * caller closes the server. */
tdm_status tdm__http_open(struct tdm__loop *loop, const char *address, tdm__http_handler_fn *fn,
                          void *arg, struct tdm__http_server **http_out);
/* Returns the address at which the HTTP server listens, with the actual port; borrowed from the
 * server. */
const char *tdm__http_address(const struct tdm__http_server *http);
/* Closes the HTTP server with all its connections. Requests without a reply are freed and must not
 * be used any more. NULL is allowed. */
void tdm__http_close(struct tdm__http_server *http);

/* Sends the reply to an HTTP request and frees the request. `code` is the HTTP status. The body is
 * copied; `body` may be NULL if `body_bytes` is 0. Only frees the request if its connection has
 * closed. */
void tdm__http_reply(struct tdm__http_request *request, int code, const char *content_type,
                     const void *body, size_t body_bytes);

#endif
