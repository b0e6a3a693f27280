/* fuzz.h - the one function that a fuzz target gives. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_FUZZ_H
#define TDM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Reads `size` hostile bytes; must neither crash, hang nor leak.  Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
