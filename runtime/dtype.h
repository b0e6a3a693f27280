/* dtype.h - dtypes by their word. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_DTYPE_H
#define TDM_RUNTIME_DTYPE_H

#include <stdbool.h>
#include <tandem/dtype.h>

/* False for a word that tdm_dtype_name() never says. */
bool tdm__dtype_parse(const char *name, enum tdm_dtype *dtype_out);

#endif
