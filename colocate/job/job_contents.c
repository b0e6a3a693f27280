/* job_contents.c - the files of a job that the driver gives to ranks on other nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The driver reads two contents once: the job library, which is a file or, for a library in Python,
 * an archive of the files that belong to it; and the file model.config. It keeps the bytes in its
 * own memory. For each runtime that it starts it puts them as values, whose portable references are
 * in the arguments of all ranks. A rank (rank_files.c) fetches a value only if its node does not
 * have the contents yet. The values live until the driver withdraws them.
 *
 * The archive of a Python library has the module that job.library names, if it is in the folder of
 * the job file, and what job.files names there. A module elsewhere is an installed package, which
 * each node must have. Only the thread of the controller uses the contents. */
#include "colocate/job/job_contents.h"

#include "actors/process/runtime.h"
#include "colocate/job/library.h"
#include "colocate/job/module_archive.h"
#include "colocate/job/python_library.h"
#include "runtime/error.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Characters between the names in job.files. */
#define SEPARATORS " \t\n"

/* ---- files ------------------------------------------------------------------------------- */

/* Reads a file. */
static tdm_status read_file(struct tdm__job_content *content, const char *path, const char *setting)
{
    TDM_TRY(tdm__wrap(tdm__file_read(path, (size_t)TDM__JOB_CONTENT_BYTES_MAX, &content->file_bytes,
                                     &content->bytes.size_bytes),
                      "%s cannot be given to other nodes", setting));
    content->bytes.data = content->file_bytes;
    (void)snprintf(content->path, sizeof(content->path), "%s", path);
    return tdm__content_hash_bytes(content->bytes, &content->hash);
}

/* ---- modules ----------------------------------------------------------------------------- */

/* Returns whether a path below a folder is a file or a folder, as `mode` says: S_IFREG or S_IFDIR.
 */
static bool is_kind(const char *folder, const char *name, const char *suffix, mode_t mode)
{
    char path[2 * TDM__PATH_BYTES];
    struct stat about;

    (void)snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
    return stat(path, &about) == 0 && (about.st_mode & S_IFMT) == mode;
}

/* Writes the name of the file or folder of a module to `name`, in the order in which Python looks
 * for it; "" if the folder does not have the module. `module` may have dots: the first part counts.
 */
static void find_module(const char *folder, const char *module, char name[TDM__PATH_BYTES])
{
    size_t length = strcspn(module, ".");
    const char *suffix = "";

    (void)snprintf(name, TDM__PATH_BYTES, "%.*s", (int)length, module);
    if (!is_kind(folder, name, "/__init__.py", S_IFREG)) {
        if (is_kind(folder, name, ".py", S_IFREG)) {
            suffix = ".py";
        } else if (!is_kind(folder, name, "", S_IFDIR)) {
            name[0] = '\0';
            return;
        }
    }
    (void)snprintf(name, TDM__PATH_BYTES, "%.*s%s", (int)length, module, suffix);
}

/* Splits the names in `content->names_text` at blanks. Slashes at the end of a name are removed. */
static tdm_status split_names(struct tdm__job_content *content)
{
    size_t names_max = strlen(content->names_text) / 2 + 1;
    char *rest = NULL;

    content->names = calloc(names_max, sizeof(*content->names));
    if (content->names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu names of files", names_max);
    }
    for (char *name = strtok_r(content->names_text, SEPARATORS, &rest); name != NULL;
         name = strtok_r(NULL, SEPARATORS, &rest)) {
        size_t length = strlen(name);

        while (length > 1 && name[length - 1] == '/') {
            name[--length] = '\0';
        }
        content->names[content->names_count++] = name;
    }
    return TDM_OK;
}

/* Lists the names of the files and folders that belong to a library in Python. */
static tdm_status list_names(struct tdm__job_content *content, const struct tdm__job_spec *spec)
{
    char module[TDM__PATH_BYTES];
    char *text = NULL;

    if (realpath(spec->folder[0] == '\0' ? "." : spec->folder, content->path) == NULL) {
        return tdm__fail_errno(errno, "the folder of the job file, %s", spec->folder);
    }
    find_module(content->path, spec->library + strlen(TDM__PYTHON_PREFIX), module);
    if (asprintf(&text, "%s %s", module, spec->files) < 0) {
        return tdm__fail(TDM_E_NOMEM, "the names of a job's files");
    }
    content->names_text = text;
    TDM_TRY(split_names(content));
    if (content->names_count == 0) {
        content->path[0] = '\0';
    }
    return TDM_OK;
}

/* Packs the files that belong to a library in Python. */
static tdm_status read_modules(struct tdm__job_content *content, const struct tdm__job_spec *spec)
{
    struct tdm__module_files files;

    TDM_TRY(list_names(content, spec));
    if (content->names_count == 0) {
        return TDM_OK;
    }
    files = (struct tdm__module_files){
        .folder = content->path, .names = content->names, .names_count = content->names_count};
    TDM_TRY(tdm__wrap(
        tdm__module_archive_pack(&files, TDM__JOB_CONTENT_BYTES_MAX, &content->archive),
        "%s: the files of the library cannot be given to other nodes",
        tdm_config_where(spec->config, spec->files[0] == '\0' ? "job.library" : "job.files")));
    content->bytes = tdm_writer_bytes(content->archive);
    return tdm__content_hash_bytes(content->bytes, &content->hash);
}

/* ---- reading and publishing -------------------------------------------------------------- */

tdm_status tdm__job_contents_read(const struct tdm__job_spec *spec,
                                  struct tdm__job_contents *contents)
{
    char path[TDM__PATH_BYTES];

    contents->is_read = true;
    if (tdm__python_library_is(spec->library)) {
        TDM_TRY(read_modules(&contents->library, spec));
    } else {
        TDM_TRY(tdm__job_library_find(spec->library, path));
        TDM_TRY(read_file(&contents->library, path, "the job library"));
    }
    return spec->model_config[0] == '\0'
               ? TDM_OK
               : read_file(&contents->model_config, spec->model_config, "model.config");
}

/* Puts one content. */
static tdm_status publish_content(struct tdm__job_content *content, tdm_runtime *runtime)
{
    if (content->path[0] == '\0') {
        return TDM_OK;
    }
    TDM_TRY(tdm__wrap(
        tdm_put(runtime, &content->ref, "b", content->bytes.data, content->bytes.size_bytes),
        "%s (%zu bytes) cannot be kept for other nodes", content->path, content->bytes.size_bytes));
    return tdm_ref_export(content->ref, &content->reference);
}

tdm_status tdm__job_contents_publish(struct tdm__job_contents *contents, tdm_runtime *runtime)
{
    (void)snprintf(contents->node, sizeof(contents->node), "%s", runtime->node_id);
    TDM_TRY(publish_content(&contents->library, runtime));
    return publish_content(&contents->model_config, runtime);
}

/* Removes the value of one content. */
static void withdraw_content(struct tdm__job_content *content)
{
    if (content->ref != NULL) {
        tdm_ref_free_value(content->ref);
        tdm_ref_release(content->ref);
        content->ref = NULL;
    }
}

void tdm__job_contents_withdraw(struct tdm__job_contents *contents)
{
    withdraw_content(&contents->library);
    withdraw_content(&contents->model_config);
    contents->node[0] = '\0';
}

/* Frees one content. */
static void content_fini(struct tdm__job_content *content)
{
    withdraw_content(content);
    free(content->names_text);
    free(content->names);
    free(content->file_bytes);
    tdm_writer_destroy(content->archive);
}

void tdm__job_contents_fini(struct tdm__job_contents *contents)
{
    content_fini(&contents->library);
    content_fini(&contents->model_config);
    *contents = (struct tdm__job_contents){.is_read = false};
}

/* Fills the message of one content. Returns false if it is not published. */
static bool describe_content(const struct tdm__job_contents *contents,
                             const struct tdm__job_content *content,
                             struct tdm__job_content_message *message)
{
    if (content->ref == NULL) {
        return false;
    }
    *message = (struct tdm__job_content_message){
        .path = content->path,
        .names = {.count = content->names_count, .items = content->names},
        .hash = {content->hash.bytes, sizeof(content->hash.bytes)},
        .size_bytes = content->bytes.size_bytes,
        .node = contents->node,
        .reference = {content->reference.bytes, content->reference.size_bytes}};
    return true;
}

void tdm__job_contents_describe(const struct tdm__job_contents *contents,
                                struct tdm__rank_arguments_message *arguments)
{
    if (contents == NULL) {
        return;
    }
    arguments->has_library_content =
        describe_content(contents, &contents->library, &arguments->library_content);
    arguments->has_model_config_content =
        describe_content(contents, &contents->model_config, &arguments->model_config_content);
}
