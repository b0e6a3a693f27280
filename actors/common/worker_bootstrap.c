/* worker_bootstrap.c - the record that the daemon passes to a new worker process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/worker_bootstrap.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Packs the bootstrap of a worker. */
static tdm_status bootstrap_pack(tdm_writer *writer, const struct tdm__bootstrap *bootstrap)
{
    struct tdm__bootstrap_message message = {
        .token = {bootstrap->token, sizeof(bootstrap->token)},
        .node = bootstrap->node,
        .node_name = bootstrap->node_name,
        .daemon_address = bootstrap->daemon_address,
        .directory = bootstrap->directory,
        .listen_host = bootstrap->listen_host,
        .gpu_indices = {.count = bootstrap->gpus_count, .items = bootstrap->gpu_indices},
        .spec = tdm__actor_spec_to_message(bootstrap->spec),
        .incarnation = bootstrap->incarnation,
        .unreachable_ms = bootstrap->unreachable_ms};

    tdm__tcp_settings_to_message(&bootstrap->tcp, &message.tcp);
    return tdm__bootstrap_encode(&message, writer);
}

/* Writes all bytes to the memory file `fd` and seals the file. */
static tdm_status memory_file_write(int fd, struct tdm_bytes bytes)
{
    const char *data = bytes.data;
    size_t left = bytes.size_bytes;

    while (left > 0) {
        ssize_t written = write(fd, data, left);

        if (written < 0) {
            return tdm__fail_errno(errno, "writing a memory file of %zu bytes", bytes.size_bytes);
        }
        data += written;
        left -= (size_t)written;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        return tdm__fail_errno(errno, "sealing a memory file");
    }
    return TDM_OK;
}

/* Creates a sealed memory file with the contents `bytes`. */
static tdm_status memory_file_create(struct tdm_bytes bytes, int *fd_out)
{
    int fd = memfd_create("tandem-bootstrap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    tdm_status status;

    if (fd < 0) {
        return tdm__fail_errno(errno, "memfd_create");
    }
    status = memory_file_write(fd, bytes);
    if (status != TDM_OK) {
        (void)close(fd);
        return status;
    }
    *fd_out = fd;
    return TDM_OK;
}

tdm_status tdm__bootstrap_write(const struct tdm__bootstrap *bootstrap, int *fd_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = bootstrap_pack(writer, bootstrap);
    if (status == TDM_OK) {
        status = memory_file_create(tdm_writer_bytes(writer), fd_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Copies a text of the bootstrap to `target`; a text that is too long is cut off. */
static void bootstrap_copy_text(const char *text, char *target, size_t target_bytes)
{
    (void)snprintf(target, target_bytes, "%s", text);
}

/* Parses the bootstrap of a worker; `bootstrap->spec` is set only on TDM_OK. */
static tdm_status bootstrap_parse(const tdm_value *value, struct tdm__bootstrap *bootstrap)
{
    struct tdm__bootstrap_message message;

    TDM_TRY(tdm__wrap(tdm__bootstrap_decode(value, &message),
                      "this worker's bootstrap record is malformed"));
    if (message.token.size_bytes != sizeof(bootstrap->token) ||
        message.gpu_indices.count > TDM__NODE_GPUS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "this worker's bootstrap record is malformed");
    }
    memcpy(bootstrap->token, message.token.data, message.token.size_bytes);
    bootstrap->node = message.node;
    bootstrap_copy_text(message.node_name, bootstrap->node_name, sizeof(bootstrap->node_name));
    bootstrap_copy_text(message.daemon_address, bootstrap->daemon_address,
                        sizeof(bootstrap->daemon_address));
    bootstrap_copy_text(message.directory, bootstrap->directory, sizeof(bootstrap->directory));
    bootstrap_copy_text(message.listen_host, bootstrap->listen_host,
                        sizeof(bootstrap->listen_host));
    TDM_TRY(tdm__tcp_settings_of_message(&message.tcp, &bootstrap->tcp));
    bootstrap->gpus_count = message.gpu_indices.count;
    for (uint32_t i = 0; i < bootstrap->gpus_count; i++) {
        tdm__message_list_read(&message.gpu_indices, i, &bootstrap->gpu_indices[i],
                               sizeof(bootstrap->gpu_indices[i]));
    }
    bootstrap->incarnation = message.incarnation;
    bootstrap->unreachable_ms = message.unreachable_ms;
    return tdm__actor_spec_of_message(&message.spec, &bootstrap->spec);
}

tdm_status tdm__bootstrap_read(int fd, struct tdm__bootstrap *bootstrap_out)
{
    struct tdm__bootstrap bootstrap = {.gpus_count = 0};
    tdm_document *document;
    struct stat about;
    void *bytes;
    tdm_status status;

    if (fstat(fd, &about) < 0 || about.st_size <= 0) {
        return tdm__fail(TDM_E_PROTOCOL, "descriptor %d holds no bootstrap record", fd);
    }
    bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        return tdm__fail_errno(errno, "mapping the bootstrap record");
    }
    status = tdm_document_parse((struct tdm_bytes){bytes, (size_t)about.st_size}, &document);
    (void)munmap(bytes, (size_t)about.st_size);
    TDM_TRY(status);
    status = bootstrap_parse(tdm_document_root(document), &bootstrap);
    tdm_document_destroy(document);
    if (status == TDM_OK) {
        *bootstrap_out = bootstrap;
    }
    return status;
}
