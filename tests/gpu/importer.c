/* importer.c - orders over a socket pair, descriptors by SCM_RIGHTS. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "importer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPLY_TIMEOUT_S = 60 };

struct order {
    enum importer_order order;
    size_t size_bytes;
};

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* ---- the second process ----------------------------------------------------------------- */

static struct {
    bool opened;
    struct driver_block shadow;
    struct driver_block serving;
} self;

static bool map_shadow(size_t size_bytes, int fd, double *seconds_out)
{
    double begun = driver_seconds();

    TRY(driver_block_import(&self.shadow, size_bytes, fd));
    TRY(driver_block_map(&self.shadow));
    *seconds_out = driver_seconds() - begun;
    return driver_pattern_check(self.shadow.address, size_bytes);
}

static bool make_serving_block(size_t size_bytes)
{
    TRY(driver_block_create(&self.serving, size_bytes, CU_HANDLE_POSIX_FD));
    return driver_block_map(&self.serving);
}

static bool exchange_shadow(double *seconds_out)
{
    double begun = driver_seconds();

    TRY(driver_block_unmap(&self.serving));
    TRY(driver_block_release(&self.serving));
    TRY(driver_block_unmap(&self.shadow));
    self.serving.handle = self.shadow.handle;
    self.shadow.handle = 0;
    TRY(driver_block_map(&self.serving));
    *seconds_out = driver_seconds() - begun;
    TRY(driver_block_destroy(&self.shadow));
    return driver_pattern_check(self.serving.address, self.serving.size_bytes);
}

static bool carry_out_order(const struct order *order, int fd, double *seconds_out)
{
    if (!self.opened) {
        TRY(driver_open());
        self.opened = true;
    }
    switch (order->order) {
    case IMPORTER_START:
        return true;
    case IMPORTER_MAP:
        return map_shadow(order->size_bytes, fd, seconds_out);
    case IMPORTER_CHECK:
        return driver_pattern_check(self.shadow.address, order->size_bytes);
    case IMPORTER_DROP:
        return driver_block_destroy(&self.shadow);
    case IMPORTER_SERVE:
        return make_serving_block(order->size_bytes);
    case IMPORTER_FLIP:
        return exchange_shadow(seconds_out);
    case IMPORTER_STOP_SERVING:
        return driver_block_destroy(&self.serving);
    }
    return driver_fail("order %d is none", (int)order->order);
}

/* False at the end of the stream. */
static bool receive_order(int socket, struct order *order_out, int *fd_out)
{
    struct iovec piece = {order_out, sizeof(*order_out)};
    union control control;
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header;

    *fd_out = -1;
    TRY(recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) == (ssize_t)sizeof(*order_out));
    header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        memcpy(fd_out, CMSG_DATA(header), sizeof(*fd_out));
    }
    return true;
}

_Noreturn static void importer_main(int socket)
{
    struct order order;
    int fd;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (receive_order(socket, &order, &fd)) {
        struct importer_reply reply = {.seconds = 0};

        reply.done = carry_out_order(&order, fd, &reply.seconds);
        (void)snprintf(reply.failure, sizeof(reply.failure), "%s", driver_failure());
        if (fd >= 0) {
            (void)close(fd);
        }
        if (send(socket, &reply, sizeof(reply), MSG_NOSIGNAL) != (ssize_t)sizeof(reply)) {
            break;
        }
    }
    _exit(0);
}

/* ---- the first process's side ----------------------------------------------------------- */

bool importer_start(struct importer *importer)
{
    struct timeval limit = {.tv_sec = REPLY_TIMEOUT_S};
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        perror("socketpair");
        return false;
    }
    importer->pid = fork();
    if (importer->pid == 0) {
        (void)close(ends[0]);
        importer_main(ends[1]);
    }
    (void)close(ends[1]);
    if (importer->pid < 0) {
        perror("fork");
        (void)close(ends[0]);
        return false;
    }
    importer->fd = ends[0];
    (void)setsockopt(importer->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return true;
}

bool importer_order(struct importer *importer, enum importer_order order, size_t size_bytes, int fd,
                    struct importer_reply *reply_out)
{
    struct order sent = {order, size_bytes};
    struct iovec piece = {&sent, sizeof(sent)};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    union control control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS}};

    if (fd >= 0) {
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
    }
    if (sendmsg(importer->fd, &message, MSG_NOSIGNAL) != (ssize_t)sizeof(sent) ||
        recv(importer->fd, reply_out, sizeof(*reply_out), MSG_WAITALL) !=
            (ssize_t)sizeof(*reply_out)) {
        return driver_fail("the importer did not reply to order %d within %d s", (int)order,
                           REPLY_TIMEOUT_S);
    }
    return reply_out->done || driver_fail("in the importer: %s", reply_out->failure);
}

void importer_stop(struct importer *importer)
{
    (void)close(importer->fd);
    (void)kill(importer->pid, SIGKILL);
    (void)waitpid(importer->pid, NULL, 0);
}
