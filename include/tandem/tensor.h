/* tensor.h - tensors, the slices of them that ranks hold, and safetensors files. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_TENSOR_H
#define TANDEM_TENSOR_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/dtype.h>
#include <tandem/error.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TDM_DIMS_MAX = 4, /* Largest number of dimensions of a tensor. */
    /* Size in bytes of a tensor's name, including the terminating NUL. */
    TDM_TENSOR_NAME_BYTES_MAX = 96
};

/* Name, dtype and shape of a tensor of a model. */
struct tdm_tensor_info {
    const char *name;             /* Name of the tensor in Hugging Face's files, 1 to 95 bytes. */
    enum tdm_dtype dtype;         /* Data type of the tensor's elements. */
    uint32_t dims_count;          /* Number of dimensions, 0 (a scalar) to 4. */
    uint64_t shape[TDM_DIMS_MAX]; /* Length of each dimension; the elements are row-major. */
};

/* Returns the number of elements of the tensor; UINT64_MAX if the number does not fit or `info` is
 * NULL. */
TDM_API uint64_t tdm_tensor_elements(const struct tdm_tensor_info *info);
/* Returns the size of the tensor in bytes; UINT64_MAX if the number does not fit or `info` is
 * NULL. */
TDM_API uint64_t tdm_tensor_bytes(const struct tdm_tensor_info *info);

/* A tensor whose elements can be read in memory. */
struct tdm_tensor_view {
    struct tdm_tensor_info info;   /* Name, dtype and shape of the tensor. */
    uint64_t stride[TDM_DIMS_MAX]; /* Distance of neighbours in each dimension, in elements. */
    const void *data;              /* Address of the first element; borrowed for the call. */
};

/* The part of a tensor that one rank holds. */
struct tdm_slice {
    uint32_t tensor; /* Index in the model's list of tensors of the tensor that is sliced. */
    /* 1: the part is extent[0] elements from number offset[0] on in the row-major list of
     * elements, as FSDP shards are.  0: the part is a box, with an offset and an extent in each
     * dimension. */
    uint32_t flat;
    uint64_t offset[TDM_DIMS_MAX]; /* First index of the part in each dimension. */
    uint64_t extent[TDM_DIMS_MAX]; /* Length of the part in each dimension. */
    /* Address of the part, which lies contiguous in one of the rank's regions. */
    const void *address;
    /* Type in which an engine wants its part; 0: the tensor's own.  float32 becomes bfloat16,
     * rounded to nearest.  float32 and bfloat16 matrices become TDM_F8_E4M3 in blocks of 128 x
     * 128, which the part must not cut. */
    enum tdm_dtype dtype;
    /* For TDM_F8_E4M3: the float32 factors of the blocks, row after row, in the same region.
     * Checkpoints on Hugging Face call them NAME_scale_inv. */
    const void *scales;
};

/* ---- safetensors: Hugging Face's file format -------------------------------------------- */

/* A safetensors file that is open for reading.  Any number of threads may read it. */
typedef struct tdm_safetensors tdm_safetensors;

/* Maps the file at `path` read-only and checks its whole header: sizes, order, overlaps, and at
 * most 100 MB.  If `path` ends in ".index.json", it opens all files that this index names, in
 * parallel, as one file with all of their tensors; each tensor must be in the file that the index
 * says.  If `path` is a folder, it opens its model.safetensors.index.json, or else its
 * model.safetensors.  The caller closes it.  TDM_E_PROTOCOL names file, tensor and numbers;
 * TDM_E_NOT_FOUND or TDM_E_IO says why the file cannot be read.  On failure `*file_out` is
 * NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_safetensors_open(const char *path,
                                                       tdm_safetensors **file_out);
/* Closes a safetensors file; its views are invalid from then on.  NULL is allowed. */
TDM_API void tdm_safetensors_close(tdm_safetensors *file);
/* Returns the number of tensors in the file. */
TDM_API uint32_t tdm_safetensors_count(const tdm_safetensors *file);
/* Returns tensor number `index` of the file, in the order of their bytes, or NULL past the end.
 * Borrowed until the file is closed. */
TDM_API const struct tdm_tensor_view *tdm_safetensors_view(const tdm_safetensors *file,
                                                           uint32_t index);
/* Returns the file's tensor of that name, or NULL.  The view is borrowed until the file is
 * closed. */
TDM_API const struct tdm_tensor_view *tdm_safetensors_find(const tdm_safetensors *file,
                                                           const char *name);
/* Writes contiguous tensors to a safetensors file at `path`, with the metadata {"format": "pt"}
 * that transformers wants: to a temporary file beside it, with fsync and rename.  Blocks for the
 * disk.  `tensors` may be NULL if `tensors_count` is 0. */
TDM_API tdm_status tdm_safetensors_write(const char *path, const struct tdm_tensor_view *tensors,
                                         uint32_t tensors_count);
/* Writes contiguous tensors into the folder `directory` as transformers does: several files
 * model-00001-of-0000N.safetensors with at most `file_bytes_max` bytes of tensors each, then the
 * index model.safetensors.index.json, or model.safetensors alone if all fit.  A larger tensor has a
 * file of its own.  Up to eight threads write at the same time.  Each file is replaced in one step,
 * but not all together, so the folder should be a new one; an index or a single model that is there
 * and does not belong to the new files is removed.  Blocks for the disk.  `tensors` may be NULL if
 * `tensors_count` is 0.  TDM_E_INVAL if `file_bytes_max` is 0; else as tdm_safetensors_write(). */
TDM_API tdm_status tdm_safetensors_write_model(const char *directory,
                                               const struct tdm_tensor_view *tensors,
                                               uint32_t tensors_count, uint64_t file_bytes_max);

#ifdef __cplusplus
}
#endif

#endif
