/* checkpoint_manifest.c - lists the files of a checkpoint with their hashes, and checks them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and checking share one function, which lists what is on disk. A check compares that list
 * with the one in the manifest; both are sorted by path. The hash finds accidents, such as a
 * flipped bit or a file of another checkpoint, and each line says which save the file is of.
 * Neither protects from an attacker. */
#include "colocate/job/checkpoint_manifest.h"

#include "runtime/error.h"
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    HASH_TEXT_BYTES = 33,    /* Capacity of a hash as hexadecimal digits, with the NUL. */
    READ_BYTES = 256 * 1024, /* Size of one read(2) of a file. */
    MANIFEST_BYTES_MAX = 64 * 1024 * 1024, /* Largest size of a manifest. */
    LINE_BYTES = TDM__PATH_BYTES + 128     /* Capacity of a line of a manifest, with the NUL. */
};

/* Stands for an unknown run in a manifest. */
static const char unknown_run[] = "-";
/* Name of the manifest in a checkpoint, and its first line. */
static const char manifest_name[] = "manifest";
static const char manifest_head[] = "tandem checkpoint manifest 2";

/* One file of a checkpoint. */
struct listed_file {
    char *path;                 /* Path relative to the checkpoint; owned. */
    uint64_t size_bytes;        /* Size of the file. */
    char hash[HASH_TEXT_BYTES]; /* Hash of the contents, as hexadecimal digits. */
    /* The save that has written the file; zeros in a list of what is on disk. */
    struct tdm__checkpoint_origin origin;
};

/* The files of a checkpoint, sorted by path. */
struct file_list {
    struct listed_file *files; /* Owned array. */
    uint32_t count;            /* Number of files. */
};

/* Releases the files of the list. */
static void file_list_fini(struct file_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->files[i].path);
    }
    free(list->files);
    *list = (struct file_list){NULL, 0};
}

/* Appends a file, whose path is copied. */
static tdm_status file_list_add(struct file_list *list, const struct listed_file *file)
{
    struct listed_file *files = realloc(list->files, (list->count + 1) * sizeof(*files));
    char *path = strdup(file->path);

    if (files != NULL) {
        list->files = files;
    }
    if (files == NULL || path == NULL) {
        free(path);
        return tdm__fail(TDM_E_NOMEM, "a manifest of %u files", list->count + 1);
    }
    list->files[list->count] = *file;
    list->files[list->count++].path = path;
    return TDM_OK;
}

/* ---- what is on disk -------------------------------------------------------------------- */

/* Reads the file to its end and stores its size and hash. `state` and the buffer are the caller's.
 */
static tdm_status hash_descriptor(int fd, XXH3_state_t *state, char buffer[READ_BYTES],
                                  struct listed_file *file)
{
    XXH128_canonical_t canonical;
    ssize_t count;

    (void)XXH3_128bits_reset(state);
    file->size_bytes = 0;
    while ((count = read(fd, buffer, READ_BYTES)) != 0) {
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return tdm__fail_errno(errno, "read %s", file->path);
        }
        (void)XXH3_128bits_update(state, buffer, (size_t)count);
        file->size_bytes += (uint64_t)count;
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    for (size_t i = 0; i < sizeof(canonical.digest); i++) {
        (void)snprintf(file->hash + 2 * i, 3, "%02x", canonical.digest[i]);
    }
    return TDM_OK;
}

/* Stores size and hash of the file at `path`. `sync` says whether it is also written to disk. */
static tdm_status hash_file(const char *path, bool sync, struct listed_file *file)
{
    XXH3_state_t *state = XXH3_createState();
    char *buffer = malloc(READ_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    tdm_status status;

    if (fd < 0) {
        status = tdm__fail_errno(errno, "open %s", path);
    } else if (state == NULL || buffer == NULL) {
        status = tdm__fail(TDM_E_NOMEM, "reading %s", path);
    } else if (sync && fsync(fd) < 0) {
        status = tdm__fail_errno(errno, "fsync %s", path);
    } else {
        status = hash_descriptor(fd, state, buffer, file);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(buffer);
    (void)XXH3_freeState(state);
    return status;
}

/* Adds one entry of the traversal of a checkpoint to the list. `skip_bytes` is the length of the
 * checkpoint's own path with the slash. */
static tdm_status add_entry(struct file_list *list, const FTSENT *entry, size_t skip_bytes,
                            bool sync)
{
    struct listed_file file = {.size_bytes = 0};

    switch (entry->fts_info) {
    case FTS_D:
        return TDM_OK;
    case FTS_DP:
        return sync ? tdm__directory_sync(entry->fts_path) : TDM_OK;
    case FTS_F:
        file.path = entry->fts_path + skip_bytes;
        if (strcmp(file.path, manifest_name) == 0 || entry->fts_name[0] == '.') {
            return TDM_OK;
        }
        TDM_TRY(hash_file(entry->fts_path, sync, &file));
        return file_list_add(list, &file);
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        return tdm__fail_errno(entry->fts_errno, "%s", entry->fts_path);
    default:
        return tdm__fail(TDM_E_STATE, "%s is neither a file nor a directory", entry->fts_path);
    }
}

/* Compares two files by path, for qsort(3). */
static int compare_paths(const void *left, const void *right)
{
    return strcmp(((const struct listed_file *)left)->path,
                  ((const struct listed_file *)right)->path);
}

/* Lists the files below `directory`. The caller ends the list also on failure. */
static tdm_status list_files(const char *directory, bool sync, struct file_list *list)
{
    char *const roots[] = {(char *)(uintptr_t)directory, NULL};
    FTS *entries = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    const FTSENT *entry;
    tdm_status status = TDM_OK;

    if (entries == NULL) {
        return tdm__fail_errno(errno, "open %s", directory);
    }
    while (status == TDM_OK && (entry = fts_read(entries)) != NULL) {
        status = add_entry(list, entry, strlen(directory) + 1, sync);
    }
    (void)fts_close(entries);
    if (list->count > 0) {
        qsort(list->files, list->count, sizeof(list->files[0]), compare_paths);
    }
    return status;
}

/* ---- writing ---------------------------------------------------------------------------- */

/* Writes the lines of the manifest. */
static tdm_status write_lines(struct tdm__atomic_file *file, const struct file_list *list,
                              const struct tdm__checkpoint_origin *origin)
{
    const char *run = origin->run[0] == '\0' ? unknown_run : origin->run;
    char line[LINE_BYTES];

    (void)snprintf(line, sizeof(line), "%s\n", manifest_head);
    TDM_TRY(tdm__atomic_file_write(file, line, strlen(line)));
    for (uint32_t i = 0; i < list->count; i++) {
        const struct listed_file *listed = &list->files[i];

        if (strchr(listed->path, '\n') != NULL) {
            return tdm__fail(TDM_E_STATE, "the name of the file %s has a line break", listed->path);
        }
        (void)snprintf(line, sizeof(line), "%s %" PRIu64 " %" PRIu32 " %s %s\n", listed->hash,
                       listed->size_bytes, origin->step, run, listed->path);
        TDM_TRY(tdm__atomic_file_write(file, line, strlen(line)));
    }
    return TDM_OK;
}

tdm_status tdm__checkpoint_manifest_write(const char *directory,
                                          const struct tdm__checkpoint_origin *origin)
{
    struct file_list list = {NULL, 0};
    struct tdm__atomic_file file;
    char path[TDM__PATH_BYTES];
    tdm_status status = list_files(directory, true, &list);

    if (status == TDM_OK) {
        status = tdm__path_join(directory, manifest_name, path);
    }
    if (status == TDM_OK) {
        status = tdm__atomic_file_open(&file, path);
    }
    if (status == TDM_OK) {
        status = write_lines(&file, &list, origin);
        if (status == TDM_OK) {
            status = tdm__atomic_file_commit(&file);
        } else {
            tdm__atomic_file_abandon(&file);
        }
    }
    file_list_fini(&list);
    return status;
}

/* ---- checking --------------------------------------------------------------------------- */

/* Parses a decimal number up to `max` and the space after it. Returns what follows, or NULL. */
static char *parse_number(char *text, uint64_t max, uint64_t *number_out)
{
    char *end;

    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return NULL;
    }
    errno = 0;
    *number_out = strtoull(text, &end, 10);
    return errno == 0 && *number_out <= max && *end == ' ' ? end + 1 : NULL;
}

/* Parses the ID of a run and the space after it. Returns what follows, or NULL. */
static char *parse_run(char *text, char run[TDM__ID_TEXT_BYTES])
{
    size_t size = text == NULL ? 0 : strcspn(text, " ");

    if (size == 0 || size >= TDM__ID_TEXT_BYTES || text[size] != ' ') {
        return NULL;
    }
    memcpy(run, text, size);
    run[size] = '\0';
    if (strcmp(run, unknown_run) == 0) {
        run[0] = '\0';
    }
    return text + size + 1;
}

/* Parses one line of a manifest; the path stays in the line. */
static bool parse_line(char *line, struct listed_file *file)
{
    uint64_t step = 0;

    *file = (struct listed_file){.size_bytes = 0};
    if (strcspn(line, " ") != HASH_TEXT_BYTES - 1 || line[HASH_TEXT_BYTES - 1] != ' ') {
        return false;
    }
    memcpy(file->hash, line, HASH_TEXT_BYTES - 1);
    file->path = parse_number(line + HASH_TEXT_BYTES, UINT64_MAX, &file->size_bytes);
    file->path = parse_number(file->path, UINT32_MAX, &step);
    file->path = parse_run(file->path, file->origin.run);
    file->origin.step = (uint32_t)step;
    return file->path != NULL && file->path[0] != '\0';
}

/* Parses the text of a manifest, which is cut into lines. The caller ends the list also on
 * failure. */
static tdm_status parse_manifest(const char *path, char *text, struct file_list *list)
{
    const size_t bytes = strlen(text);
    const bool ends_with_a_line = bytes > 0 && text[bytes - 1] == '\n';
    char *rest = NULL;
    char *line = strtok_r(text, "\n", &rest);
    uint32_t number = 1;

    if (line == NULL || strcmp(line, manifest_head) != 0) {
        return tdm__fail(TDM_E_PROTOCOL, "%s:1: expected \"%s\"", path, manifest_head);
    }
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL) {
        struct listed_file file;

        number++;
        if (!parse_line(line, &file)) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "%s:%u: expected a hash, a size, a step, a run and a path", path,
                             number);
        }
        TDM_TRY(file_list_add(list, &file));
    }
    if (!ends_with_a_line) {
        return tdm__fail(TDM_E_PROTOCOL, "%s:%u: the last line has no line break", path, number);
    }
    return TDM_OK;
}

/* Compares the files on disk with those of the manifest. */
static tdm_status compare_lists(const char *directory, const struct file_list *listed,
                                const struct file_list *found)
{
    uint32_t i = 0;
    uint32_t j = 0;

    while (i < listed->count || j < found->count) {
        int order = i == listed->count  ? 1
                    : j == found->count ? -1
                                        : compare_paths(&listed->files[i], &found->files[j]);
        const struct listed_file *want = &listed->files[i];
        const struct listed_file *have = &found->files[j];

        if (order < 0) {
            return tdm__fail(TDM_E_PROTOCOL, "%s/%s is missing", directory, want->path);
        }
        if (order > 0) {
            return tdm__fail(TDM_E_PROTOCOL, "%s/%s is not in the manifest", directory, have->path);
        }
        if (want->size_bytes != have->size_bytes || strcmp(want->hash, have->hash) != 0) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "%s/%s is damaged: %" PRIu64 " bytes with hash %s, expected %" PRIu64
                             " bytes with hash %s",
                             directory, have->path, have->size_bytes, have->hash, want->size_bytes,
                             want->hash);
        }
        i++;
        j++;
    }
    return TDM_OK;
}

/* Checks that all files are of one save, and stores it. */
static tdm_status find_origin(const char *directory, const struct file_list *listed,
                              struct tdm__checkpoint_origin *origin_out)
{
    *origin_out = (struct tdm__checkpoint_origin){.step = 0};
    for (uint32_t i = 0; i < listed->count; i++) {
        const struct tdm__checkpoint_origin *first = &listed->files[0].origin;
        const struct tdm__checkpoint_origin *origin = &listed->files[i].origin;

        if (origin->step != first->step || strcmp(origin->run, first->run) != 0) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "%s/%s is of step %" PRIu32 " of run %s, but %s of step %" PRIu32
                             " of run %s",
                             directory, listed->files[i].path, origin->step, origin->run,
                             listed->files[0].path, first->step, first->run);
        }
        *origin_out = *first;
    }
    return TDM_OK;
}

tdm_status tdm__checkpoint_manifest_verify(const char *directory,
                                           struct tdm__checkpoint_origin *origin_out)
{
    struct file_list listed = {NULL, 0};
    struct file_list found = {NULL, 0};
    char path[TDM__PATH_BYTES];
    char *text;
    size_t size_bytes;
    tdm_status status;

    TDM_TRY(tdm__path_join(directory, manifest_name, path));
    TDM_TRY(tdm__file_read(path, MANIFEST_BYTES_MAX, &text, &size_bytes));
    status = strlen(text) == size_bytes
                 ? parse_manifest(path, text, &listed)
                 : tdm__fail(TDM_E_PROTOCOL, "%s has a byte 0 at position %zu", path, strlen(text));
    free(text);
    if (status == TDM_OK) {
        status = list_files(directory, false, &found);
    }
    if (status == TDM_OK) {
        status = compare_lists(directory, &listed, &found);
    }
    if (status == TDM_OK) {
        status = find_origin(directory, &listed, origin_out);
    }
    file_list_fini(&listed);
    file_list_fini(&found);
    return status;
}
