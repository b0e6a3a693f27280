/* program.h - random programs: drivers that do anything with actors, checked by the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_PROGRAM_H
#define TDM_TESTS_SIM_PROGRAM_H

#include <stdint.h>

/* Runs one simulation. Ends this process if a promise was broken. */
void program_run(uint64_t seed, const char *directory);

#endif
