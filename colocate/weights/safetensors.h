/* safetensors.h - opens one safetensors file, and joins several to a model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SAFETENSORS_H
#define TDM_COLOCATE_WEIGHTS_SAFETENSORS_H

#include <tandem/tensor.h>

/* Parses and checks a safetensors file in memory. `bytes` are aligned to 8 and borrowed until
 * tdm_safetensors_close(). `name` stands for the file in error messages. */
tdm_status tdm__safetensors_parse(const void *bytes, size_t size_bytes, const char *name,
                                  tdm_safetensors **file_out);

/* Opens the safetensors file at `path`, as tdm_safetensors_open() does for the path of a file. */
tdm_status tdm__safetensors_open_one(const char *path, tdm_safetensors **file_out);

/* Makes one model of several open files. Its tensors are in the order of the files. On success the
 * model owns the files; the array stays the caller's. Returns TDM_E_PROTOCOL if two files have a
 * tensor of the same name; `name` stands for the model in error messages. */
tdm_status tdm__safetensors_merge(tdm_safetensors **parts, uint32_t parts_count, const char *name,
                                  tdm_safetensors **model_out);

#endif
