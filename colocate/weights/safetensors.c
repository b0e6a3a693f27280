/* safetensors.c - reads Hugging Face's safetensors files by mapping, and writes them atomically. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A safetensors file consists of the header's length (u64, little endian), the header (JSON) and
 * the data. A tdm_safetensors owns the mapping of an open file and a table of its tensors, whose
 * views point into the mapping. It never changes after it was opened, so threads may share it.
 *
 * Nothing in a file is trusted. The header is scanned before the JSON parser sees it, because
 * the parser would build a tree of many times the header's size out of a hostile one. Dtype,
 * shape and offsets of each tensor must agree, and the tensors must cover the data exactly.
 * Writing orders tensors by element size, so that each is aligned, and replaces the target file
 * in one step. A model in several files (safetensors_model.c) is a tdm_safetensors that owns those
 * of its files, and has copies of their entries. */

#include "colocate/weights/safetensors.h"

#include "colocate/weights/tensor.h"
#include "runtime/assert.h"
#include "runtime/dtype.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Constants and limits of the file format. */
enum {
    /* Size in bytes of the field at the file's beginning that has the header's length. */
    LENGTH_BYTES = 8,
    HEADER_BYTES_MAX = 100 * 1000 * 1000, /* The largest size of a file's header in bytes. */
    TENSORS_MAX = 1 << 18,                /* The largest number of tensors in a file. */
    HEADER_DEPTH = 3, /* The deepest nesting of the header's JSON: file, tensor, shape. */
    /* The largest number of commas in the header's JSON; a tensor of 4 dimensions has 7. */
    HEADER_COMMAS_MAX = TENSORS_MAX * 8
};

/* Remedy for a file whose header and data contradict each other or the format. */
#define GET_AGAIN "The file is damaged: download or save it again"

/* One tensor of a file. */
struct tensor_entry {
    /* View of the tensor: its data points into the file's bytes and its name to `name`. */
    struct tdm_tensor_view view;
    /* Offset of the tensor's first byte in the file's data, which follows the header. */
    uint64_t begin;
    uint64_t end; /* Offset after the tensor's last byte in the file's data. */
    char name[TDM_TENSOR_NAME_BYTES_MAX]; /* Name of the tensor, with a terminating NUL. */
};

/* An open file. Owned by the caller of tdm_safetensors_open(). */
struct tdm_safetensors {
    void *map;        /* Mapping of the file, owned; NULL if the caller lent the file's bytes. */
    size_t map_bytes; /* Size of the mapping in bytes. */
    uint32_t count;   /* Number of tensors in the file. */
    struct tensor_entry *entries; /* Tensors in the order of their bytes in the file; owned. */
    /* Pointers to the entries, sorted by tensor name; owned array. */
    struct tensor_entry **by_name;
    /* Files of which this model consists; owned array of owned files. NULL for a single file. */
    tdm_safetensors **parts;
    uint32_t parts_count; /* Number of entries in `parts`. */
};

/* The data part of a file and its name, which all checks of its header use. Lives on the parser's
 * stack. */
struct file_header {
    const char *file; /* Name of the file for error messages; borrowed. */
    /* First byte after the header, where the tensors' data begin; borrowed. */
    const unsigned char *data;
    uint64_t data_bytes; /* Size in bytes of the data after the header. */
};

/* ---- reading ------------------------------------------------------------------------- */

/* Scans the header and limits its depth and its number of commas. Counts braces and commas outside
 * of strings only; the parser checks whether they make sense. */
static tdm_status scan_header(const char *text, size_t size_bytes, const char *file)
{
    bool in_string = false;
    uint32_t depth = 0;
    uint32_t commas = 0;

    for (size_t i = 0; i < size_bytes; i++) {
        char c = text[i];

        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        depth += c == '{' || c == '[';
        depth -= (c == '}' || c == ']') && depth > 0;
        commas += c == ',';
        if (depth > HEADER_DEPTH) {
            return tdm__fail(
                TDM_E_PROTOCOL,
                "reading %s failed: the header nests over %d levels at byte %zu. " GET_AGAIN, file,
                HEADER_DEPTH, i);
        }
        if (commas > HEADER_COMMAS_MAX) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "reading %s failed: the header has over %d commas at byte %zu. Divide "
                             "the model into several files",
                             file, HEADER_COMMAS_MAX, i);
        }
    }
    return TDM_OK;
}

/* Reads the shape of a tensor from the header's JSON. */
static tdm_status read_shape(const struct file_header *header, const json_t *shape,
                             struct tdm_tensor_info *info)
{
    size_t dims_count = json_array_size(shape);

    if (!json_is_array(shape) || dims_count > TDM_DIMS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: \"%s\": shape has %zu numbers or is no list, expected "
                         "a list of 0 to %d numbers. " GET_AGAIN,
                         header->file, info->name, dims_count, TDM_DIMS_MAX);
    }
    info->dims_count = (uint32_t)dims_count;
    for (uint32_t i = 0; i < info->dims_count; i++) {
        const json_t *dimension = json_array_get(shape, i);

        if (!json_is_integer(dimension) || json_integer_value(dimension) < 0) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "reading %s failed: \"%s\": dimension %u is not a whole number of 0 "
                             "or more. " GET_AGAIN,
                             header->file, info->name, i);
        }
        info->shape[i] = (uint64_t)json_integer_value(dimension);
    }
    return TDM_OK;
}

/* Reads from the header's JSON where the bytes of a tensor begin and end in the data. */
static tdm_status read_offsets(const struct file_header *header, const json_t *offsets,
                               struct tensor_entry *entry)
{
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: \"%s\": data_offsets are not [begin, end], two whole "
                         "numbers in ascending order. " GET_AGAIN,
                         header->file, entry->name);
    }
    entry->begin = (uint64_t)json_integer_value(begin);
    entry->end = (uint64_t)json_integer_value(end);
    if (entry->end > header->data_bytes) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading %s failed: \"%s\" ends at byte %llu of %llu bytes of data. " GET_AGAIN,
            header->file, entry->name, (unsigned long long)entry->end,
            (unsigned long long)header->data_bytes);
    }
    return TDM_OK;
}

/* Checks that dtype, shape and offsets of a tensor agree and that its elements are aligned. */
static tdm_status check_entry(const struct file_header *header, const struct tensor_entry *entry)
{
    const struct tdm_tensor_info *info = &entry->view.info;
    uint64_t size_bytes = tdm_tensor_bytes(info);
    size_t element_bytes = tdm_dtype_bytes(info->dtype);

    if (size_bytes == UINT64_MAX) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading %s failed: \"%s\": the product of its shape overflows 64 bits. " GET_AGAIN,
            header->file, info->name);
    }
    if (size_bytes != entry->end - entry->begin) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: \"%s\": %s and its shape make %llu bytes, its offsets "
                         "%llu. " GET_AGAIN,
                         header->file, info->name, tdm_dtype_name(info->dtype),
                         (unsigned long long)size_bytes,
                         (unsigned long long)(entry->end - entry->begin));
    }
    if ((uintptr_t)entry->view.data % element_bytes != 0) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading %s failed: \"%s\" begins at byte %llu of the data, which is not aligned to "
            "its elements of %zu bytes. Save the file again with a current safetensors library",
            header->file, info->name, (unsigned long long)entry->begin, element_bytes);
    }
    return TDM_OK;
}

/* Reads and checks one tensor of the header. */
static tdm_status read_entry(const struct file_header *header, const char *name,
                             const json_t *value, struct tensor_entry *entry)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    struct tdm_tensor_info *info = &entry->view.info;
    size_t name_bytes = strlen(name);

    if (name_bytes == 0 || name_bytes >= sizeof(entry->name)) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading %s failed: \"%.95s\": a name has 1 to %zu bytes, not %zu. Rename the tensor",
            header->file, name, sizeof(entry->name) - 1, name_bytes);
    }
    memcpy(entry->name, name, name_bytes + 1);
    info->name = entry->name;
    if (json_object_size(value) != 3 || dtype == NULL) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: \"%s\" has %zu entries, expected three: dtype (a "
                         "text), shape and data_offsets. " GET_AGAIN,
                         header->file, name, json_object_size(value));
    }
    if (!tdm__dtype_parse(dtype, &info->dtype)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: \"%s\": dtype \"%.16s\" is not supported. Convert the "
                         "tensor to a supported one, such as F32 or BF16",
                         header->file, name, dtype);
    }
    TDM_TRY(read_shape(header, json_object_get(value, "shape"), info));
    TDM_TRY(read_offsets(header, json_object_get(value, "data_offsets"), entry));
    entry->view.data = header->data + entry->begin;
    TDM_TRY(check_entry(header, entry));
    tdm__tensor_row_major_strides(info, entry->view.stride);
    return TDM_OK;
}

/* Orders tensors by their offsets in the data, for qsort(). */
static int compare_offsets(const void *a, const void *b)
{
    const struct tensor_entry *first = a;
    const struct tensor_entry *second = b;

    if (first->begin != second->begin) {
        return first->begin < second->begin ? -1 : 1;
    }
    /* Empty tensors come before the tensor that begins at the same byte. */
    if (first->end != second->end) {
        return first->end < second->end ? -1 : 1;
    }
    return strcmp(first->name, second->name);
}

/* Orders pointers to tensors by name, for qsort(). */
static int compare_names(const void *a, const void *b)
{
    const struct tensor_entry *const *first = a;
    const struct tensor_entry *const *second = b;

    return strcmp((*first)->name, (*second)->name);
}

/* Checks that the tensors cover the data exactly, without gaps where something could hide and
 * without overlaps. */
static tdm_status check_cover(const struct file_header *header, const tdm_safetensors *file)
{
    uint64_t covered = 0;

    for (uint32_t i = 0; i < file->count; i++) {
        const struct tensor_entry *entry = &file->entries[i];

        if (entry->begin != covered) {
            return tdm__fail(
                TDM_E_PROTOCOL,
                "reading %s failed: \"%s\" begins at byte %llu, %s byte %llu. " GET_AGAIN,
                header->file, entry->name, (unsigned long long)entry->begin,
                entry->begin < covered ? "but the one before it ends at" : "a gap after",
                (unsigned long long)covered);
        }
        covered = entry->end;
    }
    if (covered != header->data_bytes) {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading %s failed: %llu bytes of data, the tensors cover %llu. " GET_AGAIN,
            header->file, (unsigned long long)header->data_bytes, (unsigned long long)covered);
    }
    return TDM_OK;
}

/* Checks that the header's metadata is a map of strings. */
static tdm_status check_metadata(const struct file_header *header, const json_t *metadata)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: __metadata__ is no map of texts. Save the file with "
                         "texts there, or without it",
                         header->file);
    }
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value)) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "reading %s failed: \"%.64s\" in __metadata__ is no text. Save the "
                             "file with a text there, or without it",
                             header->file, key);
        }
    }
    return TDM_OK;
}

/* Reads all tensors that the header's JSON lists. */
static tdm_status read_entries(const struct file_header *header, json_t *root,
                               tdm_safetensors *file)
{
    tdm_status status = TDM_OK;

    for (void *i = json_object_iter(root); i != NULL && status == TDM_OK;
         i = json_object_iter_next(root, i)) {
        const char *name = json_object_iter_key(i);

        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(header, json_object_iter_value(i));
        } else {
            status =
                read_entry(header, name, json_object_iter_value(i), &file->entries[file->count++]);
        }
    }
    return status;
}

/* Reads the tensors of the parsed header and sorts them by place and by name. */
static tdm_status read_root(const struct file_header *header, json_t *root, tdm_safetensors *file)
{
    size_t count_max = json_object_size(root);

    if (!json_is_object(root) || count_max > TENSORS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: the header has %zu tensors, expected a map of at most "
                         "%d. Divide the model into several files",
                         header->file, count_max, TENSORS_MAX);
    }
    file->entries = calloc(count_max + 1, sizeof(*file->entries));
    file->by_name = calloc(count_max + 1, sizeof(struct tensor_entry *));
    if (file->entries == NULL || file->by_name == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating the %zu tensors of %s failed: out of memory",
                         count_max, header->file);
    }
    TDM_TRY(read_entries(header, root, file));
    qsort(file->entries, file->count, sizeof(*file->entries), compare_offsets);
    TDM_TRY(check_cover(header, file));
    for (uint32_t i = 0; i < file->count; i++) {
        /* Sorting has moved the entry, so the pointer to its name is set again. */
        file->entries[i].view.info.name = file->entries[i].name;
        file->by_name[i] = &file->entries[i];
    }
    qsort(file->by_name, file->count, sizeof(struct tensor_entry *), compare_names);
    return TDM_OK;
}

/* Checks the lengths in a file's bytes, parses its header and fills `file` with its tensors. */
static tdm_status read_header(const unsigned char *bytes, size_t size_bytes,
                              struct file_header *header, tdm_safetensors *file)
{
    const char *text = (const char *)bytes + LENGTH_BYTES;
    json_error_t error;
    uint64_t header_bytes;
    json_t *root;
    tdm_status status;

    if (size_bytes < LENGTH_BYTES) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: the file has %zu bytes, and its header's length alone "
                         "has %d. " GET_AGAIN,
                         header->file, size_bytes, LENGTH_BYTES);
    }
    memcpy(&header_bytes, bytes, sizeof(header_bytes));
    header_bytes = le64toh(header_bytes);
    if (header_bytes > HEADER_BYTES_MAX || header_bytes > size_bytes - LENGTH_BYTES) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: the header should have %llu bytes, but the file has "
                         "%zu, and the limit is %d. " GET_AGAIN,
                         header->file, (unsigned long long)header_bytes, size_bytes - LENGTH_BYTES,
                         HEADER_BYTES_MAX);
    }
    if (header_bytes == 0 || text[0] != '{') {
        return tdm__fail(
            TDM_E_PROTOCOL,
            "reading %s failed: the header does not begin with '{'. Give a safetensors file",
            header->file);
    }
    TDM_TRY(scan_header(text, header_bytes, header->file));
    root = json_loadb(text, header_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "reading %s failed: header: byte %d: %s. " GET_AGAIN,
                         header->file, error.position, error.text);
    }
    header->data = bytes + LENGTH_BYTES + header_bytes;
    header->data_bytes = size_bytes - LENGTH_BYTES - header_bytes;
    status = read_root(header, root, file);
    json_decref(root);
    return status;
}

tdm_status tdm__safetensors_parse(const void *bytes, size_t size_bytes, const char *name,
                                  tdm_safetensors **file_out)
{
    struct file_header header = {.file = name};
    tdm_safetensors *file = calloc(1, sizeof(*file));
    tdm_status status;

    if (file == NULL) {
        return tdm__fail(TDM_E_NOMEM, "reading %s failed: out of memory", name);
    }
    status = read_header(bytes, size_bytes, &header, file);
    if (status != TDM_OK) {
        tdm_safetensors_close(file);
        return status;
    }
    *file_out = file;
    return TDM_OK;
}

/* Maps the open file `fd` read-only; `path` names the file in errors. */
static tdm_status map_open_file(int fd, const char *path, void **map_out, size_t *map_bytes_out)
{
    struct stat attributes;
    void *map;

    if (fstat(fd, &attributes) != 0) {
        return tdm__fail_errno(errno, "reading %s failed: fstat", path);
    }
    if (!S_ISREG(attributes.st_mode) || attributes.st_size < LENGTH_BYTES) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "reading %s failed: it is no regular file or has %lld bytes, less than "
                         "the %d of a header's length. Give a safetensors file",
                         path, (long long)attributes.st_size, LENGTH_BYTES);
    }
    map = mmap(NULL, (size_t)attributes.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        return tdm__fail_errno(errno, "reading %s failed: mmap of %lld bytes", path,
                               (long long)attributes.st_size);
    }
    *map_out = map;
    *map_bytes_out = (size_t)attributes.st_size;
    return TDM_OK;
}

tdm_status tdm__safetensors_open_one(const char *path, tdm_safetensors **file_out)
{
    tdm_safetensors *file = NULL;
    size_t map_bytes = 0;
    void *map = NULL;
    tdm_status status;
    int fd;

    TDM_TRY(tdm__file_open(path, &fd));
    status = map_open_file(fd, path, &map, &map_bytes);
    (void)close(fd);
    TDM_TRY(status);
    (void)madvise(map, map_bytes, MADV_WILLNEED); /* The kernel reads all files at once. */
    status = tdm__safetensors_parse(map, map_bytes, path, &file);
    if (status != TDM_OK) {
        (void)munmap(map, map_bytes);
        return status;
    }
    TDM_ASSERT(file != NULL);
    file->map = map;
    file->map_bytes = map_bytes;
    *file_out = file;
    return TDM_OK;
}

void tdm_safetensors_close(tdm_safetensors *file)
{
    if (file == NULL) {
        return;
    }
    if (file->map != NULL) {
        (void)munmap(file->map, file->map_bytes);
    }
    for (uint32_t i = 0; i < file->parts_count; i++) {
        tdm_safetensors_close(file->parts[i]);
    }
    free(file->parts);
    free(file->by_name);
    free(file->entries);
    free(file);
}

/* Copies the tensors of all parts and sorts them by name. Fails if two parts have a tensor of the
 * same name. */
static tdm_status merge_entries(tdm_safetensors *model, const char *name)
{
    for (uint32_t i = 0; i < model->parts_count; i++) {
        const tdm_safetensors *part = model->parts[i];

        for (uint32_t k = 0; k < part->count; k++) {
            struct tensor_entry *entry = &model->entries[model->count];

            *entry = part->entries[k];
            entry->view.info.name = entry->name;
            model->by_name[model->count++] = entry;
        }
    }
    qsort(model->by_name, model->count, sizeof(struct tensor_entry *), compare_names);
    for (uint32_t i = 1; i < model->count; i++) {
        if (strcmp(model->by_name[i - 1]->name, model->by_name[i]->name) == 0) {
            return tdm__fail(
                TDM_E_PROTOCOL,
                "reading %s failed: two files have tensor \"%s\". Use the files of one model only",
                name, model->by_name[i]->name);
        }
    }
    return TDM_OK;
}

tdm_status tdm__safetensors_merge(tdm_safetensors **parts, uint32_t parts_count, const char *name,
                                  tdm_safetensors **model_out)
{
    tdm_safetensors *model = calloc(1, sizeof(*model));
    uint64_t count = 0;
    tdm_status status;

    for (uint32_t i = 0; i < parts_count; i++) {
        count += parts[i]->count;
    }
    if (model == NULL || count > TENSORS_MAX) {
        free(model);
        return tdm__fail(TDM_E_LIMIT,
                         "reading %s failed: its files have %llu tensors, at most %d are allowed. "
                         "Store the model in fewer tensors",
                         name, (unsigned long long)count, TENSORS_MAX);
    }
    model->entries = calloc(count + 1, sizeof(*model->entries));
    model->by_name = calloc(count + 1, sizeof(struct tensor_entry *));
    model->parts = calloc(parts_count + 1U, sizeof(tdm_safetensors *));
    if (model->entries == NULL || model->by_name == NULL || model->parts == NULL) {
        tdm_safetensors_close(model);
        return tdm__fail(TDM_E_NOMEM, "allocating the %llu tensors of %s failed: out of memory",
                         (unsigned long long)count, name);
    }
    memcpy(model->parts, parts, parts_count * sizeof(tdm_safetensors *));
    model->parts_count = parts_count;
    status = merge_entries(model, name);
    if (status != TDM_OK) {
        model->parts_count = 0; /* The caller still owns the parts. */
        tdm_safetensors_close(model);
        return status;
    }
    *model_out = model;
    return TDM_OK;
}

uint32_t tdm_safetensors_count(const tdm_safetensors *file)
{
    TDM__REQUIRE_OR(file, 0);

    return file->count;
}

const struct tdm_tensor_view *tdm_safetensors_view(const tdm_safetensors *file, uint32_t index)
{
    TDM__REQUIRE_OR(file, NULL);

    return index < file->count ? &file->entries[index].view : NULL;
}

/* Compares a name with the name of the tensor to which `element` points, for bsearch(). */
static int compare_name_to_entry(const void *name, const void *element)
{
    const struct tensor_entry *const *entry = element;

    return strcmp(name, (*entry)->name);
}

const struct tdm_tensor_view *tdm_safetensors_find(const tdm_safetensors *file, const char *name)
{
    TDM__REQUIRE_OR(file, NULL);
    TDM__REQUIRE_OR(name, NULL);

    struct tensor_entry **found = bsearch(name, file->by_name, file->count,
                                          sizeof(struct tensor_entry *), compare_name_to_entry);

    return found == NULL ? NULL : &(*found)->view;
}

/* ---- writing ------------------------------------------------------------------------- */

/* Orders the tensors by element size, the largest first, so that each lies on its elements'
 * alignment. The given order is kept otherwise. An element has 1, 2, 4 or 8 bytes. */
static void order_tensors(const struct tdm_tensor_view *tensors, uint32_t tensors_count,
                          const struct tdm_tensor_view **ordered)
{
    uint32_t count = 0;

    for (size_t element_bytes = 8; element_bytes > 0; element_bytes /= 2) {
        for (uint32_t i = 0; i < tensors_count; i++) {
            if (tdm_dtype_bytes(tensors[i].info.dtype) == element_bytes) {
                ordered[count++] = &tensors[i];
            }
        }
    }
}

/* Adds one tensor to the header's JSON. Advances `offset`, the position in the data, past the
 * tensor's bytes. */
static tdm_status describe_tensor(json_t *root, const struct tdm_tensor_view *tensor,
                                  uint64_t *offset)
{
    const struct tdm_tensor_info *info = &tensor->info;
    uint64_t end;
    json_t *shape;
    json_t *entry;

    if (!tdm__tensor_is_contiguous(tensor)) {
        return tdm__fail(TDM_E_INVAL,
                         "tensor \"%s\" is not contiguous. Copy it to contiguous memory first",
                         info->name);
    }
    if (strcmp(info->name, "__metadata__") == 0 || json_object_get(root, info->name) != NULL) {
        return tdm__fail(TDM_E_INVAL,
                         "\"%s\": the name is taken, by another tensor or by the file's format. "
                         "Rename the tensor",
                         info->name);
    }
    if (__builtin_add_overflow(*offset, tdm_tensor_bytes(info), &end) || end > INT64_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "the tensors up to \"%s\" have more than %lld bytes. Correct their shapes",
                         info->name, (long long)INT64_MAX);
    }
    shape = json_array();
    for (uint32_t i = 0; i < info->dims_count; i++) {
        (void)json_array_append_new(shape, json_integer((json_int_t)info->shape[i]));
    }
    entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", tdm_dtype_name(info->dtype), "shape", shape,
                      "data_offsets", (json_int_t)*offset, (json_int_t)end);
    if (json_object_set_new(root, info->name, entry) != 0) {
        return tdm__fail(TDM_E_INVAL, "tensor \"%s\": its name is not UTF-8. Rename it",
                         info->name);
    }
    *offset = end;
    return TDM_OK;
}

/* Builds the header of a file with these tensors as JSON text, which the caller frees. */
static tdm_status build_header(const struct tdm_tensor_view *const *tensors, uint32_t tensors_count,
                               char **header_out)
{
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    tdm_status status = TDM_OK;
    uint64_t offset = 0;
    char *header;

    if (root == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating a safetensors header failed: out of memory");
    }
    for (uint32_t i = 0; i < tensors_count && status == TDM_OK; i++) {
        status = describe_tensor(root, tensors[i], &offset);
    }
    if (status == TDM_OK) {
        header = json_dumps(root, JSON_COMPACT);
        if (header == NULL) {
            status =
                tdm__fail(TDM_E_NOMEM, "allocating a safetensors header failed: out of memory");
        } else {
            *header_out = header;
        }
    }
    json_decref(root);
    return status;
}

/* Writes the header's length and the header. Spaces behind the header put the data at a multiple of
 * 8. */
static tdm_status write_header(struct tdm__atomic_file *out, const char *header)
{
    static const char spaces[LENGTH_BYTES] = "        ";
    size_t header_bytes = strlen(header);
    size_t padding_bytes = (LENGTH_BYTES - header_bytes % LENGTH_BYTES) % LENGTH_BYTES;
    uint64_t length = htole64(header_bytes + padding_bytes);

    if (header_bytes + padding_bytes > HEADER_BYTES_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "writing %s failed: its header has %zu bytes, at most %d are allowed. "
                         "Divide the model into several files",
                         out->path, header_bytes, HEADER_BYTES_MAX);
    }
    TDM_TRY(tdm__atomic_file_write(out, &length, sizeof(length)));
    TDM_TRY(tdm__atomic_file_write(out, header, header_bytes));
    return tdm__atomic_file_write(out, spaces, padding_bytes);
}

/* Writes a whole safetensors file. The file at `path` is replaced only if everything was
 * written. */
static tdm_status write_file(const char *path, const char *header,
                             const struct tdm_tensor_view *const *tensors, uint32_t tensors_count)
{
    struct tdm__atomic_file out;
    tdm_status status;

    TDM_TRY(tdm__atomic_file_open(&out, path));
    status = write_header(&out, header);
    for (uint32_t i = 0; i < tensors_count && status == TDM_OK; i++) {
        status =
            tdm__atomic_file_write(&out, tensors[i]->data, tdm_tensor_bytes(&tensors[i]->info));
    }
    if (status != TDM_OK) {
        tdm__atomic_file_abandon(&out);
        return status;
    }
    return tdm__atomic_file_commit(&out);
}

tdm_status tdm_safetensors_write(const char *path, const struct tdm_tensor_view *tensors,
                                 uint32_t tensors_count)
{
    TDM__REQUIRE(path);
    TDM__REQUIRE_ARRAY(tensors, tensors_count);

    const struct tdm_tensor_view **ordered;
    tdm_status status;
    char *header = NULL;

    if (tensors_count > TENSORS_MAX) {
        return tdm__fail(TDM_E_LIMIT,
                         "writing %s failed: the model has %u tensors, at most %d are allowed in "
                         "one file. Divide it into several files",
                         path, tensors_count, TENSORS_MAX);
    }
    for (uint32_t i = 0; i < tensors_count; i++) {
        TDM_TRY(tdm__wrap(tdm__tensor_check(&tensors[i].info), "writing %s failed", path));
    }
    ordered = calloc(tensors_count + 1U, sizeof(const struct tdm_tensor_view *));
    if (ordered == NULL) {
        return tdm__fail(TDM_E_NOMEM, "writing %s failed: allocating %u tensors: out of memory",
                         path, tensors_count);
    }
    order_tensors(tensors, tensors_count, ordered);
    status = tdm__wrap(build_header(ordered, tensors_count, &header), "writing %s failed", path);
    if (status == TDM_OK) {
        TDM_ASSERT(header != NULL);
        status = write_file(path, header, ordered, tensors_count);
        free(header);
    }
    free((void *)ordered);
    return status;
}
