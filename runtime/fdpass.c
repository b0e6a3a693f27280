/* fdpass.c - sends and receives one record with file descriptors over a local socket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/fdpass.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Buffer for the SCM_RIGHTS control message with descriptors, aligned as sendmsg(2) and recvmsg(2)
 * need it. */
union control_buffer {
    /* Memory for the header of the control message and the descriptors. */
    char bytes[CMSG_SPACE(sizeof(int) * TDM__FDPASS_MAX)];
    struct cmsghdr aligned; /* Unused; forces the alignment of the union. */
};

tdm_status tdm__fds_send(int socket_fd, const void *record, size_t record_bytes, const int *fds,
                         uint32_t fds_count)
{
    union control_buffer control_buffer = {{0}};
    struct iovec vector = {(void *)(uintptr_t)record, record_bytes};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    ssize_t sent;

    TDM_ASSERT(fds_count <= TDM__FDPASS_MAX);
    if (fds_count > 0) {
        struct cmsghdr *header;

        message.msg_control = control_buffer.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fds_count);
        header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * fds_count);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * fds_count);
    }
    do {
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return tdm__fail_errno(errno, "sendmsg of %u descriptors", fds_count);
    }
    return TDM_OK;
}

/* Closes descriptors that were received but cannot be handed to the caller. */
static void close_all(const int *fds, size_t fds_count)
{
    for (size_t i = 0; i < fds_count; i++) {
        (void)close(fds[i]);
    }
}

tdm_status tdm__fds_receive(int socket_fd, void *record, size_t *record_bytes, int *fds,
                            uint32_t *fds_count)
{
    union control_buffer control_buffer;
    struct iovec vector = {record, *record_bytes};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control_buffer.bytes,
                             .msg_controllen = sizeof(control_buffer.bytes)};
    int received[TDM__FDPASS_MAX];
    size_t received_count = 0;
    ssize_t received_bytes;

    do {
        received_bytes = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    } while (received_bytes < 0 && errno == EINTR);
    if (received_bytes < 0) {
        return tdm__fail_errno(errno, "recvmsg");
    }
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
            received_count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(received, CMSG_DATA(header), received_count * sizeof(int));
        }
    }
    if (received_count > *fds_count || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        close_all(received, received_count);
        return tdm__fail(TDM_E_PROTOCOL,
                         "received a record with %zu descriptors, expected at most %u",
                         received_count, *fds_count);
    }
    memcpy(fds, received, received_count * sizeof(int));
    *fds_count = (uint32_t)received_count;
    *record_bytes = (size_t)received_bytes;
    return TDM_OK;
}
