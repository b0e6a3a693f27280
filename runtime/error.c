/* error.c - texts of the status codes and the per-thread detail of the last failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text of the last failure of this thread, NUL-terminated; empty if there was none. */
static _Thread_local char error_detail[TDM__ERROR_DETAIL_BYTES];

const char *tdm_strerror(tdm_status status)
{
    switch (status) {
/* Expands one status of TDM_STATUS_MAP to a case of a switch that returns the text of the status.
 */
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return text;
        TDM_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

const char *tdm_error_detail(void)
{
    return error_detail;
}

void tdm__error_clear(void)
{
    error_detail[0] = '\0';
}

__attribute__((cold, noinline)) tdm_status tdm__null_argument(const char *function,
                                                              const char *argument)
{
    return tdm__fail(TDM_E_INVAL, "%s failed: argument \"%s\" is NULL", function, argument);
}

tdm_status(tdm_fail)(tdm_status status, const char *format, ...)
{
    /* The text is formatted in a second buffer, because the arguments may point into error_detail.
     */
    char text[TDM__ERROR_DETAIL_BYTES];
    va_list args;

    if (format == NULL) {
        (void)tdm__null_argument("tdm_fail", "format");
        return status;
    }

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(error_detail, text, strlen(text) + 1);
    return status;
}

tdm_status tdm__fail_errno(int error_number, const char *format, ...)
{
    char text[TDM__ERROR_DETAIL_BYTES - 64];
    char reason[64];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)snprintf(error_detail, sizeof(error_detail), "%s: %s", text,
                   strerror_r(error_number, reason, sizeof(reason)));
    return error_number == ENOMEM ? TDM_E_NOMEM : TDM_E_IO;
}

tdm_status tdm__wrap(tdm_status status, const char *format, ...)
{
    char context[TDM__ERROR_DETAIL_BYTES / 2];
    char inner[TDM__ERROR_DETAIL_BYTES];
    va_list args;

    if (status == TDM_OK) {
        return TDM_OK;
    }
    va_start(args, format);
    (void)vsnprintf(context, sizeof(context), format, args);
    va_end(args);
    memcpy(inner, error_detail, sizeof(inner));
    if (snprintf(error_detail, sizeof(error_detail), "%s: %s", context, inner) < 0) {
        error_detail[0] = '\0';
    }
    return status;
}

void tdm__first_failure_note(struct tdm__first_failure *failure, tdm_status status)
{
    if (failure->status == TDM_OK && status != TDM_OK) {
        failure->status = status;
        (void)snprintf(failure->detail, sizeof(failure->detail), "%s", tdm_error_detail());
    }
}

tdm_status tdm__first_failure_return(const struct tdm__first_failure *failure)
{
    return failure->status == TDM_OK ? TDM_OK : tdm__fail(failure->status, "%s", failure->detail);
}

void tdm_check(tdm_status status, const char *what)
{
    if (status != TDM_OK) {
        (void)fprintf(stderr, "%s: %s: %s: %s\n", program_invocation_short_name,
                      what == NULL ? "" : what, tdm_strerror(status), error_detail);
        exit(1); /* NOLINT(concurrency-mt-unsafe) The program ends here. */
    }
}
