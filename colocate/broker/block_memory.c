/* block_memory.c - the memfd that represents a block's physical memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/broker/block_memory.h"

#include "colocate/broker/large_pages.h"
#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Sets the size of a memfd, allocates all its pages and seals it. Returns false with errno on
 * failure. */
static bool block_memory_populate(int fd, size_t size_bytes)
{
    if (ftruncate(fd, (off_t)size_bytes) != 0) {
        return false;
    }
    (void)tdm__large_pages_populate(fd, size_bytes);
    return fallocate(fd, 0, 0, (off_t)size_bytes) == 0 &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

/* Returns the kernel's estimate of how many bytes the host can provide without swapping; SIZE_MAX
 * if the kernel does not report it. */
static size_t host_available_bytes(void)
{
    static const char field[] = "MemAvailable:";
    FILE *file = fopen("/proc/meminfo", "re");
    size_t available_bytes = SIZE_MAX;
    char line[128];

    if (file == NULL) {
        return available_bytes;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, field, sizeof(field) - 1) == 0) {
            available_bytes = (size_t)strtoull(line + sizeof(field) - 1, NULL, 10) * 1024;
            break;
        }
    }
    (void)fclose(file);
    return available_bytes;
}

/* Fails with TDM_E_NOMEM if the host does not have `size_bytes` bytes of memory available. Without
 * the check the kernel would allocate a memfd up to the last page and then kill processes. */
static tdm_status check_host(uint32_t gpu, size_t size_bytes)
{
    size_t available_bytes = host_available_bytes();

    return size_bytes <= available_bytes
               ? TDM_OK
               : tdm__fail(TDM_E_NOMEM,
                           "the host has no %.1f MiB for a block of GPU %u: %.1f MiB are "
                           "available; give the virtual GPUs less memory",
                           (double)size_bytes / (1 << 20), gpu,
                           (double)available_bytes / (1 << 20));
}

tdm_status tdm__block_memory_create(uint32_t gpu, size_t size_bytes, int *fd_out)
{
    int fd;

    TDM_TRY(check_host(gpu, size_bytes));
    fd = memfd_create("tandem-block", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return tdm__fail_errno(errno, "memfd_create for a block of GPU %u", gpu);
    }
    if (!block_memory_populate(fd, size_bytes)) {
        int error_number = errno;

        (void)close(fd);
        return tdm__fail_errno(error_number, "the host has no %.1f MiB for a block of GPU %u",
                               (double)size_bytes / (1 << 20), gpu);
    }
    *fd_out = fd;
    return TDM_OK;
}
