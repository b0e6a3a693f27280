/* redis_proxy.c - a process between a daemon and Redis, which a test can stop. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/redis_proxy.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS_MAX = 16, PIECE_BYTES = 65536 };

/* Opens a socket that listens at the path, or is connected to it. */
static int open_at(const char *path, bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    rc = listens ? bind(fd, (const struct sockaddr *)&address, sizeof(address))
                 : connect(fd, (const struct sockaddr *)&address, sizeof(address));
    if (rc == 0 && listens) {
        rc = listen(fd, PAIRS_MAX);
    }
    return rc == 0 ? fd : -1;
}

/* Passes what has arrived on one socket to the other. Returns false at the end. */
static bool pass(int from, int to)
{
    static char piece[PIECE_BYTES];
    ssize_t got = recv(from, piece, sizeof(piece), 0);
    ssize_t sent = 0;

    while (got > 0 && sent < got) {
        ssize_t rc = send(to, piece + sent, (size_t)(got - sent), MSG_NOSIGNAL);

        if (rc <= 0) {
            return false;
        }
        sent += rc;
    }
    return got > 0;
}

/* The first socket listens; after it come pairs: a client, and the server's side for that client.
 * Ended pairs keep their place, with descriptor -1. */
_Noreturn static void run(int listener, const char *server)
{
    struct pollfd fds[1 + 2 * PAIRS_MAX] = {{.fd = listener, .events = POLLIN}};
    nfds_t count = 1;

    for (;;) {
        if (poll(fds, count, -1) < 0) {
            _exit(1);
        }
        for (nfds_t i = 1; i < count; i++) {
            nfds_t other = i % 2 == 1 ? i + 1 : i - 1;

            if (fds[i].fd >= 0 && fds[i].revents != 0 && !pass(fds[i].fd, fds[other].fd)) {
                (void)close(fds[i].fd);
                (void)close(fds[other].fd);
                fds[i].fd = fds[other].fd = -1;
            }
        }
        if ((fds[0].revents & POLLIN) != 0 && count + 2 <= 1 + 2 * PAIRS_MAX) {
            fds[count++] = (struct pollfd){.fd = accept(listener, NULL, NULL), .events = POLLIN};
            fds[count++] = (struct pollfd){.fd = open_at(server, false), .events = POLLIN};
        }
    }
}

int redis_proxy_start(struct redis_proxy *proxy, const struct redis_fixture *redis)
{
    const char *server = tdm__redis_embedded_url(redis->server) + strlen("unix://");
    int listener;

    (void)snprintf(proxy->url, sizeof(proxy->url), "unix://%s/proxy", redis->directory);
    listener = open_at(proxy->url + strlen("unix://"), true);
    proxy->pid = listener < 0 ? -1 : fork();
    if (proxy->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(listener, server);
    }
    (void)close(listener);
    return proxy->pid > 0 ? 0 : 1;
}

void redis_proxy_stop(const struct redis_proxy *proxy)
{
    (void)kill(proxy->pid, SIGSTOP);
}

void redis_proxy_continue(const struct redis_proxy *proxy)
{
    (void)kill(proxy->pid, SIGCONT);
}

void redis_proxy_end(struct redis_proxy *proxy)
{
    if (proxy->pid > 0) {
        (void)kill(proxy->pid, SIGKILL);
        (void)waitpid(proxy->pid, NULL, 0);
        proxy->pid = 0;
    }
}
