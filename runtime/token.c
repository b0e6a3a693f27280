/* token.c - the secret of a cluster: 32 bytes in a file that only its user can read. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/token.h"

#include "runtime/error.h"

#include <openssl/rand.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes the token to the new file `fd` and closes `fd`. `path` is for errors only. */
static tdm_status write_token(int fd, const uint8_t token[TDM__TOKEN_BYTES], const char *path)
{
    ssize_t written = write(fd, token, TDM__TOKEN_BYTES);
    /* A short write means that the disk is full. */
    int error_number = written < 0 ? errno : ENOSPC;

    if (close(fd) < 0 && written == TDM__TOKEN_BYTES) {
        error_number = errno;
        written = -1;
    }
    return written == TDM__TOKEN_BYTES
               ? TDM_OK
               : tdm__fail_errno(error_number, "writing the token file %s", path);
}

tdm_status tdm__token_create(const char *path, uint8_t token_out[TDM__TOKEN_BYTES])
{
    uint8_t token[TDM__TOKEN_BYTES];
    tdm_status status;
    int fd;

    if (RAND_bytes(token, sizeof(token)) != 1) {
        return tdm__fail(TDM_E_IO, "RAND_bytes: no randomness from the system");
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST) {
        return tdm__fail(TDM_E_EXISTS, "token file %s exists already", path);
    }
    if (fd < 0) {
        return tdm__fail_errno(errno, "token file %s", path);
    }
    status = write_token(fd, token, path);
    if (status != TDM_OK) {
        (void)unlink(path); /* A partial file would be taken for a token. */
        return status;
    }
    memcpy(token_out, token, sizeof(token));
    return TDM_OK;
}

/* Checks the mode of the open token file and reads the token.  `path` is for errors only. */
static tdm_status read_open_token(int fd, const char *path, uint8_t token_out[TDM__TOKEN_BYTES])
{
    uint8_t token[TDM__TOKEN_BYTES + 1];
    struct stat about;
    ssize_t size_bytes;

    if (fstat(fd, &about) < 0) {
        return tdm__fail_errno(errno, "fstat %s", path);
    }
    if ((about.st_mode & 077) != 0) {
        return tdm__fail(TDM_E_AUTH,
                         "token file %s has mode %03o: others may read it; chmod 600 %s", path,
                         (unsigned)about.st_mode & 0777, path);
    }
    size_bytes = read(fd, token, sizeof(token));
    if (size_bytes < 0) {
        return tdm__fail_errno(errno, "read %s", path);
    }
    if (size_bytes != TDM__TOKEN_BYTES) {
        return tdm__fail(TDM_E_AUTH, "token file %s has %zd bytes or more, expected %d", path,
                         size_bytes, (int)TDM__TOKEN_BYTES);
    }
    memcpy(token_out, token, TDM__TOKEN_BYTES);
    return TDM_OK;
}

tdm_status tdm__token_read(const char *path, uint8_t token_out[TDM__TOKEN_BYTES])
{
    tdm_status status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return tdm__fail_errno(errno, "token file %s", path);
    }
    status = read_open_token(fd, path, token_out);
    (void)close(fd);
    return status;
}

/* Reads the file "token" in the directory of the Unix socket `address` ("unix:/path").  A private
 * node keeps its token there.  Returns TDM_E_NOT_FOUND if there is neither that file nor the
 * socket, and TDM_E_AUTH if only the socket is there. */
static tdm_status token_read_beside_socket(const char *address, uint8_t token_out[TDM__TOKEN_BYTES])
{
    const char *socket = address + strlen("unix:");
    const char *slash = strrchr(socket, '/');
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%.*s/token", slash == NULL ? 1 : (int)(slash - socket),
                   slash == NULL ? "." : socket);
    if (access(path, F_OK) < 0 && errno == ENOENT && access(socket, F_OK) == 0) {
        return tdm__fail(TDM_E_AUTH,
                         "no token for the node at %s: there is no %s; set TANDEM_TOKEN_FILE to "
                         "the token file with which the node was started",
                         address, path);
    }
    if (access(path, F_OK) < 0 && errno == ENOENT) {
        return tdm__fail(TDM_E_NOT_FOUND, "no node at %s: there is no %s", address, path);
    }
    return tdm__token_read(path, token_out);
}

tdm_status tdm__token_for_address(const char *address, uint8_t token_out[TDM__TOKEN_BYTES])
{
    const char *token_file = getenv("TANDEM_TOKEN_FILE");

    if (token_file != NULL && token_file[0] != '\0') {
        return tdm__token_read(token_file, token_out);
    }
    if (strncmp(address, "unix:", 5) == 0) {
        return token_read_beside_socket(address, token_out);
    }
    if (strncmp(address, "tcp:", 4) == 0) {
        return tdm__fail(TDM_E_AUTH,
                         "no token for %s: set TANDEM_TOKEN_FILE to the cluster's token file",
                         address);
    }
    return tdm__fail(TDM_E_INVAL,
                     "unknown address \"%s\" of a node: expected unix:/path or tcp:host:port",
                     address);
}
