/* safetensors.h - parses a safetensors file in memory, for the fuzzer and the tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SAFETENSORS_H
#define TDM_COLOCATE_WEIGHTS_SAFETENSORS_H

#include <tandem/tensor.h>

/* Parses and checks a safetensors file in memory. `bytes` are aligned to 8 and borrowed until
 * tdm_safetensors_close(). `name` stands for the file in error messages. */
tdm_status tdm__safetensors_parse(const void *bytes, size_t size_bytes, const char *name,
                                  tdm_safetensors **file_out);

#endif
