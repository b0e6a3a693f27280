/* bootstrap.c - what the daemon hands to a process that is to become an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/bootstrap.h"

#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_value(tdm_writer *writer, const struct tdm__bootstrap *bootstrap)
{
    tdm_write_array(writer, 9);
    tdm_write_bytes(writer, bootstrap->token, sizeof(bootstrap->token));
    tdm_write_bytes(writer, bootstrap->node.bytes, sizeof(bootstrap->node.bytes));
    tdm_write_string(writer, bootstrap->node_name);
    tdm_write_string(writer, bootstrap->daemon_address);
    tdm_write_string(writer, bootstrap->directory);
    tdm_write_string(writer, bootstrap->listen_host);
    tdm_write_array(writer, bootstrap->gpus_count);
    for (uint32_t i = 0; i < bootstrap->gpus_count; i++) {
        tdm_write_uint(writer, bootstrap->gpu_indices[i]);
    }
    tdm__actor_spec_write(writer, bootstrap->spec);
    tdm_write_uint(writer, bootstrap->incarnation);
}

static tdm_status write_all(int fd, struct tdm_bytes bytes)
{
    const char *data = bytes.data;
    size_t left = bytes.size_bytes;

    while (left > 0) {
        ssize_t written = write(fd, data, left);

        if (written < 0) {
            return tdm__fail_errno(errno, "writing a memory file of %zu bytes",
                                   bytes.size_bytes);
        }
        data += written;
        left -= (size_t)written;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        return tdm__fail_errno(errno, "sealing a memory file");
    }
    return TDM_OK;
}

static tdm_status to_memory_file(struct tdm_bytes bytes, int *fd_out)
{
    int fd = memfd_create("tandem-bootstrap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    tdm_status status;

    if (fd < 0) {
        return tdm__fail_errno(errno, "memfd_create");
    }
    status = write_all(fd, bytes);
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
    write_value(writer, bootstrap);
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = to_memory_file(tdm_writer_bytes(writer), fd_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

static void copy_text(const tdm_value *value, char *target, size_t room)
{
    (void)snprintf(target, room, "%s", tdm_value_string(value, ""));
}

static tdm_status read_value(const tdm_value *value, struct tdm__bootstrap *bootstrap)
{
    struct tdm_bytes token = tdm_value_bytes(tdm_value_at(value, 0));
    struct tdm_bytes node = tdm_value_bytes(tdm_value_at(value, 1));
    const tdm_value *gpus = tdm_value_at(value, 6);

    if (tdm_value_count(value) != 9 || token.size_bytes != sizeof(bootstrap->token) ||
        node.size_bytes != sizeof(bootstrap->node.bytes) ||
        tdm_value_count(gpus) > TDM__NODE_GPUS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "this worker's bootstrap record is malformed");
    }
    memcpy(bootstrap->token, token.data, token.size_bytes);
    memcpy(bootstrap->node.bytes, node.data, node.size_bytes);
    copy_text(tdm_value_at(value, 2), bootstrap->node_name, sizeof(bootstrap->node_name));
    copy_text(tdm_value_at(value, 3), bootstrap->daemon_address,
              sizeof(bootstrap->daemon_address));
    copy_text(tdm_value_at(value, 4), bootstrap->directory, sizeof(bootstrap->directory));
    copy_text(tdm_value_at(value, 5), bootstrap->listen_host, sizeof(bootstrap->listen_host));
    bootstrap->gpus_count = tdm_value_count(gpus);
    for (uint32_t i = 0; i < bootstrap->gpus_count; i++) {
        bootstrap->gpu_indices[i] = (uint32_t)tdm_value_uint(tdm_value_at(gpus, i), 0);
    }
    bootstrap->incarnation = (uint32_t)tdm_value_uint(tdm_value_at(value, 8), 0);
    return tdm__actor_spec_read(tdm_value_at(value, 7), &bootstrap->spec);
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
    status = read_value(tdm_document_root(document), &bootstrap);
    tdm_document_destroy(document);
    if (status == TDM_OK) {
        *bootstrap_out = bootstrap;
    }
    return status;
}
