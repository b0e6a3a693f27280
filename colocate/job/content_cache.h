/* content_cache.h - the directory of a node that keeps files of jobs by their content hashes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CONTENT_CACHE_H
#define TDM_COLOCATE_JOB_CONTENT_CACHE_H

#include "runtime/content_hash.h"
#include "runtime/file.h"

#include <stdbool.h>

/* Number of contents that no process uses and that a cache keeps: those used last. */
enum { TDM__CONTENT_CACHE_KEPT = 8 };

/* Contents that a process wants from the cache of its node. */
struct tdm__cache_request {
    const char *node_directory;    /* Path of the node's directory, in which the cache is. */
    const char *path;              /* Path that the contents have elsewhere, for name and errors. */
    bool is_archive;               /* True for a module archive, which is kept unpacked. */
    struct tdm__content_hash hash; /* Hash of the bytes. */
    uint64_t size_bytes;           /* Number of the bytes. */
    /* Callback that gets the bytes if the cache does not have them. `*bytes_out` stays valid until
     * the caller of tdm__content_cache_get() releases it. */
    tdm_status (*fetch)(void *arg, struct tdm_bytes *bytes_out);
    void *arg; /* First argument of `fetch`. */
};

/* Contents in the cache. They stay there while the lock is held. */
struct tdm__cached_content {
    /* Path of the file, which has the name of the original, or of the folder with the unpacked
     * archive. */
    char path[TDM__PATH_BYTES];
    int lock_fd; /* Descriptor of the lock, owned. Closed when the process ends at the latest. */
};

/* Finds contents in the cache of the node and checks their hash, or fetches them, checks them, and
 * puts them there. At most one process of a node fetches the same contents at a time; others block
 * until it has. TDM_E_CHECKSUM, with both hashes, if fetched bytes have another hash; nothing is
 * put then. TDM_E_AUTH if another user can write to the directory. What is damaged in the cache is
 * fetched again. Blocks on the disk and on `fetch`. */
tdm_status tdm__content_cache_get(const struct tdm__cache_request *request,
                                  struct tdm__cached_content *content_out);
/* Lets the cache remove the contents when it needs to. The process must not use them afterwards. */
void tdm__cached_content_release(struct tdm__cached_content *content);

/* Checks that the file at `path`, or the archive of all files of the folder, has this hash and
 * size. Returns false if it has others, or cannot be read. Blocks on the disk. */
bool tdm__content_file_is(const char *path, const struct tdm__content_hash *hash,
                          uint64_t size_bytes);

#endif
