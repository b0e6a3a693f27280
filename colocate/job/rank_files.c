/* rank_files.c - where a rank finds the files of its job on its node. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Three places are possible for a file, in this order:
 *
 * 1. Without a content in the rank's arguments: the path itself. That is so on private nodes, where
 *    all processes are on one machine.
 * 2. The original path, if the file there has the announced hash. On the driver's node this is the
 *    file that the driver has read. On other nodes, for example with a file system that the nodes
 *    share, it is used only if no other user of the machine can change it after the check.
 * 3. The cache of this node (content_cache.h), which a rank fills from the driver's value.
 *
 * Only in the first two places does a library find others beside itself ($ORIGIN).
 *
 * A rank finds its files after its process was forked, so that a fork server never has the library
 * or the modules of a job, and its key need not contain their hashes. (Modules that a user preloads
 * into a fork server are dropped where they have the name of a copy: python/tandem/_job_module.py.)
 */
#include "colocate/job/rank_files.h"

#include "actors/process/runtime.h"
#include "colocate/job/module_archive.h"
#include "runtime/error.h"
#include "runtime/private_path.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest time in milliseconds to fetch a content from the driver's node. */
enum { FETCH_MS = 120000 };

/* ---- one content ------------------------------------------------------------------------- */

/* Writes whether the files of a folder have the announced hash as an archive. */
static tdm_status folder_has_hash(const struct tdm__job_content_message *message,
                                  const struct tdm__content_hash *hash, bool *has_out)
{
    const char **names = calloc((size_t)message->names.count + 1, sizeof(*names));
    struct tdm__module_files files = {.folder = message->path, .names = names};
    struct tdm__content_hash found;
    tdm_writer *archive;

    *has_out = false;
    if (names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u names of files", message->names.count);
    }
    files.names_count = message->names.count;
    for (uint32_t i = 0; i < message->names.count; i++) {
        tdm__message_list_read(&message->names, i, &names[i], sizeof(names[i]));
    }
    if (tdm__module_archive_pack(&files, message->size_bytes, &archive) == TDM_OK) {
        *has_out = tdm__content_hash_bytes(tdm_writer_bytes(archive), &found) == TDM_OK &&
                   tdm__content_hash_equal(&found, hash);
        tdm_writer_destroy(archive);
    }
    free(names);
    return TDM_OK;
}

/* Writes the path at which the original can be used, or "" if it cannot. */
static tdm_status find_original(const struct tdm__job_content_message *message,
                                const struct tdm__content_hash *hash, bool is_drivers_node,
                                char path[TDM__PATH_BYTES])
{
    char real_path[PATH_MAX];
    bool is_usable;

    path[0] = '\0';
    if (!is_drivers_node && !tdm__path_is_private(message->path)) {
        return TDM_OK;
    }
    if (message->names.count > 0) {
        TDM_TRY(folder_has_hash(message, hash, &is_usable));
    } else {
        is_usable = tdm__content_file_is(message->path, hash, message->size_bytes);
    }
    if (!is_usable) {
        return TDM_OK;
    }
    /* Links on the way to a path are not part of what tdm__path_is_private() has checked. */
    if (is_drivers_node || realpath(message->path, real_path) == NULL) {
        (void)snprintf(path, TDM__PATH_BYTES, "%s", message->path);
    } else {
        (void)snprintf(path, TDM__PATH_BYTES, "%s", real_path);
    }
    return TDM_OK;
}

tdm_status tdm__rank_files_locate(const struct tdm__job_content_message *message,
                                  const struct tdm__content_place *place,
                                  struct tdm__cached_content *content_out)
{
    struct tdm__cache_request request = {.node_directory = place->node_directory,
                                         .path = message->path,
                                         .is_archive = message->names.count > 0,
                                         .size_bytes = message->size_bytes,
                                         .fetch = place->fetch,
                                         .arg = place->arg};

    content_out->lock_fd = -1;
    if (message->hash.size_bytes != sizeof(request.hash.bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "%s is announced with a hash of %zu bytes, expected %zu",
                         message->path, message->hash.size_bytes, sizeof(request.hash.bytes));
    }
    memcpy(request.hash.bytes, message->hash.data, sizeof(request.hash.bytes));
    TDM_TRY(find_original(message, &request.hash, strcmp(place->node_id, message->node) == 0,
                          content_out->path));
    if (content_out->path[0] != '\0') {
        if (request.is_archive) {
            content_out->path[0] = '\0'; /* Python finds the modules by their names. */
        }
        return TDM_OK;
    }
    return tdm__content_cache_get(&request, content_out);
}

/* ---- fetching from the driver ------------------------------------------------------------ */

/* A content that is being fetched. */
struct fetch {
    tdm_runtime *runtime;                           /* Runtime of the rank, borrowed. */
    const struct tdm__job_content_message *message; /* Announcement of the driver, borrowed. */
    tdm_ref *ref;                                   /* Owned reference; NULL before the fetch. */
};

/* Callback of tdm__content_cache_get(): gets the bytes from the driver. */
static tdm_status fetch_content(void *arg, struct tdm_bytes *bytes_out)
{
    struct fetch *fetch = arg;
    const struct tdm__job_content_message *message = fetch->message;

    TDM_TRY(tdm_ref_import(fetch->runtime, message->reference, &fetch->ref));
    return tdm__wrap(tdm_get(fetch->ref, FETCH_MS, "b", &bytes_out->data, &bytes_out->size_bytes),
                     "%s (%llu bytes) cannot be fetched from node %s", message->path,
                     (unsigned long long)message->size_bytes, message->node);
}

/* Finds one content of the job. */
static tdm_status find_content(tdm_runtime *runtime, const struct tdm__job_content_message *message,
                               struct tdm__cached_content *content_out)
{
    struct fetch fetch = {.runtime = runtime, .message = message};
    const struct tdm__content_place place = {.node_directory = runtime->directory,
                                             .node_id = runtime->node_id,
                                             .fetch = fetch_content,
                                             .arg = &fetch};
    tdm_status status = tdm__rank_files_locate(message, &place, content_out);

    tdm_ref_release(fetch.ref);
    return status;
}

/* ---- the files of a rank ----------------------------------------------------------------- */

/* Writes the path of a file that is not announced as a content. */
static void use_path(struct tdm__cached_content *content, const char *path)
{
    (void)snprintf(content->path, sizeof(content->path), "%s", path);
}

/* Opens a library in C. If it is a copy, its error says what a copy lacks. */
static tdm_status open_library(const struct tdm__rank_arguments_message *arguments,
                               const struct tdm__rank_files *files,
                               struct tdm__job_library *library_out)
{
    tdm_status status = tdm__job_library_open(files->library.path, library_out);

    return files->library.lock_fd < 0
               ? status
               : tdm__wrap(status,
                           "the copy of %s of node %s cannot be opened (libraries beside the "
                           "original, which it finds by $ORIGIN, are not copied: install them on "
                           "each node, or link them statically; the node's directory must be on a "
                           "file system without noexec)",
                           arguments->library_content.path, arguments->library_content.node);
}

/* Sets model.config in the settings of the job, for libraries that read the file themselves. */
static tdm_status set_model_config(tdm_config *config, const char *path)
{
    char assignment[2 * TDM__PATH_BYTES + 32] = "model.config=\"";
    size_t used = strlen(assignment);

    for (const char *next = path; *next != '\0'; next++) {
        if (*next == '"' || *next == '\\') {
            assignment[used++] = '\\';
        }
        assignment[used++] = *next;
    }
    (void)snprintf(assignment + used, sizeof(assignment) - used, "\"");
    return tdm_config_override(config, assignment);
}

tdm_status tdm__rank_files_open(tdm_runtime *runtime,
                                const struct tdm__rank_arguments_message *arguments,
                                tdm_config *config, struct tdm__rank_files *files,
                                struct tdm__job_library *library_out)
{
    files->is_python = tdm__python_library_is(arguments->library);
    files->library.lock_fd = -1;
    files->model_config.lock_fd = -1;
    use_path(&files->library, files->is_python ? "" : arguments->library);
    use_path(&files->model_config, arguments->model_config);
    if (arguments->has_library_content) {
        TDM_TRY(find_content(runtime, &arguments->library_content, &files->library));
    }
    if (arguments->has_model_config_content) {
        TDM_TRY(find_content(runtime, &arguments->model_config_content, &files->model_config));
        if (files->model_config.lock_fd >= 0) {
            TDM_TRY(set_model_config(config, files->model_config.path));
        }
    }
    return files->is_python ? tdm__job_library_open(arguments->library, library_out)
                            : open_library(arguments, files, library_out);
}

const char *tdm__rank_files_module_folder(const struct tdm__rank_files *files)
{
    return files->is_python && files->library.path[0] != '\0' ? files->library.path : NULL;
}
