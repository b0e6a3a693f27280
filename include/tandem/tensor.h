/* tensor.h - what a tensor is, where its parts lie, and files of them. */
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

enum { TDM_DIMS_MAX = 4, TDM_TENSOR_NAME_BYTES_MAX = 96 };

/* A whole tensor as the model knows it: Hugging Face name, row-major shape. */
struct tdm_tensor_info {
    const char *name; /* 1 to 95 bytes */
    enum tdm_dtype dtype;
    uint32_t dims_count; /* 0 (a scalar) to 4 */
    uint64_t shape[TDM_DIMS_MAX];
};

/* UINT64_MAX where the product does not fit. */
TDM_API uint64_t tdm_tensor_elements(const struct tdm_tensor_info *info);
TDM_API uint64_t tdm_tensor_bytes(const struct tdm_tensor_info *info);

/* A tensor that can be read: `data` points at its first element. */
struct tdm_tensor_view {
    struct tdm_tensor_info info;
    uint64_t stride[TDM_DIMS_MAX]; /* in elements */
    const void *data;              /* borrowed for the call */
};

/* A part of a tensor that one rank holds.  Either `flat`: elements offset[0] … + extent[0] of
 * the row-major element list, as FSDP shards lie; or a box: offset and extent per dimension. */
struct tdm_slice {
    uint32_t tensor; /* index into the list of tensor infos */
    uint32_t flat;
    uint64_t offset[TDM_DIMS_MAX];
    uint64_t extent[TDM_DIMS_MAX];
    const void *address; /* of the part, contiguous, inside one of the rank's regions */
    /* An engine may want its part in another type than the tensor's; 0: the tensor's own.
     * float32 becomes bfloat16, rounded to nearest.  Of a matrix, float32 and bfloat16 become
     * TDM_F8_E4M3 by blocks of 128 x 128, which the part must not cut; each block has a float32
     * that its codes are to be multiplied with, row after row at `scales`: what checkpoints on
     * Hugging Face call NAME_scale_inv. */
    enum tdm_dtype dtype;
    const void *scales; /* of FP8: inside the same region */
};

/* ---- safetensors: Hugging Face's file format -------------------------------------------- */

typedef struct tdm_safetensors tdm_safetensors;

/* Maps the file read-only and checks all of its header: sizes, order, overlaps, dtype × shape =
 * bytes, header at most 100 MB.  Whatever is wrong is TDM_E_PROTOCOL naming file, tensor and
 * numbers. */
TDM_API tdm_status tdm_safetensors_open(const char *path, tdm_safetensors **file_out);
TDM_API void tdm_safetensors_close(tdm_safetensors *file); /* NULL is allowed */
TDM_API uint32_t tdm_safetensors_count(const tdm_safetensors *file);
/* View number `index`, in the order of their bytes; borrowed until close. */
TDM_API const struct tdm_tensor_view *tdm_safetensors_view(const tdm_safetensors *file,
                                                           uint32_t index);
/* NULL when there is none of that name. */
TDM_API const struct tdm_tensor_view *tdm_safetensors_find(const tdm_safetensors *file,
                                                           const char *name);
/* Writes contiguous tensors to `path`: to a temporary name beside it, fsync, rename.  With the
 * metadata {"format": "pt"} that transformers asks for. */
TDM_API tdm_status tdm_safetensors_write(const char *path,
                                         const struct tdm_tensor_view *tensors,
                                         uint32_t tensors_count);

#ifdef __cplusplus
}
#endif

#endif
