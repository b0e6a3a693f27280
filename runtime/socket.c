/* socket.c - checks before listening at an address: the port number and stale socket files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/socket.h"

#include "runtime/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PORT_DIGITS_MAX = 5, PORT_MAX = 65535 }; /* Most digits of a port, and the highest port. */

bool tdm__port_is_valid(const char *port)
{
    size_t digits = strspn(port, "0123456789");

    return digits > 0 && digits <= PORT_DIGITS_MAX && port[digits] == '\0' &&
           strtoul(port, NULL, 10) <= PORT_MAX;
}

/* Tries to connect the socket `fd` to the Unix socket `path`. Returns 0 if a process listens there,
 * else the error number of connect(2). */
static int socket_connect(int fd, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
}

tdm_status tdm__socket_remove_stale(const char *path)
{
    struct stat file;
    int fd;
    int rc;

    if (lstat(path, &file) != 0) {
        return errno == ENOENT ? TDM_OK : tdm__fail_errno(errno, "lstat %s", path);
    }
    if (!S_ISSOCK(file.st_mode)) {
        return tdm__fail(TDM_E_EXISTS, "%s exists and is not a socket", path);
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return tdm__fail_errno(errno, "socket");
    }
    rc = socket_connect(fd, path);
    (void)close(fd);
    if (rc == 0 || rc == EAGAIN) { /* EAGAIN: a process listens, but its queue is full. */
        return tdm__fail(TDM_E_EXISTS, "a process listens at %s already", path);
    }
    if (rc != ECONNREFUSED) {
        return tdm__fail_errno(rc, "connect to %s, to check whether a process listens there", path);
    }
    return unlink(path) == 0 ? TDM_OK : tdm__fail_errno(errno, "unlink %s", path);
}
