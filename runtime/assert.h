/* assert.h - assertions that stay on in release builds.  They check for bugs in Tandem itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_ASSERT_H
#define TDM_RUNTIME_ASSERT_H

/* Prints the failed expression, its file and its line to stderr and calls abort(). */
_Noreturn void tdm__assert_failed(const char *expression, const char *file, int line);

/* Aborts the process unless `expression` is true.  It is evaluated in every build.  Errors that
 * users or other processes can cause are returned as a tdm_status instead. */
#define TDM_ASSERT(expression)                                                                     \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            tdm__assert_failed(#expression, __FILE__, __LINE__);                                   \
        }                                                                                          \
    } while (0)

#endif
