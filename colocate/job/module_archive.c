/* module_archive.c - the files of a Python module as bytes that are the same for the same files. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An archive is one message (module_archive in runtime/messages/job.def): a list of files, each
 * with its path below the folder, whether it is executable, and its bytes. The list is in the order
 * of the paths' bytes, each path occurs once, and there are no folders, links, times or owners in
 * it. So the hash of an archive says whether two folders have the same files.
 *
 * Unpacking trusts no path: a path has components that are neither empty nor begin with a dot, and
 * is larger than the one before. The folder is new, files are created by O_EXCL and O_NOFOLLOW, and
 * the archive has no way to say "link", so that nothing can be written outside of the folder.
 * All functions block on the disk; any thread may call them. */
#include "colocate/job/module_archive.h"

#include "runtime/array_grow.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/messages/messages.h"
#include "runtime/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folder in which Python keeps compiled modules. */
#define COMPILED_FOLDER "__pycache__"

/* ---- paths ------------------------------------------------------------------------------- */

/* Returns whether files and folders with this name are left out of archives. */
static bool is_left_out(const char *name, size_t length)
{
    return name[0] == '.' ||
           (length == strlen(COMPILED_FOLDER) && strncmp(name, COMPILED_FOLDER, length) == 0);
}

/* Returns whether `path` is a path below a folder, none of whose components is left out. */
static bool is_packed_path(const char *path)
{
    uint32_t depth = 0;

    if (strlen(path) >= TDM__PATH_BYTES || !tdm__utf8_is_printable(path, strlen(path))) {
        return false;
    }
    for (;;) {
        size_t length = strcspn(path, "/");

        if (length == 0 || length > NAME_MAX || is_left_out(path, length) ||
            ++depth > TDM__MODULE_ARCHIVE_DEPTH_MAX) {
            return false;
        }
        if (path[length] == '\0') {
            return true;
        }
        path += length + 1;
    }
}

/* ---- packing ----------------------------------------------------------------------------- */

/* Files that are being collected. */
struct collection {
    char folder[PATH_MAX];   /* Path of the folder, without links. */
    uint64_t size_bytes;     /* Bytes of the files in `entries`. */
    uint64_t size_bytes_max; /* Limit of `size_bytes`. */
    /* Owned array of the files; paths and contents are owned, too. */
    struct tdm__archive_entry_message *entries;
    uint32_t count;    /* Number of elements of `entries`. */
    uint32_t capacity; /* Number of elements for which there is memory. */
};

/* Frees everything. */
static void collection_fini(struct collection *collection)
{
    for (uint32_t i = 0; i < collection->count; i++) {
        free((void *)(uintptr_t)collection->entries[i].path);
        free((void *)(uintptr_t)collection->entries[i].contents.data);
    }
    free(collection->entries);
}

/* Reads a file and adds it. `about` says what is known of the file, not of a link to it. */
static tdm_status collect_file(struct collection *collection, const char *path,
                               const struct stat *about)
{
    const char *below = path + strlen(collection->folder) + 1;
    struct tdm__archive_entry_message entry = {.is_executable = (about->st_mode & S_IXUSR) != 0};
    char *bytes;

    if (!is_packed_path(below)) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: a path that is no UTF-8 text, has more than %d folders, or is longer "
                         "than %d bytes",
                         path, (int)TDM__MODULE_ARCHIVE_DEPTH_MAX, (int)TDM__PATH_BYTES - 1);
    }
    if (collection->count >= TDM__MODULE_ARCHIVE_FILES_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%s: more than %d files", collection->folder,
                         (int)TDM__MODULE_ARCHIVE_FILES_MAX);
    }
    TDM_TRY(tdm__array_grow((void **)&collection->entries, &collection->capacity, collection->count,
                            sizeof(*collection->entries)));
    if ((uint64_t)about->st_size > collection->size_bytes_max - collection->size_bytes) {
        return tdm__fail(TDM_E_LIMIT,
                         "%s: %lld bytes after %llu bytes of other files, the limit for all is "
                         "%llu",
                         path, (long long)about->st_size,
                         (unsigned long long)collection->size_bytes,
                         (unsigned long long)collection->size_bytes_max);
    }
    TDM_TRY(tdm__file_read(path, (size_t)(collection->size_bytes_max - collection->size_bytes),
                           &bytes, &entry.contents.size_bytes));
    entry.contents.data = bytes;
    entry.path = strdup(below);
    if (entry.path == NULL) {
        free(bytes);
        return tdm__fail(TDM_E_NOMEM, "%s", path);
    }
    collection->size_bytes += entry.contents.size_bytes;
    collection->entries[collection->count++] = entry;
    return TDM_OK;
}

/* Adds the file to which a link leads. */
static tdm_status collect_link(struct collection *collection, const char *path)
{
    size_t length = strlen(collection->folder);
    char target[PATH_MAX];
    struct stat about;

    if (realpath(path, target) == NULL || stat(target, &about) != 0) {
        return tdm__fail_errno(errno, "%s: a link that leads nowhere", path);
    }
    if (strncmp(target, collection->folder, length) != 0 || target[length] != '/') {
        return tdm__fail(TDM_E_INVAL, "%s: a link to %s, which is outside of %s", path, target,
                         collection->folder);
    }
    return S_ISREG(about.st_mode)
               ? collect_file(collection, path, &about)
               : tdm__fail(TDM_E_INVAL, "%s: a link to %s, which is no file", path, target);
}

/* Adds what fts(3) has found, or skips a folder that is left out. */
static tdm_status collect_entry(struct collection *collection, FTS *walk, FTSENT *found)
{
    if (found->fts_level > 0 && is_left_out(found->fts_name, found->fts_namelen)) {
        (void)fts_set(walk, found, FTS_SKIP);
        return TDM_OK;
    }
    switch (found->fts_info) {
    case FTS_D:
    case FTS_DP:
        return TDM_OK;
    case FTS_F:
        return collect_file(collection, found->fts_path, found->fts_statp);
    case FTS_SL:
    case FTS_SLNONE:
        return collect_link(collection, found->fts_path);
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        return tdm__fail_errno(found->fts_errno, "%s", found->fts_path);
    default:
        return tdm__fail(TDM_E_INVAL, "%s: neither a file nor a folder", found->fts_path);
    }
}

/* Adds all files at and below `path`. */
static tdm_status collect_tree(struct collection *collection, char *path)
{
    char *const roots[] = {path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    tdm_status status = TDM_OK;
    FTSENT *found;

    if (walk == NULL) {
        return tdm__fail_errno(errno, "%s", path);
    }
    while (status == TDM_OK && (errno = 0, found = fts_read(walk)) != NULL) {
        status = collect_entry(collection, walk, found);
    }
    if (status == TDM_OK && errno != 0) {
        status = tdm__fail_errno(errno, "%s", path);
    }
    (void)fts_close(walk);
    return status;
}

/* Adds the files with a name of the caller. */
static tdm_status collect_name(struct collection *collection, const char *name)
{
    char path[TDM__PATH_BYTES];

    if (!is_packed_path(name)) {
        return tdm__fail(TDM_E_INVAL,
                         "\"%s\" is no path below %s whose parts neither begin with a dot nor are "
                         "\"" COMPILED_FOLDER "\"",
                         name, collection->folder);
    }
    TDM_TRY(tdm__path_join(collection->folder, name, path));
    return collect_tree(collection, path);
}

/* Adds all files that are to be packed. */
static tdm_status collect(struct collection *collection, const struct tdm__module_files *files)
{
    if (realpath(files->folder, collection->folder) == NULL) {
        return tdm__fail_errno(errno, "%s", files->folder);
    }
    for (uint32_t i = 0; i < files->names_count; i++) {
        TDM_TRY(collect_name(collection, files->names[i]));
    }
    return files->names_count > 0 ? TDM_OK : collect_tree(collection, collection->folder);
}

/* Compares the paths of two files for qsort(3). */
static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct tdm__archive_entry_message *)a)->path,
                  ((const struct tdm__archive_entry_message *)b)->path);
}

/* Sorts the files, and removes those that two names have found. */
static void collection_sort(struct collection *collection)
{
    struct tdm__archive_entry_message *entries = collection->entries;
    uint32_t kept = 0;

    if (collection->count == 0) {
        return;
    }
    qsort(entries, collection->count, sizeof(*entries), compare_entries);
    for (uint32_t i = 1; i < collection->count; i++) {
        if (strcmp(entries[kept].path, entries[i].path) != 0) {
            entries[++kept] = entries[i];
            continue;
        }
        free((void *)(uintptr_t)entries[i].path);
        free((void *)(uintptr_t)entries[i].contents.data);
    }
    collection->count = kept + 1;
}

/* Writes the collected files. */
static tdm_status pack_collection(struct collection *collection, tdm_writer *writer)
{
    struct tdm__module_archive_message archive;

    collection_sort(collection);
    archive = (struct tdm__module_archive_message){
        .entries = {.count = collection->count, .items = collection->entries}};
    return tdm__module_archive_encode(&archive, writer);
}

tdm_status tdm__module_archive_pack(const struct tdm__module_files *files, uint64_t size_bytes_max,
                                    tdm_writer **archive_out)
{
    struct collection collection = {.size_bytes_max = size_bytes_max};
    tdm_writer *writer = NULL;
    tdm_status status = collect(&collection, files);

    if (status == TDM_OK) {
        status = tdm_writer_create(&writer);
    }
    if (status == TDM_OK) {
        status = tdm__wrap(pack_collection(&collection, writer), "%s", files->folder);
    }
    collection_fini(&collection);
    if (status != TDM_OK) {
        tdm_writer_destroy(writer);
        return status;
    }
    *archive_out = writer;
    return TDM_OK;
}

/* ---- unpacking --------------------------------------------------------------------------- */

/* Creates the folders of a file, up to its last slash. `path` is restored. */
static tdm_status create_parents(char *path, size_t folder_length)
{
    for (char *slash = path + folder_length + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        int failed;

        *slash = '\0';
        failed = mkdir(path, 0700) != 0 && errno != EEXIST;
        *slash = '/';
        if (failed) {
            return tdm__fail_errno(errno, "%s: creating its folder", path);
        }
    }
    return TDM_OK;
}

/* Writes all bytes to a new file. */
static tdm_status write_contents(int fd, const char *path, struct tdm_bytes contents)
{
    const char *next = contents.data;
    size_t left = contents.size_bytes;

    while (left > 0) {
        ssize_t count = write(fd, next, left);

        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return tdm__fail_errno(errno, "%s: write", path);
        }
        next += count;
        left -= (size_t)count;
    }
    return TDM_OK;
}

/* Creates the file of one entry. */
static tdm_status unpack_entry(const struct tdm__archive_entry_message *entry, const char *folder)
{
    char path[TDM__PATH_BYTES];
    tdm_status status;
    int fd;

    TDM_TRY(tdm__path_join(folder, entry->path, path));
    TDM_TRY(create_parents(path, strlen(folder)));
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
              entry->is_executable ? 0700 : 0600);
    if (fd < 0) {
        return tdm__fail_errno(errno, "%s: creating it", path);
    }
    status = write_contents(fd, path, entry->contents);
    if (close(fd) != 0 && status == TDM_OK) {
        status = tdm__fail_errno(errno, "%s: close", path);
    }
    return status;
}

/* Creates all files of a decoded archive. */
static tdm_status unpack_entries(const struct tdm__message_list *entries, const char *folder)
{
    struct tdm__archive_entry_message previous = {.path = ""};

    if (entries->count > TDM__MODULE_ARCHIVE_FILES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "an archive of %u files, the limit is %d", entries->count,
                         (int)TDM__MODULE_ARCHIVE_FILES_MAX);
    }
    for (uint32_t i = 0; i < entries->count; i++) {
        struct tdm__archive_entry_message entry;

        tdm__message_list_read(entries, i, &entry, sizeof(entry));
        if (!is_packed_path(entry.path)) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "an archive with the path \"%.512s\", which is not allowed",
                             entry.path);
        }
        if (strcmp(previous.path, entry.path) >= 0) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "an archive with the path \"%.512s\" after \"%.512s\": its order is "
                             "wrong",
                             entry.path, previous.path);
        }
        TDM_TRY(unpack_entry(&entry, folder));
        previous = entry;
    }
    return TDM_OK;
}

tdm_status tdm__module_archive_unpack(struct tdm_bytes archive, const char *folder)
{
    struct tdm__module_archive_message message;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(tdm_document_parse(archive, &document));
    status = tdm__module_archive_decode(tdm_document_root(document), &message);
    if (status == TDM_OK && mkdir(folder, 0700) != 0) {
        status = tdm__fail_errno(errno, "mkdir %s", folder);
    }
    if (status == TDM_OK) {
        status = unpack_entries(&message.entries, folder);
    }
    tdm_document_destroy(document);
    return status;
}
