/* open_files.h - how many descriptors the test's process has open. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_OPEN_FILES_H
#define TDM_TESTS_SUPPORT_OPEN_FILES_H

#include <stdint.h>

/* Returns the number of open descriptors of this process whose target (as in /proc/self/fd, such as
 * "/tmp/file (deleted)" or "socket:[5]") contains `part`. An empty `part` counts all descriptors.
 */
uint32_t open_files_count(const char *part);

#endif
