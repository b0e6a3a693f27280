/* world.h - one simulated cluster: what happens in it, and how it fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_WORLD_H
#define TDM_TESTS_CLUSTER_SIM_WORLD_H

#include "runtime/token.h"

#include <stdbool.h>
#include <stdint.h>

/* The secret of every simulated cluster. */
extern const uint8_t world_token[TDM__TOKEN_BYTES];

/* What has happened in all worlds so far. */
struct world_totals {
    uint64_t steps;
    uint64_t simulated_ms;
    uint64_t calls;
    uint64_t refused_calls;
    uint64_t workers;
    uint64_t faults;
};
extern struct world_totals world_totals;

/* Runs the world of a seed in the directory. Does not return if an invariant fails. */
void world_run(uint64_t seed, const char *directory);
/* Prints the seed and what is wrong, and ends the program. */
__attribute__((format(printf, 1, 2), noreturn)) void world_fail(const char *format, ...);

/* ---- faults.c --------------------------------------------------------------------------- */

/* Starts the process that makes faults, and in the end repairs everything. */
void faults_begin(void);
/* Whether all faults are over and every machine that is not off for good has a daemon that has
 * joined. */
bool faults_are_over(void);
/* Since when there has been no fault, in simulated milliseconds; the present time during one. */
int64_t faults_quiet_since(void);
/* Whether the process has ended. */
bool faults_have_ended(void);

/* ---- invariants.c ----------------------------------------------------------------------- */

/* Checks after a step what must always hold. */
void invariants_check(void);
/* Prints the actors of all daemons, after a failure. */
void invariants_describe(void);
/* Checks what must hold once everything has been repaired and all drivers have ended; returns
 * whether it holds, and a text if not. */
bool invariants_hold_at_the_end(char *text, uint32_t text_bytes);

#endif
