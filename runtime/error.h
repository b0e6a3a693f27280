/* error.h - functions by which the inside of Tandem reports failures. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_ERROR_H
#define TDM_RUNTIME_ERROR_H

#include <tandem/error.h>

/* Capacity in bytes of the per-thread error detail, the NUL included.  Longer texts are cut. */
enum { TDM__ERROR_DETAIL_BYTES = 3072 };

/* Records the error detail of this thread and returns `status`, so that a failure is one
 * statement:
 *     return tdm__fail(TDM_E_INVAL, "rank %u of %u", rank, ranks_count);
 * Only the function that decides on the error calls this; its callers return the status
 * unchanged.  The arguments may include tdm_error_detail() itself. */
#define tdm__fail tdm_fail

/* Empties the error detail of this thread. */
void tdm__error_clear(void);

/* Records the formatted text, followed by ": " and strerror(error_number), as the error detail.
 * Returns TDM_E_NOMEM for ENOMEM, else TDM_E_IO. */
__attribute__((format(printf, 2, 3))) tdm_status tdm__fail_errno(int error_number,
                                                                 const char *format, ...);

/* Puts the formatted context and ": " before the error detail of this thread and returns `status`.
 * Does nothing for TDM_OK. Call it once, where an error leaves a module. */
__attribute__((format(printf, 2, 3))) tdm_status tdm__wrap(tdm_status status, const char *format,
                                                           ...);

/* The first failure of several operations, of which the later ones are carried out all the same. It
 * begins with TDM_OK and no text. */
struct tdm__first_failure {
    tdm_status status;                    /* Status of that failure; TDM_OK if there was none. */
    char detail[TDM__ERROR_DETAIL_BYTES]; /* Its error detail. */
};
/* Notes the result of an operation, whose error detail is that of this thread. */
void tdm__first_failure_note(struct tdm__first_failure *failure, tdm_status status);
/* Returns the first failure and restores its error detail; TDM_OK if there was none. */
tdm_status tdm__first_failure_return(const struct tdm__first_failure *failure);

/* Records that the argument named `argument` of the public function named `function` is NULL.
 * Returns TDM_E_INVAL. */
tdm_status tdm__null_argument(const char *function, const char *argument);

/* Returns from a public function with TDM_E_INVAL if `argument` is NULL. */
#define TDM__REQUIRE(argument)                                                                     \
    do {                                                                                           \
        if (__builtin_expect((argument) == NULL, 0)) {                                             \
            return tdm__null_argument(__func__, #argument);                                        \
        }                                                                                          \
    } while (0)

/* Returns from a public function with TDM_E_INVAL if `array` is NULL and `count` is not 0. */
#define TDM__REQUIRE_ARRAY(array, count)                                                           \
    do {                                                                                           \
        if (__builtin_expect((array) == NULL && (count) > 0, 0)) {                                 \
            return tdm__null_argument(__func__, #array);                                           \
        }                                                                                          \
    } while (0)

/* Returns `value` from a public function, after recording the error, if `argument` is NULL.  For
 * functions that do not return a status; `value` is empty in a void function. */
#define TDM__REQUIRE_OR(argument, value)                                                           \
    do {                                                                                           \
        if (__builtin_expect((argument) == NULL, 0)) {                                             \
            (void)tdm__null_argument(__func__, #argument);                                         \
            return value;                                                                          \
        }                                                                                          \
    } while (0)

#endif
