/* safetensors.h - safetensors out of memory, for the fuzzer and the tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_SAFETENSORS_H
#define TDM_COLOCATE_WEIGHTS_SAFETENSORS_H

#include <tandem/tensor.h>

/* Checks a whole file that lies at `bytes` (aligned to 8); `name` stands for it in messages.
 * The bytes are borrowed until close. */
tdm_status tdm__safetensors_parse(const void *bytes, size_t size_bytes, const char *name,
                                  tdm_safetensors **file_out);

#endif
