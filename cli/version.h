/* version.h - which Tandem this is; the same number stands in CMakeLists.txt. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_VERSION_H
#define TDM_CLI_VERSION_H

#define TDM__VERSION "0.1.0"

#endif
