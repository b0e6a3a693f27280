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
__attribute__((format(printf, 2, 3))) tdm_status tdm__wrap(tdm_status status,
                                                           const char *format, ...);

#endif
