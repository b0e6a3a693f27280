/* assert.h - assertions that stay on in release builds, for our own mistakes only. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_ASSERT_H
#define TDM_RUNTIME_ASSERT_H

/* Prints the place to stderr and aborts. */
_Noreturn void tdm__assert_failed(const char *expression, const char *file, int line);

#define TDM_ASSERT(expression)                                                                     \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            tdm__assert_failed(#expression, __FILE__, __LINE__);                                   \
        }                                                                                          \
    } while (0)

#endif
