/* http.h - a small HTTP server for programs that look at this process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_HTTP_H
#define TDM_RUNTIME_HTTP_H

#include "runtime/loop/loop.h"

#include <stddef.h>

/* Answers GET and HEAD, nothing else.  Listens where it is told: "127.0.0.1:9100", "[::1]:0",
 * or "unix:/path" (made 0600; a stale socket is replaced).  Over TCP the Host header must name
 * an address (or "localhost", or the host it was told to listen at), so that no page of a
 * browser reaches it under a name of its own. */
struct tdm__http_server;

/* A question to be answered exactly once, now or later, by tdm__http_reply(). */
struct tdm__http_request;

/* Runs from the loop.  `path` is without the query; borrowed until answered. */
typedef void tdm__http_handler_fn(void *arg, struct tdm__http_request *request, const char *path);

tdm_status tdm__http_open(struct tdm__loop *loop, const char *address, tdm__http_handler_fn *fn,
                          void *arg, struct tdm__http_server **http_out);
/* Where it listens, the port filled in. */
const char *tdm__http_address(const struct tdm__http_server *http);
/* Questions that were not answered go away unanswered.  NULL is allowed. */
void tdm__http_close(struct tdm__http_server *http);

/* Frees the request.  `body` may be NULL. */
void tdm__http_reply(struct tdm__http_request *request, int code, const char *content_type,
                     const void *body, size_t body_bytes);

#endif
