/* version.h - the version of Tandem; CMakeLists.txt contains the same number. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_VERSION_H
#define TDM_CLI_VERSION_H

/* Version of Tandem, as in CMakeLists.txt. */
#define TDM__VERSION "0.1.0"

#endif
