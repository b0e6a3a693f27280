/* error.h - how the inside of Tandem reports a failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_ERROR_H
#define TDM_RUNTIME_ERROR_H

#include <tandem/error.h>

enum { TDM__ERROR_DETAIL_BYTES = 3072 };

/* Records the detail and returns `status`, so a failure is one statement:
 *     return tdm__fail(TDM_E_INVAL, "rank %u of %u", rank, world);
 * Only the function that first decides which error it is may call this; its callers pass the
 * status up untouched.  The arguments may include tdm_error_detail() itself.
 */
#define tdm__fail tdm_fail

/* Forgets the recorded detail. */
void tdm__error_clear(void);

/* tdm__fail with ": " and strerror(error_number) added, for TDM_E_IO. */
__attribute__((format(printf, 2, 3))) tdm_status tdm__fail_errno(int error_number,
                                                                 const char *format, ...);

/* Puts "context: " before the recorded detail and returns `status`: at a module's border, once.
 */
__attribute__((format(printf, 2, 3))) tdm_status tdm__wrap(tdm_status status, const char *format,
                                                           ...);

/* For public functions.  Records which argument of which function is NULL; returns TDM_E_INVAL.
 */
tdm_status tdm__null_argument(const char *function, const char *argument);

/* Leaves a public function with TDM_E_INVAL if `argument` is NULL. */
#define TDM__REQUIRE(argument)                                                                     \
    do {                                                                                           \
        if (__builtin_expect((argument) == NULL, 0)) {                                             \
            return tdm__null_argument(__func__, #argument);                                        \
        }                                                                                          \
    } while (0)

/* The same for an array, which may be NULL if it has no elements. */
#define TDM__REQUIRE_ARRAY(array, count)                                                           \
    do {                                                                                           \
        if (__builtin_expect((array) == NULL && (count) > 0, 0)) {                                 \
            return tdm__null_argument(__func__, #array);                                           \
        }                                                                                          \
    } while (0)

/* The same for a function that returns something else than a status, or nothing. */
#define TDM__REQUIRE_OR(argument, value)                                                           \
    do {                                                                                           \
        if (__builtin_expect((argument) == NULL, 0)) {                                             \
            (void)tdm__null_argument(__func__, #argument);                                         \
            return value;                                                                          \
        }                                                                                          \
    } while (0)

#endif
