/* python.h - where the commands of the command line find Tandem's Python package. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_PYTHON_H
#define TDM_CLI_PYTHON_H

#include <tandem/error.h>

/* Puts the folders of Tandem's Python package in front of the variable PYTHONPATH of this process,
 * so that the interpreters that it starts find it. TDM_E_NOT_FOUND if the package is not installed
 * beside this program. One thread calls it. */
tdm_status tdm__python_path_add(void);

#endif
