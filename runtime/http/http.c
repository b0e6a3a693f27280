/* http.c - a small HTTP server by which other programs read metrics and state of this process. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The server wraps libevent's evhttp. libevent calls on_request() inside of its own loop, where
 * the loop must not run again.  So on_request() only puts the request into the list `requests`
 * and sets a timer for now; the timer's callback http_dispatch_requests() calls the handler.
 *
 * States of a request: arrived; dispatched, when the handler has it; and freed, by
 * tdm__http_reply() or by tdm__http_close().  If the client closes its connection before the
 * reply, `event` becomes NULL and the reply is dropped.
 *
 * Security: over TCP the Host header is checked against DNS rebinding; over a Unix socket the
 * mode 0600 restricts access.  Headers, bodies and idle times are limited.  Clients prove nothing,
 * so the server accepts none while the process has only the descriptors that are kept for others.
 *
 * All functions need the loop lock; the handler runs in a callback of the loop. */
#include "runtime/http/http.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/descriptors.h"
#include "runtime/error.h"
#include "runtime/signals.h"
#include "runtime/socket.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Limits of an HTTP request: bytes of the headers and of the body, and seconds without progress.
 * BACKLOG is the queue length of listen(2). */
enum { HEADERS_BYTES_MAX = 16 << 10, BODY_BYTES_MAX = 4096, TIMEOUT_S = 10, BACKLOG = 16 };
/* Number of descriptors that connections to the server never take, and milliseconds for which it
 * accepts none if no more than these are left. */
enum { FDS_RESERVED = 2 * TDM__DESCRIPTORS_RESERVED, SHORTAGE_PAUSE_MS = 200 };

/* An HTTP server, owned by the code that opened it; guarded by the loop lock. */
struct tdm__http_server {
    struct evhttp *server;    /* HTTP server of libevent; owned. */
    tdm__http_handler_fn *fn; /* Callback that handles the requests. */
    void *arg;                /* First argument of `fn`. */
    char address[160];        /* Address at which the server listens, with the actual port. */
    /* Host of the TCP address as the user gave it; "" over a Unix socket. */
    char host[128];
    char path[128]; /* Path of the server's Unix socket, removed at the end; "" over TCP. */
    struct evconnlistener *listener;    /* Listener of the server; owned by `server`. */
    struct tdm__timer *pause_timer;     /* Timer that makes the server accept again; owned. */
    struct tdm__http_request *requests; /* List of requests without a reply; owned. */
    /* Timer that calls http_dispatch_requests() outside of libevent's callbacks; owned. */
    struct tdm__timer *timer;
};

/* An HTTP request that has no reply yet, an entry in the list of its server. */
struct tdm__http_request {
    struct tdm__http_request *next; /* Next request without a reply of the same server. */
    struct tdm__http_server *http;  /* Server that received the request; borrowed. */
    /* Request of libevent; NULL once the connection has closed. */
    struct evhttp_request *event;
    /* Connection of libevent that brought the request, only for comparison. */
    struct evhttp_connection *connection;
    /* True once the handler has been called for the request. */
    bool dispatched;
};

/* ---- accepting -------------------------------------------------------------------------- */

/* Stops accepting clients for a while if the process has few descriptors left. */
static void http_check_descriptors(struct tdm__http_server *http)
{
    if (tdm__descriptors_are_few(FDS_RESERVED) &&
        tdm__timer_set(http->pause_timer, tdm__deadline_after(SHORTAGE_PAUSE_MS)) == TDM_OK) {
        (void)evconnlistener_disable(http->listener);
    }
}

/* Timer: accepts clients again, unless descriptors are still short. */
static void on_pause_end(void *arg)
{
    struct tdm__http_server *http = arg;

    (void)evconnlistener_enable(http->listener);
    http_check_descriptors(http);
}

/* Called by libevent for each accepted client, whose connection it then creates as usual (NULL). */
static struct bufferevent *on_client(struct event_base *base, void *arg)
{
    (void)base;
    http_check_descriptors(arg);
    return NULL;
}

/* Accepts clients from the listening socket `fd`, which the server owns if it returns true. */
static bool http_accept_from(struct tdm__http_server *http, int fd)
{
    struct evhttp_bound_socket *bound = evhttp_accept_socket_with_handle(http->server, fd);

    if (bound == NULL) {
        return false;
    }
    http->listener = evhttp_bound_socket_get_listener(bound);
    evhttp_set_bevcb(http->server, on_client, http);
    return true;
}

/* ---- check of the Host header ----------------------------------------------------------- */

/* Returns true if `host` is an IPv4 address, or an IPv6 address in brackets. */
static bool is_address(const char *host)
{
    struct in6_addr ignored;
    char bare[128];
    size_t length = strlen(host);

    if (host[0] == '[' && length > 2 && length < sizeof(bare) && host[length - 1] == ']') {
        (void)snprintf(bare, sizeof(bare), "%.*s", (int)(length - 2), host + 1);
        return inet_pton(AF_INET6, bare, &ignored) == 1;
    }
    return inet_pton(AF_INET, host, &ignored) == 1;
}

/* Returns true if the server accepts requests with this Host header.  `header` is NULL if the
 * request has no such header; over a Unix socket every header is accepted. */
static bool host_is_allowed(const struct tdm__http_server *http, const char *header)
{
    const char *colon = header == NULL ? NULL : strrchr(header, ':');
    char host[128];

    if (http->host[0] == '\0') {
        return true;
    }
    if (header == NULL || strlen(header) >= sizeof(host)) {
        return false;
    }
    if (colon != NULL && strchr(colon, ']') != NULL) {
        colon = NULL; /* The colon belongs to an IPv6 address. */
    }
    (void)snprintf(host, sizeof(host), "%.*s",
                   (int)(colon == NULL ? strlen(header) : (size_t)(colon - header)), header);
    return is_address(host) || strcmp(host, "localhost") == 0 || strcmp(host, http->host) == 0;
}

/* ---- requests --------------------------------------------------------------------------- */

/* Removes an HTTP request from the list of its server and frees the request. */
static void request_free(struct tdm__http_request *request)
{
    struct tdm__http_request **link = &request->http->requests;

    while (*link != request) {
        link = &(*link)->next;
    }
    *link = request->next;
    free(request);
}

/* Callback of libevent for a closed connection: sets `event` of its requests to NULL, because
 * libevent frees their evhttp_request. */
static void on_connection_closed(struct evhttp_connection *connection, void *arg)
{
    struct tdm__http_server *http = arg;

    for (struct tdm__http_request *request = http->requests; request != NULL;
         request = request->next) {
        if (request->connection == connection) {
            request->event = NULL;
        }
    }
}

/* Callback of the server's timer: passes all requests that have arrived to the handler. */
static void http_dispatch_requests(void *arg)
{
    struct tdm__http_server *http = arg;
    struct tdm__http_request *next;

    for (struct tdm__http_request *request = http->requests; request != NULL; request = next) {
        next = request->next;
        if (request->dispatched) {
            continue;
        }
        request->dispatched = true;
        if (request->event == NULL) {
            request_free(request);
            continue;
        }
        http->fn(http->arg, request,
                 evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request->event)));
    }
}

/* Callback of libevent: checks an HTTP request, adds it to the server's list and sets the timer. */
static void on_request(struct evhttp_request *event, void *arg)
{
    struct tdm__http_server *http = arg;
    struct tdm__http_request *request;
    const char *header = evhttp_find_header(evhttp_request_get_input_headers(event), "Host");

    if (!host_is_allowed(http, header)) {
        evhttp_send_error(event, 403, "Host is not an address");
        return;
    }
    request = calloc(1, sizeof(*request));
    if (request == NULL || evhttp_uri_get_path(evhttp_request_get_evhttp_uri(event)) == NULL) {
        free(request);
        evhttp_send_error(event, HTTP_INTERNAL, NULL);
        return;
    }
    *request = (struct tdm__http_request){.next = http->requests,
                                          .http = http,
                                          .event = event,
                                          .connection = evhttp_request_get_connection(event)};
    http->requests = request;
    evhttp_connection_set_closecb(request->connection, on_connection_closed, http);
    if (tdm__timer_set(http->timer, 0) != TDM_OK) {
        request_free(request);
        evhttp_send_error(event, HTTP_INTERNAL, NULL);
    }
}

void tdm__http_reply(struct tdm__http_request *request, int code, const char *content_type,
                     const void *body, size_t body_bytes)
{
    struct evhttp_request *event = request->event;
    struct evbuffer *buffer;

    request_free(request);
    if (event == NULL) {
        return;
    }
    buffer = evbuffer_new();
    TDM_ASSERT(buffer != NULL);
    (void)evhttp_add_header(evhttp_request_get_output_headers(event), "Content-Type", content_type);
    (void)evhttp_add_header(evhttp_request_get_output_headers(event), "Cache-Control", "no-store");
    if (body_bytes > 0) {
        (void)evbuffer_add(buffer, body, body_bytes);
    }
    evhttp_send_reply(event, code, NULL, buffer);
    evbuffer_free(buffer);
}

/* ---- listening -------------------------------------------------------------------------- */

/* Makes the server listen at the Unix socket `path` with mode 0600. */
static tdm_status listen_unix(struct tdm__http_server *http, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t previous_umask;
    int fd;
    int bound;

    if (strlen(path) >= sizeof(address.sun_path)) { /* `http->path` is at least as long. */
        return tdm__fail(TDM_E_LIMIT, "the path %s is too long for a socket", path);
    }
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    TDM_TRY(tdm__socket_remove_stale(path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    previous_umask = umask(0177);
    bound = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    (void)umask(previous_umask);
    if (bound < 0 || listen(fd, BACKLOG) < 0 || !http_accept_from(http, fd)) {
        tdm_status status = tdm__fail_errno(errno, "listen at %s", path);

        (void)close(fd);
        return status;
    }
    (void)snprintf(http->path, sizeof(http->path), "%s", path);
    (void)snprintf(http->address, sizeof(http->address), "unix:%s", path);
    return TDM_OK;
}

/* Splits "127.0.0.1:9100" or "[::1]:9100".  `host` keeps the brackets of an IPv6 address, `bare`
 * does not.  Returns TDM_E_INVAL if the address is malformed. */
static tdm_status address_split(const char *address, char host[128], char bare[128], char port[8])
{
    const char *colon = strrchr(address, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - address);

    if (colon == NULL || length == 0 || length >= 128 || !tdm__port_is_valid(colon + 1)) {
        return tdm__fail(TDM_E_INVAL,
                         "\"%s\" is neither HOST:PORT, with a port up to 65535, nor unix:/path",
                         address);
    }
    (void)snprintf(host, 128, "%.*s", (int)length, address);
    if (host[0] == '[' && host[length - 1] == ']') {
        (void)snprintf(bare, 128, "%.*s", (int)(length - 2), host + 1);
    } else {
        (void)snprintf(bare, 128, "%s", host);
    }
    (void)snprintf(port, 8, "%s", colon + 1);
    return TDM_OK;
}

/* Binds a new socket to the address `one` alone, not to its successors in the list of
 * getaddrinfo(3), and listens. `address` is for errors only. */
static tdm_status bind_tcp(const struct addrinfo *one, const char *address, int *fd_out)
{
    const int yes = 1;
    int fd = socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, one->ai_addr, one->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        tdm_status status = tdm__fail_errno(errno, "listen at %s", address);

        (void)close(fd);
        return status;
    }
    *fd_out = fd;
    return TDM_OK;
}

/* Makes the server listen at a TCP address and stores the actual address in http->address. A host
 * with several addresses gets the first that can be bound: "localhost" may be an IPv6 address where
 * the kernel has none. The error is that of the last one. */
static tdm_status listen_tcp(struct tdm__http_server *http, const char *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found;
    struct sockaddr_storage bound;
    socklen_t bound_bytes = sizeof(bound);
    char bare[128];
    char port[8];
    tdm_status status;
    int fd;

    TDM_TRY(address_split(address, http->host, bare, port));
    if (getaddrinfo(bare, port, &hints, &found) != 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "%s: no such host", bare);
    }
    fd = -1;
    status = TDM_E_NOT_FOUND;
    for (const struct addrinfo *one = found; one != NULL && status != TDM_OK; one = one->ai_next) {
        status = bind_tcp(one, address, &fd);
    }
    freeaddrinfo(found);
    TDM_TRY(status);
    (void)getsockname(fd, (struct sockaddr *)&bound, &bound_bytes);
    if (getnameinfo((const struct sockaddr *)&bound, bound_bytes, NULL, 0, port, sizeof(port),
                    NI_NUMERICSERV) != 0 ||
        !http_accept_from(http, fd)) {
        (void)close(fd);
        return tdm__fail(TDM_E_IO, "listen at %s failed", address);
    }
    (void)snprintf(http->address, sizeof(http->address), "%s:%s", http->host, port);
    return TDM_OK;
}

tdm_status tdm__http_open(struct tdm__loop *loop, const char *address, tdm__http_handler_fn *fn,
                          void *arg, struct tdm__http_server **http_out)
{
    struct tdm__http_server *http = calloc(1, sizeof(*http));
    tdm_status status;

    tdm__ignore_sigpipe(); /* SIGPIPE would come from libevent, which writes by writev(2). */
    if (http == NULL || (http->server = evhttp_new(tdm__loop_event_base(loop))) == NULL) {
        free(http);
        return tdm__fail(TDM_E_NOMEM, "allocation of an HTTP server failed");
    }
    http->fn = fn;
    http->arg = arg;
    evhttp_set_allowed_methods(http->server, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
    evhttp_set_max_headers_size(http->server, HEADERS_BYTES_MAX);
    evhttp_set_max_body_size(http->server, BODY_BYTES_MAX);
    evhttp_set_timeout(http->server, TIMEOUT_S);
    evhttp_set_gencb(http->server, on_request, http);
    status = tdm__timer_create(loop, http_dispatch_requests, http, &http->timer);
    if (status == TDM_OK) {
        status = tdm__timer_create(loop, on_pause_end, http, &http->pause_timer);
    }
    if (status == TDM_OK) {
        status = strncmp(address, "unix:", 5) == 0 ? listen_unix(http, address + 5)
                                                   : listen_tcp(http, address);
    }
    if (status != TDM_OK) {
        tdm__http_close(http);
        return status;
    }
    *http_out = http;
    return TDM_OK;
}

const char *tdm__http_address(const struct tdm__http_server *http)
{
    return http->address;
}

void tdm__http_close(struct tdm__http_server *http)
{
    if (http == NULL) {
        return;
    }
    evhttp_free(http->server);
    tdm__timer_destroy(http->timer);
    tdm__timer_destroy(http->pause_timer);
    if (http->path[0] != '\0') {
        (void)unlink(http->path);
    }
    while (http->requests != NULL) {
        struct tdm__http_request *request = http->requests;

        http->requests = request->next;
        free(request);
    }
    free(http);
}
