/* dtype.h - converts the name of an element type (dtype) to its enum value. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_DTYPE_H
#define TDM_RUNTIME_DTYPE_H

#include <stdbool.h>
#include <tandem/dtype.h>

/* Stores the dtype named `name`, such as "BF16" (see tdm_dtype_name()), in `dtype_out`. Returns
 * false for an unknown name. */
bool tdm__dtype_parse(const char *name, enum tdm_dtype *dtype_out);

#endif
