/* fuzz.h - the function that a fuzz target defines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FUZZ_H
#define TDM_TESTS_FUZZ_H

#include "runtime/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Processes `size` hostile bytes. It must neither crash, hang nor leak. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Suppresses warnings about malformed input in the log of a fuzzer. */
static inline void fuzz_be_quiet(void)
{
    static bool is_quiet;

    if (!is_quiet) {
        is_quiet = true;
        (void)setenv("TANDEM_LOG", "error", 0); /* NOLINT(concurrency-mt-unsafe) one thread */
        tdm__log_init("fuzz");
    }
}

#endif
