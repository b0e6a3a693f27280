/* relay.c - copies bytes between pairs of connected sockets. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A relay has two ends. Each end is a socket with a buffer of the bytes that were read from the
 * socket and wait to be written to the other end. An end is read only while its buffer is empty, so
 * that a slow reader slows the sender down instead of filling memory here.
 *
 * When a socket has ended (end of file), the relay still writes what that socket sent before, and
 * then ends. A timer runs while any byte waits; each byte written restarts it. Everything runs on
 * the thread of the loop. */
#include "runtime/relay.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sizes and time limits of a relay. */
enum {
    BUFFER_BYTES = 64 << 10, /* Capacity of the buffer of one end. */
    /* Seconds of silence after which the kernel probes a TCP connection. */
    PROBE_AFTER_S = 5,
    PROBE_EVERY_S = 2, /* Seconds between two probes. */
    PROBES_MAX = 3,    /* Number of probes without a reply after which the connection ends. */
    /* Milliseconds after which a TCP connection ends if the peer does not acknowledge its bytes. */
    UNACKNOWLEDGED_MS = 10000
};

/* One end of a relay. */
struct relay_end {
    struct relay *relay;         /* Relay that this end belongs to. */
    struct relay_end *other;     /* The other end of the same relay. */
    int fd;                      /* Socket of this end (owned). */
    struct tdm__tls *tls;        /* TLS on the socket (owned); NULL if its bytes are plain. */
    struct tdm__fd_watch *watch; /* The loop's watch of `fd` (owned); NULL before it exists. */
    unsigned watched_events;     /* Events that `watch` reports now. */
    bool is_at_end;              /* Whether nothing more can be read from `fd`. */
    size_t begin;                /* Offset in `bytes` of the first byte that is not written yet. */
    size_t end;                  /* Offset in `bytes` behind the last byte that was read. */
    uint8_t bytes[BUFFER_BYTES]; /* Bytes from `fd` for the socket of the other end. */
};

/* A relay between two sockets; its set owns it. */
struct relay {
    LIST_ENTRY(relay) link;     /* Links the relay into the list of its set. */
    struct tdm__relays *relays; /* Set that owns the relay. */
    struct relay_end ends[2];   /* The two sockets. */
    struct tdm__timer *timer;   /* Ends the relay when no byte makes progress (owned). */
    bool is_timed;              /* Whether `timer` is set. */
};

struct tdm__relays {
    struct tdm__loop *loop;  /* Event loop on which the relays run (borrowed). */
    int64_t stall_ms;        /* Milliseconds without progress after which a relay ends. */
    bool is_broken_logged;   /* Whether a failure of TLS was logged since bytes arrived last. */
    LIST_HEAD(, relay) list; /* All relays of the set that have not ended. */
};

/* Closes both sockets of the relay and frees the relay. Works for partly created relays. */
static void relay_destroy(struct relay *relay)
{
    LIST_REMOVE(relay, link);
    for (int i = 0; i < 2; i++) {
        tdm__fd_watch_destroy(relay->ends[i].watch);
        tdm__tls_destroy(relay->ends[i].tls);
        if (relay->ends[i].fd >= 0) {
            (void)close(relay->ends[i].fd);
        }
    }
    tdm__timer_destroy(relay->timer);
    free(relay);
}

/* Runs when bytes have waited too long: ends the relay. */
static void relay_on_timer(void *arg)
{
    relay_destroy(arg);
}

/* Returns whether bytes that were read from this end wait to be written to the other end. */
static bool end_has_bytes(const struct relay_end *end)
{
    return end->begin < end->end;
}

/* Logs that TLS has refused what it read: bytes that were changed or added on the way, or the other
 * side's refusal of this one. It is logged once until bytes arrive again, because owners of a set
 * try again and again. */
static void log_broken(const struct relay_end *end)
{
    struct tdm__relays *relays = end->relay->relays;

    if (!relays->is_broken_logged) {
        tdm__log(TDM__WARN, "relay", "a forwarded connection ends, because TLS has failed: %s",
                 tdm__tls_problem(end->tls));
    }
    relays->is_broken_logged = true;
}

/* Reads from the socket of `end` if its buffer is empty. Returns false if the socket has failed. */
static bool end_read(struct relay_end *end)
{
    const struct iovec place = {.iov_base = end->bytes, .iov_len = sizeof(end->bytes)};
    ssize_t got;

    if (end->is_at_end || end_has_bytes(end)) {
        return true;
    }
    got = end->tls != NULL ? tdm__tls_read(end->tls, &place, 1)
                           : recv(end->fd, end->bytes, sizeof(end->bytes), 0);
    if (got < 0 && errno == EPROTO) {
        log_broken(end);
        return false;
    }
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    end->relay->relays->is_broken_logged = false;
    end->begin = 0;
    end->end = (size_t)got;
    end->is_at_end = got == 0;
    return true;
}

/* Returns whether bytes wait to be written to the socket of this end: those that were read from the
 * other end, or what TLS has encrypted of them. */
static bool end_has_output(const struct relay_end *end)
{
    return end_has_bytes(end->other) || (end->tls != NULL && tdm__tls_has_output(end->tls));
}

/* Returns whether TLS may have bytes of this end although its socket is not readable. */
static bool end_has_decrypted(const struct relay_end *end)
{
    return end->tls != NULL && tdm__tls_has_input(end->tls);
}

/* Writes the bytes of `end` to the socket of the other end, as far as that socket accepts them.
 * Sets `*progress` if it accepted any. Returns false if the other socket has failed. */
static bool end_write(struct relay_end *end, bool *progress)
{
    const struct iovec rest = {.iov_base = end->bytes + end->begin,
                               .iov_len = end->end - end->begin};
    struct tdm__tls *tls = end->other->tls;
    ssize_t sent;

    if (!end_has_output(end->other)) {
        return true;
    }
    sent = tls != NULL ? tdm__tls_write(tls, &rest, rest.iov_len > 0 ? 1 : 0)
                       : send(end->other->fd, rest.iov_base, rest.iov_len, MSG_NOSIGNAL);
    if (sent < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    end->begin += (size_t)sent;
    *progress = *progress || sent > 0;
    return true;
}

/* Makes the watch of an end report what the relay needs next: that more can be read, or that the
 * socket accepts the bytes of the other end. Returns false after a failure. */
static bool end_watch_events(struct relay_end *end)
{
    unsigned events = (end->is_at_end || end_has_bytes(end) ? 0U : (unsigned)TDM__READABLE) |
                      (end_has_output(end) ? (unsigned)TDM__WRITABLE : 0U);

    if (!end_has_bytes(end) && !end->is_at_end && end_has_decrypted(end)) {
        tdm__fd_watch_call_again(end->watch);
    }
    if (events == end->watched_events) {
        return true;
    }
    end->watched_events = events;
    return tdm__fd_watch_set_events(end->watch, events) == TDM_OK;
}

/* Sets the timer while bytes wait, and again after each progress. Returns false after a failure. */
static bool relay_time(struct relay *relay, bool progress)
{
    bool has_bytes = end_has_output(&relay->ends[0]) || end_has_output(&relay->ends[1]);

    if (!has_bytes) {
        tdm__timer_clear(relay->timer);
        relay->is_timed = false;
        return true;
    }
    if (relay->is_timed && !progress) {
        return true;
    }
    relay->is_timed = true;
    return tdm__timer_set(relay->timer, tdm__deadline_after(relay->relays->stall_ms)) == TDM_OK;
}

/* Runs when the socket of an end is ready: copies bytes in both directions. */
static void end_on_ready(void *arg, int fd, unsigned ready)
{
    struct relay_end *end = arg;
    struct relay *relay = end->relay;
    bool progress = false;
    bool goes_on = true;

    (void)fd;
    if ((ready & TDM__READABLE) != 0 || end_has_decrypted(end)) {
        goes_on = end_read(end);
    }
    goes_on = goes_on && end_write(end, &progress) && end_write(end->other, &progress);
    for (int i = 0; i < 2; i++) {
        goes_on = goes_on && !(relay->ends[i].is_at_end && !end_has_output(relay->ends[i].other));
    }
    if (!goes_on || !relay_time(relay, progress) || !end_watch_events(&relay->ends[0]) ||
        !end_watch_events(&relay->ends[1])) {
        relay_destroy(relay);
    }
}

/* Makes the kernel end a TCP connection whose other machine is gone. The calls fail for other
 * sockets, which do not need it. */
static void socket_detect_loss(int fd)
{
    static const struct {
        int level;  /* Level of the option. */
        int option; /* Option of setsockopt(2). */
        int value;  /* Value of the option. */
    } settings[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                    {IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_S},
                    {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_S},
                    {IPPROTO_TCP, TCP_KEEPCNT, PROBES_MAX},
                    {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS}};

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        (void)setsockopt(fd, settings[i].level, settings[i].option, &settings[i].value,
                         sizeof(settings[i].value));
    }
}

/* Makes a socket non-blocking and watches it for bytes. */
static tdm_status end_open(struct tdm__loop *loop, struct relay_end *end, int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        return tdm__fail_errno(errno, "fcntl of a relayed socket");
    }
    socket_detect_loss(fd);
    end->watched_events = TDM__READABLE;
    return tdm__fd_watch_create(loop, fd, TDM__READABLE, end_on_ready, end, &end->watch);
}

tdm_status tdm__relays_create(struct tdm__loop *loop, int64_t stall_ms,
                              struct tdm__relays **relays_out)
{
    struct tdm__relays *relays = calloc(1, sizeof(*relays));

    if (relays == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a set of relays");
    }
    relays->loop = loop;
    relays->stall_ms = stall_ms;
    LIST_INIT(&relays->list);
    *relays_out = relays;
    return TDM_OK;
}

void tdm__relays_destroy(struct tdm__relays *relays)
{
    while (relays != NULL && !LIST_EMPTY(&relays->list)) {
        relay_destroy(LIST_FIRST(&relays->list));
    }
    free(relays);
}

tdm_status tdm__relays_add(struct tdm__relays *relays, int first, struct tdm__tls *tls, int second)
{
    struct relay *relay = calloc(1, sizeof(*relay));
    const int fds[2] = {first, second};
    tdm_status status;

    if (relay == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a relay");
    }
    relay->relays = relays;
    LIST_INSERT_HEAD(&relays->list, relay, link);
    for (int i = 0; i < 2; i++) {
        relay->ends[i].relay = relay;
        relay->ends[i].other = &relay->ends[1 - i];
        relay->ends[i].fd = -1;
    }
    status = tdm__timer_create(relays->loop, relay_on_timer, relay, &relay->timer);
    for (int i = 0; i < 2 && status == TDM_OK; i++) {
        status = end_open(relays->loop, &relay->ends[i], fds[i]);
    }
    if (status != TDM_OK) {
        relay_destroy(relay);
        return status;
    }
    relay->ends[0].fd = first;
    relay->ends[0].tls = tls;
    relay->ends[1].fd = second;
    if (tls != NULL) {
        tdm__fd_watch_call_again(relay->ends[0].watch); /* TLS may have read bytes already. */
    }
    return TDM_OK;
}
