/* library.h - NCCL's library, loaded at run time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_LIBRARY_H
#define TDM_COLOCATE_COMM_NCCL_LIBRARY_H

#include "colocate/comm/nccl/nccl_api.h"

#include <tandem/error.h>

/* The functions of NCCL, by their names. One static instance per process. */
struct tdm__nccl_library {
/* NOLINTBEGIN(bugprone-macro-parentheses) a declaration cannot have them */
#define X(name, arguments) int(*name) arguments;
    NCCL_CALLS(X)
    NCCL_OPTIONAL_CALLS(X) /* NULL if this version of NCCL does not have the function. */
#undef X
#define X(name, arguments) const char *(*name)arguments;
    NCCL_TEXT_CALLS(X)
#undef X
    /* NOLINTEND(bugprone-macro-parentheses) */
};

/* Opens libnccl.so.2, or what the environment's TANDEM_NCCL_LIBRARY says instead (another path
 * of the library); once per process, any thread.  TDM_E_UNSUPPORTED, and why. */
tdm_status tdm__nccl_library(const struct tdm__nccl_library **library_out);

#endif
