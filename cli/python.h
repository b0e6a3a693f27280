/* python.h - where the commands of the command line find Tandem's Python package. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_PYTHON_H
#define TDM_CLI_PYTHON_H

#include "colocate/job/job_file.h"

/* Writes the folders with the modules of Tandem's Python package that belongs to this program, as
 * PYTHONPATH has them. TDM_E_NOT_FOUND if the package is not installed beside this program. */
tdm_status tdm__python_folders_find(char folders[TDM__PYTHON_FOLDERS_BYTES]);

#endif
