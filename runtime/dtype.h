/* dtype.h - converts the name of an element type (dtype) to its enum value. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_DTYPE_H
#define TDM_RUNTIME_DTYPE_H

#include <stdbool.h>
#include <tandem/dtype.h>

/* Finds the dtype with this name, as tdm_dtype_name() returns it ("BF16"), and stores it in
 * `dtype_out`.  Returns false for an unknown name. */
bool tdm__dtype_parse(const char *name, enum tdm_dtype *dtype_out);

#endif
