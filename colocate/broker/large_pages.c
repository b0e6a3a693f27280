/* large_pages.c - whether the kernel backs shared memory with large pages, and how to request
 * them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/broker/large_pages.h"

#include "runtime/older_libc.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Size of a large page in bytes. */
#define LARGE_PAGE_BYTES ((size_t)2 << 20)
/* Folder of the kernel's settings for large pages. */
#define SETTINGS "/sys/kernel/mm/transparent_hugepage/"

/* Values that the kernel uses in its settings for large pages. */
static const char *const words[] = {"always", "within_size", "advise", "never",
                                    "deny",   "force",       "inherit"};

const char *tdm__large_pages_parse_setting(const char *path)
{
    const char *found = "unknown";
    FILE *file = fopen(path, "re");
    char text[128] = "";

    if (file == NULL) {
        return found;
    }
    (void)fgets(text, sizeof(text), file);
    (void)fclose(file);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        char chosen[32];

        (void)snprintf(chosen, sizeof(chosen), "[%s]", words[i]);
        if (strstr(text, chosen) != NULL) {
            found = words[i];
        }
    }
    return found;
}

/* Newer kernels have a setting for each page size, which usually inherits the general setting. */
const char *tdm__large_pages_setting(void)
{
    const char *setting = tdm__large_pages_parse_setting(SETTINGS "hugepages-2048kB/shmem_enabled");

    return strcmp(setting, "unknown") == 0 || strcmp(setting, "inherit") == 0
               ? tdm__large_pages_parse_setting(SETTINGS "shmem_enabled")
               : setting;
}

const char *tdm__large_pages_advice(void)
{
    return strcmp(tdm__large_pages_setting(), "never") == 0 ? "echo advise > " SETTINGS
                                                              "shmem_enabled"
                                                            : NULL;
}

bool tdm__large_pages_populate(int fd, size_t size_bytes)
{
    size_t range_bytes = size_bytes + LARGE_PAGE_BYTES;
    char *range;
    char *aligned;

    if (strcmp(tdm__large_pages_setting(), "advise") != 0) {
        return false;
    }
    range = mmap(NULL, range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        return false;
    }
    aligned = range + (LARGE_PAGE_BYTES - (uintptr_t)range % LARGE_PAGE_BYTES) % LARGE_PAGE_BYTES;
    if (mmap(aligned, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
        MAP_FAILED) {
        (void)madvise(aligned, size_bytes, MADV_HUGEPAGE);
        (void)madvise(aligned, size_bytes, MADV_POPULATE_WRITE);
    }
    (void)munmap(range, range_bytes);
    return true;
}
