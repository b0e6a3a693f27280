/* safetensors_model.c - models in one or several safetensors files, with an index. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The index is Hugging Face's model.safetensors.index.json: {"metadata": {"total_size": BYTES},
 * "weight_map": {TENSOR: FILE, …}}. Nothing in it is trusted. Its files must lie beside it, and
 * each tensor must be in the file that the index says. No file may have a tensor that the index
 * does not name. The format of one file is in safetensors.c.
 *
 * Files are opened and written by a few threads, each of which takes the next file that no thread
 * has taken yet (for_each_file()). The first error in the order of the files is reported. */

#include "colocate/weights/safetensors.h"

#include "colocate/weights/tensor.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names of the files in a model's folder, with which every reader begins. */
static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";
/* Ends of the names of indexes and of safetensors files. */
static const char index_end[] = ".index.json";
static const char file_end[] = ".safetensors";

/* Limits of a model in several files. */
enum {
    INDEX_BYTES_MAX = 32 * 1000 * 1000, /* The largest size of an index in bytes. */
    FILES_MAX = 9999,                   /* The largest number of files of a model. */
    FILE_NAME_BYTES = 64,               /* Size of a buffer for the name of a file. */
    THREADS_MAX = 8 /* The largest number of files that are open or written at a time. */
};

/* Returns true if `text` ends in `end` and is longer. */
static bool ends_in(const char *text, const char *end)
{
    size_t text_bytes = strlen(text);
    size_t end_bytes = strlen(end);

    return text_bytes > end_bytes && strcmp(text + text_bytes - end_bytes, end) == 0;
}

/* ---- files in parallel --------------------------------------------------------------- */

/* What is done with one file, by any thread. */
typedef tdm_status file_fn(void *arg, uint32_t file);

/* Work on all files of a model, which several threads share. */
struct file_work {
    file_fn *fn;          /* Function that is called once for each file. */
    void *arg;            /* First argument of `fn`; borrowed. */
    uint32_t count;       /* Number of files. */
    atomic_uint next;     /* Number of the next file that no thread has taken. */
    pthread_mutex_t lock; /* Protects the fields below. */
    uint32_t failed_file; /* The lowest number of a file that failed; `count` if none has. */
    tdm_status status;    /* Status of that file. */
    char detail[TDM__ERROR_DETAIL_BYTES]; /* Error message of that file. */
};

/* Keeps the error of a file if no earlier file has failed. */
static void keep_failure(struct file_work *work, uint32_t file, tdm_status status)
{
    (void)pthread_mutex_lock(&work->lock);
    if (file < work->failed_file) {
        work->failed_file = file;
        work->status = status;
        (void)snprintf(work->detail, sizeof(work->detail), "%s", tdm_error_detail());
    }
    (void)pthread_mutex_unlock(&work->lock);
}

/* Takes files until none is left. The start function of each thread. */
static void *work_on_files(void *arg)
{
    struct file_work *work = arg;
    uint32_t file;

    while ((file = atomic_fetch_add(&work->next, 1)) < work->count) {
        tdm_status status = work->fn(work->arg, file);

        if (status != TDM_OK) {
            keep_failure(work, file, status);
        }
    }
    return NULL;
}

/* Calls `fn` for each of `count` files, on this thread and up to seven others, and waits for all. A
 * thread that cannot be created is not needed. Returns the error of the first file that failed. */
static tdm_status for_each_file(uint32_t count, file_fn *fn, void *arg)
{
    struct file_work work = {.fn = fn, .arg = arg, .count = count, .failed_file = count};
    pthread_t threads[THREADS_MAX];
    uint32_t threads_count = 0;

    (void)pthread_mutex_init(&work.lock, NULL);
    while (threads_count + 1 < count && threads_count + 1 < THREADS_MAX &&
           pthread_create(&threads[threads_count], NULL, work_on_files, &work) == 0) {
        threads_count++;
    }
    (void)work_on_files(&work);
    for (uint32_t i = 0; i < threads_count; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    (void)pthread_mutex_destroy(&work.lock);
    return work.failed_file < count ? tdm__fail(work.status, "%s", work.detail) : TDM_OK;
}

/* ---- reading ------------------------------------------------------------------------- */

/* The index of a model, while the model is opened. Lives on the opener's stack. */
struct model_index {
    const char *path;                /* Path of the index; borrowed. */
    char directory[TDM__PATH_BYTES]; /* Folder in which the index and all files lie. */
    json_t *weight_map;              /* Maps the name of each tensor to its file; borrowed. */
    const char **names;              /* Sorted names of the files, each once; owned array. */
    tdm_safetensors **files;         /* The open files in the same order; owned array. */
    uint32_t files_count;            /* Number of entries in both arrays. */
};

/* Compares two elements of an array of strings, for qsort() and bsearch(). */
static int compare_texts(const void *a, const void *b)
{
    const char *const *first = a;
    const char *const *second = b;

    return strcmp(*first, *second);
}

/* Reads the names of the files from the weight map. Each must be a plain name, so that an index
 * cannot make its reader open files elsewhere. */
static tdm_status read_file_names(struct model_index *index)
{
    size_t tensors_count = json_object_size(index->weight_map);
    uint32_t count = 0;
    const char *tensor;
    json_t *value;

    index->names = calloc(tensors_count + 1, sizeof(*index->names));
    if (index->names == NULL) {
        return tdm__fail(TDM_E_NOMEM, "reading %s failed: allocating %zu tensors: out of memory",
                         index->path, tensors_count);
    }
    json_object_foreach(index->weight_map, tensor, value)
    {
        const char *name = json_string_value(value);

        if (name == NULL || name[0] == '.' || strchr(name, '/') != NULL ||
            !ends_in(name, file_end)) {
            return tdm__fail(
                TDM_E_PROTOCOL,
                "reading %s failed: tensor \"%.95s\" is in \"%.95s\", expected the name of a "
                "safetensors file in the same folder. Correct the index, or save the model again",
                index->path, tensor, name == NULL ? "" : name);
        }
        index->names[count++] = name;
    }
    qsort(index->names, count, sizeof(*index->names), compare_texts);
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(index->names[index->files_count - 1], index->names[i]) != 0) {
            index->names[index->files_count++] = index->names[i];
        }
    }
    return index->files_count <= FILES_MAX
               ? TDM_OK
               : tdm__fail(TDM_E_LIMIT,
                           "reading %s failed: it names %u files, at most %d are allowed. Save the "
                           "model in larger files",
                           index->path, index->files_count, FILES_MAX);
}

/* Opens one file of the index. */
static tdm_status open_file(void *arg, uint32_t file)
{
    struct model_index *index = arg;
    char path[TDM__PATH_BYTES];

    TDM_TRY(tdm__path_join(index->directory, index->names[file], path));
    return tdm__safetensors_open_one(path, &index->files[file]);
}

/* Checks that every tensor is in the file that the index says, and that the files have no others.
 */
static tdm_status check_weight_map(const struct model_index *index)
{
    uint64_t count = 0;
    const char *tensor;
    json_t *value;

    json_object_foreach(index->weight_map, tensor, value)
    {
        const char *name = json_string_value(value);
        const char **found =
            bsearch(&name, index->names, index->files_count, sizeof(*index->names), compare_texts);

        TDM_ASSERT(found != NULL);
        if (tdm_safetensors_find(index->files[found - index->names], tensor) == NULL) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "reading %s failed: tensor \"%.95s\" is not in %s. Use the index and "
                             "the files of one model",
                             index->path, tensor, name);
        }
    }
    for (uint32_t i = 0; i < index->files_count; i++) {
        count += tdm_safetensors_count(index->files[i]);
    }
    if (count != json_object_size(index->weight_map)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: it names %zu tensors, its files have %llu. Use the "
                         "index and the files of one model",
                         index->path, json_object_size(index->weight_map),
                         (unsigned long long)count);
    }
    return TDM_OK;
}

/* Opens all files of the index and joins them. */
static tdm_status open_files(struct model_index *index, tdm_safetensors **model_out)
{
    tdm_status status;

    TDM_TRY(read_file_names(index));
    index->files = calloc(index->files_count + 1U, sizeof(tdm_safetensors *));
    if (index->files == NULL) {
        return tdm__fail(TDM_E_NOMEM, "reading %s failed: allocating %u files: out of memory",
                         index->path, index->files_count);
    }
    status = for_each_file(index->files_count, open_file, index);
    if (status == TDM_OK) {
        status = check_weight_map(index);
    }
    if (status == TDM_OK) {
        status = tdm__safetensors_merge(index->files, index->files_count, index->path, model_out);
    }
    for (uint32_t i = 0; status != TDM_OK && i < index->files_count; i++) {
        tdm_safetensors_close(index->files[i]);
    }
    return status;
}

/* Opens the model of a parsed index. */
static tdm_status open_root(struct model_index *index, const json_t *root,
                            tdm_safetensors **model_out)
{
    const char *slash = strrchr(index->path, '/');
    int directory_bytes = slash == NULL ? 1 : (int)(slash - index->path + 1);
    tdm_status status;

    if (directory_bytes >= (int)sizeof(index->directory)) {
        return tdm__fail(TDM_E_LIMIT,
                         "reading the model failed: the folder of %.60s… has a path of %d bytes, "
                         "at most %zu are allowed. Give a shorter path",
                         index->path, directory_bytes, sizeof(index->directory) - 1);
    }
    (void)snprintf(index->directory, sizeof(index->directory), "%.*s", directory_bytes,
                   slash == NULL ? "." : index->path);
    index->weight_map = json_object_get(root, "weight_map");
    if (!json_is_object(index->weight_map)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: no map \"weight_map\" of tensors to files. Give the "
                         "index of a model in safetensors files",
                         index->path);
    }
    status = open_files(index, model_out);
    free((void *)index->names);
    free(index->files);
    return status;
}

/* Opens the model whose index is at `path`. */
static tdm_status open_index(const char *path, tdm_safetensors **model_out)
{
    struct model_index index = {.path = path};
    json_error_t error;
    char *text = NULL;
    size_t text_bytes = 0;
    json_t *root;
    tdm_status status;

    TDM_TRY(tdm__file_read(path, INDEX_BYTES_MAX, &text, &text_bytes));
    root = json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (root == NULL) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading %s failed: byte %d: %s. The index is damaged: download or save it again", path,
            error.position, error.text);
    }
    status = open_root(&index, root, model_out);
    json_decref(root);
    return status;
}

/* Opens the model in a folder: its index, or else its only file. */
static tdm_status open_folder(const char *directory, tdm_safetensors **model_out)
{
    char path[TDM__PATH_BYTES];

    TDM_TRY(tdm__path_join(directory, index_name, path));
    if (access(path, F_OK) == 0) {
        return open_index(path, model_out);
    }
    TDM_TRY(tdm__path_join(directory, single_name, path));
    return tdm__safetensors_open_one(path, model_out);
}

tdm_status tdm_safetensors_open(const char *path, tdm_safetensors **file_out)
{
    TDM__REQUIRE(file_out);
    *file_out = NULL;
    TDM__REQUIRE(path);

    struct stat attributes;

    if (stat(path, &attributes) == 0 && S_ISDIR(attributes.st_mode)) {
        return open_folder(path, file_out);
    }
    return ends_in(path, index_end) ? open_index(path, file_out)
                                    : tdm__safetensors_open_one(path, file_out);
}

/* ---- writing ------------------------------------------------------------------------- */

/* A model while it is written. Lives on the writer's stack. */
struct model_writing {
    const char *directory;                 /* Folder of the files; borrowed. */
    const struct tdm_tensor_view *tensors; /* All tensors, in the caller's order; borrowed. */
    uint32_t tensors_count;                /* Number of entries in `tensors`. */
    /* For each file the index of its first tensor, and behind the last file the number of tensors.
     * Owned. */
    uint32_t *firsts;
    uint32_t files_count; /* Number of files; at least 1. */
    uint64_t size_bytes;  /* Size in bytes of all tensors. */
};

/* Divides the tensors into files of at most `file_bytes_max` bytes, in their order. */
static tdm_status divide_tensors(struct model_writing *writing, uint64_t file_bytes_max)
{
    uint64_t file_bytes = 0;

    writing->firsts = calloc(writing->tensors_count + 2U, sizeof(*writing->firsts));
    if (writing->firsts == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "writing the model to %s failed: allocating %u tensors: out of memory",
                         writing->directory, writing->tensors_count);
    }
    writing->files_count = 1;
    for (uint32_t i = 0; i < writing->tensors_count; i++) {
        uint64_t size_bytes = tdm_tensor_bytes(&writing->tensors[i].info);

        if (file_bytes > 0 && size_bytes > file_bytes_max - file_bytes) {
            writing->firsts[writing->files_count++] = i;
            file_bytes = 0;
        }
        /* A larger tensor fills its file, so that none follows it there. */
        file_bytes =
            size_bytes < file_bytes_max - file_bytes ? file_bytes + size_bytes : file_bytes_max;
        writing->size_bytes += size_bytes;
    }
    writing->firsts[writing->files_count] = writing->tensors_count;
    return writing->files_count <= FILES_MAX
               ? TDM_OK
               : tdm__fail(TDM_E_LIMIT,
                           "writing the model to %s failed: it takes %u files, at most %d are "
                           "allowed. Allow larger files",
                           writing->directory, writing->files_count, FILES_MAX);
}

/* Writes the name of a file, for example "model-00002-of-00003.safetensors". */
static void name_file(const struct model_writing *writing, uint32_t file,
                      char name[FILE_NAME_BYTES])
{
    if (writing->files_count == 1) {
        (void)snprintf(name, FILE_NAME_BYTES, "%s", single_name);
    } else {
        (void)snprintf(name, FILE_NAME_BYTES, "model-%05u-of-%05u%s", file + 1,
                       writing->files_count, file_end);
    }
}

/* Writes one file of the model. */
static tdm_status write_one_file(void *arg, uint32_t file)
{
    const struct model_writing *writing = arg;
    uint32_t first = writing->firsts[file];
    char path[TDM__PATH_BYTES];
    char name[FILE_NAME_BYTES];

    name_file(writing, file, name);
    TDM_TRY(tdm__path_join(writing->directory, name, path));
    return tdm_safetensors_write(path, writing->tensors + first, writing->firsts[file + 1] - first);
}

/* Returns the text of the index, which the caller frees; NULL if memory is short. */
static char *build_index(const struct model_writing *writing)
{
    json_t *weight_map = json_object();
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                             (json_int_t)writing->size_bytes, "weight_map", weight_map);
    char *text;

    for (uint32_t file = 0; file < writing->files_count; file++) {
        char name[FILE_NAME_BYTES];

        name_file(writing, file, name);
        for (uint32_t i = writing->firsts[file]; i < writing->firsts[file + 1]; i++) {
            (void)json_object_set_new(weight_map, writing->tensors[i].info.name, json_string(name));
        }
    }
    text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    return text;
}

/* Writes the index to `path`. */
static tdm_status write_index(const struct model_writing *writing, const char *path)
{
    struct tdm__atomic_file out;
    char *text = build_index(writing);
    tdm_status status;

    if (text == NULL) {
        return tdm__fail(TDM_E_NOMEM, "writing %s failed: out of memory", path);
    }
    status = tdm__atomic_file_open(&out, path);
    if (status == TDM_OK) {
        status = tdm__atomic_file_write(&out, text, strlen(text));
        if (status == TDM_OK) {
            status = tdm__atomic_file_commit(&out);
        } else {
            tdm__atomic_file_abandon(&out);
        }
    }
    free(text);
    return status;
}

/* Removes a file of an older model, if it is there. */
static tdm_status remove_older(const char *path)
{
    return unlink(path) == 0 || errno == ENOENT
               ? TDM_OK
               : tdm__fail_errno(errno, "removing %s of an older model failed", path);
}

/* Checks that no two files get tensors of the same name, which the writer of one file would not
 * notice. */
static tdm_status check_names(const struct model_writing *writing)
{
    const char **names = calloc(writing->tensors_count + 1U, sizeof(*names));
    tdm_status status = TDM_OK;

    if (names == NULL) {
        return tdm__fail(TDM_E_NOMEM,
                         "writing the model to %s failed: allocating %u tensors: out of memory",
                         writing->directory, writing->tensors_count);
    }
    for (uint32_t i = 0; i < writing->tensors_count; i++) {
        names[i] = writing->tensors[i].info.name;
    }
    qsort(names, writing->tensors_count, sizeof(*names), compare_texts);
    for (uint32_t i = 1; i < writing->tensors_count && status == TDM_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = tdm__fail(
                TDM_E_INVAL,
                "writing the model to %s failed: two tensors are named \"%s\". Rename one",
                writing->directory, names[i]);
        }
    }
    free((void *)names);
    return status;
}

/* Writes all files, the index last, and removes the way to read an older model. */
static tdm_status write_files(struct model_writing *writing)
{
    char index_path[TDM__PATH_BYTES];
    char single_path[TDM__PATH_BYTES];

    TDM_TRY(tdm__path_join(writing->directory, index_name, index_path));
    TDM_TRY(tdm__path_join(writing->directory, single_name, single_path));
    TDM_TRY(check_names(writing));
    TDM_TRY(remove_older(index_path));
    TDM_TRY(for_each_file(writing->files_count, write_one_file, writing));
    if (writing->files_count == 1) {
        return TDM_OK;
    }
    TDM_TRY(remove_older(single_path));
    return write_index(writing, index_path);
}

tdm_status tdm_safetensors_write_model(const char *directory, const struct tdm_tensor_view *tensors,
                                       uint32_t tensors_count, uint64_t file_bytes_max)
{
    TDM__REQUIRE(directory);
    TDM__REQUIRE_ARRAY(tensors, tensors_count);

    struct model_writing writing = {
        .directory = directory, .tensors = tensors, .tensors_count = tensors_count};
    tdm_status status;

    if (file_bytes_max == 0) {
        return tdm__fail(TDM_E_INVAL,
                         "writing the model to %s failed: its files may have at most 0 bytes, "
                         "expected 1 or more. Allow larger files",
                         directory);
    }
    for (uint32_t i = 0; i < tensors_count; i++) {
        TDM_TRY(tdm__wrap(tdm__tensor_check(&tensors[i].info), "writing the model to %s failed",
                          directory));
    }
    status = divide_tensors(&writing, file_bytes_max);
    if (status == TDM_OK) {
        status = write_files(&writing);
    }
    free(writing.firsts);
    return status;
}
